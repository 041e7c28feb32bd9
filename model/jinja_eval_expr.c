/* Expressions. Recursion is bounded by the tree's depth, JRUN_DEPTH_MAX. */
#include "model/jinja_eval.h"

#include "model/jinja_builtin.h"

#include <assert.h>
#include <string.h>

static int eval_list(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv v;
    if (jv_list_new(&ev->run, x->n_args, x->id == 1, out))
        return -1;
    for (size_t i = 0; i < x->n_args; i++)
        if (jeval_expr(ev, x->args[i], &v) || jlist_add(&ev->run, out->u.list, v))
            return -1;
    return 0;
}

static int eval_dict(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv key, val;
    if (jv_dict_new(&ev->run, JV_DICT, out))
        return -1;
    for (size_t i = 0; i < x->n_args; i += 2)
        if (jeval_expr(ev, x->args[i], &key) || jeval_expr(ev, x->args[i + 1], &val) ||
            jdict_set(&ev->run, out->u.dict, key, val))
            return -1;
    return 0;
}

static int eval_arith(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv v;
    if (jeval_expr(ev, x->args[0], out))
        return -1;
    for (size_t i = 1; i < x->n_args; i++)
        if (jeval_expr(ev, x->args[i], &v) || jv_arith(&ev->run, x->ops[i - 1], *out, v, out))
            return -1;
    return 0;
}

static int eval_concat(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv v;
    struct jtext *all = jtext_borrow(&ev->run, "", 0, true), *t;
    for (size_t i = 0; all && i < x->n_args; i++) {
        if (jeval_expr(ev, x->args[i], &v) || jv_str(&ev->run, v, &t))
            return -1;
        all = jtext_cat(&ev->run, all, t);
    }
    if (!all)
        return -1;
    *out = jv_text(all);
    return 0;
}

static int compare(struct jrun *r, char op, struct jv a, struct jv b, bool *out)
{
    int order = 0;
    switch (op) {
    case '=':
    case '!':
        if (jv_equal(r, a, b, out))
            return -1;
        *out ^= op == '!';
        return 0;
    case 'i':
    case 'n':
        if (jv_contains(r, b, a, out))
            return -1;
        *out ^= op == 'n';
        return 0;
    default: break;
    }
    if (jv_order(r, a, b, &order))
        return -1;
    *out = op == '<' ? order < 0 : op == '>' ? order > 0 : op == 'l' ? order <= 0 : order >= 0;
    return 0;
}

/* a < b < c is a < b and b < c. */
static int eval_compare(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv left, right;
    bool yes = true;
    if (jeval_expr(ev, x->args[0], &left))
        return -1;
    for (size_t i = 1; yes && i < x->n_args; i++) {
        if (jeval_expr(ev, x->args[i], &right) ||
            compare(&ev->run, x->ops[i - 1], left, right, &yes))
            return -1;
        left = right;
    }
    *out = jv_bool(yes, true); /* what was compared may be the caller's: not worth telling apart */
    return 0;
}

static int eval_logic(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    for (size_t i = 0; i < x->n_args; i++) {
        if (jeval_expr(ev, x->args[i], out))
            return -1;
        if (jv_truth(*out) == (x->kind == JX_OR))
            return 0;
    }
    return 0;
}

static int eval_unary(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv v;
    if (jeval_expr(ev, x->args[0], &v))
        return -1;
    if (x->kind == JX_NOT) {
        *out = jv_bool(!jv_truth(v), true);
        return 0;
    }
    if (v.kind == JV_FLOAT && x->kind == JX_NEG) {
        *out = jv_float(-v.u.f, v.caller);
        return 0;
    }
    return jv_arith(&ev->run, x->kind == JX_NEG ? '-' : '+', jv_int(0, false), v, out);
}

static int eval_cond(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv test;
    if (jeval_expr(ev, x->args[0], &test))
        return -1;
    if (jv_truth(test))
        return jeval_expr(ev, x->args[1], out);
    if (x->args[2])
        return jeval_expr(ev, x->args[2], out);
    *out = jv_undef("an 'if' without 'else'");
    return 0;
}

/* Arguments after the subject into `out`, JV_ABSENT where not given. */
static int eval_args(struct jeval *ev, const struct jexpr *x, struct jv *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct jv){.kind = JV_ABSENT};
        if (i + 1 < x->n_args && x->args[i + 1] && jeval_expr(ev, x->args[i + 1], &out[i]))
            return -1;
    }
    return 0;
}

static int eval_builtin(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv self, args[JBUILTIN_ARGS];
    if (jeval_expr(ev, x->args[0], &self) || eval_args(ev, x, args, JBUILTIN_ARGS))
        return -1;
    ev->run.line = x->line;
    return x->fn->fn(&ev->run, self, args, out);
}

static int eval_access(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv obj, part[3];
    if (jeval_expr(ev, x->args[0], &obj) || eval_args(ev, x, part, 3))
        return -1;
    ev->run.line = x->line;
    if (x->kind == JX_ATTR)
        return jv_attr(&ev->run, obj, x->name, out);
    if (x->kind == JX_ITEM)
        return jv_item(&ev->run, obj, part[0], out);
    return jv_slice(&ev->run, obj, part, out);
}

static int call_range(struct jeval *ev, const struct jv *a, size_t n, struct jv *out)
{
    int64_t v[3] = {0, 0, 1};
    bool caller = false;
    for (size_t i = 0; i < n; i++) {
        if (a[i].kind != JV_INT)
            return jrun_fail(&ev->run, ERR_INVALID, "range() needs integers, not %s",
                             jv_kind_name(a[i]));
        v[n == 1 ? 1 : i] = a[i].u.i;
        caller |= a[i].caller;
    }
    if (!v[2] || v[2] > 1 << 30 || v[2] < -(1 << 30) || v[0] > (int64_t)1 << 40 ||
        v[0] < -((int64_t)1 << 40))
        return jrun_fail(&ev->run, ERR_INVALID, "range() is out of bounds");
    if (jv_list_new(&ev->run, 0, false, out))
        return -1;
    out->caller = caller;
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1]; i += v[2])
        if (jlist_add(&ev->run, out->u.list, jv_int(i, caller)))
            return -1;
    return 0;
}

static int call_namespace(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv key, val;
    if (jv_dict_new(&ev->run, JV_NS, out))
        return -1;
    for (size_t i = 0; i < x->n_args; i++)
        if (jv_str_new(&ev->run, x->names[i], strlen(x->names[i]), true, &key) ||
            jeval_expr(ev, x->args[i], &val) || jdict_set(&ev->run, out->u.dict, key, val))
            return -1;
    return 0;
}

static int call_raise(struct jeval *ev, struct jv what)
{
    struct jtext *t;
    if (jv_str(&ev->run, what, &t) || jtext_flat(&ev->run, t))
        return -1;
    return jrun_fail(&ev->run, ERR_INVALID, "%.*s", t->n > 300 ? 300 : (int)t->n, t->p);
}

static int eval_call(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    struct jv args[3];
    if (x->id == JF_NAMESPACE)
        return call_namespace(ev, x, out);
    assert(x->n_args <= 3);
    for (size_t i = 0; i < x->n_args; i++)
        if (jeval_expr(ev, x->args[i], &args[i]))
            return -1;
    ev->run.line = x->line;
    if (x->id == JF_RANGE)
        return call_range(ev, args, x->n_args, out);
    if (x->id == JF_RAISE)
        return call_raise(ev, args[0]);
    return jrun_fail(&ev->run, ERR_INVALID, "function '%s' is not there", x->name);
}

int jeval_expr(struct jeval *ev, const struct jexpr *x, struct jv *out)
{
    if (jrun_step(&ev->run, 0))
        return -1;
    switch (x->kind) {
    case JX_CONST: *out = x->value; return 0;
    case JX_NAME:
        *out = ev->slots[x->id];
        if (out->kind == JV_ABSENT)
            *out = jv_undef(x->name);
        return 0;
    case JX_LIST: return eval_list(ev, x, out);
    case JX_DICT: return eval_dict(ev, x, out);
    case JX_ARITH: return eval_arith(ev, x, out);
    case JX_CONCAT: return eval_concat(ev, x, out);
    case JX_COMPARE: return eval_compare(ev, x, out);
    case JX_AND:
    case JX_OR: return eval_logic(ev, x, out);
    case JX_NOT:
    case JX_NEG:
    case JX_POS: return eval_unary(ev, x, out);
    case JX_COND: return eval_cond(ev, x, out);
    case JX_ATTR:
    case JX_ITEM:
    case JX_SLICE: return eval_access(ev, x, out);
    case JX_FILTER:
    case JX_TEST:
    case JX_METHOD: return eval_builtin(ev, x, out);
    case JX_CALL: return eval_call(ev, x, out);
    case JX_MACRO: return jeval_macro(ev, x, out);
    }
    return 0;
}
