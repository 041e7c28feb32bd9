#include "model/jinja_value.h"

#include <assert.h>
#include <string.h>

struct jv jv_none(void)
{
    return (struct jv){.kind = JV_NONE};
}

struct jv jv_undef(const char *name)
{
    return (struct jv){.kind = JV_UNDEF, .u.name = name};
}

struct jv jv_bool(bool b, bool caller)
{
    return (struct jv){.kind = JV_BOOL, .caller = caller, .u.b = b};
}

struct jv jv_int(int64_t i, bool caller)
{
    return (struct jv){.kind = JV_INT, .caller = caller, .u.i = i};
}

struct jv jv_float(double f, bool caller)
{
    return (struct jv){.kind = JV_FLOAT, .caller = caller, .u.f = f};
}

struct jv jv_text(struct jtext *t)
{
    assert(t);
    return (struct jv){.kind = JV_STR, .u.s = t};
}

int jv_str_new(struct jrun *r, const char *p, size_t n, bool own, struct jv *out)
{
    struct jtext *t = jtext_borrow(r, p, n, own);
    if (!t)
        return -1;
    *out = jv_text(t);
    return 0;
}

int jv_list_new(struct jrun *r, size_t cap, bool tuple, struct jv *out)
{
    struct jlist *l = jrun_alloc(r, sizeof *l);
    if (!l)
        return -1;
    l->tuple = tuple;
    l->v = jrun_grow(r, NULL, &l->cap, cap, sizeof *l->v);
    if (cap && !l->v)
        return -1;
    *out = (struct jv){.kind = JV_LIST, .u.list = l};
    return 0;
}

int jlist_add(struct jrun *r, struct jlist *l, struct jv v)
{
    if (jrun_step(r, 0))
        return -1;
    struct jv *p = jrun_grow(r, l->v, &l->cap, l->n + 1, sizeof *p);
    if (!p)
        return -1;
    l->v = p;
    p[l->n++] = v;
    return 0;
}

int jv_dict_new(struct jrun *r, enum jv_kind kind, struct jv *out)
{
    assert(kind == JV_DICT || kind == JV_NS);
    struct jdict *d = jrun_alloc(r, sizeof *d);
    if (!d)
        return -1;
    *out = (struct jv){.kind = kind, .u.dict = d};
    return 0;
}

static int dict_find(struct jrun *r, const struct jdict *d, struct jv key, size_t *at)
{
    for (*at = 0; *at < d->n; ++*at) {
        bool same = false;
        if (*at % 16 == 15 && jrun_step(r, 0))
            return -1;
        if (jv_equal(r, d->e[*at].key, key, &same))
            return -1;
        if (same)
            return 0;
    }
    return 0;
}

static int dict_push(struct jrun *r, struct jdict *d, struct jv key, struct jv val)
{
    if (jrun_step(r, 0))
        return -1;
    struct jentry *e = jrun_grow(r, d->e, &d->cap, d->n + 1, sizeof *e);
    if (!e)
        return -1;
    d->e = e;
    e[d->n++] = (struct jentry){key, val};
    return 0;
}

int jdict_set(struct jrun *r, struct jdict *d, struct jv key, struct jv val)
{
    size_t at;
    if (dict_find(r, d, key, &at))
        return -1;
    if (at == d->n)
        return dict_push(r, d, key, val);
    d->e[at].val = val;
    return 0;
}

int jdict_get(struct jrun *r, const struct jdict *d, struct jv key, struct jv *out)
{
    size_t at;
    if (dict_find(r, d, key, &at))
        return -1;
    *out = at < d->n ? d->e[at].val : (struct jv){.kind = JV_ABSENT};
    return 0;
}

int jdict_get_name(struct jrun *r, const struct jdict *d, const char *name, struct jv *out)
{
    struct jtext t = {.p = name, .n = strlen(name), .own = true};
    return jdict_get(r, d, jv_text(&t), out);
}

const char *jv_kind_name(struct jv v)
{
    static const char *const names[] = {
        "nothing", "undefined", "none", "a boolean", "an integer", "a float", "a string",
        "a list", "an object", "a namespace", "the loop", "a function", "a macro"};
    return names[v.kind];
}

bool jv_truth(struct jv v)
{
    switch (v.kind) {
    case JV_ABSENT:
    case JV_UNDEF:
    case JV_NONE: return false;
    case JV_BOOL: return v.u.b;
    case JV_INT: return v.u.i != 0;
    case JV_FLOAT: return v.u.f != 0;
    case JV_STR: return v.u.s->n != 0;
    case JV_LIST: return v.u.list->n != 0;
    case JV_DICT: return v.u.dict->n != 0;
    default: return true;
    }
}

bool jv_is_number(struct jv v)
{
    return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_FLOAT;
}

double jv_number(struct jv v)
{
    return v.kind == JV_FLOAT ? v.u.f : v.kind == JV_INT ? (double)v.u.i : v.u.b;
}

static int64_t as_int(struct jv v)
{
    return v.kind == JV_INT ? v.u.i : v.u.b;
}

static int too_deep(struct jrun *r)
{
    return jrun_fail(r, ERR_TOO_LARGE, "a value is nested deeper than %d levels",
                     JRUN_VALUE_DEPTH_MAX);
}

static int is_caller(struct jrun *r, struct jv v, int depth, bool *out)
{
    if (depth > JRUN_VALUE_DEPTH_MAX)
        return too_deep(r);
    if (jrun_step(r, 0))
        return -1;
    *out = v.caller;
    if (v.kind == JV_STR) {
        if (jtext_flat(r, v.u.s))
            return -1;
        *out = !jtext_all_own(v.u.s);
    }
    for (size_t i = 0; v.kind == JV_LIST && !*out && i < v.u.list->n; i++)
        if (is_caller(r, v.u.list->v[i], depth + 1, out))
            return -1;
    for (size_t i = 0; (v.kind == JV_DICT || v.kind == JV_NS) && !*out && i < v.u.dict->n; i++)
        if (is_caller(r, v.u.dict->e[i].key, depth + 1, out) ||
            (!*out && is_caller(r, v.u.dict->e[i].val, depth + 1, out)))
            return -1;
    return 0;
}

int jv_is_caller(struct jrun *r, struct jv v, bool *out)
{
    return is_caller(r, v, 0, out);
}

static int equal(struct jrun *r, struct jv a, struct jv b, int depth, bool *out);

static int list_equal(struct jrun *r, const struct jlist *a, const struct jlist *b, int depth,
                      bool *out)
{
    *out = a->n == b->n && a->tuple == b->tuple;
    for (size_t i = 0; *out && i < a->n; i++)
        if (equal(r, a->v[i], b->v[i], depth + 1, out))
            return -1;
    return 0;
}

static int dict_equal(struct jrun *r, const struct jdict *a, const struct jdict *b, int depth,
                      bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        struct jv v;
        if (jdict_get(r, b, a->e[i].key, &v) ||
            equal(r, a->e[i].val, v, depth + 1, out))
            return -1;
    }
    return 0;
}

static int equal(struct jrun *r, struct jv a, struct jv b, int depth, bool *out)
{
    if (depth > JRUN_VALUE_DEPTH_MAX)
        return too_deep(r);
    if (depth && jrun_step(r, 0))
        return -1;
    *out = false;
    if (jv_is_number(a) && jv_is_number(b)) {
        *out = a.kind == JV_FLOAT || b.kind == JV_FLOAT ? jv_number(a) == jv_number(b)
                                                        : as_int(a) == as_int(b);
        return 0;
    }
    if (a.kind != b.kind)
        return 0;
    switch (a.kind) {
    case JV_UNDEF:
    case JV_NONE: *out = true; return 0;
    case JV_STR: {
        int c = 1;
        if (a.u.s->n == b.u.s->n && jtext_cmp(r, a.u.s, b.u.s, &c))
            return -1;
        *out = c == 0;
        return 0;
    }
    case JV_LIST: return list_equal(r, a.u.list, b.u.list, depth, out);
    case JV_DICT: return dict_equal(r, a.u.dict, b.u.dict, depth, out);
    case JV_NS: *out = a.u.dict == b.u.dict; return 0;
    default: return 0;
    }
}

int jv_equal(struct jrun *r, struct jv a, struct jv b, bool *out)
{
    return equal(r, a, b, 0, out);
}

int jv_order(struct jrun *r, struct jv a, struct jv b, int *out)
{
    if (a.kind == JV_STR && b.kind == JV_STR)
        return jtext_cmp(r, a.u.s, b.u.s, out);
    if (!jv_is_number(a) || !jv_is_number(b))
        return jrun_fail(r, ERR_INVALID, "%s and %s cannot be ordered", jv_kind_name(a),
                         jv_kind_name(b));
    if (a.kind == JV_FLOAT || b.kind == JV_FLOAT)
        *out = (jv_number(a) > jv_number(b)) - (jv_number(a) < jv_number(b));
    else
        *out = (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
    return 0;
}

static int add_chars(struct jrun *r, struct jtext *t, struct jlist *l)
{
    if (jtext_flat(r, t))
        return -1;
    for (size_t at = 0; at < t->n;) {
        size_t end = at + 1;
        while (end < t->n && ((unsigned char)t->p[end] & 0xC0) == 0x80)
            end++;
        struct jtext *c = jtext_sub(r, t, at, end);
        if (!c || jlist_add(r, l, jv_text(c)))
            return -1;
        at = end;
    }
    return 0;
}

int jv_iterate(struct jrun *r, struct jv v, struct jv *list)
{
    if (v.kind == JV_LIST) {
        *list = v;
        return 0;
    }
    if (jv_list_new(r, 0, false, list))
        return -1;
    if (v.kind == JV_STR)
        return add_chars(r, v.u.s, list->u.list);
    if (v.kind == JV_DICT) {
        for (size_t i = 0; i < v.u.dict->n; i++)
            if (jlist_add(r, list->u.list, v.u.dict->e[i].key))
                return -1;
        return 0;
    }
    if (v.kind == JV_UNDEF)
        return 0;
    return jrun_fail(r, ERR_INVALID, "%s cannot be iterated", jv_kind_name(v));
}
