/* Methods of strings and objects. */
#include "model/jinja_builtin.h"

#include <string.h>

static int need(struct jrun *r, struct jv v, enum jv_kind kind, const char *what)
{
    if (v.kind == kind)
        return 0;
    if (v.kind == JV_UNDEF)
        return jrun_fail(r, ERR_INVALID, "'%s' is undefined", v.u.name ? v.u.name : "the value");
    return jrun_fail(r, ERR_INVALID, "%s does not go with %s", what, jv_kind_name(v));
}

static int give(struct jtext *t, struct jv *out)
{
    if (!t)
        return -1;
    *out = jv_text(t);
    return 0;
}

static int strip(struct jrun *r, struct jv self, const struct jv *a, unsigned sides, struct jv *out)
{
    if (need(r, self, JV_STR, "strip()"))
        return -1;
    bool all = a[0].kind == JV_ABSENT || a[0].kind == JV_NONE;
    if (!all && need(r, a[0], JV_STR, "strip()"))
        return -1;
    return give(jtext_strip(r, self.u.s, all ? NULL : a[0].u.s, sides), out);
}

static int m_strip(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    return strip(r, self, a, 3, out);
}

static int m_lstrip(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    return strip(r, self, a, 1, out);
}

static int m_rstrip(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    return strip(r, self, a, 2, out);
}

static int change_case(struct jrun *r, struct jv self, enum jtext_case how, struct jv *out)
{
    return need(r, self, JV_STR, "changing case") ? -1 : give(jtext_case(r, self.u.s, how), out);
}

static int m_upper(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, self, JTEXT_UPPER, out);
}

static int m_lower(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, self, JTEXT_LOWER, out);
}

static int m_capitalize(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, self, JTEXT_CAPITALIZE, out);
}

static int m_title(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, self, JTEXT_TITLE, out);
}

static int m_replace(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    int64_t max = -1;
    if (need(r, self, JV_STR, "replace()") || need(r, a[0], JV_STR, "replace()") ||
        need(r, a[1], JV_STR, "replace()"))
        return -1;
    if (a[2].kind != JV_ABSENT) {
        if (need(r, a[2], JV_INT, "replace()"))
            return -1;
        max = a[2].u.i;
    }
    struct jtext *t = jtext_replace(r, self.u.s, a[0].u.s, a[1].u.s, max);
    return give(t && a[2].caller ? jtext_taint(r, t) : t, out);
}

static int ends(struct jrun *r, struct jv self, struct jv arg, bool start, struct jv *out)
{
    bool a = false, b = false;
    if (need(r, self, JV_STR, "startswith()") || need(r, arg, JV_STR, "startswith()") ||
        jv_is_caller(r, self, &a) || jv_is_caller(r, arg, &b))
        return -1;
    const struct jtext *t = self.u.s, *x = arg.u.s; /* flat by now */
    bool hit = x->n <= t->n && (!x->n || !memcmp(t->p + (start ? 0 : t->n - x->n), x->p, x->n));
    *out = jv_bool(hit, a || b);
    return 0;
}

static int m_startswith(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    return ends(r, self, a[0], true, out);
}

static int m_endswith(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    return ends(r, self, a[0], false, out);
}

static int add_part(struct jrun *r, struct jlist *l, struct jtext *t, size_t from, size_t to,
                    bool taint)
{
    struct jtext *s = jtext_sub(r, t, from, to);
    if (s && taint)
        s = jtext_taint(r, s);
    return s ? jlist_add(r, l, jv_text(s)) : -1;
}

/* Without a separator: runs of white space, none at the ends. */
static int split_space(struct jrun *r, struct jtext *t, int64_t max, struct jlist *l)
{
    for (size_t at = 0, k;;) {
        while ((k = jspace_at(t->p + at, t->n - at)) != 0)
            at += k;
        if (at == t->n)
            return 0;
        size_t end = at;
        if (max == 0) /* the rest as it stands, white space at its end too */
            return add_part(r, l, t, at, t->n, false);
        while (end < t->n && !jspace_at(t->p + end, t->n - end))
            end++;
        if (add_part(r, l, t, at, end, false))
            return -1;
        max -= max > 0;
        at = end;
    }
}

static int m_split(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    int64_t max = -1;
    if (need(r, self, JV_STR, "split()") || jtext_flat(r, self.u.s) ||
        jrun_step(r, self.u.s->n) || jv_list_new(r, 0, false, out))
        return -1;
    if (a[1].kind != JV_ABSENT) {
        if (need(r, a[1], JV_INT, "split()"))
            return -1;
        max = a[1].u.i;
    }
    struct jtext *t = self.u.s, *sep = a[0].u.s;
    if (a[0].kind == JV_ABSENT || a[0].kind == JV_NONE)
        return split_space(r, t, max, out->u.list);
    if (need(r, a[0], JV_STR, "split()") || jtext_flat(r, sep))
        return -1;
    if (!sep->n)
        return jrun_fail(r, ERR_INVALID, "split() by an empty text");
    bool taint = !jtext_all_own(sep);
    size_t at = 0, hit;
    while (max != 0 && (hit = jtext_find(t, sep, at)) != SIZE_MAX) {
        if (add_part(r, out->u.list, t, at, hit, taint))
            return -1;
        at = hit + sep->n;
        max -= max > 0;
    }
    return add_part(r, out->u.list, t, at, t->n, taint);
}

static int m_get(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    if (need(r, self, JV_DICT, "get()") || jdict_get(r, self.u.dict, a[0], out))
        return -1;
    if (out->kind == JV_ABSENT)
        *out = a[1].kind == JV_ABSENT ? jv_none() : a[1];
    return 0;
}

static int entries(struct jrun *r, struct jv self, bool key, bool val, struct jv *out)
{
    if (need(r, self, JV_DICT, "items()") || jv_list_new(r, self.u.dict->n, false, out))
        return -1;
    out->caller = self.caller;
    for (size_t i = 0; i < self.u.dict->n; i++) {
        struct jentry e = self.u.dict->e[i];
        struct jv v = key ? e.key : e.val;
        if (key && val) {
            if (jv_list_new(r, 2, true, &v) || jlist_add(r, v.u.list, e.key) ||
                jlist_add(r, v.u.list, e.val))
                return -1;
            v.caller = self.caller;
        }
        if (jlist_add(r, out->u.list, v))
            return -1;
    }
    return 0;
}

static int m_items(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    (void)a;
    return entries(r, self, true, true, out);
}

static int m_keys(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    (void)a;
    return entries(r, self, true, false, out);
}

static int m_values(struct jrun *r, struct jv self, const struct jv *a, struct jv *out)
{
    (void)a;
    return entries(r, self, false, true, out);
}

const struct jbuiltin *jmethod_find(const char *name, size_t n)
{
    static const struct jbuiltin methods[] = {
        {"strip", m_strip, 0, {""}},
        {"lstrip", m_lstrip, 0, {""}},
        {"rstrip", m_rstrip, 0, {""}},
        {"upper", m_upper, 0, {NULL}},
        {"lower", m_lower, 0, {NULL}},
        {"capitalize", m_capitalize, 0, {NULL}},
        {"title", m_title, 0, {NULL}},
        {"replace", m_replace, 2, {"", "", "count"}},
        {"startswith", m_startswith, 1, {""}},
        {"endswith", m_endswith, 1, {""}},
        {"split", m_split, 0, {"sep", "maxsplit"}},
        {"get", m_get, 1, {"", ""}},
        {"items", m_items, 0, {NULL}},
        {"keys", m_keys, 0, {NULL}},
        {"values", m_values, 0, {NULL}},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strlen(methods[i].name) == n && !memcmp(methods[i].name, name, n))
            return &methods[i];
    return NULL;
}
