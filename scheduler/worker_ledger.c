/* Where the time of each sequence goes while it is here; see ledger.h.
 *
 * Looked at after each event, when everything is decided: who has a seat, or waits and is of real-time (for those a
 * batch step in the way counts). Those below that wait change their cause only with their state, so they are not
 * looked at. A switch costs nothing when nothing changed, so runs of equal steps book what single ones would. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

static enum ledger_cause wc_cause_in_step(const struct worker_core *c, const struct wc_slot *s)
{
    const struct wc_step *st = &c->steps[s->in_step - 1u];
    if (st->parked) return LEDGER_PARKED;
    if (st->behind != 0) return LEDGER_STEP;
    if (wc_spans(c, s->in_step - 1u)[s->span].pos < s->high) return LEDGER_RECOMPUTE;
    return s->n_tokens == s->n_prompt ? LEDGER_PREFILL : LEDGER_DECODE;
}

static enum ledger_cause wc_cause(const struct worker_core *c, const struct wc_slot *s, bool batch_runs)
{
    bool behind_batch = s->rank == 0 && batch_runs;
    if (s->state == WC_WAITING)
        return behind_batch ? LEDGER_BATCH : s->preempted ? LEDGER_PREEMPTED : LEDGER_SEAT;
    if (s->resuming) return LEDGER_SWAP;
    if (s->in_step != 0) return wc_cause_in_step(c, s);
    return behind_batch ? LEDGER_BATCH : LEDGER_STEP;
}

static void wc_book(const struct worker_core *c, struct wc_slot *s, enum ledger_cause to)
{
    if (to == s->cause) return;
    if (s->cause != LEDGER_CAUSES) s->booked_ns[s->cause - LEDGER_WORKER] += c->now_ns - s->cause_ns;
    s->cause = (uint8_t)to;
    s->cause_ns = c->now_ns;
}

void wc_ledger_begin(const struct worker_core *c, struct wc_slot *s)
{
    memset(s->booked_ns, 0, sizeof s->booked_ns);
    s->cause = LEDGER_SEAT;
    s->cause_ns = c->now_ns;
}

void wc_ledger_end(const struct worker_core *c, struct wc_slot *s)
{
    wc_book(c, s, LEDGER_CAUSES);
}

void wc_ledger_waits(const struct worker_core *c, struct wc_slot *s)
{
    wc_book(c, s, wc_cause(c, s, false));
}

void wc_ledger(struct worker_core *c)
{
    uint32_t running = wc_running(c);
    bool batch = running != WC_NONE && c->steps[running].rank != 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        struct wc_slot *s = &wc_slots(c)[wc_active(c)[i]];
        wc_book(c, s, wc_cause(c, s, batch));
    }
    for (uint32_t i = 0; i < c->n_queued[0]; i++) {
        struct wc_slot *s = &wc_slots(c)[wc_queue(c, 0)[i]];
        wc_book(c, s, wc_cause(c, s, batch));
    }
}

const char *wc_ledger_check(const struct worker_core *c, const struct wc_slot *s)
{
    uint64_t sum = 0, whole = c->now_ns - s->submitted_ns;
    if (s->state != WC_WAITING && s->state != WC_ACTIVE) return NULL;
    for (uint32_t i = 0; i < LEDGER_WORKER_N; i++) sum += s->booked_ns[i];
    return sum + (c->now_ns - s->cause_ns) == whole ? NULL : "a slot's time is not all booked";
}
