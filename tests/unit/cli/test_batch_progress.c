/* The line of progress: its text, when it is due; and the pauses between tries. */
#include "cli/batch_progress.h"
#include "cli/batch_run.h"
#include "tests/common/test_run.h"

#include <string.h>

static void expect_text(const struct batch_progress *p, double now_ms, const char *text) {
    struct buf b = {0};
    batch_progress_text(p, now_ms, &b);
    ck_assert_str_eq(buf_str(&b), text);
    buf_deinit(&b);
}

START_TEST(rate_and_time_left_count_this_run_only) {
    struct batch_progress p = {.total = 110, .before = 10, .done = 10};
    batch_progress_start(&p, NULL, false, 1000);
    expect_text(&p, 1000, "10/110 done, 0 failed, 0.0 tokens/s");
    p.done = 35;
    p.failed = 2;
    p.tokens = 500;
    expect_text(&p, 11000, "35/110 done, 2 failed, 50.0 tokens/s, 0:30 left");
    p.done = 11;
    expect_text(&p, 1000 + 100e3, "11/110 done, 2 failed, 5.0 tokens/s, 2:45:00 left");
    p.done = 110;
    expect_text(&p, 11000, "110/110 done, 2 failed, 50.0 tokens/s");
}
END_TEST

START_TEST(a_terminal_is_drawn_often_a_log_seldom_quiet_never) {
    char text[256] = "";
    FILE *f = fmemopen(text, sizeof(text), "w");
    struct batch_progress p = {.total = 3};
    batch_progress_start(&p, NULL, true, 1000);
    ck_assert_int_eq(batch_progress_due(&p, 99999), -1);
    batch_progress_start(&p, f, false, 1000);
    ck_assert_int_gt(batch_progress_due(&p, 1000), 4000);
    batch_progress_show(&p, 5900);
    ck_assert_int_eq(ftell(f), 0);
    ck_assert_int_eq(batch_progress_due(&p, 6000), 0);
    batch_progress_show(&p, 6000);
    ck_assert_ptr_nonnull(strstr(text, "0/3 done, 0 failed"));
    ck_assert_ptr_nonnull(strchr(text, '\n'));
    batch_progress_start(&p, f, true, 1000);
    ck_assert_int_eq(batch_progress_due(&p, 1000), 0);
    batch_progress_show(&p, 1000);
    int due = batch_progress_due(&p, 1000);
    ck_assert(due > 100 && due <= 201);
    fclose(f);
}
END_TEST

START_TEST(pauses_double_and_obey_the_server_within_bounds) {
    ck_assert_double_eq(batch_pause_ms(1, 0), 100);
    ck_assert_double_eq(batch_pause_ms(2, 0), 200);
    ck_assert_double_eq(batch_pause_ms(5, 0), 1600);
    ck_assert_double_eq(batch_pause_ms(1000, 0), 10000);
    ck_assert_double_eq(batch_pause_ms(1, 700), 700);
    ck_assert_double_eq(batch_pause_ms(5, 700), 1600);
    ck_assert_double_eq(batch_pause_ms(1, 3600000), 10000);
}
END_TEST

int main(void) {
    Suite *s = suite_create("batch_progress");
    TCase *t = tcase_create("all");
    tcase_add_test(t, rate_and_time_left_count_this_run_only);
    tcase_add_test(t, a_terminal_is_drawn_often_a_log_seldom_quiet_never);
    tcase_add_test(t, pauses_double_and_obey_the_server_within_bounds);
    suite_add_tcase(s, t);
    return test_run(s);
}
