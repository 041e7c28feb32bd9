/* gateway_core, event by event: which actions follow. */
#include "tests/unit/scheduler/gfix.h"

START_TEST(test_one_request)
{
    arrive(3, CLASS_REALTIME);
    ck_assert_uint_eq(n_acts, 0);
    hello(0, 100, 1);
    ck_assert_ptr_null(one(GA_SUBMIT)); /* never before SYNC */
    sync(0, NULL, 0);
    struct sub_id s = submitted(3);
    ck_assert_uint_eq(one(GA_SUBMIT)->from, 4);
    tokens(0, s, 4, 2, FINISH_NONE);
    ck_assert_uint_eq(one(GA_DELIVER)->n, 2);
    tokens(0, s, 6, 2, FINISH_LENGTH);
    ck_assert_uint_eq(one(GA_DELIVER)->n, 2);
    ck_assert_int_eq(one(GA_DELIVER)->finish, FINISH_LENGTH);
    ck_assert_ptr_nonnull(one(GA_ACK));
    tokens(0, s, 8, 0, FINISH_LENGTH); /* the ACK was lost: again, delivered no more */
    ck_assert_ptr_nonnull(one(GA_ACK));
    ck_assert_uint_eq(n_acts, 1);
    on_slot(GE_RELEASE, 3);
    ck_assert_uint_eq(n_acts, 0);
    tokens(0, s, 8, 0, FINISH_LENGTH); /* forgotten: CANCEL ends the repeats */
    ck_assert(sub_id_equal(one(GA_CANCEL)->sub, s));
}
END_TEST

START_TEST(test_gaps_and_repeats)
{
    live(0);
    arrive(0, CLASS_REALTIME);
    struct sub_id s = submitted(0);
    tokens(0, s, 5, 1, FINISH_NONE);
    ck_assert_uint_eq(one(GA_GAP)->from, 4);
    tokens(0, s, 7, 1, FINISH_LENGTH); /* a finish after a gap does not count */
    ck_assert_uint_eq(one(GA_GAP)->from, 4);
    tokens(0, s, 4, 3, FINISH_NONE);
    ck_assert_uint_eq(one(GA_DELIVER)->n, 3);
    tokens(0, s, 4, 2, FINISH_NONE);
    ck_assert_uint_eq(n_acts, 0);
    tokens(0, s, 5, 3, FINISH_LENGTH);
    ck_assert_uint_eq(one(GA_DELIVER)->skip, 2);
    ck_assert_uint_eq(one(GA_DELIVER)->n, 1);
    ck_assert_int_eq(one(GA_DELIVER)->finish, FINISH_LENGTH);
}
END_TEST

START_TEST(test_more_tokens_than_asked_for)
{
    live(0);
    arrive(0, CLASS_REALTIME);
    struct sub_id s = submitted(0);
    tokens(0, s, 4, 9, FINISH_NONE);
    ck_assert_ptr_nonnull(one(GA_CANCEL));
    ck_assert_ptr_null(one(GA_DELIVER));
    s = submitted(0); /* once more, under a fresh id */
    tokens(0, s, 4, UINT32_MAX, FINISH_NONE);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_PROTOCOL);
}
END_TEST

START_TEST(test_foreign_submissions)
{
    live(0);
    struct sub_id old = {INCARNATION - 1, 7};
    tokens(0, old, 4, 1, FINISH_NONE);
    ck_assert(sub_id_equal(one(GA_CANCEL)->sub, old));
    tokens(0, old, 4, 0, FINISH_UNKNOWN); /* answers to CANCEL end the matter */
    ck_assert_uint_eq(n_acts, 0);
    tokens(0, old, 4, 0, FINISH_CANCELLED);
    ck_assert_uint_eq(n_acts, 0);
    tokens(1, old, 4, 1, FINISH_NONE); /* a session that is down: nothing */
    ck_assert_uint_eq(n_acts, 0);
}
END_TEST

START_TEST(test_durable_is_acknowledged_late)
{
    live(0);
    arrive_with(2, CLASS_BATCH, 1, 0, true);
    struct sub_id s = submitted(2);
    tokens(0, s, 4, 4, FINISH_EOS);
    ck_assert_ptr_null(one(GA_ACK));
    tokens(0, s, 8, 0, FINISH_EOS);
    ck_assert_uint_eq(n_acts, 0);
    on_slot(GE_DURABLE, 2);
    ck_assert(sub_id_equal(one(GA_ACK)->sub, s));
    arrive(2, CLASS_BATCH); /* the slot is free again */
}
END_TEST

/* Session lost, same process back: its SYNC is taken up, nothing is computed twice. */
START_TEST(test_same_process_comes_back)
{
    live(0);
    arrive(0, CLASS_REALTIME);
    struct sub_id s = submitted(0), stale = {INCARNATION, 999};
    tokens(0, s, 4, 1, FINISH_NONE);
    on_worker(GE_DOWN, 0);
    now += SECOND;
    hello(1, 100, 1); /* under another session index */
    struct gateway_sync list[] = {{stale, 9, true}, {s, 7, false}};
    sync(1, list, 2);
    ck_assert(sub_id_equal(one(GA_CANCEL)->sub, stale));
    ck_assert_uint_eq(one(GA_GAP)->from, 5);
    ck_assert_ptr_null(one(GA_SUBMIT));
    tokens(1, s, 5, 3, FINISH_LENGTH);
    ck_assert_uint_eq(one(GA_DELIVER)->n, 3);
}
END_TEST

START_TEST(test_another_process_comes_back)
{
    live(0);
    arrive(0, CLASS_REALTIME);
    struct sub_id s = submitted(0);
    tokens(0, s, 4, 1, FINISH_NONE);
    hello(1, 100, 2); /* same name, killed and restarted; the old session's end was not seen */
    struct gateway_sync list = {s, 7,
                                false}; /* it cannot know this one, but if it says so: CANCEL */
    sync(1, &list, 1);
    ck_assert_ptr_nonnull(one(GA_CANCEL));
    struct sub_id t = submitted(0);
    ck_assert(!sub_id_equal(s, t));
    ck_assert_uint_eq(one(GA_SUBMIT)->from, 5); /* with the ids it has */
    tokens(1, t, 5, 3, FINISH_LENGTH);
    ck_assert_uint_eq(one(GA_DELIVER)->n, 3);
}
END_TEST

START_TEST(test_absent_from_sync_is_sent_again)
{
    live(0);
    arrive(0, CLASS_BATCH);
    struct sub_id s = submitted(0);
    hello(0, 100, 1);
    sync(0, NULL, 0);
    ck_assert(!sub_id_equal(submitted(0), s));
    sync(0, NULL, 0); /* a repeated SYNC of a live session takes nothing back */
    ck_assert_uint_eq(n_acts, 0);
}
END_TEST

START_TEST(test_moved_while_away)
{
    live(0);
    arrive(0, CLASS_BATCH);
    struct sub_id s = submitted(0);
    live(1);
    on_worker(GE_DOWN, 0);
    struct sub_id t = submitted(0);
    ck_assert_uint_eq(one(GA_SUBMIT)->worker, 1);
    hello(0, 100, 1);
    struct gateway_sync list = {s, 6, false};
    sync(0, &list, 1);
    ck_assert(sub_id_equal(one(GA_CANCEL)->sub, s));
    tokens(0, s, 4, 1, FINISH_NONE);
    ck_assert(sub_id_equal(one(GA_CANCEL)->sub, s));
    tokens(1, t, 4, 4, FINISH_LENGTH);
    ck_assert_ptr_nonnull(one(GA_DELIVER));
}
END_TEST

/* B67: no worker: real-time fails after 5 s, batch waits. */
START_TEST(test_b67_no_worker)
{
    arrive(0, CLASS_REALTIME);
    arrive(1, CLASS_BATCH);
    ck_assert_uint_eq(gateway_core_next_tick_ns(g, now), now + 5 * SECOND);
    now += 5 * SECOND - 1;
    tick();
    ck_assert_uint_eq(n_acts, 0);
    now++;
    tick();
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_NO_WORKER);
    ck_assert_uint_eq(one(GA_FAIL)->slot, 0);
    ck_assert_uint_eq(gateway_core_next_tick_ns(g, now), UINT64_MAX);
    live(0);
    submitted(1);
}
END_TEST

START_TEST(test_b67_worker_lost_in_mid_stream)
{
    live(0);
    arrive(0, CLASS_REALTIME);
    tokens(0, submitted(0), 4, 2, FINISH_NONE);
    on_worker(GE_DOWN, 0);
    now += SECOND;
    struct gateway_event other = hello_of(1, 101, 1, 2); /* other numerics: of no use to it */
    give(&other);
    sync(1, NULL, 0);
    ck_assert_ptr_null(one(GA_SUBMIT));
    ck_assert_uint_eq(gateway_core_next_tick_ns(g, now), now + 4 * SECOND);
    arrive(1, CLASS_REALTIME); /* a fresh one does not mind */
    submitted(1);
    now += 4 * SECOND;
    tick();
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_WORKER_LOST);
}
END_TEST

START_TEST(test_batch_starts_again_under_other_numerics)
{
    live(0);
    arrive(0, CLASS_BATCH);
    tokens(0, submitted(0), 4, 2, FINISH_NONE);
    on_worker(GE_DOWN, 0);
    now += 60 * SECOND;
    tick();
    ck_assert_uint_eq(n_acts, 0); /* nobody there at all: it waits for an equal one */
    ck_assert_uint_eq(gateway_core_next_tick_ns(g, now), UINT64_MAX);
    struct gateway_event other = hello_of(1, 101, 1, 2);
    give(&other);
    sync(1, NULL, 0);
    ck_assert_uint_eq(gateway_core_next_tick_ns(g, now), now); /* alone for longer than lost_ns */
    tick();
    ck_assert_uint_eq(one(GA_RESTART)->slot, 0);
    submitted(0);
    ck_assert_uint_eq(one(GA_SUBMIT)->from, 4);
    tokens(1, one(GA_SUBMIT)->sub, 4, 4, FINISH_LENGTH);
    ck_assert_uint_eq(one(GA_DELIVER)->n, 4);
}
END_TEST

/* B92: a deadline is seen on arrival, on dequeue, while it is queued and while it runs. */
START_TEST(test_b92_deadlines)
{
    arrive_with(0, CLASS_REALTIME, 0, now, false);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_DEADLINE);
    arrive_with(0, CLASS_BATCH, 0, now + SECOND, false);
    arrive_with(1, CLASS_BATCH, 0, now + 2 * SECOND, false);
    ck_assert_uint_eq(gateway_core_next_tick_ns(g, now), now + SECOND);
    now += SECOND;
    tick();
    ck_assert_uint_eq(one(GA_FAIL)->slot, 0);
    now += SECOND;
    hello(0, 100, 1); /* any event looks at the head of a queue */
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_DEADLINE);
    sync(0, NULL, 0);
    ck_assert_uint_eq(n_acts, 0); /* no prefill for the dead */
    arrive_with(2, CLASS_REALTIME, 0, now + SECOND, false);
    struct sub_id s = submitted(2);
    tokens(0, s, 4, 1, FINISH_NONE);
    now += SECOND;
    tick();
    ck_assert(sub_id_equal(one(GA_CANCEL)->sub, s));
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_DEADLINE);
    arrive_with(3, CLASS_REALTIME, 0, UINT64_MAX, false);
    submitted(3);
}
END_TEST

START_TEST(test_windows_and_order)
{
    for (uint32_t i = 0; i < 10; i++) arrive_with(i, CLASS_BATCH, 100 - i, 0, false);
    live(0);
    ck_assert_uint_eq(count(GA_SUBMIT), 4); /* max_seqs until the first STATUS */
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(acts[i].slot, 9 - i); /* smallest tag first */
    status(0, 1, 0, false);
    ck_assert_uint_eq(n_acts, 0);
    arrive(20, CLASS_REALTIME); /* never held back for a window */
    submitted(20);
    status(0, 2, 2, false);
    ck_assert_uint_eq(count(GA_SUBMIT), 2);
    status(0, 2, 9, false); /* an old number says nothing new */
    ck_assert_uint_eq(n_acts, 0);
    status(0, 3, 4, true); /* draining */
    ck_assert_uint_eq(n_acts, 0);
    live(1);
    ck_assert_uint_eq(count(GA_SUBMIT), 4);
    ck_assert_uint_eq(acts[n_acts - 1].worker, 1);
}
END_TEST

/* Each end makes room for the next one at once, without a STATUS in between. */
START_TEST(test_an_end_makes_room)
{
    live(0);
    struct sub_id running[4];
    for (uint32_t i = 0; i < 4; i++) {
        arrive(i, CLASS_BATCH);
        running[i] = submitted(i);
    }
    for (uint32_t i = 4; i < 12; i++) arrive(i, CLASS_BATCH);
    status(0, 1, 0, false);
    ck_assert_uint_eq(n_acts, 0);
    for (uint32_t i = 0; i < 3; i++) {
        tokens(0, running[i], 4, 4, FINISH_LENGTH);
        submitted(4 + i);
    }
    on_slot(GE_CANCEL, 3);
    submitted(7);
    tokens(0, one(GA_SUBMIT)->sub, 4, 0, FINISH_HANDED_BACK); /* no room after all */
    ck_assert_ptr_null(one(GA_SUBMIT));
}
END_TEST

START_TEST(test_spread_over_workers)
{
    live(0);
    live(1);
    uint32_t on[2] = {0, 0};
    for (uint32_t i = 0; i < 8; i++) {
        arrive(i, CLASS_REALTIME);
        on[one(GA_SUBMIT)->worker]++;
    }
    ck_assert_uint_eq(on[0], 4);
    ck_assert_uint_eq(on[1], 4);
}
END_TEST

START_TEST(test_handed_back_blocks_only_itself)
{
    live(0);
    arrive(0, CLASS_BATCH);
    struct sub_id s = submitted(0);
    tokens(0, s, 0, 0, FINISH_HANDED_BACK);
    ck_assert_ptr_nonnull(one(GA_ACK));
    ck_assert_ptr_null(one(GA_SUBMIT)); /* not to the same worker before a newer STATUS */
    arrive(1, CLASS_BATCH);
    submitted(1);
    status(0, 1, 4, false);
    ck_assert(!sub_id_equal(submitted(0), s));
    tokens(0, one(GA_SUBMIT)->sub, 4, 0, FINISH_UNKNOWN); /* the worker lost it: likewise */
    ck_assert_uint_eq(n_acts, 0);
    live(1);
    ck_assert_uint_eq(one(GA_SUBMIT)->worker, 1);
}
END_TEST

START_TEST(test_bad_finishes)
{
    live(0);
    arrive(0, CLASS_REALTIME);
    tokens(0, submitted(0), 4, 1, FINISH_NONE);
    struct sub_id s = {INCARNATION, 1u * 32u};
    tokens(0, s, 5, 0, FINISH_FAILED);
    ck_assert_uint_eq(one(GA_SUBMIT)->from, 5); /* once more from the queue */
    tokens(0, one(GA_SUBMIT)->sub, 5, 0, FINISH_FAILED);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_INTERNAL);
    ck_assert_ptr_nonnull(one(GA_ACK));
    arrive(1, CLASS_REALTIME);
    tokens(0, submitted(1), 4, 0, FINISH_TOO_LARGE);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_POOL_TOO_SMALL);
    arrive(1, CLASS_REALTIME);
    tokens(0, submitted(1), 4, 0, FINISH_REFUSED);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_INTERNAL);
    arrive(1, CLASS_REALTIME);
    tokens(0, submitted(1), 0, 0, FINISH_CANCELLED); /* nobody asked */
    submitted(1);
}
END_TEST

START_TEST(test_cancel)
{
    arrive(0, CLASS_BATCH);
    on_slot(GE_CANCEL, 0);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_CANCELLED);
    on_slot(GE_CANCEL, 0); /* free: nothing */
    ck_assert_uint_eq(n_acts, 0);
    live(0);
    arrive(0, CLASS_REALTIME);
    struct sub_id s = submitted(0);
    on_slot(GE_CANCEL, 0);
    ck_assert(sub_id_equal(one(GA_CANCEL)->sub, s));
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_CANCELLED);
    arrive(0, CLASS_REALTIME); /* the slot again, under a fresh id */
    struct sub_id t = submitted(0);
    tokens(0, s, 4, 1, FINISH_NONE);
    ck_assert_ptr_null(one(GA_DELIVER));
    tokens(0, t, 4, 4, FINISH_EOS);
    on_slot(GE_CANCEL, 0); /* DONE: like release */
    ck_assert_ptr_null(one(GA_FAIL));
}
END_TEST

START_TEST(test_send_full)
{
    live(0);
    arrive(0, CLASS_REALTIME);
    struct sub_id s = submitted(0);
    struct gateway_event full = {.kind = GE_SEND_FULL, .worker = 0, .sub = s};
    give(&full);
    ck_assert_uint_eq(n_acts, 0); /* not at once: that would spin */
    uint64_t due = gateway_core_next_tick_ns(g, now);
    ck_assert(due > now && due < now + SECOND);
    now = due;
    tick();
    ck_assert(!sub_id_equal(submitted(0), s));
}
END_TEST

START_TEST(test_hello_refusals)
{
    gateway_core_expect(g, (struct hash128){1, 2}, (struct hash128){0, 0});
    struct gateway_event ev = hello_of(0, 1, 1, 1);
    give(&ev);
    ck_assert_int_eq(one(GA_HELLO_REPLY)->code, ERR_MODEL_NOT_FOUND);
    ev.hello.model = (struct hash128){1, 2};
    ev.hello.vocab = (struct hash128){9, 9}; /* not checked */
    ev.hello.version_min = 2;
    ev.hello.version_max = 3;
    give(&ev);
    ck_assert_int_eq(one(GA_HELLO_REPLY)->code, ERR_PROTOCOL);
    ev.hello.version_min = 1;
    give(&ev);
    ck_assert_int_eq(one(GA_HELLO_REPLY)->code, ERR_OK);
    ck_assert_uint_eq(one(GA_HELLO_REPLY)->version, 1);
    ev.hello.n_blocks = 0;
    give(&ev);
    ck_assert_int_eq(one(GA_HELLO_REPLY)->code, ERR_PROTOCOL);
    sync(0, NULL, 0); /* refused: its SYNC opens nothing */
    arrive(0, CLASS_REALTIME);
    ck_assert_uint_eq(n_acts, 0);
    ck_assert_uint_eq(gateway_core_capacity(g), 0);
}
END_TEST

START_TEST(test_capacity)
{
    live(0);
    ck_assert_uint_eq(gateway_core_capacity(g), 64);
    struct gateway_event ev = hello_of(1, 7, 1, 1);
    ev.hello.n_blocks = 1000;
    give(&ev);
    sync(1, NULL, 0);
    ck_assert_uint_eq(gateway_core_capacity(g), 100);
    ev = (struct gateway_event){.kind = GE_ARRIVED, .slot = 0};
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = 90;
    ev.arrived.max_total = 95;
    give(&ev);
    ck_assert_uint_eq(one(GA_SUBMIT)->worker, 1); /* only the larger one can hold it */
}
END_TEST

/* n_prompt ids, as many wanted that they make `total`. */
static void arrive_long(uint32_t slot, uint8_t cls, uint32_t n_prompt, uint32_t total)
{
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = slot};
    ev.arrived.cls = cls;
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = n_prompt;
    ev.arrived.max_total = total;
    give(&ev);
}

/* It came while no worker was there to measure it: the first one decides, as it would have then. */
START_TEST(test_too_large_for_the_worker_that_comes)
{
    arrive_long(0, CLASS_BATCH, 30, 90);
    arrive_long(1, CLASS_REALTIME, 63, 90);
    arrive_long(2, CLASS_BATCH, 64, 90);
    arrive_long(3, CLASS_REALTIME, 70, 90);
    arrive_long(4, CLASS_BATCH, 64, 64); /* nothing to make: fits */
    live(0); /* 64 positions */
    ck_assert_uint_eq(one(GA_SUBMIT)->slot, 4);
    ck_assert_uint_eq(one(GA_SUBMIT)->max_total, 64);
    ck_assert_uint_le(gateway_core_next_tick_ns(g, now), now);
    tick();
    ck_assert_uint_eq(count(GA_SUBMIT), 2);
    ck_assert_uint_eq(count(GA_FAIL), 2);
    for (uint32_t i = 0; i < n_acts; i++) {
        const struct gateway_action *a = &acts[i];
        if (a->kind == GA_SUBMIT) ck_assert(a->slot < 2 && a->max_total == 64);
        if (a->kind != GA_FAIL) continue;
        ck_assert(a->slot == 2 || a->slot == 3);
        ck_assert_int_eq(a->code, ERR_POOL_TOO_SMALL);
    }
}
END_TEST

static void live_with_blocks(uint32_t worker, uint64_t incarnation, uint32_t n_blocks)
{
    struct gateway_event ev = hello_of(worker, 100, incarnation, 1);
    ev.hello.n_blocks = n_blocks;
    give(&ev);
    sync(worker, NULL, 0);
}

/* The worker comes back with a smaller pool: whoever ran in the larger one waits for such a one
 * first, then nothing waits for ever. */
START_TEST(test_smaller_worker_comes_back)
{
    live_with_blocks(0, 1, 26);
    arrive_long(0, CLASS_BATCH, 4, 90);
    struct sub_id begun = submitted(0);
    arrive_long(1, CLASS_BATCH, 4, 90);
    arrive_long(2, CLASS_BATCH, 80, 90);
    tokens(0, begun, 4, 1, FINISH_NONE);
    on_worker(GE_DOWN, 0);
    live_with_blocks(0, 2, 17);
    tick();
    ck_assert_uint_eq(n_acts, 0);
    now += 4 * SECOND;
    tick();
    ck_assert_uint_eq(n_acts, 0);
    now += 2 * SECOND;
    tick();
    ck_assert_uint_eq(one(GA_SUBMIT)->slot, 1);
    ck_assert_uint_eq(one(GA_SUBMIT)->max_total, 64);
    ck_assert_uint_eq(count(GA_FAIL), 2);
    for (uint32_t i = 0; i < n_acts; i++) {
        if (acts[i].kind != GA_FAIL) continue;
        enum err_code want = acts[i].slot == 0 ? ERR_WORKER_LOST : ERR_POOL_TOO_SMALL;
        ck_assert_int_eq(acts[i].code, want);
    }
}
END_TEST

START_TEST(test_drain)
{
    live(0);
    arrive(0, CLASS_BATCH);
    struct sub_id s = submitted(0);
    struct gateway_event ev = {.kind = GE_DRAIN};
    give(&ev);
    ck_assert_ptr_null(one(GA_DRAINED));
    arrive(1, CLASS_REALTIME);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_DRAINING);
    tokens(0, s, 4, 4, FINISH_LENGTH);
    ck_assert_ptr_null(one(GA_DRAINED));
    on_slot(GE_RELEASE, 0);
    ck_assert_ptr_nonnull(one(GA_DRAINED));
    tick();
    ck_assert_ptr_null(one(GA_DRAINED));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway_core");
    TCase *tc = tcase_create("events");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_one_request);
    tcase_add_test(tc, test_gaps_and_repeats);
    tcase_add_test(tc, test_more_tokens_than_asked_for);
    tcase_add_test(tc, test_foreign_submissions);
    tcase_add_test(tc, test_durable_is_acknowledged_late);
    tcase_add_test(tc, test_same_process_comes_back);
    tcase_add_test(tc, test_another_process_comes_back);
    tcase_add_test(tc, test_absent_from_sync_is_sent_again);
    tcase_add_test(tc, test_moved_while_away);
    tcase_add_test(tc, test_b67_no_worker);
    tcase_add_test(tc, test_b67_worker_lost_in_mid_stream);
    tcase_add_test(tc, test_batch_starts_again_under_other_numerics);
    tcase_add_test(tc, test_b92_deadlines);
    tcase_add_test(tc, test_windows_and_order);
    tcase_add_test(tc, test_an_end_makes_room);
    tcase_add_test(tc, test_spread_over_workers);
    tcase_add_test(tc, test_handed_back_blocks_only_itself);
    tcase_add_test(tc, test_bad_finishes);
    tcase_add_test(tc, test_cancel);
    tcase_add_test(tc, test_send_full);
    tcase_add_test(tc, test_hello_refusals);
    tcase_add_test(tc, test_capacity);
    tcase_add_test(tc, test_too_large_for_the_worker_that_comes);
    tcase_add_test(tc, test_smaller_worker_comes_back);
    tcase_add_test(tc, test_drain);
    suite_add_tcase(s, tc);
    return test_run(s);
}
