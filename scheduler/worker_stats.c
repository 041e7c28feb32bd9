/* Counters, and the next tick. Counted as things happen: TOKENS and STATUS ask often. */
#include "scheduler/worker_core_impl.h"

#include <string.h>

/* Unstarted sequences the worker would still take: as many as it has seats, and of lower ranks only
 * so many that a quarter of the slots stays free for real-time. */
static uint32_t wc_window(const struct worker_core *c, uint32_t cls, uint32_t unstarted,
                          uint32_t free_slots)
{
    if (c->draining) return 0;
    if (c->cfg.classes.rows[cls].rank == 0) return free_slots;
    uint32_t kept = c->cfg.max_slots / 4;
    uint32_t room = free_slots > kept ? free_slots - kept : 0;
    uint32_t want = c->seats > unstarted ? c->seats - unstarted : 0;
    return want < room ? want : room;
}

void worker_core_stats(const struct worker_core *c, struct worker_stats *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        out->waiting[k] = c->count[k][WC_WAITING];
        out->active[k] = c->count[k][WC_ACTIVE];
        out->finished += c->count[k][WC_FINISHED];
        out->window[k] = wc_window(c, k, c->unstarted[k], c->cfg.max_slots - c->n_used);
    }
    memcpy(out->account, c->account, sizeof out->account);
    memcpy(out->steps, c->n_steps, sizeof out->steps);
    memcpy(out->positions, c->positions, sizeof out->positions);
    memcpy(out->class_ns, c->class_ns, sizeof out->class_ns);
    memcpy(out->owed_ns, c->owed_ns, sizeof out->owed_ns);
    memcpy(out->cost, c->cost, sizeof out->cost);
    out->preemptions = c->n_preemptions;
    out->parks = c->n_parks;
    out->drops = c->n_drops;
    out->step_device_ns = c->step_device_ns;
    out->resumed_swap = c->resumed_swap;
    out->resumed_recompute = c->resumed_recompute;
    out->swap_in_positions = c->swap_in_positions;
    out->realtime_swaps = c->n_realtime_swaps;
    out->ahead = c->n_ahead;
    out->given_back = c->n_given_back;
    out->followers = c->followers;
    out->role_changes = c->role_changes;
    out->faults = c->faults;
    out->copy_ns = c->copy_ns;
    out->pool = kvpool_stats(wc_pool(c));
    memcpy(out->started_tag, c->started_tag, sizeof out->started_tag);
    out->draining = c->draining;
    out->running = wc_running(c) != WC_NONE;
    out->parked = wc_parked(c) != WC_NONE;
}

void worker_core_tenant_account(const struct worker_core *c, uint32_t account, uint8_t cls,
                                struct worker_tenant_account *out)
{
    *out = (struct worker_tenant_account){0, 0};
    if (account < c->cfg.pool.max_accounts && cls < c->cfg.classes.n) *out = *wc_tenant(c, account, cls);
}

const struct kvpool *worker_core_pool(const struct worker_core *c)
{
    return wc_pool(c);
}

static uint64_t wc_sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t worker_core_next_tick_ns(const struct worker_core *c, uint64_t now_ns)
{
    uint64_t at = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_timers; i++) {
        const struct wc_slot *s = &wc_slots(c)[wc_timers(c)[i]];
        if (s->lost)
            at = wc_sooner(at, s->lost_at_ns +
                                   (s->rank == 0 ? c->cfg.lost_realtime_ns : c->cfg.lost_batch_ns));
        if (s->state == WC_FINISHED && s->attached) at = wc_sooner(at, s->finish_at_ns);
        if (!s->attached && s->gw != WC_NONE) at = wc_sooner(at, c->sessions[s->gw].sync_at_ns);
    }
    uint32_t parked = wc_parked(c);
    if (parked != WC_NONE) at = wc_sooner(at, c->steps[parked].progress_ns + c->cfg.park_max_ns);
    return at != UINT64_MAX && at < now_ns ? now_ns : at;
}
