/* worker_core's host tier: checkpoints, suspension, resume by copies or by computing, faults. */
#include "tests/unit/scheduler/wfix.h"

static void setup(void)
{
    wfix_config();
    cfg.pool.n_host = VW_HOST;
    cfg.pool.max_copies = 8;
    cfg.pool.n_blocks = 33; /* 128 positions */
    wfix_start();
}

static void restart(void)
{
    wfix_stop();
    wfix_start();
}

/* A batch sequence that has run for a while, and a real-time one that needs its blocks. */
static struct sub_id batch, urgent;

static void push_out(uint32_t segments)
{
    batch = wfix_submit(CLASS_BATCH, 1, 60, 40);
    wfix_run(segments);
    urgent = wfix_submit(CLASS_REALTIME, 2, 100, 4);
    while (wfix_last(urgent) == NULL) ck_assert(wfix_segment());
    ck_assert_uint_eq(wfix_stats().preemptions, 1);
}

static void all_ends(void)
{
    wfix_run(40000);
    wfix_expect_indexes(batch, 60, 100);
    wfix_expect_indexes(urgent, 100, 104);
    struct worker_stats st = wfix_stats();
    ck_assert_uint_eq(st.pool.free + st.pool.cached, st.pool.total);
    ck_assert_uint_eq(st.pool.seqs, 0);
    ck_assert_uint_eq(st.pool.host_busy, 0);
}

START_TEST(test_clean_blocks_come_back)
{
    push_out(120);
    ck_assert_uint_gt(w->copied[1], 10);
    all_ends();
    struct worker_stats st = wfix_stats();
    ck_assert_uint_eq(st.resumed_swap, 1);
    ck_assert_uint_eq(st.resumed_recompute, 0);
    ck_assert_uint_gt(st.swap_in_positions, 50);
    ck_assert_uint_eq(st.account[CLASS_BATCH].recomputed, 0); /* the partly filled block came, too */
}
END_TEST

/* The tail's copy fails, or ends late: its positions are computed again, and only those. */
START_TEST(test_a_tail_that_did_not_get_there)
{
    for (uint32_t at = 0; at < 12; at++) {
        restart();
        batch = wfix_submit(CLASS_BATCH, 1, 60, 40);
        wfix_run(120 + at);
        urgent = wfix_submit(CLASS_REALTIME, 2, 100, 4);
        while (wfix_stats().preemptions == 0) ck_assert(wfix_segment());
        w->fail_next_copy = true; /* what is in flight now, or the next one */
        all_ends();
        struct worker_stats st = wfix_stats();
        ck_assert_uint_le(st.pool.copy_failures, 1);
        if (st.pool.copy_failures == 0) w->fail_next_copy = false;
        ck_assert_uint_eq(st.faults, 0);
    }
}
END_TEST

/* Pushed out again and again, copies ending at any time: nothing but tails is computed twice. */
START_TEST(test_often_pushed_out)
{
    struct sub_id b[2], r;
    for (uint64_t i = 0; i < 2; i++) b[i] = wfix_submit(CLASS_BATCH, 10 + i, 40, 22);
    for (uint32_t k = 0; k < 12; k++) {
        wfix_run(35 + k);
        r = wfix_submit(CLASS_REALTIME, 100 + k, 110, 2);
        while (wfix_finish(r) == FINISH_NONE) ck_assert(wfix_segment());
    }
    wfix_run(40000);
    for (int i = 0; i < 2; i++) wfix_expect_indexes(b[i], 40, 62);
    ck_assert_uint_gt(wfix_stats().resumed_swap, 4);
}
END_TEST

START_TEST(test_a_bad_copy_is_computed_again)
{
    push_out(120);
    w->fail_next_copy = true;
    all_ends();
    ck_assert_uint_eq(wfix_stats().pool.copy_failures, 1);
    ck_assert_uint_eq(wfix_stats().faults, 0);
    ck_assert_uint_gt(wfix_stats().account[CLASS_BATCH].recomputed, 0);
}
END_TEST

/* Copies that never end: the urgent one gets its blocks all the same. */
START_TEST(test_realtime_waits_for_no_copy)
{
    for (uint32_t at = 0; at < 30; at++) {
        restart();
        batch = wfix_submit(CLASS_BATCH, 1, 60, 40);
        wfix_run(40 + at);
        w->hold_copies = true;
        urgent = wfix_submit(CLASS_REALTIME, 2, 90, 4); /* 24 blocks of 32; 2 are being copied */
        uint32_t n = 0;
        while (wfix_last(urgent) == NULL && n++ < 60) ck_assert(wfix_segment());
        ck_assert_ptr_nonnull(wfix_last(urgent));
        w->hold_copies = false;
        wfix_run(40000);
        wfix_expect_indexes(batch, 60, 100);
        wfix_expect_indexes(urgent, 90, 94);
    }
}
END_TEST

/* Its copies are under way while others step; it is in no step before the last one ended. */
START_TEST(test_prefetched_beside_a_step)
{
    cfg.pool.n_blocks = 51;
    restart();
    struct sub_id other = wfix_submit(CLASS_BATCH, 9, 8, 100);
    batch = wfix_submit(CLASS_BATCH, 1, 60, 40);
    wfix_run(120);
    urgent = wfix_submit(CLASS_REALTIME, 2, 124, 1);
    while (wfix_finish(urgent) == FINISH_NONE) ck_assert(wfix_segment());
    w->hold_copies = true;
    uint64_t steps = w->submitted[1];
    wfix_run(60);
    ck_assert_uint_gt(w->submitted[1], steps + 2); /* the other one steps */
    ck_assert_uint_gt(w->n_copies, 0);
    w->hold_copies = false;
    wfix_run(40000);
    wfix_expect_indexes(other, 8, 108);
    wfix_expect_indexes(batch, 60, 100);
    ck_assert_uint_ge(wfix_stats().resumed_swap, 1);
}
END_TEST

/* Pushed out again while its blocks are coming. */
START_TEST(test_pushed_out_while_it_resumes)
{
    push_out(120);
    while (wfix_finish(urgent) == FINISH_NONE) ck_assert(wfix_segment());
    w->hold_copies = true;
    wfix_run(5);
    ck_assert_uint_gt(w->n_copies, 0);
    struct sub_id again = wfix_submit(CLASS_REALTIME, 3, 90, 2);
    w->hold_copies = false;
    wfix_run(40000);
    wfix_expect_indexes(again, 90, 92);
    all_ends();
}
END_TEST

START_TEST(test_cancelled_while_suspended_and_while_it_resumes)
{
    for (uint32_t late = 0; late < 2; late++) {
        restart();
        push_out(120);
        if (late) {
            while (wfix_finish(urgent) == FINISH_NONE) ck_assert(wfix_segment());
            w->hold_copies = true;
            wfix_run(5);
            ck_assert_uint_gt(w->n_copies, 0);
        }
        wfix_link(WE_CANCEL, batch, 0);
        w->hold_copies = false;
        wfix_run(40000);
        struct worker_stats st = wfix_stats();
        ck_assert_uint_eq(st.pool.free, st.pool.total);
        ck_assert_uint_eq(st.pool.host_free, st.pool.host_total);
        ck_assert_uint_eq(vw_used(w), 1);
    }
}
END_TEST

/* The cheaper way back, as the learned times say. */
static void by_times(uint64_t copy_ns)
{
    double start[COST_FEATURES] = {[COST_ONE] = 1e6, [COST_FIRST] = 1e5, [COST_SPILL] = 1e5};
    step_cost_init(&cfg.cost, start);
    cfg.copy_ns = copy_ns;
    restart();
    w->step_ns = 1000000;
    w->token_ns = 100000;
    w->copy_ns = copy_ns;
    push_out(120);
    all_ends();
}

START_TEST(test_resume_as_the_times_say)
{
    by_times(50000); /* a block of 4 positions costs 400 us to compute */
    ck_assert_uint_eq(wfix_stats().resumed_swap, 1);
    by_times(4000000);
    ck_assert_uint_eq(wfix_stats().resumed_swap, 0);
    ck_assert_uint_eq(wfix_stats().resumed_recompute, 1);
}
END_TEST

/* What is on the host is not lost, so the one with more of it falls first. */
START_TEST(test_victim_by_lost_work)
{
    cfg.pool.n_blocks = 65;
    restart();
    struct sub_id clean = wfix_submit(CLASS_BATCH, 1, 60, 60);
    wfix_run(200);
    w->hold_copies = true; /* the second one stays dirty */
    struct sub_id dirty = wfix_submit(CLASS_BATCH, 2, 40, 60);
    wfix_run(60);
    uint64_t before = wfix_stats().account[CLASS_BATCH].recomputed;
    urgent = wfix_submit(CLASS_REALTIME, 3, 90, 2);
    while (wfix_last(urgent) == NULL) ck_assert(wfix_segment());
    w->hold_copies = false;
    wfix_run(40000);
    wfix_expect_indexes(clean, 60, 120);
    wfix_expect_indexes(dirty, 40, 100);
    ck_assert_uint_le(wfix_stats().account[CLASS_BATCH].recomputed - before, 3 * VW_BT);
}
END_TEST

/* Either would do: the one that decodes loses its tail, the newcomer the chunk that is being computed. */
START_TEST(test_victim_is_not_the_one_in_its_first_chunk)
{
    cfg.pool.n_blocks = 49;
    restart();
    struct sub_id old = wfix_submit(CLASS_BATCH, 1, 60, 60);
    wfix_run(200);
    struct sub_id newcomer = wfix_submit(CLASS_BATCH, 2, 40, 4);
    wfix_run(8); /* the rest of a step, and some of the one with the chunk */
    urgent = wfix_submit(CLASS_REALTIME, 3, 90, 2);
    while (wfix_last(urgent) == NULL) ck_assert(wfix_segment());
    struct worker_stats st = wfix_stats();
    ck_assert_uint_eq(st.preemptions, 1);
    ck_assert_uint_le(st.account[CLASS_BATCH].dropped, 1);
    wfix_run(40000);
    wfix_expect_indexes(old, 60, 120);
    wfix_expect_indexes(newcomer, 40, 44);
}
END_TEST

/* A host tier smaller than what would be kept: more is computed, nobody waits for room there. */
START_TEST(test_small_host_tier)
{
    cfg.pool.n_host = 5;
    restart();
    push_out(120);
    all_ends();
    struct sub_id s[8];
    for (uint64_t i = 0; i < 8; i++)
        s[i] = wfix_submit(i % 3 == 0 ? CLASS_REALTIME : CLASS_BATCH, 50 + i, 30, 50);
    wfix_run(100000);
    for (int i = 0; i < 8; i++) wfix_expect_indexes(s[i], 30, 80);
}
END_TEST

/* With the prefix cache the blocks of one that was preempted may all be found there as it comes back. A start
 * that then finds no room must not have given up the copies: the cache loses the blocks next, and all would
 * be computed again. */
START_TEST(test_a_failed_start_keeps_the_copies)
{
    enum { N = 24 };
    struct sub_id b[N];
    cfg.pool.prefix_cache = true;
    cfg.pool.n_blocks = 65;
    cfg.min_run = 4;
    wfix_stop();
    wfix_start();
    for (uint64_t i = 0; i < N; i++) {
        uint32_t n = 8 + (uint32_t)(i * 7 % 30);
        b[i] = wfix_shared(CLASS_BATCH, 10 + i, 0, 0, n, 80, 1 + i);
    }
    for (uint64_t k = 0; k < 60; k++) {
        wfix_run(40);
        (void)wfix_shared(CLASS_REALTIME, 100 + k, 0, 0, 8 + (uint32_t)(k % 20), 4, 50 + k);
    }
    wfix_run(100000);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t n = 8 + i * 7 % 30;
        wfix_expect_indexes(b[i], n, n + 80);
    }
    struct worker_stats st = wfix_stats();
    uint64_t again = st.account[CLASS_BATCH].recomputed;
    printf("%llu preemptions, %llu positions computed again\n", (unsigned long long)st.preemptions,
           (unsigned long long)again);
    ck_assert_uint_gt(st.preemptions, 8);
    ck_assert_uint_le(again, st.preemptions * 2 * VW_BT); /* the unclean tails */
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("tier");
    tcase_add_checked_fixture(tc, setup, wfix_stop);
    tcase_add_test(tc, test_clean_blocks_come_back);
    tcase_add_test(tc, test_a_tail_that_did_not_get_there);
    tcase_add_test(tc, test_often_pushed_out);
    tcase_add_test(tc, test_a_bad_copy_is_computed_again);
    tcase_add_test(tc, test_realtime_waits_for_no_copy);
    tcase_add_test(tc, test_prefetched_beside_a_step);
    tcase_add_test(tc, test_pushed_out_while_it_resumes);
    tcase_add_test(tc, test_cancelled_while_suspended_and_while_it_resumes);
    tcase_add_test(tc, test_resume_as_the_times_say);
    tcase_add_test(tc, test_victim_by_lost_work);
    tcase_add_test(tc, test_victim_is_not_the_one_in_its_first_chunk);
    tcase_add_test(tc, test_small_host_tier);
    tcase_add_test(tc, test_a_failed_start_keeps_the_copies);
    return wfix_main("worker_tier", tc);
}
