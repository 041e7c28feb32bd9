/* worker_core's link half: door, sessions, SYNC, GAP, CANCEL, ACK, repeats, loss, drain. */
#include "tests/unit/scheduler/wfix.h"

static void setup(void)
{
    wfix_config();
    wfix_start();
}

static uint32_t count_out(enum vw_msg_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_out; i++) n += w->out[i].kind == kind;
    return n;
}

START_TEST(test_one_request)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 5, 7);
    wfix_run(1000);
    wfix_expect_indexes(a, 5, 12);
    ck_assert_int_eq(wfix_finish(a), FINISH_LENGTH);
    ck_assert_uint_eq(wfix_last(a)->n, 1); /* the finish came with the last id */
    ck_assert_uint_eq(vw_used(w), 1);      /* kept until ACK */
    ck_assert_uint_eq(wfix_stats().pool.used, 0);
    wfix_link(WE_ACK, a, 0);
    ck_assert_uint_eq(vw_used(w), 0);
    struct worker_stats st = wfix_stats();
    ck_assert_uint_eq(st.account[CLASS_BATCH].prompt_first, 5);
    ck_assert_uint_eq(st.account[CLASS_BATCH].output, 7);
    ck_assert_uint_eq(st.account[CLASS_BATCH].recomputed, 0);
    ck_assert_uint_eq(st.steps[1], 7);
}
END_TEST

START_TEST(test_finish_is_repeated_until_ack)
{
    struct sub_id a = wfix_submit(CLASS_REALTIME, 1, 5, 2);
    wfix_run(1000);
    for (int k = 0; k < 3; k++) {
        w->n_out = 0;
        uint64_t due = worker_core_next_tick_ns(w->core, now);
        ck_assert_uint_le(due, now + SECOND);
        now = due - 1;
        wfix_link(WE_TICK, a, 0);
        ck_assert_uint_eq(w->n_out, 0);
        now = due;
        wfix_link(WE_TICK, a, 0);
        ck_assert_uint_eq(w->n_out, 1);
        ck_assert_uint_eq(w->out[0].from, 7);
        ck_assert_uint_eq(w->out[0].n, 0);
        ck_assert_int_eq(w->out[0].finish, FINISH_LENGTH);
    }
    wfix_link(WE_ACK, a, 0);
    ck_assert_uint_eq(worker_core_next_tick_ns(w->core, now), UINT64_MAX);
    wfix_link(WE_ACK, a, 0); /* unknown: ignored */
}
END_TEST

START_TEST(test_gap_sends_again_from_there)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 5, 6);
    wfix_run(1000);
    w->n_out = 0;
    wfix_link(WE_GAP, a, 7);
    ck_assert_uint_eq(w->n_out, 1);
    ck_assert_uint_eq(w->out[0].from, 7);
    ck_assert_uint_eq(w->out[0].n, 4);
    ck_assert_int_eq(w->out[0].finish, FINISH_LENGTH);
    w->n_out = 0;
    wfix_link(WE_GAP, a, 4); /* before its first record: of no use any more */
    ck_assert_int_eq(w->out[0].finish, FINISH_UNKNOWN);
    ck_assert_uint_eq(vw_used(w), 0);
}
END_TEST

START_TEST(test_unknown_submissions)
{
    struct sub_id no = {1, 2};
    wfix_link(WE_GAP, no, 3);
    wfix_link(WE_CANCEL, no, 0);
    ck_assert_uint_eq(w->n_out, 2);
    ck_assert_int_eq(w->out[0].finish, FINISH_UNKNOWN);
    ck_assert_int_eq(w->out[1].finish, FINISH_UNKNOWN);
    wfix_link(WE_ACK, no, 0);
    ck_assert_uint_eq(w->n_out, 2);
}
END_TEST

START_TEST(test_same_submission_twice)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 5, 6);
    next_counter--;
    struct sub_id b = wfix_submit(CLASS_BATCH, 1, 5, 6);
    ck_assert(sub_id_equal(a, b));
    ck_assert_uint_eq(vw_used(w), 1); /* the second slot was given back */
    wfix_run(1000);
    wfix_expect_indexes(a, 5, 11);
}
END_TEST

START_TEST(test_refused_at_the_door)
{
    struct sub_id big = wfix_submit(CLASS_BATCH, 1, 129, 1);
    ck_assert_int_eq(wfix_finish(big), FINISH_TOO_LARGE);
    struct sub_id bad = {9, 900};
    struct vw_submit s = {
        .key = 2, .n_prompt = 4, .n_tokens = 4, .from = 4, .max_total = 9, .refused = true};
    vw_submit(w, GW, bad, &s, now, NULL);
    ck_assert_int_eq(wfix_finish(bad), FINISH_REFUSED);
    ck_assert_uint_eq(vw_used(w), 2); /* repeated until ACK, like any finish */
    wfix_link(WE_ACK, big, 0);
    wfix_link(WE_ACK, bad, 0);
    ck_assert_uint_eq(vw_used(w), 0);
    ck_assert(!vw_busy(w));
}
END_TEST

/* B04: fits the context but not the pool: refused at once, and nobody waits behind it. */
START_TEST(test_b04_larger_than_the_pool)
{
    wfix_stop();
    cfg.pool.n_blocks = 17; /* 64 positions */
    wfix_start();
    struct sub_id a = wfix_submit(CLASS_REALTIME, 1, 100, 8);
    struct sub_id grows = wfix_submit(CLASS_REALTIME, 3, 50, 60); /* its output can never fit */
    struct sub_id b = wfix_submit(CLASS_REALTIME, 2, 4, 8);
    ck_assert_int_eq(wfix_finish(a), FINISH_TOO_LARGE);
    ck_assert_int_eq(wfix_finish(grows), FINISH_TOO_LARGE);
    wfix_run(1000);
    wfix_expect_indexes(b, 4, 12);
    struct sub_id fits = wfix_submit(CLASS_REALTIME, 4, 50, 15); /* 64 inputs: exactly the pool */
    wfix_run(1000);
    wfix_expect_indexes(fits, 50, 65);
}
END_TEST

START_TEST(test_no_slot_is_handed_back)
{
    for (uint32_t i = 0; i < cfg.max_slots; i++) (void)wfix_submit(CLASS_BATCH, 10 + i, 4, 20);
    w->n_out = 0;
    struct sub_id x = wfix_submit(CLASS_BATCH, 99, 4, 20);
    ck_assert_int_eq(wfix_finish(x), FINISH_HANDED_BACK);
    ck_assert_uint_eq(wfix_stats().window[CLASS_REALTIME], 0);
}
END_TEST

/* B31: what was cancelled while it waited never reaches prefill, and the next one is next. */
START_TEST(test_b31_cancelled_while_waiting)
{
    wfix_stop();
    cfg.max_seqs = 1;
    wfix_start();
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 4, 20), q[5], last;
    for (int i = 0; i < 5; i++) q[i] = wfix_submit(CLASS_BATCH, 20 + (uint64_t)i, 30, 20);
    wfix_run(30);
    for (int i = 0; i < 5; i++) wfix_link(WE_CANCEL, q[i], 0);
    ck_assert_uint_eq(wfix_stats().waiting[CLASS_BATCH], 0);
    last = wfix_submit(CLASS_BATCH, 30, 4, 3);
    wfix_run(2000);
    wfix_expect_indexes(a, 4, 24);
    wfix_expect_indexes(last, 4, 7);
    ck_assert_uint_eq(wfix_stats().account[CLASS_BATCH].prompt_first, 8);
    for (int i = 0; i < 5; i++) ck_assert_int_eq(wfix_finish(q[i]), FINISH_CANCELLED);
}
END_TEST

START_TEST(test_cancel_in_a_running_step)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 8, 20), b = wfix_submit(CLASS_BATCH, 2, 8, 20);
    wfix_run(15); /* somewhere inside a step both share */
    ck_assert(vw_busy(w));
    uint32_t before = wfix_stats().pool.used;
    wfix_link(WE_CANCEL, a, 0);
    ck_assert_int_eq(wfix_finish(a), FINISH_CANCELLED);
    struct worker_stats st = wfix_stats();
    ck_assert_uint_gt(st.pool.held, 0); /* the engine may still write them */
    ck_assert_uint_eq(st.pool.used + st.pool.held, before);
    wfix_run(2);
    ck_assert_uint_eq(wfix_stats().pool.held, 0); /* within a segment (and its confirmation) */
    ck_assert_uint_eq(vw_used(w), 1);
    wfix_run(2000);
    wfix_expect_indexes(b, 8, 28);
    ck_assert_uint_gt(wfix_stats().account[CLASS_BATCH].dropped, 0);
}
END_TEST

/* B33: ids the client chose play no part; a late CANCEL of the old submission leaves the new one
 * alone. */
START_TEST(test_b33_late_cancel_of_an_older_submission)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 5, 8, 10);
    wfix_run(9);
    wfix_link(WE_CANCEL, a, 0);
    struct sub_id b = wfix_submit(CLASS_BATCH, 5, 8, 10); /* the same request again */
    wfix_link(WE_CANCEL, a, 0);
    wfix_run(2000);
    ck_assert_int_eq(wfix_finish(a), FINISH_UNKNOWN);
    wfix_expect_indexes(b, 8, 18);
    ck_assert_int_eq(wfix_finish(b), FINISH_LENGTH);
}
END_TEST

START_TEST(test_session_loss_and_sync)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 8, 30), r = wfix_submit(CLASS_REALTIME, 2, 4, 3);
    wfix_run(40);
    w->n_out = 0;
    wfix_link(WE_SESSION_DOWN, a, 0);
    wfix_run(2000);
    ck_assert_uint_eq(w->n_out, 0); /* nobody to send to */
    ck_assert(!vw_busy(w));         /* batch of a lost gateway is not stepped */
    now += SECOND;
    vw_up(w, 3, 77, now, NULL); /* the same gateway, another session */
    ck_assert_uint_eq(w->n_out, 1);
    ck_assert_int_eq(w->out[0].kind, VW_SYNC);
    struct worker_sync sync[8];
    ck_assert_uint_eq(worker_core_sync(w->core, 3, sync, 8), 2);
    uint32_t ia = sub_id_equal(sync[0].sub, a) ? 0 : 1;
    ck_assert(sub_id_equal(sync[1 - ia].sub, r) && sync[1 - ia].finished && sync[1 - ia].have == 7);
    ck_assert(!sync[ia].finished && sync[ia].have > 8);
    ck_assert(!vw_busy(w));
    vw_link(w, WE_GAP, 3, a, 8, now, NULL);
    vw_link(w, WE_CANCEL, 3, r, 0, now, NULL);
    ck_assert_uint_eq(worker_core_sync(w->core, 3, sync, 8), 0); /* all answered */
    wfix_run(5000);
    w->out[0].kind = VW_SYNC;
    wfix_expect_indexes(a, 8, 38);
}
END_TEST

START_TEST(test_sync_is_repeated_until_answered)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 8, 30);
    wfix_link(WE_SESSION_DOWN, a, 0);
    vw_up(w, GW, 77, now, NULL);
    w->n_out = 0;
    now = worker_core_next_tick_ns(w->core, now);
    wfix_link(WE_TICK, a, 0);
    ck_assert_uint_eq(count_out(VW_SYNC), 1);
    wfix_link(WE_GAP, a, 8);
    w->n_out = 0;
    now += 5 * SECOND;
    wfix_link(WE_TICK, a, 0);
    ck_assert_uint_eq(count_out(VW_SYNC), 0);
}
END_TEST

START_TEST(test_lost_sequences_are_freed)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 8, 30), r = wfix_submit(CLASS_REALTIME, 2, 4, 90);
    wfix_run(20);
    wfix_link(WE_SESSION_DOWN, a, 0);
    uint64_t lost = now;
    now = lost + 2 * SECOND - 1;
    wfix_link(WE_TICK, r, 0);
    ck_assert_uint_eq(vw_used(w), 2);
    ck_assert_uint_eq(worker_core_next_tick_ns(w->core, now), lost + 2 * SECOND);
    now = lost + 2 * SECOND;
    wfix_link(WE_TICK, r, 0);
    wfix_run(50);
    ck_assert_uint_eq(vw_used(w), 1);
    now = lost + 30 * SECOND;
    wfix_link(WE_TICK, a, 0);
    wfix_run(50);
    ck_assert_uint_eq(vw_used(w), 0);
    ck_assert_uint_eq(wfix_stats().pool.free, 128);
}
END_TEST

/* Another gateway's session does not see or touch these submissions. */
START_TEST(test_gateways_are_apart)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 8, 5);
    struct worker_sync sync[4];
    vw_up(w, 2, 78, now, NULL);
    ck_assert_uint_eq(worker_core_sync(w->core, 2, sync, 4), 0);
    vw_link(w, WE_CANCEL, 2, a, 0, now, NULL);
    vw_link(w, WE_SESSION_DOWN, 2, a, 0, now, NULL);
    wfix_run(1000);
    wfix_expect_indexes(a, 8, 13);
}
END_TEST

START_TEST(test_drain)
{
    wfix_stop();
    cfg.max_seqs = 2;
    wfix_start();
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 8, 5), b = wfix_submit(CLASS_BATCH, 2, 8, 5),
                  c = wfix_submit(CLASS_BATCH, 3, 8, 5);
    wfix_run(8); /* into the second step: both have seats */
    wfix_link(WE_DRAIN, a, 0);
    ck_assert_int_eq(wfix_finish(c), FINISH_HANDED_BACK);
    struct sub_id d = wfix_submit(CLASS_REALTIME, 4, 8, 5);
    ck_assert_int_eq(wfix_finish(d), FINISH_HANDED_BACK);
    ck_assert_uint_eq(wfix_stats().window[CLASS_REALTIME], 0);
    wfix_run(1000);
    wfix_expect_indexes(a, 8, 13);
    wfix_expect_indexes(b, 8, 13);
    ck_assert(!w->exited);
    struct sub_id all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) wfix_link(WE_ACK, all[i], 0);
    ck_assert(w->exited);
}
END_TEST

START_TEST(test_a_failed_step)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 8, 5);
    wfix_run(8);
    w->fail_next_step = true;
    wfix_run(1000);
    ck_assert_int_eq(wfix_finish(a), FINISH_FAILED);
    ck_assert_uint_eq(wfix_stats().pool.used, 0);
}
END_TEST

START_TEST(test_resubmitted_goes_on_and_counts_as_waste)
{
    struct sub_id sub = {9, 50};
    struct vw_submit s = {
        .key = 3, .n_prompt = 6, .n_tokens = 10, .from = 10, .max_total = 14, .cls = CLASS_BATCH};
    vw_submit(w, GW, sub, &s, now, NULL);
    wfix_run(1000);
    wfix_expect_indexes(sub, 10, 14);
    struct worker_account acc = wfix_stats().account[CLASS_BATCH];
    ck_assert_uint_eq(acc.prompt_first, 0);
    ck_assert_uint_eq(acc.recomputed, 9);
    ck_assert_uint_eq(acc.output, 4);
}
END_TEST

START_TEST(test_nothing_left_to_make)
{
    struct sub_id sub = {9, 50}; /* all ids had come, only the finish was lost */
    struct vw_submit s = {
        .key = 3, .n_prompt = 6, .n_tokens = 10, .from = 10, .max_total = 10, .cls = CLASS_BATCH};
    vw_submit(w, GW, sub, &s, now, NULL);
    ck_assert_int_eq(wfix_finish(sub), FINISH_LENGTH);
    ck_assert(!vw_busy(w));
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("link");
    tcase_add_checked_fixture(tc, setup, wfix_stop);
    tcase_add_test(tc, test_one_request);
    tcase_add_test(tc, test_finish_is_repeated_until_ack);
    tcase_add_test(tc, test_gap_sends_again_from_there);
    tcase_add_test(tc, test_unknown_submissions);
    tcase_add_test(tc, test_same_submission_twice);
    tcase_add_test(tc, test_refused_at_the_door);
    tcase_add_test(tc, test_b04_larger_than_the_pool);
    tcase_add_test(tc, test_no_slot_is_handed_back);
    tcase_add_test(tc, test_b31_cancelled_while_waiting);
    tcase_add_test(tc, test_cancel_in_a_running_step);
    tcase_add_test(tc, test_b33_late_cancel_of_an_older_submission);
    tcase_add_test(tc, test_session_loss_and_sync);
    tcase_add_test(tc, test_sync_is_repeated_until_answered);
    tcase_add_test(tc, test_lost_sequences_are_freed);
    tcase_add_test(tc, test_gateways_are_apart);
    tcase_add_test(tc, test_drain);
    tcase_add_test(tc, test_a_failed_step);
    tcase_add_test(tc, test_resubmitted_goes_on_and_counts_as_waste);
    tcase_add_test(tc, test_nothing_left_to_make);
    return wfix_main("worker_core", tc);
}
