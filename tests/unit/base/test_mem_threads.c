/* The counters of the memory door under threads: nothing is lost, and a failing n-th allocation
 * hits exactly one caller. */
#include "base/mem.h"
#include "tests/common/test_run.h"

#include <pthread.h>
#include <stdint.h>

#define THREADS 4
#define ROUNDS 2000

static void *worker(void *arg) {
    uintptr_t failed = 0;
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        void *p = mem_alloc((size_t)i % 200);
        failed += p == NULL;
        mem_free(p);
    }
    return (void *)failed;
}

START_TEST(counts_and_failures_are_exact) {
    size_t used = mem_used();
    uint64_t calls = mem_calls();
    pthread_t t[THREADS];
    uintptr_t failed = 0;
    mem_fail_nth(THREADS * ROUNDS / 2);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, worker, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *r;
        pthread_join(t[i], &r);
        failed += (uintptr_t)r;
    }
    ck_assert_uint_eq(failed, 1);
    ck_assert_uint_eq(mem_used(), used);
    ck_assert_uint_eq(mem_calls() - calls, THREADS * ROUNDS);
}
END_TEST

int main(void) {
    Suite *s = suite_create("mem_threads");
    TCase *tc = tcase_create("mem_threads");
    tcase_add_test(tc, counts_and_failures_are_exact);
    suite_add_tcase(s, tc);
    return test_run(s);
}
