/* copier.h - copies between blocks and the host tier, the same for every backend whose blocks are
 * memory: the host tier itself, its checksums, the throttle, two threads.
 *
 * Lanes. Each priority has a queue and a thread: priority 0 at normal priority, priority 1 at
 * PRIORITY_COPY. Lane 1 starts nothing while a runnable copy waits in lane 0. A lane takes its copies in
 * the order submitted, one block at a time, passing over those whose fence is closed (a parked step
 * would otherwise hold up everything behind it).
 *
 * No thread here takes a lock, and above all none that the runner or the owner takes: a thread of
 * low priority that loses its core inside a critical section would hold up a real-time step for as
 * long as it is away. Owner and lane meet in two rings with one writer and one reader each; the
 * fence reads the runner's list of live steps, which is atomics.
 *
 * Throttle: both lanes share one imitated link. A copy books the link for its cost, from when the
 * link is free; it moves its bytes at once and ends when its booking ends. A lane that goes straight
 * from one copy to the next books from the end of the last, so waking late does not add up.
 *
 * Checksum: 64 bits over XXH3 of each KiB, taken from the source right after a piece of it was
 * moved, while it is in cache. Stored per slot by BLOCK_TO_HOST, compared by HOST_TO_BLOCK; a slot
 * never written to fails the comparison.
 *
 * Threads: create, destroy, submit, poll and host by the owner; step_ended by any.
 * Order: create after runner_init; runner_stop before destroy, runner_deinit after it.
 */
#ifndef SLUICE_WORKER_ENGINE_STEP_COPIER_H
#define SLUICE_WORKER_ENGINE_STEP_COPIER_H

#include "worker/engine/step/runner.h"

struct copier;

struct copier_config {
    uint8_t *blocks;      /* block b at blocks + b * stride; on 64 bytes */
    size_t stride;        /* bytes copied, a multiple of 4096 */
    uint32_t host_slots;  /* > 0 */
    double gb_s;          /* the link's rate in 1e9 bytes a second, 0 = no limit */
    uint64_t block_ns;    /* cost of a block on top of that; 0 = none */
    bool no_checksum;
    struct runner *runner;
    int fd;               /* the eventfd of the runner's completions */
    /* How to move n bytes (a multiple of 64, ends on 64), and what makes them visible to other
     * threads before a release store; NULL = memcpy, nothing. */
    void (*move)(void *to, const void *from, size_t n);
    void (*drain)(void);
};

int copier_create(struct copier **out, const struct copier_config *cfg, struct err *e);
void copier_destroy(struct copier **c); /* waits for the running copies, drops the rest */

/* Ends and id were checked (engine.c). -1: ENGINE_COPIES_MAX wait, run, or ended unseen. */
int copier_submit(struct copier *c, const struct engine_copy *copy);
/* A step ended: fences may have opened. Takes no lock. */
void copier_step_ended(struct copier *c);
/* The runner's completions, then those of copies. The descriptor is readable while some wait; it may
 * be readable without cause, in a row once for each lane (it signals after it published, and its end may have been
 * polled between the two) and once after a poll that filled `out`. */
int copier_poll(struct copier *c, struct engine_completion *out, int max);
void *copier_host(const struct copier *c, uint32_t slot); /* NULL: no such slot */

#endif
