/* Tests: x is NAME. The result is the caller's when x is: text made of it must not count as own. */
#include "model/jinja_builtin.h"

#include <string.h>

#define TEST(id, expr)                                                                             \
    static int t_##id(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)             \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)a;                                                                                   \
        *out = jv_bool((expr), v.caller);                                                          \
        return 0;                                                                                  \
    }

TEST(defined, v.kind != JV_UNDEF)
TEST(undefined, v.kind == JV_UNDEF)
TEST(none, v.kind == JV_NONE)
TEST(string, v.kind == JV_STR)
TEST(mapping, v.kind == JV_DICT)
TEST(iterable, v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_DICT || v.kind == JV_UNDEF)
TEST(number, jv_is_number(v))
TEST(integer, v.kind == JV_INT)
TEST(float, v.kind == JV_FLOAT)
TEST(boolean, v.kind == JV_BOOL)
TEST(true, v.kind == JV_BOOL && v.u.b)
TEST(false, v.kind == JV_BOOL && !v.u.b)

static int remainder_is(struct jrun *r, struct jv v, struct jv by, int64_t want, struct jv *out)
{
    struct jv rest;
    bool same;
    if (jv_arith(r, '%', v, by, &rest) || jv_equal(r, rest, jv_int(want, false), &same))
        return -1;
    *out = jv_bool(same, v.caller || by.caller);
    return 0;
}

static int t_even(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return remainder_is(r, v, jv_int(2, false), 0, out);
}

static int t_odd(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    (void)a;
    return remainder_is(r, v, jv_int(2, false), 1, out);
}

static int t_divisibleby(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    return remainder_is(r, v, a[0], 0, out);
}

static int t_eq(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    bool same;
    if (jv_equal(r, v, a[0], &same))
        return -1;
    *out = jv_bool(same, true);
    return 0;
}

static int t_ne(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    if (t_eq(r, v, a, out))
        return -1;
    out->u.b = !out->u.b;
    return 0;
}

static int t_in(struct jrun *r, struct jv v, const struct jv *a, struct jv *out)
{
    bool in;
    if (jv_contains(r, a[0], v, &in))
        return -1;
    *out = jv_bool(in, true);
    return 0;
}

const struct jbuiltin *jtest_find(const char *name, size_t n)
{
    static const struct jbuiltin tests[] = {
        {"defined", t_defined, 0, {NULL}},   {"undefined", t_undefined, 0, {NULL}},
        {"none", t_none, 0, {NULL}},         {"string", t_string, 0, {NULL}},
        {"mapping", t_mapping, 0, {NULL}},   {"iterable", t_iterable, 0, {NULL}},
        {"sequence", t_iterable, 0, {NULL}}, {"number", t_number, 0, {NULL}},
        {"integer", t_integer, 0, {NULL}},   {"float", t_float, 0, {NULL}},
        {"boolean", t_boolean, 0, {NULL}},   {"true", t_true, 0, {NULL}},
        {"false", t_false, 0, {NULL}},       {"even", t_even, 0, {NULL}},
        {"odd", t_odd, 0, {NULL}},           {"divisibleby", t_divisibleby, 1, {""}},
        {"eq", t_eq, 1, {""}},               {"equalto", t_eq, 1, {""}},
        {"ne", t_ne, 1, {""}},               {"in", t_in, 1, {""}},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strlen(tests[i].name) == n && !memcmp(tests[i].name, name, n))
            return &tests[i];
    return NULL;
}
