/* The region, the switch over events, and SUBMIT. */
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

static struct kvpool_config wc_pool_config(const struct worker_core_config *cfg)
{
    struct kvpool_config p = cfg->pool;
    p.max_seqs = wc_seats(cfg);
    p.max_holds = WC_STEPS * cfg->max_spans;
    return p;
}

/* Fills the offsets; returns the size of the region, 0 = absurd. */
static size_t wc_layout(struct worker_core *c, const struct worker_core_config *cfg)
{
    struct kvpool_config pool = wc_pool_config(cfg);
    if (pool.max_seqs == 0 || cfg->prefill_chunk == 0 || cfg->max_slots >= UINT32_MAX / 8) return 0;
    size_t pool_bytes = kvpool_bytes(&pool);
    if (pool_bytes == 0) return 0;
    c->slots_at = wc_align(sizeof(struct worker_core));
    c->spans_at = wc_align(c->slots_at + (uint64_t)cfg->max_slots * sizeof(struct wc_slot));
    c->pool_at =
        wc_align(c->spans_at + (uint64_t)WC_STEPS * cfg->max_spans * sizeof(struct wc_span));
    c->plan_at = wc_align(c->pool_at + pool_bytes);
    c->state_bytes = c->plan_at;
    c->order_at = wc_align(c->plan_at + (uint64_t)cfg->max_spans * sizeof(struct worker_span));
    return (size_t)wc_align(c->order_at + (uint64_t)cfg->max_slots * sizeof(uint32_t));
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
    c->next_step = c->next_arrival = c->next_admitted = 1;
    struct kvpool *pool = kvpool_init((char *)region + c->pool_at, &c->cfg.pool);
    if (cfg->debug_pool_blocks != 0) kvpool_shrink(pool, cfg->debug_pool_blocks);
    return c;
}

/* The worst event (a session's loss, a drain) gives each slot a drop, a finish and its freedom; the
 * plan adds at most a preemption per seat, a step and a debug drop or park. */
uint32_t worker_core_actions_max(const struct worker_core_config *cfg)
{
    return 6 * cfg->max_slots + 2 * WORKER_GATEWAYS_MAX + 16;
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

static void wc_refuse_at_door(const struct worker_event *ev, enum finish f, struct wc_out *o)
{
    struct worker_action *a = wc_emit(o, WA_FINISH);
    a->gw = ev->gw;
    a->sub = ev->sub;
    a->finish = f;
}

static void wc_give_back(uint32_t slot, struct wc_out *o)
{
    if (slot == WORKER_SLOT_NONE) return;
    wc_emit(o, WA_FREE)->slot = slot;
}

/* The finish a new submission gets at the door, or FINISH_NONE: it may wait for a seat. */
static enum finish wc_door(const struct worker_core *c, const struct worker_event *ev,
                           const struct wc_slot *s)
{
    if (ev->submit.refused || ev->submit.cls >= c->cfg.classes.n) return FINISH_REFUSED;
    if (s->n_tokens == 0 || s->n_prompt == 0 || s->n_prompt > s->n_tokens) return FINISH_REFUSED;
    if (s->from == 0 || s->from > s->n_tokens) return FINISH_REFUSED;
    if (c->draining) return FINISH_HANDED_BACK;
    if (s->n_tokens > c->cfg.n_ctx) return FINISH_TOO_LARGE;
    if (wc_blocks_to_end(c, s) > c->cfg.pool.max_seq_blocks) return FINISH_TOO_LARGE;
    uint32_t blocks = c->cfg.pool.n_blocks - 1;
    if (c->cfg.debug_pool_blocks != 0 && c->cfg.debug_pool_blocks < blocks)
        blocks = c->cfg.debug_pool_blocks;
    if (wc_blocks_to_end(c, s) > blocks) return FINISH_TOO_LARGE;
    if (s->n_tokens >= s->max_total && s->from == s->n_tokens) return FINISH_LENGTH;
    return FINISH_NONE;
}

static void wc_submit(struct worker_core *c, const struct worker_event *ev, struct wc_out *o)
{
    const struct wc_session *ses = &c->sessions[ev->gw];
    uint32_t slot = ev->submit.slot;
    if (!ses->up || wc_find(c, ses->gateway, ev->sub) != WC_NONE) {
        wc_give_back(slot, o);
        return;
    }
    if (slot == WORKER_SLOT_NONE) {
        wc_refuse_at_door(ev, ev->submit.refused ? FINISH_REFUSED : FINISH_HANDED_BACK, o);
        return;
    }
    assert(slot < c->cfg.max_slots);
    struct wc_slot *s = &wc_slots(c)[slot];
    assert(s->state == WC_FREE);
    memset(s, 0, sizeof *s);
    s->state = WC_WAITING;
    s->cls = ev->submit.cls < c->cfg.classes.n ? ev->submit.cls : 0;
    s->rank = c->cfg.classes.rows[s->cls].rank != 0;
    s->attached = 1;
    s->gw = ev->gw;
    s->gateway = ses->gateway;
    s->sub = ev->sub;
    s->n_prompt = ev->submit.n_prompt;
    s->n_tokens = ev->submit.n_tokens;
    s->max_total = ev->submit.max_total < c->cfg.n_ctx ? ev->submit.max_total : c->cfg.n_ctx;
    if (s->max_total < s->n_tokens) s->max_total = s->n_tokens;
    s->from = s->made = s->sent = ev->submit.from;
    s->seq = KV_SEQ_NONE;
    s->tag = ev->submit.tag;
    s->arrival = c->next_arrival++;
    /* A retry: what it has was computed elsewhere, so computing it here is waste, not first work.
     */
    s->high = s->n_tokens > s->n_prompt ? s->n_tokens - 1 : 0;
    enum finish f = wc_door(c, ev, s);
    if (f == FINISH_REFUSED) s->max_total = s->from = s->made = s->sent = s->n_tokens; /* no sense */
    if (f != FINISH_NONE) wc_finish(c, slot, f, o);
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
    case WE_COPY_END: break; /* no copies until the host tier exists */
    case WE_DRAIN: wc_drain(c, o); break;
    case WE_TICK: wc_tick(c, o); break;
    }
}

static void wc_exit_when_empty(struct worker_core *c, struct wc_out *o)
{
    if (!c->draining || c->exited || c->steps[0].id != 0 || c->steps[1].id != 0) return;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        if (wc_slots(c)[i].state != WC_FREE) return;
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
    wc_exit_when_empty(c, &o);
    return o.n;
}
