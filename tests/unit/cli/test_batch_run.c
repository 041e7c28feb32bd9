/* The run against a stand-in server: what is tried again, how often, what is written and what is not. */
#include "cli/batch_run.h"
#include "cli/clock.h"
#include "tests/common/test_run.h"
#include "tests/unit/cli/cli_file.h"
#include "tests/unit/cli/rpc_stand_in.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct rpc_stand_in stand_in;
static struct batch_input in;
static struct batch_journal journal;
static struct server server;
static struct batch_run run;
static struct err e;

static void setup(void) {
    char text[64 * 160] = "";
    cli_setup();
    for (int i = 0; i < 20; i++)
        snprintf(text + strlen(text), 160,
                 "{\"custom_id\":\"id-%d\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                 "\"body\":{\"prompt\":\"p%d\"}}\n", i, i);
    cli_write_text("in", text);
}

static void teardown(void) {
    cli_teardown();
}

/* Runs the 20 lines. The progress and the journal are there to be looked at until close_all. */
static enum cli_exit run_lines(int (*answer)(const char *, int), double patience_s) {
    char endpoint[TEST_PATH_MAX + 80];
    memset(&stand_in, 0, sizeof(stand_in));
    memset(&run, 0, sizeof(run));
    stand_in.answer = answer;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", cli_path("s"));
    ck_assert_int_eq(rpc_stand_in_start(&stand_in, endpoint), 0);
    ck_assert_int_eq(batch_input_open(&in, cli_path("in"), &e), 0);
    ck_assert_int_eq(batch_input_check(&in, stderr, &e), 0);
    ck_assert_int_eq(batch_journal_open(&journal, cli_path("out"), in.fd, &in.ids, &e), 0);
    ck_assert_int_eq(server_init(&server, stand_in.endpoint, &e), 0);
    ck_assert_msg(server_open(&server, &e) == 0, "%s", e.msg);
    run.in = &in;
    run.journal = &journal;
    run.server = &server;
    run.cls = "batch";
    run.patience_s = patience_s;
    ck_assert_int_eq(batch_run_init(&run, 6), 0);
    run.progress.total = in.n_lines;
    run.progress.done = run.progress.before = journal.done + journal.failed;
    batch_progress_start(&run.progress, NULL, false, clock_ms());
    return batch_run_all(&run);
}

static void close_all(void) {
    server_deinit(&server);
    batch_run_deinit(&run);
    ck_assert_int_eq(batch_journal_close(&journal, &e), 0);
    batch_input_close(&in);
    rpc_stand_in_stop(&stand_in);
}

/* Whole result lines with this status. */
static int results(const char *status) {
    char needle[64];
    int n = 0;
    size_t bytes;
    char *text = test_read_file(cli_path("out"), &bytes);
    snprintf(needle, sizeof(needle), "\"status_code\":%s,", status);
    for (char *at = text; (at = strstr(at, needle)) != NULL; at++)
        n++;
    free(text);
    return n;
}

static int always_good(const char *text, int before) {
    (void)text;
    (void)before;
    return 200;
}

START_TEST(all_good) {
    ck_assert_int_eq(run_lines(always_good, 10), CLI_OK);
    ck_assert_uint_eq(run.progress.done, 20);
    ck_assert_uint_eq(run.progress.tokens, 60);
    ck_assert_int_eq(results("200"), 20);
    ck_assert_int_eq(atomic_load(&stand_in.requests), 20);
    close_all();
}
END_TEST

static int busy_twice(const char *text, int before) {
    return before < 2 && (strcmp(text, "p3") == 0 || strcmp(text, "p11") == 0)
               ? (before == 0 ? 503 : 429)
               : 200;
}

START_TEST(busy_answers_are_tried_again_and_never_written) {
    ck_assert_int_eq(run_lines(busy_twice, 10), CLI_OK);
    ck_assert_uint_eq(run.progress.retries, 4);
    ck_assert_int_eq(results("200"), 20);
    ck_assert_int_eq(results("503") + results("429"), 0);
    ck_assert_int_eq(atomic_load(&stand_in.requests), 24);
    close_all();
}
END_TEST

static int final_error(const char *text, int before) {
    (void)before;
    return strcmp(text, "p5") == 0 ? 400 : 200;
}

START_TEST(a_final_error_is_written_once) {
    ck_assert_int_eq(run_lines(final_error, 10), CLI_OK);
    ck_assert_uint_eq(run.progress.failed, 1);
    ck_assert_uint_eq(run.progress.done, 20);
    ck_assert_int_eq(results("400"), 1);
    close_all();
    /* The next run does not ask again. */
    ck_assert_int_eq(run_lines(always_good, 10), CLI_OK);
    ck_assert_int_eq(atomic_load(&stand_in.requests), 0);
    close_all();
}
END_TEST

static int always_broken(const char *text, int before) {
    (void)before;
    return strcmp(text, "p7") == 0 ? 500 : 200;
}

START_TEST(a_line_that_always_breaks_is_given_up_and_left_open) {
    ck_assert_int_eq(run_lines(always_broken, 10), CLI_OK);
    ck_assert_uint_eq(run.given_up, 1);
    ck_assert_uint_eq(run.progress.done, 19);
    ck_assert_int_eq(atomic_load(&stand_in.requests), 19 + BATCH_TRIES);
    ck_assert_int_eq(results("500"), 0);
    close_all();
    /* The next run asks for that one alone. */
    ck_assert_int_eq(run_lines(always_good, 10), CLI_OK);
    ck_assert_int_eq(atomic_load(&stand_in.requests), 1);
    ck_assert_int_eq(results("200"), 20);
    close_all();
}
END_TEST

static int busy_for_ever(const char *text, int before) {
    (void)before;
    return strcmp(text, "p7") == 0 ? 503 : 200;
}

START_TEST(patience_ends_for_a_server_that_is_always_busy) {
    ck_assert_int_eq(run_lines(busy_for_ever, 0.2), CLI_OK);
    ck_assert_uint_eq(run.given_up, 1);
    ck_assert_uint_eq(run.progress.done, 19);
    close_all();
}
END_TEST

static int hang_up_once(const char *text, int before) {
    return before == 0 && strcmp(text, "p4") == 0 ? STAND_IN_HANG_UP : 200;
}

START_TEST(a_lost_connection_costs_no_line_and_no_try) {
    ck_assert_int_eq(run_lines(hang_up_once, 30), CLI_OK);
    ck_assert_uint_eq(run.progress.done, 20);
    ck_assert_uint_eq(run.progress.retries, 0);
    ck_assert_int_eq(results("200"), 20);
    close_all();
}
END_TEST

/* The first six are never answered: Ctrl-C comes once they are all there. */
static int interrupt_at_six(const char *text, int before) {
    static int asked;
    (void)text;
    (void)before;
    if (++asked == 6)
        kill(getpid(), SIGINT);
    return STAND_IN_SILENCE;
}

START_TEST(an_interrupt_cancels_and_leaves_the_rest) {
    ck_assert_int_eq(run_lines(interrupt_at_six, 10), CLI_INTERRUPTED);
    ck_assert_int_eq(atomic_load(&stand_in.requests), 6);
    ck_assert_int_eq(atomic_load(&stand_in.cancels), 6);
    ck_assert_uint_eq(run.n_sent, 0);
    ck_assert_uint_eq(run.progress.done, 0);
    close_all();
    ck_assert_int_eq(run_lines(always_good, 10), CLI_OK);
    ck_assert_int_eq(results("200"), 20);
    close_all();
}
END_TEST

static int cut_the_input(const char *text, int before) {
    (void)text;
    (void)before;
    return truncate(cli_path("in"), 0) == 0 ? 200 : 500;
}

START_TEST(an_input_that_changed_stops_the_run) {
    ck_assert_int_eq(run_lines(cut_the_input, 10), CLI_FAILED);
    ck_assert_uint_eq(run.progress.done, 0);
    ck_assert_int_eq(results("200"), 0);
    close_all();
}
END_TEST

int main(void) {
    Suite *s = suite_create("batch_run");
    TCase *t = tcase_create("all");
    /* Blocked before any thread exists, so that a signal reaches the descriptor alone. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, all_good);
    tcase_add_test(t, busy_answers_are_tried_again_and_never_written);
    tcase_add_test(t, a_final_error_is_written_once);
    tcase_add_test(t, a_line_that_always_breaks_is_given_up_and_left_open);
    tcase_add_test(t, patience_ends_for_a_server_that_is_always_busy);
    tcase_add_test(t, a_lost_connection_costs_no_line_and_no_try);
    tcase_add_test(t, an_interrupt_cancels_and_leaves_the_rest);
    tcase_add_test(t, an_input_that_changed_stops_the_run);
    suite_add_tcase(s, t);
    return test_run(s);
}
