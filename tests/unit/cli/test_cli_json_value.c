/* JSON to msgpack and back gives the same JSON; what one of the two cannot hold is refused. */
#include "cli/json_value.h"
#include "tests/common/test_run.h"

#include <math.h>
#include <string.h>

/* Text -> JSON -> msgpack -> value -> JSON -> text. */
static void round_trip(const char *text, const char *expected) {
    struct buf packed = {0}, out = {0};
    struct value_tree tree;
    struct err e;
    json_t *in = json_value_parse(text, strlen(text), &e);
    ck_assert_ptr_nonnull(in);
    ck_assert_int_eq(json_value_put(&packed, in, &e), 0);
    ck_assert_int_eq(value_parse(&tree, packed.p, packed.len, &e), 0);
    json_t *back = json_value_make(&tree.root);
    ck_assert_ptr_nonnull(back);
    ck_assert_int_eq(json_value_text(&out, back), 0);
    ck_assert_str_eq(buf_str(&out), expected);
    json_decref(in);
    json_decref(back);
    value_tree_deinit(&tree);
    buf_deinit(&packed);
    buf_deinit(&out);
}

START_TEST(values_survive_the_way_there_and_back) {
    static const char *const same[] = {
        "{}", "[]", "{\"a\":[1,-1,0,9223372036854775807,-9223372036854775808]}",
        "[true,false,null,0.5,-1.25]", "{\"z\":1,\"a\":2,\"m\":{\"y\":[],\"b\":{}}}",
        "[\"\",\"a\\nb\",\"\xc3\xa4\xf0\x9f\x98\x80\",\"\\u0000x\"]"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        round_trip(same[i], same[i]);
    round_trip(" { \"a\" : 1.0 } ", "{\"a\":1.0}");
}
END_TEST

START_TEST(text_that_is_no_json_is_refused) {
    static const char *const bad[] = {"", "{", "{\"a\":1,\"a\":2}", "[1,]", "nul", "[1] x",
                                      "\"\xff\"", "[\"\xed\xa0\x80\"]", "1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err e = {0};
        ck_assert_ptr_null(json_value_parse(bad[i], strlen(bad[i]), &e));
        ck_assert_int_eq(e.code, ERR_BAD_JSON);
    }
}
END_TEST

START_TEST(nesting_has_a_limit) {
    char text[2 * 200 + 1];
    for (int depth = JSON_VALUE_DEPTH_MAX - 1; depth <= JSON_VALUE_DEPTH_MAX + 1; depth++) {
        struct buf out = {0};
        struct err e = {0};
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        json_t *j = json_value_parse(text, (size_t)depth * 2, &e);
        ck_assert_ptr_nonnull(j);
        ck_assert_int_eq(json_value_put(&out, j, &e), depth > JSON_VALUE_DEPTH_MAX ? -1 : 0);
        json_decref(j);
        buf_deinit(&out);
    }
}
END_TEST

START_TEST(what_json_has_not_becomes_null_or_real_or_is_refused) {
    struct value nan_value = {.kind = VALUE_FLOAT, .as.f = NAN};
    struct value big = {.kind = VALUE_UINT, .as.u = UINT64_MAX};
    struct value bytes = {.kind = VALUE_STR, .n_bytes = 1, .as.s = "\xff"};
    json_t *j = json_value_make(&nan_value);
    ck_assert(json_is_null(j));
    json_decref(j);
    j = json_value_make(&big);
    ck_assert(json_is_real(j));
    json_decref(j);
    ck_assert_ptr_null(json_value_make(&bytes));
}
END_TEST

int main(void) {
    Suite *s = suite_create("json_value");
    TCase *t = tcase_create("all");
    tcase_add_test(t, values_survive_the_way_there_and_back);
    tcase_add_test(t, text_that_is_no_json_is_refused);
    tcase_add_test(t, nesting_has_a_limit);
    tcase_add_test(t, what_json_has_not_becomes_null_or_real_or_is_refused);
    suite_add_tcase(s, t);
    return test_run(s);
}
