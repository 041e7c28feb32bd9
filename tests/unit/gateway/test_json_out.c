/* JSON written by hand: a strict parser reads back what was meant; numbers are finite; errors have
 * all four keys. */
#include "gateway/json_out.h"

#include "gateway/request.h"
#include "tests/common/test_run.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static json_t *parse(struct buf *b)
{
    json_error_t je;
    json_t *j =
        json_loadb(b->p, b->len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    ck_assert_msg(j != NULL, "%s in %.*s", je.text, (int)b->len, b->p);
    return j;
}

static void round_trip(const char *p, size_t n)
{
    struct buf b = {0};
    json_out_str(&b, p, n);
    json_t *j = parse(&b);
    ck_assert_uint_eq(json_string_length(j), n);
    if (n) ck_assert_int_eq(memcmp(json_string_value(j), p, n), 0);
    json_decref(j);
    buf_deinit(&b);
}

START_TEST(strings)
{
    char all[128];
    for (int i = 0; i < 128; i++) all[i] = (char)i;
    round_trip(all, sizeof all);
    round_trip("", 0);
    round_trip(NULL, 0);
    round_trip("\"\\\n\r\t/", 6);
    round_trip("\xf0\x9f\x98\x80\xe2\x82\xac", 7);
    struct buf b = {0};
    json_out_str(&b, "a\n\x01\x7f\"\\", 6);
    ck_assert_str_eq(buf_str(&b), "\"a\\n\\u0001\\u007f\\\"\\\\\"");
    buf_deinit(&b);
}
END_TEST

START_TEST(any_bytes)
{
    static const struct { const char *in; size_t n; const char *out; } rows[] = {
        {"ok", 2, "ok"},
        {"\xff", 1, "\xef\xbf\xbd"},
        {"a\xe2\x82", 3, "a\xef\xbf\xbd"},          /* a cut character: one replacement */
        {"\xe2\x82\xac", 3, "\xe2\x82\xac"},
        {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate is not UTF-8 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b = {0};
        json_out_bytes(&b, (const uint8_t *)rows[i].in, rows[i].n);
        json_t *j = parse(&b);
        ck_assert_str_eq(json_string_value(j), rows[i].out);
        json_decref(j);
        buf_deinit(&b);
    }
    struct buf b = {0};
    json_out_byte_list(&b, (const uint8_t *)"\x00\xf0\x9f", 3);
    ck_assert_str_eq(buf_str(&b), "[0,240,159]");
    buf_deinit(&b);
}
END_TEST

START_TEST(logprobs)
{
    static const struct { float in; double out; } rows[] = {
        {0, 0}, {-1.5f, -1.5}, {-INFINITY, -9999}, {NAN, -9999}, {INFINITY, -9999}, {-1e30f, -1e30},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b = {0};
        json_out_logprob(&b, rows[i].in);
        json_t *j = parse(&b);
        ck_assert(json_is_number(j));
        ck_assert_double_eq_tol(json_number_value(j), rows[i].out,
                                fabs(rows[i].out) * 1e-6 + 1e-12);
        json_decref(j);
        buf_deinit(&b);
    }
}
END_TEST

START_TEST(errors)
{
    for (int code = 1; code < ERR_COUNT; code++) {
        struct err e;
        struct buf b = {0};
        if (code % 2) err_set_param(&e, (enum err_code)code, "a\"b", "no \"%s\"\n \xff", "x");
        else err_set(&e, (enum err_code)code, "plain");
        error_json(&b, &e);
        json_t *j = parse(&b), *o = json_object_get(j, "error");
        ck_assert_uint_eq(json_object_size(o), 4);
        ck_assert(json_is_string(json_object_get(o, "message")));
        ck_assert_str_eq(json_string_value(json_object_get(o, "type")),
                         err_type((enum err_code)code));
        ck_assert(code % 2 ? json_is_string(json_object_get(o, "param"))
                           : json_is_null(json_object_get(o, "param")));
        json_t *c = json_object_get(o, "code");
        if (err_code_text((enum err_code)code))
            ck_assert_str_eq(json_string_value(c), err_code_text((enum err_code)code));
        else ck_assert(json_is_null(c));
        json_decref(j);
        buf_deinit(&b);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("json_out");
    TCase *t = tcase_create("out");
    tcase_add_test(t, strings);
    tcase_add_test(t, any_bytes);
    tcase_add_test(t, logprobs);
    tcase_add_test(t, errors);
    suite_add_tcase(s, t);
    return test_run(s);
}
