/* Counters, the next tick, and the auditor. */
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
    uint32_t unstarted[CLASSES_MAX] = {0}, free_slots = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        out->waiting[s->cls] += s->state == WC_WAITING;
        unstarted[s->cls] += s->state == WC_WAITING && s->admitted == 0;
        out->active[s->cls] += s->state == WC_ACTIVE;
        out->finished += s->state == WC_FINISHED;
        free_slots += s->state == WC_FREE;
    }
    for (uint32_t k = 0; k < c->cfg.classes.n; k++)
        out->window[k] = wc_window(c, k, unstarted[k], free_slots);
    memcpy(out->account, c->account, sizeof out->account);
    memcpy(out->steps, c->n_steps, sizeof out->steps);
    out->preemptions = c->n_preemptions;
    out->parks = c->n_parks;
    out->drops = c->n_drops;
    out->step_device_ns = c->step_device_ns;
    out->pool = kvpool_stats(wc_pool(c));
    out->draining = c->draining;
    out->running = wc_running(c) != WC_NONE;
    out->parked = wc_parked(c) != WC_NONE;
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
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if (s->state == WC_FREE || s->state == WC_DROPPING) continue;
        if (s->lost)
            at = wc_sooner(at, s->lost_at_ns +
                                   (s->rank == 0 ? c->cfg.lost_realtime_ns : c->cfg.lost_batch_ns));
        if (s->state == WC_FINISHED && s->attached) at = wc_sooner(at, s->finish_at_ns);
        if (!s->attached && s->gw != WC_NONE) at = wc_sooner(at, c->sessions[s->gw].sync_at_ns);
    }
    uint32_t parked = wc_parked(c);
    if (parked != WC_NONE) at = wc_sooner(at, c->steps[parked].parked_ns + c->cfg.park_max_ns);
    return at != UINT64_MAX && at < now_ns ? now_ns : at;
}

static const char *wc_check_slot(const struct worker_core *c, uint32_t i)
{
    const struct wc_slot *s = &wc_slots(c)[i];
    if (s->state == WC_FREE) return s->in_step != 0 ? "a free slot is in a step" : NULL;
    if (s->gw != WC_NONE && (s->gw >= WORKER_GATEWAYS_MAX || !c->sessions[s->gw].up) &&
        s->state != WC_DROPPING)
        return "a slot names a session that is down";
    if (s->attached && s->lost) return "a slot is attached and lost";
    if (s->state == WC_DROPPING && s->in_step == 0)
        return "a slot waits for a drop that nobody asked for";
    if (s->state == WC_FINISHED && (s->in_step != 0 || s->finish == FINISH_NONE))
        return "a finished slot is in a step";
    if (s->from > s->made || s->made > s->n_tokens || s->n_tokens > s->max_total)
        return "a slot's counts are out of order";
    if (s->sent > s->made || s->sent < s->from) return "a slot sent what was not made";
    if ((s->state == WC_ACTIVE) != (s->seq != KV_SEQ_NONE))
        return "only active slots have a kv sequence";
    if (s->state == WC_ACTIVE && kvpool_committed(wc_pool(c), s->seq) >= wc_target(s))
        return "an active slot has nothing to compute";
    if (s->in_step != 0) {
        const struct wc_step *st = &c->steps[s->in_step - 1];
        if (st->id == 0 || s->span >= st->n_spans) return "a slot names a step that is not there";
        const struct wc_span *sp = &wc_spans(c, s->in_step - 1u)[s->span];
        if (sp->slot != i || sp->state == WC_SPAN_GONE)
            return "a slot names a span that is not its own";
        if (s->state != WC_ACTIVE && sp->state != WC_SPAN_DROP_ASKED)
            return "a span of a leaving slot was not dropped";
    }
    return NULL;
}

static const char *wc_check_step(const struct worker_core *c, uint32_t step, uint32_t *holds)
{
    const struct wc_step *st = &c->steps[step];
    uint32_t tokens = 0;
    if (st->id == 0) return st->n_spans != 0 ? "an ended step has spans" : NULL;
    if (st->n_spans == 0 || st->n_spans > c->cfg.max_spans)
        return "a step without spans, or with too many";
    for (uint32_t n = 0; n < st->n_spans; n++) {
        const struct wc_span *sp = &wc_spans(c, step)[n];
        tokens += sp->n;
        if (sp->state == WC_SPAN_GONE) continue;
        (*holds)++;
        const struct wc_slot *s = &wc_slots(c)[sp->slot];
        if (s->in_step != step + 1 || s->span != n) return "a span's slot does not know it";
        if (s->state == WC_ACTIVE && kvpool_committed(wc_pool(c), s->seq) != sp->pos)
            return "positions of a step in flight are committed";
    }
    return tokens > c->cfg.max_tokens ? "a step is over the token budget" : NULL;
}

const char *worker_core_check(const struct worker_core *c)
{
    uint32_t active = 0, holds = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const char *bad = wc_check_slot(c, i);
        if (bad != NULL) return bad;
        active += wc_slots(c)[i].state == WC_ACTIVE;
    }
    if (active != c->n_active || active > c->seats) return "seats miscounted";
    for (uint32_t k = 0; k < WC_STEPS; k++) {
        const char *bad = wc_check_step(c, k, &holds);
        if (bad != NULL) return bad;
    }
    if (c->steps[0].id != 0 && c->steps[1].id != 0 && c->steps[0].parked == c->steps[1].parked)
        return "two steps run, or two are parked";
    struct kvpool_stats st = kvpool_stats(wc_pool(c));
    if (st.holds != holds || st.seqs != active)
        return "holds or kv sequences do not match spans and seats";
    return kvpool_check(wc_pool(c));
}
