/* What `eval` says of two models: points by hand, drift found and not found, the plot's text. */
#include "cli/eval_plot.h"
#include "cli/eval_stats.h"
#include "tests/common/test_run.h"

#include "base/hash.h"

#include <math.h>
#include <string.h>

static struct eval_stats stats;

START_TEST(a_point_by_hand) {
    struct eval_point p;
    float a[3] = {logf(0.5f), logf(0.25f), logf(0.25f)};
    /* a constant changes nothing */
    float b[3] = {logf(0.25f) + 7, logf(0.5f) + 7, logf(0.25f) + 7};
    eval_compare(&p, a, b, 3, 2);
    ck_assert_double_eq_tol(p.nll_a, log(4), 1e-6);
    ck_assert_double_eq_tol(p.nll_b, log(4), 1e-6);
    ck_assert_double_eq_tol(p.kl, 0.25 * log(0.5) + 0.5 * log(2), 1e-6);
    ck_assert(p.top_a == 0 && p.top_b == 1);
    ck_assert_double_eq_tol(p.gap, log(2), 1e-6);
    eval_compare(&p, a, NULL, 3, 0);
    ck_assert_double_eq_tol(p.nll_a, log(2), 1e-6);
    ck_assert(p.kl == 0 && p.top_a == 0);
    float same[3] = {1, 5, 5};
    eval_compare(&p, same, same, 3, 1);
    ck_assert(p.kl == 0 && p.top_a == 1 && p.gap == 0); /* a tie goes to the smaller id */
}
END_TEST

/* One window of 1,000: KL `kl` at its beginning and `late` at its end, noise of a tenth. */
static void fill(double kl, double late) {
    eval_stats_init(&stats, true, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        double noise = 1 + 0.1 * (rand_unit(5, i) - 0.5);
        struct eval_point p = {.nll_a = 2.01, .nll_b = 2,
                               .kl = (kl + (late - kl) * i / 1000) * noise, .top_a = i % 50 == 0, .gap = i % 100 == 0 ? 0.5 : 0.1};
        eval_stats_add(&stats, i, &p);
    }
}

START_TEST(sums) {
    double error;
    fill(0.004, 0.004);
    ck_assert_uint_eq(stats.all.n, 1000);
    ck_assert_uint_eq(stats.all.same, 980);
    ck_assert_uint_eq(stats.all.near, 10);
    ck_assert_double_eq_tol(eval_agreement(&stats.all), 0.98, 1e-12);
    ck_assert_double_eq_tol(eval_perplexity_b(&stats.all), exp(2), 1e-9);
    ck_assert_double_eq_tol(eval_excess(&stats.all, &error), exp(0.01) - 1, 1e-9);
    ck_assert_double_le(error, 1e-6);
    uint64_t n = 0;
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        uint32_t from = eval_stats_bucket_from(&stats, i);
        n += stats.buckets[i].n;
        ck_assert_uint_eq(stats.buckets[i].n, eval_stats_bucket_from(&stats, i + 1) - from);
    }
    ck_assert_uint_eq(n, 1000);
}
END_TEST

START_TEST(drift_is_seen_and_noise_is_not) {
    double error;
    fill(0.004, 0.004);
    ck_assert(!eval_drifts(&stats));
    fill(0.004, 0.008);
    ck_assert(eval_drifts(&stats));
    ck_assert_double_eq_tol(eval_slope(&stats.kl_line, &error), 0.004, 0.0005);
    ck_assert_double_lt(error, 0.0002);
    fill(0.008, 0.004); /* it gets better: no drift */
    ck_assert(!eval_drifts(&stats));
    eval_stats_init(&stats, true, 1000);
    ck_assert(isnan(eval_slope(&stats.kl_line, &error)) && !eval_drifts(&stats));
    for (uint32_t i = 0; i < 1000; i++) { /* agreement falls from 100 % to 0 */
        struct eval_point p = {.top_a = rand_unit(7, i) < (float)i / 1000};
        eval_stats_add(&stats, i, &p);
    }
    ck_assert(eval_drifts(&stats));
}
END_TEST

START_TEST(plots) {
    char line[EVAL_BUCKETS + 1];
    struct buf svg = {0};
    fill(0.001, 0.01);
    eval_plot_line(line, &stats);
    ck_assert_uint_eq(strlen(line), EVAL_BUCKETS);
    ck_assert(line[0] == '.' && line[EVAL_BUCKETS - 1] == '@');
    eval_plot_svg(&svg, &stats, "a<b & c");
    ck_assert_ptr_nonnull(strstr(buf_str(&svg), "a&#60;b &#38; c"));
    ck_assert_ptr_nonnull(strstr(buf_str(&svg), "</svg>"));
    ck_assert_ptr_null(strstr(buf_str(&svg), "nan"));
    ck_assert_ptr_nonnull(strstr(buf_str(&svg), "'end'>0.005</text>")); /* round ticks */
    ck_assert_ptr_nonnull(strstr(buf_str(&svg), "mean "));
    buf_clear(&svg);
    eval_stats_init(&stats, false, 10); /* nothing scored: still a picture */
    eval_plot_line(line, &stats);
    ck_assert_str_eq(line, "                ");
    eval_plot_svg(&svg, &stats, "");
    ck_assert_ptr_null(strstr(buf_str(&svg), "nan"));
    buf_deinit(&svg);
}
END_TEST

int main(void) {
    Suite *s = suite_create("eval_stats");
    TCase *t = tcase_create("all");
    tcase_add_test(t, a_point_by_hand);
    tcase_add_test(t, sums);
    tcase_add_test(t, drift_is_seen_and_noise_is_not);
    tcase_add_test(t, plots);
    suite_add_tcase(s, t);
    return test_run(s);
}
