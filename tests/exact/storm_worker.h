/* storm_worker.h - a worker without link or threads of its own: engine, core and sequences, driven event by event,
 * so that a test can interrupt at any moment and count what it did.
 *
 * Order: storm_open, storm_submit any number of lines, storm_turn until all are done, storm_close. A line is what a
 * gateway would keep of a sequence: its ids grow as the core says WA_TOKENS. storm_kill takes the worker away as kill -9
 * would: lines keep what they have, the caller opens another and submits them again, with the ids they have.
 * What a line went through is counted in the line; where steps were parked and spans dropped, in the storm.
 */
#ifndef SLUICE_TESTS_EXACT_STORM_WORKER_H
#define SLUICE_TESTS_EXACT_STORM_WORKER_H

#include "scheduler/worker_core.h"
#include "worker/steps.h"

#include <stdio.h>
#include <stdlib.h>

/* What must hold in any case; ends the program (4). */
#define STORM_REQUIRE(cond, why)                                                                          \
    do {                                                                                                  \
        if (!(cond)) {                                                                                    \
            printf("FAILED %s:%d: %s %s\n", __FILE__, __LINE__, #cond, why);                             \
            exit(4);                                                                                      \
        }                                                                                                 \
    } while (0)

#define STORM_LEN_MAX 700
#define STORM_BINS 64

enum storm_kind {
    STORM_PARK,
    STORM_DROP,
    STORM_SWAP,
    STORM_RECOMPUTE,
    STORM_HIT,
    STORM_CANCEL,
    STORM_KILL,
    STORM_KINDS
};
extern const char *const storm_kind_names[STORM_KINDS];

struct storm_line {
    int32_t ids[STORM_LEN_MAX];
    float logprobs[STORM_LEN_MAX];
    uint32_t n_prompt, n, max_total, from;
    uint8_t cls, variant; /* variant: which sampling parameters (storm_worker.c) */
    uint64_t seed;
    uint32_t tenant;
    struct sub_id sub;
    uint32_t slot; /* in the core; WORKER_SLOT_NONE while not submitted */
    uint32_t cancel_at; /* output ids after which it is cancelled; 0 = never */
    bool done, cancelled;
    enum finish finish;
    uint32_t visible;
};

struct storm_config {
    const struct model *model;
    struct engine_config engine; /* backend, kv_type, threads, chaos, null costs, host_slots */
    uint32_t max_seqs, chunk, kv_tokens;
    uint32_t park_every, drop_every, preempt_every, pool_blocks;
    uint32_t resume; /* 0 auto, 1 swap, 2 recompute */
    bool cache, audit;
    bool no_refs; /* nothing is launched behind a running step */
    uint64_t inject; /* seed of injected memory faults, 0 = none: see storm_faults */
};

/* Memory faults done to a worker on purpose. Each must be noticed before a token comes of it. */
enum storm_fault {
    STORM_FLIP,       /* a bit of a host slot, before it is read */
    STORM_LATE_COPY,  /* the block that a copy fills was given to somebody else meanwhile */
    STORM_FREE_STEP,  /* a block that a step reads or writes was given away */
    STORM_STALE_COPY, /* the block that a checkpoint reads was given away */
    STORM_FAULTS
};
extern const char *const storm_fault_names[STORM_FAULTS];
struct storm_faults {
    uint64_t injected[STORM_FAULTS];
    uint64_t unread;        /* of STORM_FREE_STEP: the span was dropped, nobody looked */
    uint64_t unread_copies; /* in flight when the worker was killed */
    uint64_t copies_noticed, steps_noticed;
};

struct storm {
    struct storm_config cfg;
    struct engine *engine;
    struct worker_core *core;
    struct worker_core_config core_cfg;
    size_t core_bytes;
    struct seq_store store;
    struct steps steps;
    struct worker_action *actions;
    struct storm_line **by_slot;
    uint64_t counter, draws;
    uint32_t n_live;
    struct storm_faults faults;
    uint64_t bad_copies[ENGINE_COPIES_MAX]; /* ids of live copies with an injected fault, 0 = none */
    uint64_t freed_step; /* the newest step with an injected fault, and the span */
    uint32_t freed_span;
    uint64_t counts[STORM_KINDS];
    uint64_t parked_at[STORM_BINS], dropped_at[STORM_BINS]; /* by segments done, the last bin takes the rest */
    uint64_t lengths[STORM_BINS];                           /* length of a sequence when it lost its seat, by 16 */
};

void storm_open(struct storm *s, const struct storm_config *cfg);
void storm_submit(struct storm *s, struct storm_line *l);
void storm_cancel(struct storm *s, struct storm_line *l);
/* Waits for the engine and takes what it reports. */
void storm_turn(struct storm *s);
/* Takes the counters of the core into `counts` and lets everything go. */
void storm_close(struct storm *s);
void storm_add(struct storm *sum, const struct storm *s); /* counts and histograms */

#endif
