/* Prefix cache, accounts and quota, one rule of kvpool.h per test. */
#include "base/mem.h"
#include "kvpool/kvpool_impl.h"
#include "tests/common/test_run.h"

#include <string.h>

enum { BT = 4 };
static struct kvpool *pool;
static int32_t text[64], other[64];
static const struct hash128 root = {11, 12}, root2 = {13, 14};
static const struct kvpool_config cfg = {.n_blocks = 9,
                                         .block_tokens = BT,
                                         .max_seqs = 6,
                                         .max_seq_blocks = 8,
                                         .max_holds = 4,
                                         .max_accounts = 2,
                                         .prefix_cache = true};

static void setup(void)
{
    pool = kvpool_init(mem_zalloc(kvpool_bytes(&cfg)), &cfg);
    for (int i = 0; i < 64; i++) {
        text[i] = 100 + i;
        other[i] = i < 6 ? text[i] : 500 + i;
    }
}

static void teardown(void)
{
    const char *bad = kvpool_check(pool);
    ck_assert_msg(bad == NULL, "%s", bad);
    mem_free(pool);
}

/* A sequence that computed and published the first n positions of ids. */
static uint32_t computed(const int32_t *ids, uint32_t n, struct hash128 r, uint8_t rank)
{
    uint32_t seq = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, seq, n), 0);
    kvpool_commit(pool, seq, n);
    kvpool_publish(pool, seq, r, ids, rank);
    return seq;
}

static uint32_t block_of(uint32_t seq, uint32_t at)
{
    uint32_t n;
    const uint32_t *t = kvpool_table(pool, seq, &n);
    ck_assert_uint_lt(at, n);
    return t[at];
}

START_TEST(test_a_second_sequence_takes_the_same_blocks)
{
    uint32_t a = computed(text, 11, root, 1), b = kvpool_seq_open(pool);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 30), 8); /* the third block is not full */
    ck_assert_uint_eq(kvpool_attach(pool, b, root, text, 30), 8);
    ck_assert_uint_eq(kvpool_committed(pool, b), 8);
    ck_assert_uint_eq(kvpool_reserved(pool, b), 8);
    ck_assert_uint_eq(block_of(b, 0), block_of(a, 0));
    ck_assert_uint_eq(kvpool_stats(pool).used, 3);
    ck_assert_uint_eq(kvpool_stats(pool).hits, 2);
    ck_assert_uint_eq(kvpool_stats(pool).misses, 5); /* of 7 full blocks of 29 ids */
}
END_TEST

START_TEST(test_one_input_is_left_to_compute)
{
    (void)computed(text, 8, root, 1);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 8), 4);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 9), 8);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 0), 0);
}
END_TEST

START_TEST(test_another_root_or_other_ids_find_nothing)
{
    (void)computed(text, 12, root, 1);
    ck_assert_uint_eq(kvpool_match(pool, root2, text, 20), 0);
    ck_assert_uint_eq(kvpool_match(pool, root, other, 20), 4); /* they part at position 6 */
    ck_assert_uint_eq(kvpool_match(pool, root, text + BT, 20), 0); /* same ids, other place */
}
END_TEST

START_TEST(test_uncommitted_positions_are_not_published)
{
    uint32_t a = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, a, 12), 0);
    kvpool_commit(pool, a, 7);
    kvpool_publish(pool, a, root, text, 1);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 20), 4);
    kvpool_commit(pool, a, 8);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 20), 4); /* not before publish says so */
    kvpool_publish(pool, a, root, text, 1);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 20), 8);
}
END_TEST

/* A collision cannot be computed, so the name of one block is given the hash of the other's ids. */
START_TEST(test_a_collision_of_the_hash_is_a_miss)
{
    uint32_t a = computed(text, 4, root, 1), block = block_of(a, 0);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 9), 4);
    int32_t *ids = kv_ids(pool) + (size_t)block * BT, kept = ids[3];
    ids[3]++;
    ck_assert_uint_eq(kvpool_match(pool, root, text, 9), 0);
    ids[3] = kept;
    kv_names(pool)[block].parent.hi++;
    ck_assert_uint_eq(kvpool_match(pool, root, text, 9), 0);
    kv_names(pool)[block].parent.hi--;
    ck_assert_uint_eq(kvpool_match(pool, root, text, 9), 4);
}
END_TEST

START_TEST(test_a_block_whose_name_is_taken_stays_private)
{
    uint32_t a = computed(text, 4, root, 1), b = computed(text, 4, root, 1);
    ck_assert_uint_ne(block_of(a, 0), block_of(b, 0));
    kvpool_seq_close(pool, b);
    ck_assert_uint_eq(kvpool_stats(pool).cached, 0); /* freed, not kept twice */
    kvpool_seq_close(pool, a);
    ck_assert_uint_eq(kvpool_stats(pool).cached, 1);
}
END_TEST

START_TEST(test_unused_published_blocks_stay_and_count_as_room)
{
    uint32_t a = computed(text, 16, root, 1);
    struct kv_ref r = kvpool_ref(pool, block_of(a, 1));
    kvpool_seq_close(pool, a);
    struct kvpool_stats st = kvpool_stats(pool);
    ck_assert_uint_eq(st.cached, 4);
    ck_assert_uint_eq(st.free, 4);
    ck_assert(kvpool_ref_valid(pool, r)); /* its bytes are still there */
    uint32_t b = kvpool_seq_open(pool);
    ck_assert(kvpool_fits(pool, b, 8 * BT, 0));
    ck_assert(!kvpool_fits(pool, b, 8 * BT, 1));
    ck_assert_int_eq(kvpool_reserve(pool, b, 8 * BT), 0);
    ck_assert_uint_eq(kvpool_stats(pool).evictions, 4);
    ck_assert(!kvpool_ref_valid(pool, r));
    ck_assert_uint_eq(kvpool_match(pool, root, text, 20), 0);
}
END_TEST

START_TEST(test_the_deepest_of_a_sequence_is_evicted_first)
{
    uint32_t a = computed(text, 16, root, 1), h = kvpool_hold(pool, a);
    kvpool_seq_close(pool, a);
    kvpool_unhold(pool, h); /* the same when a step in flight kept them longer */
    for (uint32_t left = 4; left > 0; left--) {
        kvpool_shrink(pool, left);
        ck_assert_uint_eq(kvpool_match(pool, root, text, 20), left * BT);
    }
}
END_TEST

START_TEST(test_reuse_and_rank_outweigh_age)
{
    uint32_t plain = computed(text, 4, root, 1);
    uint32_t urgent = computed(text + 8, 4, root, 0), hit = computed(text + 16, 4, root, 1);
    uint32_t again = kvpool_seq_open(pool);
    ck_assert_uint_eq(kvpool_attach(pool, again, root, text + 16, 5), 4);
    kvpool_seq_close(pool, again);
    kvpool_seq_close(pool, urgent);
    kvpool_seq_close(pool, hit);
    kvpool_seq_close(pool, plain); /* used last, and worth least */
    kvpool_shrink(pool, 2);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 5), 0);
    kvpool_shrink(pool, 1); /* of equal ones the one that was never hit */
    ck_assert_uint_eq(kvpool_match(pool, root, text + 8, 5), 0);
    ck_assert_uint_eq(kvpool_match(pool, root, text + 16, 5), 4);
}
END_TEST

/* The bonus is n_blocks ticks of the clock: after as many blocks given out, age wins. */
START_TEST(test_a_bonus_wears_off)
{
    uint32_t urgent = computed(text, 4, root, 0), x = kvpool_seq_open(pool);
    kvpool_seq_close(pool, urgent);
    for (uint32_t i = 0; i < cfg.n_blocks + 1; i++) {
        ck_assert_int_eq(kvpool_reserve(pool, x, BT), 0);
        kvpool_reset(pool, x);
    }
    kvpool_seq_close(pool, computed(text + 8, 4, root, 1));
    kvpool_shrink(pool, 1);
    ck_assert_uint_eq(kvpool_match(pool, root, text, 5), 0);
    ck_assert_uint_eq(kvpool_match(pool, root, text + 8, 5), 4);
}
END_TEST

START_TEST(test_a_fork_shares_full_blocks_and_owns_its_tail)
{
    uint32_t a = computed(text, 10, root, 1), b = kvpool_seq_open(pool);
    ck_assert_uint_eq(kvpool_attach(pool, b, root, text, 11), 8);
    ck_assert_int_eq(kvpool_reserve(pool, b, 11), 0);
    ck_assert_uint_ne(block_of(a, 2), block_of(b, 2));
    ck_assert_uint_eq(kvpool_own_blocks(pool, b), 1);
    kvpool_seq_close(pool, a);
    ck_assert_uint_eq(kvpool_own_blocks(pool, b), 3);
    ck_assert_uint_eq(kvpool_stats(pool).used, 3);
}
END_TEST

START_TEST(test_without_prefix_cache_nothing_is_named)
{
    struct kvpool_config c = cfg;
    c.prefix_cache = false;
    ck_assert_uint_lt(kvpool_bytes(&c), kvpool_bytes(&cfg));
    struct kvpool *p = kvpool_init(mem_zalloc(kvpool_bytes(&c)), &c);
    uint32_t a = kvpool_seq_open(p), b = kvpool_seq_open(p);
    ck_assert_int_eq(kvpool_reserve(p, a, 8), 0);
    kvpool_commit(p, a, 8);
    kvpool_publish(p, a, root, text, 1);
    ck_assert_uint_eq(kvpool_match(p, root, text, 9), 0);
    ck_assert_uint_eq(kvpool_attach(p, b, root, text, 9), 0);
    kvpool_seq_close(p, a);
    ck_assert_uint_eq(kvpool_stats(p).free, 8);
    mem_free(p);
}
END_TEST

START_TEST(test_a_block_counts_to_the_account_that_took_it)
{
    uint32_t a = kvpool_seq_open(pool), b = kvpool_seq_open(pool);
    kvpool_seq_account(pool, b, 1, 0);
    ck_assert_int_eq(kvpool_reserve(pool, a, 8), 0);
    kvpool_commit(pool, a, 8);
    kvpool_publish(pool, a, root, text, 1);
    ck_assert_uint_eq(kvpool_attach(pool, b, root, text, 9), 8);
    ck_assert_uint_eq(kvpool_account_blocks(pool, 0), 2);
    ck_assert_uint_eq(kvpool_account_blocks(pool, 1), 0);
    kvpool_seq_close(pool, a); /* still used, still counted to the first */
    ck_assert_uint_eq(kvpool_account_blocks(pool, 0), 2);
    kvpool_seq_close(pool, b);
    ck_assert_uint_eq(kvpool_account_blocks(pool, 0), 0); /* cached: to nobody */
    b = kvpool_seq_open(pool);
    kvpool_seq_account(pool, b, 1, 0);
    ck_assert_uint_eq(kvpool_attach(pool, b, root, text, 9), 8);
    ck_assert_uint_eq(kvpool_account_blocks(pool, 1), 2);
}
END_TEST

START_TEST(test_a_quota_is_not_passed)
{
    uint32_t a = kvpool_seq_open(pool), b = kvpool_seq_open(pool);
    kvpool_seq_account(pool, a, 1, 3);
    kvpool_seq_account(pool, b, 1, 3);
    ck_assert_int_eq(kvpool_reserve(pool, a, 8), 0);
    ck_assert(!kvpool_fits(pool, b, 8, 0));
    ck_assert_int_eq(kvpool_reserve(pool, b, 8), -1);
    ck_assert_uint_eq(kvpool_reserved(pool, b), 0);
    ck_assert_int_eq(kvpool_reserve(pool, b, 4), 0);
    kvpool_seq_close(pool, a);
    ck_assert_int_eq(kvpool_reserve(pool, b, 12), 0);
    kvpool_seq_close(pool, b);
    kvpool_seq_close(pool, computed(text, 12, root, 1));
    b = kvpool_seq_open(pool);
    kvpool_seq_account(pool, b, 1, 2);
    ck_assert_uint_eq(kvpool_attach(pool, b, root, text, 13), 8); /* stops where it would pass */
}
END_TEST

START_TEST(test_a_held_block_given_away_shows)
{
    uint32_t a = computed(text, 8, root, 1), h = kvpool_hold(pool, a);
    struct kv_ref r = kvpool_ref(pool, block_of(a, 1));
    ck_assert(kvpool_hold_valid(pool, h));
    kvpool_debug_free_early(pool, r.id);
    ck_assert(!kvpool_hold_valid(pool, h));
    ck_assert(!kvpool_ref_valid(pool, r));
}
END_TEST

START_TEST(test_the_same_calls_make_the_same_bytes)
{
    struct kvpool *twin = mem_memdup(pool, kvpool_bytes(&cfg)), *first = pool;
    for (int i = 0; i < 2; i++) {
        pool = i == 0 ? first : twin;
        uint32_t a = computed(text, 12, root, 1), b = kvpool_seq_open(pool);
        (void)kvpool_attach(pool, b, root, other, 20);
        kvpool_seq_close(pool, a);
        ck_assert_int_eq(kvpool_reserve(pool, b, 8 * BT), 0);
    }
    pool = first;
    ck_assert_mem_eq(first, twin, kvpool_bytes(&cfg));
    mem_free(twin);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool_prefix");
    TCase *tc = tcase_create("rules");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_a_second_sequence_takes_the_same_blocks);
    tcase_add_test(tc, test_one_input_is_left_to_compute);
    tcase_add_test(tc, test_another_root_or_other_ids_find_nothing);
    tcase_add_test(tc, test_uncommitted_positions_are_not_published);
    tcase_add_test(tc, test_a_collision_of_the_hash_is_a_miss);
    tcase_add_test(tc, test_a_block_whose_name_is_taken_stays_private);
    tcase_add_test(tc, test_unused_published_blocks_stay_and_count_as_room);
    tcase_add_test(tc, test_the_deepest_of_a_sequence_is_evicted_first);
    tcase_add_test(tc, test_reuse_and_rank_outweigh_age);
    tcase_add_test(tc, test_a_bonus_wears_off);
    tcase_add_test(tc, test_a_fork_shares_full_blocks_and_owns_its_tail);
    tcase_add_test(tc, test_without_prefix_cache_nothing_is_named);
    tcase_add_test(tc, test_a_block_counts_to_the_account_that_took_it);
    tcase_add_test(tc, test_a_quota_is_not_passed);
    tcase_add_test(tc, test_a_held_block_given_away_shows);
    tcase_add_test(tc, test_the_same_calls_make_the_same_bytes);
    suite_add_tcase(s, tc);
    return test_run(s);
}
