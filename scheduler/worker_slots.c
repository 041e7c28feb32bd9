/* A slot's state, and the lists that follow from it.
 *
 * Thousands may wait, hundreds run, and each event looks for the next few: so the waiting ones lie in
 * order in one array a rank (a binary search and a memmove to enter), those with a seat in another,
 * and what time may concern in a third. Nothing here scans all slots. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

/* Class order, then start tag; of one tag the preempted one, then the one submitted first. */
static bool wc_before(const struct worker_core *c, const struct wc_slot *a, const struct wc_slot *b)
{
    uint8_t ao = wc_class_order(c, a), bo = wc_class_order(c, b);
    if (ao != bo) return ao < bo;
    if (a->order_tag != b->order_tag) return a->order_tag < b->order_tag;
    if (a->preempted != b->preempted) return a->preempted > b->preempted;
    return a->arrival < b->arrival;
}

/* First place of the queue that is not before `s`: its own, or where it belongs. */
static uint32_t wc_queue_place(const struct worker_core *c, const struct wc_slot *s)
{
    const uint32_t *q = wc_queue(c, s->rank);
    uint32_t lo = 0, hi = c->n_queued[s->rank];
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (wc_before(c, &wc_slots(c)[q[mid]], s))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void wc_insert(uint32_t *list, uint32_t *n, uint32_t at, uint32_t slot)
{
    memmove(list + at + 1, list + at, (size_t)(*n - at) * sizeof *list);
    list[at] = slot;
    (*n)++;
}

static void wc_remove_at(uint32_t *list, uint32_t *n, uint32_t at)
{
    (*n)--;
    memmove(list + at, list + at + 1, (size_t)(*n - at) * sizeof *list);
    list[*n] = 0; /* equal states have equal bytes */
}

static void wc_enqueue(struct worker_core *c, uint32_t slot)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    wc_insert(wc_queue(c, s->rank), &c->n_queued[s->rank], wc_queue_place(c, s), slot);
}

static void wc_dequeue(struct worker_core *c, uint32_t slot)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    uint32_t at = wc_queue_place(c, s);
    assert(at < c->n_queued[s->rank] && wc_queue(c, s->rank)[at] == slot);
    wc_remove_at(wc_queue(c, s->rank), &c->n_queued[s->rank], at);
}

/* A preempted sequence comes before the never started ones of its tenant, whose tag it takes if
 * that is smaller; among tenants the tags decide as ever. */
static void wc_order_preempted(struct worker_core *c, struct wc_slot *s)
{
    const uint32_t *q = wc_queue(c, s->rank);
    s->order_tag = s->tag;
    for (uint32_t i = 0; i < c->n_queued[s->rank]; i++) {
        const struct wc_slot *o = &wc_slots(c)[q[i]];
        if (o->cls != s->cls) continue;
        if (o->order_tag >= s->order_tag) break;
        if (o->account != s->account || o->preempted) continue;
        s->order_tag = o->order_tag;
        break;
    }
}

/* A newcomer with a smaller tag than its tenant's preempted ones, which is rare (tags of a tenant
 * rise): they keep their place before it. */
static void wc_pull_preempted(struct worker_core *c, const struct wc_slot *s)
{
    const uint32_t *q = wc_queue(c, s->rank);
    for (uint32_t i = wc_queue_place(c, s); i < c->n_queued[s->rank]; i++) {
        uint32_t slot = q[i];
        struct wc_slot *o = &wc_slots(c)[slot];
        if (o->cls != s->cls) break;
        if (!o->preempted || o->account != s->account || o->order_tag <= s->order_tag) continue;
        wc_dequeue(c, slot);
        o->order_tag = s->order_tag;
        wc_enqueue(c, slot);
    }
}

static void wc_seat(struct worker_core *c, uint32_t slot)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    uint32_t *list = wc_active(c), at = c->n_active;
    for (; at > 0; at--) {
        const struct wc_slot *p = &wc_slots(c)[list[at - 1]];
        uint8_t po = wc_class_order(c, p), so = wc_class_order(c, s);
        if (po < so || (po == so && p->admitted < s->admitted)) break;
    }
    wc_insert(list, &c->n_active, at, slot);
}

static void wc_unseat(struct worker_core *c, uint32_t slot)
{
    uint32_t at = 0;
    while (at < c->n_active && wc_active(c)[at] != slot) at++;
    assert(at < c->n_active);
    wc_remove_at(wc_active(c), &c->n_active, at);
}

void wc_set_state(struct worker_core *c, uint32_t slot, enum wc_state state)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    if (s->state == WC_WAITING) {
        wc_dequeue(c, slot);
        if (s->admitted == 0) c->unstarted[s->cls]--;
    }
    if (s->state == WC_ACTIVE) wc_unseat(c, slot);
    if (s->state == WC_FREE)
        c->n_used++;
    else
        c->count[s->cls][s->state]--;
    s->state = (uint8_t)state;
    if (state == WC_WAITING) {
        if (s->preempted)
            wc_order_preempted(c, s);
        else
            wc_pull_preempted(c, s);
        wc_enqueue(c, slot);
        wc_ledger_waits(c, s);
        if (s->admitted == 0) c->unstarted[s->cls]++;
    }
    if (state == WC_ACTIVE) {
        if (s->admitted == 0) s->admitted = c->next_admitted++;
        wc_seat(c, slot);
    }
    if (state == WC_FREE)
        c->n_used--;
    else
        c->count[s->cls][state]++;
}

static bool wc_timed(const struct wc_slot *s)
{
    if (s->state == WC_FREE || s->state == WC_DROPPING) return false;
    return s->state == WC_FINISHED || s->lost || !s->attached;
}

void wc_set_timer(struct worker_core *c, uint32_t slot)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    uint32_t *list = wc_timers(c);
    if (wc_timed(s) == (s->timer != 0)) return;
    if (s->timer == 0) {
        list[c->n_timers++] = slot;
        s->timer = c->n_timers;
        return;
    }
    uint32_t last = list[--c->n_timers];
    list[s->timer - 1] = last;
    wc_slots(c)[last].timer = s->timer;
    s->timer = 0;
    list[c->n_timers] = 0;
}

static uint32_t wc_name(uint64_t gateway, struct sub_id sub)
{
    return (uint32_t)(rand_at(gateway ^ sub.incarnation, sub.counter) >> 32) | 1u;
}

void wc_set_name(struct worker_core *c, uint32_t slot)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    wc_names(c)[slot] = s->state == WC_FREE ? 0 : wc_name(s->gateway, s->sub);
}

uint32_t wc_find(const struct worker_core *c, uint64_t gateway, struct sub_id sub)
{
    const uint32_t *names = wc_names(c);
    uint32_t name = wc_name(gateway, sub);
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        if (names[i] != name) continue;
        const struct wc_slot *s = &wc_slots(c)[i];
        if (s->state == WC_FREE || s->state == WC_DROPPING) continue;
        if (s->gateway == gateway && sub_id_equal(s->sub, sub)) return i;
    }
    return WC_NONE;
}
