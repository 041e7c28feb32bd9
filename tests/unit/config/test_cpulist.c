/* Core lists, the split between processes, and pinning of a thread. */
#include "config/cpulist.h"
#include "tests/common/test_run.h"

#include <pthread.h>
#include <string.h>

START_TEST(lists_parse_to_their_shortest_form) {
    static const struct {
        const char *text, *back;
        int count;
    } cases[] = {{"0", "0", 1},
                 {"0-3", "0-3", 4},
                 {"3,1,2", "1-3", 3},
                 {"0-2,2-5,9", "0-5,9", 7},
                 {"63,64", "63-64", 2},
                 {"1023", "1023", 1},
                 {"0-1023", "0-1023", 1024},
                 {"5-5", "5", 1},
                 {"007", "7", 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cpulist l;
        char out[64];
        ck_assert_int_eq(cpulist_parse(&l, cases[i].text, NULL), 0);
        ck_assert_int_eq(cpulist_count(&l), cases[i].count);
        ck_assert_int_eq(cpulist_format(&l, out, sizeof(out)), 0);
        ck_assert_str_eq(out, cases[i].back);
    }
    struct cpulist l;
    char out[4];
    ck_assert_int_eq(cpulist_parse(&l, "0-1,10", NULL), 0);
    ck_assert_int_eq(cpulist_format(&l, out, sizeof(out)), -1);
    ck_assert(cpulist_has(&l, 10) && !cpulist_has(&l, 9) && !cpulist_has(&l, -1));
    ck_assert(!cpulist_has(&l, CPULIST_MAX));
    ck_assert_int_eq(cpulist_next(&l, 2), 10);
    ck_assert_int_eq(cpulist_next(&l, 11), -1);
}
END_TEST

START_TEST(bad_lists_are_refused) {
    static const char *const bad[] = {"",     ",",      "1,",  ",1",          "1,,2", "-1",
                                      "1-",   "3-1",    "a",   "1 ",          " 1",   "1-2-3",
                                      "1024", "0-1024", "1;2", "99999999999", "0x1",  "1:2"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct cpulist l;
        struct err e;
        ck_assert_msg(cpulist_parse(&l, bad[i], &e) == -1, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(e.msg, "no list of cores"));
    }
}
END_TEST

START_TEST(roles_share_their_commas_with_lists) {
    static const struct {
        const char *text, *gateway, *worker;
    } good[] = {{"", "", ""},
                {"gateway=1,worker=0", "1", "0"},
                {"worker=0,2-3,gateway=1,4", "1,4", "0,2-3"},
                {"worker=0-1", "", "0-1"},
                {"gateway=0", "0", ""}};
    static const char *const bad[] = {"0",
                                      "gateway",
                                      "gateway=",
                                      "gateway=,worker=1",
                                      "driver=1",
                                      "gateway=1,gateway=2",
                                      "gateway=1,worker",
                                      "gateway=1,",
                                      ",gateway=1",
                                      "worker=1-",
                                      "gateway=1 ,worker=2"};
    struct cpulist g, w;
    char out[64];
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        ck_assert_int_eq(cpulist_parse_roles(&g, &w, good[i].text, NULL), 0);
        ck_assert_int_eq(cpulist_format(&g, out, sizeof(out)), 0);
        ck_assert_str_eq(out, good[i].gateway);
        ck_assert_int_eq(cpulist_format(&w, out, sizeof(out)), 0);
        ck_assert_str_eq(out, good[i].worker);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct err e;
        ck_assert_msg(cpulist_parse_roles(&g, &w, bad[i], &e) == -1, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(e.msg, bad[i]));
    }
    ck_assert_int_eq(cpulist_parse_roles(&g, &w, "gateway=0-2,worker=2", NULL), 0);
    ck_assert(cpulist_overlap(&g, &w));
    ck_assert_int_eq(cpulist_parse_roles(&g, &w, "gateway=0-1,worker=2", NULL), 0);
    ck_assert(!cpulist_overlap(&g, &w));
}
END_TEST

START_TEST(quotas_round_down_to_whole_cores) {
    static const struct {
        const char *text;
        int cores;
    } cases[] = {{"max 100000", 0},
                 {"100000 100000", 1},
                 {"250000 100000", 2},
                 {"50000 100000", 1},
                 {"200000 50000", 4},
                 {"", 0},
                 {"100000", 0},
                 {"0 0", 0},
                 {"100000 0", 0},
                 {"-1 100000", 0},
                 {"99999999999999 1", CPULIST_MAX}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        ck_assert_int_eq(cpulist_quota_of(cases[i].text), cases[i].cores);
    ck_assert_int_ge(cpulist_quota(), 0);
}
END_TEST

static void *pin(void *arg) {
    struct cpulist all, one = {{0}}, now, none = {{0}};
    struct err e;
    cpulist_allowed(&all);
    int cpu = cpulist_next(&all, 0);
    one.bits[cpu / 64] = 1ull << (cpu % 64);
    bool ok = cpulist_apply(&none, &e) == 0;
    cpulist_allowed(&now);
    ok = ok && memcmp(&now, &all, sizeof(all)) == 0;
    ok = ok && cpulist_apply(&one, &e) == 0;
    cpulist_allowed(&now);
    ok = ok && memcmp(&now, &one, sizeof(one)) == 0;
    /* A core that no machine here has. */
    struct cpulist far = {{0}};
    far.bits[CPULIST_MAX / 64 - 1] = 1ull << 63;
    ok = ok && cpulist_apply(&far, &e) == -1 && strstr(e.msg, "1023") != NULL;
    *(bool *)arg = ok;
    return NULL;
}

START_TEST(a_thread_is_pinned_and_only_that_thread) {
    struct cpulist before, after;
    bool ok = false;
    pthread_t t;
    cpulist_allowed(&before);
    ck_assert_int_eq(pthread_create(&t, NULL, pin, &ok), 0);
    pthread_join(t, NULL);
    ck_assert(ok);
    cpulist_allowed(&after);
    ck_assert_mem_eq(&before, &after, sizeof(before));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cpulist");
    TCase *tc = tcase_create("cpulist");
    tcase_add_test(tc, lists_parse_to_their_shortest_form);
    tcase_add_test(tc, bad_lists_are_refused);
    tcase_add_test(tc, roles_share_their_commas_with_lists);
    tcase_add_test(tc, quotas_round_down_to_whole_cores);
    tcase_add_test(tc, a_thread_is_pinned_and_only_that_thread);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
