/* runner.h - the life of a step, the same for every backend that computes on a thread of its own.
 *
 * The runner owns the step slots, one thread, the queue of completions and the meaning of park,
 * continue, drop and references; a backend gives it two functions, "how many segments has this
 * plan" and "compute segment k of this slot", and never sees a request. So park and drop have one
 * implementation and one test (backend `null`).
 *
 * States of a slot:
 *     FREE -submit-> RUNNING | QUEUED (a reference's source still runs)
 *     QUEUED -source ended, nothing else runs-> RUNNING
 *     RUNNING, QUEUED -park-> PARKED -continue-> RUNNING | QUEUED
 *     RUNNING -last segment, failure, or no span left-> ENDED -release-> FREE
 * At most one slot is RUNNING. A parked source keeps what waits for it QUEUED. A step that loses
 * its last span ends at once, running, queued or parked. A continued step computes at least one
 * segment before it parks again.
 *
 * Locking: one mutex around states, requests and completions, held for O(spans) and never during a
 * segment; so no call of the owner waits for computing. Requests are applied by the runner's thread
 * between segments, or at once by the owner when the slot is not being computed.
 * What a segment reads (plan, dropped, segments_done) is changed only between segments.
 * The descriptor is readable exactly while a completion waits: it is written and reset under the
 * mutex.
 */
#ifndef SLUICE_WORKER_ENGINE_STEP_RUNNER_H
#define SLUICE_WORKER_ENGINE_STEP_RUNNER_H

#include "worker/engine/step/plan.h"

#include <pthread.h>
#include <stdatomic.h>

enum slot_state { SLOT_FREE, SLOT_QUEUED, SLOT_RUNNING, SLOT_PARKED, SLOT_ENDED };

struct step_slot {
    struct plan plan;
    void *own;                     /* the backend's workspace of this slot, set after runner_init */
    struct sample_result *results; /* [max_rows], written by the last segment */
    uint8_t *dropped;              /* [max_spans]; stable during a segment */
    uint32_t n_live;               /* spans not dropped */
    uint32_t n_segments, segments_done;

    /* the runner's own, under its mutex */
    enum slot_state state;
    enum engine_step_status status;
    bool computing, park_wanted, park_unseen, end_seen;
    bool was_parked;   /* since its last segment */
    bool must_advance; /* continued: one segment before it parks again, or two callers' habits could
                          park and continue for ever */
    uint32_t park_at;
    uint8_t *drop_wanted;
    uint32_t *drop_at;
    uint64_t waits_for; /* id of the source of its references; 0 = none open */
    uint64_t device_ns;
};

struct runner_ops {
    int (*thread_start)(void *backend); /* on the runner's thread, first; optional */
    uint32_t (*segments)(void *backend, const struct plan *p);
    int (*segment)(void *backend, struct step_slot *s, uint32_t k); /* -1 = the step failed */
    void (*step_ended)(void *backend); /* under the mutex: takes no lock and does not wait; optional */
};

struct runner {
    const struct runner_ops *ops;
    void *backend;
    int fd;
    uint32_t max_refs;
    struct step_slot slots[ENGINE_STEPS_MAX];
    _Atomic uint64_t live[ENGINE_STEPS_MAX]; /* id of the slot's step until it ends; else 0 */
    void *arrays; /* all slots' arrays, one allocation */
    struct engine_completion *ring;
    uint32_t ring_cap, ring_head, ring_count;
    uint64_t positions;
    uint64_t late_seed; /* engine_config.debug_late_seed; set after runner_init */
    bool stop, started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
};

/* init makes slots, start the thread: between them the backend sets `own`. deinit stops it first.
 */
int runner_init(struct runner *r, const struct runner_ops *ops, void *backend, int fd,
                const struct plan_caps *caps, uint32_t max_refs, struct err *e);
int runner_start(struct runner *r, struct err *e);
void runner_stop(struct runner *r);
void runner_deinit(struct runner *r);

/* As in engine.h, owner thread. */
int runner_submit(struct runner *r, const struct engine_step *step);
int runner_park(struct runner *r, uint64_t id);
int runner_continue(struct runner *r, uint64_t id);
int runner_drop_span(struct runner *r, uint64_t id, uint32_t span);
int runner_poll(struct runner *r, struct engine_completion *out, int max);
void runner_release(struct runner *r, uint64_t id);
const struct step_slot *runner_ended(const struct runner *r,
                                     uint64_t id); /* NULL: no such ended step */
uint64_t runner_positions(const struct runner *r);

/* Any thread, no lock: the step was submitted and has not ended. False once all it wrote can be read. */
bool runner_live(const struct runner *r, uint64_t id);

#endif
