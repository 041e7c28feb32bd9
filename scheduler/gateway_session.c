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

/* A finished one whose worker is known: its ACK can be sent there. */
void gc_attach(struct gateway_core *c, uint32_t slot, uint32_t worker)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->state == GC_DONE);
    if (s->worker != GC_NONE) gc_list_remove(c, &gc_workers(c)[s->worker].list, slot);
    s->worker = worker;
    if (worker != GC_NONE) gc_list_add(c, &gc_workers(c)[worker].list, slot);
}

static void gc_workers_end(struct gateway_core *c)
{
    c->workers_end = c->cfg.max_workers;
    while (c->workers_end > 0 && gc_workers(c)[c->workers_end - 1].state == GC_DOWN)
        c->workers_end--;
}

/* What the session had goes back to the queue, keeping its last submission: the same process may
 * list it in its next SYNC. */
void gc_down(struct gateway_core *c, uint32_t worker)
{
    struct gc_worker *w = &gc_workers(c)[worker];
    if (w->state == GC_DOWN) return;
    while (w->list.n > 0) {
        uint32_t slot = w->list.oldest - 1;
        if (gc_slots(c)[slot].state == GC_DONE) {
            gc_attach(c, slot, GC_NONE);
        } else {
            gc_left_worker(c, slot);
            gc_queue(c, slot);
        }
    }
    assert(w->n_sent == 0);
    if (gc_route(c) != NULL) route_gone(gc_route(c), worker);
    struct gc_worker gone = *w;
    memset(w, 0, sizeof *w);
    w->refusals_from = c->events;
    gc_workers_end(c);
    gc_admit_pool(c);
    gc_workers_changed(c, &gone);
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
                            .refusals_from = c->events,
                            .incarnation = ev->hello.incarnation,
                            .numerics = ev->hello.numerics,
                            .n_ctx = ev->hello.n_ctx,
                            .block_tokens = ev->hello.block_tokens,
                            .n_blocks = ev->hello.n_blocks,
                            .max_seqs = ev->hello.max_seqs,
                            .max_slots = ev->hello.max_slots};
    gc_workers_end(c);
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
    const struct gc_worker *w = &gc_workers(c)[worker];
    uint32_t slot = gc_current(c, e->sub);
    struct gc_slot *s = slot == GC_NONE ? NULL : &gc_slots(c)[slot];
    if (s != NULL && s->sub_process != w->incarnation) s = NULL;
    if (s != NULL && s->state == GC_QUEUED) { /* taken up again */
        gc_unqueue(c, slot);
        gc_to_worker(c, slot, worker);
        gc_gap(c, worker, slot, o);
    } else if (s != NULL && s->state == GC_SENT && s->worker == worker) {
        gc_gap(c, worker, slot, o);
    } else if (s != NULL && s->state == GC_DONE && !s->acked) {
        gc_attach(c, slot, worker); /* its ACK comes when the result is durable */
        gc_gap(c, worker, slot, o);
    } else if (s != NULL && s->state == GC_DONE) {
        gc_attach(c, slot, worker);
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
    gc_admit_pool(c);
    gc_workers_changed(c, NULL);
}

void gc_status(struct gateway_core *c, const struct gateway_event *ev)
{
    struct gc_worker *w = &gc_workers(c)[ev->worker];
    if (w->state == GC_DOWN) return;
    if (w->has_status && ev->status.number <= w->status_number) return;
    struct gc_worker before = *w;
    w->has_status = 1;
    w->status_number = ev->status.number;
    w->draining = ev->status.draining;
    w->refusals_from = c->events;
    memcpy(w->window, ev->status.window, sizeof w->window);
    memset(w->sent_since, 0, sizeof w->sent_since);
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) {
        if (ev->status.started_tag[k] != 0)
            tenant_account_started(gc_account(c), k, ev->status.started_tag[k]);
    }
    gc_admit_cost(w, ev->status.cost, ev->status.n_cost);
    gc_admit_pool(c);
    gc_unstick(c, GC_STUCK_ROOM, GC_UNSTICK_MAX);
    if (before.draining != w->draining) gc_workers_changed(c, w->draining ? &before : NULL);
}

/* What a peer sends is not trusted: counters of what we do not know are no counters. */
void gc_account_event(struct gateway_core *c, const struct gateway_event *ev)
{
    const struct gc_worker *w = &gc_workers(c)[ev->worker];
    if (w->state == GC_DOWN || w->incarnation == 0) return;
    if (ev->account.all) tenant_account_all_seen(gc_account(c), ev->worker, w->incarnation);
    if (ev->account.all) return;
    if (ev->account.tenant >= c->cfg.max_tenants || ev->account.cls >= c->cfg.classes.n) return;
    tenant_account_seen(gc_account(c), ev->worker, w->incarnation, ev->account.tenant,
                        ev->account.cls, ev->account.prompt_first, ev->account.output, c->now_ns);
    gc_retag(c, ev->account.tenant, ev->account.cls);
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
