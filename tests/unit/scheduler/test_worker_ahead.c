/* worker_core's steps launched behind a running one (references): what they are made of, and what
 * becomes of them when their source stops, parks, loses spans or fails. */
#include "tests/unit/scheduler/wfix.h"

static void start_with(uint32_t max_refs)
{
    wfix_config();
    cfg.max_refs = max_refs;
    wfix_start();
}

static void setup(void)
{
    start_with(1);
}

static uint64_t waste(void)
{
    struct worker_stats st = wfix_stats();
    uint64_t n = 0;
    for (uint32_t k = 0; k < CLASSES_MAX; k++) n += st.account[k].dropped;
    return n;
}

static struct sub_id submit_stop(uint8_t cls, uint64_t key, uint32_t stop_at, bool host_choice)
{
    struct sub_id sub = {9, next_counter++};
    struct vw_submit s = {.key = key,
                          .n_prompt = 6,
                          .n_tokens = 6,
                          .from = 6,
                          .max_total = 40,
                          .cls = cls,
                          .tag = sub.counter,
                          .stop_at = stop_at,
                          .host_choice = host_choice};
    vw_submit(w, GW, sub, &s, now, NULL);
    return sub;
}

static const struct vw_step *queued(void)
{
    for (int i = 0; i < 3; i++) {
        if (w->steps[i].id != 0 && w->steps[i].behind != 0) return &w->steps[i];
    }
    return NULL;
}

/* Steps until one is queued behind a running one that is not the first. */
static void until_queued(void)
{
    for (uint32_t n = 0; n < 100 && (queued() == NULL || w->launched < 3); n++) wfix_segment();
    ck_assert_ptr_nonnull(queued());
}

START_TEST(test_every_decode_is_launched_ahead)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 6, 10), b = wfix_submit(CLASS_BATCH, 2, 7, 10);
    wfix_run(2000);
    ck_assert_int_eq(wfix_finish(a), FINISH_LENGTH);
    ck_assert_int_eq(wfix_finish(b), FINISH_LENGTH);
    wfix_expect_indexes(a, 6, 16);
    wfix_expect_indexes(b, 7, 17);
    ck_assert_uint_ge(w->launched, 8);
    ck_assert_uint_eq(waste(), 0); /* an end known before is no surplus */
}
END_TEST

START_TEST(test_none_without_the_limit_or_when_the_host_chooses)
{
    wfix_stop();
    start_with(0);
    (void)wfix_submit(CLASS_BATCH, 1, 6, 10);
    wfix_run(2000);
    ck_assert_uint_eq(w->launched, 0);
    wfix_stop();
    start_with(1);
    (void)submit_stop(CLASS_BATCH, 1, 30, true); /* there as long as the other one */
    (void)submit_stop(CLASS_BATCH, 2, 20, false);
    wfix_run(2000);
    ck_assert_uint_eq(w->launched, 0);
    ck_assert_uint_eq(wfix_stats().finished, 2);
}
END_TEST

/* The source's token ends the sequence: one position is waste, the answer is the same. */
START_TEST(test_a_stop_learned_late)
{
    struct sub_id a = submit_stop(CLASS_BATCH, 1, 14, false);
    wfix_run(2000);
    ck_assert_int_eq(wfix_finish(a), FINISH_EOS);
    wfix_expect_indexes(a, 6, 15);
    ck_assert_uint_eq(waste(), 1);
    ck_assert_uint_eq(w->drops + w->surplus, 1);
    wfix_link(WE_ACK, a, 0);
    ck_assert_uint_eq(vw_used(w), 0);
}
END_TEST

/* ACK of the finish before the surplus span is confirmed: the slot stays until then. */
START_TEST(test_an_ack_before_the_surplus_span_is_gone)
{
    struct sub_id a = submit_stop(CLASS_BATCH, 1, 14, false);
    for (uint32_t n = 0; n < 500 && wfix_finish(a) == FINISH_NONE; n++) wfix_segment();
    wfix_link(WE_ACK, a, 0);
    ck_assert_uint_eq(vw_used(w), 1);
    wfix_run(100);
    ck_assert_uint_eq(vw_used(w), 0);
    ck_assert_uint_eq(waste(), 1);
}
END_TEST

START_TEST(test_parking_the_source_holds_what_is_queued)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 6, 20);
    until_queued();
    uint64_t held = queued()->id;
    struct sub_id r = wfix_submit(CLASS_REALTIME, 2, 5, 4);
    while (wfix_finish(r) == FINISH_NONE) {
        ck_assert(wfix_segment());
        if (w->submitted[0] == 0 || wfix_finish(r) != FINISH_NONE) continue;
        ck_assert_ptr_nonnull(queued());
        ck_assert_uint_eq(queued()->id, held);
    }
    wfix_run(2000);
    ck_assert_uint_eq(w->parks, 1);
    ck_assert_int_eq(wfix_finish(a), FINISH_LENGTH);
    wfix_expect_indexes(a, 6, 26);
    ck_assert_uint_eq(waste(), 0);
}
END_TEST

/* Cancelled in both steps: both spans are dropped, the other sequence goes on. */
START_TEST(test_a_cancel_drops_both_spans)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 6, 20), b = wfix_submit(CLASS_BATCH, 2, 6, 20);
    until_queued();
    wfix_link(WE_CANCEL, a, 0);
    ck_assert_uint_eq(vw_used(w), 2);
    wfix_run(2000);
    ck_assert_int_eq(wfix_finish(a), FINISH_CANCELLED);
    ck_assert_int_eq(wfix_finish(b), FINISH_LENGTH);
    ck_assert_uint_eq(vw_used(w), 1);
    ck_assert_uint_eq(w->drops + w->surplus + w->late_drops, 2);
}
END_TEST

START_TEST(test_a_dropped_source_drops_what_refers_to_it)
{
    wfix_stop();
    wfix_config();
    cfg.max_refs = 1;
    cfg.debug_drop_every = 5;
    wfix_start();
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 6, 40), b = wfix_submit(CLASS_BATCH, 2, 6, 40);
    wfix_run(5000);
    wfix_expect_indexes(a, 6, 46);
    wfix_expect_indexes(b, 6, 46);
    ck_assert_uint_gt(w->launched, 10);
    ck_assert_uint_gt(wfix_stats().drops, 2);
}
END_TEST

START_TEST(test_a_failed_source)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 6, 20);
    until_queued();
    w->fail_next_step = true;
    wfix_run(2000);
    ck_assert_int_eq(wfix_finish(a), FINISH_FAILED);
    struct sub_id b = wfix_submit(CLASS_BATCH, 2, 6, 20);
    wfix_run(2000);
    ck_assert_int_eq(wfix_finish(b), FINISH_LENGTH);
}
END_TEST

/* Preempted in both, by each debug switch at once: the ids stay what they were. */
START_TEST(test_all_switches_at_once)
{
    wfix_stop();
    wfix_config();
    cfg.max_refs = 1;
    cfg.debug_drop_every = 7;
    cfg.debug_park_every = 3;
    cfg.debug_preempt_every = 5;
    wfix_start();
    struct sub_id s[6];
    for (uint32_t i = 0; i < 6; i++)
        s[i] = wfix_submit(i < 2 ? CLASS_REALTIME : CLASS_BATCH, 10 + i, 6 + i, 30);
    wfix_run(20000);
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert_int_eq(wfix_finish(s[i]), FINISH_LENGTH);
        wfix_expect_indexes(s[i], 6 + i, 36 + i);
    }
    ck_assert_uint_gt(w->launched, 5);
    ck_assert_uint_gt(wfix_stats().preemptions, 2);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("ahead");
    tcase_add_checked_fixture(tc, setup, wfix_stop);
    tcase_add_test(tc, test_every_decode_is_launched_ahead);
    tcase_add_test(tc, test_none_without_the_limit_or_when_the_host_chooses);
    tcase_add_test(tc, test_a_stop_learned_late);
    tcase_add_test(tc, test_an_ack_before_the_surplus_span_is_gone);
    tcase_add_test(tc, test_parking_the_source_holds_what_is_queued);
    tcase_add_test(tc, test_a_cancel_drops_both_spans);
    tcase_add_test(tc, test_a_dropped_source_drops_what_refers_to_it);
    tcase_add_test(tc, test_a_failed_source);
    tcase_add_test(tc, test_all_switches_at_once);
    return wfix_main("worker_ahead", tc);
}
