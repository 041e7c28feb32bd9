/* route.h: the index of prefixes, and where requests go that share some. */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/route.h"
#include "tests/common/test_run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MS 1e6
#define SECOND 1000000000ull
enum { WORKERS = 4, LONG = 2048 };

static struct route *r;
static struct route_config cfg;
static uint64_t now, draws, seed = 9;
static int32_t ids[LONG];

static uint64_t drawn(void)
{
    return rand_at(seed, draws++);
}

static void begin(uint32_t entries)
{
    cfg = (struct route_config){entries, WORKERS};
    r = route_init(mem_map(route_bytes(&cfg)), &cfg);
    now = SECOND;
}

static void end(void)
{
    mem_unmap(r, route_bytes(&cfg));
}

/* The first `shared` ids are the family's, the others nobody else's. */
static struct route_keys prompt(uint64_t root, uint32_t family, uint32_t shared, uint32_t n)
{
    struct route_keys k;
    for (uint32_t i = 0; i < n; i++) ids[i] = i < shared ? (int32_t)(family * 10000 + i) : (int32_t)(drawn() % 40000);
    route_keys_make(&k, root, ids, n);
    return k;
}

static uint32_t goes(const struct route_keys *k, uint32_t n_ids, double wait_ns)
{
    struct route_offer offers[WORKERS];
    for (uint32_t w = 0; w < WORKERS; w++) {
        offers[w] = (struct route_offer){.worker = w, .match = route_match(r, k, w), .wait_ns = w == 0 ? wait_ns : 0};
        offers[w].prefill_ns = (n_ids - offers[w].match) * 0.5 * MS;
    }
    uint32_t w = offers[route_choose(r, offers, WORKERS, 15, now)].worker;
    route_sent(r, k, w, offers[w].prefill_ns + 20 * MS, now);
    return w;
}

START_TEST(test_keys_are_of_prefixes)
{
    struct route_keys a = prompt(1, 3, 600, 700), b = prompt(1, 3, 600, 900), c = prompt(2, 3, 600, 700);
    ck_assert_uint_eq(a.n, 4); /* 32, 128, 256, 512 */
    for (uint32_t i = 0; i < a.n; i++) {
        ck_assert_uint_eq(a.key[i], b.key[i]);
        ck_assert_uint_ne(a.key[i], c.key[i]); /* another root: another tenant, or another salt */
    }
    ck_assert_uint_eq(prompt(1, 3, 10, 31).n, 0);
}
END_TEST

START_TEST(test_matches_what_was_sent_there)
{
    begin(1024);
    struct route_keys a = prompt(1, 3, 300, 700), b = prompt(1, 3, 300, 700);
    route_sent(r, &a, 2, 1, now);
    ck_assert_uint_eq(route_match(r, &a, 2), 512);
    ck_assert_uint_eq(route_match(r, &b, 2), 256); /* they part at 300 */
    ck_assert_uint_eq(route_match(r, &b, 1), 0);
    route_sent(r, &b, 1, 1, now);
    ck_assert_uint_eq(route_match(r, &a, 1), 256);
    route_gone(r, 2);
    ck_assert_uint_eq(route_match(r, &a, 2), 0);
    ck_assert_uint_eq(route_match(r, &a, 1), 256);
    end();
}
END_TEST

START_TEST(test_the_index_is_bounded)
{
    begin(256);
    struct route_keys kept = prompt(1, 1, 700, 700);
    route_sent(r, &kept, 0, 1, now);
    for (uint32_t i = 0; i < 20000; i++) {
        struct route_keys k = prompt(1, 2 + i, 700, 700);
        route_sent(r, &k, i % WORKERS, 1, now);
        if (i % 2 == 0) route_sent(r, &kept, 0, 1, now); /* used all the time: it stays */
    }
    ck_assert_uint_eq(route_match(r, &kept, 0), 512);
    uint32_t found = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        struct route_keys k = prompt(1, 2 + i, 700, 700);
        for (uint32_t w = 0; w < WORKERS; w++) found += route_match(r, &k, w) > 0;
    }
    ck_assert_uint_eq(found, 0); /* the old ones gave way */
    end();
}
END_TEST

/* Families stay where they began as long as the load lies well; nobody has more than 1.3 times the mean. */
START_TEST(test_families_stay_and_load_is_even)
{
    begin(65536);
    uint32_t at[40], moves = 0, n[WORKERS] = {0};
    double work[WORKERS] = {0}, all = 0;
    for (uint32_t i = 0; i < 40; i++) at[i] = WORKERS;
    for (uint32_t i = 0; i < 8000; i++) {
        uint32_t f = (uint32_t)(drawn() % 40), len = 300 + (uint32_t)(drawn() % 400);
        struct route_keys k = prompt(7, f, 280, len);
        uint32_t w = goes(&k, len, 0);
        moves += at[f] != w && at[f] != WORKERS;
        at[f] = w;
        n[w]++;
        work[w] += len - 256.0;
        all += len - 256.0;
        now += 20 * (uint64_t)MS;
    }
    printf("moves %u of 8000, requests %u %u %u %u\n", moves, n[0], n[1], n[2], n[3]);
    ck_assert_uint_lt(moves, 1600);
    for (uint32_t w = 0; w < WORKERS; w++) ck_assert(work[w] <= 1.3 * all / WORKERS);
    end();
}
END_TEST

/* One prefix that everybody wants comes to be on all workers. */
START_TEST(test_a_hot_prefix_is_replicated)
{
    begin(65536);
    uint32_t n[WORKERS] = {0}, matched = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        struct route_keys k = prompt(7, 1, 512, 600);
        uint32_t before[WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++) before[w] = route_match(r, &k, w);
        uint32_t w = goes(&k, 600, 0);
        n[w]++;
        matched += before[w] == 512;
        now += 20 * (uint64_t)MS;
    }
    for (uint32_t w = 0; w < WORKERS; w++) ck_assert_uint_le(n[w], 2000 * 13 / 10 / WORKERS);
    ck_assert_uint_ge(matched, 2000 - WORKERS);
    end();
}
END_TEST

/* A little wait is worth a long prefix, a long one is not. */
START_TEST(test_waits_only_while_it_pays)
{
    for (int far = 0; far < 2; far++) {
        begin(1024);
        struct route_keys k = prompt(7, 1, 1024, 1100);
        route_sent(r, &k, 0, 1, now); /* 1,024 ids there: 512 ms of prefill */
        now += 600 * SECOND;
        ck_assert_uint_eq(goes(&k, 1100, far ? 900 * MS : 200 * MS) == 0, !far);
        end();
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("route");
    TCase *tc = tcase_create("route");
    const char *env = getenv("TEST_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_keys_are_of_prefixes);
    tcase_add_test(tc, test_matches_what_was_sent_there);
    tcase_add_test(tc, test_the_index_is_bounded);
    tcase_add_test(tc, test_families_stay_and_load_is_even);
    tcase_add_test(tc, test_a_hot_prefix_is_replicated);
    tcase_add_test(tc, test_waits_only_while_it_pays);
    suite_add_tcase(s, tc);
    return test_run(s);
}
