/* Counters, capacity, the next tick, and the auditor. */
#include "scheduler/gateway_core_impl.h"

#include <string.h>

uint64_t gateway_core_next_tick_ns(const struct gateway_core *c, uint64_t now_ns)
{
    uint64_t at = c->n_due > 0 ? gc_slots(c)[gc_dues(c)[0]].due_ns : UINT64_MAX;
    if (c->more) return now_ns;
    for (uint32_t i = 0; i < c->workers_end; i++) {
        uint64_t full = gc_workers(c)[i].full_until_ns;
        if (full > c->now_ns && full < at) at = full;
    }
    return at != UINT64_MAX && at < now_ns ? now_ns : at;
}

void gateway_core_stats(const struct gateway_core *c, struct gateway_stats *out)
{
    memset(out, 0, sizeof *out);
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) {
        out->queued[k] = c->queued[k];
        out->sent[k] = c->sent[k];
        out->oldest_queued_ns[k] = fair_queue_oldest_ns(gc_fair(c), k);
        out->owed[k] = c->owed[k] > 0 ? (uint64_t)c->owed[k] / 1000 : 0;
    }
    for (uint32_t k = GC_STUCK_ROOM; k <= GC_STUCK_NOBODY; k++) {
        for (uint32_t at = c->stuck[k].oldest; at != 0; at = gc_slots(c)[at - 1].newer) {
            uint64_t *oldest = &out->oldest_queued_ns[gc_slots(c)[at - 1].cls];
            uint64_t arrived = fair_queue_entry(gc_fair(c), at - 1)->arrived_ns;
            if (*oldest == 0 || arrived < *oldest) *oldest = arrived;
        }
    }
    for (uint32_t i = 0; i < c->workers_end; i++)
        out->workers_live += gc_workers(c)[i].state == GC_LIVE;
    out->done = c->done;
    out->promoted = c->promoted;
    if (gc_admit(c) != NULL) admit_stats(gc_admit(c), &out->admit);
    out->pool_rate = tenant_account_rate(gc_account(c));
    out->resubmits = c->resubmits;
    out->gaps = c->gaps;
    out->cancels = c->cancels;
    out->unknown_tokens = c->unknown_tokens;
    out->draining = c->draining;
}

uint32_t gateway_core_capacity(const struct gateway_core *c)
{
    uint64_t best = 0;
    for (uint32_t i = 0; i < c->workers_end; i++) {
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
    const struct fair_entry *e = fair_queue_entry(gc_fair(c), i);
    if (s->state == GC_FREE)
        return e->linked || s->has_sub || s->due_place || s->older || s->newer
                   ? "a free slot is in a queue or has a submission"
                   : NULL;
    if (s->next < s->from || s->next > s->max_total || s->n_ids > s->max_total)
        return "a slot's counts are out of order";
    if (s->next > s->n_ids) return "a slot has more indexes than ids";
    if (e->flow != s->tenant || e->cls != s->cls) return "a slot's key is another's";
    bool queued = s->state == GC_QUEUED, stuck = s->stuck != GC_NOT_STUCK;
    if (queued != (e->linked || stuck) || (e->linked && stuck))
        return "a queued slot is in its queue or stuck, never both";
    if (s->state != GC_SENT && s->left != 0) return "what is in flight is not sent";
    if (s->alone && !queued) return "a slot waits for a worker and is not queued";
    if (s->state == GC_SENT) {
        if (s->worker >= c->cfg.max_workers || !s->has_sub)
            return "a sent slot has no worker or submission";
        const struct gc_worker *w = &gc_workers(c)[s->worker];
        if (w->state == GC_DOWN || w->incarnation != s->sub_process)
            return "a sent slot's worker is another process";
        if (w->state != GC_LIVE) return "a slot was sent before SYNC was answered";
    }
    if (queued && s->worker != GC_NONE) return "a queued slot names a worker";
    return NULL;
}

/* Its length; UINT32_MAX = broken, or holds one that does not belong there. */
static uint32_t gc_check_list(const struct gateway_core *c, const struct gc_list *l, uint32_t worker,
                              enum gc_stuck stuck)
{
    uint32_t n = 0, last = 0;
    for (uint32_t at = l->oldest; at != 0 && n <= l->n; at = gc_slots(c)[at - 1].newer, n++) {
        const struct gc_slot *s = &gc_slots(c)[at - 1];
        if (s->older != last || s->worker != worker || s->stuck != stuck) return UINT32_MAX;
        last = at;
    }
    return n == l->n && last == l->newest ? n : UINT32_MAX;
}

static const char *gc_check_workers(const struct gateway_core *c, const uint32_t *sent,
                                    const uint32_t *with)
{
    for (uint32_t i = 0; i < c->cfg.max_workers; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        if (w->n_sent != sent[i]) return "sent slots of a worker miscounted";
        if (gc_check_list(c, &w->list, i, GC_NOT_STUCK) != with[i])
            return "a worker's list is wrong";
        if (w->state != GC_DOWN && i >= c->workers_end) return "a worker is behind the end";
    }
    return NULL;
}

static const char *gc_check_counts(const struct gateway_core *c)
{
    uint32_t queued[CLASSES_MAX] = {0}, sent[CLASSES_MAX] = {0}, stuck[3] = {0}, alone = 0, n = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct gc_slot *s = &gc_slots(c)[i];
        queued[s->cls] += s->state == GC_QUEUED;
        sent[s->cls] += s->state == GC_SENT;
        n += s->state == GC_DONE;
        alone += s->alone;
        stuck[s->stuck]++;
    }
    for (uint32_t k = 0; k < CLASSES_MAX; k++) {
        if (queued[k] != c->queued[k] || sent[k] != c->sent[k]) return "a class is miscounted";
    }
    if (n != c->done || alone != c->n_alone) return "slots done or alone miscounted";
    for (uint32_t k = GC_STUCK_ROOM; k <= GC_STUCK_NOBODY; k++) {
        if (gc_check_list(c, &c->stuck[k], GC_NONE, (enum gc_stuck)k) != stuck[k])
            return "stuck slots miscounted";
    }
    return NULL;
}

const char *gateway_core_check(const struct gateway_core *c)
{
    uint32_t in_use = 0, sent[GATEWAY_WORKERS_MAX] = {0}, with[GATEWAY_WORKERS_MAX] = {0};
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct gc_slot *s = &gc_slots(c)[i];
        const char *bad = gc_check_slot(c, i);
        if (bad != NULL) return bad;
        in_use += s->state != GC_FREE;
        if (s->state == GC_SENT) sent[s->worker]++;
        if (s->state != GC_FREE && s->worker != GC_NONE) with[s->worker]++;
    }
    if (in_use != c->in_use) return "slots in use miscounted";
    const char *bad = gc_check_counts(c);
    if (bad == NULL) bad = gc_check_workers(c, sent, with);
    if (bad == NULL) bad = gc_due_check(c);
    if (bad == NULL) bad = gc_tenant_check(c);
    return bad != NULL ? bad : fair_queue_check(gc_fair(c));
}
