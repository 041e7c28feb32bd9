#include "worker/engine/step/runner.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/mem.h"
#include "worker/engine/step/carve.h"
#include "worker/engine/step/clock.h"
#include "worker/engine/step/event_fd.h"

#include <assert.h>
#include <string.h>

/* ---- completions, under the mutex ---- */

static void emit(struct runner *r, struct step_slot *s, enum engine_completion_kind kind,
                 uint32_t span, uint32_t at)
{
    assert(r->ring_count < r->ring_cap);
    r->ring[(r->ring_head + r->ring_count) % r->ring_cap] = (struct engine_completion){
        .kind = kind,
        .id = s->plan.id,
        .span = span,
        .status = s->status,
        .segments_done = s->segments_done,
        .segment_at_request = at,
        .device_ns = s->device_ns,
    };
    if (r->ring_count++ == 0)
        event_fd_signal(r->fd);
}

/* ---- transitions, under the mutex ---- */

static struct step_slot *find(struct runner *r, uint64_t id)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        if (r->slots[i].state != SLOT_FREE && r->slots[i].plan.id == id)
            return &r->slots[i];
    return NULL;
}

static struct step_slot *in_state(struct runner *r, enum slot_state state)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        if (r->slots[i].state == state)
            return &r->slots[i];
    return NULL;
}

static void drop_now(struct runner *r, struct step_slot *s, uint32_t span, uint32_t at);

/* Spans of steps waiting for `src` that take their last input from `span` of it fall with it. */
static void drop_dependents(struct runner *r, const struct step_slot *src, uint32_t span)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        struct step_slot *w = &r->slots[i];
        if ((w->state != SLOT_QUEUED && w->state != SLOT_PARKED) || w->waits_for != src->plan.id)
            continue;
        for (uint32_t j = 0; j < w->plan.n_spans; j++) {
            const struct engine_span *sp = &w->plan.spans[j];
            if (sp->ref_step == src->plan.id && src->plan.rows[sp->ref_row].span == span)
                drop_now(r, w, j, w->segments_done);
        }
    }
}

static void drop_now(struct runner *r, struct step_slot *s, uint32_t span, uint32_t at)
{
    s->drop_wanted[span] = 0;
    if (s->dropped[span])
        return;
    s->dropped[span] = 1;
    s->n_live--;
    if (fault_on(FAULT_DROP_NEIGHBOUR) && s->n_live > 1 && span + 1 < s->plan.n_spans)
        s->dropped[span + 1] = 1;
    emit(r, s, ENGINE_SPAN_DROPPED, span, at);
    drop_dependents(r, s, span);
}

/* The source ended: hand its ids to the inputs that wait for them, or drop them if it failed. */
static void resolve(struct runner *r, const struct step_slot *src)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        struct step_slot *w = &r->slots[i];
        if (w->state == SLOT_FREE || w->waits_for != src->plan.id)
            continue;
        w->waits_for = 0;
        for (uint32_t j = 0; j < w->plan.n_spans; j++) {
            const struct engine_span *sp = &w->plan.spans[j];
            if (sp->ref_step != src->plan.id || w->dropped[j])
                continue;
            if (src->status == ENGINE_STEP_FAILED)
                drop_now(r, w, j, w->segments_done);
            else
                w->plan.ids[w->plan.first[j] + sp->n - 1] = src->results[sp->ref_row].id;
        }
    }
}

static void end(struct runner *r, struct step_slot *s)
{
    s->state = SLOT_ENDED;
    resolve(r, s);
    atomic_store(&r->live[s - r->slots], 0);
    if (r->ops->step_ended != NULL)
        r->ops->step_ended(r->backend);
    emit(r, s, ENGINE_STEP_END, 0, 0);
}

/* Debug: a running step hears of requests only from a segment on that is drawn for it, so that parks
 * and drops fall on every segment alike, the head's too; otherwise most come with the first. */
static bool too_early(const struct runner *r, struct step_slot *s)
{
    if (r->late_seed == 0 || s->state != SLOT_RUNNING || s->status == ENGINE_STEP_FAILED)
        return false;
    if (s->segments_done < rand_at(r->late_seed, s->plan.id) % s->n_segments)
        return true;
    s->park_at = s->park_wanted && s->park_at < s->segments_done ? s->segments_done : s->park_at;
    return false;
}

/* Applies what was asked of a slot that is not being computed, and starts what may start. */
static void settle(struct runner *r, struct step_slot *s)
{
    if (too_early(r, s))
        return;
    for (uint32_t j = 0; j < s->plan.n_spans; j++)
        if (s->drop_wanted[j])
            drop_now(r, s, j, s->drop_at[j]);
    if (s->status == ENGINE_STEP_FAILED || s->n_live == 0 || s->segments_done == s->n_segments) {
        end(r, s);
    } else if (s->park_wanted && s->must_advance && s->state == SLOT_RUNNING) {
        return; /* the request stays */
    } else if (s->park_wanted) {
        s->state = SLOT_PARKED;
        s->park_unseen = true;
        emit(r, s, ENGINE_STEP_PARKED, 0, s->park_at);
    }
    s->park_wanted = false;
}

/* Waiting slots that lost their last span end; a queued one whose source has ended runs as soon as
 * nothing else does. */
static void promote(struct runner *r)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        struct step_slot *s = &r->slots[i];
        bool waiting = s->state == SLOT_QUEUED || s->state == SLOT_PARKED;
        if (waiting && s->n_live == 0)
            end(r, s);
        else if (s->state == SLOT_QUEUED && s->waits_for == 0 && in_state(r, SLOT_RUNNING) == NULL)
            s->state = SLOT_RUNNING;
    }
    if (in_state(r, SLOT_RUNNING) != NULL)
        pthread_cond_signal(&r->wake);
}

/* ---- the runner's thread ---- */

static void compute(struct runner *r, struct step_slot *s)
{
    uint32_t k = s->segments_done;
    for (uint32_t j = 0; k == 0 && j < s->plan.n_spans; j++)
        r->positions += s->dropped[j] ? 0 : s->plan.spans[j].n;
    s->computing = true;
    s->must_advance = false;
    pthread_mutex_unlock(&r->lock);
    uint64_t t0 = clock_ns();
    int rc = r->ops->segment(r->backend, s, k);
    uint64_t ns = clock_ns() - t0;
    pthread_mutex_lock(&r->lock);
    s->computing = s->was_parked = false;
    s->device_ns += ns;
    s->segments_done = k + 1;
    if (rc < 0)
        s->status = ENGINE_STEP_FAILED;
}

static void *thread_main(void *arg)
{
    struct runner *r = arg;
    if (r->ops->thread_start != NULL)
        r->ops->thread_start(r->backend);
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct step_slot *s = in_state(r, SLOT_RUNNING);
        if (s == NULL) {
            pthread_cond_wait(&r->wake, &r->lock);
            continue;
        }
        settle(r, s);
        if (s->state == SLOT_RUNNING) {
            compute(r, s);
            settle(r, s);
        }
        promote(r);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- set-up ---- */

static void carve_slots(struct runner *r, struct carve *c, const struct plan_caps *caps)
{
    r->ring_cap = ENGINE_STEPS_MAX * (caps->max_spans + 2); /* drops, one unseen park, the end */
    r->ring = carve_take(c, r->ring_cap, sizeof *r->ring);
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        struct step_slot *s = &r->slots[i];
        s->results = carve_take(c, caps->max_rows, sizeof *s->results);
        s->dropped = carve_take(c, caps->max_spans, 1);
        s->drop_wanted = carve_take(c, caps->max_spans, 1);
        s->drop_at = carve_take(c, caps->max_spans, sizeof *s->drop_at);
    }
}

int runner_init(struct runner *r, const struct runner_ops *ops, void *backend, int fd,
                const struct plan_caps *caps, uint32_t max_refs, struct err *e)
{
    memset(r, 0, sizeof *r);
    r->ops = ops;
    r->backend = backend;
    r->fd = fd;
    r->max_refs = max_refs;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    struct carve c = {0};
    carve_slots(r, &c, caps);
    r->arrays = mem_zalloc(c.used);
    if (r->arrays == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for step slots (%zu bytes)", c.used);
    c = (struct carve){.base = r->arrays};
    carve_slots(r, &c, caps);
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        if (plan_init(&r->slots[i].plan, caps, e) < 0)
            return -1;
    return 0;
}

int runner_start(struct runner *r, struct err *e)
{
    int rc = pthread_create(&r->thread, NULL, thread_main, r);
    if (rc != 0)
        return err_set(e, ERR_INTERNAL, "cannot start the engine's thread: %s", strerror(rc));
    r->started = true;
    return 0;
}

void runner_stop(struct runner *r)
{
    if (!r->started)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    r->started = false;
}

void runner_deinit(struct runner *r)
{
    runner_stop(r);
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        plan_deinit(&r->slots[i].plan);
    mem_free(r->arrays);
    r->arrays = NULL;
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
}

/* ---- owner thread ---- */

/* The one step that `step` refers to: 0 = none, -1 = more than one. */
static int reference_source(const struct engine_step *step, uint64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        uint64_t id = step->spans[i].ref_step;
        if (id != 0 && *out != 0 && id != *out)
            return -1;
        if (id != 0)
            *out = id;
    }
    return 0;
}

/* Whether every reference names a row of `src` that samples. */
static bool references_fit(const struct engine_step *step, const struct step_slot *src)
{
    for (uint32_t i = 0; i < step->n_spans; i++) {
        const struct engine_span *sp = &step->spans[i];
        if (sp->ref_step == 0)
            continue;
        if (sp->ref_row >= src->plan.n_rows ||
            src->plan.rows[sp->ref_row].kind != ENGINE_ROW_SAMPLE)
            return false;
    }
    return true;
}

static void reset(struct step_slot *s)
{
    memset(s->dropped, 0, s->plan.caps.max_spans);
    memset(s->drop_wanted, 0, s->plan.caps.max_spans);
    s->n_live = s->plan.n_spans;
    s->segments_done = 0;
    s->status = ENGINE_STEP_OK;
    s->computing = s->park_wanted = s->park_unseen = s->end_seen = s->must_advance = false;
    s->was_parked = false;
    s->waits_for = 0;
    s->device_ns = 0;
}

/* Places a copied plan behind its source, or starts it. Under the mutex. */
static int launch(struct runner *r, struct step_slot *s, struct step_slot *src)
{
    bool runs = in_state(r, SLOT_RUNNING) != NULL;
    bool behind = src != NULL && src->state == SLOT_RUNNING;
    if ((runs && !behind) || (behind && in_state(r, SLOT_QUEUED) != NULL))
        return -1;
    if (src != NULL && src->state != SLOT_RUNNING && src->state != SLOT_ENDED)
        return -1;
    s->state = SLOT_QUEUED;
    atomic_store(&r->live[s - r->slots], s->plan.id);
    s->waits_for = src != NULL ? src->plan.id : 0;
    for (uint32_t j = 0; src != NULL && j < s->plan.n_spans; j++) {
        const struct engine_span *sp = &s->plan.spans[j];
        if (sp->ref_step != 0 && src->dropped[src->plan.rows[sp->ref_row].span])
            drop_now(r, s, j, 0);
    }
    if (src != NULL && src->state == SLOT_ENDED)
        resolve(r, src);
    promote(r);
    return 0;
}

int runner_submit(struct runner *r, const struct engine_step *step)
{
    uint64_t source;
    if (reference_source(step, &source) < 0 || (source != 0 && r->max_refs == 0))
        return -1;
    pthread_mutex_lock(&r->lock);
    struct step_slot *s = in_state(r, SLOT_FREE);
    struct step_slot *src = source != 0 ? find(r, source) : NULL;
    bool ok = s != NULL && find(r, step->id) == NULL && (source == 0 || src != NULL);
    pthread_mutex_unlock(&r->lock);
    /* A free slot is the owner's alone: the copy needs no lock. */
    if (!ok || (src != NULL && !references_fit(step, src)) || plan_copy(&s->plan, step) < 0)
        return -1;
    reset(s);
    s->n_segments = r->ops->segments(r->backend, &s->plan);
    assert(s->n_segments > 0);
    pthread_mutex_lock(&r->lock);
    int rc = launch(r, s, src);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int runner_park(struct runner *r, uint64_t id)
{
    pthread_mutex_lock(&r->lock);
    struct step_slot *s = find(r, id);
    int rc = -1;
    if (s != NULL && s->state == SLOT_RUNNING) {
        rc = 0;
        if (!s->park_wanted) {
            s->park_wanted = true;
            s->park_at = s->segments_done;
        }
    } else if (s != NULL && s->state == SLOT_QUEUED) {
        rc = 0;
        s->park_wanted = true;
        s->park_at = 0;
        settle(r, s);
    } else if (s != NULL && s->state == SLOT_ENDED) {
        rc = 0; /* too late: its STEP_END, which the owner has not seen, is the answer */
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int runner_continue(struct runner *r, uint64_t id)
{
    pthread_mutex_lock(&r->lock);
    struct step_slot *s = find(r, id);
    int rc = -1;
    if (s != NULL && s->state == SLOT_ENDED) {
        rc = 0; /* its last span was dropped meanwhile: STEP_END is on its way */
    } else if (s != NULL && s->state == SLOT_PARKED && !s->park_unseen &&
               (s->waits_for != 0 || in_state(r, SLOT_RUNNING) == NULL)) {
        rc = 0;
        s->state = SLOT_QUEUED;
        s->must_advance = s->was_parked = true;
        if (fault_on(FAULT_PARK_SEGMENT) && s->segments_done > 0 &&
            s->segments_done + 1 < s->n_segments)
            s->segments_done++;
        promote(r);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int runner_drop_span(struct runner *r, uint64_t id, uint32_t span)
{
    pthread_mutex_lock(&r->lock);
    struct step_slot *s = find(r, id);
    int rc = s != NULL && span < s->plan.n_spans ? 0 : -1;
    if (rc == 0 && s->state != SLOT_ENDED && !s->dropped[span] && !s->drop_wanted[span]) {
        s->drop_wanted[span] = 1;
        s->drop_at[span] = s->segments_done;
        if (s->state != SLOT_RUNNING) {
            settle(r, s);
            promote(r);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int runner_poll(struct runner *r, struct engine_completion *out, int max)
{
    int n = 0;
    pthread_mutex_lock(&r->lock);
    while (n < max && r->ring_count > 0) {
        struct engine_completion c = r->ring[r->ring_head];
        r->ring_head = (r->ring_head + 1) % r->ring_cap;
        if (--r->ring_count == 0)
            event_fd_reset(r->fd);
        struct step_slot *s = find(r, c.id);
        assert(s != NULL);
        if (c.kind == ENGINE_STEP_PARKED)
            s->park_unseen = false;
        if (c.kind == ENGINE_STEP_END)
            s->end_seen = true;
        out[n++] = c;
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

void runner_release(struct runner *r, uint64_t id)
{
    pthread_mutex_lock(&r->lock);
    struct step_slot *s = find(r, id);
    assert(s != NULL && s->state == SLOT_ENDED && s->end_seen);
    s->state = SLOT_FREE;
    pthread_mutex_unlock(&r->lock);
}

const struct step_slot *runner_ended(const struct runner *r, uint64_t id)
{
    struct runner *w = (struct runner *)r; /* the mutex is not part of what const promises */
    pthread_mutex_lock(&w->lock);
    struct step_slot *s = find(w, id);
    const struct step_slot *found = s != NULL && s->state == SLOT_ENDED ? s : NULL;
    pthread_mutex_unlock(&w->lock);
    return found;
}

uint64_t runner_positions(const struct runner *r)
{
    struct runner *w = (struct runner *)r;
    pthread_mutex_lock(&w->lock);
    uint64_t n = r->positions;
    pthread_mutex_unlock(&w->lock);
    return n;
}

bool runner_live(const struct runner *r, uint64_t id)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        if (atomic_load(&r->live[i]) == id)
            return true;
    return false;
}
