/* The input file: checked whole, true line numbers, nothing refused that is fine, and a file that changes. */
#include "base/buf.h"
#include "cli/batch_input.h"
#include "tests/unit/cli/cli_file.h"
#include "tests/common/test_run.h"

#define LINE(id)                                                                                   \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{}}"

static struct batch_input in;
static struct err e;
static char report[8192];

/* Opens and checks; what is said about broken lines is in `report`. */
static int check(const char *path) {
    FILE *f = fmemopen(report, sizeof(report), "w");
    memset(&e, 0, sizeof(e));
    memset(report, 0, sizeof(report));
    int rc = batch_input_open(&in, path, &e);
    if (rc == 0)
        rc = batch_input_check(&in, f, &e);
    fclose(f);
    return rc;
}

static int check_text(const char *text) {
    return check(cli_write_text("in.jsonl", text));
}

START_TEST(good_files_of_every_shape) {
    static const struct { const char *text; uint64_t n; } good[] = {
        {LINE("a") "\n", 1},
        {LINE("a"), 1},
        {LINE("a") "\r\n" LINE("b") "\r\n", 2},
        {"\n\n" LINE("a") "\n  \n\t\r\n" LINE("b") "\n\n", 2},
        {"\xef\xbb\xbf" LINE("a") "\n", 1},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(check_text(good[i].text) == 0, "file %zu: %s %s", i, e.msg, report);
        ck_assert_uint_eq(in.n_lines, good[i].n);
        batch_input_close(&in);
    }
}
END_TEST

START_TEST(broken_lines_are_told_with_true_numbers) {
    ck_assert_int_ne(check_text("\n" LINE("a") "\r\n{\n\n" LINE("b") "\n" LINE("a") "\nx\n"), 0);
    ck_assert_uint_eq(in.n_broken, 3);
    ck_assert_ptr_nonnull(strstr(report, "in.jsonl:3: "));
    ck_assert_ptr_nonnull(strstr(report, "in.jsonl:6: "));
    ck_assert_ptr_nonnull(strstr(report, "in.jsonl:7: "));
    ck_assert_ptr_nonnull(strstr(report, "that of line 2"));
    ck_assert_ptr_nonnull(strstr(e.msg, "3 broken lines"));
    batch_input_close(&in);
}
END_TEST

START_TEST(many_broken_lines_are_counted_not_printed) {
    char text[2 * 1000 + 1] = "";
    for (int i = 0; i < 1000; i++)
        memcpy(text + 2 * i, "x\n", 3);
    ck_assert_int_ne(check_text(text), 0);
    ck_assert_uint_eq(in.n_broken, 1000);
    ck_assert_ptr_nonnull(strstr(report, "and 980 more"));
    batch_input_close(&in);
}
END_TEST

START_TEST(files_without_a_request_and_no_files) {
    ck_assert_int_ne(check_text(""), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "no request"));
    batch_input_close(&in);
    ck_assert_int_ne(check_text("\n\n"), 0);
    batch_input_close(&in);
    ck_assert_int_ne(check(cli_path("absent")), 0);
    ck_assert_int_ne(check(cli_dir), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "regular"));
}
END_TEST

START_TEST(a_line_over_the_limit_is_broken_and_the_next_is_not) {
    struct buf b = {0};
    buf_adds(&b, "{\"custom_id\":\"");
    for (size_t i = 0; i < BATCH_LINE_BYTES_MAX; i++)
        buf_addc(&b, 'x');
    buf_adds(&b, "\"}\n" LINE("b") "\nx\n");
    ck_assert_int_ne(check(cli_write("in.jsonl", b.p, b.len)), 0);
    ck_assert_uint_eq(in.n_broken, 2);
    ck_assert_ptr_nonnull(strstr(report, ":1: longer than 10 MB"));
    ck_assert_ptr_nonnull(strstr(report, ":3: "));
    batch_input_close(&in);
    buf_deinit(&b);
}
END_TEST

START_TEST(next_gives_what_is_open_in_order) {
    struct line at;
    struct batch_line l;
    ck_assert_int_eq(check_text(LINE("a") "\n\n" LINE("b") "\r\n" LINE("c")), 0);
    id_table_find(&in.ids, "a", 1)->state = ID_DONE;
    ck_assert_int_eq(batch_input_next(&in, &at, &e), 1);
    ck_assert_uint_eq(at.number, 3);
    ck_assert_int_eq(batch_input_line(&in, at.offset, at.n, &l, &e), 0);
    ck_assert_str_eq(l.custom_id, "b");
    batch_line_deinit(&l);
    ck_assert_int_eq(batch_input_next(&in, &at, &e), 1);
    ck_assert_uint_eq(at.number, 4);
    ck_assert_int_eq(batch_input_next(&in, &at, &e), 0);
    batch_input_close(&in);
}
END_TEST

START_TEST(a_file_that_changed_is_an_error) {
    struct line at;
    struct batch_line l;
    ck_assert_int_eq(check_text(LINE("a") "\n" LINE("b") "\n"), 0);
    cli_write_text("in.jsonl", LINE("z") "\n" LINE("b") "\n");
    ck_assert_int_eq(batch_input_next(&in, &at, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "changed"));
    cli_write_text("in.jsonl", "");
    ck_assert_int_ne(batch_input_line(&in, 0, 10, &l, &e), 0);
    batch_input_close(&in);
}
END_TEST

int main(void) {
    Suite *s = suite_create("batch_input");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, cli_setup, cli_teardown);
    tcase_add_test(t, good_files_of_every_shape);
    tcase_add_test(t, broken_lines_are_told_with_true_numbers);
    tcase_add_test(t, many_broken_lines_are_counted_not_printed);
    tcase_add_test(t, files_without_a_request_and_no_files);
    tcase_add_test(t, a_line_over_the_limit_is_broken_and_the_next_is_not);
    tcase_add_test(t, next_gives_what_is_open_in_order);
    tcase_add_test(t, a_file_that_changed_is_an_error);
    suite_add_tcase(s, t);
    return test_run(s);
}
