/* Expressions, by precedence: if-else, or, and, not, comparison, + -, ~, * / // %, sign, postfix */
#include "model/jinja_parse_priv.h"

#include "model/jinja_builtin.h"

#include <string.h>

struct jexpr *jexpr_new(struct jparse *p, enum jexpr_kind kind, uint32_t line)
{
    struct jexpr *x = jrun_alloc(p->run, sizeof *x);
    if (!x)
        return NULL;
    x->kind = kind;
    x->line = line;
    x->depth = 1;
    return x;
}

int jexpr_add(struct jparse *p, struct jexpr *x, struct jexpr *arg)
{
    struct jexpr **a = jrun_grow(p->run, x->args, &x->cap_args, x->n_args + 1, sizeof *a);
    if (!a)
        return -1;
    x->args = a;
    a[x->n_args++] = arg;
    if (arg && arg->depth >= x->depth)
        x->depth = arg->depth + 1;
    if (x->depth > JRUN_DEPTH_MAX)
        return jrun_fail(p->run, ERR_TOO_LARGE, "nested deeper than %d levels", JRUN_DEPTH_MAX);
    return 0;
}

int jexpr_add_op(struct jparse *p, struct jexpr *x, char op)
{
    char *ops = jrun_grow(p->run, x->ops, &x->cap_ops, x->n_args + 1, 1);
    if (!ops)
        return -1;
    x->ops = ops;
    ops[x->n_args - 1] = op; /* between the last operand so far and the next */
    return 0;
}

typedef int (*level_fn)(struct jparse *p, struct jexpr **out);
/* The operator at the current token (0: none of this level); may take the first of two words. */
typedef int (*op_fn)(struct jparse *p, char *op);

/* operand (op operand)*: one node for the whole chain. */
static int chain(struct jparse *p, enum jexpr_kind kind, level_fn operand, op_fn find,
                 struct jexpr **out)
{
    struct jexpr *x = NULL, *item;
    uint32_t line = p->tok.line;
    char op;
    if (operand(p, out) || find(p, &op))
        return -1;
    while (op) {
        if (!x) {
            x = jexpr_new(p, kind, line);
            if (!x || jexpr_add(p, x, *out))
                return -1;
            *out = x;
        }
        if (jexpr_add_op(p, x, op) || jparse_advance(p) || operand(p, &item) ||
            jexpr_add(p, x, item) || find(p, &op))
            return -1;
    }
    return 0;
}

static int op_mul(struct jparse *p, char *op)
{
    *op = 0;
    if (p->tok.kind != JTOK_OP)
        return 0;
    if (jparse_is(p, JTOK_OP, "**"))
        return jrun_fail(p->run, ERR_UNSUPPORTED, "operator '**' is not supported");
    if (jparse_is(p, JTOK_OP, "//"))
        *op = 'f';
    else if (p->tok.n == 1 && strchr("*/%", *p->tok.p))
        *op = *p->tok.p;
    return 0;
}

static int op_concat(struct jparse *p, char *op)
{
    *op = jparse_is(p, JTOK_OP, "~") ? '~' : 0;
    return 0;
}

static int op_add(struct jparse *p, char *op)
{
    *op = jparse_is(p, JTOK_OP, "+") ? '+' : jparse_is(p, JTOK_OP, "-") ? '-' : 0;
    return 0;
}

static int op_compare(struct jparse *p, char *op)
{
    static const struct { const char *text; char op; } ops[] = {
        {"==", '='}, {"!=", '!'}, {"<", '<'}, {">", '>'}, {"<=", 'l'}, {">=", 'g'}};
    *op = 0;
    if (jparse_is(p, JTOK_NAME, "in"))
        *op = 'i';
    if (jparse_is(p, JTOK_NAME, "not") && p->next.kind == JTOK_NAME && p->next.n == 2 &&
        !memcmp(p->next.p, "in", 2)) {
        *op = 'n';
        return jparse_advance(p); /* the caller takes the "in" */
    }
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jparse_is(p, JTOK_OP, ops[i].text))
            *op = ops[i].op;
    return 0;
}

static int op_and(struct jparse *p, char *op)
{
    *op = jparse_is(p, JTOK_NAME, "and") ? '&' : 0;
    return 0;
}

static int op_or(struct jparse *p, char *op)
{
    *op = jparse_is(p, JTOK_NAME, "or") ? '|' : 0;
    return 0;
}

static int parse_unary(struct jparse *p, bool with_filters, struct jexpr **out)
{
    bool neg = jparse_is(p, JTOK_OP, "-"), pos = jparse_is(p, JTOK_OP, "+");
    if (neg || pos) {
        struct jexpr *x = jexpr_new(p, neg ? JX_NEG : JX_POS, p->tok.line), *a;
        if (!x || jparse_enter(p) || jparse_advance(p) || parse_unary(p, false, &a) ||
            jexpr_add(p, x, a))
            return -1;
        jparse_leave(p);
        *out = x;
    } else if (jparse_primary(p, out)) {
        return -1;
    }
    if (jparse_postfix(p, out))
        return -1;
    return with_filters ? jparse_filters(p, out) : 0;
}

static int parse_operand(struct jparse *p, struct jexpr **out)
{
    return parse_unary(p, true, out);
}

static int parse_mul(struct jparse *p, struct jexpr **out)
{
    return chain(p, JX_ARITH, parse_operand, op_mul, out);
}

static int parse_concat(struct jparse *p, struct jexpr **out)
{
    return chain(p, JX_CONCAT, parse_mul, op_concat, out);
}

static int parse_add(struct jparse *p, struct jexpr **out)
{
    return chain(p, JX_ARITH, parse_concat, op_add, out);
}

static int parse_compare(struct jparse *p, struct jexpr **out)
{
    return chain(p, JX_COMPARE, parse_add, op_compare, out);
}

static int parse_not(struct jparse *p, struct jexpr **out)
{
    if (!jparse_is(p, JTOK_NAME, "not"))
        return parse_compare(p, out);
    struct jexpr *x = jexpr_new(p, JX_NOT, p->tok.line), *a;
    if (!x || jparse_enter(p) || jparse_advance(p) || parse_not(p, &a) || jexpr_add(p, x, a))
        return -1;
    jparse_leave(p);
    *out = x;
    return 0;
}

static int parse_and(struct jparse *p, struct jexpr **out)
{
    return chain(p, JX_AND, parse_not, op_and, out);
}

int jparse_expr_or(struct jparse *p, struct jexpr **out)
{
    return chain(p, JX_OR, parse_and, op_or, out);
}

static int parse_cond(struct jparse *p, struct jexpr **out)
{
    if (jparse_expr_or(p, out))
        return -1;
    while (jparse_is(p, JTOK_NAME, "if")) {
        struct jexpr *x = jexpr_new(p, JX_COND, p->tok.line), *test, *orelse = NULL;
        bool has_else;
        if (!x || jparse_advance(p) || jparse_expr_or(p, &test) ||
            jparse_take(p, JTOK_NAME, "else", &has_else) ||
            (has_else && jparse_expr(p, &orelse)) || jexpr_add(p, x, test) ||
            jexpr_add(p, x, *out) || jexpr_add(p, x, orelse))
            return -1;
        *out = x;
    }
    return 0;
}

int jparse_expr(struct jparse *p, struct jexpr **out)
{
    if (jparse_enter(p) || parse_cond(p, out))
        return -1;
    jparse_leave(p);
    return 0;
}
