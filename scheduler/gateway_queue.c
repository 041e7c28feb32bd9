/* Into the queue and out of it, and who is sent where.
 *
 * Order is fair_queue's. A head that nobody may take now (numerics, size, a refusal, its only worker
 * full) is moved to a stuck list, so that it blocks nothing but itself; it comes back when what it
 * waits for may have changed.
 */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>
#include <string.h>

void gc_list_add(struct gateway_core *c, struct gc_list *l, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->older == 0 && s->newer == 0);
    s->older = l->newest;
    if (l->newest != 0)
        gc_slots(c)[l->newest - 1].newer = slot + 1;
    else
        l->oldest = slot + 1;
    l->newest = slot + 1;
    l->n++;
}

void gc_list_remove(struct gateway_core *c, struct gc_list *l, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(l->n > 0);
    if (s->older != 0)
        gc_slots(c)[s->older - 1].newer = s->newer;
    else
        l->oldest = s->newer;
    if (s->newer != 0)
        gc_slots(c)[s->newer - 1].older = s->older;
    else
        l->newest = s->older;
    s->older = s->newer = 0;
    l->n--;
}

bool gc_refused(const struct gateway_core *c, const struct gc_slot *s, uint32_t worker)
{
    return (s->refused_by >> worker & 1u) != 0 &&
           s->refused_at > gc_workers(c)[worker].refusals_from;
}

/* One stamp serves all workers: the void ones go first. */
void gc_refuse(struct gateway_core *c, struct gc_slot *s, uint32_t worker)
{
    for (uint32_t i = 0; i < c->cfg.max_workers; i++) {
        if (!gc_refused(c, s, i)) s->refused_by &= ~((uint64_t)1 << i);
    }
    s->refused_by |= (uint64_t)1 << worker;
    s->refused_at = c->events;
}

/* How many more of this class the worker takes now. */
static uint32_t gc_room(const struct gateway_core *c, const struct gc_worker *w,
                        const struct gc_slot *s, bool owed)
{
    if (w->state != GC_LIVE || w->draining || c->now_ns < w->full_until_ns) return 0;
    uint32_t slots = w->max_slots > w->n_sent ? w->max_slots - w->n_sent : 0;
    if (s->rank == 0) return slots; /* real-time is never held back for a window */
    /* Lower ranks leave a seat's worth of slots to real-time, unless its floor share is owed to one. */
    uint32_t kept = !owed && w->max_slots > 2 * w->max_seqs ? w->max_seqs : 0;
    slots = slots > kept ? slots - kept : 0;
    uint32_t window = w->has_status ? w->window[s->cls] : w->max_seqs;
    window = window > w->sent_since[s->cls] ? window - w->sent_since[s->cls] : 0;
    return window < slots ? window : slots;
}

/* What is still to be computed there, and until a seat is free: real-time waits for no batch. */
static struct route_offer gc_offer(const struct gateway_core *c, const struct gc_slot *s, uint32_t worker)
{
    const struct gc_worker *w = &gc_workers(c)[worker];
    struct route_offer o = {.worker = worker, .match = route_match(gc_route(c), &s->route, worker)};
    double position = w->prompt_ns > 0 ? w->prompt_ns : 1, id = w->out_ns > 0 ? w->out_ns : 1;
    uint32_t ahead = s->rank == 0 ? w->n_urgent : w->n_sent;
    uint32_t left = s->n_ids > o.match ? s->n_ids - o.match : 0;
    o.prefill_ns = left * position;
    if (ahead >= w->max_seqs)
        o.wait_ns = (ahead - w->max_seqs + 1) * (s->n_prompt * position + gc_out_of(c, s) * id) / w->max_seqs;
    return o;
}

/* A worker that may take it; false: none. *could: one could, but for room or a refusal;
 * *any_room: somebody has room for this class, so those behind it may still go. */
static bool gc_choose(const struct gateway_core *c, const struct gc_slot *s, struct route_offer *chosen, bool *could,
                      bool *any_room)
{
    struct route_offer offers[GATEWAY_WORKERS_MAX];
    uint32_t best_room = 0, n = 0;
    uint64_t live = 0;
    bool owed = c->owed[s->cls] > 0;
    *could = *any_room = false;
    for (uint32_t i = 0; i < c->workers_end; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        uint32_t room = gc_room(c, w, s, owed);
        *any_room |= room > 0;
        live |= (uint64_t)(w->state == GC_LIVE && !w->draining) << i;
        if (!gc_could(c, s, w, false)) continue;
        *could = true;
        if (room == 0 || gc_refused(c, s, i)) continue;
        if (gc_route(c) != NULL) {
            offers[n++] = gc_offer(c, s, i);
        } else if (room > best_room) { /* the one with most room */
            offers[0] = (struct route_offer){.worker = i};
            best_room = room;
            n = 1;
        }
    }
    if (n > 0) *chosen = offers[n < 2 ? 0 : route_choose(gc_route(c), offers, n, live, c->now_ns)];
    return n > 0;
}

static void gc_route_sent(struct gateway_core *c, const struct gc_slot *s, const struct route_offer *to)
{
    if (gc_route(c) == NULL) return;
    const struct gc_worker *w = &gc_workers(c)[to->worker];
    double id = w->out_ns > 0 ? w->out_ns : 1;
    route_sent(gc_route(c), &s->route, to->worker, to->prefill_ns + gc_out_of(c, s) * id, c->now_ns);
}

void gc_queue(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->state != GC_QUEUED && s->worker == GC_NONE);
    gc_tenant_wakes(c, s);
    s->state = GC_QUEUED;
    gc_ledger_queued(c, slot);
    c->queued[s->cls]++;
    gc_tenants(c)[s->tenant].queued[s->cls]++;
    fair_queue_push(gc_fair(c), slot);
    gc_update_alone(c, slot);
}

/* It is in no queue any more. */
static void gc_out_of_queue(struct gateway_core *c, struct gc_slot *s)
{
    assert(c->queued[s->cls] > 0 && gc_tenants(c)[s->tenant].queued[s->cls] > 0);
    c->queued[s->cls]--;
    gc_tenants(c)[s->tenant].queued[s->cls]--;
    gc_not_alone(c, s);
}

void gc_unqueue(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->state == GC_QUEUED);
    if (s->stuck != GC_NOT_STUCK) {
        gc_list_remove(c, &c->stuck[s->stuck], slot);
        s->stuck = GC_NOT_STUCK;
    } else {
        fair_queue_remove(gc_fair(c), slot);
    }
    gc_out_of_queue(c, s);
}

static void gc_stick(struct gateway_core *c, uint32_t slot, enum gc_stuck kind)
{
    fair_queue_remove(gc_fair(c), slot);
    gc_slots(c)[slot].stuck = kind;
    gc_list_add(c, &c->stuck[kind], slot);
}

void gc_unstick(struct gateway_core *c, enum gc_stuck kind, uint32_t most)
{
    struct gc_list *l = &c->stuck[kind];
    for (; l->n > 0 && most > 0; most--) {
        uint32_t slot = l->oldest - 1;
        gc_list_remove(c, l, slot);
        gc_slots(c)[slot].stuck = GC_NOT_STUCK;
        gc_tenant_wakes(c, &gc_slots(c)[slot]);
        fair_queue_push(gc_fair(c), slot);
    }
}

void gc_to_worker(struct gateway_core *c, uint32_t slot, uint32_t worker)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    struct gc_worker *w = &gc_workers(c)[worker];
    gc_tenant_sent(c, slot);
    s->state = GC_SENT;
    s->worker = worker;
    s->has_sub = s->was_sent = 1;
    w->n_sent++;
    w->n_urgent += s->rank == 0;
    gc_list_add(c, &w->list, slot);
    gc_set_due(c, slot);
}

void gc_left_worker(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->state == GC_SENT && s->worker < c->cfg.max_workers);
    struct gc_worker *w = &gc_workers(c)[s->worker];
    assert(w->n_sent > 0);
    w->n_sent--;
    w->n_urgent -= s->rank == 0;
    gc_list_remove(c, &w->list, slot);
    gc_tenant_left(c, slot);
    s->worker = GC_NONE;
    gc_unstick(c, GC_STUCK_ROOM, GC_UNSTICK_MAX);
}

void gc_seat_freed(struct gateway_core *c, const struct gc_slot *s)
{
    struct gc_worker *w = &gc_workers(c)[s->worker];
    if (w->sent_since[s->cls] > 0)
        w->sent_since[s->cls]--;
    else if (w->has_status && w->window[s->cls] < w->max_seqs)
        w->window[s->cls]++;
}

static void gc_submit(struct gateway_core *c, uint32_t slot, const struct route_offer *to, struct gc_out *o)
{
    uint32_t worker = to->worker;
    struct gc_slot *s = &gc_slots(c)[slot];
    struct gc_worker *w = &gc_workers(c)[worker];
    c->promoted += fair_queue_pick(gc_fair(c), slot, c->now_ns);
    uint64_t queued_ns[LEDGER_QUEUE_N];
    gc_ledger_picked(c, slot, queued_ns);
    gc_out_of_queue(c, s);
    if (s->has_sub || s->failures > 0) c->resubmits++;
    /* The slot is in the id's low part: an answer finds it without a table. */
    s->sub.incarnation = c->cfg.incarnation;
    s->sub.counter = c->next_counter++ * c->cfg.max_slots + slot;
    s->sub_process = w->incarnation;
    gc_route_sent(c, s, to);
    gc_to_worker(c, slot, worker);
    w->sent_since[s->cls]++;
    gc_link(o, GA_SUBMIT, worker, slot, s->sub);
    o->list[o->n - 1].from = s->next;
    o->list[o->n - 1].max_total = s->max_total;
    o->list[o->n - 1].tag = s->tag;
    memcpy(o->list[o->n - 1].queued_ns, queued_ns, sizeof queued_ns);
}

/* The next of this class, if it has one that can go now. false: none, for this event. */
static bool gc_dispatch_one(struct gateway_core *c, uint8_t cls, uint32_t *stuck, struct gc_out *o)
{
    struct route_offer to;
    bool could, any_room;
    uint32_t slot = fair_queue_head(gc_fair(c), cls, c->now_ns);
    if (slot == FAIR_NONE) return false;
    const struct gc_slot *s = &gc_slots(c)[slot];
    if (s->deadline_ns != 0 && (c->now_ns >= s->deadline_ns || gc_admit_too_late(c, s))) {
        gc_fail(c, slot, ERR_DEADLINE, o);
        return true;
    }
    if (gc_choose(c, s, &to, &could, &any_room)) {
        gc_submit(c, slot, &to, o);
        return true;
    }
    if (!any_room) return false;
    gc_stick(c, slot, could ? GC_STUCK_ROOM : GC_STUCK_NOBODY);
    if (++*stuck < GC_UNSTICK_MAX) return true;
    c->more = 1;
    return false;
}

/* The class that is owed something, else the most urgent one; of those not in `passed`. */
static bool gc_next_class(const struct gateway_core *c, uint32_t passed, uint8_t *cls)
{
    bool found = false;
    for (uint32_t i = 0; i < c->cfg.classes.n; i++) {
        uint8_t k = c->order[i];
        if ((passed >> k & 1u) != 0 || fair_queue_count(gc_fair(c), k) == 0) continue;
        if (!found || c->owed[k] > 0) *cls = k;
        found = true;
        if (c->owed[k] > 0) break;
    }
    return found;
}

void gc_dispatch(struct gateway_core *c, struct gc_out *o)
{
    uint32_t passed = 0, stuck = 0;
    uint8_t cls = 0;
    c->more = 0;
    while (gc_next_class(c, passed, &cls)) {
        if (gc_full(o)) {
            c->more = 1;
            return;
        }
        if (!gc_dispatch_one(c, cls, &stuck, o)) passed |= 1u << cls;
    }
}
