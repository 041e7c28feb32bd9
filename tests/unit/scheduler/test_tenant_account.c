/* tenant_account, call by call. */
#include "base/mem.h"
#include "scheduler/tenant_account.h"
#include "tests/common/test_run.h"

#define SECOND 1000000000ull
#define UNIT 65536ull /* a token of weight 1 in tags */
#define NOBODY UINT64_MAX

static struct tenant_account *a;

static void setup(void)
{
    struct tenant_account_config cfg = {.max_tenants = 4, .n_classes = 2, .max_workers = 3, .out_weight = 2};
    a = tenant_account_init(mem_zalloc(tenant_account_bytes(&cfg)), &cfg);
}

static void teardown(void)
{
    ck_assert(tenant_account_check(a) == NULL);
    mem_free(a);
}

static struct tenant_usage usage(uint32_t tenant)
{
    struct tenant_usage u;
    tenant_account_usage(a, tenant, 0, &u);
    return u;
}

START_TEST(test_expected_then_known)
{
    tenant_account_weight(a, 1, 4000);
    ck_assert_uint_eq(tenant_account_expect(a, 1, 0, 10, 5, 0), 20); /* no more than may be made */
    ck_assert_uint_eq(tenant_account_expect(a, 1, 0, 10, 100, 7), 24);
    ck_assert_uint_eq(tenant_account_send(a, 1, 0, 24, NOBODY), 0);
    ck_assert_uint_eq(tenant_account_tag(a, 1, 0), 24 * UNIT / 4);
    tenant_account_land(a, 1, 0, 14); /* the prompt, 6 of it cached, and two ids */
    tenant_account_serve(a, 1, 0, 4, 2, SECOND, false);
    ck_assert_uint_eq(usage(1).virtual_time, 8 * UNIT / 4);
    ck_assert_uint_eq(usage(1).tag, 18 * UNIT / 4);
    tenant_account_land(a, 1, 0, 10); /* it ended early */
    tenant_account_learn(a, 1, 0, 2);
    ck_assert_uint_eq(tenant_account_tag(a, 1, 0), 8 * UNIT / 4);
    ck_assert_uint_eq(tenant_account_expect(a, 1, 0, 10, 100, 0), 14);
    ck_assert_uint_ge(tenant_account_send(a, 1, 0, 14, NOBODY), 8 * UNIT / 4);
}
END_TEST

START_TEST(test_sleeping_earns_nothing)
{
    for (int i = 0; i < 10; i++) {
        (void)tenant_account_send(a, 0, 0, 100, NOBODY);
        tenant_account_land(a, 0, 0, 100);
        tenant_account_serve(a, 0, 0, 100, 0, SECOND, false);
    }
    tenant_account_wake(a, 1, 0, true, NOBODY);
    ck_assert_uint_eq(tenant_account_tag(a, 1, 0), 900 * UNIT); /* where the last pick stood */
    tenant_account_wake(a, 2, 0, true, 500 * UNIT);             /* somebody queued is earlier */
    ck_assert_uint_eq(tenant_account_tag(a, 2, 0), 500 * UNIT);
    tenant_account_wake(a, 0, 0, true, NOBODY); /* its own is later */
    ck_assert_uint_eq(tenant_account_tag(a, 0, 0), 1000 * UNIT);
    ck_assert_uint_eq(tenant_account_tag(a, 1, 1), 0); /* the other class knows nothing of it */
}
END_TEST

START_TEST(test_lead_and_lag_are_clamped)
{
    for (uint64_t s = 1; s <= 20; s++) tenant_account_serve(a, 0, 0, 100, 0, s * SECOND, false);
    ck_assert_uint_eq(tenant_account_rate(a), 100);
    ck_assert_uint_le(usage(0).virtual_time, 1100 * UNIT); /* 10 s of the rate before the system's 0 */
    tenant_account_serve(a, 0, 0, 50000, 0, 20 * SECOND, false);
    ck_assert_uint_eq(usage(0).virtual_time, 1000 * UNIT);
    tenant_account_weight(a, 0, 2000);
    ck_assert_uint_eq(usage(0).virtual_time, 1000 * UNIT); /* a new weight counts from now on */
    (void)tenant_account_send(a, 3, 0, 1, NOBODY);
    for (int i = 0; i < 50; i++) { /* the system goes on, tenant 1 has one in flight all the while */
        (void)tenant_account_send(a, 0, 0, 200, NOBODY);
        tenant_account_land(a, 0, 0, 200);
        tenant_account_serve(a, 0, 0, 200, 0, 20 * SECOND, false);
    }
    uint64_t system = tenant_account_tag(a, 0, 0) - 100 * UNIT;
    tenant_account_wake(a, 1, 0, false, NOBODY);
    ck_assert_uint_eq(tenant_account_tag(a, 1, 0), system - 1000 * UNIT);
}
END_TEST

START_TEST(test_counters_over_incarnations)
{
    tenant_account_seen(a, 0, 5, 1, 0, 1000, 100, SECOND); /* its past is nobody's debt */
    ck_assert_uint_eq(usage(1).virtual_time, 0);
    ck_assert(tenant_account_counts(a, 0, 5, 1, 0));
    ck_assert(!tenant_account_counts(a, 0, 6, 1, 0) && !tenant_account_counts(a, 1, 5, 1, 0));
    ck_assert(!tenant_account_counts(a, 0, 5, 0, 0)); /* of tenant 0 it has shown nothing */
    tenant_account_seen(a, 0, 5, 1, 0, 1010, 105, SECOND);
    ck_assert_uint_eq(usage(1).virtual_time, 20 * UNIT);
    tenant_account_serve(a, 1, 0, 10, 5, SECOND, true); /* the same work, as the gateway saw it */
    ck_assert_uint_eq(usage(1).virtual_time, 20 * UNIT);
    tenant_account_seen(a, 0, 5, 1, 0, 1000, 105, SECOND); /* an old one */
    tenant_account_seen(a, 1, 9, 1, 0, 1, 1, SECOND);      /* another worker */
    tenant_account_seen(a, 1, 9, 1, 0, 2, 2, SECOND);
    ck_assert_uint_eq(usage(1).virtual_time, 23 * UNIT);
    tenant_account_seen(a, 0, 6, 1, 0, 3, 0, SECOND); /* killed and back */
    tenant_account_seen(a, 0, 6, 1, 0, 8, 0, SECOND);
    ck_assert_uint_eq(usage(1).virtual_time, 28 * UNIT);
}
END_TEST

/* Who appears after a worker has shown everybody had nothing before, and owes all of it. */
START_TEST(test_counters_after_all_were_shown)
{
    tenant_account_seen(a, 0, 5, 1, 0, 1000, 0, SECOND);
    tenant_account_all_seen(a, 0, 5);
    tenant_account_seen(a, 0, 5, 2, 0, 30, 2, SECOND);
    ck_assert_uint_eq(usage(2).virtual_time, 34 * UNIT); /* an id weighs 2 */
    ck_assert_uint_eq(usage(1).virtual_time, 0);
    tenant_account_seen(a, 0, 6, 3, 0, 30, 2, SECOND); /* another process: it has not */
    ck_assert_uint_eq(usage(3).virtual_time, 0);
}
END_TEST

/* Two gateways: the same counters give the same accounts, and a late one takes up the frame. */
START_TEST(test_two_gateways)
{
    struct tenant_account *first = a;
    for (int i = 0; i < 5; i++) {
        (void)tenant_account_send(first, 0, 0, 100, NOBODY);
        tenant_account_land(first, 0, 0, 100);
        tenant_account_seen(first, 0, 5, 0, 0, 100 + 100 * (uint64_t)i, 0, SECOND);
    }
    setup(); /* the second gateway starts */
    tenant_account_seen(a, 0, 5, 0, 0, 500, 0, SECOND);
    uint64_t started = tenant_account_tag(first, 0, 0);
    tenant_account_started(a, 0, started);
    tenant_account_wake(a, 1, 0, true, NOBODY);
    ck_assert_uint_eq(tenant_account_send(a, 1, 0, 100, NOBODY), started);
    tenant_account_started(a, 0, 1); /* never down */
    tenant_account_land(a, 1, 0, 100);
    tenant_account_seen(a, 0, 5, 1, 0, 50, 0, SECOND);
    tenant_account_seen(a, 0, 5, 1, 0, 150, 0, SECOND);
    ck_assert_uint_eq(tenant_account_send(a, 1, 0, 100, NOBODY), started + 100 * UNIT);
    ck_assert(tenant_account_check(first) == NULL);
    mem_free(first);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tenant_account");
    TCase *tc = tcase_create("account");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_expected_then_known);
    tcase_add_test(tc, test_sleeping_earns_nothing);
    tcase_add_test(tc, test_lead_and_lag_are_clamped);
    tcase_add_test(tc, test_counters_over_incarnations);
    tcase_add_test(tc, test_counters_after_all_were_shown);
    tcase_add_test(tc, test_two_gateways);
    suite_add_tcase(s, tc);
    return test_run(s);
}
