/* Histogram buckets, faulty values and quantiles. */
#include "base/hist.h"
#include "tests/common/test_run.h"

#include <math.h>

static const double bounds[] = {0.1, 1, 10};

START_TEST(a_value_on_a_bound_is_below_it) {
    struct hist h;
    hist_init(&h, bounds, 3);
    static const double values[] = {0, 0.1, 0.11, 1, 10, 10.1, INFINITY};
    for (int i = 0; i < 6; i++)
        hist_add(&h, values[i]);
    ck_assert_uint_eq(h.counts[0], 2);
    ck_assert_uint_eq(h.counts[1], 2);
    ck_assert_uint_eq(h.counts[2], 1);
    ck_assert_uint_eq(h.counts[3], 1);
    ck_assert_uint_eq(h.count, 6);
    ck_assert(fabs(h.sum - 21.31) < 1e-9);
    hist_add(&h, values[6]);
    ck_assert_uint_eq(h.counts[3], 2);
}
END_TEST

START_TEST(faulty_values_count_as_zero) {
    struct hist h;
    hist_init(&h, bounds, 3);
    hist_add(&h, -5);
    hist_add(&h, NAN);
    ck_assert_uint_eq(h.counts[0], 2);
    ck_assert(h.sum == 0);
}
END_TEST

START_TEST(quantiles_are_upper_bounds) {
    struct hist h;
    hist_init(&h, bounds, 3);
    ck_assert(hist_quantile(&h, 0.5) == 0);
    for (int i = 0; i < 98; i++)
        hist_add(&h, 0.5);
    hist_add(&h, 5);
    hist_add(&h, 50);
    ck_assert(hist_quantile(&h, 0) == 1);
    ck_assert(hist_quantile(&h, 0.5) == 1);
    ck_assert(hist_quantile(&h, 0.98) == 1);
    ck_assert(hist_quantile(&h, 0.99) == 10);
    ck_assert(isinf(hist_quantile(&h, 1)));
}
END_TEST

START_TEST(no_bounds_and_all_bounds_work) {
    double many[HIST_BOUNDS_MAX];
    for (int i = 0; i < HIST_BOUNDS_MAX; i++)
        many[i] = i;
    struct hist h;
    hist_init(&h, many, HIST_BOUNDS_MAX);
    for (int i = 0; i <= HIST_BOUNDS_MAX; i++)
        hist_add(&h, i);
    for (int i = 0; i <= HIST_BOUNDS_MAX; i++)
        ck_assert_uint_eq(h.counts[i], 1);
    hist_init(&h, many, 0);
    hist_add(&h, 3);
    ck_assert_uint_eq(h.counts[0], 1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("hist");
    TCase *tc = tcase_create("hist");
    tcase_add_test(tc, a_value_on_a_bound_is_below_it);
    tcase_add_test(tc, faulty_values_count_as_zero);
    tcase_add_test(tc, quantiles_are_upper_bounds);
    tcase_add_test(tc, no_bounds_and_all_bounds_work);
    suite_add_tcase(s, tc);
    return test_run(s);
}
