/* Which step runs next. Called after every event; it decides nothing while nothing changed.
 *
 * Order of a decision: sequences that run grow first, newcomers are admitted after them, and blocks
 * are settled for all of them **before** the first span is built. So nothing that is already in a
 * plan can be pushed out of it again.
 */
#include "base/fault.h"
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

static void wc_park(struct worker_core *c, uint32_t step, struct wc_out *o)
{
    c->steps[step].park_asked = 1;
    wc_emit(o, WA_STEP_PARK)->step = c->steps[step].id;
}

void wc_debug_disturb(struct worker_core *c, uint32_t step, struct wc_out *o)
{
    uint64_t id = c->steps[step].id;
    uint32_t drop = c->cfg.debug_drop_every, park = c->cfg.debug_park_every;
    if (drop == 1) drop = 2; /* each step its only span: nothing would ever be done */
    if (drop != 0 && id % drop == 0)
        wc_drop_span(c, step, (uint32_t)(c->debug_turn++ % c->steps[step].n_spans), o);
    if (park != 0 && id % park == 0 && wc_parked(c) == WC_NONE) wc_park(c, step, o);
}

uint32_t wc_step_free(const struct worker_core *c)
{
    uint32_t step = 0;
    while (step < WC_STEPS && c->steps[step].id != 0) step++;
    assert(step < WC_STEPS && c->steps[step].n_spans == 0);
    return step;
}

void wc_begin_step(struct worker_core *c, uint32_t step, uint8_t rank,
                   const struct worker_span *plan, struct wc_out *o)
{
    struct wc_step *st = &c->steps[step];
    st->id = c->next_step++;
    st->rank = rank;
    st->progress_ns = c->now_ns;
    struct worker_action *a = wc_emit(o, WA_STEP_SUBMIT);
    a->step = st->id;
    a->plan = (struct worker_plan){
        .step = st->id, .rank = rank, .spans = plan, .n_spans = st->n_spans};
    if (fault_on(FAULT_FREE_EARLY) && st->id % 16 == 0)
        kvpool_debug_free_early(wc_pool(c), plan[0].blocks[0]);
}

static bool wc_submit_step(struct worker_core *c, uint8_t rank, uint32_t cls, struct wc_out *o)
{
    uint32_t step = wc_step_free(c);
    struct wc_step *st = &c->steps[step];
    if (wc_fill(c, rank, cls, step) == 0) {
        memset(st, 0, sizeof *st);
        return false;
    }
    st->floor = cls != WC_NONE;
    c->cold = 0;
    wc_begin_step(c, step, rank, wc_plan(c), o);
    wc_debug_disturb(c, step, o);
    return true;
}

bool wc_has_runnable(const struct worker_core *c, uint8_t rank)
{
    for (uint32_t i = 0; i < c->n_active; i++) {
        if (wc_runnable(&wc_slots(c)[wc_active(c)[i]], rank)) return true;
    }
    return false;
}

/* Who comes back from the host gets its copies beside a running step, so that it is there when its
 * rank's turn comes. Not while anyone of real-time waits for blocks. */
static void wc_prefetch(struct worker_core *c, enum wc_start zero, struct wc_out *o)
{
    if (c->cfg.pool.n_host > 0 && zero == WC_START_NOBODY) (void)wc_admit(c, 1, WC_NONE, true, o);
}

/* A step runs: real-time's seats and blocks are made free meanwhile, and a lower step is parked
 * only if real-time has something to run then (else the two would park and continue for ever). */
static void wc_schedule_beside(struct worker_core *c, uint32_t running, struct wc_out *o)
{
    enum wc_start zero = wc_admit(c, 0, WC_NONE, false, o);
    struct wc_step *st = &c->steps[running];
    wc_prefetch(c, zero, o);
    if (st->rank == 0 || st->floor || st->park_asked || wc_parked(c) != WC_NONE) return;
    if (zero == WC_START_PENDING || wc_has_runnable(c, 0)) wc_park(c, running, o);
}

static void wc_continue(struct worker_core *c, uint32_t parked, bool floor, struct wc_out *o)
{
    c->steps[parked].parked = 0;
    c->steps[parked].floor = floor;
    wc_emit(o, WA_STEP_CONTINUE)->step = c->steps[parked].id;
}

static bool wc_step_has_class(const struct worker_core *c, uint32_t step, uint32_t cls)
{
    for (uint32_t n = 0; n < c->steps[step].n_spans; n++) {
        const struct wc_span *sp = &wc_spans(c, step)[n];
        if (sp->state == WC_SPAN_LIVE && wc_slots(c)[sp->slot].cls == cls) return true;
    }
    return false;
}

/* A class that is owed time has the upper rank until it has got it. */
static bool wc_schedule_floor(struct worker_core *c, uint32_t parked, struct wc_out *o)
{
    uint32_t cls = c->floor_cls;
    if (cls == WC_NONE) return false;
    if (parked != WC_NONE && wc_step_has_class(c, parked, cls)) {
        wc_continue(c, parked, true, o);
        return true;
    }
    uint8_t rank = c->cfg.classes.rows[cls].rank != 0;
    (void)wc_grow(c, rank, o);
    (void)wc_admit(c, rank, cls, false, o);
    return wc_submit_step(c, rank, cls, o);
}

static void wc_schedule_next(struct worker_core *c, struct wc_out *o)
{
    uint32_t running = wc_running(c), parked = wc_parked(c);
    c->floor_cls = wc_cost_floor(c);
    if (running != WC_NONE) {
        wc_schedule_beside(c, running, o);
        return;
    }
    if (parked != WC_NONE && c->steps[parked].rank == 0) { /* parked by the debug switch */
        wc_continue(c, parked, false, o);
        return;
    }
    if (wc_schedule_floor(c, parked, o)) return;
    bool growing = wc_grow(c, 0, o);
    enum wc_start zero = wc_admit(c, 0, WC_NONE, false, o);
    if (wc_submit_step(c, 0, WC_NONE, o)) {
        wc_prefetch(c, zero, o);
        return;
    }
    /* Real-time waits for blocks of dropped spans of the parked step; their confirmation is coming
     * and needs nobody's help, while a lower step started now would be in the way. */
    if (growing || zero == WC_START_PENDING) return;
    if (parked != WC_NONE) {
        wc_continue(c, parked, false, o);
        return;
    }
    (void)wc_grow(c, 1, o);
    (void)wc_admit(c, 1, WC_NONE, false, o);
    (void)wc_submit_step(c, 1, WC_NONE, o);
}

void wc_schedule(struct worker_core *c, struct wc_out *o)
{
    wc_schedule_next(c, o);
    wc_launch_ahead(c, o);
}
