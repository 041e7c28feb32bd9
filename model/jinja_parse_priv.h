/* jinja_parse_priv.h - shared by the files of the parser; nobody else's. */
#ifndef SLUICE_MODEL_JINJA_PARSE_PRIV_H
#define SLUICE_MODEL_JINJA_PARSE_PRIV_H

#include "model/jinja_lex.h"
#include "model/jinja_parse.h"

struct jparse {
    struct jrun *run;
    struct jlex lex;
    struct jtok tok, next; /* current and one ahead */
    struct jast *ast;
    int depth;             /* open statements, brackets and prefix operators */
    int loops;             /* open for loops: break and continue */
    int now_known;         /* inside `if strftime_now is defined`: never taken here, may call it */
    bool in_macro;
    bool *macros;          /* by symbol: named by a macro tag so far */
    size_t cap_macros;
};

int jparse_advance(struct jparse *p);
bool jparse_is(const struct jparse *p, enum jtok_kind kind, const char *text);
/* Takes the token when it is there. *took may be NULL: then it must be there. */
int jparse_take(struct jparse *p, enum jtok_kind kind, const char *text, bool *took);
int jparse_unexpected(struct jparse *p, const char *where);
int jparse_enter(struct jparse *p);
void jparse_leave(struct jparse *p);
int jparse_symbol(struct jparse *p, const struct jtok *t, uint32_t *sym);
bool jparse_is_macro(const struct jparse *p, uint32_t sym);

/* Statements up to a tag with one of the words (NULL: up to the end), left as the current token. */
int jparse_body(struct jparse *p, const char *const *stops, struct jstmt **out);

/* A whole expression (with `a if b else c`), or one without it. */
int jparse_expr(struct jparse *p, struct jexpr **out);
int jparse_expr_or(struct jparse *p, struct jexpr **out);
/* What follows a name or value: attributes, calls, filters, tests (jinja_postfix.c). */
int jparse_postfix(struct jparse *p, struct jexpr **x);
int jparse_filters(struct jparse *p, struct jexpr **x);
int jparse_primary(struct jparse *p, struct jexpr **out);

struct jexpr *jexpr_new(struct jparse *p, enum jexpr_kind kind, uint32_t line);
int jexpr_add(struct jparse *p, struct jexpr *x, struct jexpr *arg); /* arg may be NULL */
int jexpr_add_op(struct jparse *p, struct jexpr *x, char op);

#endif
