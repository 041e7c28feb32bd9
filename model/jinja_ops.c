/* Operators and access: arithmetic, `in`, attributes, items, slices. */
#include "model/jinja_builtin.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static int overflow(struct jrun *r)
{
    return jrun_fail(r, ERR_INVALID, "a number is out of range");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int int_arith(struct jrun *r, char op, int64_t a, int64_t b, bool caller, struct jv *out)
{
    int64_t v = 0;
    bool bad = false;
    if (strchr("/f%", op) && b == 0)
        return jrun_fail(r, ERR_INVALID, "division by zero");
    switch (op) {
    case '+': bad = __builtin_add_overflow(a, b, &v); break;
    case '-': bad = __builtin_sub_overflow(a, b, &v); break;
    case '*': bad = __builtin_mul_overflow(a, b, &v); break;
    case '/': *out = jv_float((double)a / (double)b, caller); return 0;
    default: /* divided by -1 the smallest number overflows, and traps */
        bad = op == 'f' && b == -1 && a == INT64_MIN;
        if (b == -1)
            v = op == 'f' && !bad ? -a : 0;
        else
            v = op == 'f' ? floor_div(a, b) : a - floor_div(a, b) * b;
    }
    if (bad)
        return overflow(r);
    *out = jv_int(v, caller);
    return 0;
}

static int float_arith(struct jrun *r, char op, double a, double b, bool caller, struct jv *out)
{
    if (strchr("/f%", op) && b == 0)
        return jrun_fail(r, ERR_INVALID, "division by zero");
    double m;
    switch (op) {
    case '+': a += b; break;
    case '-': a -= b; break;
    case '*': a *= b; break;
    case '/': a /= b; break;
    case 'f': a = floor(a / b); break;
    default:
        m = fmod(a, b);
        a = m != 0 && (m < 0) != (b < 0) ? m + b : m;
    }
    *out = jv_float(a, caller);
    return 0;
}

static int list_cat(struct jrun *r, const struct jv a, const struct jv b, struct jv *out)
{
    if (jv_list_new(r, a.u.list->n + b.u.list->n, a.u.list->tuple, out))
        return -1;
    out->caller = a.caller || b.caller;
    for (size_t i = 0; i < a.u.list->n; i++)
        if (jlist_add(r, out->u.list, a.u.list->v[i]))
            return -1;
    for (size_t i = 0; i < b.u.list->n; i++)
        if (jlist_add(r, out->u.list, b.u.list->v[i]))
            return -1;
    return 0;
}

static int repeat(struct jrun *r, struct jv text, struct jv count, struct jv *out)
{
    struct jbuild b = {.run = r};
    int64_t n = text.u.s->n ? (int64_t)jv_number(count) : 0;
    for (int64_t i = 0; i < n; i++)
        if (jrun_step(r, 0) || jbuild_text(&b, text.u.s))
            return -1;
    struct jtext *t = jbuild_done(&b);
    if (t && count.caller)
        t = jtext_taint(r, t);
    if (!t)
        return -1;
    *out = jv_text(t);
    return 0;
}

static int no_undef(struct jrun *r, struct jv v)
{
    if (v.kind != JV_UNDEF)
        return 0;
    return jrun_fail(r, ERR_INVALID, "'%s' is undefined", v.u.name ? v.u.name : "the value");
}

int jv_arith(struct jrun *r, char op, struct jv a, struct jv b, struct jv *out)
{
    bool caller = a.caller || b.caller;
    if (no_undef(r, a) || no_undef(r, b))
        return -1;
    if (jv_is_number(a) && jv_is_number(b)) {
        if (a.kind == JV_FLOAT || b.kind == JV_FLOAT)
            return float_arith(r, op, jv_number(a), jv_number(b), caller, out);
        return int_arith(r, op, a.kind == JV_INT ? a.u.i : a.u.b, b.kind == JV_INT ? b.u.i : b.u.b,
                         caller, out);
    }
    if (op == '+' && a.kind == JV_STR && b.kind == JV_STR) {
        struct jtext *t = jtext_cat(r, a.u.s, b.u.s);
        if (!t)
            return -1;
        *out = jv_text(t);
        return 0;
    }
    if (op == '+' && a.kind == JV_LIST && b.kind == JV_LIST)
        return list_cat(r, a, b, out);
    if (op == '*' && b.kind == JV_STR && a.kind == JV_INT)
        return repeat(r, b, a, out);
    if (op == '*' && a.kind == JV_STR && (b.kind == JV_INT || b.kind == JV_BOOL))
        return repeat(r, a, b.kind == JV_INT ? b : jv_int(b.u.b, b.caller), out);
    if (op == '%' && a.kind == JV_STR)
        return jrun_fail(r, ERR_INVALID, "formatting with '%%' is not supported");
    return jrun_fail(r, ERR_INVALID, "operator '%.2s' does not go with %s and %s",
                     op == 'f' ? "//" : (char[2]){op}, jv_kind_name(a), jv_kind_name(b));
}

int jv_contains(struct jrun *r, struct jv where, struct jv what, bool *out)
{
    struct jv got;
    *out = false;
    switch (where.kind) {
    case JV_UNDEF: return 0;
    case JV_STR:
        if (what.kind != JV_STR)
            return jrun_fail(r, ERR_INVALID, "%s cannot be in a string", jv_kind_name(what));
        if (jtext_flat(r, where.u.s) || jtext_flat(r, what.u.s) || jrun_step(r, where.u.s->n))
            return -1;
        *out = jtext_find(where.u.s, what.u.s, 0) != SIZE_MAX;
        return 0;
    case JV_LIST:
        for (size_t i = 0; !*out && i < where.u.list->n; i++)
            if (jrun_step(r, 0) || jv_equal(r, where.u.list->v[i], what, out))
                return -1;
        return 0;
    case JV_DICT:
        if (jdict_get(r, where.u.dict, what, &got))
            return -1;
        *out = got.kind != JV_ABSENT;
        return 0;
    default: return jrun_fail(r, ERR_INVALID, "nothing can be in %s", jv_kind_name(where));
    }
}

/* Numbers of a loop tell how many items the caller sent: they are the caller's. */
static struct jv loop_attr(const struct jloop *l, const char *name)
{
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    static const struct { const char *name; int64_t add; bool reverse; } ints[] = {
        {"index", 1, false}, {"index0", 0, false}, {"revindex", 0, true}, {"revindex0", -1, true}};
    for (size_t k = 0; k < sizeof ints / sizeof *ints; k++)
        if (!strcmp(name, ints[k].name))
            return jv_int((ints[k].reverse ? n - i : i) + ints[k].add, true);
    if (!strcmp(name, "length"))
        return jv_int(n, true);
    if (!strcmp(name, "first"))
        return jv_bool(i == 0, true);
    if (!strcmp(name, "last"))
        return jv_bool(i == n - 1, true);
    if (!strcmp(name, "previtem") && i > 0)
        return l->items->v[i - 1];
    if (!strcmp(name, "nextitem") && i < n - 1)
        return l->items->v[i + 1];
    return jv_undef(name);
}

int jv_attr(struct jrun *r, struct jv obj, const char *name, struct jv *out)
{
    if (no_undef(r, obj))
        return -1;
    *out = jv_undef(name);
    if (obj.kind == JV_LOOP)
        *out = loop_attr(obj.u.loop, name);
    else if ((obj.kind == JV_DICT || obj.kind == JV_NS) &&
             jdict_get_name(r, obj.u.dict, name, out))
        return -1;
    if (out->kind == JV_ABSENT)
        *out = jv_undef(name);
    return 0;
}

static int text_at(struct jrun *r, struct jtext *t, struct jv key, struct jv *out)
{
    if (jtext_flat(r, t) || jrun_step(r, t->n))
        return -1;
    int64_t n = (int64_t)jtext_length(t), i = key.u.i < 0 ? key.u.i + n : key.u.i;
    if (i < 0 || i >= n)
        return 0;
    struct jtext *c = jtext_sub(r, t, jtext_offset(t, (size_t)i), jtext_offset(t, (size_t)i + 1));
    if (c && key.caller)
        c = jtext_taint(r, c);
    if (!c)
        return -1;
    *out = jv_text(c);
    return 0;
}

int jv_item(struct jrun *r, struct jv obj, struct jv key, struct jv *out)
{
    const char *name = NULL;
    if (no_undef(r, obj))
        return -1;
    if (key.kind == JV_STR) {
        if (jtext_flat(r, key.u.s) ||
            !(name = jrun_strndup(r, key.u.s->p, key.u.s->n > 64 ? 64 : key.u.s->n)))
            return -1;
        if (obj.kind == JV_LOOP || obj.kind == JV_NS)
            return jv_attr(r, obj, name, out);
    }
    *out = jv_undef(name);
    if (obj.kind == JV_DICT) {
        if (jdict_get(r, obj.u.dict, key, out))
            return -1;
        if (out->kind == JV_ABSENT)
            *out = jv_undef(name);
        return 0;
    }
    if (key.kind == JV_BOOL)
        key = jv_int(key.u.b, key.caller);
    if (key.kind != JV_INT)
        return 0;
    *out = jv_undef("list item");
    if (obj.kind == JV_STR)
        return text_at(r, obj.u.s, key, out);
    if (obj.kind == JV_LIST) {
        int64_t n = (int64_t)obj.u.list->n, i = key.u.i < 0 ? key.u.i + n : key.u.i;
        if (i >= 0 && i < n)
            *out = obj.u.list->v[i];
    }
    return 0;
}

static int slice_bound(struct jrun *r, struct jv v, int64_t n, int64_t low, int64_t high,
                       int64_t absent, int64_t *out)
{
    *out = absent;
    if (v.kind == JV_ABSENT || v.kind == JV_NONE)
        return 0;
    if (v.kind != JV_INT)
        return jrun_fail(r, ERR_INVALID, "a slice needs integers, not %s", jv_kind_name(v));
    int64_t i = v.u.i < 0 ? v.u.i + n : v.u.i;
    *out = i < low ? low : i > high ? high : i;
    return 0;
}

/* Characters `from` to `to` of a text as they stand. */
static int text_slice(struct jrun *r, struct jtext *t, int64_t from, int64_t to, struct jv *out)
{
    size_t a = jtext_offset(t, (size_t)from);
    size_t b = to > from ? jtext_offset(t, (size_t)to) : a;
    struct jtext *s = jtext_sub(r, t, a, b);
    if (!s)
        return -1;
    *out = jv_text(s);
    return 0;
}

static int stepped(struct jrun *r, struct jv obj, int64_t from, int64_t to, int64_t step,
                   struct jv *out)
{
    struct jv items, list;
    if (jv_iterate(r, obj, &items) || jv_list_new(r, 0, items.u.list->tuple, &list))
        return -1;
    list.caller = obj.caller;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
        if (jlist_add(r, list.u.list, items.u.list->v[i]))
            return -1;
    *out = list;
    if (obj.kind != JV_STR)
        return 0;
    struct jbuild b = {.run = r};
    for (size_t i = 0; i < list.u.list->n; i++)
        if (jbuild_text(&b, list.u.list->v[i].u.s))
            return -1;
    struct jtext *t = jbuild_done(&b);
    if (!t)
        return -1;
    *out = jv_text(t);
    return 0;
}

int jv_slice(struct jrun *r, struct jv obj, const struct jv *part, struct jv *out)
{
    int64_t from, to, step = 1, n;
    bool caller = part[0].caller || part[1].caller || part[2].caller;
    if (no_undef(r, obj))
        return -1;
    if (obj.kind != JV_STR && obj.kind != JV_LIST)
        return jrun_fail(r, ERR_INVALID, "%s cannot be sliced", jv_kind_name(obj));
    if (obj.kind == JV_STR && (jtext_flat(r, obj.u.s) || jrun_step(r, obj.u.s->n)))
        return -1;
    n = (int64_t)(obj.kind == JV_STR ? jtext_length(obj.u.s) : obj.u.list->n);
    if (slice_bound(r, part[2], 0, INT64_MIN, INT64_MAX, 1, &step))
        return -1;
    if (!step || step > 1 << 30 || step < -(1 << 30))
        return jrun_fail(r, ERR_INVALID, "a slice cannot have step %lld", (long long)step);
    bool down = step < 0;
    if (slice_bound(r, part[0], n, down ? -1 : 0, down ? n - 1 : n, down ? n - 1 : 0, &from) ||
        slice_bound(r, part[1], n, down ? -1 : 0, down ? n - 1 : n, down ? -1 : n, &to))
        return -1;
    if (obj.kind == JV_STR && step == 1 ? text_slice(r, obj.u.s, from, to, out)
                                        : stepped(r, obj, from, to, step, out))
        return -1;
    if (obj.kind == JV_STR && caller && !(out->u.s = jtext_taint(r, out->u.s)))
        return -1;
    return 0;
}
