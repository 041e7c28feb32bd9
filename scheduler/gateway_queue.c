/* The queues, and who is sent where.
 *
 * One heap per class, by start tag, then arrival. A head that nobody may take now (numerics, size,
 * a refusal, its only worker full) is moved to the stuck set, so that it blocks nothing but itself;
 * it comes back when what it waits for may have changed.
 */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>

static bool gc_before(const struct gateway_core *c, uint32_t a, uint32_t b)
{
    const struct gc_slot *x = &gc_slots(c)[a], *y = &gc_slots(c)[b];
    return x->tag != y->tag ? x->tag < y->tag : x->arrival < y->arrival;
}

static void gc_heap_set(struct gateway_core *c, uint8_t cls, uint32_t at, uint32_t slot)
{
    gc_heap(c, cls)[at] = slot;
    gc_slots(c)[slot].place = at + 1;
}

static void gc_heap_up(struct gateway_core *c, uint8_t cls, uint32_t at)
{
    uint32_t *h = gc_heap(c, cls), slot = h[at];
    while (at > 0 && gc_before(c, slot, h[(at - 1) / 2])) {
        gc_heap_set(c, cls, at, h[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    gc_heap_set(c, cls, at, slot);
}

static void gc_heap_down(struct gateway_core *c, uint8_t cls, uint32_t at)
{
    uint32_t *h = gc_heap(c, cls), n = c->heap_n[cls], slot = h[at];
    for (;;) {
        uint32_t kid = 2 * at + 1;
        if (kid >= n) break;
        if (kid + 1 < n && gc_before(c, h[kid + 1], h[kid])) kid++;
        if (!gc_before(c, h[kid], slot)) break;
        gc_heap_set(c, cls, at, h[kid]);
        at = kid;
    }
    gc_heap_set(c, cls, at, slot);
}

static void gc_heap_push(struct gateway_core *c, uint32_t slot)
{
    uint8_t cls = gc_slots(c)[slot].cls;
    uint32_t at = c->heap_n[cls]++;
    assert(at < c->cfg.max_slots && gc_slots(c)[slot].place == 0);
    gc_heap_set(c, cls, at, slot);
    gc_heap_up(c, cls, at);
}

static void gc_heap_remove(struct gateway_core *c, uint32_t slot)
{
    uint8_t cls = gc_slots(c)[slot].cls;
    uint32_t *h = gc_heap(c, cls), at = gc_slots(c)[slot].place - 1, last = --c->heap_n[cls];
    assert(at <= last && h[at] == slot);
    uint32_t moved = h[last];
    h[last] = 0;
    gc_slots(c)[slot].place = 0;
    if (moved == slot) return;
    gc_heap_set(c, cls, at, moved);
    gc_heap_up(c, cls, at);
    gc_heap_down(c, cls, gc_slots(c)[moved].place - 1);
}

bool gc_heap_check(const struct gateway_core *c, uint8_t cls)
{
    const uint32_t *h = gc_heap(c, cls);
    for (uint32_t i = 0; i < c->heap_n[cls]; i++) {
        const struct gc_slot *s = &gc_slots(c)[h[i]];
        if (s->place != i + 1 || s->state != GC_QUEUED || s->cls != cls) return false;
        if (i > 0 && gc_before(c, h[i], h[(i - 1) / 2])) return false;
    }
    return true;
}

bool gc_could(const struct gateway_core *c, const struct gc_slot *s, const struct gc_worker *w,
              bool any_numerics)
{
    (void)c;
    if (w->state != GC_LIVE || w->draining) return false;
    if (s->n_ids > w->n_ctx || s->n_ids > s->max_total) return false;
    if ((uint64_t)(w->n_blocks - 1) * w->block_tokens < (uint64_t)s->max_total - 1) return false;
    if (any_numerics || s->next <= s->n_prompt || (s->numerics.lo | s->numerics.hi) == 0)
        return true;
    return hash128_equal(s->numerics, w->numerics);
}

/* How many more of this class the worker takes now. */
static uint32_t gc_room(const struct gateway_core *c, const struct gc_worker *w,
                        const struct gc_slot *s)
{
    if (w->state != GC_LIVE || w->draining || c->now_ns < w->full_until_ns) return 0;
    uint32_t slots = w->max_slots > w->n_sent ? w->max_slots - w->n_sent : 0;
    if (s->rank == 0) return slots; /* real-time is never held back for a window */
    /* Lower ranks leave a seat's worth of slots to real-time. */
    uint32_t kept = w->max_slots > 2 * w->max_seqs ? w->max_seqs : 0;
    slots = slots > kept ? slots - kept : 0;
    uint32_t window = w->has_status ? w->window[s->cls] : w->max_seqs;
    window = window > w->sent_since[s->cls] ? window - w->sent_since[s->cls] : 0;
    return window < slots ? window : slots;
}

/* The worker with most room that may take it; *full: one could, but for room or a refusal;
 * *any_room: somebody has room for this class, so those behind it may still go. */
static uint32_t gc_choose(const struct gateway_core *c, const struct gc_slot *s, bool *could,
                          bool *any_room)
{
    uint32_t best = GC_NONE, best_room = 0;
    *could = *any_room = false;
    for (uint32_t i = 0; i < c->cfg.max_workers; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        uint32_t room = gc_room(c, w, s);
        *any_room |= room > 0;
        if (!gc_could(c, s, w, false)) continue;
        *could = true;
        if ((s->refused_by >> i & 1u) != 0 || room <= best_room) continue;
        best = i;
        best_room = room;
    }
    return best;
}

bool gc_too_large(const struct gateway_core *c, const struct gc_slot *s)
{
    uint32_t capacity = gateway_core_capacity(c);
    return capacity > 0 && s->max_total - 1 > capacity;
}

uint64_t gc_due(const struct gateway_core *c, const struct gc_slot *s)
{
    uint64_t at = UINT64_MAX;
    if (s->state != GC_QUEUED && s->state != GC_SENT) return at;
    if (s->deadline_ns != 0) at = s->deadline_ns;
    if (s->state != GC_QUEUED || !s->alone) return at;
    uint64_t limit = UINT64_MAX;
    if (gc_too_large(c, s)) {
        limit = s->alone_ns + (s->was_sent ? c->cfg.no_worker_ns : 0);
    } else if (s->rank == 0) {
        limit = s->alone_ns + c->cfg.no_worker_ns;
    } else if (s->next >
               s->n_prompt) { /* starting again makes sense only if somebody would take it then */
        for (uint32_t i = 0; i < c->cfg.max_workers; i++) {
            if (gc_could(c, s, &gc_workers(c)[i], true)) limit = s->alone_ns + c->cfg.lost_ns;
        }
    }
    return limit < at ? limit : at;
}

void gc_update_alone(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    bool could = false;
    for (uint32_t i = 0; i < c->cfg.max_workers && !could; i++)
        could = gc_could(c, s, &gc_workers(c)[i], false);
    if (could) {
        s->alone = 0;
        s->alone_ns = 0;
    } else if (!s->alone) {
        s->alone = 1;
        s->alone_ns = c->now_ns;
    }
    uint64_t due = gc_due(c, s);
    if (due < c->due_ns) c->due_ns = due;
}

void gc_workers_changed(struct gateway_core *c)
{
    gc_unstick(c, GC_STUCK_NOBODY);
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        if (gc_slots(c)[i].state == GC_QUEUED) gc_update_alone(c, i);
    }
}

void gc_queue(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->state != GC_QUEUED);
    s->state = GC_QUEUED;
    s->worker = GC_NONE;
    gc_heap_push(c, slot);
    gc_update_alone(c, slot);
}

void gc_unqueue(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->state == GC_QUEUED);
    if (s->stuck != GC_NOT_STUCK) {
        c->n_stuck[s->stuck]--;
        s->stuck = GC_NOT_STUCK;
    } else {
        gc_heap_remove(c, slot);
    }
    s->alone = 0;
    s->alone_ns = 0;
}

void gc_unstick(struct gateway_core *c, enum gc_stuck upto)
{
    if (c->n_stuck[GC_STUCK_ROOM] == 0 &&
        (upto == GC_STUCK_ROOM || c->n_stuck[GC_STUCK_NOBODY] == 0))
        return;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        struct gc_slot *s = &gc_slots(c)[i];
        if (s->state != GC_QUEUED || s->stuck == GC_NOT_STUCK || s->stuck > (uint8_t)upto) continue;
        c->n_stuck[s->stuck]--;
        s->stuck = GC_NOT_STUCK;
        gc_heap_push(c, i);
    }
}

void gc_left_worker(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    assert(s->state == GC_SENT && s->worker < c->cfg.max_workers);
    struct gc_worker *w = &gc_workers(c)[s->worker];
    assert(w->n_sent > 0);
    w->n_sent--;
    gc_unstick(c, GC_STUCK_ROOM);
}

void gc_seat_freed(struct gateway_core *c, const struct gc_slot *s)
{
    struct gc_worker *w = &gc_workers(c)[s->worker];
    if (w->sent_since[s->cls] > 0)
        w->sent_since[s->cls]--;
    else if (w->has_status && w->window[s->cls] < w->max_seqs)
        w->window[s->cls]++;
}

static void gc_submit(struct gateway_core *c, uint32_t slot, uint32_t worker, struct gc_out *o)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    struct gc_worker *w = &gc_workers(c)[worker];
    gc_unqueue(c, slot);
    if (s->has_sub || s->failures > 0) c->resubmits++;
    /* The slot is in the id's low part: an answer finds it without a table. */
    s->sub.incarnation = c->cfg.incarnation;
    s->sub.counter = c->next_counter++ * c->cfg.max_slots + slot;
    s->sub_process = w->incarnation;
    s->has_sub = s->was_sent = 1;
    s->state = GC_SENT;
    s->worker = worker;
    w->n_sent++;
    w->sent_since[s->cls]++;
    gc_link(o, GA_SUBMIT, worker, slot, s->sub);
    o->list[o->n - 1].from = s->next;
    o->list[o->n - 1].max_total = s->max_total;
    if (s->deadline_ns != 0 && s->deadline_ns < c->due_ns) c->due_ns = s->deadline_ns;
}

static void gc_dispatch_class(struct gateway_core *c, uint8_t cls, struct gc_out *o)
{
    while (c->heap_n[cls] > 0) {
        uint32_t slot = gc_heap(c, cls)[0];
        struct gc_slot *s = &gc_slots(c)[slot];
        bool could, any_room;
        if (s->deadline_ns != 0 && c->now_ns >= s->deadline_ns) {
            gc_fail(c, slot, ERR_DEADLINE, o);
            continue;
        }
        uint32_t w = gc_choose(c, s, &could, &any_room);
        if (w != GC_NONE) {
            gc_submit(c, slot, w, o);
            continue;
        }
        if (!any_room) return;
        gc_heap_remove(c, slot);
        s->stuck = could ? GC_STUCK_ROOM : GC_STUCK_NOBODY;
        c->n_stuck[s->stuck]++;
    }
}

void gc_dispatch(struct gateway_core *c, struct gc_out *o)
{
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) gc_dispatch_class(c, c->order[k], o);
}
