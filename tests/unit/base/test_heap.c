/* The heap against a plain array over seeded random operations, audited after each. */
#include "base/hash.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/mem.h"
#include "tests/common/test_run.h"

#include <stdio.h>

#define N 64

struct item {
    int key;
    struct heap_node node;
};

static int key_of(const struct heap_node *n) {
    return list_item(n, struct item, node)->key;
}

static bool less(const struct heap_node *a, const struct heap_node *b, void *ctx) {
    (*(int *)ctx)++;
    return key_of(a) < key_of(b);
}

static int smallest(const struct item *items) {
    int best = -1;
    for (int i = 0; i < N; i++)
        if (heap_linked(&items[i].node) && (best < 0 || items[i].key < items[best].key))
            best = i;
    return best;
}

START_TEST(random_operations_match_an_array) {
    uint64_t seed = 20260131;
    printf("seed %llu\n", (unsigned long long)seed);
    struct item items[N];
    struct heap h;
    int calls = 0;
    ck_assert_int_eq(heap_init(&h, N / 2, less, &calls), 0);
    for (int i = 0; i < N; i++)
        heap_node_init(&items[i].node);
    for (uint64_t step = 0; step < 20000; step++) {
        struct item *it = &items[rand_at(seed, 3 * step) % N];
        int key = (int)(rand_at(seed, 3 * step + 1) % 40);
        switch (rand_at(seed, 3 * step + 2) % 5) {
        case 0:
            if (heap_linked(&it->node))
                heap_remove(&h, &it->node);
            break;
        case 1:
            if (heap_linked(&it->node)) {
                it->key = key;
                heap_moved(&h, &it->node);
            }
            break;
        case 2: {
            struct heap_node *n = heap_pop(&h);
            ck_assert(n == NULL || !heap_linked(n));
            break;
        }
        default:
            if (!heap_linked(&it->node)) {
                it->key = key;
                bool full = h.count == N / 2;
                ck_assert_int_eq(heap_push(&h, &it->node), full ? -1 : 0);
                ck_assert(heap_linked(&it->node) == !full);
            }
        }
        ck_assert(heap_check(&h));
        int best = smallest(items);
        ck_assert((heap_top(&h) == NULL) == (best < 0));
        ck_assert(best < 0 || key_of(heap_top(&h)) == items[best].key);
    }
    ck_assert_int_gt(calls, 0);
    heap_deinit(&h);
}
END_TEST

START_TEST(the_auditor_sees_a_broken_order) {
    struct item items[3] = {{.key = 1}, {.key = 2}, {.key = 3}};
    struct heap h;
    int calls = 0;
    ck_assert_int_eq(heap_init(&h, 3, less, &calls), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(heap_push(&h, &items[i].node), 0);
    ck_assert(heap_check(&h));
    items[0].key = 9;
    ck_assert(!heap_check(&h));
    heap_moved(&h, &items[0].node);
    ck_assert(heap_check(&h));
    items[1].node.place = 7;
    ck_assert(!heap_check(&h));
    heap_deinit(&h);
    mem_fail_nth(1);
    ck_assert_int_eq(heap_init(&h, 3, less, &calls), -1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("heap");
    TCase *tc = tcase_create("heap");
    tcase_add_test(tc, random_operations_match_an_array);
    tcase_add_test(tc, the_auditor_sees_a_broken_order);
    suite_add_tcase(s, tc);
    return test_run(s);
}
