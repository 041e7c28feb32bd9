/* Growth, and the spans of a step: decodes first, then prefill chunks, each within the step's time.
 */
#include "base/fault.h"
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

#define WC_PROGRESS 8 /* positions that a prefill gets however short the time is */

bool wc_runnable(const struct wc_slot *s, uint8_t rank)
{
    return s->state == WC_ACTIVE && s->rank == rank && s->in_step == 0 && !s->resuming &&
           wc_steppable(s);
}

/* Runnable sequences of a rank (and class) into the scratch order, most urgent class and oldest
 * first. */
static uint32_t wc_list_runnable(const struct worker_core *c, uint8_t rank, uint32_t cls)
{
    uint32_t *order = wc_order(c), n = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        uint32_t slot = wc_active(c)[i];
        const struct wc_slot *s = &wc_slots(c)[slot];
        if (wc_runnable(s, rank) && (cls == WC_NONE || s->cls == cls)) order[n++] = slot;
    }
    return n;
}

/* One sequence's blocks for its known tokens. True = it waits for blocks that are on their way. */
static bool wc_grow_one(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    struct kvpool *pool = wc_pool(c);
    uint32_t want = wc_target(s), have;
    while (kvpool_reserve(pool, s->seq, want) != 0) {
        struct kvpool_stats st = kvpool_stats(pool);
        (void)kvpool_table(pool, s->seq, &have);
        uint32_t more = kvpool_blocks_for(pool, want) - have, room = st.free + st.cached;
        /* Without a block more it is a quota that was lowered which is in the way. */
        bool quota = more > 0 && wc_quota_left(c, s) >= more;
        if (quota && room + wc_coming(c, &st) >= more) return true;
        uint32_t v = wc_victim(c, slot, !quota);
        if (v == WC_NONE && quota && room + st.held >= more) return true; /* a copy holds it */
        wc_preempt(c, v != WC_NONE ? v : slot, o); /* at last itself */
        if (v == WC_NONE) return false;
    }
    return false;
}

bool wc_grow(struct worker_core *c, uint8_t rank, struct wc_out *o)
{
    bool pending = false;
    uint32_t n = wc_list_runnable(c, rank, WC_NONE);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t slot = wc_order(c)[k];
        if (wc_slots(c)[slot].state == WC_ACTIVE) pending |= wc_grow_one(c, slot, o);
    }
    c->growing = (uint8_t)((c->growing & ~(1u << rank)) | (unsigned)pending << rank);
    return pending;
}

struct wc_budget {
    uint32_t tokens, rows, spans;
    uint64_t limit_ns; /* 0 = none */
    const struct step_cost *cost;
    struct step_shape shape; /* of what is in the step */
    bool prefill;            /* one is in it */
};

/* What is left of the step's time, in positions of this prefill. The first one always gets on. */
static uint32_t wc_time_left(const struct wc_budget *b, uint32_t pos, uint32_t n)
{
    if (b->limit_ns == 0 || n == 0) return n;
    uint32_t fits = step_cost_chunk(b->cost, &b->shape, pos, n, b->limit_ns);
    uint32_t least = b->prefill ? 0 : n < WC_PROGRESS ? n : WC_PROGRESS;
    return fits > least ? fits : least;
}

/* The largest legal chunk of a sequence within what is left; n = 0: none. */
static struct wc_span wc_chunk(const struct worker_core *c, uint32_t slot,
                               const struct wc_budget *b)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    struct wc_span sp = {
        .slot = slot, .pos = kvpool_committed(wc_pool(c), s->seq), .hold = KV_HOLD_NONE};
    uint32_t target = wc_target(s), left = target - sp.pos, n = left;
    assert(sp.pos < target);
    if (left > 1 && n > c->cfg.prefill_chunk) n = c->cfg.prefill_chunk;
    if (n > b->tokens) n = b->tokens;
    if (left > 1) n = wc_time_left(b, sp.pos, n);
    /* Row of input p scores index p + 1: wanted for known indexes without a record. */
    uint32_t first = s->made > sp.pos + 1 ? s->made : sp.pos + 1;
    if (sp.pos + n == target && target == s->n_tokens) { /* the sampled row comes on top */
        uint32_t scores = first < s->n_tokens ? s->n_tokens - first : 0;
        if (scores + 1 > b->rows) n = left > 1 ? (n < left - 1 ? n : left - 1) : 0;
    }
    if (first < s->n_tokens && sp.pos + n + 1 > first && sp.pos + n + 1 - first > b->rows) {
        uint32_t end = sp.pos + n + 1 < s->n_tokens ? sp.pos + n + 1 : s->n_tokens;
        if (end - first > b->rows) n = first + b->rows - sp.pos - 1;
    }
    sp.n = n;
    if (n == 0) return sp;
    sp.sample = sp.pos + n == target && target == s->n_tokens;
    uint32_t end = sp.pos + n + 1 < s->n_tokens ? sp.pos + n + 1 : s->n_tokens;
    if (first < end) {
        sp.score_from = first;
        sp.score_to = end;
    }
    return sp;
}

/* Built-in mistake: the table of another sequence that is at least as long. */
static void wc_stale_table(const struct worker_core *c, uint32_t slot, struct worker_span *w)
{
    for (uint32_t i = 0; i < c->n_active; i++) {
        uint32_t other = wc_active(c)[i], n;
        const uint32_t *table = kvpool_table(wc_pool(c), wc_slots(c)[other].seq, &n);
        if (other != slot && n >= w->n_blocks) w->blocks = table;
    }
}

void wc_plan_span(struct worker_core *c, struct worker_span *w, const struct wc_span *sp)
{
    memset(w, 0, sizeof *w);
    w->slot = sp->slot;
    w->pos = sp->pos;
    w->n = sp->n;
    w->blocks = kvpool_table(wc_pool(c), wc_slots(c)[sp->slot].seq, &w->n_blocks);
    w->score_from = sp->score_from;
    w->score_to = sp->score_to;
    w->sample = sp->sample;
    if (fault_on(FAULT_STALE_TABLE) && wc_slots(c)[sp->slot].ran_from > wc_slots(c)[sp->slot].n_prompt)
        wc_stale_table(c, sp->slot, w);
}

static void wc_add_span(struct worker_core *c, uint32_t step, struct wc_span sp,
                        struct wc_budget *b)
{
    struct wc_slot *s = &wc_slots(c)[sp.slot];
    uint32_t n = c->steps[step].n_spans++;
    uint32_t rows = sp.score_to - sp.score_from + (sp.sample ? 1u : 0u);
    assert(sp.n <= b->tokens && rows <= b->rows && b->spans > 0);
    b->tokens -= sp.n;
    b->rows -= rows;
    b->spans--;
    step_shape_add(&b->shape, sp.pos, sp.n, rows);
    sp.hold = kvpool_hold(wc_pool(c), s->seq);
    assert(sp.hold != KV_HOLD_NONE);
    wc_spans(c, step)[n] = sp;
    s->in_step = (uint8_t)(step + 1);
    c->resumed_swap += s->ahead;
    s->ahead = 0;
    s->span = n;
    s->stepped = c->next_step;
    wc_plan_span(c, &wc_plan(c)[n], &sp);
}

static bool wc_is_decode(const struct worker_core *c, const struct wc_slot *s)
{
    return wc_target(s) - kvpool_committed(wc_pool(c), s->seq) == 1;
}

/* Decodes that do not all fit in the step's time take turns: who waited longest comes first. */
static void wc_order_turns(const struct worker_core *c, uint32_t n, struct wc_budget *b)
{
    struct step_shape all = b->shape;
    uint32_t *order = wc_order(c);
    for (uint32_t k = 0; k < n; k++) {
        const struct wc_slot *s = &wc_slots(c)[order[k]];
        if (wc_is_decode(c, s)) step_shape_add(&all, wc_target(s) - 1, 1, 1);
    }
    if (step_cost_ns(b->cost, &all) <= b->limit_ns) return;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t slot = order[i], k = i;
        uint64_t at = wc_slots(c)[slot].stepped;
        for (; k > 0 && wc_slots(c)[order[k - 1]].stepped > at; k--) order[k] = order[k - 1];
        order[k] = slot;
    }
}

static bool wc_decode_fits(const struct wc_budget *b, uint32_t pos)
{
    struct step_shape with = b->shape;
    if (b->limit_ns == 0 || b->shape.spans == 0) return true;
    step_shape_add(&with, pos, 1, 1);
    return step_cost_ns(b->cost, &with) <= b->limit_ns;
}

/* Decodes first, then prefill chunks, each oldest first: a long prompt delays a stream by one
 * chunk. Real-time's decodes all go in every step; only lower ones are cut for the time. */
uint32_t wc_fill(struct worker_core *c, uint8_t rank, uint32_t cls, uint32_t step)
{
    struct wc_budget b = {.tokens = c->cfg.max_tokens,
                          .rows = c->cfg.max_rows,
                          .spans = c->cfg.max_spans,
                          .limit_ns = wc_cost_limit(c, rank, cls),
                          .cost = &c->cost[rank]};
    uint32_t n = wc_list_runnable(c, rank, cls);
    b.shape.cold = c->cold || c->now_ns - c->last_end_ns > WC_PAUSE_NS;
    if (rank > 0 && b.limit_ns > 0) wc_order_turns(c, n, &b);
    for (int prefill = 0; prefill <= 1; prefill++) {
        for (uint32_t k = 0; k < n && b.spans > 0 && b.tokens > 0 && b.rows > 0; k++) {
            uint32_t slot = wc_order(c)[k];
            struct wc_slot *s = &wc_slots(c)[slot];
            if (kvpool_reserved(wc_pool(c), s->seq) < wc_target(s)) continue; /* waits for blocks */
            if (s->in_step != 0 || wc_is_decode(c, s) == (prefill != 0)) continue;
            if (rank > 0 && !prefill && !wc_decode_fits(&b, wc_target(s) - 1)) continue;
            struct wc_span sp = wc_chunk(c, slot, &b);
            if (sp.n == 0) continue;
            wc_add_span(c, step, sp, &b);
            b.prefill |= prefill != 0;
        }
    }
    c->steps[step].shape = b.shape;
    return c->steps[step].n_spans;
}
