/* The auditor: recounts everything that the core keeps as it goes. */
#include "scheduler/worker_core_impl.h"

/* Blocks: a seat has a sequence, and who waits has one only for what is kept on the host. */
static const char *wc_check_kv(const struct worker_core *c, const struct wc_slot *s)
{
    const struct kvpool *p = wc_pool(c);
    if (s->resuming && (s->state != WC_ACTIVE || s->in_step != 0))
        return "a resuming slot has no seat, or is in a step";
    if (s->ahead && (s->state != WC_ACTIVE || s->in_step != 0 || s->rank == 0))
        return "a slot brought ahead has no seat, ran, or is real-time's";
    if (s->follows != 0 && s->follows > c->cfg.max_slots) return "a slot follows nobody";
    if (s->seq == KV_SEQ_NONE) return s->state == WC_ACTIVE ? "an active slot has no blocks" : NULL;
    if (s->state == WC_WAITING) {
        if (kvpool_kept(p, s->seq) == 0) return "a waiting slot keeps a sequence without blocks";
        return kvpool_kept(p, s->seq) >= wc_target(s) ? "a waiting slot keeps too much" : NULL;
    }
    if (s->state != WC_ACTIVE) return "a slot that ended has a kv sequence";
    if (kvpool_committed(p, s->seq) >= wc_target(s)) return "an active slot has nothing to compute";
    if (s->resuming != kvpool_resuming(p, s->seq)) return "a slot and its blocks resume apart";
    return NULL;
}

static const char *wc_check_in_step(const struct worker_core *c, uint32_t i, uint32_t step,
                                    uint32_t span)
{
    const struct wc_step *st = &c->steps[step];
    if (st->id == 0 || span >= st->n_spans) return "a slot names a step that is not there";
    const struct wc_span *sp = &wc_spans(c, step)[span];
    if (sp->slot != i || sp->state == WC_SPAN_GONE) return "a slot names a span that is not its own";
    if (wc_slots(c)[i].state != WC_ACTIVE && sp->state != WC_SPAN_DROP_ASKED)
        return "a span of a leaving slot was not dropped";
    return NULL;
}

static const char *wc_check_slot(const struct worker_core *c, uint32_t i)
{
    const struct wc_slot *s = &wc_slots(c)[i];
    if (s->in_next != 0 && s->in_step == 0) return "a slot is in the second of no steps";
    if (s->state == WC_FREE) return s->in_step != 0 ? "a free slot is in a step" : NULL;
    const char *bad = wc_check_kv(c, s);
    if (bad != NULL) return bad;
    if (s->gw != WC_NONE && (s->gw >= WORKER_GATEWAYS_MAX || !c->sessions[s->gw].up) &&
        s->state != WC_DROPPING)
        return "a slot names a session that is down";
    if (s->attached && s->lost) return "a slot is attached and lost";
    if (s->state == WC_DROPPING && s->in_step == 0)
        return "a slot waits for a drop that nobody asked for";
    if (s->state == WC_FINISHED && s->finish == FINISH_NONE) return "a finished slot without finish";
    if (s->from > s->made || s->made > s->n_tokens || s->n_tokens > s->max_total)
        return "a slot's counts are out of order";
    if (s->sent > s->made || s->sent < s->from) return "a slot sent what was not made";
    bad = wc_ledger_check(c, s);
    if (bad != NULL) return bad;
    if (s->in_step != 0) bad = wc_check_in_step(c, i, s->in_step - 1u, s->span);
    if (bad == NULL && s->in_next != 0) bad = wc_check_in_step(c, i, s->in_next - 1u, s->next_span);
    return bad;
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
        bool next = s->in_next == step + 1 && s->next_span == n;
        if (!next && (s->in_step != step + 1 || s->span != n))
            return "a span's slot does not know it";
        uint32_t before = next ? wc_spans(c, s->in_step - 1u)[s->span].n : 0;
        if (s->state == WC_ACTIVE && kvpool_committed(wc_pool(c), s->seq) + before != sp->pos &&
            sp->state == WC_SPAN_LIVE)
            return "positions of a step in flight are committed";
    }
    return tokens > c->cfg.max_tokens ? "a step is over the token budget" : NULL;
}

/* A queue is in order and holds exactly the waiting ones of its rank. */
static const char *wc_check_queue(const struct worker_core *c, uint32_t rank)
{
    const uint32_t *q = wc_queue(c, rank);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        n += s->state == WC_WAITING && s->rank == rank;
    }
    if (n != c->n_queued[rank]) return "a queue misses a waiting slot, or has one too many";
    for (uint32_t k = 0; k < n; k++) {
        const struct wc_slot *s = &wc_slots(c)[q[k]], *p = k > 0 ? &wc_slots(c)[q[k - 1]] : NULL;
        if (s->state != WC_WAITING || s->rank != rank) return "a queue has a slot that does not wait";
        if (p == NULL) continue;
        uint8_t po = wc_class_order(c, p), so = wc_class_order(c, s);
        if (po > so || (po == so && p->order_tag > s->order_tag)) return "a queue is out of order";
        if (p->arrival == s->arrival) return "a slot is twice in a queue";
    }
    return NULL;
}

static const char *wc_check_active(const struct worker_core *c)
{
    uint32_t n = 0, resuming = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        n += wc_slots(c)[i].state == WC_ACTIVE;
        resuming += wc_slots(c)[i].resuming;
    }
    if (n != c->n_active || n > c->seats) return "seats miscounted";
    if (resuming != c->n_resuming) return "resuming slots miscounted";
    for (uint32_t k = 0; k < n; k++) {
        const struct wc_slot *s = &wc_slots(c)[wc_active(c)[k]];
        const struct wc_slot *p = k > 0 ? &wc_slots(c)[wc_active(c)[k - 1]] : NULL;
        if (s->state != WC_ACTIVE) return "a seat is taken by a slot that is not active";
        if (p == NULL) continue;
        uint8_t po = wc_class_order(c, p), so = wc_class_order(c, s);
        if (po > so || (po == so && p->admitted >= s->admitted)) return "the seats are out of order";
    }
    return NULL;
}

static const char *wc_check_counts(const struct worker_core *c)
{
    uint32_t count[CLASSES_MAX][WC_STATES] = {{0}}, unstarted[CLASSES_MAX] = {0}, used = 0, timers = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) {
        const struct wc_slot *s = &wc_slots(c)[i];
        if ((s->state == WC_FREE) != (wc_names(c)[i] == 0)) return "a name of a free slot, or none";
        if (s->state == WC_FREE) continue;
        used++;
        count[s->cls][s->state]++;
        unstarted[s->cls] += s->state == WC_WAITING && s->admitted == 0;
        bool timed = s->state != WC_DROPPING &&
                     (s->state == WC_FINISHED || s->lost || !s->attached);
        timers += timed;
        if (timed != (s->timer != 0)) return "a slot is not where its time would be seen";
        if (timed && wc_timers(c)[s->timer - 1] != i) return "a timer of another slot";
    }
    if (used != c->n_used || timers != c->n_timers) return "slots or timers miscounted";
    for (uint32_t k = 0; k < CLASSES_MAX; k++) {
        if (unstarted[k] != c->unstarted[k]) return "unstarted ones miscounted";
        for (uint32_t st = WC_WAITING; st < WC_STATES; st++) {
            if (count[k][st] != c->count[k][st]) return "states miscounted";
        }
    }
    return NULL;
}

static const char *wc_check_copies(const struct worker_core *c)
{
    uint32_t n = 0, checkpoints = 0;
    for (uint32_t i = 0; i < c->cfg.pool.max_copies; i++) {
        const struct wc_copy *k = &wc_copies(c)[i];
        if (k->id == 0) continue;
        n++;
        checkpoints += k->to_host && !k->tail;
        const struct wc_slot *s = &wc_slots(c)[k->slot];
        bool here = s->state == WC_ACTIVE && s->arrival == k->arrival;
        if (!here && !k->left) return "a copy of a sequence that is gone is not marked";
        if (k->id >= c->next_copy) return "a copy with a number that was not given out";
    }
    if (n != c->n_copies || n != kvpool_stats(wc_pool(c)).copies) return "copies miscounted";
    return checkpoints > WC_CHECKPOINTS ? "too many checkpoints in flight" : NULL;
}

static const char *wc_check_pool(const struct worker_core *c, uint32_t holds)
{
    uint32_t seqs = 0;
    for (uint32_t i = 0; i < c->cfg.max_slots; i++)
        seqs += wc_slots(c)[i].state != WC_FREE && wc_slots(c)[i].seq != KV_SEQ_NONE;
    struct kvpool_stats st = kvpool_stats(wc_pool(c));
    if (st.holds != holds || st.seqs != seqs)
        return "holds or kv sequences do not match spans and seats";
    return kvpool_check(wc_pool(c));
}

static const char *wc_check_together(const struct worker_core *c)
{
    uint32_t running = 0, parked = 0, queued = 0;
    for (uint32_t k = 0; k < WC_STEPS; k++) {
        const struct wc_step *st = &c->steps[k];
        if (st->id == 0) continue;
        running += !st->parked && st->behind == 0;
        parked += st->parked;
        queued += st->behind != 0;
        if (st->behind == 0) continue;
        const struct wc_step *src = &c->steps[st->behind - 1u];
        if (st->parked || src->id == 0 || src->behind != 0 || src->rank != st->rank)
            return "a step is queued behind nothing of its rank";
    }
    return running > 1 || parked > 1 || queued > 1 ? "two steps run, or are parked or queued" : NULL;
}

const char *worker_core_check(const struct worker_core *c)
{
    uint32_t holds = 0;
    const char *bad = NULL;
    for (uint32_t i = 0; i < c->cfg.max_slots && bad == NULL; i++) bad = wc_check_slot(c, i);
    for (uint32_t k = 0; k < WC_STEPS && bad == NULL; k++) bad = wc_check_step(c, k, &holds);
    for (uint32_t k = 0; k < 2 && bad == NULL; k++) bad = wc_check_queue(c, k);
    if (bad == NULL) bad = wc_check_active(c);
    if (bad == NULL) bad = wc_check_counts(c);
    if (bad == NULL) bad = wc_check_copies(c);
    if (bad != NULL) return bad;
    bad = wc_check_together(c);
    return bad != NULL ? bad : wc_check_pool(c, holds);
}
