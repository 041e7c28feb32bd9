#include "model/jinja_parse_priv.h"

#include <assert.h>
#include <string.h>

int jparse_advance(struct jparse *p)
{
    p->tok = p->next;
    p->run->line = p->tok.line;
    if (p->tok.kind == JTOK_EOF)
        return 0;
    int rc = jlex_next(&p->lex, &p->next);
    if (!rc)
        p->run->line = p->tok.line;
    return rc;
}

bool jparse_is(const struct jparse *p, enum jtok_kind kind, const char *text)
{
    size_t n = strlen(text);
    return p->tok.kind == kind && p->tok.n == n && !memcmp(p->tok.p, text, n);
}

int jparse_unexpected(struct jparse *p, const char *where)
{
    int n = p->tok.n > 40 ? 40 : (int)p->tok.n;
    if (p->tok.kind == JTOK_EOF)
        return jrun_fail(p->run, ERR_BAD_FILE, "the template ends %s", where);
    return jrun_fail(p->run, ERR_BAD_FILE, "unexpected '%.*s' %s", n, p->tok.p, where);
}

int jparse_take(struct jparse *p, enum jtok_kind kind, const char *text, bool *took)
{
    bool there = jparse_is(p, kind, text);
    if (took)
        *took = there;
    if (there)
        return jparse_advance(p);
    if (took)
        return 0;
    char where[40] = "where '";
    strncat(strncat(where, text, 12), "' is needed", 12);
    return jparse_unexpected(p, where);
}

int jparse_enter(struct jparse *p)
{
    if (++p->depth > JRUN_DEPTH_MAX)
        return jrun_fail(p->run, ERR_TOO_LARGE, "nested deeper than %d levels", JRUN_DEPTH_MAX);
    return 0;
}

void jparse_leave(struct jparse *p)
{
    assert(p->depth > 0);
    p->depth--;
}

int jparse_symbol(struct jparse *p, const struct jtok *t, uint32_t *sym)
{
    struct jast *a = p->ast;
    for (size_t i = 0; i < a->n_syms; i++) {
        if (strlen(a->syms[i]) == t->n && !memcmp(a->syms[i], t->p, t->n)) {
            *sym = (uint32_t)i;
            return 0;
        }
    }
    if (a->n_syms >= 1024)
        return jrun_fail(p->run, ERR_TOO_LARGE, "the template names more than 1024 variables");
    const char **s = jrun_grow(p->run, a->syms, &a->cap_syms, a->n_syms + 1, sizeof *s);
    if (!s)
        return -1;
    a->syms = s;
    s[a->n_syms] = jrun_strndup(p->run, t->p, t->n);
    *sym = (uint32_t)a->n_syms++;
    return s[*sym] ? 0 : -1;
}

uint32_t jast_symbol(const struct jast *a, const char *name)
{
    for (size_t i = 0; i < a->n_syms; i++)
        if (!strcmp(a->syms[i], name))
            return (uint32_t)i;
    return UINT32_MAX;
}

bool jparse_is_macro(const struct jparse *p, uint32_t sym)
{
    return sym < p->cap_macros && p->macros[sym];
}

int jast_parse(struct jast *a, struct jrun *r, const char *src, size_t n)
{
    struct jparse p = {.run = r, .ast = a};
    memset(a, 0, sizeof *a);
    if (jlex_init(&p.lex, r, src, n) || jlex_next(&p.lex, &p.next) || jparse_advance(&p))
        return -1;
    return jparse_body(&p, NULL, &a->body);
}
