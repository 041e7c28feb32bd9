/* sim_cluster.h - a pool in virtual time: gateway_cores, workers and a constant network between them.
 *
 * The decisions are production code: gateway_core queues and sends, worker_core plans steps. What is simulated is
 * what surrounds them: arrivals from a trace, devices (sim_model), messages that take net_ns each way. A gateway_core
 * holds GATEWAY_WORKERS_MAX workers at most: a larger pool is several cells of a gateway and its share of the workers,
 * and a request goes to the cell that has fewest unfinished ones for each of its workers.
 *
 * Not simulated: text, tokenizer, HTTP, lost messages. STATUS goes out on the live worker's beat of 250 ms, but only
 * where something came or ended since the last one.
 *
 * Order: sim_cluster_run does all of it. Same plan, trace and hardware: same results, byte for byte, with `runs` or
 * without (sim_node.h). Thread: one owner. Failure: -1 and a sentence.
 */
#ifndef SLUICE_CLI_SIM_CLUSTER_H
#define SLUICE_CLI_SIM_CLUSTER_H

#include "cli/sim_hardware.h"
#include "cli/sim_meter.h"
#include "cli/sim_trace.h"

#define SIM_WORKERS_MAX 1000u
#define SIM_NET_MIN_NS 1000u
#define SIM_NET_MAX_NS 100000000u

struct sim_plan {
    const struct sim_hardware *hardware;
    struct class_table classes;
    uint32_t workers;
    uint32_t queue;                         /* requests a gateway holds, queued and running */
    uint64_t net_ns;                        /* each way, >= SIM_NET_MIN_NS */
    uint64_t deadline_ns[CLASSES_MAX];      /* counted, not enforced; 0 = none */
    uint32_t weights[SIM_TRACE_TENANTS_MAX]; /* thousandths; 0 = 1000 */
    uint32_t seed;
    bool runs, check;                       /* check: the auditors, now and then */
    bool by_load;                           /* requests go where most room is, whatever is cached there */
};

struct sim_totals {
    uint64_t end_ns;                        /* when the last answer ended */
    uint64_t busy_ns[2], busiest_ns, laziest_ns; /* device time by rank; of the workers */
    uint64_t positions, steps, preemptions, parks, drops, copies;
    uint64_t recomputed, dropped;           /* waste, positions */
    uint64_t cache_hits, cache_misses;      /* blocks */
    uint64_t resubmits;
    /* Not part of a report: how it was computed. */
    uint64_t events, runs, run_steps;
};

/* m: initialised for the trace. */
int sim_cluster_run(const struct sim_plan *plan, const struct sim_trace *t, struct sim_meter *m,
                    struct sim_totals *out, struct err *e);

#endif
