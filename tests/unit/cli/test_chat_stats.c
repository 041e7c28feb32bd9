/* Times of a stream, and text that a terminal may be given. */
#include "cli/chat_stats.h"
#include "cli/terminal.h"
#include "tests/common/test_run.h"

#include <string.h>

START_TEST(gaps_are_per_token) {
    struct chat_stats s;
    chat_stats_start(&s, 1000);
    ck_assert_double_eq(chat_stats_ttft_ms(&s), 0);
    ck_assert_double_eq(chat_stats_gap_ms(&s, 0.5), 0);
    chat_stats_event(&s, 1050, 1);
    chat_stats_event(&s, 1060, 2);  /* 10 */
    chat_stats_event(&s, 1100, 4);  /* 2 tokens: 20 */
    chat_stats_event(&s, 1190, 7);  /* 3 tokens: 30 */
    chat_stats_event(&s, 1195, 0);  /* not said: 5 */
    chat_stats_end(&s, 1200);
    ck_assert_double_eq(chat_stats_ttft_ms(&s), 50);
    ck_assert_double_eq(chat_stats_gap_ms(&s, 0), 5);
    ck_assert_double_eq(chat_stats_gap_ms(&s, 1), 30);
    ck_assert_double_eq(chat_stats_gap_ms(&s, 0.5), 20);
    chat_stats_deinit(&s);
}
END_TEST

START_TEST(the_line_names_its_units) {
    struct chat_stats s;
    char text[256] = "";
    FILE *f = fmemopen(text, sizeof(text), "w");
    chat_stats_start(&s, 1000);
    chat_stats_event(&s, 1050, 1);
    s.tokens = 1;
    s.prompt_tokens = 9;
    chat_stats_end(&s, 1100);
    chat_stats_print(&s, f);
    fclose(f);
    ck_assert_str_eq(text, "time to first token 50.0 ms, 1 tokens (prompt 9), ms per token p50 0.0 "
                           "max 0.0, total 100.0 ms\n");
    chat_stats_deinit(&s);
}
END_TEST

START_TEST(control_characters_do_not_reach_a_terminal) {
    struct buf b = {0};
    static const char text[] = "a\tb\n\x1b[31mred\r\x07\x7f \xc2\x9b" "31m \xc3\xa4 \xe2\x82\xac \0";
    terminal_clean(&b, text, sizeof(text) - 1);
    ck_assert_str_eq(buf_str(&b), "a\tb\n?[31mred??? ?31m \xc3\xa4 \xe2\x82\xac ?");
    buf_deinit(&b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("chat_stats");
    TCase *t = tcase_create("all");
    tcase_add_test(t, gaps_are_per_token);
    tcase_add_test(t, the_line_names_its_units);
    tcase_add_test(t, control_characters_do_not_reach_a_terminal);
    suite_add_tcase(s, t);
    return test_run(s);
}
