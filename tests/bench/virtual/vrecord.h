/* vrecord.h - a worker_core's events with the bytes of its actions, to be fed to a fresh core. */
#ifndef SLUICE_TESTS_BENCH_VRECORD_H
#define SLUICE_TESTS_BENCH_VRECORD_H

#include "base/buf.h"
#include "scheduler/worker_core.h"

struct vrecord_event {
    struct worker_event ev; /* its pointers lead to copies */
    uint64_t now_ns;
    uint64_t actions_from, actions_to; /* in `actions` */
};

struct vrecord {
    struct vrecord_event *events;
    uint32_t n, cap;
    struct buf actions;
    bool failed; /* no memory */
};

/* A sim_sink's `event`. */
void vrecord_event(void *ctx, const struct worker_event *ev, uint64_t now_ns,
                   const struct worker_action *actions, uint32_t n);
/* The number of the first event whose actions differ; n = none does; UINT32_MAX = no memory. */
uint32_t vrecord_replay(const struct vrecord *r, const struct worker_core_config *cfg);
void vrecord_deinit(struct vrecord *r);

#endif
