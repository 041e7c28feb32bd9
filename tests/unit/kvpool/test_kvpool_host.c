/* The host tier, one rule of kvpool.h per test. */
#include "base/mem.h"
#include "kvpool/kvpool.h"
#include "tests/common/test_run.h"

#include <string.h>

enum { BT = 4 };
static struct kvpool *pool;
static int32_t text[64];
static const struct hash128 root = {21, 22}, no_root = {0, 0};
static const struct kvpool_config cfg = {.n_blocks = 17,
                                         .block_tokens = BT,
                                         .max_seqs = 6,
                                         .max_seq_blocks = 8,
                                         .max_holds = 4,
                                         .n_host = 6,
                                         .max_copies = 3,
                                         .prefix_cache = true};

static void setup(void)
{
    pool = kvpool_init(mem_zalloc(kvpool_bytes(&cfg)), &cfg);
    for (int i = 0; i < 64; i++) text[i] = 100 + i;
}

static void teardown(void)
{
    const char *bad = kvpool_check(pool);
    ck_assert_msg(bad == NULL, "%s", bad);
    mem_free(pool);
}

static void compute(uint32_t seq, uint32_t n)
{
    ck_assert_int_eq(kvpool_reserve(pool, seq, n), 0);
    kvpool_commit(pool, seq, n);
}

static uint32_t computed(uint32_t n)
{
    uint32_t seq = kvpool_seq_open(pool);
    compute(seq, n);
    return seq;
}

/* Checkpoints all that can be. */
static uint32_t save(uint32_t seq)
{
    struct kv_copy k;
    uint32_t n = 0;
    for (; kvpool_checkpoint(pool, seq, &k); n++) ck_assert(kvpool_copy_end(pool, k.copy, true));
    return n;
}

static uint32_t swap_all(uint32_t seq)
{
    struct kv_copy k;
    uint32_t n = 0;
    for (; kvpool_swap_in(pool, seq, &k); n++) ck_assert(kvpool_copy_end(pool, k.copy, true));
    return n;
}

static int resume(uint32_t seq, uint32_t positions)
{
    return kvpool_resume(pool, seq, positions, no_root, NULL, 0);
}

START_TEST(test_checkpoint_takes_the_first_that_is_not_clean)
{
    uint32_t a = computed(14), n;
    struct kv_copy k, k2;
    ck_assert_uint_eq(kvpool_unclean(pool, a), 3); /* the fourth is not full */
    ck_assert(kvpool_checkpoint(pool, a, &k));
    ck_assert_uint_eq(k.block, kvpool_table(pool, a, &n)[0]);
    ck_assert(kvpool_checkpoint(pool, a, &k2));
    ck_assert_uint_eq(k2.block, kvpool_table(pool, a, &n)[1]); /* the first is on its way */
    ck_assert_uint_eq(kvpool_unclean(pool, a), 3);
    ck_assert_uint_eq(kvpool_stats(pool).host_busy, 2);
    ck_assert(kvpool_copy_end(pool, k2.copy, true));
    ck_assert_uint_eq(kvpool_unclean(pool, a), 2);
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert_uint_eq(save(a), 1);
    ck_assert_uint_eq(kvpool_unclean(pool, a), 0);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 3);
    ck_assert_uint_eq(kvpool_stats(pool).checkpoints, 3);
}
END_TEST

START_TEST(test_copies_run_out)
{
    uint32_t a = computed(20);
    struct kv_copy k[4];
    for (int i = 0; i < 3; i++) ck_assert(kvpool_checkpoint(pool, a, &k[i]));
    ck_assert(!kvpool_checkpoint(pool, a, &k[3]));
    for (int i = 0; i < 3; i++) ck_assert(kvpool_copy_end(pool, k[i].copy, true));
    ck_assert(kvpool_checkpoint(pool, a, &k[3]));
    ck_assert(kvpool_copy_end(pool, k[3].copy, true));
}
END_TEST

START_TEST(test_suspend_keeps_the_clean_front_alone)
{
    uint32_t a = computed(14);
    struct kv_copy k;
    ck_assert(kvpool_checkpoint(pool, a, &k));
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert(kvpool_checkpoint(pool, a, &k));
    ck_assert_uint_eq(kvpool_suspend(pool, a), 4); /* the second copy has not ended */
    ck_assert_uint_eq(kvpool_kept(pool, a), 4);
    ck_assert_uint_eq(kvpool_committed(pool, a), 0);
    ck_assert_uint_eq(kvpool_stats(pool).used, 0);
    ck_assert_uint_eq(kvpool_stats(pool).held, 1); /* by the copy in flight */
    ck_assert(kvpool_copy_end(pool, k.copy, true)); /* legal, and nobody's */
    ck_assert_uint_eq(kvpool_stats(pool).held, 0);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 5);
}
END_TEST

START_TEST(test_suspend_and_resume_with_swap_ins)
{
    uint32_t a = computed(14);
    struct kv_copy k;
    ck_assert_uint_eq(save(a), 3);
    ck_assert_uint_eq(kvpool_suspend(pool, a), 12);
    uint32_t b = computed(8 * BT); /* the device blocks are somebody else's now */
    ck_assert_int_eq(resume(a, 18), 0);
    ck_assert(kvpool_resuming(pool, a));
    ck_assert_uint_eq(kvpool_kept(pool, a), 0);
    ck_assert_uint_eq(kvpool_reserved(pool, a), 18);
    ck_assert(kvpool_swap_in(pool, a, &k));
    ck_assert_uint_eq(kvpool_committed(pool, a), 0);
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert_uint_eq(swap_all(a), 2);
    ck_assert(!kvpool_resuming(pool, a));
    ck_assert_uint_eq(kvpool_committed(pool, a), 12);
    ck_assert_uint_eq(kvpool_unclean(pool, a), 0); /* the slots are its blocks' again */
    ck_assert_uint_eq(kvpool_suspend(pool, a), 12);
    kvpool_seq_close(pool, b);
}
END_TEST

/* 14 positions are three blocks and two positions: all of it is kept, and comes back. */
START_TEST(test_a_tail_goes_and_comes_back)
{
    uint32_t a = computed(14);
    struct kv_copy out, k;
    ck_assert_uint_eq(save(a), 3);
    ck_assert_uint_eq(kvpool_suspend_tail(pool, a, &out), 14);
    ck_assert_uint_ne(out.copy, KV_COPY_NONE);
    ck_assert_uint_eq(kvpool_kept(pool, a), 14);
    ck_assert_uint_eq(kvpool_stats(pool).held, 1); /* the tail's block, by its copy */
    ck_assert_int_eq(resume(a, 14), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert(kvpool_swap_in(pool, a, &k));
        ck_assert(kvpool_copy_end(pool, k.copy, true));
    }
    ck_assert(!kvpool_swap_in(pool, a, &k)); /* its slot is being filled */
    ck_assert(kvpool_resuming(pool, a));
    ck_assert(kvpool_copy_end(pool, out.copy, true));
    ck_assert(kvpool_swap_in(pool, a, &k));
    ck_assert_uint_eq(k.slot, out.slot);
    ck_assert_uint_ne(k.block, out.block); /* that one was somebody's, or free, meanwhile */
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert(!kvpool_resuming(pool, a));
    ck_assert_uint_eq(kvpool_committed(pool, a), 14);
    ck_assert_int_eq(kvpool_reserve(pool, a, 16), 0);
    kvpool_commit(pool, a, 16); /* filled up, it is a block like any other */
    ck_assert_uint_eq(kvpool_unclean(pool, a), 1);
}
END_TEST

/* Its copy fails while the sequence is away, and while it is coming back. */
START_TEST(test_a_tail_that_is_lost)
{
    for (int back = 0; back < 2; back++) {
        uint32_t a = computed(14);
        struct kv_copy out;
        (void)save(a);
        ck_assert_uint_eq(kvpool_suspend_tail(pool, a, &out), 14);
        if (back) ck_assert_int_eq(resume(a, 14), 0);
        ck_assert(kvpool_copy_end(pool, out.copy, false));
        if (!back) {
            ck_assert_uint_eq(kvpool_kept(pool, a), 12);
            ck_assert_int_eq(resume(a, 14), 0);
        }
        ck_assert_uint_eq(swap_all(a), 3);
        ck_assert_uint_eq(kvpool_committed(pool, a), 12);
        kvpool_seq_close(pool, a);
    }
    /* no slot, no copy, a full block that is not clean, or nothing in the last block: as suspend */
    uint32_t b = computed(14);
    struct kv_copy none;
    ck_assert_uint_eq(kvpool_suspend_tail(pool, b, &none), 0);
    ck_assert_uint_eq(none.copy, KV_COPY_NONE);
    kvpool_seq_close(pool, b);
    b = computed(12);
    (void)save(b);
    ck_assert_uint_eq(kvpool_suspend_tail(pool, b, &none), 12);
    ck_assert_uint_eq(none.copy, KV_COPY_NONE);
    ck_assert_uint_eq(kvpool_stats(pool).copies, 0);
}
END_TEST

START_TEST(test_resume_is_all_or_nothing)
{
    uint32_t a = computed(12), size = (uint32_t)kvpool_bytes(&cfg);
    (void)save(a);
    (void)kvpool_suspend(pool, a);
    uint32_t b = computed(8 * BT), c = computed(6 * BT);
    char *before = mem_memdup(pool, size);
    ck_assert_int_eq(resume(a, 12), -1); /* two blocks left */
    ck_assert_mem_eq(before, pool, size);
    ck_assert_uint_eq(kvpool_kept(pool, a), 12);
    kvpool_seq_close(pool, c);
    ck_assert_int_eq(resume(a, 12), 0);
    kvpool_seq_close(pool, a);
    kvpool_seq_close(pool, b);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 6);
    mem_free(before);
}
END_TEST

START_TEST(test_resume_attaches_what_the_index_has)
{
    uint32_t a = computed(16);
    struct kv_copy k;
    kvpool_publish(pool, a, root, text, 1);
    for (int i = 0; i < 2; i++) {
        ck_assert(kvpool_checkpoint(pool, a, &k));
        ck_assert(kvpool_copy_end(pool, k.copy, true));
    }
    ck_assert_uint_eq(kvpool_suspend(pool, a), 8);
    ck_assert_uint_eq(kvpool_stats(pool).cached, 4);
    ck_assert_int_eq(kvpool_resume(pool, a, 20, root, text, 20), 0);
    ck_assert(!kvpool_resuming(pool, a)); /* nothing to copy */
    ck_assert_uint_eq(kvpool_committed(pool, a), 16); /* those behind the kept ones too */
    ck_assert_uint_eq(kvpool_stats(pool).swap_ins, 0);
    ck_assert_uint_eq(kvpool_unclean(pool, a), 2);
}
END_TEST

START_TEST(test_resume_copies_only_what_was_evicted)
{
    uint32_t a = computed(16);
    kvpool_publish(pool, a, root, text, 1);
    ck_assert_uint_eq(save(a), 4);
    (void)kvpool_suspend(pool, a);
    kvpool_shrink(pool, 2); /* two of the four cached blocks go, the deepest */
    kvpool_shrink(pool, 0);
    ck_assert_int_eq(kvpool_resume(pool, a, 20, root, text, 20), 0);
    ck_assert_uint_eq(kvpool_committed(pool, a), 8);
    ck_assert_uint_eq(swap_all(a), 2);
    ck_assert_uint_eq(kvpool_committed(pool, a), 16);
}
END_TEST

START_TEST(test_a_failed_swap_in_cuts_the_table)
{
    uint32_t a = computed(16), n;
    struct kv_copy k[3];
    ck_assert_uint_eq(save(a), 4);
    (void)kvpool_suspend(pool, a);
    ck_assert_int_eq(resume(a, 16), 0);
    for (int i = 0; i < 3; i++) ck_assert(kvpool_swap_in(pool, a, &k[i]));
    ck_assert(kvpool_copy_end(pool, k[2].copy, true));
    ck_assert(kvpool_copy_end(pool, k[1].copy, false));
    ck_assert(!kvpool_swap_in(pool, a, &k[1])); /* what lies behind is not worth a copy */
    ck_assert(kvpool_resuming(pool, a));
    ck_assert(kvpool_copy_end(pool, k[0].copy, true));
    ck_assert(!kvpool_resuming(pool, a));
    ck_assert_uint_eq(kvpool_committed(pool, a), 4);
    (void)kvpool_table(pool, a, &n);
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 5);
    ck_assert_uint_eq(kvpool_stats(pool).copy_failures, 1);
    compute(a, 16);
}
END_TEST

START_TEST(test_a_failed_checkpoint_is_tried_again_by_whoever_shares_it)
{
    uint32_t a = computed(8), b = kvpool_seq_open(pool), n;
    struct kv_copy k, k2;
    kvpool_publish(pool, a, root, text, 1);
    ck_assert_uint_eq(kvpool_attach(pool, b, root, text, 9), 8);
    ck_assert(kvpool_checkpoint(pool, a, &k));
    ck_assert(kvpool_checkpoint(pool, b, &k2)); /* the first is on its way, so the second */
    kvpool_seq_close(pool, a);
    ck_assert(kvpool_copy_end(pool, k.copy, false));
    ck_assert_uint_eq(kvpool_unclean(pool, b), 2);
    ck_assert(kvpool_checkpoint(pool, b, &k));
    ck_assert_uint_eq(k.block, kvpool_table(pool, b, &n)[0]);
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert(kvpool_copy_end(pool, k2.copy, true));
    ck_assert_uint_eq(kvpool_unclean(pool, b), 0);
}
END_TEST

START_TEST(test_a_copy_outlives_its_sequence)
{
    uint32_t a = computed(8);
    struct kv_copy k;
    ck_assert(kvpool_checkpoint(pool, a, &k));
    kvpool_seq_close(pool, a);
    ck_assert_uint_eq(kvpool_stats(pool).held, 1);
    uint32_t b = computed(8 * BT), c = computed(7 * BT), d = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, d, BT), -1); /* the sixteenth is being read */
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert_int_eq(kvpool_reserve(pool, d, BT), 0);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 6);
    kvpool_seq_close(pool, b);
    kvpool_seq_close(pool, c);
}
END_TEST

START_TEST(test_suspend_again_with_swap_ins_in_flight)
{
    uint32_t a = computed(12);
    struct kv_copy k, k2;
    ck_assert_uint_eq(save(a), 3);
    (void)kvpool_suspend(pool, a);
    ck_assert_int_eq(resume(a, 12), 0);
    ck_assert(kvpool_swap_in(pool, a, &k));
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert(kvpool_swap_in(pool, a, &k2));
    ck_assert_uint_eq(kvpool_suspend(pool, a), 12); /* there, on its way, not begun: all are kept */
    ck_assert_int_eq(resume(a, 12), 0);
    ck_assert(kvpool_copy_end(pool, k2.copy, false)); /* of the stay before: nobody's failure */
    ck_assert_uint_eq(swap_all(a), 3);
    ck_assert_uint_eq(kvpool_committed(pool, a), 12);
}
END_TEST

START_TEST(test_reset_and_close_let_slots_go)
{
    uint32_t a = computed(12), b = computed(12);
    struct kv_copy k;
    ck_assert_uint_eq(save(a), 3);
    ck_assert_uint_eq(save(b), 3);
    (void)kvpool_suspend(pool, a);
    (void)kvpool_suspend(pool, b);
    kvpool_reset(pool, a);
    ck_assert_uint_eq(kvpool_kept(pool, a), 0);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 3);
    ck_assert_int_eq(resume(b, 12), 0);
    ck_assert(kvpool_swap_in(pool, b, &k));
    kvpool_seq_close(pool, b);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 5); /* one is still read */
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 6);
}
END_TEST

START_TEST(test_a_cached_clean_block_gives_up_its_slot)
{
    uint32_t a = computed(8), b = computed(24);
    kvpool_publish(pool, a, root, text, 1);
    ck_assert_uint_eq(save(a), 2);
    ck_assert_uint_eq(save(b), 4); /* all six slots are taken, by blocks in use: they stay */
    ck_assert_uint_eq(kvpool_stats(pool).host_dropped, 0);
    kvpool_seq_close(pool, a);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 0);
    ck_assert_uint_eq(save(b), 2); /* in the place of what is only cached */
    ck_assert_uint_eq(kvpool_stats(pool).host_dropped, 2);
    ck_assert_uint_eq(kvpool_stats(pool).cached, 2); /* still there, only not clean */
}
END_TEST

START_TEST(test_slots_of_suspended_sequences_are_never_dropped)
{
    uint32_t a = computed(24), b = computed(8);
    struct kv_copy k;
    ck_assert_uint_eq(save(a), 6);
    ck_assert_uint_eq(kvpool_suspend(pool, a), 24);
    ck_assert(!kvpool_checkpoint(pool, b, &k));
    ck_assert_uint_eq(kvpool_stats(pool).host_dropped, 0);
}
END_TEST

START_TEST(test_two_suspended_sequences_list_one_slot)
{
    uint32_t a = computed(8), b = kvpool_seq_open(pool);
    kvpool_publish(pool, a, root, text, 1);
    ck_assert_uint_eq(kvpool_attach(pool, b, root, text, 9), 8);
    ck_assert_uint_eq(save(a), 2);
    ck_assert_uint_eq(kvpool_suspend(pool, a), 8);
    ck_assert_uint_eq(kvpool_suspend(pool, b), 8);
    ck_assert_uint_eq(kvpool_stats(pool).host_free, 4);
    kvpool_shrink(pool, 1);
    kvpool_shrink(pool, 0);
    kvpool_seq_close(pool, a);
    ck_assert_int_eq(resume(b, 9), 0); /* without asking the index: both are copied */
    ck_assert_uint_eq(swap_all(b), 2);
    ck_assert_uint_eq(kvpool_committed(pool, b), 8);
}
END_TEST

START_TEST(test_a_late_copy_shows)
{
    uint32_t a = computed(8);
    struct kv_copy k;
    ck_assert(kvpool_checkpoint(pool, a, &k));
    kvpool_debug_free_early(pool, k.block);
    ck_assert(!kvpool_copy_end(pool, k.copy, true));
    ck_assert_uint_eq(kvpool_unclean(pool, a), 2); /* its slot is not believed */
}
END_TEST

START_TEST(test_without_host_tier_suspend_is_reset)
{
    struct kvpool_config c = cfg;
    c.n_host = c.max_copies = 0;
    struct kvpool *p = kvpool_init(mem_zalloc(kvpool_bytes(&c)), &c);
    struct kv_copy k;
    uint32_t a = kvpool_seq_open(p);
    ck_assert_int_eq(kvpool_reserve(p, a, 8), 0);
    kvpool_commit(p, a, 8);
    ck_assert(!kvpool_checkpoint(p, a, &k));
    ck_assert_uint_eq(kvpool_suspend(p, a), 0);
    ck_assert_uint_eq(kvpool_stats(p).free, 16);
    ck_assert(!kvpool_swap_in(p, a, &k));
    mem_free(p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool_host");
    TCase *tc = tcase_create("rules");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_checkpoint_takes_the_first_that_is_not_clean);
    tcase_add_test(tc, test_copies_run_out);
    tcase_add_test(tc, test_suspend_keeps_the_clean_front_alone);
    tcase_add_test(tc, test_suspend_and_resume_with_swap_ins);
    tcase_add_test(tc, test_a_tail_goes_and_comes_back);
    tcase_add_test(tc, test_a_tail_that_is_lost);
    tcase_add_test(tc, test_resume_is_all_or_nothing);
    tcase_add_test(tc, test_resume_attaches_what_the_index_has);
    tcase_add_test(tc, test_resume_copies_only_what_was_evicted);
    tcase_add_test(tc, test_a_failed_swap_in_cuts_the_table);
    tcase_add_test(tc, test_a_failed_checkpoint_is_tried_again_by_whoever_shares_it);
    tcase_add_test(tc, test_a_copy_outlives_its_sequence);
    tcase_add_test(tc, test_suspend_again_with_swap_ins_in_flight);
    tcase_add_test(tc, test_reset_and_close_let_slots_go);
    tcase_add_test(tc, test_a_cached_clean_block_gives_up_its_slot);
    tcase_add_test(tc, test_slots_of_suspended_sequences_are_never_dropped);
    tcase_add_test(tc, test_two_suspended_sequences_list_one_slot);
    tcase_add_test(tc, test_a_late_copy_shows);
    tcase_add_test(tc, test_without_host_tier_suspend_is_reset);
    suite_add_tcase(s, tc);
    return test_run(s);
}
