/* The region, the switch over events, the doors and the tick. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>
#include <string.h>

static uint64_t gc_align(uint64_t n)
{
    return (n + 63u) & ~(uint64_t)63u;
}

static size_t gc_layout(struct gateway_core *c, const struct gateway_core_config *cfg)
{
    if (cfg->max_slots == 0 || cfg->max_slots >= UINT32_MAX / 8 || cfg->max_workers == 0) return 0;
    if (cfg->max_workers > GATEWAY_WORKERS_MAX || cfg->classes.n == 0 ||
        cfg->classes.n > CLASSES_MAX)
        return 0;
    c->workers_at = gc_align(sizeof(struct gateway_core));
    c->slots_at = gc_align(c->workers_at + (uint64_t)cfg->max_workers * sizeof(struct gc_worker));
    c->heaps_at = gc_align(c->slots_at + (uint64_t)cfg->max_slots * sizeof(struct gc_slot));
    return (size_t)gc_align(c->heaps_at +
                            (uint64_t)cfg->classes.n * cfg->max_slots * sizeof(uint32_t));
}

size_t gateway_core_bytes(const struct gateway_core_config *cfg)
{
    struct gateway_core tmp;
    return gc_layout(&tmp, cfg);
}

struct gateway_core *gateway_core_init(void *region, const struct gateway_core_config *cfg)
{
    struct gateway_core *c = region;
    assert(((uintptr_t)region & 63u) == 0);
    size_t bytes = gc_layout(c, cfg);
    assert(bytes != 0);
    (void)bytes;
    c->cfg = *cfg;
    if (c->cfg.version_max == 0) c->cfg.version_min = c->cfg.version_max = 1;
    c->next_arrival = c->next_counter = 1;
    c->due_ns = UINT64_MAX;
    for (uint32_t k = 0; k < cfg->classes.n; k++) { /* insertion sort by the table's order */
        uint32_t at = k;
        for (; at > 0 && cfg->classes.rows[c->order[at - 1]].order > cfg->classes.rows[k].order;
             at--)
            c->order[at] = c->order[at - 1];
        c->order[at] = (uint8_t)k;
    }
    return c;
}

void gateway_core_expect(struct gateway_core *c, struct hash128 model, struct hash128 vocab)
{
    c->model = model;
    c->vocab = vocab;
}

/* The worst events (a tick, a DOWN) cost a slot a CANCEL, a FAIL or RESTART and a SUBMIT; a SYNC
 * adds its answers. */
uint32_t gateway_core_actions_max(const struct gateway_core_config *cfg)
{
    return GC_SYNC_MAX + 5 * cfg->max_slots + 16;
}

struct gateway_action *gc_emit(struct gc_out *o, enum gateway_action_kind kind)
{
    assert(o->n < o->max);
    struct gateway_action *a = &o->list[o->n++];
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->worker = a->slot = GC_NONE;
    return a;
}

void gc_link(struct gc_out *o, enum gateway_action_kind kind, uint32_t worker, uint32_t slot,
             struct sub_id sub)
{
    struct gateway_action *a = gc_emit(o, kind);
    a->worker = worker;
    a->slot = slot;
    a->sub = sub;
}

uint32_t gc_current(const struct gateway_core *c, struct sub_id sub)
{
    if (sub.incarnation != c->cfg.incarnation) return GC_NONE;
    uint32_t slot = (uint32_t)(sub.counter % c->cfg.max_slots);
    const struct gc_slot *s = &gc_slots(c)[slot];
    if (s->state == GC_FREE || !s->has_sub || !sub_id_equal(s->sub, sub)) return GC_NONE;
    return slot;
}

void gc_free(struct gateway_core *c, uint32_t slot)
{
    assert(c->in_use > 0 && gc_slots(c)[slot].place == 0);
    memset(&gc_slots(c)[slot], 0, sizeof(struct gc_slot));
    c->in_use--;
}

void gc_fail(struct gateway_core *c, uint32_t slot, enum err_code code, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (s->state == GC_SENT) {
        gc_link(o, GA_CANCEL, s->worker, slot, s->sub);
        c->cancels++;
        gc_seat_freed(c, s);
        gc_left_worker(c, slot);
    } else if (s->state == GC_QUEUED) {
        gc_unqueue(c, slot);
    }
    struct gateway_action *a = gc_emit(o, GA_FAIL);
    a->slot = slot;
    a->code = code;
    gc_free(c, slot);
}

static void gc_arrived(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o)
{
    assert(ev->slot < c->cfg.max_slots && ev->arrived.cls < c->cfg.classes.n);
    assert(ev->arrived.n_prompt > 0 && ev->arrived.n_ids >= ev->arrived.n_prompt);
    assert(ev->arrived.from > 0 && ev->arrived.from <= ev->arrived.n_ids);
    assert(ev->arrived.max_total >= ev->arrived.n_ids);
    struct gc_slot *s = &gc_slots(c)[ev->slot];
    assert(s->state == GC_FREE);
    bool late = ev->arrived.deadline_ns != 0 && c->now_ns >= ev->arrived.deadline_ns;
    if (c->draining || late) {
        struct gateway_action *a = gc_emit(o, GA_FAIL);
        a->slot = ev->slot;
        a->code = c->draining ? ERR_DRAINING : ERR_DEADLINE;
        return;
    }
    *s = (struct gc_slot){.cls = ev->arrived.cls,
                          .rank = c->cfg.classes.rows[ev->arrived.cls].rank != 0,
                          .durable = ev->arrived.durable,
                          .worker = GC_NONE,
                          .n_prompt = ev->arrived.n_prompt,
                          .n_ids = ev->arrived.n_ids,
                          .from = ev->arrived.from,
                          .next = ev->arrived.from,
                          .max_total = ev->arrived.max_total,
                          .tag = ev->arrived.tag,
                          .arrival = c->next_arrival++,
                          .arrived_ns = c->now_ns,
                          .deadline_ns = ev->arrived.deadline_ns};
    c->in_use++;
    gc_queue(c, ev->slot);
}

/* A DONE slot goes; its finish is acknowledged if it was not and the session is there to hear it
 * (else the worker's next SYNC is answered by CANCEL). */
static void gc_release(struct gateway_core *c, uint32_t slot, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (!s->acked && s->worker != GC_NONE && gc_workers(c)[s->worker].state == GC_LIVE)
        gc_link(o, GA_ACK, s->worker, slot, s->sub);
    gc_free(c, slot);
}

static void gc_cancel(struct gateway_core *c, uint32_t slot, struct gc_out *o)
{
    assert(slot < c->cfg.max_slots);
    switch ((enum gc_state)gc_slots(c)[slot].state) {
    case GC_FREE: return;
    case GC_QUEUED:
    case GC_SENT: gc_fail(c, slot, ERR_CANCELLED, o); return;
    case GC_DONE: gc_release(c, slot, o); return;
    }
}

static void gc_released(struct gateway_core *c, uint32_t slot, struct gc_out *o)
{
    assert(slot < c->cfg.max_slots && gc_slots(c)[slot].state == GC_DONE);
    gc_release(c, slot, o);
}

/* It waits for a worker that is not there: shortened to the largest that is, as at arrival. */
static void gc_shorten(struct gateway_core *c, uint32_t slot, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    uint32_t capacity = gateway_core_capacity(c);
    if (s->next > s->n_prompt) { /* what was made belongs to the longer one */
        gc_fail(c, slot, ERR_WORKER_LOST, o);
    } else if (s->n_ids + (s->max_total > s->n_ids) > capacity) {
        gc_fail(c, slot, ERR_POOL_TOO_SMALL, o);
    } else {
        gc_unqueue(c, slot);
        s->state = GC_FREE; /* only for the moment: gc_queue wants it out of the queue */
        s->max_total = capacity;
        gc_queue(c, slot);
    }
}

/* What ran out of time: deadlines, real-time without a worker, batch without an equal one, both
 * without one that is large enough. */
static void gc_tick_slot(struct gateway_core *c, uint32_t slot, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (gc_due(c, s) > c->now_ns) return;
    if (s->deadline_ns != 0 && c->now_ns >= s->deadline_ns) {
        gc_fail(c, slot, ERR_DEADLINE, o);
    } else if (gc_too_large(c, s)) {
        gc_shorten(c, slot, o);
    } else if (s->rank == 0) {
        gc_fail(c, slot, s->next > s->from ? ERR_WORKER_LOST : ERR_NO_WORKER, o);
    } else {
        gc_unqueue(c, slot);
        s->state = GC_FREE; /* only for the moment: gc_queue wants it out of the queue */
        s->n_ids = s->n_prompt;
        s->next = s->from = s->from < s->n_prompt ? s->from : s->n_prompt;
        s->numerics = (struct hash128){0, 0};
        s->has_sub = 0;
        gc_emit(o, GA_RESTART)->slot = slot;
        gc_queue(c, slot);
    }
}

static void gc_tick(struct gateway_core *c, struct gc_out *o)
{
    if (c->now_ns < c->due_ns) return;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) gc_tick_slot(c, i, o);
    c->due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        uint64_t due = gc_due(c, &gc_slots(c)[i]);
        if (due < c->due_ns) c->due_ns = due;
    }
}

static void gc_event(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o)
{
    switch (ev->kind) {
    case GE_ARRIVED: gc_arrived(c, ev, o); break;
    case GE_CANCEL: gc_cancel(c, ev->slot, o); break;
    case GE_DURABLE:
    case GE_RELEASE: gc_released(c, ev->slot, o); break;
    case GE_HELLO: gc_hello(c, ev, o); break;
    case GE_SYNC: gc_sync(c, ev, o); break;
    case GE_TOKENS: gc_tokens(c, ev, o); break;
    case GE_STATUS: gc_status(c, ev); break;
    case GE_DOWN: gc_down(c, ev->worker); break;
    case GE_SEND_FULL: gc_send_full(c, ev); break;
    case GE_DRAIN: c->draining = 1; break;
    case GE_TICK: gc_tick(c, o); break;
    }
}

uint32_t gateway_core_handle(struct gateway_core *c, const struct gateway_event *ev,
                             uint64_t now_ns, struct gateway_action *out)
{
    struct gc_out o = {.list = out, .n = 0, .max = gateway_core_actions_max(&c->cfg)};
    bool link = ev->kind >= GE_HELLO && ev->kind <= GE_SEND_FULL;
    assert(now_ns >= c->now_ns);
    assert(!link || ev->worker < c->cfg.max_workers);
    (void)link;
    c->now_ns = now_ns;
    gc_event(c, ev, &o);
    gc_dispatch(c, &o);
    if (c->draining && !c->drained && c->in_use == 0) {
        c->drained = 1;
        gc_emit(&o, GA_DRAINED);
    }
    return o.n;
}
