/* The words of a finish: wire text goes there and back, and only real ends have a reason for
 * clients. */
#include "base/submission.h"
#include "tests/common/test_run.h"

#include <string.h>

START_TEST(finish_words_go_there_and_back) {
    for (int i = 0; i < FINISH_COUNT; i++)
        ck_assert_int_eq(finish_parse(finish_text((enum finish)i)), i);
    ck_assert_int_eq(finish_parse("nonsense"), -1);
    ck_assert_int_eq(finish_parse(""), -1);
    ck_assert_str_eq(finish_text((enum finish)99), "?");
}
END_TEST

START_TEST(clients_see_stop_or_length_or_nothing) {
    ck_assert_str_eq(finish_openai(FINISH_EOS), "stop");
    ck_assert_str_eq(finish_openai(FINISH_STOP_ID), "stop");
    ck_assert_str_eq(finish_openai(FINISH_STOP_STRING), "stop");
    ck_assert_str_eq(finish_openai(FINISH_LENGTH), "length");
    static const enum finish silent[] = {FINISH_NONE,      FINISH_CANCELLED, FINISH_HANDED_BACK,
                                         FINISH_TOO_LARGE, FINISH_REFUSED,   FINISH_FAILED,
                                         FINISH_UNKNOWN};
    for (size_t i = 0; i < sizeof(silent) / sizeof(*silent); i++)
        ck_assert_ptr_null(finish_openai(silent[i]));
    ck_assert_ptr_null(finish_openai((enum finish)99));
}
END_TEST

START_TEST(ids_differ_in_either_half) {
    struct sub_id a = {1, 2};
    ck_assert(sub_id_equal(a, (struct sub_id){1, 2}));
    ck_assert(!sub_id_equal(a, (struct sub_id){1, 3}));
    ck_assert(!sub_id_equal(a, (struct sub_id){2, 2}));
}
END_TEST

int main(void) {
    Suite *s = suite_create("submission");
    TCase *tc = tcase_create("submission");
    tcase_add_test(tc, finish_words_go_there_and_back);
    tcase_add_test(tc, clients_see_stop_or_length_or_nothing);
    tcase_add_test(tc, ids_differ_in_either_half);
    suite_add_tcase(s, tc);
    return test_run(s);
}
