/* bench_link.h - what the subcommands of bench_link share: options, one verdict line, an arm of
 * load, figures of an arm, comparison with the same request alone.
 *
 * An arm replays a list of real-time arrivals, keeps a backlog of batch sequences, or both, on one
 * worker, and reads the worker's CPU clock and counters at its two ends. Thread: one.
 */
#ifndef SLUICE_TESTS_BENCH_LINK_H
#define SLUICE_TESTS_BENCH_LINK_H

#include "tests/bench/link_driver.h"

#include <stdio.h>

#define BENCH_NS 1000000000ull

struct bench_options {
    const char *program, *model, *log, *sluice, *only;
    bool json, null_engine, quick;
    uint64_t seed;
    uint32_t requests, seats, kv_tokens, prefill_chunk, tries, verify, context;
    uint32_t batch_in, batch_out; /* means; lengths are 0.5 to 1.5 of them */
    int host_kv;                  /* positions of the host tier; -1 = 8 x the pool */
    double rate, target, seconds, warm_s, away_s, copy_gbps;
    int worker_core, driver_core;
    const char *more[DRIVER_MORE_MAX];
};

/* Where a subcommand says its verdicts; JSON rows are collected in `json`. */
struct bench_report {
    bool as_json;
    struct buf json;
    uint32_t missed, void_why;
};
/* name, value against a bar; `most` = the value may not be above it. Adds to `missed`. */
void bench_verdict(struct bench_report *r, const char *name, double value, double bar, bool most);
/* A figure without a bar. */
void bench_figure(struct bench_report *r, const char *name, double value);
void bench_void(struct bench_report *r, const char *why); /* the run proves nothing, and why */

struct arrival {
    uint64_t at_ns; /* after the arm's start */
    uint32_t n_in, n_out;
};
struct arrivals {
    struct arrival *v;
    uint32_t n;
};
/* Poisson at `rate` a second; 16-32 in, 4-12 out. */
int arrivals_make(struct arrivals *a, uint64_t seed, uint32_t n, double rate);
void arrivals_free(struct arrivals *a);

struct arm {
    /* set by the caller */
    struct link_driver *d;
    const struct arrivals *list; /* NULL = no real-time */
    uint32_t keep;               /* batch sequences held at the worker; 0 = no batch */
    uint32_t batch_in, batch_out; /* means; lengths are 0.5 to 1.5 of them */
    bool open_ended;              /* 0.75 to 1.25, and their ends are known to nobody before */
    double warm_s, seconds; /* batch alone before the start; least length */
    uint64_t seed;          /* of its ids: fresh in each arm */
    uint64_t length_seed;   /* of its batch's lengths: arms that are compared have one */
    /* what came */
    struct driver_request *rt;
    struct driver_request **batch;
    uint32_t n_batch, cap_batch, live_batch, rt_left, shortest;
    uint64_t from_ns, to_ns;
    double wall_s, cpu_s, late_p99_s;
    double busy;                          /* device time / uptime, from STATUS */
    double seats_used;                    /* mean of active batch sequences, from STATUS */
    uint64_t batch_ids, preempted_long;   /* ids accepted; preemptions of sequences of >= 128 ids */
    struct msg_status status[2];          /* at its start and end */
    struct msg_account accounts[2][CLASSES_MAX];
};
int arm_run(struct arm *a, struct err *e);
void arm_free(struct arm *a); /* after driver_close: the driver knows its requests */
double arm_batch_rate(const struct arm *a, bool prompts); /* ids/s; with prompt positions */
double arm_tax(const struct arm *a); /* (positions computed - useful) / useful, all classes */

/* The same request on a worker that runs nothing else: 1 = identical, 0 = differs, -1 = error. */
int alone_compare(struct link_driver *d, const struct driver_request *r, struct err *e);

/* tokens/s of `sluice bench engine`: a prompt of n_in, and decode of each of `n` widths at
 * `context`. -1 = it could not be run. No worker should be busy meanwhile. */
int bench_engine_rates(const struct bench_options *o, uint32_t n_in, uint32_t context,
                       const uint32_t *widths, uint32_t n, double *prefill, double *decode);

struct driver_config bench_worker(const struct bench_options *o);
/* Gives it a host tier if the worker knows of one; false = it does not, or --host-kv 0. The flag
 * lives as long as the process. */
bool bench_host_tier(const struct bench_options *o, struct driver_config *c);
void bench_add_flag(struct driver_config *c, const char *flag);
/* Before all others: what the command line says wins. */
void bench_first_flag(struct driver_config *c, const char *flag);
double bench_quantile(const double *sorted, size_t n, double q);
void bench_sort(double *v, size_t n);

/* mixed / alone over paired arms, with the 95 % bootstrap interval (arrivals drawn again). */
struct bench_ratio {
    double alone, mixed, ratio, low, high;
};
enum bench_what { BENCH_TTFT, BENCH_GAP };
enum bench_stat { BENCH_P50, BENCH_MEAN, BENCH_P99 };
int bench_ratio(struct bench_ratio *out, const struct arm *alone[2], const struct arm *mixed[2],
                enum bench_what what, enum bench_stat stat, uint64_t seed);
double bench_arm_stat(const struct arm *a, enum bench_what what, enum bench_stat stat);

int bench_isolation(const struct bench_options *o, struct bench_report *r, struct err *e);
int bench_yield(const struct bench_options *o, struct bench_report *r, struct err *e);
int bench_collapse(const struct bench_options *o, struct bench_report *r, struct err *e);
int bench_checks(const struct bench_options *o, struct bench_report *r, struct err *e);
int bench_orphan(const struct bench_options *o, struct bench_report *r, struct err *e);

#endif
