#include "model/jinja_lex.h"

#include "model/jinja_text.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int jlex_init(struct jlex *lx, struct jrun *r, const char *src, size_t n)
{
    char *p = jrun_strndup(r, src, n);
    if (!p)
        return -1;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        bool crlf = src[i] == '\r' && i + 1 < n && src[i + 1] == '\n';
        if (!crlf)
            p[k++] = src[i] == '\r' ? '\n' : src[i];
    }
    if (k && p[k - 1] == '\n')
        k--;
    p[k] = 0;
    *lx = (struct jlex){.run = r, .src = p, .n = k, .line = 1, .line_starting = true};
    return 0;
}

static void advance(struct jlex *lx, size_t to)
{
    for (; lx->pos < to; lx->pos++)
        lx->line += lx->src[lx->pos] == '\n';
    lx->line_starting = to && lx->src[to - 1] == '\n';
}

static void skip_space(struct jlex *lx)
{
    size_t at = lx->pos, k;
    while ((k = jspace_at(lx->src + at, lx->n - at)) != 0)
        at += k;
    advance(lx, at);
}

static char at(const struct jlex *lx, size_t i)
{
    return i < lx->n ? lx->src[i] : 0;
}

/* The end of the text before a tag at `tag`, after its sign or lstrip_blocks took their share. */
static size_t text_end(const struct jlex *lx, size_t tag, bool line_starting)
{
    size_t from = lx->pos, end = tag, k;
    char sign = at(lx, tag + 2);
    if (sign != '-' && (sign == '+' || at(lx, tag + 1) == '{'))
        return tag;
    while (end > from && (k = jspace_before(lx->src + from, end - from)) != 0 &&
           (sign == '-' || lx->src[end - 1] != '\n'))
        end -= k;
    if (sign == '-')
        return end;
    bool at_line_start = end == from ? line_starting : lx->src[end - 1] == '\n';
    return at_line_start ? end : tag;
}

/* After "%}", "#}" or "}}" of which the sign stands before `end`. */
static void close_tag(struct jlex *lx, size_t end, char sign, bool trims)
{
    bool newline = trims && sign != '+' && sign != '-' && at(lx, end) == '\n';
    advance(lx, end + newline);
    if (sign == '-')
        skip_space(lx);
}

static int skip_comment(struct jlex *lx)
{
    size_t from = lx->pos + 2;
    lx->run->line = lx->line;
    if (at(lx, from) == '-' || at(lx, from) == '+')
        from++;
    const char *q = from <= lx->n ? memmem(lx->src + from, lx->n - from, "#}", 2) : NULL;
    if (!q)
        return jrun_fail(lx->run, ERR_BAD_FILE, "the comment is not closed");
    size_t end = (size_t)(q - lx->src);
    close_tag(lx, end + 2, end > from ? lx->src[end - 1] : 0, true);
    return 0;
}

static size_t find_tag(const struct jlex *lx)
{
    for (size_t i = lx->pos; i + 1 < lx->n; i++) {
        const char *q = memchr(lx->src + i, '{', lx->n - 1 - i);
        if (!q)
            break;
        i = (size_t)(q - lx->src);
        if (q[1] == '{' || q[1] == '%' || q[1] == '#')
            return i;
    }
    return lx->n;
}

/* Text up to the next tag, or the opening of that tag. */
static int next_data(struct jlex *lx, struct jtok *t)
{
    while (lx->pos < lx->n) {
        bool line_starting = lx->line_starting;
        size_t tag = find_tag(lx);
        size_t end = tag < lx->n ? text_end(lx, tag, line_starting) : tag;
        *t = (struct jtok){JTOK_DATA, .line = lx->line, .p = lx->src + lx->pos, .n = end - lx->pos};
        advance(lx, tag);
        if (t->n)
            return 0;
        if (tag == lx->n)
            break;
        if (at(lx, tag + 1) == '#') {
            if (skip_comment(lx))
                return -1;
            continue;
        }
        lx->mode = at(lx, tag + 1) == '{' ? JLEX_VAR : JLEX_BLOCK;
        lx->brackets = 0;
        *t = (struct jtok){lx->mode == JLEX_VAR ? JTOK_VAR_BEGIN : JTOK_BLOCK_BEGIN,
                           .line = lx->line, .p = lx->src + tag, .n = 2};
        char sign = at(lx, tag + 2);
        advance(lx, tag + 2 + (sign == '-' || sign == '+'));
        return 0;
    }
    *t = (struct jtok){JTOK_EOF, .line = lx->line, .p = "", .n = 0};
    return 0;
}

static bool try_end(struct jlex *lx, struct jtok *t)
{
    bool block = lx->mode == JLEX_BLOCK;
    char first = block ? '%' : '}', sign = at(lx, lx->pos);
    size_t p = lx->pos;
    if (sign == '-' || (block && sign == '+'))
        p++;
    else
        sign = 0;
    if (lx->brackets || at(lx, p) != first || at(lx, p + 1) != '}')
        return false;
    *t = (struct jtok){block ? JTOK_BLOCK_END : JTOK_VAR_END, .line = lx->line, .p = lx->src + p,
                       .n = 2};
    lx->mode = JLEX_DATA;
    close_tag(lx, p + 2, sign, block);
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

static int number(struct jlex *lx, struct jtok *t)
{
    size_t e = lx->pos;
    bool real = false;
    while (is_digit(at(lx, e)))
        e++;
    if (at(lx, e) == '.' && is_digit(at(lx, e + 1))) {
        real = true;
        for (e++; is_digit(at(lx, e));)
            e++;
    }
    char c = at(lx, e);
    size_t k = e + 1 + (at(lx, e + 1) == '+' || at(lx, e + 1) == '-');
    if ((c == 'e' || c == 'E') && is_digit(at(lx, k))) {
        real = true;
        for (e = k; is_digit(at(lx, e));)
            e++;
    }
    if (is_name(at(lx, e)))
        return jrun_fail(lx->run, ERR_UNSUPPORTED, "this form of number is not supported");
    char *s = jrun_strndup(lx->run, lx->src + lx->pos, e - lx->pos);
    if (!s)
        return -1;
    errno = 0;
    t->kind = real ? JTOK_FLOAT : JTOK_INT;
    if (real)
        t->f = strtod(s, NULL);
    else
        t->i = strtoll(s, NULL, 10);
    if (errno && !real)
        return jrun_fail(lx->run, ERR_UNSUPPORTED, "the integer %.30s is too large", s);
    t->p = s;
    t->n = e - lx->pos;
    advance(lx, e);
    return 0;
}

static int string(struct jlex *lx, struct jtok *t)
{
    char quote = lx->src[lx->pos];
    size_t from = lx->pos + 1, e = from;
    while (e < lx->n && lx->src[e] != quote)
        e += lx->src[e] == '\\' ? 2 : 1;
    if (e >= lx->n)
        return jrun_fail(lx->run, ERR_BAD_FILE, "the string is not closed");
    t->kind = JTOK_STRING;
    advance(lx, e + 1);
    return jlex_unescape(lx->run, lx->src + from, e - from, t);
}

static int operator(struct jlex *lx, struct jtok *t)
{
    static const char two[][3] = {"==", "!=", "<=", ">=", "//", "**"};
    char c = lx->src[lx->pos];
    size_t n = 0;
    for (size_t i = 0; i < sizeof two / sizeof *two && !n; i++)
        if (c == two[i][0] && at(lx, lx->pos + 1) == two[i][1])
            n = 2;
    if (!n && c && strchr("+-*/%~<>=()[]{}.,:|", c))
        n = 1;
    if (!n)
        return jrun_fail(lx->run, ERR_BAD_FILE, "unexpected character '%c' (0x%02x)",
                         c > ' ' && c < 0x7F ? c : '?', (unsigned char)c);
    if (strchr("([{", c))
        lx->brackets++;
    if (strchr(")]}", c) && lx->brackets)
        lx->brackets--; /* one too many is the parser's to refuse */
    t->kind = JTOK_OP;
    t->p = lx->src + lx->pos;
    t->n = n;
    advance(lx, lx->pos + n);
    return 0;
}

int jlex_next(struct jlex *lx, struct jtok *t)
{
    if (lx->mode == JLEX_DATA)
        return next_data(lx, t);
    if (try_end(lx, t))
        return 0;
    skip_space(lx);
    if (try_end(lx, t))
        return 0;
    *t = (struct jtok){.line = lx->line};
    lx->run->line = lx->line;
    if (lx->pos >= lx->n)
        return jrun_fail(lx->run, ERR_BAD_FILE, "the tag is not closed");
    char c = lx->src[lx->pos];
    if (is_digit(c))
        return number(lx, t);
    if (c == '\'' || c == '"')
        return string(lx, t);
    if (!is_name(c))
        return operator(lx, t);
    size_t e = lx->pos;
    while (is_name(at(lx, e)))
        e++;
    t->kind = JTOK_NAME;
    t->n = e - lx->pos;
    t->p = jrun_strndup(lx->run, lx->src + lx->pos, t->n);
    advance(lx, e);
    return t->p ? 0 : -1;
}
