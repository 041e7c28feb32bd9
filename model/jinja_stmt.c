/* Statements: text, output, and the tags. */
#include "model/jinja_parse_priv.h"

#include "model/jinja_builtin.h"

#include <string.h>

static struct jstmt *stmt_new(struct jparse *p, enum jstmt_kind kind)
{
    struct jstmt *s = jrun_alloc(p->run, sizeof *s);
    if (s) {
        s->kind = kind;
        s->line = p->tok.line;
    }
    return s;
}

static int tag_end(struct jparse *p)
{
    if (p->tok.kind != JTOK_BLOCK_END)
        return jparse_unexpected(p, "where '%}' is needed");
    return jparse_advance(p);
}

/* At {% and one of the words (a list ended by NULL)? */
static bool at_word(const struct jparse *p, const char *const *words)
{
    if (p->tok.kind != JTOK_BLOCK_BEGIN || p->next.kind != JTOK_NAME)
        return false;
    for (; words && *words; words++)
        if (strlen(*words) == p->next.n && !memcmp(*words, p->next.p, p->next.n))
            return true;
    return false;
}

/* "{% word %}" when it is there. */
static int close_tag(struct jparse *p, const char *word)
{
    return jparse_advance(p) || jparse_take(p, JTOK_NAME, word, NULL) || tag_end(p) ? -1 : 0;
}

/* Is the clock known to be asked for only where it was found to be there? `x`: the condition. */
static bool asks_for_clock(const struct jexpr *x)
{
    if (x->kind == JX_TEST && x->args[0]->kind == JX_NAME)
        return !strcmp(x->fn->name, "defined") && !strcmp(x->args[0]->name, "strftime_now");
    for (size_t i = 0; x->kind == JX_AND && i < x->n_args; i++)
        if (asks_for_clock(x->args[i]))
            return true;
    return false;
}

/* After "if" or "elif", up to the endif: an elif is a statement of its own in orelse. */
static int parse_if(struct jparse *p, struct jstmt *s)
{
    static const char *const stops[] = {"elif", "else", "endif", NULL};
    for (;;) {
        if (jparse_expr(p, &s->expr) || tag_end(p))
            return -1;
        bool clock = asks_for_clock(s->expr);
        p->now_known += clock;
        if (jparse_body(p, stops, &s->body))
            return -1;
        p->now_known -= clock;
        if (p->next.n == 5 || p->next.p[2] == 's') /* endif, else */
            break;
        if (jparse_advance(p) || jparse_advance(p) || !(s->orelse = stmt_new(p, JS_IF)))
            return -1;
        s = s->orelse;
        s->elif = true;
    }
    if (p->next.n == 4) {
        if (close_tag(p, "else") || jparse_body(p, stops + 2, &s->orelse))
            return -1;
    }
    return close_tag(p, "endif");
}

static int add_target(struct jparse *p, struct jstmt *s)
{
    size_t cap = s->n_targets; /* grows by one: few */
    uint32_t *t = jrun_grow(p->run, s->targets, &cap, s->n_targets + 1, sizeof *t);
    if (!t)
        return -1;
    s->targets = t;
    if (p->tok.kind != JTOK_NAME)
        return jparse_unexpected(p, "where a variable's name is needed");
    if (jparse_symbol(p, &p->tok, &t[s->n_targets++]))
        return -1;
    return jparse_advance(p);
}

static int parse_for(struct jparse *p, struct jstmt *s)
{
    static const char *const stops[] = {"else", "endfor", NULL};
    bool more, has_if;
    do {
        if (s->n_targets == 8)
            return jrun_fail(p->run, ERR_UNSUPPORTED, "more than 8 loop variables");
        if (add_target(p, s) || jparse_take(p, JTOK_OP, ",", &more))
            return -1;
    } while (more);
    /* The items cannot be `a if b`: the if is the loop's filter. */
    if (jparse_take(p, JTOK_NAME, "in", NULL) || jparse_expr_or(p, &s->expr) ||
        jparse_take(p, JTOK_NAME, "if", &has_if) || (has_if && jparse_expr(p, &s->cond)))
        return -1;
    if (jparse_is(p, JTOK_NAME, "recursive"))
        return jrun_fail(p->run, ERR_UNSUPPORTED, "a 'recursive' loop is not supported");
    p->loops++;
    if (tag_end(p) || jparse_body(p, stops, &s->body))
        return -1;
    p->loops--;
    if (p->next.n == 4 && (close_tag(p, "else") || jparse_body(p, stops + 1, &s->orelse)))
        return -1;
    return close_tag(p, "endfor");
}

static int parse_set(struct jparse *p, struct jstmt *s)
{
    static const char *const stops[] = {"endset", NULL};
    bool dot, eq;
    if (add_target(p, s) || jparse_take(p, JTOK_OP, ".", &dot))
        return -1;
    if (dot) {
        if (p->tok.kind != JTOK_NAME)
            return jparse_unexpected(p, "after '.'");
        s->name = p->tok.p;
        if (jparse_advance(p))
            return -1;
    }
    if (jparse_is(p, JTOK_OP, ","))
        return jrun_fail(p->run, ERR_UNSUPPORTED, "'set' of several variables is not supported");
    if (jparse_take(p, JTOK_OP, "=", &eq))
        return -1;
    if (eq)
        return jparse_expr(p, &s->expr) || tag_end(p) ? -1 : 0;
    if (dot || jparse_is(p, JTOK_OP, "|"))
        return jrun_fail(p->run, ERR_UNSUPPORTED, "this form of 'set' is not supported");
    s->kind = JS_CAPTURE;
    return tag_end(p) || jparse_body(p, stops, &s->body) || close_tag(p, "endset") ? -1 : 0;
}

static int mark_macro(struct jparse *p, uint32_t sym)
{
    bool *m = jrun_grow(p->run, p->macros, &p->cap_macros, sym + 1, sizeof *m);
    if (!m)
        return -1;
    p->macros = m;
    m[sym] = true;
    return 0;
}

static int parse_params(struct jparse *p, struct jstmt *s)
{
    bool done, more, has_default;
    if (jparse_take(p, JTOK_OP, "(", NULL) || jparse_take(p, JTOK_OP, ")", &done))
        return -1;
    while (!done) {
        if (s->n_targets > 16)
            return jrun_fail(p->run, ERR_UNSUPPORTED, "more than 16 parameters of a macro");
        struct jexpr **dflt = &s->defaults[s->n_targets];
        if (add_target(p, s) || jparse_take(p, JTOK_OP, "=", &has_default) ||
            (has_default && jparse_expr(p, dflt)) || jparse_take(p, JTOK_OP, ",", &more) ||
            jparse_take(p, JTOK_OP, ")", &done))
            return -1;
        if (!more && !done)
            return jparse_unexpected(p, "in the parameters of a macro");
    }
    return 0;
}

static int parse_macro(struct jparse *p, struct jstmt *s)
{
    static const char *const stops[] = {"endmacro", NULL};
    int loops = p->loops;
    if (p->in_macro)
        return jrun_fail(p->run, ERR_UNSUPPORTED, "a macro inside a macro is not supported");
    s->defaults = jrun_array(p->run, 18, sizeof *s->defaults);
    if (!s->defaults || add_target(p, s) || mark_macro(p, s->targets[0]) || parse_params(p, s))
        return -1;
    p->in_macro = true;
    p->loops = 0;
    if (tag_end(p) || jparse_body(p, stops, &s->body))
        return -1;
    p->in_macro = false;
    p->loops = loops;
    return close_tag(p, "endmacro");
}

static int parse_generation(struct jparse *p, struct jstmt *s)
{
    static const char *const stops[] = {"endgeneration", NULL};
    int loops = p->loops;
    p->loops = 0; /* a scope of its own: no break out of it */
    if (tag_end(p) || jparse_body(p, stops, &s->body) || close_tag(p, "endgeneration"))
        return -1;
    p->loops = loops;
    return 0;
}

static int parse_break(struct jparse *p, struct jstmt *s)
{
    if (!p->loops)
        return jrun_fail(p->run, ERR_BAD_FILE, "'%s' outside of a loop",
                         s->kind == JS_BREAK ? "break" : "continue");
    return tag_end(p);
}

static int parse_tag(struct jparse *p, struct jstmt **out)
{
    static const struct {
        const char *word;
        enum jstmt_kind kind;
        int (*parse)(struct jparse *, struct jstmt *);
    } tags[] = {
        {"if", JS_IF, parse_if}, {"for", JS_FOR, parse_for}, {"set", JS_SET, parse_set},
        {"macro", JS_MACRO, parse_macro}, {"generation", JS_SCOPE, parse_generation},
        {"break", JS_BREAK, parse_break}, {"continue", JS_CONTINUE, parse_break}};
    if (jparse_advance(p))
        return -1;
    if (p->tok.kind != JTOK_NAME)
        return jparse_unexpected(p, "where a tag's name is needed");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!jparse_is(p, JTOK_NAME, tags[i].word))
            continue;
        *out = stmt_new(p, tags[i].kind);
        return !*out || jparse_advance(p) || tags[i].parse(p, *out) ? -1 : 0;
    }
    int n = p->tok.n > 60 ? 60 : (int)p->tok.n;
    bool stray = !strncmp(p->tok.p, "end", 3) || !strncmp(p->tok.p, "el", 2);
    if (stray)
        return jrun_fail(p->run, ERR_BAD_FILE, "tag '%.*s' closes nothing that is open", n,
                         p->tok.p);
    return jrun_fail(p->run, ERR_UNSUPPORTED, "tag '%.*s' is not supported", n, p->tok.p);
}

static int parse_output(struct jparse *p, struct jstmt **out)
{
    *out = stmt_new(p, JS_OUTPUT);
    if (!*out || jparse_advance(p) || jparse_expr(p, &(*out)->expr))
        return -1;
    if (p->tok.kind != JTOK_VAR_END)
        return jparse_unexpected(p, "where '}}' is needed");
    return jparse_advance(p);
}

static int parse_text(struct jparse *p, struct jstmt **out)
{
    *out = stmt_new(p, JS_TEXT);
    if (!*out)
        return -1;
    (*out)->text = jtext_borrow(p->run, p->tok.p, p->tok.n, true);
    return (*out)->text ? jparse_advance(p) : -1;
}

/* Statements up to a tag with one of the words (left as the current token), or the end. */
int jparse_body(struct jparse *p, const char *const *stops, struct jstmt **out)
{
    struct jstmt **tail = out;
    uint32_t line = p->tok.line;
    *out = NULL;
    if (jparse_enter(p))
        return -1;
    while (!at_word(p, stops)) {
        int rc;
        if (p->tok.kind == JTOK_EOF && !stops)
            break;
        if (p->tok.kind == JTOK_EOF) {
            p->run->line = line;
            return jrun_fail(p->run, ERR_BAD_FILE, "the block opened here is not closed");
        }
        if (p->tok.kind == JTOK_DATA)
            rc = parse_text(p, tail);
        else if (p->tok.kind == JTOK_VAR_BEGIN)
            rc = parse_output(p, tail);
        else
            rc = parse_tag(p, tail);
        if (rc)
            return -1;
        tail = &(*tail)->next;
    }
    jparse_leave(p);
    return 0;
}
