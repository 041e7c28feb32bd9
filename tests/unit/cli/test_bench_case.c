/* Cases of `bench engine`: lists, medians, bounds by hand, and what the peer's programs print. */
#include "cli/bench_peer.h"
#include "tests/common/test_run.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static struct bench_engine b;
static struct err e;

START_TEST(lists) {
    static const char *const bad[] = {"", "0", "1,", ",1", "4,1", "2,2", "1,x", "1 2", "-1", "257",
                                      "99999999999999999999", "1,2,3,4,5,6,7,8,9"};
    struct bench_list l;
    ck_assert_int_eq(bench_list_parse(&l, "seqs", "1,4,256", 1, 256, &e), 0);
    ck_assert(l.n == 3 && l.v[0] == 1 && l.v[2] == 256 && bench_list_last(&l) == 256);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(bench_list_parse(&l, "seqs", bad[i], 1, 256, &e) != 0, "'%s'", bad[i]);
        ck_assert_ptr_nonnull(strstr(e.msg, "--seqs"));
    }
}
END_TEST

START_TEST(medians) {
    struct bench_samples s = {.n = 0};
    ck_assert(isnan(bench_samples_median(&s)) && isnan(bench_samples_min(&s)));
    bench_samples_add(&s, 5);
    ck_assert_double_eq(bench_samples_median(&s), 5);
    bench_samples_add(&s, 1);
    ck_assert_double_eq(bench_samples_median(&s), 3);
    bench_samples_add(&s, 100);
    ck_assert_double_eq(bench_samples_median(&s), 5);
    ck_assert(bench_samples_min(&s) == 1 && bench_samples_max(&s) == 100);
    for (int i = 0; i < 2 * BENCH_SAMPLES_MAX; i++)
        bench_samples_add(&s, 1);
    ck_assert_int_eq(s.n, BENCH_SAMPLES_MAX);
}
END_TEST

/* 1 GB of weights at 10 GB/s is 10 steps a second; the same step's products at 1 Gmac/s decide when
 * they take longer; K and V come on top, at the rate past caches once they are more than weights. */
START_TEST(bounds) {
    struct bench_work w = {.weight_bytes = 1e9, .macs_token = 1e8, .macs_logits = 0,
                           .kv_bytes = 1e5};
    struct engine_rates r = {.read_gb_s = 5, .weights_gb_s = 10, .int8_gmac_s = 1000};
    struct bench_case one = {.kind = BENCH_DECODE, .tokens = 1, .seqs = 1, .context = 0};
    ck_assert_double_eq_tol(bench_bound(&one, &w, &r), 10, 1e-9);
    one.context = 1000; /* 0.1 GB more */
    ck_assert_double_eq_tol(bench_bound(&one, &w, &r), 1 / 0.11, 1e-9);
    one.context = 20000; /* 2 GB more */
    ck_assert_double_eq_tol(bench_bound(&one, &w, &r), 1 / 0.5, 1e-9);
    struct bench_case many = {.kind = BENCH_PREFILL, .tokens = 100, .seqs = 1, .context = 5000};
    r.int8_gmac_s = 1;
    ck_assert_double_eq_tol(bench_bound(&many, &w, &r), 10, 1e-9); /* 1e10 macs: 10 s */
}
END_TEST

static void add(enum bench_kind kind, uint32_t threads, uint32_t tokens, uint32_t context) {
    b.cases[b.n_cases++] = (struct bench_case){.kind = kind, .threads = threads, .tokens = tokens,
                                               .context = context, .peer_name = "",
                                               .seqs = kind == BENCH_DECODE ? tokens : 1};
}

static void setup(void) {
    memset(&b, 0, sizeof(b));
    b.prefill = 512;
    b.contexts = (struct bench_list){{128, 2048}, 2};
    add(BENCH_PREFILL, 2, 512, 512);
    add(BENCH_DECODE, 2, 1, 128);
    add(BENCH_DECODE, 2, 16, 128);
    add(BENCH_DECODE, 2, 16, 2048); /* the peer measures the first context only */
    add(BENCH_PREFILL, 1, 512, 512);
}

START_TEST(peer_json) {
    static const char text[] =
        "[{\"n_prompt\":512,\"n_gen\":0,\"n_depth\":0,\"avg_ts\":100.5},"
        "{\"n_prompt\":0,\"n_gen\":24,\"n_depth\":128,\"avg_ts\":40.25},"
        "{\"n_prompt\":16,\"n_gen\":0,\"n_depth\":128,\"avg_ts\":55},"
        "{\"n_prompt\":64,\"n_gen\":0,\"n_depth\":128,\"avg_ts\":77}, 5, null]";
    setup();
    ck_assert_int_eq(bench_peer_take_json(&b, 2, text, strlen(text), &e), 3);
    ck_assert_double_eq(bench_samples_median(&b.cases[0].peer), 100.5);
    ck_assert_double_eq(bench_samples_median(&b.cases[1].peer), 40.25);
    ck_assert_double_eq(bench_samples_median(&b.cases[2].peer), 55);
    ck_assert_str_eq(b.cases[2].peer_name, "pp");
    ck_assert(b.cases[3].peer.n == 0 && b.cases[4].peer.n == 0);
    ck_assert_int_eq(bench_peer_take_json(&b, 2, "usage: x", 8, &e), -1);
    ck_assert_int_eq(bench_peer_take_json(&b, 2, "{}", 2, &e), -1);
    ck_assert_int_eq(bench_peer_take_json(&b, 2, NULL, 0, &e), -1);
}
END_TEST

START_TEST(peer_table) {
    setup();
    ck_assert_int_eq(bench_peer_take_table(&b, 2,
                                           "main: n_kv_max = 4096\n\n|    PP |     TG |    B |\n"
                                           "|------|\n"
                                           "|   128 |     24 |   16 |   2432 |    9.1 |   225.0 |"
                                           "    5.9 |    65.25 |   15.0 |   162.1 |\n"
                                           "|   128 |     24 |    4 |    608 |    9.1 |   225.0 |"
                                           "    5.9 |    50.00 |   15.0 |   162.1 |\n"),
                     1);
    ck_assert_double_eq(bench_samples_median(&b.cases[2].peer), 65.25);
    ck_assert_str_eq(b.cases[2].peer_name, "batched");
    ck_assert_int_eq(bench_peer_take_table(&b, 2, ""), 0);
    ck_assert_int_eq(bench_peer_take_table(&b, 2, "| 1 | 2 |\nno table"), 0);
}
END_TEST

START_TEST(programs_are_captured) {
    struct buf out = {0};
    char *echo[] = {"/bin/sh", "-c", "printf abc; printf hidden >&2", NULL};
    char *fails[] = {"/bin/sh", "-c", "exit 7", NULL};
    char *absent[] = {"/nowhere/program", NULL};
    ck_assert_int_eq(bench_peer_capture(echo, &out, &e), 0);
    ck_assert_str_eq(buf_str(&out), "abc");
    ck_assert_int_eq(bench_peer_capture(fails, &out, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "exit code 7"));
    ck_assert_int_eq(bench_peer_capture(absent, &out, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "/nowhere/program"));
    buf_deinit(&out);
}
END_TEST

int main(void) {
    Suite *s = suite_create("bench_case");
    TCase *t = tcase_create("all");
    tcase_add_test(t, lists);
    tcase_add_test(t, medians);
    tcase_add_test(t, bounds);
    tcase_add_test(t, peer_json);
    tcase_add_test(t, peer_table);
    tcase_add_test(t, programs_are_captured);
    suite_add_tcase(s, t);
    return test_run(s);
}
