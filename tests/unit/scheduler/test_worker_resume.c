/* worker_core's ways back beside real-time: real-time that its equals pushed out resumes from the host, and
 * lower sequences get their copies ahead, while real-time steps run. */
#include "tests/unit/scheduler/wfix.h"

static void setup(void)
{
    wfix_config();
    cfg.pool.n_host = VW_HOST;
    cfg.pool.max_copies = 8;
    cfg.pool.n_blocks = 41; /* 160 positions */
    wfix_start();
}

static void restart(void)
{
    wfix_stop();
    wfix_start();
}

/* One segment; copies beside real-time are few, and of the priority that takes no time from a step. */
static void gentle_segment(void)
{
    ck_assert(wfix_segment());
    if (wfix_stats().active[CLASS_REALTIME] == 0) return;
    ck_assert_uint_le(w->n_copies, 2);
    for (uint32_t i = 0; i < w->n_copies; i++) ck_assert_uint_eq(w->copies[i].priority, 1);
}

static void all_free(void)
{
    struct worker_stats st = wfix_stats();
    ck_assert_uint_eq(st.pool.free + st.pool.cached, st.pool.total);
    ck_assert_uint_eq(st.pool.seqs, 0);
    ck_assert_uint_eq(st.pool.host_busy, 0);
}

/* ---- real-time that its equals pushed out ---- */

/* Six streams that grow to 108 blocks together; positions computed again. */
static uint64_t equals(uint32_t n_host, uint32_t blocks)
{
    struct sub_id r[6];
    cfg.pool.n_host = n_host;
    cfg.pool.n_blocks = blocks;
    restart();
    for (uint64_t i = 0; i < 6; i++) r[i] = wfix_submit(CLASS_REALTIME, 10 + i, 10, 60);
    for (uint32_t k = 0; wfix_segment(); k++) ck_assert_uint_lt(k, 100000);
    for (int i = 0; i < 6; i++) wfix_expect_indexes(r[i], 10, 70);
    all_free();
    return wfix_stats().account[CLASS_REALTIME].recomputed;
}

START_TEST(test_realtime_comes_back_from_the_host)
{
    uint64_t without = equals(0, 33), with = equals(VW_HOST, 33);
    struct worker_stats st = wfix_stats();
    printf("computed again: %llu, with a host tier %llu; %llu preemptions, %llu swaps\n",
           (unsigned long long)without, (unsigned long long)with,
           (unsigned long long)st.preemptions, (unsigned long long)st.resumed_swap);
    ck_assert_uint_gt(st.preemptions, 2);
    ck_assert_uint_gt(st.resumed_swap, 2);
    ck_assert_uint_lt(with * 3, without);
}
END_TEST

/* Where all fit to their ends nobody can be pushed out: nothing is copied. */
START_TEST(test_realtime_that_fits_is_not_copied)
{
    equals(VW_HOST, 111);
    ck_assert_uint_eq(w->copied[1], 0);
    ck_assert_uint_eq(wfix_stats().preemptions, 0);
    equals(VW_HOST, 105); /* it does not, but all have ended before it shows */
    ck_assert_uint_gt(w->copied[1], 0);
}
END_TEST

/* From three quarters of the pool on, one at a time; not while something of a lower class is to be copied. */
START_TEST(test_realtime_is_copied_as_the_pool_fills)
{
    for (uint32_t lower = 0; lower < 2; lower++) {
        cfg.pool.n_blocks = 65;
        restart();
        w->hold_copies = true;
        if (lower) (void)wfix_submit(CLASS_BATCH, 1, 30, 40);
        wfix_run(lower ? 40 : 0);
        ck_assert_uint_eq(w->n_copies, 2 * lower);
        for (uint64_t i = 0; i < 4; i++) (void)wfix_submit(CLASS_REALTIME, 10 + i, 24, 60);
        while (wfix_stats().pool.used < 44) {
            ck_assert(wfix_segment());
            ck_assert_uint_eq(w->n_copies, 2 * lower);
        }
        while (wfix_stats().pool.used < 58) ck_assert(wfix_segment());
        ck_assert_uint_eq(w->n_copies, lower ? 2 : 1); /* they never end */
        for (uint32_t i = 0; i < w->n_copies; i++) ck_assert_uint_eq(w->copies[i].priority, 1);
        w->hold_copies = false;
        wfix_run(100000);
        all_free();
    }
}
END_TEST

/* Copies that never end stop no stream: it computes what it lost. */
START_TEST(test_realtime_waits_for_no_checkpoint)
{
    struct sub_id r[6];
    cfg.pool.n_blocks = 33;
    restart();
    w->hold_copies = true;
    for (uint64_t i = 0; i < 6; i++) r[i] = wfix_submit(CLASS_REALTIME, 10 + i, 10, 60);
    for (uint32_t k = 0; wfix_segment(); k++) ck_assert_uint_lt(k, 100000);
    ck_assert_uint_eq(w->n_copies, 1);
    for (int i = 0; i < 6; i++) wfix_expect_indexes(r[i], 10, 70);
    ck_assert_uint_eq(wfix_stats().resumed_swap, 0);
    w->hold_copies = false;
    wfix_run(100);
    all_free();
}
END_TEST

/* At its tenant's quota, in a pool that is half empty. */
START_TEST(test_realtime_at_its_quota)
{
    cfg.pool.n_blocks = 129;
    cfg.pool.max_accounts = 2;
    restart();
    struct sub_id r[3];
    for (uint64_t i = 0; i < 3; i++)
        r[i] = wfix_account(CLASS_REALTIME, 10 + i, 10, 60, 1, 30, i);
    struct sub_id other = wfix_account(CLASS_REALTIME, 20, 10, 60, 0, 0, 9);
    for (uint32_t k = 0; wfix_segment(); k++) ck_assert_uint_lt(k, 100000);
    for (int i = 0; i < 3; i++) wfix_expect_indexes(r[i], 10, 70);
    wfix_expect_indexes(other, 10, 70);
    ck_assert_uint_gt(wfix_stats().resumed_swap, 0);
    ck_assert_uint_eq(w->seqs[3].redone, 0);
    all_free();
}
END_TEST

/* A block is computed in 400 us. Below real-time its copy may take longer, as others step meanwhile. */
static uint64_t swaps_at(uint64_t copy_ns)
{
    double start[COST_FEATURES] = {[COST_ONE] = 1e6, [COST_FIRST] = 1e5, [COST_SPILL] = 1e5};
    step_cost_init(&cfg.cost, start);
    cfg.copy_ns = copy_ns;
    cfg.pool.n_blocks = 33;
    restart();
    w->step_ns = 1000000;
    w->token_ns = 100000;
    w->copy_ns = copy_ns;
    struct sub_id r[6];
    for (uint64_t i = 0; i < 6; i++) r[i] = wfix_submit(CLASS_REALTIME, 10 + i, 10, 60);
    for (uint32_t k = 0; wfix_segment(); k++) ck_assert_uint_lt(k, 100000);
    for (int i = 0; i < 6; i++) wfix_expect_indexes(r[i], 10, 70);
    ck_assert_uint_gt(wfix_stats().preemptions, 0);
    return wfix_stats().resumed_swap;
}

START_TEST(test_realtime_resumes_as_the_times_say)
{
    ck_assert_uint_gt(swaps_at(50000), 0);
    ck_assert_uint_eq(swaps_at(600000), 0);
    ck_assert_uint_gt(wfix_stats().resumed_recompute, 0);
}
END_TEST

/* A copy that cannot be trusted on its way back: computed again from there. */
START_TEST(test_realtime_with_a_bad_copy)
{
    cfg.pool.n_blocks = 33;
    restart();
    struct sub_id r[6];
    for (uint64_t i = 0; i < 6; i++) r[i] = wfix_submit(CLASS_REALTIME, 10 + i, 10, 60);
    for (uint32_t k = 0; wfix_segment(); k++) w->fail_next_copy |= k % 50 == 0;
    for (int i = 0; i < 6; i++) wfix_expect_indexes(r[i], 10, 70);
    ck_assert_uint_gt(wfix_stats().pool.copy_failures, 0);
    ck_assert_uint_eq(wfix_stats().faults, 0);
    all_free();
}
END_TEST

/* ---- copies ahead ---- */

static struct sub_id batch, first, second;

/* A batch sequence of about 20 blocks falls for two streams; one of them ends, the other goes on. */
static void wave(uint32_t second_tokens)
{
    batch = wfix_submit(CLASS_BATCH, 1, 60, 60);
    wfix_run(160);
    first = wfix_submit(CLASS_REALTIME, 2, 60, 2);
    second = wfix_submit(CLASS_REALTIME, 3, 20, second_tokens);
    while (wfix_finish(first) == FINISH_NONE) gentle_segment();
    ck_assert_uint_eq(wfix_stats().preemptions, 1);
    ck_assert_uint_eq(wfix_finish(second), FINISH_NONE);
}

START_TEST(test_blocks_are_back_before_the_wave_ends)
{
    wave(40);
    uint64_t steps = w->submitted[1];
    while (wfix_finish(second) == FINISH_NONE) {
        ck_assert_uint_eq(w->submitted[1], steps);
        ck_assert_uint_eq(wfix_stats().active[CLASS_BATCH], 1);
        gentle_segment();
    }
    struct worker_stats st = wfix_stats();
    ck_assert_uint_eq(st.ahead, 1);
    ck_assert_uint_eq(st.given_back, 0);
    ck_assert_uint_ge(st.swap_in_positions, 60);
    ck_assert_uint_eq(w->n_copies, 0);
    wfix_run(6); /* the step that it was dropped from comes to its empty end */
    ck_assert_uint_eq(w->submitted[1], steps + 1);
    ck_assert_uint_eq(wfix_stats().resumed_swap, 1);
    ck_assert_uint_eq(wfix_stats().swap_in_positions, st.swap_in_positions); /* none was waited for */
    wfix_run(40000);
    wfix_expect_indexes(batch, 60, 120);
    ck_assert_uint_le(wfix_stats().account[CLASS_BATCH].recomputed, 2 * VW_BT + 2);
    all_free();
}
END_TEST

/* The wave ends while copies are left: now they go as fast as they can. */
START_TEST(test_the_rest_hurries)
{
    wave(4);
    w->hold_copies = true;
    while (wfix_finish(second) == FINISH_NONE) gentle_segment();
    ck_assert_uint_eq(w->n_copies, cfg.pool.max_copies);
    uint32_t slow = 0;
    for (uint32_t i = 0; i < w->n_copies; i++) slow += w->copies[i].priority == 1;
    ck_assert_uint_eq(slow, 2);
    w->hold_copies = false;
    wfix_run(40000);
    wfix_expect_indexes(batch, 60, 120);
    all_free();
}
END_TEST

/* Another one of real-time needs the blocks, the copies at any stage: it gets them, nothing is lost. */
static void taken_back(uint32_t after, bool hold)
{
    restart();
    wave(40);
    w->hold_copies = hold;
    for (uint32_t k = 0; k < after; k++) gentle_segment();
    struct worker_stats was = wfix_stats();
    ck_assert_uint_eq(was.active[CLASS_BATCH], 1);
    struct sub_id third = wfix_submit(CLASS_REALTIME, 4, 60, 8);
    struct worker_stats st = wfix_stats();
    ck_assert_uint_eq(st.active[CLASS_BATCH], 0);
    ck_assert_uint_eq(st.given_back, 1);
    ck_assert_uint_eq(st.preemptions, 1);
    uint32_t n = 0;
    while (wfix_last(third) == NULL && n++ < 30) gentle_segment();
    ck_assert_ptr_nonnull(wfix_last(third));
    while (wfix_finish(third) == FINISH_NONE) {
        ck_assert_uint_eq(wfix_stats().ahead, 1); /* not again while those are here */
        gentle_segment();
    }
    w->hold_copies = false;
    wfix_run(40000);
    st = wfix_stats();
    wfix_expect_indexes(second, 20, 60);
    wfix_expect_indexes(third, 60, 68);
    wfix_expect_indexes(batch, 60, 120);
    ck_assert_uint_le(st.account[CLASS_BATCH].recomputed, 2 * VW_BT + 2);
    ck_assert_uint_eq(st.resumed_swap, 1);
    ck_assert_uint_eq(st.resumed_recompute, 0);
    all_free();
}

START_TEST(test_given_back_without_loss)
{
    for (uint32_t after = 0; after < 60; after += 7) taken_back(after, false);
    for (uint32_t after = 0; after < 20; after += 7) taken_back(after, true);
}
END_TEST

/* Room for the sequence, but none for what real-time grows by: nothing is brought that would fall. */
START_TEST(test_realtime_keeps_its_next_blocks)
{
    uint32_t brought = 0, given_back = 0;
    for (uint32_t blocks = 26; blocks < 50; blocks++) {
        cfg.pool.n_blocks = blocks;
        restart();
        batch = wfix_submit(CLASS_BATCH, 1, 60, 30);
        wfix_run(120);
        first = wfix_submit(CLASS_REALTIME, 2, 70, 2);
        second = wfix_submit(CLASS_REALTIME, 3, 20, 60);
        struct worker_stats st = wfix_stats();
        while (wfix_finish(second) == FINISH_NONE) {
            uint64_t ahead = st.ahead;
            ck_assert(wfix_segment());
            st = wfix_stats();
            if (st.ahead == ahead) continue;
            uint32_t seconds = st.pool.used - (w->seqs[0].n_tokens + VW_BT - 1) / VW_BT;
            ck_assert(st.pool.free > 1 || /* the one more that it starts with, and one for the stream */
                       (st.active[CLASS_REALTIME] == 1 && seconds == 20));
        }
        ck_assert_uint_le(st.given_back, 1); /* then real-time has to give a seat up first */
        brought += st.ahead > 0;
        given_back += st.given_back > 0;
        wfix_run(40000);
        wfix_expect_indexes(batch, 60, 90);
        all_free();
    }
    printf("of 24 pools: brought ahead in %u, given back in %u\n", brought, given_back);
    ck_assert_uint_gt(brought, 3);
    ck_assert_uint_lt(brought, 24);
    ck_assert_uint_lt(given_back, brought);
}
END_TEST

/* Cancelled, or its gateway lost, while it is ahead. */
START_TEST(test_gone_while_ahead)
{
    for (uint32_t after = 0; after < 60; after += 13) {
        restart();
        wave(40);
        for (uint32_t k = 0; k < after; k++) gentle_segment();
        ck_assert_uint_eq(wfix_stats().active[CLASS_BATCH], 1);
        wfix_link(WE_CANCEL, batch, 0);
        wfix_run(40000);
        wfix_expect_indexes(second, 20, 60);
        all_free();
        ck_assert_uint_eq(wfix_stats().pool.host_free, wfix_stats().pool.host_total);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("resume");
    tcase_add_checked_fixture(tc, setup, wfix_stop);
    tcase_add_test(tc, test_realtime_comes_back_from_the_host);
    tcase_add_test(tc, test_realtime_that_fits_is_not_copied);
    tcase_add_test(tc, test_realtime_is_copied_as_the_pool_fills);
    tcase_add_test(tc, test_realtime_waits_for_no_checkpoint);
    tcase_add_test(tc, test_realtime_at_its_quota);
    tcase_add_test(tc, test_realtime_resumes_as_the_times_say);
    tcase_add_test(tc, test_realtime_with_a_bad_copy);
    tcase_add_test(tc, test_blocks_are_back_before_the_wave_ends);
    tcase_add_test(tc, test_the_rest_hurries);
    tcase_add_test(tc, test_given_back_without_loss);
    tcase_add_test(tc, test_realtime_keeps_its_next_blocks);
    tcase_add_test(tc, test_gone_while_ahead);
    return wfix_main("worker_resume", tc);
}
