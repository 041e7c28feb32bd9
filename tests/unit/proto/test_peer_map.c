/* Peers by number: stable, never reused soon, bounded by forgetting the one heard from longest ago. */
#include "proto/peer_map.h"

#include "base/hash.h"
#include "base/mem.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <string.h>

#define CHECK(m) ck_assert_msg(peer_map_check(m) == NULL, "%s", peer_map_check(m))

START_TEST(a_peer_keeps_its_number_until_dropped)
{
    struct peer_map *m;
    size_t n = 0;
    ck_assert_int_eq(peer_map_create(&m, 4), 0);
    uint32_t a = peer_map_touch(m, "\0ab", 3), b = peer_map_touch(m, "\0ac", 3);
    ck_assert_uint_ne(a, b);
    ck_assert_uint_ne(a, PEER_NONE);
    ck_assert_uint_eq(peer_map_touch(m, "\0ab", 3), a);
    ck_assert_mem_eq(peer_map_id(m, b, &n), "\0ac", 3);
    ck_assert_uint_eq(n, 3);
    peer_map_drop(m, a);
    peer_map_drop(m, a);
    ck_assert_ptr_null(peer_map_id(m, a, &n));
    ck_assert_ptr_null(peer_map_id(m, PEER_NONE, &n));
    ck_assert_ptr_null(peer_map_id(m, UINT32_MAX, &n));
    uint32_t again = peer_map_touch(m, "\0ab", 3);
    ck_assert_uint_ne(again, a); /* the same place, another number */
    ck_assert_uint_eq(peer_map_count(m), 2);
    CHECK(m);
    peer_map_destroy(&m);
    ck_assert_ptr_null(m);
}
END_TEST

START_TEST(over_capacity_the_longest_unheard_goes)
{
    struct peer_map *m;
    size_t n;
    ck_assert_int_eq(peer_map_create(&m, 3), 0);
    uint32_t a = peer_map_touch(m, "a", 1), b = peer_map_touch(m, "b", 1);
    uint32_t c = peer_map_touch(m, "c", 1);
    peer_map_touch(m, "a", 1);
    uint32_t d = peer_map_touch(m, "d", 1);
    ck_assert_ptr_null(peer_map_id(m, b, &n));
    ck_assert_ptr_nonnull(peer_map_id(m, a, &n));
    ck_assert_ptr_nonnull(peer_map_id(m, c, &n));
    ck_assert_ptr_nonnull(peer_map_id(m, d, &n));
    CHECK(m);
    peer_map_destroy(&m);
}
END_TEST

/* Strangers by the hundred thousand leave the table bounded and whole. */
START_TEST(random_steps_keep_the_invariants)
{
    struct peer_map *m;
    size_t before = mem_used(), n;
    uint32_t last[64] = {0};
    ck_assert_int_eq(peer_map_create(&m, 50), 0);
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t r = rand_at(42, i);
        uint32_t who = r % 64;
        char id[8];
        int len = snprintf(id, sizeof id, "%u", who);
        if ((r >> 20) % 4 == 0) {
            peer_map_drop(m, last[who]);
            ck_assert_ptr_null(peer_map_id(m, last[who], &n));
        } else {
            last[who] = peer_map_touch(m, id, (size_t)len);
            ck_assert_mem_eq(peer_map_id(m, last[who], &n), id, (size_t)len);
        }
        ck_assert_uint_le(peer_map_count(m), 50);
        if (i % 97 == 0)
            CHECK(m);
    }
    mem_fail_nth(1);
    ck_assert_uint_eq(peer_map_touch(m, "new", 3), PEER_NONE);
    CHECK(m);
    peer_map_destroy(&m);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

int main(void)
{
    printf("seed 42\n");
    Suite *s = suite_create("peer_map");
    TCase *tc = tcase_create("peer_map");
    tcase_add_test(tc, a_peer_keeps_its_number_until_dropped);
    tcase_add_test(tc, over_capacity_the_longest_unheard_goes);
    tcase_add_test(tc, random_steps_keep_the_invariants);
    suite_add_tcase(s, tc);
    return test_run(s);
}
