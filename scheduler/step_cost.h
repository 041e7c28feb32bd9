/* step_cost.h - a live model of what a step costs, learned from the steps that were run.
 *
 * Why: the planner cuts prefill so that a step keeps an objective, resume compares recompute with a
 * swap-in, admission and routing predict waits, and the simulator imitates a measured worker, all with one
 * model. Its coefficients travel in STATUS.
 *
 * Model: time = level x sum of coefficient x feature, all coefficients >= 0, so a step that does more of anything never
 * costs less. `level` is how much slower than usual the machine is right now; it goes back to 1. Features of a step:
 *   one      1 (launch, and the read of the layers' weights)
 *   first    positions computed, up to COST_KNEE of them: below it a product works from the packed weights
 *   spill    positions beyond COST_KNEE
 *   rows     rows sampled or scored
 *   reads    positions of K and V read, once per COST_TILE positions of a span (all of decode attention), in thousands
 *   pairs    query position x key position (the bulk of prefill attention), in thousands
 *   cold     1 for the first step after a park or a pause of > 5 ms (caches lost, cores asleep)
 *   head     1 when there are rows (the read of the output head's weights)
 * The number of sequences is not one: it costs nothing that could be measured beside the rest.
 *
 * Learning: recursive least squares on the relative error, in the form of a Kalman filter whose coefficients walk at
 * random (Ljung and Gunnarsson, Adaptation and tracking in system identification, 1990), which forgets by kind: the
 * level and `one` and `head` fast (neighbours take memory bandwidth: a decode step may cost 2 ms now and 6 ms a second
 * later), the rest slowly; what no step shows is kept. Features are scaled by
 * the cold start. The error is clipped at COST_CLIP x the prediction, and at a few times the usual error, so that one
 * descheduled step does not bend it. Coefficients are kept within [1/COST_RANGE, COST_RANGE] x the cold start's (where
 * that is 0: from 0 on). Deterministic: same updates, same bytes, on every machine.
 * Pure: no clock, no allocation, plain storage of fixed size, copied by assignment. Thread: one owner.
 */
#ifndef SLUICE_SCHEDULER_STEP_COST_H
#define SLUICE_SCHEDULER_STEP_COST_H

#include <stdbool.h>
#include <stdint.h>

#define COST_FEATURES 8
#define COST_KNEE 8
#define COST_TILE 32
#define COST_CLIP 2.0
#define COST_RANGE 64.0

enum cost_feature {
    COST_ONE, COST_FIRST, COST_SPILL, COST_ROWS, COST_READS, COST_PAIRS, COST_COLD, COST_HEAD
};

struct step_shape { /* a step as the planner counts it up; zero it, then add spans */
    uint32_t tokens, spans, rows;
    uint64_t reads, pairs;
    bool cold;
};

struct step_cost {
    double coef[COST_FEATURES];                 /* ns per unit */
    double start[COST_FEATURES];                /* cold start, the centre of the bounds */
    double level;                               /* of now, 1 = as usual; in the predictions, not in coef */
    double p[COST_FEATURES + 1][COST_FEATURES + 1]; /* doubt (covariance) of coef / cold start, and of the level */
    uint64_t n;                                 /* updates so far */
    double error;                               /* decayed mean of |relative error| before each update */
};

/* Cold-start tables: "cpu" (scaled by the model's bytes and the threads), "null" (its two made-up costs).
 * start_ns: finite, >= 0. */
void step_cost_init(struct step_cost *c, const double start_ns[COST_FEATURES]);
void step_cost_start_cpu(double start_ns[COST_FEATURES], uint64_t weight_bytes, uint64_t kv_bytes_token, uint32_t threads);
void step_cost_start_null(double start_ns[COST_FEATURES], uint64_t step_ns, uint64_t token_ns);

/* A span of n positions after pos added to the shape; rows: of it. n = 0 adds nothing. */
void step_shape_add(struct step_shape *s, uint32_t pos, uint32_t n, uint32_t rows);
uint64_t step_cost_ns(const struct step_cost *c, const struct step_shape *s);
void step_cost_learn(struct step_cost *c, const struct step_shape *s, uint64_t device_ns);
/* The most positions, 0 .. n, of one more span at pos, one row of it wanted, that keep the whole step within limit_ns.
 * O(log n). */
uint32_t step_cost_chunk(const struct step_cost *c, const struct step_shape *s, uint32_t pos, uint32_t n,
                         uint64_t limit_ns);

#endif
