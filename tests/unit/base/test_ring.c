/* The ring alone (order, full, wrap-around of the counters) and between two threads. */
#include "base/mem.h"
#include "base/ring.h"
#include "tests/common/test_run.h"

#include <pthread.h>
#include <sched.h>

#define ITEMS 20000

START_TEST(order_and_capacity) {
    struct ring r;
    ck_assert_int_eq(ring_init(&r, 5), 0); /* rounded up to 8 */
    ck_assert_ptr_null(ring_pop(&r));
    for (uintptr_t i = 1; i <= 8; i++)
        ck_assert_int_eq(ring_push(&r, (void *)i), 0);
    ck_assert_int_eq(ring_push(&r, (void *)9), -1);
    ck_assert_uint_eq(ring_count(&r), 8);
    for (uintptr_t i = 1; i <= 8; i++)
        ck_assert_ptr_eq(ring_pop(&r), (void *)i);
    ck_assert_ptr_null(ring_pop(&r));
    ck_assert_uint_eq(ring_count(&r), 0);
    ring_deinit(&r);
}
END_TEST

START_TEST(counters_wrap) {
    struct ring r;
    ck_assert_int_eq(ring_init(&r, 4), 0);
    atomic_store(&r.head, UINT32_MAX - 1);
    atomic_store(&r.tail, UINT32_MAX - 1);
    for (uintptr_t i = 1; i <= 4; i++)
        ck_assert_int_eq(ring_push(&r, (void *)i), 0);
    ck_assert_int_eq(ring_push(&r, (void *)5), -1);
    ck_assert_uint_eq(ring_count(&r), 4);
    for (uintptr_t i = 1; i <= 4; i++)
        ck_assert_ptr_eq(ring_pop(&r), (void *)i);
    ck_assert_ptr_null(ring_pop(&r));
    ring_deinit(&r);
}
END_TEST

START_TEST(no_memory_is_reported) {
    struct ring r;
    mem_fail_nth(1);
    ck_assert_int_eq(ring_init(&r, 4), -1);
    ring_deinit(&r);
}
END_TEST

struct item {
    int a, b;
};

static struct item items[ITEMS];

static void *produce(void *arg) {
    struct ring *r = arg;
    for (int i = 0; i < ITEMS; i++) {
        items[i] = (struct item){i, ~i}; /* plain stores: the push must publish them */
        while (ring_push(r, &items[i]) != 0)
            sched_yield();
    }
    return NULL;
}

START_TEST(two_threads_hand_over_whole_items) {
    struct ring r;
    ck_assert_int_eq(ring_init(&r, 64), 0);
    pthread_t t;
    ck_assert_int_eq(pthread_create(&t, NULL, produce, &r), 0);
    for (int i = 0; i < ITEMS; i++) {
        struct item *it;
        while ((it = ring_pop(&r)) == NULL)
            sched_yield();
        ck_assert_uint_le(ring_count(&r), 64);
        ck_assert(it->a == i && it->b == ~i);
    }
    pthread_join(t, NULL);
    ck_assert_ptr_null(ring_pop(&r));
    ring_deinit(&r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ring");
    TCase *tc = tcase_create("ring");
    tcase_add_test(tc, order_and_capacity);
    tcase_add_test(tc, counters_wrap);
    tcase_add_test(tc, no_memory_is_reported);
    tcase_add_test(tc, two_threads_hand_over_whole_items);
    suite_add_tcase(s, tc);
    return test_run(s);
}
