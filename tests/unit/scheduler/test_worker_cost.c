/* worker_core's planner: step sizes by the learned times, TTFTs, the floor share, parked time. */
#include "tests/unit/scheduler/wfix.h"

#define MS 1000000ull

static void setup(void)
{
    wfix_config();
    double start[COST_FEATURES] = {[COST_ONE] = 1e6, [COST_FIRST] = 1e6, [COST_SPILL] = 1e6}; /* 1 ms, 1 ms each */
    step_cost_init(&cfg.cost, start);
    cfg.n_segments = 6;
    cfg.interference_permille = 50;
    wfix_start();
    w->step_ns = 1 * MS;
    w->token_ns = 1 * MS;
}

static void restart(void)
{
    wfix_stop();
    wfix_start();
    w->step_ns = 1 * MS;
    w->token_ns = 1 * MS;
}

/* Runs to the end of the steps at hand; the largest step of a rank seen on the way. */
static uint32_t largest(uint32_t segments, uint32_t rank)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < segments && wfix_segment(); i++) {
        if (w->last_submit_rank == rank && w->last_positions > most) most = w->last_positions;
    }
    return most;
}

static struct sub_id tight(uint8_t cls, uint64_t key, uint32_t n_prompt, uint32_t max_tokens,
                           uint32_t tpot_ms)
{
    struct sub_id sub = {9, next_counter++};
    struct vw_submit s = {.key = key,
                          .n_prompt = n_prompt,
                          .n_tokens = n_prompt,
                          .from = n_prompt,
                          .max_total = n_prompt + max_tokens,
                          .cls = cls,
                          .tag = sub.counter,
                          .tpot_ms = tpot_ms};
    vw_submit(w, GW, sub, &s, now, NULL);
    return sub;
}

/* A stream's time per token bounds the prefill beside it. */
START_TEST(test_prefill_beside_a_stream)
{
    struct sub_id a = tight(CLASS_REALTIME, 1, 4, 40, 20);
    largest(12, 0);
    struct sub_id b = tight(CLASS_REALTIME, 2, 100, 2, 0);
    uint32_t most = largest(60, 0);
    ck_assert_uint_gt(most, 10);
    ck_assert_uint_le(most, 19); /* 1 + 19 ms */
    wfix_run(20000);
    wfix_expect_indexes(a, 4, 44);
    wfix_expect_indexes(b, 100, 102);
}
END_TEST

/* An objective that cannot be held stops nobody's prefill. */
START_TEST(test_prefill_always_gets_on)
{
    struct sub_id a = tight(CLASS_REALTIME, 1, 4, 40, 1);
    largest(12, 0);
    struct sub_id b = tight(CLASS_REALTIME, 2, 100, 2, 0);
    ck_assert_uint_le(largest(60, 0), 9);
    wfix_run(20000);
    wfix_expect_indexes(a, 4, 44);
    wfix_expect_indexes(b, 100, 102);
}
END_TEST

/* Alone, nothing is cut. */
START_TEST(test_nobody_streams)
{
    struct sub_id b = tight(CLASS_REALTIME, 2, 100, 2, 1);
    wfix_segment();
    ck_assert_uint_eq(w->last_positions, 32);
    wfix_run(20000);
    wfix_expect_indexes(b, 100, 102);
}
END_TEST

/* Real-time of 5 ms: a batch step of 6 segments may last 6 x 0.5 ms. */
START_TEST(test_batch_steps_follow_the_median_ttft)
{
    struct sub_id b[3];
    ck_assert_uint_eq(wfix_stats().account[CLASS_REALTIME].output, 0);
    b[0] = wfix_submit(CLASS_BATCH, 50, 60, 2);
    wfix_segment();
    ck_assert_uint_eq(w->last_positions, 32); /* nothing is known: the class's second stands */
    wfix_run(20000);
    for (uint64_t i = 0; i < 5; i++) { /* one step each, a segment lasts 1 ms */
        (void)wfix_submit(CLASS_REALTIME, 1 + i, 4, 1);
        wfix_run(20000);
    }
    b[1] = wfix_submit(CLASS_BATCH, 51, 60, 2);
    ck_assert_uint_eq(w->last_submit_rank, 1);
    ck_assert_uint_eq(w->last_positions, 8); /* below what is allowed lies the least */
    wfix_run(20000);
    wfix_expect_indexes(b[0], 60, 62);
    wfix_expect_indexes(b[1], 60, 62);
}
END_TEST

/* More decodes than the time allows take turns: all get on. */
START_TEST(test_decodes_take_turns)
{
    struct sub_id b[12];
    for (uint64_t i = 0; i < 5; i++) {
        (void)wfix_submit(CLASS_REALTIME, 1 + i, 4, 1);
        wfix_run(20000);
    }
    for (uint64_t i = 0; i < 12; i++) b[i] = wfix_submit(CLASS_BATCH, 50 + i, 4, 20);
    wfix_run(600);
    uint32_t least = UINT32_MAX, most = 0;
    for (int i = 0; i < 12; i++) {
        const struct vw_msg *m = wfix_last(b[i]);
        uint32_t n = m == NULL ? 0 : m->from + m->n;
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    ck_assert_uint_gt(least, 4);
    ck_assert_uint_le(most - least, 8);
    wfix_run(40000);
    for (int i = 0; i < 12; i++) wfix_expect_indexes(b[i], 4, 24);
}
END_TEST

/* The model learns what steps really cost, in its own rank. */
START_TEST(test_times_are_learned)
{
    w->token_ns = 3 * MS;
    for (uint64_t i = 0; i < 10; i++) {
        (void)wfix_submit(CLASS_REALTIME, 1 + i, 4 + 9 * (uint32_t)i, 6);
        wfix_run(20000);
    }
    struct worker_stats st = wfix_stats();
    struct step_shape s = {0};
    step_shape_add(&s, 0, 30, 1);
    uint64_t ns = step_cost_ns(&st.cost[0], &s);
    ck_assert_uint_gt(ns, 75 * MS);
    ck_assert_uint_lt(ns, 110 * MS);
    ck_assert_uint_gt(st.cost[0].n, 20);
    ck_assert_uint_eq(st.cost[1].n, 0);
}
END_TEST

/* Real-time without a pause: the batch class gets the share it was promised, and not more. */
START_TEST(test_floor_share)
{
    cfg.classes.rows[CLASS_BATCH].floor_permille = 200;
    cfg.max_seqs = 8;
    restart();
    uint64_t key = 1000;
    for (uint64_t i = 0; i < 6; i++) (void)wfix_submit(CLASS_BATCH, i, 8, 110);
    wfix_run(20);
    for (uint32_t k = 0; k < 2500; k++) {
        struct worker_stats st = wfix_stats();
        for (uint32_t n = st.active[0] + st.waiting[0]; n < 8; n++) {
            struct sub_id r = wfix_submit(CLASS_REALTIME, key++, 6, 12);
            (void)r;
        }
        for (uint32_t i = 0; i < w->n_out; i++)
            if (w->out[i].kind == VW_TOKENS && w->out[i].finish == FINISH_LENGTH)
                wfix_link(WE_ACK, w->out[i].sub, 0);
        w->n_out = 0;
        if (st.active[1] + st.waiting[1] == 0) break;
        wfix_segment();
    }
    struct worker_stats st = wfix_stats();
    double share = (double)st.class_ns[1] / (double)(st.class_ns[0] + st.class_ns[1]);
    printf("floor 20 %%: share %.3f\n", share);
    ck_assert(share > 0.15 && share < 0.30);
    ck_assert_uint_le(st.owed_ns[1], SECOND);
    cfg.classes.rows[CLASS_BATCH].floor_permille = 0;
}
END_TEST

/* park_max counts from the last segment that the step finished, also over several parks. */
START_TEST(test_park_max_counts_from_progress)
{
    for (uint64_t i = 0; i < 3; i++) (void)wfix_submit(CLASS_BATCH, 10 + i, 6, 20);
    wfix_run(9);
    ck_assert(vw_busy(w));
    uint64_t at = now;
    struct sub_id r = wfix_submit(CLASS_REALTIME, 1, 5, 60);
    while (!wfix_stats().parked) ck_assert(wfix_segment());
    ck_assert_uint_le(worker_core_next_tick_ns(w->core, now), now + cfg.park_max_ns);
    ck_assert_uint_ge(worker_core_next_tick_ns(w->core, now), at + cfg.park_max_ns);
    now += cfg.park_max_ns - 2 * MS;
    wfix_link(WE_TICK, r, 0);
    ck_assert_uint_eq(w->steps[0].spans[0].drop + w->steps[0].spans[1].drop, 0);
    now += 3 * MS;
    wfix_link(WE_TICK, r, 0);
    wfix_run(3);
    ck_assert_uint_eq(wfix_stats().drops, 1);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("cost");
    tcase_add_checked_fixture(tc, setup, wfix_stop);
    tcase_add_test(tc, test_prefill_beside_a_stream);
    tcase_add_test(tc, test_prefill_always_gets_on);
    tcase_add_test(tc, test_nobody_streams);
    tcase_add_test(tc, test_batch_steps_follow_the_median_ttft);
    tcase_add_test(tc, test_decodes_take_turns);
    tcase_add_test(tc, test_times_are_learned);
    tcase_add_test(tc, test_floor_share);
    tcase_add_test(tc, test_park_max_counts_from_progress);
    return wfix_main("worker_cost", tc);
}
