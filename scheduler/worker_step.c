/* What the engine reports about steps in flight. An unknown step or span is a mistake of ours:
 * assert. */
#include "base/fault.h"
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

uint32_t wc_running(const struct worker_core *c)
{
    for (uint32_t i = 0; i < WC_STEPS; i++) {
        if (c->steps[i].id != 0 && !c->steps[i].parked && c->steps[i].behind == 0) return i;
    }
    return WC_NONE;
}

uint32_t wc_parked(const struct worker_core *c)
{
    for (uint32_t i = 0; i < WC_STEPS; i++) {
        if (c->steps[i].id != 0 && c->steps[i].parked) return i;
    }
    return WC_NONE;
}

static uint32_t wc_step_find(const struct worker_core *c, uint64_t id)
{
    for (uint32_t i = 0; i < WC_STEPS; i++) {
        if (id != 0 && c->steps[i].id == id) return i;
    }
    assert(!"completion of an unknown step");
    return WC_NONE;
}

/* The engine will not touch this span again: its blocks and its sequence are let go. */
static void wc_span_gone(struct worker_core *c, uint32_t step, struct wc_span *sp,
                         struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[sp->slot];
    assert(sp->state != WC_SPAN_GONE && s->in_step != 0);
    kvpool_unhold(wc_pool(c), sp->hold);
    sp->hold = KV_HOLD_NONE;
    sp->state = WC_SPAN_GONE;
    if (s->in_step == step + 1) {
        s->in_step = s->in_next;
        s->span = s->next_span;
    } else {
        assert(s->in_next == step + 1);
    }
    s->in_next = 0;
    s->next_span = 0;
    if (s->in_step == 0 && c->n_copies > 0) wc_tail_go(c, sp->slot, o);
}

void wc_step_parked(struct worker_core *c, const struct worker_event *ev)
{
    struct wc_step *st = &c->steps[wc_step_find(c, ev->step.step)];
    assert(st->park_asked && !st->parked);
    st->park_asked = 0;
    st->parked = 1;
    if (ev->step.segments_done > st->segments) { /* park_max counts from the last one it finished */
        st->segments = ev->step.segments_done;
        st->progress_ns = c->now_ns;
    }
    c->cold = 1;
    c->n_parks++;
}

void wc_span_dropped(struct worker_core *c, uint64_t step, uint32_t span, struct wc_out *o)
{
    uint32_t i = wc_step_find(c, step);
    assert(span < c->steps[i].n_spans);
    struct wc_span *sp = &wc_spans(c, i)[span];
    assert(sp->state == WC_SPAN_DROP_ASKED || sp->ref);
    struct wc_slot *s = &wc_slots(c)[sp->slot];
    if (c->steps[i].behind == 0) { /* else it never began */
        c->account[s->cls].dropped += sp->n;
        c->positions[c->steps[i].rank] += sp->n;
    }
    c->steps[i].disturbed = 1;
    c->n_drops++;
    wc_span_gone(c, i, sp, o);
    if (fault_on(FAULT_COMMIT_DROPPED) && s->state == WC_ACTIVE && sp->pos + sp->n < wc_target(s))
        kvpool_commit(wc_pool(c), s->seq, sp->pos + sp->n);
    if (s->state == WC_DROPPING && s->in_step == 0) wc_slot_free(c, sp->slot, o);
}

static void wc_account_positions(struct worker_core *c, struct wc_slot *s, uint32_t from,
                                 uint32_t to)
{
    struct worker_account *a = &c->account[s->cls];
    for (uint32_t p = from; p < to; p++) {
        if (p < s->high) {
            a->recomputed++;
        } else if (p < s->n_prompt) {
            a->prompt_first++;
            s->unpaid++;
        }
    }
    if (to > s->high) s->high = to;
}

/* Books what the span brought; the sequence may be gone from its seat by now (preempted too late to
 * drop the span): the shell has appended the id all the same, so it counts. */
static enum finish wc_span_result(struct worker_core *c, uint32_t slot, const struct wc_span *sp,
                                  const struct worker_token *t)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    wc_account_positions(c, s, sp->pos, sp->pos + sp->n);
    if (sp->score_to > sp->score_from && sp->score_to > s->made) s->made = sp->score_to;
    if (t->made) {
        assert(sp->sample);
        if (wc_ids(c, slot) != NULL) wc_ids(c, slot)[s->n_tokens] = t->id;
        s->n_tokens++;
        s->made = s->n_tokens;
        c->account[s->cls].output++;
        wc_pay(c, s);
        wc_tenant(c, s->account, s->cls)->output++;
        if (s->fresh) wc_cost_first_token(c, s);
    }
    if (s->state == WC_ACTIVE) {
        uint32_t end = sp->pos + sp->n;
        if (fault_on(FAULT_COMMIT_AHEAD) && end + 1 < wc_target(s)) end++;
        kvpool_commit(wc_pool(c), s->seq, end);
        wc_publish(c, slot);
    }
    if (t->finish != FINISH_NONE) return t->finish;
    return s->made == s->n_tokens && s->n_tokens >= s->max_total ? FINISH_LENGTH : FINISH_NONE;
}

/* Somebody gave away a block while the span used it: nothing of it is to be believed, neither its
 * token nor what its sequence has. That one is computed again, from the prompt, without hits. */
static void wc_span_fault(struct worker_core *c, uint32_t slot, uint32_t n, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    c->faults++;
    c->account[s->cls].dropped += n;
    s->root = (struct hash128){0, 0};
    if (s->state == WC_FINISHED) return; /* a surplus one */
    if (s->state == WC_ACTIVE) wc_preempt(c, slot, o);
    wc_close_seq(c, slot);
}

static void wc_span_end(struct worker_core *c, uint32_t step, struct wc_span *sp,
                        const struct worker_event *ev, const struct worker_token *t,
                        struct wc_out *o)
{
    uint32_t slot = sp->slot;
    bool surplus = sp->ref && sp->state == WC_SPAN_DROP_ASKED;
    struct wc_slot *s = &wc_slots(c)[slot];
    bool valid = kvpool_hold_valid(wc_pool(c), sp->hold);
    wc_span_gone(c, step, sp, o);
    if (s->state == WC_DROPPING) {
        c->account[s->cls].dropped += sp->n;
        if (s->in_step == 0) wc_slot_free(c, slot, o);
        return;
    }
    assert(s->state == WC_ACTIVE || s->state == WC_WAITING || surplus);
    if (!valid) {
        wc_span_fault(c, slot, sp->n, o);
        return;
    }
    if (surplus) {
        c->account[s->cls].dropped += sp->n;
        return;
    }
    if (ev->step.failed && s->state == WC_WAITING)
        return; /* preempted: it is computed again anyway */
    enum finish f = ev->step.failed ? FINISH_FAILED : wc_span_result(c, slot, sp, t);
    if (f != FINISH_NONE)
        wc_finish(c, slot, f, o);
    else
        wc_send(c, slot, o);
}

/* Debug: preempts one ACTIVE sequence every n steps, round robin; only one that made a token since
 * it got its seat, or a prompt longer than n chunks would be started over for ever. */
static void wc_debug_preempt(struct worker_core *c, struct wc_out *o)
{
    uint64_t done = c->n_steps[0] + c->n_steps[1];
    if (c->cfg.debug_preempt_every == 0 || done % c->cfg.debug_preempt_every != 0) return;
    for (uint32_t k = 0; k < c->cfg.max_slots; k++) {
        uint32_t slot = c->debug_turn++ % c->cfg.max_slots;
        const struct wc_slot *s = &wc_slots(c)[slot];
        if (s->state != WC_ACTIVE || s->n_tokens == s->ran_from) continue;
        wc_preempt(c, slot, o);
        return;
    }
}

/* What was queued behind the step runs now, and counts for the debug switches. A parked step ends only
 * by losing its last span, so what was behind it has lost all its own: it does not run any more. */
static void wc_promote(struct worker_core *c, uint32_t ended, bool parked, struct wc_out *o)
{
    uint32_t next = wc_queued(c, ended);
    if (next == WC_NONE) return;
    c->steps[next].behind = 0;
    c->steps[next].progress_ns = c->now_ns;
    c->steps[next].parked = parked;
    if (!parked) wc_debug_disturb(c, next, o);
}

void wc_step_end(struct worker_core *c, const struct worker_event *ev, struct wc_out *o)
{
    uint32_t i = wc_step_find(c, ev->step.step);
    struct wc_step *st = &c->steps[i];
    uint32_t k = 0;
    bool parked = st->parked;
    wc_cost_step_end(c, i, ev);
    for (uint32_t n = 0; n < st->n_spans; n++) {
        struct wc_span *sp = &wc_spans(c, i)[n];
        if (sp->state == WC_SPAN_GONE) continue;
        c->positions[st->rank] += sp->n;
        const struct worker_token *t = NULL;
        if (!ev->step.failed) {
            assert(k < ev->step.n_tokens && ev->step.tokens[k].slot == sp->slot);
            t = &ev->step.tokens[k++];
        }
        wc_span_end(c, i, sp, ev, t, o);
    }
    assert(ev->step.failed || k == ev->step.n_tokens);
    c->n_steps[st->rank]++;
    c->step_device_ns += ev->step.device_ns;
    wc_emit(o, WA_STEP_RELEASE)->step = st->id;
    memset(wc_spans(c, i), 0, (size_t)st->n_spans * sizeof(struct wc_span));
    memset(st, 0, sizeof *st);
    wc_promote(c, i, parked, o);
    wc_debug_preempt(c, o);
}
