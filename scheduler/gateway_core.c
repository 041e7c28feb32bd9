/* The region, the switch over events, the doors and the tick. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>
#include <string.h>

static uint64_t gc_align(uint64_t n)
{
    return (n + 63u) & ~(uint64_t)63u;
}

static void gc_part_configs(const struct gateway_core_config *cfg, struct fair_queue_config *q,
                            struct tenant_account_config *a)
{
    *q = (struct fair_queue_config){.max_entries = cfg->max_slots,
                                    .max_flows = cfg->max_tenants != 0 ? cfg->max_tenants : 1,
                                    .n_classes = cfg->classes.n};
    for (uint32_t k = 0; k < cfg->classes.n; k++)
        q->longest_ns[k] = cfg->classes.rows[k].longest_wait_s * (uint64_t)1000000000u;
    *a = (struct tenant_account_config){.max_tenants = q->max_flows,
                                        .n_classes = cfg->classes.n,
                                        .max_workers = cfg->max_workers,
                                        .out_weight = cfg->out_weight};
}

static size_t gc_layout(struct gateway_core *c, const struct gateway_core_config *cfg)
{
    struct fair_queue_config q;
    struct tenant_account_config a;
    uint64_t slots = cfg->max_slots;
    if (slots == 0 || slots >= UINT32_MAX / 8 || cfg->max_workers == 0) return 0;
    if (cfg->max_workers > GATEWAY_WORKERS_MAX || cfg->classes.n == 0 ||
        cfg->classes.n > CLASSES_MAX)
        return 0;
    gc_part_configs(cfg, &q, &a);
    if (fair_queue_bytes(&q) == 0 || tenant_account_bytes(&a) == 0) return 0;
    c->workers_at = gc_align(sizeof(struct gateway_core));
    c->slots_at = gc_align(c->workers_at + (uint64_t)cfg->max_workers * sizeof(struct gc_worker));
    c->dues_at = gc_align(c->slots_at + slots * sizeof(struct gc_slot));
    c->tenants_at = gc_align(c->dues_at + slots * sizeof(uint32_t));
    c->queue_at = gc_align(c->tenants_at + (uint64_t)q.max_flows * sizeof(struct gc_tenant));
    c->account_at = gc_align(c->queue_at + fair_queue_bytes(&q));
    c->admit_at = gc_align(c->account_at + tenant_account_bytes(&a));
    struct admit_config admit;
    c->route_at = c->admit_at;
    if (gc_admit_config(cfg, &admit)) {
        if (admit_bytes(&admit) == 0) return 0;
        c->route_at = gc_align(c->admit_at + admit_bytes(&admit));
    }
    struct route_config route = {cfg->route_entries, cfg->max_workers};
    if (cfg->route_entries == 0) return (size_t)c->route_at;
    return route_bytes(&route) == 0 ? 0 : (size_t)gc_align(c->route_at + route_bytes(&route));
}

size_t gateway_core_bytes(const struct gateway_core_config *cfg)
{
    struct gateway_core tmp;
    return gc_layout(&tmp, cfg);
}

/* Classes, most urgent first. */
static void gc_order_classes(struct gateway_core *c)
{
    const struct class_row *rows = c->cfg.classes.rows;
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        uint32_t at = k;
        for (; at > 0 && rows[c->order[at - 1]].order > rows[k].order; at--)
            c->order[at] = c->order[at - 1];
        c->order[at] = (uint8_t)k;
    }
}

struct gateway_core *gateway_core_init(void *region, const struct gateway_core_config *cfg)
{
    struct gateway_core *c = region;
    struct fair_queue_config q;
    struct tenant_account_config a;
    assert(((uintptr_t)region & 63u) == 0);
    size_t bytes = gc_layout(c, cfg);
    assert(bytes != 0);
    (void)bytes;
    c->cfg = *cfg;
    if (c->cfg.version_max == 0) c->cfg.version_min = c->cfg.version_max = 1;
    if (c->cfg.max_tenants == 0) c->cfg.max_tenants = 1;
    c->next_arrival = c->next_counter = 1;
    gc_part_configs(cfg, &q, &a);
    (void)fair_queue_init(gc_fair(c), &q);
    (void)tenant_account_init(gc_account(c), &a);
    struct admit_config admit;
    if (gc_admit_config(&c->cfg, &admit)) (void)admit_init(gc_admit(c), &admit);
    struct route_config route = {cfg->route_entries, cfg->max_workers};
    if (gc_route(c) != NULL) (void)route_init(gc_route(c), &route);
    for (uint32_t i = 0; i < c->cfg.max_tenants; i++) gc_tenants(c)[i].weight_permille = 1000;
    for (uint32_t k = 0; k < CLASSES_MAX; k++) c->why[k] = GC_WHYS;
    gc_order_classes(c);
    return c;
}

void gateway_core_expect(struct gateway_core *c, struct hash128 model, struct hash128 vocab)
{
    c->model = model;
    c->vocab = vocab;
}

/* The worst events (a tick, a DOWN) cost a slot a CANCEL, a FAIL or RESTART and a SUBMIT, up to a
 * limit behind which the rest waits; a SYNC adds its answers. */
uint32_t gateway_core_actions_max(const struct gateway_core_config *cfg)
{
    uint32_t n = cfg->max_slots < GC_ACTIONS_MAX / 5 ? 5 * cfg->max_slots : GC_ACTIONS_MAX;
    return GC_SYNC_MAX + n + 2 * GC_ACTIONS_SPARE;
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
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(c->in_use > 0 && s->state != GC_QUEUED);
    if (s->state == GC_DONE) {
        if (s->worker != GC_NONE) gc_list_remove(c, &gc_workers(c)[s->worker].list, slot);
        c->done--;
    }
    gc_admit_leave(c, slot);
    s->state = GC_FREE;
    gc_set_due(c, slot);
    gc_tenant_took(c, s->tenant, false);
    memset(s, 0, sizeof *s);
    memset(fair_queue_entry(gc_fair(c), slot), 0, sizeof(struct fair_entry));
    c->in_use--;
}

void gc_fail(struct gateway_core *c, uint32_t slot, enum err_code code, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    uint64_t queued_ns[LEDGER_QUEUE_N] = {0};
    gateway_core_waited(c, slot, c->now_ns, queued_ns);
    if (s->state == GC_SENT) {
        gc_link(o, GA_CANCEL, s->worker, slot, s->sub);
        c->cancels++;
        if (code == ERR_CANCELLED || code == ERR_DEADLINE) gc_tenant_pays_prompt(c, slot);
        gc_seat_freed(c, s);
        gc_left_worker(c, slot);
    } else if (s->state == GC_QUEUED) {
        gc_unqueue(c, slot);
    }
    if (s->state != GC_DONE) s->state = GC_FREE; /* in no queue and with no worker */
    struct gateway_action *a = gc_emit(o, GA_FAIL);
    a->slot = slot;
    a->code = code;
    memcpy(a->queued_ns, queued_ns, sizeof queued_ns);
    gc_free(c, slot);
}

static enum err_code gc_refusal(const struct gateway_core *c, const struct gateway_event *ev)
{
    uint64_t deadline = ev->arrived.deadline_ns;
    if (c->draining) return ERR_DRAINING;
    if (deadline != 0 && c->now_ns >= deadline) return ERR_DEADLINE;
    return gateway_core_room(c, ev->arrived.tenant) ? ERR_OK : ERR_QUEUE_FULL;
}

static void gc_arrived_key(struct gateway_core *c, const struct gateway_event *ev)
{
    struct fair_entry *e = fair_queue_entry(gc_fair(c), ev->slot);
    const struct class_row *row = &c->cfg.classes.rows[ev->arrived.cls];
    uint64_t age_ns = (row->age_s != 0 ? row->age_s : CLASS_AGE_S) * (uint64_t)1000000000u;
    int8_t p = ev->arrived.priority;
    *e = (struct fair_entry){.order = ev->arrived.tag,
                             .arrival = c->next_arrival++,
                             .arrived_ns = c->now_ns,
                             .flow = ev->arrived.tenant,
                             .cls = ev->arrived.cls,
                             .priority = p};
    e->due = fair_queue_due(c->now_ns, ev->arrived.deadline_ns, p, age_ns);
}

static void gc_arrived(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o)
{
    assert(ev->slot < c->cfg.max_slots && ev->arrived.cls < c->cfg.classes.n);
    assert(ev->arrived.n_prompt > 0 && ev->arrived.n_ids >= ev->arrived.n_prompt);
    assert(ev->arrived.from > 0 && ev->arrived.from <= ev->arrived.n_ids);
    assert(ev->arrived.max_total >= ev->arrived.n_ids);
    assert(ev->arrived.tenant < c->cfg.max_tenants);
    struct gc_slot *s = &gc_slots(c)[ev->slot];
    assert(s->state == GC_FREE);
    enum err_code refusal = gc_refusal(c, ev);
    if (refusal != ERR_OK) {
        struct gateway_action *a = gc_emit(o, GA_FAIL);
        a->slot = ev->slot;
        a->code = refusal;
        gc_tenants(c)[ev->arrived.tenant].refused += refusal == ERR_QUEUE_FULL;
        return;
    }
    *s = (struct gc_slot){.cls = ev->arrived.cls,
                          .rank = c->cfg.classes.rows[ev->arrived.cls].rank != 0,
                          .durable = ev->arrived.durable,
                          .tenant = ev->arrived.tenant,
                          .worker = GC_NONE,
                          .n_prompt = ev->arrived.n_prompt,
                          .n_ids = ev->arrived.n_ids,
                          .from = ev->arrived.from,
                          .next = ev->arrived.from,
                          .max_total = ev->arrived.max_total,
                          .hint_out = ev->arrived.hint_out,
                          .route = ev->arrived.route,
                          .paid_to = ev->arrived.n_ids, /* resumed: those were paid for */
                          .deadline_ns = ev->arrived.deadline_ns};
    gc_arrived_key(c, ev);
    c->in_use++;
    gc_tenant_took(c, s->tenant, true);
    gc_admit_enter(c, ev->slot);
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
    for (uint32_t n = 0; n < GC_TICK_MAX && c->n_due > 0 && !gc_full(o); n++) {
        uint32_t slot = gc_dues(c)[0];
        if (gc_slots(c)[slot].due_ns > c->now_ns) break;
        gc_tick_slot(c, slot, o);
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
    case GE_ACCOUNT: gc_account_event(c, ev); break;
    case GE_DOWN: gc_down(c, ev->worker); break;
    case GE_SEND_FULL: gc_send_full(c, ev); break;
    case GE_DRAIN: c->draining = 1; break;
    case GE_TICK: gc_tick(c, o); break;
    case GE_TENANT: gc_tenant(c, ev); break;
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
    gc_ledger_pass(c, now_ns);
    c->now_ns = now_ns;
    c->events++;
    gc_event(c, ev, &o);
    gc_dispatch(c, &o);
    gc_ledger_look(c);
    if (c->draining && !c->drained && c->in_use == 0) {
        c->drained = 1;
        gc_emit(&o, GA_DRAINED);
    }
    return o.n;
}
