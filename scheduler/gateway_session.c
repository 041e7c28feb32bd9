/* Worker sessions: HELLO, SYNC, STATUS, DOWN, SEND_FULL. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>
#include <string.h>

static bool gc_differs(struct hash128 want, struct hash128 got)
{
    return (want.lo | want.hi) != 0 && !hash128_equal(want, got);
}

/* ERR_OK, or why this worker cannot be used. */
static enum err_code gc_judge(const struct gateway_core *c, const struct gateway_event *ev,
                              const char **reason)
{
    uint32_t lo = c->cfg.version_min, hi = c->cfg.version_max;
    if (ev->hello.version_min > hi || ev->hello.version_max < lo ||
        ev->hello.version_min > ev->hello.version_max) {
        *reason = "no protocol version in common";
        return ERR_PROTOCOL;
    }
    if (gc_differs(c->model, ev->hello.model)) {
        *reason = "another model than the gateway's";
        return ERR_MODEL_NOT_FOUND;
    }
    if (gc_differs(c->vocab, ev->hello.vocab)) {
        *reason = "another vocabulary or chat template than the gateway's";
        return ERR_MODEL_NOT_FOUND;
    }
    if (ev->hello.max_seqs == 0 || ev->hello.max_slots == 0 || ev->hello.block_tokens == 0 ||
        ev->hello.n_blocks < 2 || ev->hello.n_ctx == 0) {
        *reason = "limits of zero";
        return ERR_PROTOCOL;
    }
    *reason = "";
    return ERR_OK;
}

/* What the session had goes back to the queue, keeping its last submission: the same process may
 * list it in its next SYNC. */
void gc_down(struct gateway_core *c, uint32_t worker)
{
    struct gc_worker *w = &gc_workers(c)[worker];
    if (w->state == GC_DOWN) return;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        struct gc_slot *s = &gc_slots(c)[i];
        s->refused_by &= ~((uint64_t)1 << worker);
        if (s->state == GC_DONE && s->worker == worker) s->worker = GC_NONE;
        if (s->state != GC_SENT || s->worker != worker) continue;
        gc_left_worker(c, i);
        gc_queue(c, i);
    }
    assert(w->n_sent == 0);
    memset(w, 0, sizeof *w);
    gc_workers_changed(c);
}

void gc_hello(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o)
{
    const char *reason;
    enum err_code code = gc_judge(c, ev, &reason);
    struct gateway_action *a = gc_emit(o, GA_HELLO_REPLY);
    a->worker = ev->worker;
    a->code = code;
    a->reason = reason;
    if (code != ERR_OK) {
        gc_down(c, ev->worker);
        return;
    }
    a->version =
        ev->hello.version_max < c->cfg.version_max ? ev->hello.version_max : c->cfg.version_max;
    gc_down(c, ev->worker);
    for (uint32_t i = 0; i < c->cfg.max_workers;
         i++) { /* its old session, whose end was not seen yet */
        if (gc_workers(c)[i].state != GC_DOWN && gc_workers(c)[i].name == ev->hello.name)
            gc_down(c, i);
    }
    struct gc_worker *w = &gc_workers(c)[ev->worker];
    *w = (struct gc_worker){.state = GC_SYNCING,
                            .name = ev->hello.name,
                            .incarnation = ev->hello.incarnation,
                            .numerics = ev->hello.numerics,
                            .n_ctx = ev->hello.n_ctx,
                            .block_tokens = ev->hello.block_tokens,
                            .n_blocks = ev->hello.n_blocks,
                            .max_seqs = ev->hello.max_seqs,
                            .max_slots = ev->hello.max_slots};
}

static void gc_gap(struct gateway_core *c, uint32_t worker, uint32_t slot, struct gc_out *o)
{
    const struct gc_slot *s = &gc_slots(c)[slot];
    gc_link(o, GA_GAP, worker, slot, s->sub);
    o->list[o->n - 1].from = s->next;
    c->gaps++;
}

static void gc_sync_entry(struct gateway_core *c, uint32_t worker, const struct gateway_sync *e,
                          struct gc_out *o)
{
    struct gc_worker *w = &gc_workers(c)[worker];
    uint32_t slot = gc_current(c, e->sub);
    struct gc_slot *s = slot == GC_NONE ? NULL : &gc_slots(c)[slot];
    if (s != NULL && s->sub_process != w->incarnation) s = NULL;
    if (s != NULL && s->state == GC_QUEUED) { /* taken up again */
        gc_unqueue(c, slot);
        s->state = GC_SENT;
        s->worker = worker;
        w->n_sent++;
        gc_gap(c, worker, slot, o);
    } else if (s != NULL && s->state == GC_SENT && s->worker == worker) {
        gc_gap(c, worker, slot, o);
    } else if (s != NULL && s->state == GC_DONE && !s->acked) {
        s->worker = worker; /* its ACK comes when the result is durable */
        gc_gap(c, worker, slot, o);
    } else if (s != NULL && s->state == GC_DONE) {
        s->worker = worker;
        gc_link(o, GA_ACK, worker, slot, s->sub);
    } else {
        gc_link(o, GA_CANCEL, worker, GC_NONE, e->sub);
        c->cancels++;
    }
}

/* Entries first, then the session is open for SUBMITs (which dispatch adds after this). */
void gc_sync(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o)
{
    struct gc_worker *w = &gc_workers(c)[ev->worker];
    if (w->state == GC_DOWN) return;
    uint32_t n = ev->n_sync < GC_SYNC_MAX ? ev->n_sync : GC_SYNC_MAX;
    for (uint32_t i = 0; i < n; i++) gc_sync_entry(c, ev->worker, &ev->sync[i], o);
    if (w->state == GC_LIVE) return;
    w->state = GC_LIVE;
    gc_workers_changed(c);
}

void gc_status(struct gateway_core *c, const struct gateway_event *ev)
{
    struct gc_worker *w = &gc_workers(c)[ev->worker];
    if (w->state == GC_DOWN) return;
    if (w->has_status && ev->status.number <= w->status_number) return;
    bool changed = w->draining != ev->status.draining;
    w->has_status = 1;
    w->status_number = ev->status.number;
    w->draining = ev->status.draining;
    memcpy(w->window, ev->status.window, sizeof w->window);
    memset(w->sent_since, 0, sizeof w->sent_since);
    for (uint32_t i = 0; i < c->cfg.max_slots; i++)
        gc_slots(c)[i].refused_by &= ~((uint64_t)1 << ev->worker);
    if (changed)
        gc_workers_changed(c);
    else
        gc_unstick(c, GC_STUCK_ROOM);
}

void gc_send_full(struct gateway_core *c, const struct gateway_event *ev)
{
    uint32_t slot = gc_current(c, ev->sub);
    gc_workers(c)[ev->worker].full_until_ns = c->now_ns + GC_FULL_NS;
    if (slot == GC_NONE || gc_slots(c)[slot].state != GC_SENT ||
        gc_slots(c)[slot].worker != ev->worker)
        return;
    struct gc_slot *s = &gc_slots(c)[slot];
    struct gc_worker *w = &gc_workers(c)[ev->worker];
    if (w->sent_since[s->cls] > 0) w->sent_since[s->cls]--;
    gc_left_worker(c, slot);
    s->has_sub = 0; /* it never left: nobody can answer under it */
    gc_queue(c, slot);
}
