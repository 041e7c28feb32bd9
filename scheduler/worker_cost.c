/* The learned times: of steps, by rank, and of copies; what step sizes and shares follow from them.
 *
 * Without a cold-start table (tests, the protocol model) nothing is learned and nothing limited. */
#include "scheduler/worker_core_impl.h"

#include <string.h>

#define NS_PER_MS 1000000ull
#define WC_SEGMENT_SHARE 10 /* a batch segment lasts at most this part of the median TTFT */

void wc_cost_init(struct worker_core *c)
{
    c->cost[0] = c->cost[1] = c->cfg.cost;
    c->copy_ns = c->cfg.copy_ns;
    for (uint32_t i = 0; i < COST_FEATURES; i++) c->planned |= c->cfg.cost.start[i] > 0.0;
}

/* Median of the last real-time TTFTs, counted from SUBMIT to the first token. */
static uint64_t wc_median_ttft(const struct worker_core *c)
{
    uint32_t sorted[WC_TTFTS], n = c->n_ttfts < WC_TTFTS ? c->n_ttfts : WC_TTFTS;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && sorted[k - 1] > c->ttft_us[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = c->ttft_us[i];
    }
    return (uint64_t)sorted[n / 2] * 1000u;
}

void wc_cost_first_token(struct worker_core *c, struct wc_slot *s)
{
    uint64_t us = (c->now_ns - s->submitted_ns) / 1000u;
    s->fresh = 0;
    c->ttft_us[c->n_ttfts % WC_TTFTS] = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
    if (++c->n_ttfts == 2 * WC_TTFTS) c->n_ttfts = WC_TTFTS;
    c->ttft_ns = wc_median_ttft(c);
}

/* The tightest time per token promised to a stream that will be in the step. */
static uint64_t wc_realtime_limit(const struct worker_core *c)
{
    uint64_t limit = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        const struct wc_slot *s = &wc_slots(c)[wc_active(c)[i]];
        if (!wc_runnable(s, 0) || s->n_tokens == s->n_prompt) continue; /* no stream yet */
        uint32_t ms = s->tpot_ms != 0 ? s->tpot_ms : c->cfg.classes.rows[s->cls].tpot_ms;
        if (ms != 0 && (limit == 0 || ms * NS_PER_MS < limit)) limit = ms * NS_PER_MS;
    }
    return limit;
}

/* An arrival waits half a segment on average, so step / (2 n) is what a batch step costs it. Before
 * the first real-time token the class's promise stands for the median. */
static uint64_t wc_batch_limit(const struct worker_core *c)
{
    uint64_t ttft = c->ttft_ns, n = c->cfg.n_segments;
    for (uint32_t k = 0; k < c->cfg.classes.n && ttft == 0; k++) {
        if (c->cfg.classes.rows[k].rank == 0) ttft = c->cfg.classes.rows[k].ttft_ms * NS_PER_MS;
    }
    uint64_t segment = n * (ttft / WC_SEGMENT_SHARE);
    uint64_t delay = 2 * n * (ttft / 1000u) * c->cfg.interference_permille;
    return c->cfg.interference_permille != 0 && delay < segment ? delay : segment;
}

uint64_t wc_cost_limit(const struct worker_core *c, uint8_t rank, uint32_t cls)
{
    if (!c->planned) return 0;
    if (rank == 0) return wc_realtime_limit(c);
    return cls == WC_NONE ? wc_batch_limit(c) : 0;
}

/* Device time by class, as positions share it; and what the classes with a floor are owed of it. */
static void wc_share_time(struct worker_core *c, uint32_t step, uint64_t ns)
{
    uint64_t positions[CLASSES_MAX] = {0}, all = 0;
    for (uint32_t n = 0; n < c->steps[step].n_spans; n++) {
        const struct wc_span *sp = &wc_spans(c, step)[n];
        if (sp->state == WC_SPAN_GONE) continue; /* its slot may be another's by now */
        positions[wc_slots(c)[sp->slot].cls] += sp->n;
        all += sp->n;
    }
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        uint64_t own = all == 0 ? 0 : ns / all * positions[k], owed = c->owed_ns[k];
        uint64_t floor = c->cfg.classes.rows[k].floor_permille;
        c->class_ns[k] += own;
        if (floor == 0) continue;
        bool work = c->count[k][WC_ACTIVE] + c->count[k][WC_WAITING] > 0;
        owed = work ? owed + ns / 1000u * floor : 0;
        owed = owed > own ? owed - own : 0;
        c->owed_ns[k] = owed < WC_OWED_MAX ? owed : WC_OWED_MAX;
    }
}

void wc_cost_step_end(struct worker_core *c, uint32_t step, const struct worker_event *ev)
{
    struct wc_step *st = &c->steps[step];
    c->last_end_ns = c->now_ns;
    if (ev->step.failed) return;
    wc_share_time(c, step, ev->step.device_ns);
    c->last_step_ns[st->rank] = ev->step.device_ns;
    if (c->planned && !c->cfg.fixed_cost && !st->disturbed && ev->step.device_ns > 0)
        step_cost_learn(&c->cost[st->rank], &st->shape, ev->step.device_ns);
}

uint32_t wc_cost_floor(const struct worker_core *c)
{
    uint32_t best = WC_NONE;
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        uint32_t rank = c->cfg.classes.rows[k].rank != 0;
        if (rank == 0 || c->cfg.classes.rows[k].floor_permille == 0) continue;
        if (c->count[k][WC_ACTIVE] + c->count[k][WC_WAITING] == 0) continue;
        if (c->owed_ns[k] == 0 || c->owed_ns[k] <= c->last_step_ns[rank]) continue;
        if (best == WC_NONE || c->owed_ns[k] > c->owed_ns[best]) best = k;
    }
    return best;
}

bool wc_cost_tail_pays(const struct worker_core *c, uint32_t slot)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    uint32_t n = kvpool_committed(wc_pool(c), s->seq), tail = n % c->cfg.pool.block_tokens;
    if (c->cfg.debug_resume == 2) return false; /* nothing comes back that way */
    if (!c->planned) return true;
    struct step_shape compute = {0}, none = {0};
    step_shape_add(&compute, n - tail, tail, 0);
    return 2 * c->copy_ns <= step_cost_ns(&c->cost[s->rank], &compute) -
                                 step_cost_ns(&c->cost[s->rank], &none);
}

bool wc_cost_swap_pays(const struct worker_core *c, uint32_t slot)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    uint32_t bt = c->cfg.pool.block_tokens, kept = kvpool_kept(wc_pool(c), s->seq), hit = 0;
    if (wc_has_root(s))
        hit = kvpool_match(wc_pool(c), s->root, wc_ids(c, slot), wc_hit_ids(s));
    if (c->cfg.debug_resume != 0) return c->cfg.debug_resume == 1;
    /* The index has it all: nothing to copy. Still not a fresh start, which gives up what is kept, and
     * may find no room: then the index loses the blocks too, and all of it is computed again. */
    if (kept <= hit) return true;
    if (!c->planned) return true;
    struct step_shape compute = {0}, none = {0};
    step_shape_add(&compute, hit, kept - hit, 0);
    uint64_t computing = step_cost_ns(&c->cost[s->rank], &compute);
    uint64_t launch = step_cost_ns(&c->cost[s->rank], &none);
    computing = computing > launch ? computing - launch : 0; /* others are in the step anyway */
    /* Computing stops the others, copying runs beside their steps: while it lasts one seat of all is
     * idle. What waits before it in the queue delays it, not them. A real-time one is not to wait longer
     * than its own computing would take. */
    uint64_t copying = (uint64_t)((kept - hit + bt - 1) / bt + c->n_copies) * c->copy_ns;
    return copying / (s->rank > 0 && c->n_active > 0 ? c->n_active : 1) <= computing;
}
