/* Log lines: levels, both formats, and that no message can forge a line or break the JSON. */
#include "base/log.h"
#include "tests/common/test_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char out[16384];

/* Runs log_line with stderr sent to a file and reads back what it wrote. */
static const char *logged(enum log_level level, const char *text) {
    FILE *f = tmpfile();
    ck_assert_ptr_nonnull(f);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    log_line(level, "%s", text);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    out[fread(out, 1, sizeof(out) - 1, f)] = '\0';
    fclose(f);
    return out;
}

START_TEST(the_line_has_its_parts) {
    log_open("gateway", LOG_INFO, false);
    const char *s = logged(LOG_WARN, "two words");
    int y, mo, d, h, mi, sec, ms, end = 0;
    int n = sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ warn gateway: two words\n%n", &y, &mo, &d, &h,
                   &mi, &sec, &ms, &end);
    ck_assert_int_eq(n, 7);
    ck_assert_uint_eq((size_t)end, strlen(s));
    ck_assert_int_ge(y, 2020);
}
END_TEST

START_TEST(levels_filter) {
    log_open("w", LOG_WARN, false);
    ck_assert_str_eq(logged(LOG_INFO, "x"), "");
    ck_assert_str_ne(logged(LOG_WARN, "x"), "");
    ck_assert_str_ne(logged(LOG_ERROR, "x"), "");
    enum log_level l;
    ck_assert_int_eq(log_level_parse("debug", &l), 0);
    ck_assert_int_eq(l, LOG_DEBUG);
    ck_assert_int_eq(log_level_parse("Debug", &l), -1);
    ck_assert_int_eq(log_level_parse("", &l), -1);
}
END_TEST

static const char *body(const char *s) {
    const char *p = strstr(s, "w: ");
    return p != NULL ? p + 3 : "";
}

START_TEST(control_characters_and_broken_utf8_are_escaped) {
    log_open("w", LOG_INFO, false);
    ck_assert_str_eq(body(logged(LOG_INFO, "a\nb\r\x1b[2J\x7f\t.")),
                     "a\\x0ab\\x0d\\x1b[2J\\x7f\\x09.\n");
    ck_assert_str_eq(body(logged(LOG_INFO, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80")),
                     "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\n");
    ck_assert_str_eq(body(logged(LOG_INFO, "\xC2\x9B"
                                           "1m")),
                     "\\xc2\\x9b1m\n");
    ck_assert_str_eq(body(logged(LOG_INFO, "\xE2\x80\xA8.")), "\\xe2\\x80\\xa8.\n");
    ck_assert_str_eq(body(logged(LOG_INFO, "\xC0\xAF \xED\xA0\x80 \xE2\x82")),
                     "\\xc0\\xaf \\xed\\xa0\\x80 \\xe2\\x82\n");
}
END_TEST

START_TEST(json_lines_stay_json) {
    log_open("w", LOG_INFO, true);
    const char *s = logged(LOG_ERROR, "say \"hi\" \\ \n \xFF");
    ck_assert_int_eq(strncmp(s, "{\"ts\":\"", 7), 0);
    ck_assert_ptr_nonnull(strstr(s,
                                 "\"level\":\"error\",\"prog\":\"w\",\"msg\":\"say \\\"hi\\\" \\\\ "
                                 "\\\\x0a \\\\xff\"}\n"));
    ck_assert_ptr_eq(strchr(s, '\n'), s + strlen(s) - 1);
}
END_TEST

START_TEST(long_messages_are_cut_and_errno_is_kept) {
    static char text[20000];
    memset(text, 'm', sizeof(text) - 1);
    log_open("w", LOG_INFO, false);
    errno = EDOM;
    log_debug("below the level");
    ck_assert_int_eq(errno, EDOM);
    const char *s = logged(LOG_INFO, text);
    ck_assert_uint_lt(strlen(s), 2200);
    ck_assert_str_eq(s + strlen(s) - 5, "m...\n");
    memset(text, '\x01', sizeof(text) - 1);
    log_open("w", LOG_INFO, true);
    s = logged(LOG_INFO, text);
    ck_assert_str_eq(s + strlen(s) - 11, "\\\\x01...\"}\n");
}
END_TEST

int main(void) {
    Suite *s = suite_create("log");
    TCase *tc = tcase_create("log");
    tcase_add_test(tc, the_line_has_its_parts);
    tcase_add_test(tc, levels_filter);
    tcase_add_test(tc, control_characters_and_broken_utf8_are_escaped);
    tcase_add_test(tc, json_lines_stay_json);
    tcase_add_test(tc, long_messages_are_cut_and_errno_is_kept);
    suite_add_tcase(s, tc);
    return test_run(s);
}
