/* sim_meter.h - what the clients of a simulated pool see: times, tokens, promises kept; by class and tenant.
 *
 * Every request counts once: what was refused, failed or never ended is an endless TTFT and keeps no promise.
 * A promise (attainment): TTFT within the class's objective, and the mean time per token after it within
 * the class's; a class without objectives promises to end, within its deadline if it has one.
 * Times are the clients': the worker's plus the network's. Sums of integers, so the order of calls changes nothing.
 * Thread: one owner.
 */
#ifndef SLUICE_CLI_SIM_METER_H
#define SLUICE_CLI_SIM_METER_H

#include "cli/sim_hist.h"
#include "cli/sim_live.h"
#include "cli/sim_trace.h"

struct sim_row {
    struct sim_hist ttft, gap, end; /* end: from arrival to the last token */
    uint64_t requests, finished, failed;
    uint64_t prompt_tokens, output_tokens; /* of what finished */
    uint64_t kept, kept_tokens;            /* promises; output of those */
    uint64_t last_ns;                      /* when the last one ended */
};

struct sim_request_seen {
    uint64_t first_ns, done_ns; /* 0 = not yet */
    uint32_t n_out;
};

struct sim_meter {
    const struct sim_trace *trace;
    const struct class_table *classes;
    uint64_t deadline_ns[CLASSES_MAX]; /* from arrival to the end; 0 = none */
    const struct sim_live *live;       /* what the way to the client adds; NULL = nothing */
    uint64_t seed, known_ns;           /* of that; the part of it that is counted anyway */
    struct sim_row *by_class;          /* CLASSES_MAX */
    struct sim_row *by_tenant;         /* trace->n_tenants */
    struct sim_request_seen *seen;     /* trace->n */
};

int sim_meter_init(struct sim_meter *m, const struct sim_trace *t, const struct class_table *classes);
void sim_meter_deinit(struct sim_meter *m);
void sim_meter_first(struct sim_meter *m, uint32_t request, uint64_t now_ns);
/* A later token of it, gap_ns behind the one before; bucket = sim_hist_bucket(gap_ns). */
static inline void sim_meter_gap(struct sim_meter *m, uint32_t request, uint32_t bucket,
                                 uint64_t gap_ns) {
    const struct sim_trace_row *r = &m->trace->rows[request];
    sim_hist_put(&m->by_class[r->cls].gap, bucket, gap_ns);
    sim_hist_put(&m->by_tenant[r->tenant].gap, bucket, gap_ns);
}
void sim_meter_done(struct sim_meter *m, uint32_t request, uint32_t n_out, uint64_t now_ns);
void sim_meter_failed(struct sim_meter *m, uint32_t request);
void sim_meter_end(struct sim_meter *m); /* what never ended failed */

#endif
