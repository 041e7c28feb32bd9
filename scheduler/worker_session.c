/* Sessions, SYNC, GAP, CANCEL, ACK, finishes, drain and the tick: the link half of worker_core. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

static void wc_answer(uint32_t gw, struct sub_id sub, enum finish f, struct wc_out *o)
{
    struct worker_action *a = wc_emit(o, WA_FINISH);
    a->gw = gw;
    a->sub = sub;
    a->finish = f;
}

void wc_send(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    bool finished = s->state == WC_FINISHED;
    if (!s->attached || (s->sent == s->made && !finished)) return;
    struct worker_action *a = wc_emit(o, WA_TOKENS);
    a->gw = s->gw;
    a->sub = s->sub;
    a->slot = slot;
    a->from = s->sent;
    a->to = s->made;
    a->cached = s->cached;
    a->preemptions = s->preemptions;
    a->finish = finished ? (enum finish)s->finish : FINISH_NONE;
    if (finished) memcpy(a->booked_ns, s->booked_ns, sizeof a->booked_ns);
    s->sent = s->made;
    if (finished) s->finish_at_ns = c->now_ns + c->cfg.finish_repeat_ns;
}

void wc_finish(struct worker_core *c, uint32_t slot, enum finish f, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    assert(s->state == WC_WAITING || s->state == WC_ACTIVE);
    assert(f != FINISH_NONE);
    if (s->state == WC_ACTIVE) wc_leave_seat(c, slot, false, o);
    wc_close_seq(c, slot);
    wc_ledger_end(c, s);
    wc_set_state(c, slot, WC_FINISHED);
    s->finish = (uint8_t)f;
    wc_set_timer(c, slot);
    wc_send(c, slot, o);
}

void wc_slot_free(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    assert(s->state != WC_FREE && s->in_step == 0 && s->seq == KV_SEQ_NONE);
    wc_set_state(c, slot, WC_FREE);
    wc_set_timer(c, slot);
    wc_set_name(c, slot);
    wc_pay(c, s);
    memset(s, 0, sizeof *s);
    s->seq = KV_SEQ_NONE;
    wc_emit(o, WA_FREE)->slot = slot;
}

/* The sequence goes away whatever it is doing; a span in flight is dropped first. */
static void wc_remove(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    if (s->state == WC_ACTIVE) wc_leave_seat(c, slot, false, o);
    wc_close_seq(c, slot);
    if (s->in_step == 0) {
        wc_slot_free(c, slot, o);
        return;
    }
    wc_set_state(c, slot, WC_DROPPING);
    wc_set_timer(c, slot);
}

static void wc_sync(struct worker_core *c, uint32_t gw, struct wc_out *o)
{
    wc_emit(o, WA_SYNC)->gw = gw;
    c->sessions[gw].sync_at_ns = c->now_ns + c->cfg.finish_repeat_ns;
}

void wc_session_up(struct worker_core *c, uint32_t gw, uint64_t gateway, struct wc_out *o)
{
    if (c->sessions[gw].up) wc_session_down(c, gw);
    c->sessions[gw] = (struct wc_session){.gateway = gateway, .up = 1};
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        struct wc_slot *s = &wc_slots(c)[i];
        if (s->state == WC_FREE || s->state == WC_DROPPING || s->gateway != gateway) continue;
        /* The loss is over: from now on SYNC is repeated until the gateway answers. Freeing by time
         * here would let a lost GAP end in a submission that the gateway waits for and nobody
         * holds. */
        s->lost = 0;
        s->lost_at_ns = 0;
        s->attached = 0;
        s->gw = gw;
        wc_set_timer(c, i);
    }
    wc_sync(c, gw, o);
}

void wc_session_down(struct worker_core *c, uint32_t gw)
{
    if (!c->sessions[gw].up) return;
    c->sessions[gw] = (struct wc_session){.up = 0};
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        struct wc_slot *s = &wc_slots(c)[i];
        if (s->state == WC_FREE || s->state == WC_DROPPING || s->gw != gw) continue;
        if (!s->lost) s->lost_at_ns = c->now_ns;
        s->lost = 1;
        s->attached = 0;
        s->gw = WC_NONE;
        wc_set_timer(c, i);
    }
}

void wc_cancel(struct worker_core *c, uint32_t gw, struct sub_id sub, struct wc_out *o)
{
    if (!c->sessions[gw].up) return;
    uint32_t slot = wc_find(c, c->sessions[gw].gateway, sub);
    wc_answer(gw, sub, slot == WC_NONE ? FINISH_UNKNOWN : FINISH_CANCELLED, o);
    if (slot != WC_NONE) wc_remove(c, slot, o);
}

/* Attaches, and sends again from `from`. Records start at the submission's own first index, so an
 * earlier one cannot be served: such a submission is of no use to its gateway any more. */
void wc_gap(struct worker_core *c, uint32_t gw, struct sub_id sub, uint32_t from, struct wc_out *o)
{
    if (!c->sessions[gw].up) return;
    uint32_t slot = wc_find(c, c->sessions[gw].gateway, sub);
    struct wc_slot *s = slot == WC_NONE ? NULL : &wc_slots(c)[slot];
    if (s == NULL || from < s->from) {
        wc_answer(gw, sub, FINISH_UNKNOWN, o);
        if (s != NULL) wc_remove(c, slot, o);
        return;
    }
    s->gw = gw;
    s->attached = 1;
    s->lost = 0;
    s->lost_at_ns = 0;
    wc_set_timer(c, slot);
    s->sent = from < s->made ? from : s->made;
    wc_send(c, slot, o);
}

void wc_ack(struct worker_core *c, uint32_t gw, struct sub_id sub, struct wc_out *o)
{
    if (!c->sessions[gw].up) return;
    uint32_t slot = wc_find(c, c->sessions[gw].gateway, sub);
    if (slot != WC_NONE && wc_slots(c)[slot].state == WC_FINISHED) wc_remove(c, slot, o);
}

/* What has not started is handed back; what runs, or was preempted, runs to its end. */
void wc_drain(struct worker_core *c, struct wc_out *o)
{
    c->draining = 1;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        struct wc_slot *s = &wc_slots(c)[i];
        if (s->state == WC_WAITING && s->admitted == 0) wc_finish(c, i, FINISH_HANDED_BACK, o);
    }
}

static void wc_tick_slot(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    if (s->state == WC_FREE || s->state == WC_DROPPING) return;
    uint64_t limit = s->rank == 0 ? c->cfg.lost_realtime_ns : c->cfg.lost_batch_ns;
    if (s->lost && c->now_ns - s->lost_at_ns >= limit)
        wc_remove(c, slot, o);
    else if (s->state == WC_FINISHED && s->attached && c->now_ns >= s->finish_at_ns)
        wc_send(c, slot, o);
}

static bool wc_has_detached(const struct worker_core *c, uint32_t gw)
{
    for (uint32_t i = 0; i < c->n_timers; i++) {
        const struct wc_slot *s = &wc_slots(c)[wc_timers(c)[i]];
        if (s->gw == gw && !s->attached) return true;
    }
    return false;
}

void wc_tick(struct worker_core *c, struct wc_out *o)
{
    if (c->n_timers > 0) {
        for (uint32_t i = 0; i < c->cfg.max_slots; i++) wc_tick_slot(c, i, o);
    }
    for (uint32_t gw = 0; gw < WORKER_GATEWAYS_MAX; gw++) {
        if (c->sessions[gw].up && c->now_ns >= c->sessions[gw].sync_at_ns && wc_has_detached(c, gw))
            wc_sync(c, gw, o);
    }
    uint32_t parked = wc_parked(c);
    if (parked == WC_NONE || c->now_ns - c->steps[parked].progress_ns < c->cfg.park_max_ns) return;
    wc_drop_youngest(c, parked, o);
    c->steps[parked].progress_ns = c->now_ns;
}

/* Only what still waits for its gateway's answer: a first SYNC lists everything, a repeated one the
 * rest. */
uint32_t worker_core_sync(const struct worker_core *c, uint32_t gw, struct worker_sync *out,
                          uint32_t cap)
{
    uint32_t n = 0;
    assert(gw < WORKER_GATEWAYS_MAX);
    for (uint32_t i = 0; i < c->cfg.max_slots && n < cap; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if (s->state == WC_FREE || s->state == WC_DROPPING || s->gw != gw || s->attached) continue;
        out[n++] = (struct worker_sync){
            .sub = s->sub, .have = s->made, .finished = s->state == WC_FINISHED};
    }
    return n;
}
