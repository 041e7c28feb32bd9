/* bench_mixed_arm.h - one phase of load: real-time arrivals on their list, a batch that is never
 * empty, or both.
 *
 * All requests of a phase are made before it (real-time) or as they are sent (batch: microseconds);
 * replies are only kept, and read when the phase is over (arm_run does it last). The phase begins
 * after `warm_s` of batch alone. It ends when each arrival is answered or ARM_PATIENCE_S after the
 * last one, not before `seconds`; then what runs is cancelled and the server becomes idle.
 * Real-time: one try, what fails is an answer that never came. Batch: a refused or broken request
 * is sent again. With `again` set real-time requests are sent again too, and the phase waits for
 * every batch answer (`--kill`). Thread: one. Failure: -1 and `e` (ERR_CANCELLED = interrupted).
 * Order: set, arm_run, read, arm_deinit.
 */
#ifndef SLUICE_CLI_BENCH_MIXED_ARM_H
#define SLUICE_CLI_BENCH_MIXED_ARM_H

#include "cli/bench_answer.h"
#include "cli/bench_mixed_plan.h"
#include "cli/bench_server.h"

#define ARM_PATIENCE_S 60.0

struct arm;

struct arm_request {
    struct arm *arm;
    struct ask ask;
    struct buf body;
    struct http_call call;
    struct answer answer;
    double due_ms; /* when it should go (again); 0 = it is out or over */
    double first_sent_ms;
    uint32_t sends, broken, refused, answers; /* answers: whole ones that came */
    bool over;
};

struct arm {
    /* set by the caller */
    struct http_client *client;
    const struct ask_style *style;
    const struct load_plan *plan; /* NULL = no real-time */
    pid_t worker;                 /* 0 = not known */
    uint32_t keep;                /* batch requests that are out; 0 = none */
    uint32_t batch_in, batch_out;
    double warm_s, seconds;
    uint64_t seed, length_seed; /* ids are fresh in each arm, batch lengths are not */
    bool again;
    bool return_once; /* a refused real-time request is sent once more, when Retry-After says; only then */
    bool fixed; /* every batch request has just these lengths */
    /* called each turn while the phase runs, with the seconds since its begin; may be NULL */
    int (*watch)(struct arm *a, double at_s, struct err *e);
    void *ctx;
    const bool *stop; /* becomes true: interrupted */
    /* what came */
    struct arm_request *rt;
    struct arm_request **batch;
    uint32_t n_batch, cap_batch, batch_out_now, shortest, rt_left, rt_away; /* away: waiting out a Retry-After */
    double from_ms, to_ms, cpu_s, late_p99_ms, late_max_ms;
    struct bench_counters counters[2]; /* at its begin and end */
};

int arm_run(struct arm *a, struct err *e);
void arm_deinit(struct arm *a);

double arm_wall_s(const struct arm *a);
/* Share of the time that the worker was busy: by its CPU time, or its own count of steps' time. */
double arm_busy_cpu(const struct arm *a);
double arm_busy_steps(const struct arm *a);
/* Batch tokens whose event came between two times: prompts count when their first token comes. */
double arm_batch_tokens(const struct arm *a, double from_ms, double to_ms, bool prompts);
/* Mean number of batch streams between their first and last token. */
double arm_batch_streams(const struct arm *a);
double arm_first_wait_ms(const struct arm_request *r); /* INFINITY without a whole answer */

#endif
