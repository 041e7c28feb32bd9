/* vload.h - load for a virtual worker: a recorded list of real-time requests beside a backlog of
 * batch sequences.
 *
 * All rows of bench_virtual are made of arms: one worker, one list (or none), one backlog (or
 * none), one span of virtual time. Same config and seed = same bytes. Prompt ids are fresh for each
 * (seed, request), so that no arm finds another's prefixes.
 */
#ifndef SLUICE_TESTS_BENCH_VLOAD_H
#define SLUICE_TESTS_BENCH_VLOAD_H

#include "cli/sim_worker.h"

#define VLOAD_MS 1000000ull
#define VLOAD_S 1000000000ull
#define VLOAD_BLOCK 16

struct vload_arrival {
    uint64_t at_ns;
    uint32_t n_prompt, n_out;
};

struct vload_list {
    struct vload_arrival *a;
    uint32_t n;
};

struct vload_batch {      /* outstanding 0 = none */
    uint32_t outstanding; /* submitted and not finished, at every moment */
    uint32_t prompt_min, prompt_max, out_min, out_max;
    uint32_t max_out; /* what the scheduler is told */
};

struct vload_arm {
    struct sim_worker_config worker;
    const struct vload_list *list; /* NULL = none */
    struct vload_batch batch;
    uint64_t seed, duration_ns;
    uint64_t warm_ns; /* ids of the backlog count from then on: the first prompts bring none */
    void (*event)(void *ctx, const struct worker_event *ev, uint64_t now_ns,
                  const struct worker_action *actions, uint32_t n); /* NULL = none; as sim_sink's */
    void *event_ctx;
};

/* Of one measure, in ms. Lengths are whole tokens, so times come in steps of a token's cost (3 % of
 * a short prompt's): `middle`, the mean from p45 to p55, is a median that does not jump with them.
 */
struct vload_figures {
    double p50, middle, mean, p99, max;
    uint32_t n;
};

struct vload_result {
    struct vload_figures ttft,
        gap; /* of the list's requests; one without an answer is an infinite ttft */
    uint64_t batch_out, batch_done; /* ids and finishes sent in (warm_ns, duration_ns] */
    uint64_t rt_missing;
    struct sim_worker_stats stats; /* at duration_ns */
    double busy[2];                /* device time by rank / duration */
    const char *bad;
};

/* The virtual device as the CPU engine is on one core of the machine of docs/BENCHMARKS.md. */
struct sim_cost vload_cpu_cost(void);
/* A worker with `seats`, `blocks` that can be used, `host` slots. Chunk 128. */
struct sim_worker_config vload_worker(uint32_t seats, uint32_t blocks, uint32_t host,
                                      uint32_t slots);

int vload_run(const struct vload_arm *arm, struct vload_result *out); /* -1: no memory */

/* `n` arrivals with exponential gaps of `mean_gap_ns`, lengths uniform. */
int vload_list_poisson(struct vload_list *l, uint64_t seed, uint32_t n, uint64_t mean_gap_ns,
                       const uint32_t prompt[2], const uint32_t out[2]);
/* Every period_ns `count` arrivals of one length at once, the first after half a period. */
int vload_list_waves(struct vload_list *l, uint32_t waves, uint64_t period_ns, uint32_t count,
                     uint32_t n_prompt, uint32_t n_out);
void vload_list_free(struct vload_list *l);

void vload_ids(int32_t *ids, uint32_t n, uint64_t seed, uint64_t request);
struct vload_figures vload_figures(double *ms, uint32_t n); /* sorts */

#endif
