/* The flags of a command: both forms, bounds, words, what is refused and how it is said. */
#include "cli/flags.h"
#include "tests/common/test_run.h"

#include <stdint.h>
#include <string.h>

static const char *text;
static int64_t count;
static double real;
static bool on;

static const struct flag table[] = {
    {"text", FLAG_TEXT, &text, 0, 0, "TEXT", "a text"},
    {"count", FLAG_INT, &count, 1, 100, "N", "a count"},
    {"real", FLAG_REAL, &real, 0, 2, "X", "a number"},
    {"on", FLAG_BOOL, &on, 0, 0, "", "a switch"},
};

static const char *words[2];
static struct flags f;
static struct err e;

static int parse(int argc, const char *const *argv) {
    char *copy[16] = {(char *)(uintptr_t)"cmd"};
    for (int i = 0; i < argc; i++)
        copy[i + 1] = (char *)(uintptr_t)argv[i];
    text = NULL;
    count = -1;
    real = -1;
    on = false;
    memset(&e, 0, sizeof(e));
    f = (struct flags){table, 4, words, 0, 2, false};
    return flags_parse(&f, argc + 1, copy, &e);
}
#define PARSE(...) parse((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), \
                         (const char *[]){__VA_ARGS__})

START_TEST(both_forms_and_words_between) {
    ck_assert_int_eq(PARSE("a", "--text=x=y", "--count", "7", "--on", "b", "--real", "1.5"), 0);
    ck_assert_str_eq(text, "x=y");
    ck_assert_int_eq(count, 7);
    ck_assert(on);
    ck_assert_double_eq(real, 1.5);
    ck_assert_uint_eq(f.n_words, 2);
    ck_assert_str_eq(words[0], "a");
    ck_assert_str_eq(words[1], "b");
}
END_TEST

START_TEST(a_dash_and_what_follows_two_dashes_are_words) {
    ck_assert_int_eq(PARSE("-", "--", "--text"), 0);
    ck_assert_uint_eq(f.n_words, 2);
    ck_assert_str_eq(words[0], "-");
    ck_assert_str_eq(words[1], "--text");
    ck_assert_ptr_null(text);
}
END_TEST

START_TEST(the_last_of_a_repeated_flag_counts_and_bounds_are_inclusive) {
    ck_assert_int_eq(PARSE("--count", "1", "--count=100", "--real=0"), 0);
    ck_assert_int_eq(count, 100);
    ck_assert_double_eq(real, 0);
}
END_TEST

START_TEST(values_out_of_bounds_are_refused_by_name) {
    static const char *const bad[] = {"--count=0",  "--count=101", "--count=",   "--count=7x",
                                      "--count=1e1", "--count=99999999999999999999", "--real=2.1",
                                      "--real=nan", "--real=inf", "--real=-1", "--on=1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(PARSE(bad[i]) != 0, "%s was taken", bad[i]);
        char name[16] = "";
        memcpy(name, bad[i], strcspn(bad[i], "="));
        ck_assert_msg(strstr(e.msg, name) != NULL, "%s: %s", bad[i], e.msg);
    }
}
END_TEST

START_TEST(missing_values_unknown_flags_and_too_many_words) {
    ck_assert_int_ne(PARSE("--text"), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "needs a value"));
    ck_assert_int_ne(PARSE("--text", "--on"), 0);
    ck_assert_int_ne(PARSE("--cuont", "3"), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "did you mean --count"));
    ck_assert_int_ne(PARSE("--zebra"), 0);
    ck_assert_int_ne(PARSE("-t", "x"), 0);
    ck_assert_int_ne(PARSE("a", "b", "c"), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "'c'"));
}
END_TEST

START_TEST(help_wins_over_any_mistake_but_not_behind_two_dashes) {
    ck_assert_int_eq(PARSE("--zebra", "--help"), 0);
    ck_assert(f.help);
    ck_assert_int_eq(PARSE("--", "--help"), 0);
    ck_assert(!f.help);
}
END_TEST

int main(void) {
    Suite *s = suite_create("flags");
    TCase *t = tcase_create("all");
    tcase_add_test(t, both_forms_and_words_between);
    tcase_add_test(t, a_dash_and_what_follows_two_dashes_are_words);
    tcase_add_test(t, the_last_of_a_repeated_flag_counts_and_bounds_are_inclusive);
    tcase_add_test(t, values_out_of_bounds_are_refused_by_name);
    tcase_add_test(t, missing_values_unknown_flags_and_too_many_words);
    tcase_add_test(t, help_wins_over_any_mistake_but_not_behind_two_dashes);
    suite_add_tcase(s, t);
    return test_run(s);
}
