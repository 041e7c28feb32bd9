/* The decision which cores gateway and worker get. */
#include "cli/up_cores.h"
#include "tests/common/test_run.h"

#include <string.h>

static struct up_cores out;
static struct err e;

static int decide(const char *cores, const char *cpus, int64_t threads, int quota) {
    struct cpulist allowed;
    ck_assert_int_eq(cpulist_parse(&allowed, cores, &e), 0);
    return up_cores_decide(&out, cpus, threads, &allowed, quota, &e);
}

static void expect(const char *cpus, int threads) {
    ck_assert_str_eq(out.cpus, cpus);
    ck_assert_int_eq(out.threads, threads);
}

START_TEST(the_gateway_gets_the_last_core_the_worker_the_others) {
    ck_assert_int_eq(decide("0-1", "", 0, 0), 0);
    expect("gateway=1,worker=0", 1);
    ck_assert_int_eq(decide("0-7", "", 0, 0), 0);
    expect("gateway=7,worker=0-6", 7);
    ck_assert_int_eq(decide("2,5,9", "", 0, 0), 0);
    expect("gateway=9,worker=2,5", 2);
    ck_assert_int_eq(decide("0-7", "", 3, 0), 0);
    expect("gateway=7,worker=0-6", 3);
}
END_TEST

START_TEST(one_core_is_not_pinned) {
    ck_assert_int_eq(decide("3", "", 0, 0), 0);
    expect("", 1);
    ck_assert_int_eq(decide("0", "", 4, 0), 0);
    expect("", 4);
}
END_TEST

START_TEST(more_threads_than_other_cores_are_not_pinned) {
    ck_assert_int_eq(decide("0-1", "", 2, 0), 0);
    expect("", 2);
    ck_assert_int_eq(decide("0-3", "", 3, 0), 0);
    expect("gateway=3,worker=0-2", 3);
}
END_TEST

START_TEST(a_share_of_a_machine_is_not_pinned) {
    ck_assert_int_eq(decide("0-63", "", 0, 2), 0);
    expect("", 1);
    ck_assert_int_eq(decide("0-63", "", 0, 1), 0);
    expect("", 1);
    ck_assert_int_eq(decide("0-3", "", 0, 4), 0);
    expect("gateway=3,worker=0-2", 3);
    ck_assert_int_eq(decide("0-3", "", 0, 100), 0);
    expect("gateway=3,worker=0-2", 3);
}
END_TEST

START_TEST(what_the_user_says_is_kept) {
    ck_assert_int_eq(decide("0-7", "gateway=0,worker=1-4", 0, 0), 0);
    expect("gateway=0,worker=1-4", 4);
    ck_assert_int_eq(decide("0-7", "gateway=0,worker=1-4", 2, 0), 0);
    expect("gateway=0,worker=1-4", 2);
    ck_assert_int_eq(decide("0-7", "gateway=0", 0, 0), 0);
    expect("gateway=0", 7);
    ck_assert_int_eq(decide("0-7", "worker=0-7", 0, 4), 0);
    expect("worker=0-7", 4);
    ck_assert_int_ne(decide("0-7", "worker=", 0, 0), 0);
    ck_assert_int_ne(decide("0-7", "gatewy=1", 0, 0), 0);
}
END_TEST

START_TEST(a_huge_machine_stays_within_the_limit_of_threads) {
    ck_assert_int_eq(decide("0-1023", "", 0, 0), 0);
    expect("gateway=1023,worker=0-1022", 256);
}
END_TEST

int main(void) {
    Suite *s = suite_create("up_cores");
    TCase *t = tcase_create("all");
    tcase_add_test(t, the_gateway_gets_the_last_core_the_worker_the_others);
    tcase_add_test(t, one_core_is_not_pinned);
    tcase_add_test(t, more_threads_than_other_cores_are_not_pinned);
    tcase_add_test(t, a_share_of_a_machine_is_not_pinned);
    tcase_add_test(t, what_the_user_says_is_kept);
    tcase_add_test(t, a_huge_machine_stays_within_the_limit_of_threads);
    suite_add_tcase(s, t);
    return test_run(s);
}
