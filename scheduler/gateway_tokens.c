/* TOKENS: what is new is delivered, what is missing asked for again, what is known ignored. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>

static void gc_ack(struct gateway_core *c, uint32_t slot, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    gc_link(o, GA_ACK, s->worker, slot, s->sub);
    s->acked = 1;
}

/* Not (or no longer) a current submission. The answers to our own CANCEL and GAP end the matter;
 * for anything else the worker computes for nobody and must be told. */
static void gc_foreign(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o)
{
    c->unknown_tokens++;
    if (ev->tokens.finish == FINISH_UNKNOWN || ev->tokens.finish == FINISH_CANCELLED) return;
    gc_link(o, GA_CANCEL, ev->worker, GC_NONE, ev->sub);
    c->cancels++;
}

static void gc_deliver(struct gateway_core *c, uint32_t slot, const struct gateway_event *ev,
                       enum finish f, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (ev->tokens.index > s->next)
        return; /* a bare bad finish after a gap: what is missing is made again */
    uint32_t end = ev->tokens.index + ev->tokens.n, skip = s->next - ev->tokens.index;
    uint32_t n = end > s->next ? end - s->next : 0;
    if (n == 0 && f == FINISH_NONE) return;
    s->next += n;
    if (s->next > s->n_ids) s->n_ids = s->next;
    if (n > 0 && s->next > s->n_prompt) s->numerics = gc_workers(c)[s->worker].numerics;
    gc_tenant_pays(c, slot, ev->tokens.cached);
    if (n > 0) gc_admit_work(c, slot, n);
    struct gateway_action *a = gc_emit(o, GA_DELIVER);
    a->worker = ev->worker;
    a->slot = slot;
    a->sub = s->sub;
    a->skip = n > 0 ? skip : ev->tokens.n;
    a->n = n;
    a->finish = f;
}

/* Back to the queue: the worker is done with this submission, the request is not. */
static void gc_come_back(struct gateway_core *c, uint32_t slot, bool refused, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    uint32_t worker = s->worker;
    gc_ack(c, slot, o);
    s->acked = 0;
    s->has_sub = 0;
    if (refused) gc_refuse(c, s, worker);
    gc_left_worker(c, slot);
    gc_queue(c, slot);
}

static void gc_end_badly(struct gateway_core *c, uint32_t slot, enum err_code code,
                         struct gc_out *o)
{
    gc_ack(c, slot, o);
    gc_left_worker(c, slot);
    gc_slots(c)[slot].state = GC_FREE; /* nothing to cancel any more */
    gc_fail(c, slot, code, o);
}

static void gc_finish(struct gateway_core *c, uint32_t slot, const struct gateway_event *ev,
                      struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    enum finish f = ev->tokens.finish;
    switch (f) {
    case FINISH_EOS:
    case FINISH_STOP_ID:
    case FINISH_STOP_STRING:
    case FINISH_LENGTH:
        gc_deliver(c, slot, ev, f, o);
        gc_seat_freed(c, s);
        gc_left_worker(c, slot);
        tenant_account_learn(gc_account(c), s->tenant, s->cls, s->n_ids - s->n_prompt);
        gc_admit_leave(c, slot);
        s->state = GC_DONE;
        c->done++;
        gc_set_due(c, slot);
        gc_attach(c, slot, ev->worker);
        if (!s->durable) gc_ack(c, slot, o);
        return;
    case FINISH_HANDED_BACK:
        gc_deliver(c, slot, ev, FINISH_NONE, o);
        gc_come_back(c, slot, true, o);
        return;
    case FINISH_CANCELLED: /* nobody asked for it here */
    case FINISH_FAILED:
        gc_deliver(c, slot, ev, FINISH_NONE, o);
        if (s->failures++ == 0)
            gc_come_back(c, slot, false, o);
        else
            gc_end_badly(c, slot, ERR_INTERNAL, o);
        return;
    case FINISH_TOO_LARGE: gc_end_badly(c, slot, ERR_POOL_TOO_SMALL, o); return;
    case FINISH_REFUSED: gc_end_badly(c, slot, ERR_INTERNAL, o); return;
    case FINISH_NONE:
    case FINISH_UNKNOWN:
    case FINISH_COUNT: assert(!"handled before"); return;
    }
}

static void gc_tokens_sent(struct gateway_core *c, uint32_t slot, const struct gateway_event *ev,
                           struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    uint64_t end = (uint64_t)ev->tokens.index + ev->tokens.n;
    if (ev->tokens.finish == FINISH_UNKNOWN) { /* the worker lost it: no index, no ACK */
        s->has_sub = 0;
        gc_refuse(c, s, s->worker);
        gc_left_worker(c, slot);
        gc_queue(c, slot);
        return;
    }
    /* CANCELLED and what is refused at the door without a slot carry no index of their own. */
    bool bare =
        ev->tokens.n == 0 && ev->tokens.finish != FINISH_NONE && !finish_openai(ev->tokens.finish);
    if (ev->tokens.index > s->next && !bare) {
        gc_link(o, GA_GAP, ev->worker, slot, s->sub);
        o->list[o->n - 1].from = s->next;
        c->gaps++;
        return;
    }
    if (end > s->max_total) { /* more than was asked for: this worker's counting is broken */
        gc_link(o, GA_CANCEL, ev->worker, slot, s->sub);
        gc_left_worker(c, slot);
        s->has_sub = 0;
        s->state = GC_FREE; /* with nobody, for the moment */
        if (s->failures++ == 0)
            gc_queue(c, slot);
        else
            gc_fail(c, slot, ERR_PROTOCOL, o);
        return;
    }
    if (ev->tokens.finish == FINISH_NONE)
        gc_deliver(c, slot, ev, FINISH_NONE, o);
    else if (bare || end >= s->next)
        gc_finish(c, slot, ev, o);
}

void gc_tokens(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o)
{
    if (gc_workers(c)[ev->worker].state != GC_LIVE) return; /* before SYNC nothing is current */
    uint32_t slot = gc_current(c, ev->sub);
    const struct gc_slot *s = slot == GC_NONE ? NULL : &gc_slots(c)[slot];
    if (s == NULL || s->state == GC_QUEUED || s->worker != ev->worker) {
        gc_foreign(c, ev, o);
        return;
    }
    if (s->state == GC_SENT)
        gc_tokens_sent(c, slot, ev, o);
    else if (ev->tokens.finish != FINISH_NONE && s->acked)
        gc_link(o, GA_ACK, ev->worker, slot, s->sub); /* the first ACK was lost */
}
