/* worker_core's policy: parking, seats, blocks, chunks, scores, growth, debug switches. */
#include "tests/unit/scheduler/wfix.h"

static void setup(void)
{
    wfix_config();
    wfix_start();
}

static void restart(void)
{
    wfix_stop();
    wfix_start();
}

static void batch_15(uint32_t max_tokens)
{
    for (uint64_t i = 0; i < 15; i++)
        (void)wfix_submit(CLASS_BATCH, 100 + i, 6 + (uint32_t)i % 5, max_tokens);
}

/* Runs until the submission's first token; counts segments. */
static uint32_t until_first(struct sub_id sub)
{
    uint32_t n = 0;
    while (wfix_last(sub) == NULL && n < 200 && wfix_segment()) n++;
    ck_assert_ptr_nonnull(wfix_last(sub));
    return n;
}

/* Real-time beside 15 batch sequences, arriving at each segment of a batch step. */
START_TEST(test_realtime_parks_the_batch_step)
{
    for (uint32_t at = 0; at < 50; at++) {
        restart();
        batch_15(40);
        wfix_run(40 + at);
        uint64_t batch_steps = w->submitted[1];
        ck_assert(vw_busy(w));
        w->n_out = 0;
        struct sub_id r = wfix_submit(CLASS_REALTIME, 1, 5, 4);
        ck_assert_uint_eq(w->submitted[0], 0);
        wfix_segment(); /* at most the running segment */
        ck_assert_uint_eq(w->submitted[0], 1);
        ck_assert_uint_eq(w->submitted[1], batch_steps);
        until_first(r);
        for (uint32_t i = 0; i < w->n_out; i++) ck_assert_int_eq(w->out[i].finish, FINISH_NONE);
        while (wfix_finish(r) == FINISH_NONE) { /* real-time runs alone to its end */
            ck_assert_uint_eq(w->submitted[1], batch_steps);
            wfix_segment();
        }
        wfix_run(20000);
        ck_assert_uint_eq(wfix_stats().finished, 16);
        ck_assert_uint_eq(w->parks, w->continues);
    }
}
END_TEST

/* All seats taken: a batch sequence makes room, and still ends with all its tokens. */
START_TEST(test_realtime_takes_a_seat)
{
    struct sub_id b[16];
    for (uint64_t i = 0; i < 16; i++) b[i] = wfix_submit(CLASS_BATCH, 100 + i, 6, 30);
    wfix_run(20);
    w->n_out = 0;
    struct sub_id r = wfix_submit(CLASS_REALTIME, 1, 5, 4);
    ck_assert_uint_eq(wfix_stats().preemptions, 1);
    ck_assert_uint_le(until_first(r), 12); /* the running segment, the drop, one step of 6 */
    wfix_run(20000);
    ck_assert_uint_eq(wfix_stats().finished, 17);
    for (int i = 0; i < 16; i++) ck_assert_int_eq(wfix_finish(b[i]), FINISH_LENGTH);
}
END_TEST

/* B05: seats are free, blocks are not: the urgent one preempts all the same. */
START_TEST(test_b05_blocks_not_seats)
{
    wfix_stop();
    cfg.pool.n_blocks = 33; /* 128 positions */
    cfg.max_seqs = 8;
    wfix_start();
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 50, 50), b = wfix_submit(CLASS_BATCH, 2, 50, 50);
    wfix_run(40);
    ck_assert_uint_eq(wfix_stats().active[CLASS_BATCH], 2);
    struct sub_id r = wfix_submit(CLASS_REALTIME, 3, 100, 4);
    uint64_t lower = w->submitted[1] + w->continues; /* nobody lower comes in between */
    while (w->submitted[0] == 0) {
        ck_assert(wfix_segment());
        ck_assert_uint_eq(w->submitted[1] + w->continues, lower);
    }
    ck_assert_uint_le(until_first(r), 40);
    ck_assert_uint_gt(wfix_stats().preemptions, 0);
    wfix_run(20000);
    wfix_expect_indexes(a, 50, 100);
    wfix_expect_indexes(b, 50, 100);
}
END_TEST

/* B01: 50 tries of a real-time prompt that needs the blocks of three batch streams. */
START_TEST(test_b01_pushed_out_in_mid_step)
{
    for (uint32_t k = 0; k < 50; k++) {
        wfix_stop();
        cfg.pool.n_blocks = 33;
        wfix_start();
        struct sub_id b[3];
        for (uint64_t i = 0; i < 3; i++) b[i] = wfix_submit(CLASS_BATCH, 10 + i, 20, 60);
        wfix_run(40 + 7 * k);
        struct sub_id r = wfix_submit(CLASS_REALTIME, 99, 100, 3);
        uint64_t lower = w->submitted[1] + w->continues;
        while (w->submitted[0] == 0) {
            ck_assert_uint_eq(w->submitted[1] + w->continues, lower);
            ck_assert(wfix_segment());
        }
        wfix_run(20000);
        ck_assert_int_eq(wfix_finish(r), FINISH_LENGTH);
        for (int i = 0; i < 3; i++) wfix_expect_indexes(b[i], 20, 80);
        ck_assert_uint_eq(wfix_stats().pool.free, 32);
    }
}
END_TEST

/* B13: decode fills the pool; everybody ends whole by preempt and resume. */
START_TEST(test_b13_decode_fills_the_pool)
{
    wfix_stop();
    cfg.pool.n_blocks = 65; /* 256 positions; 16 x 70 are needed */
    wfix_start();
    struct sub_id b[16];
    for (uint64_t i = 0; i < 16; i++) b[i] = wfix_submit(CLASS_BATCH, 10 + i, 10, 60);
    uint32_t n = wfix_run(400000);
    for (int i = 0; i < 16; i++) wfix_link(WE_ACK, b[i], 0);
    ck_assert_uint_gt(wfix_stats().preemptions, 0);
    for (int i = 0; i < 16; i++) wfix_expect_indexes(b[i], 10, 70);
    printf("b13: %u segments, %llu preemptions\n", n, (unsigned long long)wfix_stats().preemptions);
    ck_assert_uint_eq(vw_used(w), 0);
}
END_TEST

/* The same with real-time only, where nobody is preemptible by class: equals make room. */
START_TEST(test_equals_of_realtime_make_room)
{
    wfix_stop();
    cfg.pool.n_blocks = 33;
    wfix_start();
    struct sub_id b[6];
    for (uint64_t i = 0; i < 6; i++) b[i] = wfix_submit(CLASS_REALTIME, 10 + i, 10, 60);
    wfix_run(100000);
    for (int i = 0; i < 6; i++) wfix_expect_indexes(b[i], 10, 70);
    uint32_t redone = 0;
    for (int i = 0; i < 6; i++) redone += w->seqs[i].redone;
    ck_assert_uint_gt(redone, 0);
    ck_assert_uint_eq(w->seqs[0].redone, 0); /* the first admitted never falls */
}
END_TEST

/* Four classes: within a rank the more urgent one starts first, whenever it came. */
START_TEST(test_classes_order_starts)
{
    wfix_stop();
    cfg.max_seqs = 1;
    cfg.classes.n = 4;
    for (uint8_t k = 2; k < 4; k++) {
        cfg.classes.rows[k] = cfg.classes.rows[CLASS_BATCH];
        cfg.classes.rows[k].order = k;
    }
    cfg.classes.rows[CLASS_BATCH].order = 4;
    wfix_start();
    struct sub_id s[5];
    static const uint8_t cls[] = {CLASS_BATCH, CLASS_BATCH, 3, 2, CLASS_REALTIME};
    for (uint64_t i = 0; i < 5; i++) s[i] = wfix_submit(cls[i], i, 4, 2);
    wfix_run(2000);
    static const uint32_t want[] = {4, 3, 2, 0, 1}; /* 0 had begun, and goes on before 1 */
    uint32_t ended[5], n = 0;
    for (uint32_t i = 0; i < w->n_out; i++) {
        for (uint32_t k = 0; k < 5; k++) {
            if (w->out[i].finish == FINISH_LENGTH && sub_id_equal(w->out[i].sub, s[k]))
                ended[n++] = k;
        }
    }
    ck_assert_uint_eq(n, 5);
    ck_assert_mem_eq(ended, want, sizeof want);
}
END_TEST

/* B10: a long prompt is prefilled in chunks, and a stream gets a token with each. */
START_TEST(test_b10_decode_between_chunks)
{
    struct sub_id a = wfix_submit(CLASS_REALTIME, 1, 4, 60);
    wfix_run(60);
    struct sub_id b = wfix_submit(CLASS_REALTIME, 2, 120, 1);
    while (wfix_last(b) == NULL) {
        uint64_t before = w->submitted[0];
        uint32_t had = w->n_out;
        while (w->submitted[0] == before) ck_assert(wfix_segment());
        bool token = false;
        for (uint32_t i = had; i < w->n_out; i++) token |= sub_id_equal(w->out[i].sub, a);
        ck_assert(token || wfix_last(b) != NULL);
    }
    wfix_run(2000);
    wfix_expect_indexes(a, 4, 64);
    wfix_expect_indexes(b, 120, 121);
}
END_TEST

/* B11 (recompute): preempted after exactly n tokens, block borders included, twice in one request.
 */
START_TEST(test_b11_preempted_after_n_tokens)
{
    static const uint32_t after[] = {1, 3, 4, 5, 7, 8, 9, 49};
    for (uint32_t k = 0; k < sizeof after / sizeof after[0]; k++) {
        wfix_stop();
        cfg.max_seqs = 1;
        wfix_start();
        struct sub_id b = wfix_submit(CLASS_BATCH, 7, 8, 50), r[2];
        for (int twice = 0; twice < 2; twice++) {
            const struct vw_msg *m;
            while ((m = wfix_last(b)) == NULL || m->from + m->n < 8 + after[k] + (twice ? 1u : 0u))
                ck_assert(wfix_segment());
            if (m->finish != FINISH_NONE) break;
            r[twice] = wfix_submit(CLASS_REALTIME, 8, 3, 2);
            while (wfix_finish(r[twice]) == FINISH_NONE) ck_assert(wfix_segment());
        }
        wfix_run(20000);
        wfix_expect_indexes(b, 8, 58);
        ck_assert_int_eq(wfix_finish(b), FINISH_LENGTH);
        ck_assert_uint_ge(wfix_stats().preemptions, after[k] == 49 ? 1 : 2);
        ck_assert_uint_gt(wfix_stats().account[CLASS_BATCH].recomputed, 0);
    }
}
END_TEST

static struct sub_id submit_scores(uint8_t cls, uint64_t key, uint32_t n_prompt,
                                   uint32_t max_tokens)
{
    struct sub_id sub = {9, next_counter++};
    struct vw_submit s = {.key = key,
                          .n_prompt = n_prompt,
                          .n_tokens = n_prompt,
                          .from = 1,
                          .max_total = n_prompt + max_tokens,
                          .cls = cls,
                          .tag = sub.counter};
    vw_submit(w, GW, sub, &s, now, NULL);
    return sub;
}

START_TEST(test_prompt_scores)
{
    static const uint32_t rows[] = {64, 7, 3, 2, 1}, chunk[] = {32, 5, 1};
    for (uint32_t k = 0; k < 15; k++) {
        wfix_stop();
        wfix_config();
        cfg.max_rows = rows[k % 5];
        cfg.prefill_chunk = chunk[k / 5];
        wfix_start();
        struct sub_id a = submit_scores(CLASS_BATCH, 1, 21, 4),
                      e = submit_scores(CLASS_BATCH, 2, 21, 0);
        wfix_run(5000);
        wfix_expect_indexes(a, 1, 25);
        wfix_expect_indexes(e, 1, 21); /* echo alone: nothing is sampled */
        ck_assert_int_eq(wfix_finish(e), FINISH_LENGTH);
        ck_assert_uint_eq(wfix_stats().account[CLASS_BATCH].output, 4);
        struct sub_id one = submit_scores(CLASS_BATCH, 3, 1, 0); /* one id: nothing to score */
        ck_assert_int_eq(wfix_finish(one), FINISH_LENGTH);
        struct sub_id two = submit_scores(CLASS_BATCH, 3, 2, 1);
        wfix_run(5000);
        wfix_expect_indexes(two, 1, 3);
    }
}
END_TEST

/* Preempted in mid-prompt: what was scored is not scored again. */
START_TEST(test_prompt_scores_survive_preemption)
{
    wfix_stop();
    cfg.max_seqs = 1;
    cfg.prefill_chunk = 8;
    wfix_start();
    struct sub_id a = submit_scores(CLASS_BATCH, 1, 60, 4);
    wfix_run(20);
    struct sub_id r = wfix_submit(CLASS_REALTIME, 8, 3, 2);
    wfix_run(20000);
    ck_assert_int_eq(wfix_finish(r), FINISH_LENGTH);
    wfix_expect_indexes(a, 1, 64);
}
END_TEST

START_TEST(test_order_of_starts)
{
    wfix_stop();
    cfg.max_seqs = 1;
    wfix_start();
    struct sub_id s[4];
    for (uint64_t i = 0; i < 4; i++) {
        s[i] = (struct sub_id){9, 10 + i};
        struct vw_submit q = {.key = i,
                              .n_prompt = 4,
                              .n_tokens = 4,
                              .from = 4,
                              .max_total = 6,
                              .cls = CLASS_BATCH,
                              .tag = 100 - i};
        vw_submit(w, GW, s[i], &q, now, NULL);
    }
    wfix_run(2000); /* 0 had the seat at once, then smallest tag first */
    uint32_t want[] = {0, 3, 2, 1}, at = 0;
    for (uint32_t i = 0; i < w->n_out; i++) {
        if (w->out[i].finish == FINISH_LENGTH)
            ck_assert(sub_id_equal(w->out[i].sub, s[want[at++]]));
    }
    ck_assert_uint_eq(at, 4);
}
END_TEST

START_TEST(test_debug_switches_change_no_answer)
{
    wfix_stop();
    cfg.debug_preempt_every = 3;
    cfg.debug_park_every = 2;
    cfg.debug_drop_every = 5;
    wfix_start();
    struct sub_id b[10];
    for (uint64_t i = 0; i < 10; i++)
        b[i] = wfix_submit(i % 4 == 0 ? CLASS_REALTIME : CLASS_BATCH, 10 + i, 10, 30);
    wfix_run(200000);
    for (int i = 0; i < 10; i++) wfix_expect_indexes(b[i], 10, 40);
    struct worker_stats st = wfix_stats();
    ck_assert_uint_gt(st.preemptions, 10);
    ck_assert_uint_gt(st.parks, 10);
    ck_assert_uint_gt(w->drops, 5);
}
END_TEST

START_TEST(test_a_step_parked_too_long_loses_its_youngest)
{
    struct sub_id b[3];
    for (uint64_t i = 0; i < 3; i++) b[i] = wfix_submit(CLASS_BATCH, 10 + i, 6, 20);
    wfix_run(20);
    struct sub_id r = wfix_submit(CLASS_REALTIME, 1, 5, 60);
    wfix_run(2);
    ck_assert(wfix_stats().parked);
    for (int k = 0; k < 5; k++) {
        now += 2 * SECOND;
        wfix_link(WE_TICK, r, 0);
        wfix_run(2);
    }
    ck_assert_uint_eq(wfix_stats().drops, 2); /* never the last one for age */
    wfix_run(20000);
    for (int i = 0; i < 3; i++) wfix_expect_indexes(b[i], 6, 26);
}
END_TEST

START_TEST(test_window)
{
    ck_assert_uint_eq(wfix_stats().window[CLASS_BATCH], 16);
    ck_assert_uint_eq(wfix_stats().window[CLASS_REALTIME], 40);
    for (uint64_t i = 0; i < 26; i++) (void)wfix_submit(CLASS_BATCH, 10 + i, 6, 20);
    ck_assert_uint_eq(wfix_stats().window[CLASS_BATCH], 0); /* 25 wait for the first one's step */
    wfix_run(6);
    ck_assert_uint_eq(wfix_stats().active[CLASS_BATCH], 16);
    ck_assert_uint_eq(wfix_stats().window[CLASS_BATCH],
                      4); /* 10 wait; a quarter of the slots is real-time's */
    ck_assert_uint_eq(wfix_stats().window[CLASS_REALTIME], 14);
}
END_TEST

START_TEST(test_shrunken_pool)
{
    wfix_stop();
    cfg.debug_pool_blocks = 20; /* 80 positions */
    wfix_start();
    struct sub_id big = wfix_submit(CLASS_BATCH, 1, 60, 22),
                  a = wfix_submit(CLASS_BATCH, 2, 40, 41), b = wfix_submit(CLASS_BATCH, 3, 40, 41);
    ck_assert_int_eq(wfix_finish(big), FINISH_TOO_LARGE);
    wfix_run(100000);
    wfix_expect_indexes(a, 40, 81);
    wfix_expect_indexes(b, 40, 81);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("policy");
    tcase_add_checked_fixture(tc, setup, wfix_stop);
    tcase_add_test(tc, test_realtime_parks_the_batch_step);
    tcase_add_test(tc, test_realtime_takes_a_seat);
    tcase_add_test(tc, test_b05_blocks_not_seats);
    tcase_add_test(tc, test_b01_pushed_out_in_mid_step);
    tcase_add_test(tc, test_b13_decode_fills_the_pool);
    tcase_add_test(tc, test_equals_of_realtime_make_room);
    tcase_add_test(tc, test_classes_order_starts);
    tcase_add_test(tc, test_b10_decode_between_chunks);
    tcase_add_test(tc, test_b11_preempted_after_n_tokens);
    tcase_add_test(tc, test_prompt_scores);
    tcase_add_test(tc, test_prompt_scores_survive_preemption);
    tcase_add_test(tc, test_order_of_starts);
    tcase_add_test(tc, test_debug_switches_change_no_answer);
    tcase_add_test(tc, test_a_step_parked_too_long_loses_its_youngest);
    tcase_add_test(tc, test_window);
    tcase_add_test(tc, test_shrunken_pool);
    return wfix_main("worker_plan", tc);
}
