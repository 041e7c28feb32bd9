/* The tile pool: every tile once, results visible, wake-ups not lost between phases and after
 * idling. */
#include "worker/engine/cpu/pool.h"

#include <check.h>
#include <fenv.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define TILES 1000

static uint32_t times[TILES]; /* plain on purpose: a tile run twice at once is a race TSan sees */
static _Atomic uint32_t used_threads;

static void count_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    times[tile] += *(uint32_t *)ctx;
    atomic_fetch_or(&used_threads, 1u << thread);
}

START_TEST(each_tile_once)
{
    struct pool *p;
    ck_assert_int_eq(pool_create(&p, (uint32_t)_i, NULL, 0, NULL), 0);
    ck_assert_uint_eq(pool_threads(p), (uint32_t)_i);
    memset(times, 0, sizeof times);
    uint32_t sum = 0;
    for (uint32_t phase = 1; phase <= 400; phase++) {
        uint32_t add =
            phase; /* on this stack: a thread late from the last phase must not read it */
        uint32_t n = phase % 7 == 0 ? 1 : phase % 11 == 0 ? 0 : 1 + phase * 37 % TILES;
        pool_run(p, count_tile, &add, n);
        sum += n > 0 ? add : 0;
        ck_assert_uint_eq(times[0], sum);
        ck_assert_uint_eq(add, phase);
    }
    uint32_t want[TILES] = {0};
    for (uint32_t phase = 1; phase <= 400; phase++) {
        uint32_t n = phase % 7 == 0 ? 1 : phase % 11 == 0 ? 0 : 1 + phase * 37 % TILES;
        for (uint32_t i = 0; i < n; i++)
            want[i] += phase;
    }
    ck_assert_mem_eq(times, want, sizeof want);
    pool_destroy(&p);
    ck_assert_ptr_null(p);
}
END_TEST

/* Long pauses put the threads to sleep; the next phase must wake them or be done without them. */
START_TEST(wakes_after_idling)
{
    struct pool *p;
    ck_assert_int_eq(pool_create(&p, 3, NULL, 0, NULL), 0);
    memset(times, 0, sizeof times);
    uint32_t one = 1;
    for (int i = 0; i < 50; i++) {
        struct timespec t = {.tv_nsec = (i % 3) * 200000};
        nanosleep(&t, NULL);
        pool_run(p, count_tile, &one, 64);
    }
    for (int i = 0; i < 64; i++)
        ck_assert_uint_eq(times[i], 50);
    pool_destroy(&p);
}
END_TEST

static _Atomic uint32_t met;

/* Tile 0 and 1 wait for each other: only two threads at once can finish. */
static void meet_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)ctx;
    (void)tile;
    (void)thread;
    atomic_fetch_add(&met, 1);
    while (atomic_load(&met) < 2) {
        struct timespec t = {.tv_nsec = 10000};
        nanosleep(&t, NULL);
    }
}

START_TEST(threads_work_at_once)
{
    struct pool *p;
    ck_assert_int_eq(pool_create(&p, 2, NULL, 0, NULL), 0);
    for (int i = 0; i < 20; i++) {
        atomic_store(&met, 0);
        pool_run(p, meet_tile, NULL, 2);
    }
    pool_destroy(&p);
}
END_TEST

static void rounding_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)tile;
    (void)thread;
    if (fegetround() != FE_TONEAREST)
        atomic_fetch_add((_Atomic uint32_t *)ctx, 1);
    volatile float small = 0x1p-126f;
    small /= 2; /* a denormal: flushed to zero it would differ from the scalar twin elsewhere */
    if (small == 0)
        atomic_fetch_add((_Atomic uint32_t *)ctx, 1);
}

START_TEST(float_modes_are_fixed)
{
    fesetround(FE_UPWARD); /* new threads inherit the mode of the one that makes them */
    struct pool *p;
    ck_assert_int_eq(pool_create(&p, 2, NULL, 0, NULL), 0);
    pool_fp_env();
    _Atomic uint32_t wrong = 0;
    for (int i = 0; i < 50; i++)
        pool_run(p, rounding_tile, &wrong, 64);
    ck_assert_uint_eq(wrong, 0);
    pool_destroy(&p);
}
END_TEST

static void core_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)tile;
    (void)thread;
    if (sched_getcpu() != *(int *)ctx)
        atomic_fetch_add(&met, 1);
}

/* Threads keep off each other's cores, but never leave the caller's affinity. */
START_TEST(stays_within_the_callers_cores)
{
    cpu_set_t before, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    struct pool *p;
    ck_assert_int_eq(pool_create(&p, 3, NULL, 0, NULL), 0);
    atomic_store(&met, 0);
    for (int i = 0; i < 100; i++) {
        struct timespec t = {.tv_nsec = i % 3 * 50000};
        nanosleep(&t, NULL);
        pool_run(p, core_tile, &cpu, 64);
    }
    ck_assert_uint_eq(atomic_load(&met), 0);
    pool_destroy(&p);
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
}
END_TEST

START_TEST(refuses)
{
    struct pool *p;
    struct err e;
    ck_assert_int_eq(pool_create(&p, 0, NULL, 0, &e), -1);
    ck_assert_int_eq(pool_create(&p, POOL_THREADS_MAX + 1, NULL, 0, &e), -1);
    ck_assert_ptr_null(p);
    pool_destroy(&p);
    uint32_t cpus[] = {0, 100000}; /* one that exists, one that cannot */
    ck_assert_int_eq(pool_create(&p, 3, cpus, 2, &e), 0);
    uint32_t one = 1;
    memset(times, 0, sizeof times);
    pool_run(p, count_tile, &one, 10);
    ck_assert_uint_eq(times[9], 1);
    pool_destroy(&p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool");
    TCase *t = tcase_create("pool");
    tcase_add_loop_test(t, each_tile_once, 1, 5);
    tcase_add_test(t, wakes_after_idling);
    tcase_add_test(t, threads_work_at_once);
    tcase_add_test(t, float_modes_are_fixed);
    tcase_add_test(t, stays_within_the_callers_cores);
    tcase_add_test(t, refuses);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    SRunner *run = srunner_create(s);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed != 0;
}
