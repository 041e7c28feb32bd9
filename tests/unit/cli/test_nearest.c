/* Which known word a mistyped one was meant to be. */
#include "cli/nearest.h"
#include "tests/common/test_run.h"

static const char *const words[] = {"up", "chat", "batch", "version", "help"};

static const char *near(const char *typed) {
    return nearest_word(typed, words, 5);
}

START_TEST(distances_count_edits_and_swaps) {
    ck_assert_uint_eq(nearest_distance("", ""), 0);
    ck_assert_uint_eq(nearest_distance("", "abc"), 3);
    ck_assert_uint_eq(nearest_distance("abc", ""), 3);
    ck_assert_uint_eq(nearest_distance("batch", "batch"), 0);
    ck_assert_uint_eq(nearest_distance("bacth", "batch"), 1);
    ck_assert_uint_eq(nearest_distance("bach", "batch"), 1);
    ck_assert_uint_eq(nearest_distance("batchh", "batch"), 1);
    ck_assert_uint_eq(nearest_distance("watch", "batch"), 1);
    ck_assert_uint_eq(nearest_distance("abcd", "dcba"), 3);
    ck_assert_uint_eq(nearest_distance("kitten", "sitting"), 3);
}
END_TEST

START_TEST(typing_mistakes_find_their_word) {
    ck_assert_str_eq(near("vesion"), "version");
    ck_assert_str_eq(near("chta"), "chat");
    ck_assert_str_eq(near("bacth"), "batch");
    ck_assert_str_eq(near("uo"), "up");
    ck_assert_str_eq(near("ver"), "version");
}
END_TEST

START_TEST(other_words_find_none) {
    ck_assert_ptr_null(near("bench"));
    ck_assert_ptr_null(near("doctor"));
    ck_assert_ptr_null(near(""));
    ck_assert_ptr_null(near("a-word-that-is-much-longer-than-any-word-known-here"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("nearest");
    TCase *t = tcase_create("all");
    tcase_add_test(t, distances_count_edits_and_swaps);
    tcase_add_test(t, typing_mistakes_find_their_word);
    tcase_add_test(t, other_words_find_none);
    suite_add_tcase(s, t);
    return test_run(s);
}
