/* The step launched behind a running one: its inputs are the ids that the running one will sample.
 *
 * Worth it where nobody else could use the time between the two steps, so: not while anyone waits
 * who could be in the next step or go before it, and only when all that go on may refer. What the
 * source's tokens change (a stop, a preemption) is mended by dropping spans of the queued step. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>

uint32_t wc_queued(const struct worker_core *c, uint32_t step)
{
    for (uint32_t i = 0; i < WC_STEPS; i++) {
        if (c->steps[i].id != 0 && c->steps[i].behind == step + 1) return i;
    }
    return WC_NONE;
}

/* Who waits for a step, or could take a seat before the next one. */
static bool wc_someone_waits(const struct worker_core *c, uint8_t rank)
{
    if (wc_has_runnable(c, 0) || wc_has_runnable(c, 1) || c->n_resuming > 0) return true;
    return c->n_queued[rank == 0] > 0 || (c->n_queued[rank] > 0 && c->n_active < c->seats);
}

static bool wc_may_launch(const struct worker_core *c, uint32_t running)
{
    const struct wc_step *st = &c->steps[running];
    if (c->cfg.max_refs == 0 || c->draining || st->park_asked || st->floor) return false;
    if (c->floor_cls != WC_NONE || wc_parked(c) != WC_NONE) return false;
    return wc_queued(c, running) == WC_NONE && !wc_someone_waits(c, st->rank);
}

/* The end is known already: it needs no next step. */
static bool wc_ends_here(const struct wc_slot *s)
{
    return s->state != WC_ACTIVE || s->n_tokens + 1 >= s->max_total;
}

/* Could the next input of this one be named now? With the block that it goes to. */
static bool wc_may_refer(struct worker_core *c, const struct wc_span *sp)
{
    const struct wc_slot *s = &wc_slots(c)[sp->slot];
    if (sp->state != WC_SPAN_LIVE || !sp->sample || s->host_choice || !wc_steppable(s)) return false;
    if (sp->score_from < sp->score_to) return false; /* prompt scores are being made */
    return kvpool_reserve(wc_pool(c), s->seq, s->n_tokens + 1) == 0;
}

static void wc_add_ref(struct worker_core *c, uint32_t step, uint32_t source, uint32_t span)
{
    const struct wc_span *from = &wc_spans(c, source)[span];
    struct wc_slot *s = &wc_slots(c)[from->slot];
    uint32_t n = c->steps[step].n_spans++;
    struct wc_span sp = {
        .slot = from->slot, .pos = from->pos + from->n, .n = 1, .sample = 1, .ref = 1};
    step_shape_add(&c->steps[step].shape, sp.pos, 1, 1);
    sp.hold = kvpool_hold(wc_pool(c), s->seq);
    assert(sp.hold != KV_HOLD_NONE && s->in_next == 0);
    wc_spans(c, step)[n] = sp;
    s->in_next = (uint8_t)(step + 1);
    s->next_span = n;
    s->stepped = c->next_step;
    struct worker_span *w = &wc_plan(c)[c->cfg.max_spans + n];
    wc_plan_span(c, w, &sp);
    w->ref_step = c->steps[source].id;
    w->ref_span = span;
}

void wc_launch_ahead(struct worker_core *c, struct wc_out *o)
{
    uint32_t running = wc_running(c), live = 0;
    if (running == WC_NONE || !wc_may_launch(c, running)) return;
    for (uint32_t n = 0; n < c->steps[running].n_spans; n++) {
        const struct wc_span *sp = &wc_spans(c, running)[n];
        if (sp->state == WC_SPAN_GONE || wc_ends_here(&wc_slots(c)[sp->slot])) continue;
        if (!wc_may_refer(c, sp)) return;
        live++;
    }
    if (live == 0) return;
    uint32_t step = wc_step_free(c);
    for (uint32_t n = 0; n < c->steps[running].n_spans; n++) {
        const struct wc_span *sp = &wc_spans(c, running)[n];
        if (sp->state == WC_SPAN_GONE || wc_ends_here(&wc_slots(c)[sp->slot])) continue;
        wc_add_ref(c, step, running, n);
    }
    c->steps[step].behind = (uint8_t)(running + 1);
    wc_begin_step(c, step, c->steps[running].rank, wc_plan(c) + c->cfg.max_spans, o);
}
