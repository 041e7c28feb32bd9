/* Victims, and how blocks leave a sequence.
 *
 * Preempting is by recompute: the blocks go, ids and records stay, the sequence waits and later
 * computes its known tokens again. Blocks of a span in flight are only HELD from then on: the
 * engine may still write them, so nobody gets them before it confirmed the drop. */
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
}

void wc_leave_seat(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    assert(s->state == WC_ACTIVE && s->seq != KV_SEQ_NONE && c->n_active > 0);
    if (s->in_step != 0) wc_drop_span(c, s->in_step - 1u, s->span, o);
    kvpool_seq_close(wc_pool(c), s->seq);
    s->seq = KV_SEQ_NONE;
    s->state = WC_WAITING;
    c->n_active--;
}

void wc_preempt(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    wc_leave_seat(c, slot, o);
    wc_slots(c)[slot].preempted = 1;
    c->n_preemptions++;
}

/* The one that always gets on: admitted first in the highest class that has a seat (and may run).
 */
static uint32_t wc_protected(const struct worker_core *c)
{
    uint32_t best = WC_NONE;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if (s->state != WC_ACTIVE || !wc_steppable(s)) continue;
        if (best == WC_NONE) {
            best = i;
            continue;
        }
        const struct wc_slot *b = &wc_slots(c)[best];
        uint8_t so = c->cfg.classes.rows[s->cls].order, bo = c->cfg.classes.rows[b->cls].order;
        if (so < bo || (so == bo && s->admitted < b->admitted)) best = i;
    }
    return best;
}

/* How far `v` is below `s`: 0 = not to be touched, 1 = equal class, 2 = lower rank, 3 = nobody's
 * (away). */
static int wc_below(const struct worker_core *c, const struct wc_slot *v, const struct wc_slot *s)
{
    const struct class_row *vr = &c->cfg.classes.rows[v->cls], *sr = &c->cfg.classes.rows[s->cls];
    if (!wc_steppable(v)) return 3;
    if (v->rank > s->rank) return vr->preemptible ? 2 : 0;
    if (v->rank < s->rank || vr->order < sr->order) return 0;
    return 1;
}

/* Less work lost per block freed first; among equals the one admitted last. */
static bool wc_cheaper(const struct worker_core *c, const struct wc_slot *a,
                       const struct wc_slot *b)
{
    uint32_t na, nb;
    const struct kvpool *p = wc_pool(c);
    (void)kvpool_table(p, a->seq, &na);
    (void)kvpool_table(p, b->seq, &nb);
    uint64_t la = (uint64_t)kvpool_committed(p, a->seq) * (nb ? nb : 1);
    uint64_t lb = (uint64_t)kvpool_committed(p, b->seq) * (na ? na : 1);
    return la != lb ? la < lb : a->admitted > b->admitted;
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

uint32_t wc_victim(const struct worker_core *c, uint32_t for_slot)
{
    const struct wc_slot *f = &wc_slots(c)[for_slot];
    uint32_t best = WC_NONE, guarded = wc_protected(c);
    int best_below = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if (i == for_slot || s->state != WC_ACTIVE) continue;
        int below = wc_below(c, s, f);
        if (!wc_may_fall(c, i, for_slot, below, guarded)) continue;
        if (best != WC_NONE) {
            const struct wc_slot *b = &wc_slots(c)[best];
            uint8_t so = c->cfg.classes.rows[s->cls].order, bo = c->cfg.classes.rows[b->cls].order;
            if (below < best_below || (below == best_below && so < bo)) continue;
            if (below == best_below && so == bo && !wc_cheaper(c, s, b)) continue;
        }
        best = i;
        best_below = below;
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
