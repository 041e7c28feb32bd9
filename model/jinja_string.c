/* Escapes of string literals, as Python's unicode-escape reads them. */
#include "model/jinja_lex.h"

#include <string.h>

static int hex(const char *p, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        uint32_t d = c >= '0' && c <= '9' ? (uint32_t)(c - '0')
                   : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                   : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10) : 16;
        if (d > 15)
            return -1;
        *out = *out << 4 | d;
    }
    return 0;
}

static size_t put_utf8(char *q, uint32_t c)
{
    if (c < 0x80) {
        q[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i; i--, c >>= 6)
        q[i] = (char)(0x80 | (c & 0x3F));
    q[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/* \xNN, \uNNNN, \UNNNNNNNN, octal; p stands after the backslash. Returns bytes read, 0 = wrong. */
static size_t code_point(const char *p, size_t n, uint32_t *c)
{
    size_t digits = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    if (digits) {
        bool bad = n < digits + 1 || hex(p + 1, digits, c);
        return bad || *c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF) ? 0 : digits + 1;
    }
    size_t k = 0;
    for (*c = 0; k < 3 && k < n && p[k] >= '0' && p[k] <= '7'; k++)
        *c = *c * 8 + (uint32_t)(p[k] - '0');
    return k;
}

int jlex_unescape(struct jrun *r, const char *p, size_t n, struct jtok *t)
{
    static const char names[] = "nrtabfv\\'\"", values[] = "\n\r\t\a\b\f\v\\'\"";
    char *q = jrun_strndup(r, p, n); /* no escape is shorter than what it stands for */
    if (!q)
        return -1;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name;
        if (p[i] != '\\' || i + 1 >= n) {
            q[k++] = p[i];
            continue;
        }
        char c = p[++i];
        if (c == '\n')
            continue;
        if (c && (name = strchr(names, c)) != NULL) {
            q[k++] = values[name - names];
        } else if (c && strchr("xuU01234567", c)) {
            uint32_t cp;
            size_t used = code_point(p + i, n - i, &cp);
            if (!used)
                return jrun_fail(r, ERR_BAD_FILE, "a wrong \\%c escape in a string", c);
            k += put_utf8(q + k, cp);
            i += used - 1;
        } else if (c == 'N') {
            return jrun_fail(r, ERR_UNSUPPORTED, "the \\N{...} escape is not supported");
        } else {
            q[k++] = '\\'; /* an unknown escape stays as it stands */
            q[k++] = c;
        }
    }
    q[k] = 0;
    t->p = q;
    t->n = k;
    return 0;
}
