/* sim_worker.h - a worker in virtual time: worker_core, its shell's records and a virtual device
 * (sim_device).
 *
 * Why: the same decision object as in the live worker, driven by one gateway that is always there,
 * so that policy can be measured by counting (tests, benchmarks, the simulator). Deterministic:
 * same calls, same bytes.
 *
 * Use: create; any number of submit and run_until; destroy. Time only goes on in run_until. What
 * the worker sends goes to the sink, at its virtual time; a finish is acknowledged at once. The
 * sink must not call back into the worker from `tokens` or `event`; it notes what it wants and acts
 * between two sim_worker_step calls.
 *
 * A request's real length (n_out) may be shorter than what the core is told (max_out): the device
 * then ends it with EOS, as a model would. Every id is compared with the same request's chain
 * without blocks: `wrong` counts what differs.
 *
 * Thread: one owner. Memory: all at create: ids for max_slots x n_ctx. Failure: NULL or -1 for no
 * memory, no slot.
 */
#ifndef SLUICE_CLI_SIM_WORKER_H
#define SLUICE_CLI_SIM_WORKER_H

#include "cli/sim_device.h"
#include "scheduler/worker_core.h"

struct sim_tokens { /* ids [from, to) by index; prompt first */
    uint64_t request;
    uint8_t cls;
    uint32_t from, to, n_prompt;
    enum finish finish;
    uint64_t now_ns;
};

struct sim_sink { /* each may be NULL */
    void *ctx;
    void (*tokens)(void *ctx, const struct sim_tokens *t);
    /* The request's first span was submitted; its first segment ends first_segment_ns later. */
    void (*started)(void *ctx, uint64_t request, uint64_t now_ns, uint64_t first_segment_ns);
    /* Every event that the core was given, with its actions, before they are performed. */
    void (*event)(void *ctx, const struct worker_event *ev, uint64_t now_ns,
                  const struct worker_action *actions, uint32_t n);
};

struct sim_worker_config {
    struct worker_core_config core;
    struct sim_cost cost;
    uint32_t n_segments;
    uint32_t corrupt_every; /* sim_device */
    uint32_t check_every;   /* worker_core_check every so many events; 0 = never */
    struct sim_sink sink;
};

struct sim_request {
    uint64_t id; /* unique, > 0 */
    uint8_t cls;
    uint64_t tag, seed;
    const int32_t *ids;                /* the prompt's; copied */
    uint32_t n_prompt, n_out, max_out; /* n_out <= max_out */
    struct hash128 root;
    uint32_t ttft_ms, tpot_ms;
};

struct sim_worker;

struct sim_worker *sim_worker_create(const struct sim_worker_config *cfg);
void sim_worker_destroy(struct sim_worker **w);

int sim_worker_submit(struct sim_worker *w, const struct sim_request *r); /* -1: no slot is free */
void sim_worker_cancel(struct sim_worker *w, uint64_t request);
uint64_t sim_worker_now_ns(const struct sim_worker *w);
uint64_t
sim_worker_next_ns(const struct sim_worker *w); /* SIM_NEVER: nothing will happen by itself */
/* One event that is due by until_ns: true; else time is until_ns: false. */
bool sim_worker_step(struct sim_worker *w, uint64_t until_ns);
void sim_worker_run_until(struct sim_worker *w, uint64_t until_ns);

struct sim_worker_stats {
    struct worker_stats core;
    struct sim_device_stats device;
    uint64_t events, useful[2]; /* positions that had to be computed, by rank: each position of a
                                   sequence once */
    uint64_t prompt_positions;  /* computed below the prompt's end, again or not */
    uint64_t wrong;             /* ids that differ from the request's own chain */
    uint32_t free_slots;
};
void sim_worker_stats(const struct sim_worker *w, struct sim_worker_stats *out);
const struct worker_core *sim_worker_core(const struct sim_worker *w);
const struct sim_device *sim_worker_device(const struct sim_worker *w);
const char *
sim_worker_bad(const struct sim_worker *w); /* NULL, or the first broken rule of core or device */

#endif
