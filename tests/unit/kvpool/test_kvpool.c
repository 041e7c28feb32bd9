/* kvpool's calls one by one: what each promises, and that a failed one leaves no trace. */
#include "base/mem.h"
#include "kvpool/kvpool.h"
#include "tests/common/test_run.h"

#include <stdlib.h>
#include <string.h>

static struct kvpool *pool;
static size_t pool_bytes;
static const struct kvpool_config cfg = {
    .n_blocks = 9, .block_tokens = 4, .max_seqs = 4, .max_seq_blocks = 6, .max_holds = 4};

static void setup(void)
{
    pool_bytes = kvpool_bytes(&cfg);
    ck_assert_uint_gt(pool_bytes, 0);
    pool = kvpool_init(mem_zalloc(pool_bytes), &cfg);
}

static void teardown(void)
{
    const char *bad = kvpool_check(pool);
    ck_assert_msg(bad == NULL, "%s", bad);
    mem_free(pool);
}

static uint32_t n_free(void)
{
    return kvpool_stats(pool).free;
}

START_TEST(test_absurd_configs)
{
    struct kvpool_config c = cfg;
    c.n_blocks = 1;
    ck_assert_uint_eq(kvpool_bytes(&c), 0);
    c = cfg;
    c.block_tokens = 0;
    ck_assert_uint_eq(kvpool_bytes(&c), 0);
    c = cfg;
    c.max_seqs = UINT32_MAX;
    ck_assert_uint_eq(kvpool_bytes(&c), 0);
}
END_TEST

START_TEST(test_reserve_is_all_or_nothing)
{
    uint32_t a = kvpool_seq_open(pool), b = kvpool_seq_open(pool), n;
    ck_assert_int_eq(kvpool_reserve(pool, a, 21), 0); /* 6 of 8 */
    (void)kvpool_table(pool, a, &n);
    ck_assert_uint_eq(n, 6);
    ck_assert_int_eq(kvpool_reserve(pool, b, 4), 0);
    char *before = mem_memdup(pool, pool_bytes);
    ck_assert(!kvpool_fits(pool, b, 9, 0));
    ck_assert_int_eq(kvpool_reserve(pool, b, 13), -1);
    ck_assert_mem_eq(before, pool, pool_bytes); /* no trace */
    ck_assert(kvpool_fits(pool, b, 8, 0));
    ck_assert(!kvpool_fits(pool, b, 8, 1));
    ck_assert_int_eq(kvpool_reserve(pool, b, 8), 0);
    ck_assert_uint_eq(n_free(), 0);
    ck_assert_int_eq(kvpool_reserve(pool, b, 3), 0); /* covered already */
    ck_assert_uint_eq(kvpool_reserved(pool, b), 8);
    mem_free(before);
}
END_TEST

START_TEST(test_table_has_a_limit)
{
    uint32_t a = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, a, 25), -1); /* 7 blocks, longest table 6 */
    ck_assert_int_eq(kvpool_reserve(pool, a, UINT32_MAX), -1);
    ck_assert_int_eq(kvpool_reserve(pool, a, 24), 0);
}
END_TEST

START_TEST(test_sequences_run_out)
{
    uint32_t ids[4];
    for (int i = 0; i < 4; i++) ck_assert_uint_ne(ids[i] = kvpool_seq_open(pool), KV_SEQ_NONE);
    ck_assert_uint_eq(kvpool_seq_open(pool), KV_SEQ_NONE);
    kvpool_seq_close(pool, ids[2]);
    ck_assert_uint_eq(kvpool_seq_open(pool), ids[2]);
    ck_assert_uint_eq(kvpool_committed(pool, ids[2]), 0);
}
END_TEST

START_TEST(test_block_zero_is_never_given_out)
{
    uint32_t a = kvpool_seq_open(pool), b = kvpool_seq_open(pool), n;
    ck_assert_int_eq(kvpool_reserve(pool, a, 24), 0);
    ck_assert_int_eq(kvpool_reserve(pool, b, 8), 0);
    const uint32_t *t = kvpool_table(pool, a, &n);
    for (uint32_t i = 0; i < n; i++) ck_assert_uint_ne(t[i], 0);
    ck_assert(!kvpool_ref_valid(pool, kvpool_ref(pool, 0)));
}
END_TEST

START_TEST(test_held_blocks_are_not_given_out)
{
    uint32_t a = kvpool_seq_open(pool), n;
    ck_assert_int_eq(kvpool_reserve(pool, a, 24), 0);
    uint32_t first = kvpool_table(pool, a, &n)[0];
    uint32_t h = kvpool_hold(pool, a);
    ck_assert_uint_ne(h, KV_HOLD_NONE);
    kvpool_seq_close(pool, a);
    struct kvpool_stats st = kvpool_stats(pool);
    ck_assert_uint_eq(st.held, 6);
    ck_assert_uint_eq(st.free, 2);
    uint32_t b = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, b, 12), -1); /* the engine may still write the six */
    ck_assert(kvpool_ref_valid(pool, kvpool_ref(pool, first)));
    kvpool_unhold(pool, h);
    ck_assert_uint_eq(n_free(), 8);
    ck_assert_int_eq(kvpool_reserve(pool, b, 12), 0);
}
END_TEST

START_TEST(test_two_holds_on_one_block)
{
    uint32_t a = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, a, 4), 0);
    uint32_t h1 = kvpool_hold(pool, a), h2 = kvpool_hold(pool, a);
    kvpool_reset(pool, a);
    kvpool_unhold(pool, h1);
    ck_assert_uint_eq(kvpool_stats(pool).held, 1);
    kvpool_unhold(pool, h2);
    ck_assert_uint_eq(kvpool_stats(pool).held, 0);
    ck_assert_uint_eq(n_free(), 8);
}
END_TEST

START_TEST(test_holds_run_out)
{
    uint32_t a = kvpool_seq_open(pool), h[4];
    for (int i = 0; i < 4; i++) ck_assert_uint_ne(h[i] = kvpool_hold(pool, a), KV_HOLD_NONE);
    ck_assert_uint_eq(kvpool_hold(pool, a), KV_HOLD_NONE);
    kvpool_unhold(pool, h[1]);
    ck_assert_uint_eq(kvpool_hold(pool, a), h[1]);
}
END_TEST

START_TEST(test_generations_catch_stale_references)
{
    uint32_t a = kvpool_seq_open(pool), n;
    ck_assert_int_eq(kvpool_reserve(pool, a, 4), 0);
    struct kv_ref r = kvpool_ref(pool, kvpool_table(pool, a, &n)[0]);
    ck_assert(kvpool_ref_valid(pool, r));
    kvpool_reset(pool, a);
    ck_assert(!kvpool_ref_valid(pool, r));
    ck_assert_int_eq(kvpool_reserve(pool, a, 4), 0); /* last in, first out: the same block */
    ck_assert_uint_eq(kvpool_table(pool, a, &n)[0], r.id);
    ck_assert(!kvpool_ref_valid(pool, r));
    ck_assert(!kvpool_ref_valid(pool, (struct kv_ref){.id = 1000, .generation = 0}));
}
END_TEST

START_TEST(test_commit_and_forget)
{
    uint32_t a = kvpool_seq_open(pool), n;
    ck_assert_int_eq(kvpool_reserve(pool, a, 20), 0);
    kvpool_commit(pool, a, 7);
    kvpool_forget(pool, a, 30); /* nothing there */
    ck_assert_uint_eq(kvpool_reserved(pool, a), 20);
    kvpool_forget(pool, a, 9);
    (void)kvpool_table(pool, a, &n);
    ck_assert_uint_eq(n, 3);
    ck_assert_uint_eq(kvpool_reserved(pool, a), 9);
    kvpool_forget(pool, a, 7);
    (void)kvpool_table(pool, a, &n);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(kvpool_committed(pool, a), 7);
    ck_assert_uint_eq(n_free(), 6);
}
END_TEST

START_TEST(test_shrink_limits_what_is_in_use)
{
    uint32_t a = kvpool_seq_open(pool), b = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, a, 8), 0);
    kvpool_shrink(pool, 3);
    ck_assert_uint_eq(n_free(), 1);
    ck_assert_int_eq(kvpool_reserve(pool, b, 8), -1);
    ck_assert_int_eq(kvpool_reserve(pool, b, 4), 0);
    kvpool_shrink(pool, 1); /* less than in use now: nothing more until some is given back */
    ck_assert_uint_eq(n_free(), 0);
    kvpool_reset(pool, a);
    ck_assert_uint_eq(n_free(), 0);
    kvpool_shrink(pool, 0);
    ck_assert_uint_eq(n_free(), 7);
}
END_TEST

START_TEST(test_a_copy_of_the_region_is_a_pool)
{
    uint32_t a = kvpool_seq_open(pool), n;
    ck_assert_int_eq(kvpool_reserve(pool, a, 9), 0);
    struct kvpool *twin = mem_memdup(pool, pool_bytes);
    kvpool_reset(pool, a);
    ck_assert_uint_eq(kvpool_reserved(twin, a), 9);
    (void)kvpool_table(twin, a, &n);
    ck_assert_uint_eq(n, 3);
    ck_assert_ptr_null(kvpool_check(twin));
    mem_free(twin);
}
END_TEST

/* The auditor must be able to say no: one word of each kind is spoilt in a copy of a busy pool. */
START_TEST(test_the_auditor_sees_spoilt_words)
{
    uint32_t a = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, a, 9), 0);
    (void)kvpool_hold(pool, a);
    uint32_t *words = (uint32_t *)pool, caught = 0, n_words = (uint32_t)(pool_bytes / 4);
    for (uint32_t i = (uint32_t)(sizeof(struct kvpool_config) / 4); i < n_words; i++) {
        uint32_t old = words[i];
        if (old == 0 || old > 64)
            continue; /* offsets stay: they are no invariant of the auditor's */
        words[i] = old == 1 ? 2 : old - 1;
        caught += kvpool_check(pool) != NULL;
        words[i] = old;
    }
    printf("spoilt words caught: %u\n", caught);
    ck_assert_uint_ge(caught, 12);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool");
    TCase *tc = tcase_create("calls");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_absurd_configs);
    tcase_add_test(tc, test_reserve_is_all_or_nothing);
    tcase_add_test(tc, test_table_has_a_limit);
    tcase_add_test(tc, test_sequences_run_out);
    tcase_add_test(tc, test_block_zero_is_never_given_out);
    tcase_add_test(tc, test_held_blocks_are_not_given_out);
    tcase_add_test(tc, test_two_holds_on_one_block);
    tcase_add_test(tc, test_holds_run_out);
    tcase_add_test(tc, test_generations_catch_stale_references);
    tcase_add_test(tc, test_commit_and_forget);
    tcase_add_test(tc, test_shrink_limits_what_is_in_use);
    tcase_add_test(tc, test_a_copy_of_the_region_is_a_pool);
    tcase_add_test(tc, test_the_auditor_sees_spoilt_words);
    suite_add_tcase(s, tc);
    return test_run(s);
}
