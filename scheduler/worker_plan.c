/* Which step runs next. Called after every event; it decides nothing while nothing changed.
 *
 * Order of a decision: sequences that run grow first, newcomers are admitted after them, and blocks
 * are settled for all of them **before** the first span is built. So nothing that is already in a
 * plan can be pushed out of it again.
 */
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

enum wc_start { WC_START_NOBODY, WC_STARTED, WC_START_PENDING, WC_START_BLOCKED };

uint32_t wc_blocks_to_end(const struct worker_core *c, const struct wc_slot *s)
{
    return kvpool_blocks_for(wc_pool(c), s->max_total - 1);
}

/* Known tokens plus one block, so that a start is worth its prefill; never more than it will ever
 * use. */
uint32_t wc_blocks_to_start(const struct worker_core *c, const struct wc_slot *s)
{
    uint32_t start = kvpool_blocks_for(wc_pool(c), wc_target(s)) + 1, end = wc_blocks_to_end(c, s);
    return start < end ? start : end;
}

/* Class order, then preempted before never started, then start tag, then submission. */
static bool wc_before(const struct worker_core *c, const struct wc_slot *a, const struct wc_slot *b)
{
    uint8_t ao = c->cfg.classes.rows[a->cls].order, bo = c->cfg.classes.rows[b->cls].order;
    if (ao != bo) return ao < bo;
    if (a->preempted != b->preempted) return a->preempted > b->preempted;
    if (a->tag != b->tag) return a->tag < b->tag;
    return a->arrival < b->arrival;
}

static uint32_t wc_next_waiting(const struct worker_core *c, uint8_t rank)
{
    uint32_t best = WC_NONE;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if (s->rank != rank || !wc_startable(s)) continue;
        if (best == WC_NONE || wc_before(c, s, &wc_slots(c)[best])) best = i;
    }
    return best;
}

/* Could `slot` start if all that may fall for it fell? Asked before anyone falls: a preemption that
 * does not help is only lost work. */
static bool wc_could_start(const struct worker_core *c, uint32_t slot, uint32_t blocks)
{
    const struct wc_slot *f = &wc_slots(c)[slot];
    struct kvpool_stats st = kvpool_stats(wc_pool(c));
    uint32_t seats = c->seats - c->n_active, found = st.free + st.held;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if (s->state != WC_ACTIVE) continue;
        bool falls =
            !wc_steppable(s) || (s->rank > f->rank && c->cfg.classes.rows[s->cls].preemptible);
        if (!falls) continue;
        uint32_t n;
        (void)kvpool_table(wc_pool(c), s->seq, &n);
        found += n;
        seats++;
    }
    return seats > 0 && found >= blocks;
}

static enum wc_start wc_start(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    struct kvpool *pool = wc_pool(c);
    uint32_t blocks = wc_blocks_to_start(c, s);
    if (!wc_could_start(c, slot, blocks)) return WC_START_BLOCKED;
    struct kvpool_stats st = kvpool_stats(pool);
    while (c->n_active >= c->seats || st.free + st.held < blocks) {
        uint32_t v = wc_victim(c, slot);
        assert(v != WC_NONE);
        wc_preempt(c, v, o);
        st = kvpool_stats(pool);
    }
    if (st.free < blocks) return WC_START_PENDING; /* blocks of dropped spans are on their way */
    s->seq = kvpool_seq_open(pool);
    assert(s->seq != KV_SEQ_NONE);
    int rc = kvpool_reserve(pool, s->seq, wc_target(s));
    assert(rc == 0);
    (void)rc;
    s->state = WC_ACTIVE;
    s->preempted = 0;
    s->ran_from = s->n_tokens;
    if (s->admitted == 0) s->admitted = c->next_admitted++;
    c->n_active++;
    return WC_STARTED;
}

/* The head of a rank blocks those behind it: what is small must not starve what is large. */
static enum wc_start wc_admit(struct worker_core *c, uint8_t rank, struct wc_out *o)
{
    for (;;) {
        uint32_t slot = wc_next_waiting(c, rank);
        if (slot == WC_NONE) return WC_START_NOBODY;
        enum wc_start r = wc_start(c, slot, o);
        if (r != WC_STARTED) return r;
    }
}

static bool wc_runnable(const struct wc_slot *s, uint8_t rank)
{
    return s->state == WC_ACTIVE && s->rank == rank && s->in_step == 0 && wc_steppable(s);
}

/* Runnable sequences of a rank into the scratch order, most urgent class and oldest first. */
static uint32_t wc_sort_active(const struct worker_core *c, uint8_t rank)
{
    uint32_t *order = wc_order(c), n = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if (!wc_runnable(s, rank)) continue;
        uint32_t k = n++;
        for (; k > 0; k--) {
            const struct wc_slot *p = &wc_slots(c)[order[k - 1]];
            uint8_t po = c->cfg.classes.rows[p->cls].order, so = c->cfg.classes.rows[s->cls].order;
            if (po < so || (po == so && p->admitted < s->admitted)) break;
            order[k] = order[k - 1];
        }
        order[k] = i;
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
        if (have + st.free + st.held >= kvpool_blocks_for(pool, want)) return true;
        uint32_t v = wc_victim(c, slot);
        if (v == WC_NONE) { /* at last itself */
            wc_preempt(c, slot, o);
            return false;
        }
        wc_preempt(c, v, o);
    }
    return false;
}

static bool wc_grow(struct worker_core *c, uint8_t rank, struct wc_out *o)
{
    bool pending = false;
    uint32_t n = wc_sort_active(c, rank);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t slot = wc_order(c)[k];
        if (wc_slots(c)[slot].state == WC_ACTIVE) pending |= wc_grow_one(c, slot, o);
    }
    return pending;
}

struct wc_budget {
    uint32_t tokens, rows, spans;
};

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

static void wc_add_span(struct worker_core *c, uint32_t step, struct wc_span sp,
                        struct wc_budget *b)
{
    struct wc_slot *s = &wc_slots(c)[sp.slot];
    struct wc_step *st = &c->steps[step];
    uint32_t n = st->n_spans++;
    uint32_t rows = sp.score_to - sp.score_from + (sp.sample ? 1u : 0u);
    assert(sp.n <= b->tokens && rows <= b->rows && b->spans > 0);
    b->tokens -= sp.n;
    b->rows -= rows;
    b->spans--;
    sp.hold = kvpool_hold(wc_pool(c), s->seq);
    assert(sp.hold != KV_HOLD_NONE);
    wc_spans(c, step)[n] = sp;
    s->in_step = (uint8_t)(step + 1);
    s->span = n;
    struct worker_span *w = &wc_plan(c)[n];
    memset(w, 0, sizeof *w);
    w->slot = sp.slot;
    w->pos = sp.pos;
    w->n = sp.n;
    w->blocks = kvpool_table(wc_pool(c), s->seq, &w->n_blocks);
    w->score_from = sp.score_from;
    w->score_to = sp.score_to;
    w->sample = sp.sample;
}

/* Decodes first, then prefill chunks, each oldest first: a long prompt delays a stream by one
 * chunk. */
static void wc_fill(struct worker_core *c, uint8_t rank, uint32_t step)
{
    struct wc_budget b = {c->cfg.max_tokens, c->cfg.max_rows, c->cfg.max_spans};
    uint32_t n = wc_sort_active(c, rank);
    for (int prefill = 0; prefill <= 1; prefill++) {
        for (uint32_t k = 0; k < n && b.spans > 0 && b.tokens > 0 && b.rows > 0; k++) {
            uint32_t slot = wc_order(c)[k];
            struct wc_slot *s = &wc_slots(c)[slot];
            uint32_t target = wc_target(s);
            if (kvpool_reserved(wc_pool(c), s->seq) < target) continue; /* waits for blocks */
            bool decode = target - kvpool_committed(wc_pool(c), s->seq) == 1;
            if (s->in_step != 0 || decode == (prefill != 0)) continue;
            struct wc_span sp = wc_chunk(c, slot, &b);
            if (sp.n > 0) wc_add_span(c, step, sp, &b);
        }
    }
}

static void wc_park(struct worker_core *c, uint32_t step, struct wc_out *o)
{
    c->steps[step].park_asked = 1;
    wc_emit(o, WA_STEP_PARK)->step = c->steps[step].id;
}

static void wc_debug_disturb(struct worker_core *c, uint32_t step, struct wc_out *o)
{
    uint64_t id = c->steps[step].id;
    uint32_t drop = c->cfg.debug_drop_every, park = c->cfg.debug_park_every;
    if (drop == 1) drop = 2; /* each step its only span: nothing would ever be done */
    if (drop != 0 && id % drop == 0)
        wc_drop_span(c, step, (uint32_t)(c->debug_turn++ % c->steps[step].n_spans), o);
    if (park != 0 && id % park == 0 && wc_parked(c) == WC_NONE) wc_park(c, step, o);
}

static bool wc_submit_step(struct worker_core *c, uint8_t rank, struct wc_out *o)
{
    uint32_t step = c->steps[0].id == 0 ? 0 : 1;
    struct wc_step *st = &c->steps[step];
    assert(st->id == 0 && st->n_spans == 0);
    wc_fill(c, rank, step);
    if (st->n_spans == 0) return false;
    st->id = c->next_step++;
    st->rank = rank;
    struct worker_action *a = wc_emit(o, WA_STEP_SUBMIT);
    a->step = st->id;
    a->plan = (struct worker_plan){
        .step = st->id, .rank = rank, .spans = wc_plan(c), .n_spans = st->n_spans};
    wc_debug_disturb(c, step, o);
    return true;
}

static bool wc_has_runnable(const struct worker_core *c, uint8_t rank)
{
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        if (wc_runnable(&wc_slots(c)[i], rank)) return true;
    }
    return false;
}

/* A step runs: real-time's seats and blocks are made free meanwhile, and a lower step is parked
 * only if real-time has something to run then (else the two would park and continue for ever). */
static void wc_schedule_beside(struct worker_core *c, uint32_t running, struct wc_out *o)
{
    enum wc_start zero = wc_admit(c, 0, o);
    struct wc_step *st = &c->steps[running];
    if (st->rank == 0 || st->park_asked || wc_parked(c) != WC_NONE) return;
    if (zero == WC_START_PENDING || wc_has_runnable(c, 0)) wc_park(c, running, o);
}

static void wc_continue(struct worker_core *c, uint32_t parked, struct wc_out *o)
{
    c->steps[parked].parked = 0;
    c->steps[parked].parked_ns = 0;
    wc_emit(o, WA_STEP_CONTINUE)->step = c->steps[parked].id;
}

void wc_schedule(struct worker_core *c, struct wc_out *o)
{
    uint32_t running = wc_running(c), parked = wc_parked(c);
    if (running != WC_NONE) {
        wc_schedule_beside(c, running, o);
        return;
    }
    if (parked != WC_NONE && c->steps[parked].rank == 0) { /* parked by the debug switch */
        wc_continue(c, parked, o);
        return;
    }
    bool growing = wc_grow(c, 0, o);
    enum wc_start zero = wc_admit(c, 0, o);
    if (wc_submit_step(c, 0, o)) return;
    /* Real-time waits for blocks of dropped spans of the parked step; their confirmation is coming
     * and needs nobody's help, while a lower step started now would be in the way. */
    if (growing || zero == WC_START_PENDING) return;
    if (parked != WC_NONE) {
        wc_continue(c, parked, o);
        return;
    }
    (void)wc_grow(c, 1, o);
    (void)wc_admit(c, 1, o);
    (void)wc_submit_step(c, 1, o);
}
