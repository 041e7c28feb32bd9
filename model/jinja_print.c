/* Values as text: str() and repr() as Python has them, JSON, and JSON read in. */
#include "model/jinja_value.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One mark for all of it: a list made of the caller's items is the caller's, brackets included. */
struct jprint {
    struct jbuild b;
    bool json;
    int64_t indent; /* < 0: one line */
};

static int put(struct jprint *p, const char *s)
{
    return jbuild_add(&p->b, s, strlen(s), true);
}

/* The shortest digits that read back as the same number, as Python's repr picks them. */
static int put_float(struct jprint *p, double f)
{
    char digits[40], s[64];
    if (!isfinite(f))
        return put(p, isnan(f) ? (p->json ? "NaN" : "nan")
                               : f > 0 ? (p->json ? "Infinity" : "inf")
                                       : (p->json ? "-Infinity" : "-inf"));
    int prec = 1;
    do
        snprintf(digits, sizeof digits, "%.*e", prec - 1, f);
    while (strtod(digits, NULL) != f && prec++ < 17);
    int exp10 = atoi(strchr(digits, 'e') + 1);
    if (exp10 >= -4 && exp10 < 16) {
        int decimals = prec - 1 - exp10;
        snprintf(s, sizeof s, "%.*f", decimals < 1 ? 1 : decimals, f);
    } else {
        snprintf(s, sizeof s, "%.*e", prec - 1, f);
    }
    return put(p, s);
}

static int put_json_char(struct jprint *p, unsigned char c)
{
    char s[8];
    switch (c) {
    case '"': return put(p, "\\\"");
    case '\\': return put(p, "\\\\");
    case '\n': return put(p, "\\n");
    case '\r': return put(p, "\\r");
    case '\t': return put(p, "\\t");
    case '\b': return put(p, "\\b");
    case '\f': return put(p, "\\f");
    default: snprintf(s, sizeof s, "\\u%04x", c); return put(p, s);
    }
}

static int put_repr_char(struct jprint *p, unsigned char c, char quote)
{
    char s[8];
    if (c == '\n' || c == '\r' || c == '\t')
        return put(p, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    if (c == '\\' || c == (unsigned char)quote)
        snprintf(s, sizeof s, "\\%c", c);
    else
        snprintf(s, sizeof s, "\\x%02x", c);
    return put(p, s);
}

static int put_string(struct jprint *p, struct jtext *t)
{
    if (jtext_flat(p->b.run, t) || jrun_step(p->b.run, t->n))
        return -1;
    bool dq = p->json || (t->n && memchr(t->p, '\'', t->n) && !memchr(t->p, '"', t->n));
    char quote[2] = {dq ? '"' : '\'', 0};
    if (put(p, quote))
        return -1;
    size_t from = 0;
    for (size_t i = 0; i < t->n; i++) {
        unsigned char c = (unsigned char)t->p[i];
        if (c >= 0x20 && c != '\\' && c != (unsigned char)quote[0] && (p->json || c != 0x7F))
            continue;
        if (jbuild_add(&p->b, t->p + from, i - from, true) ||
            (p->json ? put_json_char(p, c) : put_repr_char(p, c, quote[0])))
            return -1;
        from = i + 1;
    }
    return jbuild_add(&p->b, t->p + from, t->n - from, true) || put(p, quote) ? -1 : 0;
}

static int put_value(struct jprint *p, struct jv v, int depth);

/* Between items and brackets: a new line when indenting, else `sep`. */
static int put_break(struct jprint *p, const char *sep, int depth)
{
    if (!p->json || p->indent < 0)
        return put(p, sep);
    if (jbuild_add(&p->b, sep, *sep == ',', true) || put(p, "\n"))
        return -1;
    for (int64_t i = 0; i < p->indent * depth; i++)
        if (put(p, " "))
            return -1;
    return 0;
}

static int put_list(struct jprint *p, const struct jlist *l, int depth)
{
    bool round = l->tuple && !p->json;
    if (put(p, round ? "(" : "["))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if (put_break(p, i ? ", " : "", depth + 1) || put_value(p, l->v[i], depth + 1))
            return -1;
    if (l->n && put_break(p, round && l->n == 1 ? "," : "", depth))
        return -1;
    return put(p, round ? ")" : "]");
}

static int put_key(struct jprint *p, struct jv key, int depth)
{
    bool quote = p->json && key.kind != JV_STR;
    if (quote && (key.kind == JV_LIST || put(p, "\"")))
        return key.kind == JV_LIST
                   ? jrun_fail(p->b.run, ERR_INVALID, "a list cannot be a key in JSON") : -1;
    if (put_value(p, key, depth) || (quote && put(p, "\"")))
        return -1;
    return put(p, ": ");
}

static int put_dict(struct jprint *p, const struct jdict *d, int depth)
{
    if (put(p, "{"))
        return -1;
    for (size_t i = 0; i < d->n; i++)
        if (put_break(p, i ? ", " : "", depth + 1) || put_key(p, d->e[i].key, depth + 1) ||
            put_value(p, d->e[i].val, depth + 1))
            return -1;
    if (d->n && put_break(p, "", depth))
        return -1;
    return put(p, "}");
}

static int put_value(struct jprint *p, struct jv v, int depth)
{
    struct jrun *r = p->b.run;
    char s[32];
    if (depth > JRUN_VALUE_DEPTH_MAX)
        return jrun_fail(r, ERR_TOO_LARGE, "a value is nested deeper than %d levels",
                         JRUN_VALUE_DEPTH_MAX);
    if (jrun_step(r, 0))
        return -1;
    switch (v.kind) {
    case JV_NONE: return put(p, p->json ? "null" : "None");
    case JV_BOOL:
        return put(p, p->json ? (v.u.b ? "true" : "false") : v.u.b ? "True" : "False");
    case JV_INT: snprintf(s, sizeof s, "%lld", (long long)v.u.i); return put(p, s);
    case JV_FLOAT: return put_float(p, v.u.f);
    case JV_STR: return put_string(p, v.u.s);
    case JV_LIST: return put_list(p, v.u.list, depth);
    case JV_DICT: return put_dict(p, v.u.dict, depth);
    case JV_UNDEF:
        if (!p->json)
            return put(p, "Undefined");
        return jrun_fail(r, ERR_INVALID, "'%s' is undefined and cannot be written as JSON",
                         v.u.name ? v.u.name : "the value");
    default: return jrun_fail(r, ERR_INVALID, "%s cannot be written out", jv_kind_name(v));
    }
}

static int print(struct jprint *p, struct jv v, struct jtext **out)
{
    bool caller = false;
    if (put_value(p, v, 0) || jv_is_caller(p->b.run, v, &caller))
        return -1;
    *out = jbuild_done(&p->b);
    if (*out)
        (*out)->own = !caller;
    return *out ? 0 : -1;
}

int jv_str(struct jrun *r, struct jv v, struct jtext **out)
{
    if (v.kind == JV_STR) {
        *out = v.u.s;
        return 0;
    }
    if (v.kind == JV_UNDEF || v.kind == JV_ABSENT) {
        *out = jtext_borrow(r, "", 0, true);
        return *out ? 0 : -1;
    }
    struct jprint p = {.b = {.run = r}, .indent = -1};
    return print(&p, v, out);
}

int jv_json(struct jrun *r, struct jv v, int64_t indent, struct jtext **out)
{
    if (indent > 64)
        return jrun_fail(r, ERR_INVALID, "an indent over 64 is not supported");
    struct jprint p = {.b = {.run = r}, .json = true, .indent = indent};
    return print(&p, v, out);
}

static int from_json(struct jrun *r, const json_t *j, int depth, struct jv *out);

static int list_from_json(struct jrun *r, const json_t *j, int depth, struct jv *out)
{
    if (jv_list_new(r, json_array_size(j), false, out))
        return -1;
    out->caller = true;
    for (size_t i = 0; i < json_array_size(j); i++) {
        struct jv v;
        if (from_json(r, json_array_get(j, i), depth + 1, &v) || jlist_add(r, out->u.list, v))
            return -1;
    }
    return 0;
}

static int dict_from_json(struct jrun *r, const json_t *j, int depth, struct jv *out)
{
    if (jv_dict_new(r, JV_DICT, out))
        return -1;
    out->caller = true;
    struct jdict *d = out->u.dict;
    size_t n = json_object_size(j);
    d->e = jrun_grow(r, NULL, &d->cap, n, sizeof *d->e);
    if (n && !d->e)
        return -1;
    json_t *obj = (json_t *)(uintptr_t)j; /* the iterator takes no const, and changes nothing */
    for (void *it = json_object_iter(obj); it; it = json_object_iter_next(obj, it)) {
        const char *key = json_object_iter_key(it);
        struct jentry *e = &d->e[d->n];
        if (jrun_step(r, 0) || jv_str_new(r, key, strlen(key), false, &e->key) ||
            from_json(r, json_object_iter_value(it), depth + 1, &e->val))
            return -1;
        d->n++;
    }
    return 0;
}

static int from_json(struct jrun *r, const json_t *j, int depth, struct jv *out)
{
    if (depth > JRUN_VALUE_DEPTH_MAX)
        return jrun_fail(r, ERR_TOO_LARGE, "a value is nested deeper than %d levels",
                         JRUN_VALUE_DEPTH_MAX);
    switch (json_typeof(j)) {
    case JSON_OBJECT: return dict_from_json(r, j, depth, out);
    case JSON_ARRAY: return list_from_json(r, j, depth, out);
    case JSON_STRING:
        return jv_str_new(r, json_string_value(j), json_string_length(j), false, out);
    case JSON_INTEGER: *out = jv_int(json_integer_value(j), true); return 0;
    case JSON_REAL: *out = jv_float(json_real_value(j), true); return 0;
    case JSON_TRUE: *out = jv_bool(true, true); return 0;
    case JSON_FALSE: *out = jv_bool(false, true); return 0;
    default: *out = jv_none(); out->caller = true; return 0;
    }
}

int jv_from_json(struct jrun *r, const json_t *j, struct jv *out)
{
    assert(j);
    return from_json(r, j, 0, out);
}
