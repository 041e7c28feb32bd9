/* engine_rig.h - drives an engine in tests and benchmarks: sequences with blocks, steps built span
 * by span, completions awaited on the descriptor.
 *
 * Order: rig_open, sequences and steps, rig_close. A failed expectation (`rig_require`) prints
 * where and ends the program with status 1: nothing here is recovered from. Blocks of a sequence
 * are taken scattered over the pool, so that a block table read wrongly shows. Thread: one.
 * Waiting: poll(2) on engine_fd; a step that does not end within RIG_WAIT_S seconds is a failure,
 * not a hang.
 */
#ifndef SLUICE_TESTS_ENGINE_RIG_H
#define SLUICE_TESTS_ENGINE_RIG_H

#include "worker/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>

#define RIG_WAIT_S 300
#define RIG_SPANS 64
#define RIG_ROWS 1024
#define RIG_EVENTS 4096
#define RIG_CTX 2048

#define rig_require(cond) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
            exit(1); \
        } \
    } while (0)

struct rig {
    struct model model;
    bool has_file;
    struct engine *eng;
    const struct engine_limits *limits;
    uint64_t last_step;
    uint32_t *free_blocks, n_free;
    struct engine_completion events[RIG_EVENTS]; /* all that came, in order */
    uint32_t n_events;
};

struct rig_seq {
    uint64_t name;
    int32_t ids[RIG_CTX];
    uint32_t n_ids, n_done; /* known ids; positions computed */
    uint32_t blocks[RIG_CTX / 16 + 1], n_blocks;
};

struct rig_step {
    struct engine_step step;
    struct engine_span spans[RIG_SPANS];
    struct rig_seq *seqs[RIG_SPANS];
    struct engine_row rows[RIG_ROWS];
};

/* Sensible limits: 64 spans, 512 tokens, 512 rows, 1 thread, blocks for 24,576 positions. */
struct engine_config rig_config(const char *backend);
/* path NULL: a model described by numbers only (300 tokens, context 2048), for the virtual engine.
 */
void rig_open(struct rig *r, const char *path, const struct engine_config *cfg);
void rig_close(struct rig *r);

void rig_seq_init(struct rig_seq *q, uint64_t name, const int32_t *ids, uint32_t n);
void rig_seq_random(const struct rig *r, struct rig_seq *q, uint64_t seed, uint32_t n);
void rig_seq_free(struct rig *r, struct rig_seq *q); /* gives its blocks back */
/* Ids from a seed, below n_vocab. */
void rig_ids(int32_t *ids, uint32_t n, uint64_t seed, uint32_t n_vocab);

void rig_step_init(struct rig *r, struct rig_step *st);
uint32_t rig_span(struct rig *r, struct rig_step *st, struct rig_seq *q,
                  uint32_t n); /* its next n positions */
struct engine_row *rig_row(struct rig_step *st, uint32_t span, uint32_t index,
                           enum engine_row_kind kind);
struct sample_params rig_params(float temperature, uint64_t seed, uint64_t position);

void rig_submit(struct rig *r, struct rig_step *st);
/* Waits until an event of `kind` for `id` is there and returns the newest one. */
const struct engine_completion *rig_await(struct rig *r, enum engine_completion_kind kind,
                                          uint64_t id);
/* The same for "parked or ended". */
const struct engine_completion *rig_await_stop(struct rig *r, uint64_t id);
const struct engine_completion *rig_event(const struct rig *r, enum engine_completion_kind kind,
                                          uint64_t id);
uint32_t rig_count(const struct rig *r, enum engine_completion_kind kind, uint64_t id);
void rig_pump(struct rig *r, int timeout_ms); /* one wait and one poll */
void rig_end(struct rig *r,
             struct rig_step *st); /* awaits the end, advances n_done of live spans; not released */
void rig_run(struct rig *r, struct rig_step *st); /* submit and end */
/* The same, parked and continued at every segment. Returns how often it parked. */
uint32_t rig_run_parking(struct rig *r, struct rig_step *st);
void rig_release(struct rig *r, struct rig_step *st);

/* Computes the sequence's known ids up to the last in chunks, then n_new sampled ones; appends
 * them. */
void rig_generate(struct rig *r, struct rig_seq *q, uint32_t n_new, uint32_t chunk,
                  float temperature, uint64_t seed, bool parking);

#endif
