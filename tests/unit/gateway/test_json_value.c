/* JSON to msgpack and back: equal objects at both doors, whatever is in them. */
#include "gateway/json_value.h"

#include "tests/common/test_run.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* JSON text -> msgpack -> tree -> JSON text; NULL when the way back refuses. */
static json_t *there_and_back(const char *json, size_t n)
{
    struct buf packed = {0}, text = {0};
    struct value_tree t;
    struct err e;
    ck_assert_int_eq(json_to_value(json, n, &packed), 0);
    ck_assert_msg(value_parse(&t, packed.p, packed.len, &e) == 0, "%s", e.msg);
    json_t *out = NULL;
    if (value_to_json(&t.root, &text) == 0) {
        out = json_loadb(text.p, text.len,
                         JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
        ck_assert_msg(out != NULL, "%.*s", (int)(text.len > 500 ? 500 : text.len), text.p);
    }
    value_tree_deinit(&t);
    buf_deinit(&packed);
    buf_deinit(&text);
    return out;
}

static void same(const char *json)
{
    json_t *want = json_loadb(json, strlen(json), JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    json_t *got = there_and_back(json, strlen(json));
    ck_assert_msg(want && got && json_equal(want, got), "%s", json);
    json_decref(want);
    json_decref(got);
}

START_TEST(fixed)
{
    same("{}");
    same("[]");
    same("null");
    same("[true,false,null,0,-1,9223372036854775807,-9223372036854775808]");
    same("[0.5,1e300,-2.25,1e-7]");
    same(
        "{\"a\":\"\\u0000\\u0001\\\"\\\\\\n\",\"\\u20ac\":\"\\ud83d\\ude00\",\"\":{\"b\":[[[]]]}}");
}
END_TEST

static json_t *random_json(unsigned *seed, int depth)
{
    switch (rand_r(seed) % (depth > 0 ? 8 : 6)) {
    case 0: return json_integer(((json_int_t)rand_r(seed) << 32) ^ rand_r(seed));
    case 1: return json_integer(rand_r(seed) % 300 - 150);
    case 2: return json_real((rand_r(seed) - 1e9) / 1024.0 + 0.125);
    case 3: return json_boolean(rand_r(seed) % 2);
    case 4: return json_null();
    case 5: {
        char s[40];
        int n = rand_r(seed) % 40;
        for (int i = 0; i < n; i++) s[i] = (char)(rand_r(seed) % 127 + 1);
        return json_stringn(s, (size_t)n);
    }
    case 6: {
        json_t *a = json_array();
        for (int i = rand_r(seed) % 20; i > 0; i--)
            json_array_append_new(a, random_json(seed, depth - 1));
        return a;
    }
    default: {
        json_t *o = json_object();
        for (int i = rand_r(seed) % 20; i > 0; i--) {
            char key[16];
            snprintf(key, sizeof key, "k%d", rand_r(seed) % 1000);
            json_object_set_new(o, key, random_json(seed, depth - 1));
        }
        return o;
    }
    }
}

START_TEST(random_objects)
{
    for (unsigned k = 0; k < 300; k++) {
        unsigned seed = 1000 + k;
        json_t *want = random_json(&seed, 5);
        char *text = json_dumps(want, JSON_ENCODE_ANY);
        json_t *got = there_and_back(text, strlen(text));
        ck_assert_msg(got && json_equal(want, got), "seed %u", 1000 + k);
        json_decref(want);
        json_decref(got);
        free(text);
    }
}
END_TEST

static int back_only(const struct buf *packed)
{
    struct buf text = {0};
    struct value_tree t;
    struct err e;
    ck_assert_int_eq(value_parse(&t, packed->p, packed->len, &e), 0);
    int r = value_to_json(&t.root, &text);
    value_tree_deinit(&t);
    buf_deinit(&text);
    return r;
}

/* What JSON cannot say is refused, not written as something else. */
START_TEST(refused)
{
    struct buf b = {0};
    value_put_array(&b, 1);
    value_put_float(&b, __builtin_nan(""));
    ck_assert_int_ne(back_only(&b), 0);
    buf_clear(&b);
    value_put_float(&b, __builtin_inf());
    ck_assert_int_ne(back_only(&b), 0);
    buf_clear(&b);
    value_put_map(&b, 1);
    value_put_str(&b, "x", 1);
    value_put_bin(&b, "x", 1);
    ck_assert_int_ne(back_only(&b), 0);
    buf_clear(&b);
    ck_assert_int_ne(json_to_value("{\"a\":", 5, &b), 0);
    ck_assert_int_ne(json_to_value("", 0, &b), 0);
    buf_deinit(&b);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json_value");
    TCase *t = tcase_create("value");
    tcase_add_test(t, fixed);
    tcase_add_test(t, random_objects);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return test_run(s);
}
