/* Victims, and how blocks leave a sequence.
 *
 * Preempting waits for no copy: what a checkpoint has brought to the host is kept there, and where that is
 * every full block the partly filled last one goes there, too, while the others are somebody else's already; the
 * rest is forgotten and computed again; ids and records stay. Blocks of a span in flight are only HELD from
 * then on: the engine may still write them, so nobody gets them before it confirmed the drop. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>

void wc_drop_span(struct worker_core *c, uint32_t step, uint32_t span, struct wc_out *o)
{
    struct wc_span *sp = &wc_spans(c, step)[span];
    if (sp->state != WC_SPAN_LIVE) return;
    sp->state = WC_SPAN_DROP_ASKED;
    struct worker_action *a = wc_emit(o, WA_SPAN_DROP);
    a->step = c->steps[step].id;
    a->span = span;
    a->slot = sp->slot;
    const struct wc_slot *s = &wc_slots(c)[sp->slot];
    if (s->in_step == step + 1 && s->in_next != 0) /* its input will not come */
        wc_drop_span(c, s->in_next - 1u, s->next_span, o);
}

void wc_close_seq(struct worker_core *c, uint32_t slot)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    if (s->seq != KV_SEQ_NONE) kvpool_seq_close(wc_pool(c), s->seq);
    s->seq = KV_SEQ_NONE;
}

void wc_leave_seat(struct worker_core *c, uint32_t slot, bool keep, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    assert(s->state == WC_ACTIVE && s->seq != KV_SEQ_NONE && c->n_active > 0);
    if (s->in_step != 0) wc_drop_span(c, s->in_step - 1u, s->span, o);
    if (s->resuming) c->n_resuming--;
    s->resuming = 0;
    s->ahead = 0;
    wc_copies_left(c, slot);
    if (!keep || c->cfg.pool.n_host == 0 || !wc_suspend(c, slot, o)) wc_close_seq(c, slot);
}

void wc_preempt(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    bool ahead = s->ahead;
    wc_leave_seat(c, slot, true, o);
    s->preempted = 1;
    s->checked = 0;
    wc_set_state(c, slot, WC_WAITING);
    /* Brought ahead and not run: its blocks are on the host as they were, so nothing is lost but the
     * copies. It finds less room now than it had, so the two do not take turns. */
    if (ahead) {
        c->n_given_back++;
    } else {
        c->n_preemptions++;
        s->preemptions++;
    }
}

/* The one that always gets on: admitted first in the highest class that has a seat (and may run).
 */
static uint32_t wc_protected(const struct worker_core *c)
{
    for (uint32_t i = 0; i < c->n_active; i++) {
        uint32_t slot = wc_active(c)[i];
        if (wc_steppable(&wc_slots(c)[slot])) return slot;
    }
    return WC_NONE;
}

/* How far `v` is below `s`: 0 = not to be touched, 1 = equal class, 2 = lower rank, 3 = nobody's
 * (away). A class that is owed time is not below real-time while it gets it. */
static int wc_below(const struct worker_core *c, const struct wc_slot *v, const struct wc_slot *s)
{
    const struct class_row *vr = &c->cfg.classes.rows[v->cls], *sr = &c->cfg.classes.rows[s->cls];
    if (!wc_steppable(v)) return 3;
    if (v->rank > s->rank) return vr->preemptible && v->cls != c->floor_cls ? 2 : 0;
    if (v->rank < s->rank || vr->order < sr->order) return 0;
    return 1;
}

bool wc_may_take(const struct worker_core *c, const struct wc_slot *v, const struct wc_slot *s)
{
    return wc_below(c, v, s) >= 2;
}

struct wc_price {
    uint64_t lost, blocks;
};

/* Work lost and blocks freed, were it to fall. What is clean on the host is not lost. */
static struct wc_price wc_price(const struct worker_core *c, const struct wc_slot *s)
{
    const struct kvpool *p = wc_pool(c);
    struct wc_price r = {kvpool_committed(p, s->seq), kvpool_own_blocks(p, s->seq)};
    if (c->cfg.pool.n_host > 0) {
        uint64_t full = r.lost / c->cfg.pool.block_tokens, unclean = kvpool_unclean(p, s->seq);
        if (unclean < full) r.lost -= (full - unclean) * c->cfg.pool.block_tokens;
    }
    if (s->in_step != 0) r.lost += wc_spans(c, s->in_step - 1u)[s->span].n; /* half made, too */
    return r;
}

/* Less work lost per block freed first; among equals the one admitted last. One that frees nothing
 * (all its blocks are others' too) is the last choice. */
static bool wc_cheaper(struct wc_price a, struct wc_price b, const struct wc_slot *as,
                       const struct wc_slot *bs)
{
    if ((a.blocks == 0) != (b.blocks == 0)) return b.blocks == 0;
    uint64_t la = a.lost * (b.blocks != 0 ? b.blocks : 1);
    uint64_t lb = b.lost * (a.blocks != 0 ? a.blocks : 1);
    return la != lb ? la < lb : as->admitted > bs->admitted;
}

static bool wc_may_fall(const struct worker_core *c, uint32_t slot, uint32_t for_slot, int below,
                        uint32_t guarded)
{
    const struct wc_slot *s = &wc_slots(c)[slot], *f = &wc_slots(c)[for_slot];
    if (below >= 2) return true;
    /* Equals fall only for one that has a seat and must grow: a newcomer waits for its turn. Each
     * seat lasts min_run tokens, or two sequences would throw each other out for ever; only the
     * guarded one may break that, since it must never wait. */
    if (below == 0 || slot == guarded || f->state != WC_ACTIVE) return false;
    return for_slot == guarded || s->n_tokens - s->ran_from >= c->cfg.min_run;
}

uint32_t wc_victim(const struct worker_core *c, uint32_t for_slot, bool own)
{
    const struct wc_slot *f = &wc_slots(c)[for_slot];
    uint32_t best = WC_NONE, guarded = wc_protected(c);
    struct wc_price best_price = {0, 0};
    int best_below = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        uint32_t slot = wc_active(c)[i];
        const struct wc_slot *s = &wc_slots(c)[slot];
        if (slot == for_slot || (own && s->account != f->account)) continue;
        int below = wc_below(c, s, f);
        if (!wc_may_fall(c, slot, for_slot, below, guarded)) continue;
        struct wc_price price = wc_price(c, s);
        if (best != WC_NONE) {
            const struct wc_slot *b = &wc_slots(c)[best];
            uint8_t so = wc_class_order(c, s), bo = wc_class_order(c, b);
            if (below < best_below || (below == best_below && so < bo)) continue;
            if (below == best_below && so == bo && !wc_cheaper(price, best_price, s, b)) continue;
        }
        best = slot;
        best_below = below;
        best_price = price;
    }
    return best;
}

void wc_drop_youngest(struct worker_core *c, uint32_t step, struct wc_out *o)
{
    uint32_t youngest = WC_NONE, live = 0;
    for (uint32_t n = 0; n < c->steps[step].n_spans; n++) {
        const struct wc_span *sp = &wc_spans(c, step)[n];
        if (sp->state != WC_SPAN_LIVE) continue;
        live++;
        if (youngest == WC_NONE ||
            wc_slots(c)[sp->slot].admitted > wc_slots(c)[wc_spans(c, step)[youngest].slot].admitted)
            youngest = n;
    }
    if (live > 1) wc_drop_span(c, step, youngest, o);
}
