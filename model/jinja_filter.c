/* Filters. */
#include "model/jinja_builtin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int give(struct jtext *t, struct jv *out)
{
    if (!t)
        return -1;
    *out = jv_text(t);
    return 0;
}

static int f_default(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    if (v.kind == JV_UNDEF || (jv_truth(a[1]) && !jv_truth(v))) {
        if (a[0].kind == JV_ABSENT)
            return jv_str_new(r, "", 0, true, out);
        *out = a[0];
    } else {
        *out = v;
    }
    return 0;
}

static int f_trim(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jtext *t, *chars = NULL;
    if (jv_str(r, v, &t))
        return -1;
    if (a[0].kind != JV_ABSENT && a[0].kind != JV_NONE && jv_str(r, a[0], &chars))
        return -1;
    return give(jtext_strip(r, t, chars, 3), out);
}

static int change_case(struct jrun *r, struct jv v, enum jtext_case how, struct jv *out)
{
    struct jtext *t;
    return jv_str(r, v, &t) ? -1 : give(jtext_case(r, t, how), out);
}

static int f_upper(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, v, JTEXT_UPPER, out);
}

static int f_lower(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, v, JTEXT_LOWER, out);
}

static int f_capitalize(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, v, JTEXT_CAPITALIZE, out);
}

static int f_title(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return change_case(r, v, JTEXT_WORDS, out);
}

static int f_length(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    bool caller = v.caller;
    size_t n = 0;
    (void)a;
    switch (v.kind) {
    case JV_STR:
        if (jv_is_caller(r, v, &caller) || jrun_step(r, v.u.s->n))
            return -1;
        n = jtext_length(v.u.s);
        break;
    case JV_LIST: n = v.u.list->n; break;
    case JV_DICT: n = v.u.dict->n; break;
    case JV_UNDEF: break;
    default: return jrun_fail(r, ERR_INVALID, "%s has no length", jv_kind_name(v));
    }
    *out = jv_int((int64_t)n, caller);
    return 0;
}

static int f_join(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jv items;
    struct jtext *sep = NULL, *t;
    struct jbuild b = {.run = r};
    if (jv_iterate(r, v, &items) || (a[0].kind != JV_ABSENT && jv_str(r, a[0], &sep)))
        return -1;
    for (size_t i = 0; i < items.u.list->n; i++)
        if ((i && sep && jbuild_text(&b, sep)) || jv_str(r, items.u.list->v[i], &t) ||
            jbuild_text(&b, t) || jrun_step(r, t->n))
            return -1;
    return give(jbuild_done(&b), out);
}

static int end_of(struct jrun *r, struct jv v, bool last, struct jv *out)
{
    struct jv items;
    if (jv_iterate(r, v, &items))
        return -1;
    const struct jlist *l = items.u.list;
    *out = l->n ? l->v[last ? l->n - 1 : 0] : jv_undef("the first item of nothing");
    return 0;
}

static int f_first(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return end_of(r, v, false, out);
}

static int f_last(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return end_of(r, v, true, out);
}

static int f_list(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jv items;
    (void)a;
    if (jv_iterate(r, v, &items) || jv_list_new(r, items.u.list->n, false, out))
        return -1;
    out->caller = v.caller;
    for (size_t i = 0; i < items.u.list->n; i++)
        if (jlist_add(r, out->u.list, items.u.list->v[i]))
            return -1;
    return 0;
}

static int f_reverse(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jv part[3] = {[2] = jv_int(-1, false)}, list = v;
    (void)a;
    if (v.kind != JV_STR && v.kind != JV_LIST && jv_iterate(r, v, &list))
        return -1;
    return jv_slice(r, list, part, out);
}

static int f_string(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jtext *t;
    (void)a;
    return jv_str(r, v, &t) ? -1 : give(t, out);
}

static int f_safe(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)r;
    (void)a;
    *out = v;
    return 0;
}

/* Text as a number: `whole` for int. *ok is false when it is none, or too large to be kept. */
static int read_number(struct jrun *r, struct jv v, bool whole, struct jv *out, bool *ok)
{
    bool caller;
    char *end;
    struct jtext *t = jtext_strip(r, v.u.s, NULL, 3);
    char *s = t ? jrun_strndup(r, t->p, t->n) : NULL;
    *ok = false;
    if (!s || jv_is_caller(r, v, &caller))
        return -1;
    if (!t->n || strspn(s, "+-.0123456789eE") != t->n)
        return 0;
    errno = 0;
    if (whole) {
        *out = jv_int(strtoll(s, &end, 10), caller);
        *ok = !*end && !errno;
    }
    if (*ok)
        return 0;
    double f = strtod(s, &end);
    *ok = !*end && (!whole || (f > -9e18 && f < 9e18));
    if (*ok)
        *out = whole ? jv_int((int64_t)f, caller) : jv_float(f, caller);
    return 0;
}

static int to_number(struct jrun *r, struct jv v, bool whole, struct jv dflt, struct jv *out)
{
    bool ok = true;
    if (v.kind == JV_UNDEF)
        return jrun_fail(r, ERR_INVALID, "'%s' is undefined", v.u.name ? v.u.name : "the value");
    if (v.kind == JV_STR) {
        if (read_number(r, v, whole, out, &ok))
            return -1;
    } else if (v.kind == JV_FLOAT && whole) {
        ok = v.u.f > -9e18 && v.u.f < 9e18;
        *out = jv_int(ok ? (int64_t)v.u.f : 0, v.caller);
    } else if (jv_is_number(v)) {
        *out = !whole ? jv_float(jv_number(v), v.caller)
                      : v.kind == JV_INT ? v : jv_int(v.u.b, v.caller);
    } else {
        ok = false;
    }
    if (!ok)
        *out = dflt.kind != JV_ABSENT ? dflt : whole ? jv_int(0, false) : jv_float(0, false);
    return 0;
}

static int f_int(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    return to_number(r, v, true, a[0], out);
}

static int f_float(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    return to_number(r, v, false, a[0], out);
}

static int f_tojson(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jtext *t;
    if (a[0].kind != JV_ABSENT && a[0].kind != JV_NONE && (a[0].kind != JV_INT || a[0].u.i < 0))
        return jrun_fail(r, ERR_INVALID, "the indent of tojson is not a positive integer");
    return jv_json(r, v, a[0].kind == JV_INT ? a[0].u.i : -1, &t) ? -1 : give(t, out);
}

static int f_replace(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jtext *t, *old, *new_;
    if (jv_str(r, v, &t) || jv_str(r, a[0], &old) || jv_str(r, a[1], &new_))
        return -1;
    struct jv args[3] = {jv_text(old), jv_text(new_), a[2]};
    return jmethod_find("replace", 7)->fn(r, jv_text(t), args, out);
}

static int f_items(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    if (v.kind == JV_UNDEF)
        return jv_list_new(r, 0, false, out);
    return jmethod_find("items", 5)->fn(r, v, a, out);
}

/* "a.b.c" below v; undefined as soon as a part is missing. */
static int attr_path(struct jrun *r, struct jv v, struct jv path, struct jv *out)
{
    if (path.kind != JV_STR)
        return jv_item(r, v, path, out);
    if (jtext_flat(r, path.u.s))
        return -1;
    const char *p = path.u.s->p, *end = p + path.u.s->n;
    *out = v;
    for (bool more = true; more; ) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        char *name = jrun_strndup(r, p, (size_t)((dot ? dot : end) - p));
        if (!name || jv_attr(r, *out, name, out))
            return -1;
        more = dot && out->kind != JV_UNDEF;
        p = dot ? dot + 1 : end;
    }
    return 0;
}

/* Keeps the items for which the test (or their truth) is `want`. attr, test: NULL = none. */
static int keep(struct jrun *r, struct jv v, const struct jv *attr, const struct jv *test,
                bool want, struct jv *out)
{
    struct jv items;
    if (jv_iterate(r, v, &items) || jv_list_new(r, 0, false, out))
        return -1;
    out->caller = v.caller;
    for (size_t i = 0; i < items.u.list->n; i++) {
        struct jv item = items.u.list->v[i], x = item;
        if (attr && attr_path(r, item, *attr, &x))
            return -1;
        if (test->kind == JV_STR) {
            const struct jbuiltin *fn = jtest_find(test->u.s->p, test->u.s->n);
            struct jv args[JBUILTIN_ARGS] = {test[1]};
            if (fn->min && test[1].kind == JV_ABSENT)
                return jrun_fail(r, ERR_INVALID, "test '%s' needs an argument", fn->name);
            if (fn->fn(r, x, args, &x))
                return -1;
        }
        if (jv_truth(x) == want && jlist_add(r, out->u.list, item))
            return -1;
    }
    return 0;
}

static int f_selectattr(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    return keep(r, v, &a[0], &a[1], true, out);
}

static int f_rejectattr(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    return keep(r, v, &a[0], &a[1], false, out);
}

static int f_select(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    return keep(r, v, NULL, &a[0], true, out);
}

static int f_reject(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    return keep(r, v, NULL, &a[0], false, out);
}

static int f_map(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    struct jv items, none[JBUILTIN_ARGS] = {{0}};
    if (jv_iterate(r, v, &items) || jv_list_new(r, items.u.list->n, false, out))
        return -1;
    out->caller = v.caller;
    if (a[0].kind == JV_ABSENT && a[1].kind == JV_ABSENT)
        return jrun_fail(r, ERR_INVALID, "filter 'map' needs a filter or an attribute");
    for (size_t i = 0; i < items.u.list->n; i++) {
        struct jv x = items.u.list->v[i];
        if (a[0].kind == JV_STR) {
            if (jfilter_find(a[0].u.s->p, a[0].u.s->n)->fn(r, x, none, &x))
                return -1;
        } else if (attr_path(r, x, a[1], &x)) {
            return -1;
        }
        if (x.kind == JV_UNDEF && a[2].kind != JV_ABSENT)
            x = a[2];
        if (jlist_add(r, out->u.list, x))
            return -1;
    }
    return 0;
}

const struct jbuiltin *jfilter_find(const char *name, size_t n)
{
    static const struct jbuiltin filters[] = {
        {"default", f_default, 0, {"default_value", "boolean"}},
        {"d", f_default, 0, {"default_value", "boolean"}},
        {"trim", f_trim, 0, {"chars"}},
        {"upper", f_upper, 0, {NULL}},
        {"lower", f_lower, 0, {NULL}},
        {"capitalize", f_capitalize, 0, {NULL}},
        {"title", f_title, 0, {NULL}},
        {"length", f_length, 0, {NULL}},
        {"count", f_length, 0, {NULL}},
        {"join", f_join, 0, {"d"}},
        {"first", f_first, 0, {NULL}},
        {"last", f_last, 0, {NULL}},
        {"list", f_list, 0, {NULL}},
        {"reverse", f_reverse, 0, {NULL}},
        {"string", f_string, 0, {NULL}},
        {"safe", f_safe, 0, {NULL}},
        {"int", f_int, 0, {"default"}},
        {"float", f_float, 0, {"default"}},
        {"tojson", f_tojson, 0, {"indent"}},
        {"replace", f_replace, 2, {"old", "new", "count"}},
        {"items", f_items, 0, {NULL}},
        {"selectattr", f_selectattr, 1, {"", "", ""}},
        {"rejectattr", f_rejectattr, 1, {"", "", ""}},
        {"select", f_select, 0, {"", ""}},
        {"reject", f_reject, 0, {"", ""}},
        {"map", f_map, 0, {"", "attribute", "default"}},
    };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strlen(filters[i].name) == n && !memcmp(filters[i].name, name, n))
            return &filters[i];
    return NULL;
}
