/* Runs: the same decode step again and again, taken at once by a shell whose time is virtual.
 *
 * Nothing is decided here. The limit says how long stepping would decide nothing either: whatever could change a
 * plan (somebody who waits and could start, a block that is not there, an end, a copy, a share that is owed) makes
 * it 0 or shorter. What a run leaves behind is what its steps would have left, one by one. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>

/* The step whose ends a run may take: alone in flight but for one that real-time parked. */
static uint32_t wc_run_step(const struct worker_core *c)
{
    const struct worker_core_config *f = &c->cfg;
    uint32_t i = wc_running(c), parked = wc_parked(c);
    if (i == WC_NONE || c->draining || f->max_refs != 0 || f->pool.n_host != 0) return WC_NONE;
    if (f->debug_preempt_every + f->debug_park_every + f->debug_drop_every != 0) return WC_NONE;
    if (c->planned && !f->fixed_cost) return WC_NONE;
    const struct wc_step *st = &c->steps[i];
    if (st->park_asked || st->disturbed || st->floor || c->floor_cls != WC_NONE) return WC_NONE;
    if (st->rank != 0 && parked != WC_NONE) return WC_NONE;
    for (uint32_t k = 0; k < i; k++) {
        if (c->steps[k].id == 0) return WC_NONE; /* the next one would have another place */
    }
    return i;
}

/* A class with a floor beside others that work: its turn comes by time. */
static bool wc_run_floor(const struct worker_core *c)
{
    uint32_t busy = 0, floors = 0;
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        const struct class_row *row = &c->cfg.classes.rows[k];
        bool work = c->count[k][WC_ACTIVE] + c->count[k][WC_WAITING] > 0;
        busy += work;
        floors += work && row->rank != 0 && row->floor_permille != 0;
    }
    return floors > 0 && busy > 1;
}

/* Could nobody who waits start, however long this goes on? Those behind the first are not asked before it. */
static bool wc_run_queue(const struct worker_core *c, uint8_t rank)
{
    if (rank != 0 && c->n_queued[0] > 0) return false;
    if (c->n_queued[rank] == 0) return true;
    const struct wc_slot *s = &wc_slots(c)[wc_queue(c, rank)[0]];
    if (c->n_active < c->seats || !wc_startable(s) || wc_has_root(s) || s->quota != 0) return false;
    for (uint32_t i = 0; i < c->n_active; i++) {
        if (wc_may_take(c, &wc_slots(c)[wc_active(c)[i]], s)) return false;
    }
    return true;
}

/* How often this span may end with just one more id; 0 = it is no plain decode. */
static uint32_t wc_run_span(const struct worker_core *c, const struct wc_span *sp)
{
    const struct wc_slot *s = &wc_slots(c)[sp->slot];
    uint32_t bt = c->cfg.pool.block_tokens;
    if (sp->state != WC_SPAN_LIVE || sp->n != 1 || !sp->sample || sp->ref) return 0;
    if (sp->score_from < sp->score_to || s->state != WC_ACTIVE || !s->attached || s->fresh) return 0;
    if (sp->pos + 1 != s->n_tokens || s->made != s->n_tokens || s->in_next != 0) return 0;
    if (s->n_tokens == s->n_prompt) return 0;
    uint32_t n = s->max_total > s->n_tokens ? s->max_total - s->n_tokens - 1 : 0;
    uint32_t border = bt - 1 - sp->pos % bt; /* a full block would be published */
    return wc_has_root(s) && n > border ? border : n;
}

/* n, or less where the free blocks do not suffice: then only to the next block that somebody needs. */
static uint32_t wc_run_blocks(const struct worker_core *c, uint32_t step, uint32_t n)
{
    const struct kvpool *p = wc_pool(c);
    uint64_t need = 0;
    uint32_t slack = UINT32_MAX, have;
    bool quota = false;
    for (uint32_t k = 0; k < c->steps[step].n_spans; k++) {
        const struct wc_slot *s = &wc_slots(c)[wc_spans(c, step)[k].slot];
        (void)kvpool_table(p, s->seq, &have);
        uint32_t want = kvpool_blocks_for(p, s->n_tokens + n);
        uint32_t room = have * c->cfg.pool.block_tokens - s->n_tokens;
        need += want > have ? want - have : 0;
        if (room < slack) slack = room;
        quota |= s->quota != 0;
    }
    if (need <= kvpool_stats(p).free && !quota) return n;
    return slack < n ? slack : n;
}

/* Would the last of n steps still hold all of them? (Lower ranks' steps are cut for time.) */
static bool wc_run_time(const struct worker_core *c, uint32_t step, uint32_t n)
{
    uint64_t limit = c->steps[step].rank != 0 ? wc_cost_limit(c, 1, WC_NONE) : 0;
    struct step_shape all = {0};
    for (uint32_t k = 0; k < c->steps[step].n_spans; k++)
        step_shape_add(&all, wc_spans(c, step)[k].pos + n, 1, 1);
    return limit == 0 || step_cost_ns(&c->cost[c->steps[step].rank], &all) <= limit;
}

uint32_t worker_core_run_limit(const struct worker_core *c)
{
    uint32_t i = wc_run_step(c), n = UINT32_MAX, spans = 0;
    if (i == WC_NONE || wc_run_floor(c) || !wc_run_queue(c, c->steps[i].rank)) return 0;
    const struct wc_step *st = &c->steps[i];
    for (uint32_t k = 0; k < c->n_active; k++) {
        uint32_t slot = wc_active(c)[k];
        const struct wc_slot *s = &wc_slots(c)[slot];
        if (s->rank < st->rank) return 0;
        if (s->rank > st->rank) continue;
        /* Everybody of the rank is in the step, in the order in which the next one would list them. */
        if (spans >= st->n_spans || wc_spans(c, i)[spans].slot != slot) return 0;
        uint32_t own = wc_run_span(c, &wc_spans(c, i)[spans++]);
        if (own < n) n = own;
    }
    if (spans != st->n_spans || n == 0 || n == UINT32_MAX) return 0;
    n = wc_run_blocks(c, i, n);
    return n > 0 && wc_run_time(c, i, n) ? n : 0;
}

/* As wc_cost_step_end does for each. */
static void wc_run_cost(struct worker_core *c, uint32_t step, const struct worker_run *r)
{
    uint64_t own[CLASSES_MAX] = {0}, spans = c->steps[step].n_spans;
    for (uint32_t k = 0; k < spans; k++) own[wc_slots(c)[wc_spans(c, step)[k].slot].cls]++;
    for (uint32_t j = 0; j < r->n; j++) {
        uint64_t ns = r->device_ns[j];
        c->step_device_ns += ns;
        for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
            uint64_t share = ns / spans * own[k], floor = c->cfg.classes.rows[k].floor_permille;
            c->class_ns[k] += share;
            if (floor == 0) continue;
            bool work = c->count[k][WC_ACTIVE] + c->count[k][WC_WAITING] > 0;
            uint64_t owed = work ? c->owed_ns[k] + ns / 1000u * floor : 0;
            owed = owed > share ? owed - share : 0;
            c->owed_ns[k] = owed < WC_OWED_MAX ? owed : WC_OWED_MAX;
        }
    }
    c->last_step_ns[c->steps[step].rank] = r->device_ns[r->n - 1];
    c->last_end_ns = c->now_ns;
}

static void wc_run_slot(struct worker_core *c, struct wc_span *sp, const struct worker_run *r,
                        const int32_t *ids)
{
    struct wc_slot *s = &wc_slots(c)[sp->slot];
    struct worker_account *a = &c->account[s->cls];
    int32_t *own = wc_ids(c, sp->slot);
    uint32_t n = r->n, to = sp->pos + n;
    assert(own == NULL || ids != NULL);
    for (uint32_t j = 0; own != NULL && j < n; j++) own[s->n_tokens + j] = ids[j];
    if (s->high > sp->pos) a->recomputed += (s->high < to ? s->high : to) - sp->pos;
    if (s->high < to) s->high = to;
    a->output += n;
    wc_tenant(c, s->account, s->cls)->output += n;
    s->n_tokens += n;
    s->made = s->n_tokens;
    if (r->sent) s->sent = s->made;
    s->stepped = c->next_step - 1; /* as wc_add_span before the step gets this number */
    sp->pos = to;
    int rc = kvpool_reserve(wc_pool(c), s->seq, s->n_tokens);
    assert(rc == 0);
    (void)rc;
    kvpool_commit(wc_pool(c), s->seq, to);
}

uint64_t worker_core_run(struct worker_core *c, const struct worker_run *r, uint64_t end_ns)
{
    uint32_t i = wc_running(c);
    assert(i != WC_NONE && r->n > 0 && end_ns >= c->now_ns);
    struct wc_step *st = &c->steps[i];
    struct step_shape shape = {0};
    c->now_ns = end_ns;
    wc_run_cost(c, i, r);
    c->n_steps[st->rank] += r->n;
    c->positions[st->rank] += (uint64_t)r->n * st->n_spans;
    c->next_step += r->n;
    st->id = c->next_step - 1;
    st->segments = 0;
    st->progress_ns = end_ns;
    for (uint32_t k = 0; k < st->n_spans; k++) {
        struct wc_span *sp = &wc_spans(c, i)[k];
        kvpool_unhold(wc_pool(c), sp->hold);
        wc_run_slot(c, sp, r, r->ids == NULL ? NULL : r->ids + (size_t)k * r->n);
        step_shape_add(&shape, sp->pos, 1, 1);
    }
    for (uint32_t k = 0; k < st->n_spans; k++) {
        struct wc_span *sp = &wc_spans(c, i)[k];
        sp->hold = kvpool_hold(wc_pool(c), wc_slots(c)[sp->slot].seq);
    }
    st->shape = shape;
    return st->id;
}
