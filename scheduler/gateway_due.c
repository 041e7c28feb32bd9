/* When a slot's time runs out, in a heap; and whether any worker could take it at all. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>

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
        for (uint32_t i = 0; i < c->workers_end; i++) {
            if (gc_could(c, s, &gc_workers(c)[i], true)) limit = s->alone_ns + c->cfg.lost_ns;
        }
    }
    return limit < at ? limit : at;
}

/* ---- the heap, by due_ns, then slot ---- */

static bool due_before(const struct gateway_core *c, uint32_t a, uint32_t b)
{
    uint64_t x = gc_slots(c)[a].due_ns, y = gc_slots(c)[b].due_ns;
    return x != y ? x < y : a < b;
}

static void due_put(struct gateway_core *c, uint32_t at, uint32_t slot)
{
    gc_dues(c)[at] = slot;
    gc_slots(c)[slot].due_place = at + 1;
}

static void due_fix(struct gateway_core *c, uint32_t slot)
{
    uint32_t *h = gc_dues(c), at = gc_slots(c)[slot].due_place - 1;
    while (at > 0 && due_before(c, slot, h[(at - 1) / 2])) {
        due_put(c, at, h[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t kid = 2 * at + 1;
        if (kid >= c->n_due) break;
        if (kid + 1 < c->n_due && due_before(c, h[kid + 1], h[kid])) kid++;
        if (!due_before(c, h[kid], slot)) break;
        due_put(c, at, h[kid]);
        at = kid;
    }
    due_put(c, at, slot);
}

static void due_remove(struct gateway_core *c, uint32_t slot)
{
    uint32_t at = gc_slots(c)[slot].due_place - 1, moved = gc_dues(c)[--c->n_due];
    assert(at <= c->n_due && gc_dues(c)[at] == slot);
    gc_dues(c)[c->n_due] = 0;
    gc_slots(c)[slot].due_place = 0;
    gc_slots(c)[slot].due_ns = 0;
    if (moved == slot) return;
    due_put(c, at, moved);
    due_fix(c, moved);
}

void gc_set_due(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    uint64_t due = gc_due(c, s);
    if (due == UINT64_MAX) {
        if (s->due_place != 0) due_remove(c, slot);
        return;
    }
    if (s->due_place != 0 && s->due_ns == due) return;
    s->due_ns = due;
    if (s->due_place == 0) due_put(c, c->n_due++, slot);
    due_fix(c, slot);
}

const char *gc_due_check(const struct gateway_core *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct gc_slot *s = &gc_slots(c)[i];
        uint64_t due = gc_due(c, s);
        if ((due == UINT64_MAX) != (s->due_place == 0) || (s->due_place != 0 && s->due_ns != due))
            return "a slot's time runs out at another time than is written";
        if (s->due_place == 0) continue;
        uint32_t at = s->due_place - 1;
        n++;
        if (at >= c->n_due || gc_dues(c)[at] != i) return "a slot's place among the due is wrong";
        if (at > 0 && due_before(c, i, gc_dues(c)[(at - 1) / 2])) return "the due are out of order";
    }
    return n != c->n_due ? "the due are miscounted" : NULL;
}

/* ---- alone ---- */

void gc_not_alone(struct gateway_core *c, struct gc_slot *s)
{
    if (!s->alone) return;
    assert(c->n_alone > 0);
    c->n_alone--;
    s->alone = 0;
    s->alone_ns = 0;
}

void gc_update_alone(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    bool could = false;
    for (uint32_t i = 0; i < c->workers_end && !could; i++)
        could = gc_could(c, s, &gc_workers(c)[i], false);
    if (could) {
        gc_not_alone(c, s);
    } else if (!s->alone) {
        s->alone = 1;
        s->alone_ns = c->now_ns;
        c->n_alone++;
    }
    gc_set_due(c, slot);
}

/* Another worker takes all that `gone` took. */
static bool gc_replaced(const struct gateway_core *c, const struct gc_worker *gone)
{
    if (gone->state != GC_LIVE || gone->draining) return true; /* took nothing */
    uint64_t pool = (uint64_t)(gone->n_blocks - 1) * gone->block_tokens;
    for (uint32_t i = 0; i < c->workers_end; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        if (w->state != GC_LIVE || w->draining || w->n_ctx < gone->n_ctx) continue;
        if ((uint64_t)(w->n_blocks - 1) * w->block_tokens < pool) continue;
        if (hash128_equal(w->numerics, gone->numerics)) return true;
    }
    return false;
}

void gc_workers_changed(struct gateway_core *c, const struct gc_worker *gone)
{
    gc_unstick(c, GC_STUCK_ROOM, GC_UNSTICK_MAX);
    gc_unstick(c, GC_STUCK_NOBODY, UINT32_MAX);
    /* Who was not alone stays so; who was may wait for something else now. */
    if (c->n_alone == 0 && (gone == NULL || gc_replaced(c, gone))) return;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        if (gc_slots(c)[i].state == GC_QUEUED) gc_update_alone(c, i);
    }
}
