/* The error list and the filling of struct err. */
#include "base/err.h"
#include "tests/common/test_run.h"

#include <string.h>

START_TEST(set_fills_and_returns_minus_one) {
    struct err e;
    ck_assert_int_eq(err_set(&e, ERR_TIMEOUT, "after %d s", 5), -1);
    ck_assert_int_eq(e.code, ERR_TIMEOUT);
    ck_assert_str_eq(e.msg, "after 5 s");
    ck_assert_str_eq(e.param, "");
    ck_assert_int_eq(err_set_param(&e, ERR_BAD_VALUE, "top_p", "bad"), -1);
    ck_assert_str_eq(e.param, "top_p");
    ck_assert_int_eq(err_set(NULL, ERR_INVALID, "nobody listens"), -1);
    ck_assert_int_eq(err_set_param(NULL, ERR_INVALID, "x", "nobody listens"), -1);
    err_clear(&e);
    ck_assert_int_eq(e.code, ERR_OK);
    ck_assert_str_eq(e.msg, "");
}
END_TEST

START_TEST(a_message_may_wrap_itself) {
    struct err e;
    err_set_param(&e, ERR_IO, "path", "no such file");
    err_set_param(&e, ERR_BAD_FILE, e.param, "model.gguf: %s", e.msg);
    ck_assert_str_eq(e.msg, "model.gguf: no such file");
    ck_assert_str_eq(e.param, "path");
}
END_TEST

/* Cuts a message of n ASCII bytes followed by characters of each UTF-8 length at the limit. */
START_TEST(a_cut_never_tears_a_character) {
    static const char *const chars[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t c = 0; c < 3; c++) {
        size_t len = strlen(chars[c]);
        for (size_t ascii = ERR_MSG_MAX - 8; ascii < ERR_MSG_MAX; ascii++) {
            char text[ERR_MSG_MAX + 32];
            memset(text, 'a', ascii);
            text[ascii] = '\0';
            for (int i = 0; i < 4; i++)
                strcat(text, chars[c]);
            struct err e;
            err_set(&e, ERR_INVALID, "%s", text);
            size_t whole = ascii + (ERR_MSG_MAX - 1 - ascii) / len * len;
            if (whole > strlen(text))
                whole = strlen(text);
            ck_assert_uint_eq(strlen(e.msg), whole);
            ck_assert_mem_eq(e.msg, text, whole);
        }
    }
}
END_TEST

START_TEST(the_list_is_consistent) {
    for (int i = 0; i < ERR_COUNT; i++) {
        enum err_code c = (enum err_code)i;
        ck_assert_int_eq(err_by_name(err_name(c)), c);
        ck_assert(err_http_status(c) >= 200 && err_http_status(c) < 600);
        /* The same request unchanged cannot succeed later after a plain client error. */
        if (err_http_status(c) == 400 || err_http_status(c) == 413)
            ck_assert(!err_retryable(c));
    }
    ck_assert_int_eq(err_by_name("NOT_A_CODE"), ERR_INTERNAL);
    ck_assert_int_eq(err_by_name(NULL), ERR_INTERNAL);
    ck_assert_str_eq(err_code_text(ERR_CONTEXT_LENGTH), "context_length_exceeded");
    ck_assert_ptr_null(err_code_text(ERR_INVALID));
    ck_assert_str_eq(err_type(ERR_QUEUE_FULL), "server_error");
    ck_assert_int_eq(err_http_status((enum err_code)9999), 500);
    ck_assert_str_eq(err_name((enum err_code) - 3), "INTERNAL");
}
END_TEST

int main(void) {
    Suite *s = suite_create("err");
    TCase *tc = tcase_create("err");
    tcase_add_test(tc, set_fills_and_returns_minus_one);
    tcase_add_test(tc, a_message_may_wrap_itself);
    tcase_add_test(tc, a_cut_never_tears_a_character);
    tcase_add_test(tc, the_list_is_consistent);
    suite_add_tcase(s, tc);
    return test_run(s);
}
