/* Counters, capacity, the next tick, and the auditor. */
#include "scheduler/gateway_core_impl.h"

#include <string.h>

uint64_t gateway_core_next_tick_ns(const struct gateway_core *c, uint64_t now_ns)
{
    uint64_t at = c->due_ns;
    for (uint32_t i = 0; i < c->cfg.max_workers; i++) {
        uint64_t full = gc_workers(c)[i].full_until_ns;
        if (full > c->now_ns && full < at) at = full;
    }
    return at != UINT64_MAX && at < now_ns ? now_ns : at;
}

void gateway_core_stats(const struct gateway_core *c, struct gateway_stats *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct gc_slot *s = &gc_slots(c)[i];
        out->queued[s->cls] += s->state == GC_QUEUED;
        out->sent[s->cls] += s->state == GC_SENT;
        out->done += s->state == GC_DONE;
        uint64_t *oldest = &out->oldest_queued_ns[s->cls];
        if (s->state == GC_QUEUED && (*oldest == 0 || s->arrived_ns < *oldest))
            *oldest = s->arrived_ns;
    }
    for (uint32_t i = 0; i < c->cfg.max_workers; i++)
        out->workers_live += gc_workers(c)[i].state == GC_LIVE;
    out->resubmits = c->resubmits;
    out->gaps = c->gaps;
    out->cancels = c->cancels;
    out->unknown_tokens = c->unknown_tokens;
    out->draining = c->draining;
}

uint32_t gateway_core_capacity(const struct gateway_core *c)
{
    uint64_t best = 0;
    for (uint32_t i = 0; i < c->cfg.max_workers; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        if (w->state != GC_LIVE) continue;
        uint64_t pool = (uint64_t)(w->n_blocks - 1) * w->block_tokens;
        uint64_t fits = pool < w->n_ctx ? pool : w->n_ctx;
        if (fits > best) best = fits;
    }
    return (uint32_t)best;
}

static const char *gc_check_slot(const struct gateway_core *c, uint32_t i)
{
    const struct gc_slot *s = &gc_slots(c)[i];
    if (s->state == GC_FREE)
        return s->place != 0 || s->has_sub ? "a free slot is in a queue or has a submission" : NULL;
    if (s->next < s->from || s->next > s->max_total || s->n_ids > s->max_total)
        return "a slot's counts are out of order";
    if (s->next > s->n_ids) return "a slot has more indexes than ids";
    bool queued = s->state == GC_QUEUED, in_heap = s->place != 0, stuck = s->stuck != GC_NOT_STUCK;
    if (queued != (in_heap || stuck) || (in_heap && stuck))
        return "a queued slot is in a heap or stuck, never both";
    if (s->state == GC_SENT) {
        if (s->worker >= c->cfg.max_workers || !s->has_sub)
            return "a sent slot has no worker or submission";
        const struct gc_worker *w = &gc_workers(c)[s->worker];
        if (w->state == GC_DOWN || w->incarnation != s->sub_process)
            return "a sent slot's worker is another process";
        if (w->state != GC_LIVE) return "a slot was sent before SYNC was answered";
    }
    if (s->state == GC_QUEUED && s->worker != GC_NONE) return "a queued slot names a worker";
    if (gc_due(c, s) < c->due_ns) return "a slot's time runs out before the next tick";
    return NULL;
}

const char *gateway_core_check(const struct gateway_core *c)
{
    uint32_t in_use = 0, stuck[3] = {0}, sent[GATEWAY_WORKERS_MAX] = {0}, in_heaps = 0, queued = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct gc_slot *s = &gc_slots(c)[i];
        const char *bad = gc_check_slot(c, i);
        if (bad != NULL) return bad;
        in_use += s->state != GC_FREE;
        queued += s->state == GC_QUEUED;
        if (s->state == GC_QUEUED) stuck[s->stuck]++;
        if (s->state == GC_SENT) sent[s->worker]++;
    }
    if (in_use != c->in_use) return "slots in use miscounted";
    if (stuck[GC_STUCK_ROOM] != c->n_stuck[GC_STUCK_ROOM] ||
        stuck[GC_STUCK_NOBODY] != c->n_stuck[GC_STUCK_NOBODY])
        return "stuck slots miscounted";
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        if (!gc_heap_check(c, (uint8_t)k)) return "a queue's heap is out of order";
        in_heaps += c->heap_n[k];
    }
    if (queued != in_heaps + stuck[GC_STUCK_ROOM] + stuck[GC_STUCK_NOBODY])
        return "a queued slot is in no queue";
    for (uint32_t i = 0; i < c->cfg.max_workers; i++) {
        if (gc_workers(c)[i].n_sent != sent[i]) return "sent slots of a worker miscounted";
    }
    return NULL;
}
