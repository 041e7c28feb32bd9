/* chaos.h - debug layer between a backend's completions and the owner: delays and reorders them.
 *
 * Real devices finish in surprising orders and descriptors wake late; a caller that is right only
 * for prompt, ordered completions must fail in a test, not in service. Each completion waits a
 * random number of polls and up to some milliseconds; those of different steps, copies and spans
 * change places. Kept: a step's STEP_END comes after everything else of that step (so a PARKED
 * never follows its STEP_END, and a DROPPED comes before it).
 *
 * Wakeups: chaos_fd is an epoll descriptor over the backend's eventfd and a timer; the timer is
 * armed while anything is held back, so a held completion always brings another wakeup, and never a
 * busy loop. Same seed and same sequence of pushes and takes: same choices. Thread: the owner's. No
 * allocation after create.
 */
#ifndef SLUICE_WORKER_ENGINE_CHAOS_H
#define SLUICE_WORKER_ENGINE_CHAOS_H

#include "worker/engine/engine.h"

struct chaos;

int chaos_create(struct chaos **out, uint64_t seed, uint32_t capacity, int backend_fd,
                 struct err *e);
void chaos_destroy(struct chaos **c);
int chaos_fd(const struct chaos *c);
uint32_t chaos_room(const struct chaos *c);
void chaos_push(struct chaos *c, const struct engine_completion *done); /* room must be left */
/* One poll of the owner: counts it, hands over what is due, arms or stops the timer. */
int chaos_take(struct chaos *c, struct engine_completion *out, int max);

#endif
