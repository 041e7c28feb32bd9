/* The results file as journal: what is skipped, what is cut off, what is refused untouched. */
#include "cli/batch_journal.h"
#include "tests/unit/cli/cli_file.h"
#include "tests/common/test_run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESULT(id, status)                                                                         \
    "{\"id\":\"r\",\"custom_id\":\"" id "\",\"response\":{\"status_code\":" status ",\"body\":{}}}"

static struct batch_journal j;
static struct id_table ids;
static struct err e;

static void setup(void) {
    struct id_entry *at;
    static const char *const names[] = {"a", "b", "c", "d"};
    cli_setup();
    ck_assert_int_eq(id_table_init(&ids), 0);
    for (uint64_t i = 0; i < 4; i++)
        ck_assert_int_eq(id_table_add(&ids, names[i], 1, i + 1, &at), 0);
}

static void teardown(void) {
    id_table_deinit(&ids);
    cli_teardown();
}

static int open_out(void) {
    return batch_journal_open(&j, cli_path("out"), -1, &ids, &e);
}

static void expect_file(const char *text) {
    size_t n;
    char *have = test_read_file(cli_path("out"), &n);
    ck_assert_ptr_nonnull(have);
    ck_assert_str_eq(have, text);
    free(have);
}

static enum id_state state(const char *id) {
    return id_table_find(&ids, id, 1)->state;
}

START_TEST(a_new_file_takes_whole_lines) {
    ck_assert_int_eq(open_out(), 0);
    ck_assert_int_eq(batch_journal_due(&j, 0), -1);
    ck_assert_int_eq(batch_journal_append(&j, "x\n", 2, 5000, &e), 0);
    ck_assert_int_eq(batch_journal_append(&j, "y\n", 2, 5600, &e), 0);
    ck_assert_int_eq(batch_journal_due(&j, 5600), 400);
    ck_assert_int_eq(batch_journal_due(&j, 6000), 0);
    ck_assert_int_eq(batch_journal_sync(&j, &e), 0);
    ck_assert_int_eq(batch_journal_due(&j, 9000), -1);
    ck_assert_int_eq(batch_journal_close(&j, &e), 0);
    expect_file("x\ny\n");
}
END_TEST

START_TEST(final_results_are_marked_and_the_last_line_counts) {
    cli_write_text("out", RESULT("a", "200") "\n" RESULT("b", "404") "\n" RESULT("c", "503") "\n"
                   RESULT("x", "200") "\n" RESULT("d", "500") "\n" RESULT("d", "200") "\n");
    ck_assert_int_eq(open_out(), 0);
    ck_assert_int_eq(state("a"), ID_DONE);
    ck_assert_int_eq(state("b"), ID_FAILED);
    ck_assert_int_eq(state("c"), ID_OPEN);
    ck_assert_int_eq(state("d"), ID_DONE);
    ck_assert_uint_eq(j.done, 2);
    ck_assert_uint_eq(j.failed, 1);
    ck_assert_uint_eq(j.foreign, 1);
    ck_assert_uint_eq(j.torn_bytes, 0);
    batch_journal_close(&j, &e);
}
END_TEST

/* A crash may end the file after any byte of its last line. */
START_TEST(a_line_torn_at_any_byte_is_cut_off) {
    static const char whole[] = RESULT("a", "200") "\n";
    static const char last[] = RESULT("b", "200");
    char text[sizeof(whole) + sizeof(last)];
    for (size_t n = 1; n < sizeof(last) - 1; n++) {
        snprintf(text, sizeof(text), "%s%.*s", whole, (int)n, last);
        cli_write_text("out", text);
        id_table_find(&ids, "b", 1)->state = ID_OPEN;
        ck_assert_msg(open_out() == 0, "%zu: %s", n, e.msg);
        ck_assert_uint_eq(j.torn_bytes, n);
        ck_assert_int_eq(state("b"), ID_OPEN);
        batch_journal_close(&j, &e);
        expect_file(whole);
        /* The first line of a file may be the torn one. */
        cli_write("out", last, n);
        ck_assert_msg(open_out() == 0, "first line, %zu: %s", n, e.msg);
        batch_journal_close(&j, &e);
        expect_file("");
    }
}
END_TEST

START_TEST(only_the_line_end_was_lost) {
    cli_write_text("out", RESULT("a", "200") "\n" RESULT("b", "200"));
    ck_assert_int_eq(open_out(), 0);
    ck_assert_int_eq(state("b"), ID_DONE);
    ck_assert_uint_eq(j.torn_bytes, 0);
    batch_journal_close(&j, &e);
    expect_file(RESULT("a", "200") "\n" RESULT("b", "200") "\n");
}
END_TEST

START_TEST(zeros_of_a_power_loss_are_cut_off) {
    static const char text[] = RESULT("a", "200") "\n\0\0\0\0";
    cli_write("out", text, sizeof(text) - 1);
    ck_assert_int_eq(open_out(), 0);
    ck_assert_uint_eq(j.torn_bytes, 4);
    batch_journal_close(&j, &e);
    expect_file(RESULT("a", "200") "\n");
}
END_TEST

START_TEST(other_files_are_refused_untouched) {
    static const char *const others[] = {
        "my notes", "my notes\n", "{\"custom_id\":\"a\"}\n", RESULT("a", "200") "\nnotes\n" RESULT("b", "200") "\n",
        "{\"custom_id\":\"a\",\"method\":\"POST\"}\n{\"custom_id\":\"b\"}\n"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        cli_write_text("out", others[i]);
        ck_assert_msg(open_out() != 0, "file %zu was taken", i);
        expect_file(others[i]);
    }
    ck_assert_int_ne(batch_journal_open(&j, cli_dir, -1, &ids, &e), 0);
    ck_assert_int_ne(batch_journal_open(&j, cli_path("no/such/out"), -1, &ids, &e), 0);
}
END_TEST

START_TEST(two_runs_on_one_file_and_the_input_itself_are_refused) {
    struct batch_journal second;
    ck_assert_int_eq(open_out(), 0);
    ck_assert_int_ne(batch_journal_open(&second, cli_path("out"), -1, &ids, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "in use"));
    batch_journal_close(&j, &e);
    ck_assert_int_eq(open_out(), 0);
    batch_journal_close(&j, &e);
    int fd = open(cli_path("out"), O_RDONLY);
    ck_assert_int_ne(batch_journal_open(&j, cli_path("out"), fd, &ids, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "same file"));
    close(fd);
}
END_TEST

START_TEST(a_full_disk_leaves_whole_lines) {
    ck_assert_int_eq(open_out(), 0);
    ck_assert_int_eq(batch_journal_append(&j, "x\n", 2, 1, &e), 0);
    int fd = j.fd, full = open("/dev/full", O_WRONLY);
    if (full < 0) {
        batch_journal_close(&j, &e);
        return;
    }
    j.fd = full;
    ck_assert_int_ne(batch_journal_append(&j, "y\n", 2, 2, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "No space"));
    close(full);
    j.fd = fd;
    ck_assert_uint_eq(j.size, 2);
    batch_journal_close(&j, &e);
    expect_file("x\n");
}
END_TEST

int main(void) {
    Suite *s = suite_create("batch_journal");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_new_file_takes_whole_lines);
    tcase_add_test(t, final_results_are_marked_and_the_last_line_counts);
    tcase_add_test(t, a_line_torn_at_any_byte_is_cut_off);
    tcase_add_test(t, only_the_line_end_was_lost);
    tcase_add_test(t, zeros_of_a_power_loss_are_cut_off);
    tcase_add_test(t, other_files_are_refused_untouched);
    tcase_add_test(t, two_runs_on_one_file_and_the_input_itself_are_refused);
    tcase_add_test(t, a_full_disk_leaves_whole_lines);
    suite_add_tcase(s, t);
    return test_run(s);
}
