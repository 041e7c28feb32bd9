/* bench_rig.h - what the parts of bench_engine share: an engine whose KV pool is full of a computed
 * prompt, single steps of any width and context timed, medians.
 *
 * Order: bench_rig_open, steps, bench_rig_close. What a step costs does not depend on what K and V
 * say, so a context is never computed: its blocks hold copies of one prompt's. A failure prints
 * why and ends the program. Thread: one.
 */
#ifndef SLUICE_TESTS_BENCH_RIG_H
#define SLUICE_TESTS_BENCH_RIG_H

#include "cli/engine_drive.h"

#define BENCH_PREFILL 512
#define BENCH_SEQS 16

struct bench_rig {
    struct drive drive;
    uint32_t threads, each; /* each: blocks of a sequence */
    int32_t ids[BENCH_PREFILL + BENCH_SEQS];
};

/* positions: of each of BENCH_SEQS sequences; those of one alone may be all of them. */
void bench_rig_open(struct bench_rig *r, const struct model *m, enum engine_kernel kernel,
                    uint32_t threads, uint32_t positions);
void bench_rig_close(struct bench_rig *r);

/* One step of `seqs` sequences, each with n new positions behind `pos`, a sampled row each: its
 * time from submit to result. */
double bench_rig_step_s(struct bench_rig *r, uint32_t seqs, uint32_t pos, uint32_t n);

double bench_now_s(void);
/* v is sorted. */
double bench_median(double *v, int n);
double bench_quantile(double *v, int n, double q);

#endif
