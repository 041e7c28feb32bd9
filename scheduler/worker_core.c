/* The region, and the switch over events. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

static uint64_t wc_align(uint64_t n)
{
    return (n + 63u) & ~(uint64_t)63u;
}

/* Fewer seats than any step limit: then one decode step always carries every ACTIVE sequence, and a
 * prefill always finds at least one token and one row left over by the decodes. */
static uint32_t wc_seats(const struct worker_core_config *cfg)
{
    uint32_t n = cfg->max_seqs;
    if (n > cfg->max_spans) n = cfg->max_spans;
    if (n > cfg->max_tokens) n = cfg->max_tokens;
    if (n > cfg->max_rows) n = cfg->max_rows;
    if (n > cfg->max_slots) n = cfg->max_slots;
    return n;
}

/* One place for the numbers that the core and not the shell decides. Suspended sequences stay open,
 * so with a host tier there may be as many of them as slots. */
static struct kvpool_config wc_pool_config(const struct worker_core_config *cfg)
{
    struct kvpool_config p = cfg->pool;
    p.max_seqs = p.n_host > 0 ? cfg->max_slots : wc_seats(cfg);
    p.max_holds = WC_STEPS * cfg->max_spans;
    p.max_copies = wc_copies_max(cfg);
    if (p.max_accounts == 0) p.max_accounts = 1;
    return p;
}

static uint64_t wc_place(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at = wc_align(here + bytes);
    return here;
}

/* Fills the offsets; returns the size of the region, 0 = absurd. */
static size_t wc_layout(struct worker_core *c, const struct worker_core_config *cfg)
{
    struct kvpool_config pool = wc_pool_config(cfg);
    uint64_t slots = cfg->max_slots, at = 0, n_ids = pool.prefix_cache ? slots * cfg->n_ctx : 0;
    if (wc_seats(cfg) == 0 || cfg->prefill_chunk == 0 || slots >= UINT32_MAX / 8) return 0;
    size_t pool_bytes = kvpool_bytes(&pool);
    if (pool_bytes == 0) return 0;
    wc_place(&at, sizeof(struct worker_core));
    c->slots_at = wc_place(&at, slots * sizeof(struct wc_slot));
    c->queue_at = wc_place(&at, 2 * slots * sizeof(uint32_t));
    c->active_at = wc_place(&at, wc_seats(cfg) * sizeof(uint32_t));
    c->timers_at = wc_place(&at, slots * sizeof(uint32_t));
    c->names_at = wc_place(&at, slots * sizeof(uint32_t));
    c->spans_at = wc_place(&at, (uint64_t)WC_STEPS * cfg->max_spans * sizeof(struct wc_span));
    c->copies_at = wc_place(&at, pool.max_copies * sizeof(struct wc_copy));
    c->tenants_at = wc_place(&at, (uint64_t)pool.max_accounts * cfg->classes.n *
                                      sizeof(struct worker_tenant_account));
    c->pool_at = wc_place(&at, pool_bytes);
    c->ids_at = wc_place(&at, n_ids * sizeof(int32_t));
    c->plan_at = c->state_bytes = at;
    wc_place(&at, (uint64_t)2 * cfg->max_spans * sizeof(struct worker_span));
    c->order_at = wc_place(&at, wc_seats(cfg) * sizeof(uint32_t));
    return (size_t)at;
}

size_t worker_core_bytes(const struct worker_core_config *cfg)
{
    struct worker_core tmp;
    return wc_layout(&tmp, cfg);
}

size_t worker_core_state_bytes(const struct worker_core_config *cfg)
{
    struct worker_core tmp;
    return wc_layout(&tmp, cfg) == 0 ? 0 : (size_t)tmp.state_bytes;
}

struct worker_core *worker_core_init(void *region, const struct worker_core_config *cfg)
{
    struct worker_core *c = region;
    assert(((uintptr_t)region & 63u) == 0);
    assert(cfg->classes.n > 0 && cfg->classes.n <= CLASSES_MAX);
    size_t bytes = wc_layout(c, cfg);
    assert(bytes != 0);
    (void)bytes;
    c->cfg = *cfg;
    c->cfg.pool = wc_pool_config(cfg);
    c->seats = wc_seats(cfg);
    c->next_step = c->next_arrival = c->next_admitted = c->next_copy = 1;
    c->floor_cls = WC_NONE;
    wc_cost_init(c);
    struct kvpool *pool = kvpool_init((char *)region + c->pool_at, &c->cfg.pool);
    if (cfg->debug_pool_blocks != 0) kvpool_shrink(pool, cfg->debug_pool_blocks);
    return c;
}

/* The worst event (a session's loss, a drain) gives each slot a drop, a finish and its freedom; the
 * plan adds at most a preemption per seat, a step, a debug drop or park, and copies. */
uint32_t worker_core_actions_max(const struct worker_core_config *cfg)
{
    return 6 * cfg->max_slots + 2 * WORKER_GATEWAYS_MAX + 16 + wc_copies_max(cfg);
}

struct worker_action *wc_emit(struct wc_out *o, enum worker_action_kind kind)
{
    assert(o->n < o->max);
    struct worker_action *a = &o->list[o->n++];
    memset(a, 0, sizeof *a);
    a->kind = kind;
    a->slot = WORKER_SLOT_NONE;
    return a;
}

static void wc_dispatch(struct worker_core *c, const struct worker_event *ev, struct wc_out *o)
{
    switch (ev->kind) {
    case WE_SESSION_UP: wc_session_up(c, ev->gw, ev->gateway, o); break;
    case WE_SESSION_DOWN: wc_session_down(c, ev->gw); break;
    case WE_SUBMIT: wc_submit(c, ev, o); break;
    case WE_CANCEL: wc_cancel(c, ev->gw, ev->sub, o); break;
    case WE_GAP: wc_gap(c, ev->gw, ev->sub, ev->from, o); break;
    case WE_ACK: wc_ack(c, ev->gw, ev->sub, o); break;
    case WE_STEP_END: wc_step_end(c, ev, o); break;
    case WE_STEP_PARKED: wc_step_parked(c, ev); break;
    case WE_SPAN_DROPPED: wc_span_dropped(c, ev->step.step, ev->step.span, o); break;
    case WE_COPY_END: wc_copy_end(c, ev, o); break;
    case WE_DRAIN: wc_drain(c, o); break;
    case WE_TICK: wc_tick(c, o); break;
    }
}

static void wc_exit_when_empty(struct worker_core *c, struct wc_out *o)
{
    if (!c->draining || c->exited || c->n_used > 0) return;
    for (uint32_t i = 0; i < WC_STEPS; i++) {
        if (c->steps[i].id != 0) return;
    }
    c->exited = 1;
    wc_emit(o, WA_EXIT);
}

uint32_t worker_core_handle(struct worker_core *c, const struct worker_event *ev, uint64_t now_ns,
                            struct worker_action *out)
{
    struct wc_out o = {.list = out, .n = 0, .max = worker_core_actions_max(&c->cfg)};
    assert(now_ns >= c->now_ns);
    assert(ev->kind > WE_ACK || ev->gw < WORKER_GATEWAYS_MAX);
    c->now_ns = now_ns;
    wc_dispatch(c, ev, &o);
    wc_schedule(c, &o);
    wc_swap_ins(c, &o); /* a wave that ended lets them go faster */
    wc_checkpoint(c, &o);
    wc_exit_when_empty(c, &o);
    wc_ledger(c);
    return o.n;
}
