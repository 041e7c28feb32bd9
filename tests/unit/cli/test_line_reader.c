/* Lines of a file: numbers, offsets, ends, the mark, long ones, across buffer borders. */
#include "base/buf.h"
#include "cli/line_reader.h"
#include "tests/unit/cli/cli_file.h"
#include "tests/common/test_run.h"

#include <fcntl.h>
#include <unistd.h>

static struct line_reader r;
static struct line l;
static struct err e;

static void open_text(const char *text, size_t n, size_t max) {
    int fd = open(cli_write("lines", text, n), O_RDONLY);
    ck_assert_int_ge(fd, 0);
    line_reader_init(&r, fd, max);
}

static void close_text(void) {
    close(r.fd);
    line_reader_deinit(&r);
}

static void expect(const char *text, uint64_t number, uint64_t offset, bool ended) {
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 1);
    ck_assert_uint_eq(l.n, strlen(text));
    ck_assert_int_eq(memcmp(l.p, text, l.n), 0);
    ck_assert_uint_eq(l.number, number);
    ck_assert_uint_eq(l.offset, offset);
    ck_assert_int_eq(l.ended, ended);
    ck_assert(!l.too_long);
}

START_TEST(line_ends_blank_lines_and_a_missing_last_end) {
    open_text("a\r\n\nbc\n\r\nd", 10, 100);
    expect("a", 1, 0, true);
    expect("", 2, 3, true);
    expect("bc", 3, 4, true);
    expect("", 4, 7, true);
    expect("d", 5, 9, false);
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 0);
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 0);
    close_text();
}
END_TEST

START_TEST(an_empty_file_and_a_lone_mark_have_no_line) {
    open_text("", 0, 100);
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 0);
    close_text();
    open_text("\xef\xbb\xbf", 3, 100);
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 0);
    close_text();
}
END_TEST

START_TEST(a_mark_is_skipped_at_the_start_only) {
    open_text("\xef\xbb\xbf" "a\n\xef\xbb\xbf" "b\n", 10, 100);
    expect("a", 1, 3, true);
    expect("\xef\xbb\xbf" "b", 2, 5, true);
    close_text();
}
END_TEST

START_TEST(too_long_lines_are_told_and_passed_over) {
    open_text("12345\n123456\nab\n1234567890", 26, 5);
    expect("12345", 1, 0, true);
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 1);
    ck_assert(l.too_long && l.ended && l.number == 2 && l.n == 0);
    expect("ab", 3, 13, true);
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 1);
    ck_assert(l.too_long && !l.ended && l.number == 4);
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 0);
    close_text();
}
END_TEST

/* Lines longer and shorter than the parts in which the file is read; offsets must point at them. */
START_TEST(lines_across_the_borders_of_parts) {
    static const size_t lengths[] = {65534, 65535, 65536, 65537, 1, 0, 200000, 65536 * 2 - 1, 3};
    struct buf b = {0};
    size_t count = sizeof(lengths) / sizeof(lengths[0]);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < lengths[i]; k++)
            buf_addc(&b, (char)('a' + (i + k) % 26));
        buf_addc(&b, '\n');
    }
    open_text(b.p, b.len, 1 << 20);
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(line_reader_next(&r, &l, &e), 1);
        ck_assert_uint_eq(l.n, lengths[i]);
        ck_assert_uint_eq(l.offset, offset);
        ck_assert_int_eq(memcmp(l.p, b.p + offset, l.n), 0);
        offset += lengths[i] + 1;
    }
    ck_assert_int_eq(line_reader_next(&r, &l, &e), 0);
    /* The same with a limit below most of them: numbers and offsets stay true. */
    close(r.fd);
    line_reader_deinit(&r);
    open_text(b.p, b.len, 10);
    offset = 0;
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(line_reader_next(&r, &l, &e), 1);
        ck_assert_uint_eq(l.number, i + 1);
        ck_assert_uint_eq(l.offset, offset);
        ck_assert_int_eq(l.too_long, lengths[i] > 10);
        offset += lengths[i] + 1;
    }
    close_text();
    buf_deinit(&b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("line_reader");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, cli_setup, cli_teardown);
    tcase_add_test(t, line_ends_blank_lines_and_a_missing_last_end);
    tcase_add_test(t, an_empty_file_and_a_lone_mark_have_no_line);
    tcase_add_test(t, a_mark_is_skipped_at_the_start_only);
    tcase_add_test(t, too_long_lines_are_told_and_passed_over);
    tcase_add_test(t, lines_across_the_borders_of_parts);
    suite_add_tcase(s, t);
    return test_run(s);
}
