/* Quantiles, paired ratios and intervals against answers known beforehand; the knee. */
#include "base/hash.h"
#include "cli/bench_knee.h"
#include "cli/bench_stats.h"
#include "tests/common/test_run.h"

#include <math.h>

#define N 200

START_TEST(quantiles_are_between_neighbours) {
    double v[5] = {5, 1, 4, 2, 3}, out[STATS_KINDS];
    stats_of(out, v, 5);
    ck_assert_double_eq(out[STATS_P50], 3);
    ck_assert_double_eq_tol(out[STATS_P90], 4.6, 1e-12);
    ck_assert_double_eq_tol(out[STATS_P99], 4.96, 1e-12);
    ck_assert_double_eq(out[STATS_MEAN], 3);
    ck_assert_double_eq(stats_quantile(v, 0, 0.5), 0);
    double w[3] = {1, INFINITY, 2};
    stats_of(out, w, 3);
    ck_assert_double_eq(out[STATS_P50], 2);
    ck_assert(isinf(out[STATS_P99]) && isinf(out[STATS_MEAN]));
    double all[2] = {INFINITY, INFINITY};
    ck_assert(isinf(stats_quantile(all, 2, 0.5))); /* no NaN between two infinities */
}
END_TEST

/* Arrival i waits i % 7 + 1 times, each `scale` times what the generator gives. */
static void fill(struct stats_waits *w, double scale, uint64_t noise) {
    ck_assert_int_eq(stats_waits_init(w, N, 7 * N), 0);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k <= i % 7; k++)
            stats_waits_add(w, i,
                            scale * (10 + (double)(rand_at(3, i * 8 + k) % 100)) +
                                (noise != 0 ? (double)(rand_at(noise, i * 8 + k) % 3) : 0));
}

START_TEST(a_ratio_of_scaled_arms_is_the_scale) {
    struct stats_waits w[2];
    struct stats_ratio r[STATS_KINDS];
    fill(&w[0], 1, 0);
    fill(&w[1], 1.25, 0);
    const struct stats_waits *alone[1] = {&w[0]}, *mixed[1] = {&w[1]};
    ck_assert_int_eq(stats_ratios(r, alone, mixed, 1, 7), 0);
    for (int k = 0; k < STATS_KINDS; k++) { /* paired: the interval has no width */
        ck_assert_double_eq_tol(r[k].ratio, 1.25, 1e-9);
        ck_assert_double_eq_tol(r[k].low, 1.25, 1e-9);
        ck_assert_double_eq_tol(r[k].high, 1.25, 1e-9);
    }
    stats_waits_deinit(&w[0]);
    stats_waits_deinit(&w[1]);
}
END_TEST

START_TEST(the_interval_holds_the_ratio_and_is_the_same_again) {
    struct stats_waits w[4];
    struct stats_ratio r[STATS_KINDS], again[STATS_KINDS];
    for (int k = 0; k < 4; k++)
        fill(&w[k], k < 2 ? 1 : 1.1, (uint64_t)k + 11);
    const struct stats_waits *alone[2] = {&w[0], &w[1]}, *mixed[2] = {&w[2], &w[3]};
    ck_assert_int_eq(stats_ratios(r, alone, mixed, 2, 7), 0);
    ck_assert_int_eq(stats_ratios(again, alone, mixed, 2, 7), 0);
    for (int k = 0; k < STATS_KINDS; k++) {
        ck_assert_double_le(r[k].low, r[k].ratio);
        ck_assert_double_ge(r[k].high, r[k].ratio);
        ck_assert_double_lt(r[k].high - r[k].low, 0.2);
        ck_assert_double_eq(r[k].low, again[k].low);
        ck_assert_double_eq_tol(r[k].mixed / r[k].alone, r[k].ratio, 1e-12);
    }
    for (int k = 0; k < 4; k++)
        stats_waits_deinit(&w[k]);
}
END_TEST

START_TEST(one_answer_that_never_came_makes_the_mean_infinite) {
    struct stats_waits w[2];
    struct stats_ratio r[STATS_KINDS];
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(stats_waits_init(&w[k], N, N), 0);
        for (uint32_t i = 0; i < N; i++)
            stats_waits_add(&w[k], i, k == 1 && i == 9 ? INFINITY : 1 + i % 5);
    }
    const struct stats_waits *alone[1] = {&w[0]}, *mixed[1] = {&w[1]};
    ck_assert_int_eq(stats_ratios(r, alone, mixed, 1, 1), 0);
    ck_assert(isinf(r[STATS_MEAN].ratio));
    ck_assert_double_eq(r[STATS_P50].ratio, 1);
    stats_waits_deinit(&w[0]);
    stats_waits_deinit(&w[1]);
}
END_TEST

START_TEST(means_and_their_intervals) {
    double x[60], y[60];
    struct stats_ratio r;
    for (uint32_t i = 0; i < 60; i++) {
        x[i] = 6;
        y[i] = i % 2 != 0 ? 2 : 4;
    }
    stats_means_ratio(&r, x, 60, y, 60, 5, 1);
    ck_assert_double_eq(r.ratio, 2);
    ck_assert_double_le(r.low, 2);
    ck_assert_double_ge(r.high, 2);
    stats_mean_interval(&r, x, 60, 1, 1);
    ck_assert_double_eq(r.ratio, 6);
    ck_assert_double_eq(r.low, 6);
    ck_assert_double_eq(r.high, 6);
    stats_mean_interval(&r, x, 0, 1, 1);
    ck_assert_double_eq(r.ratio, 0);
}
END_TEST

START_TEST(the_knee_is_where_throughput_stops_to_grow) {
    struct knee k = {.n = 6};
    const double tokens[] = {100, 195, 370, 600, 640, 650}, p99[] = {1, 1.1, 1.2, 1.5, 3, 6};
    for (uint32_t i = 0; i < k.n; i++)
        k.levels[i] = (struct knee_level){
            .concurrency = 1u << i, .tokens_s = tokens[i], .e2e_p99_ms = p99[i]};
    knee_find(&k);
    ck_assert_uint_eq(k.knee, 3);
    ck_assert_uint_eq(k.recommended, 2);
    k.levels[3].e2e_p99_ms = INFINITY; /* a level where nothing ended is none */
    knee_find(&k);
    ck_assert_uint_ne(k.knee, 3);
    k.n = 1;
    knee_find(&k);
    ck_assert_uint_eq(k.knee, 0);
    ck_assert_uint_eq(k.recommended, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("bench_stats");
    TCase *t = tcase_create("bench_stats");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, quantiles_are_between_neighbours);
    tcase_add_test(t, a_ratio_of_scaled_arms_is_the_scale);
    tcase_add_test(t, the_interval_holds_the_ratio_and_is_the_same_again);
    tcase_add_test(t, one_answer_that_never_came_makes_the_mean_infinite);
    tcase_add_test(t, means_and_their_intervals);
    tcase_add_test(t, the_knee_is_where_throughput_stops_to_grow);
    suite_add_tcase(s, t);
    return test_run(s);
}
