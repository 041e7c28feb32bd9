/* sim_node.h - one worker of a simulated pool: worker_core, its shell's records, a hollow device (sim_device).
 *
 * Two ways through time, with the same outcome to the byte:
 *   stepping   every end of a step is an event for worker_core, as in the live worker;
 *   runs       as long as worker_core says that nothing is decided (worker_core_run_limit), the ends of the same
 *              decode step are counted up and told at once, when something else happens or is asked.
 * What reaches the sink is the same, later (a run's tokens with their own times), unless `merge`.
 *
 * Use: sim_node_next_ns says when something will happen by itself; sim_node_advance goes there (everything due by
 * then); submit, ack, cancel and status at a time that it was advanced to. The sink is called in order of time.
 * Thread: one owner. Memory: all at create. Failure: NULL for no memory; -1 for no slot.
 */
#ifndef SLUICE_CLI_SIM_NODE_H
#define SLUICE_CLI_SIM_NODE_H

#include "cli/sim_device.h"
#include "cli/sim_meter.h"
#include "scheduler/worker_core.h"

struct sim_node_tokens { /* records [from, to) of a submission, by index */
    uint32_t node;
    struct sub_id sub;
    uint32_t from, to;
    uint32_t cached; /* prompt positions that the first start took from the cache */
    enum finish finish;
    uint64_t now_ns;
};

struct sim_node_config {
    struct worker_core_config core;
    const struct sim_model *model; /* outlives the node */
    const struct sim_live *live;   /* NULL = steps do not scatter; outlives the node */
    uint64_t seed;
    uint32_t n_segments, index;
    uint64_t copy_ns;
    bool runs;
    uint32_t check_every;          /* worker_core_check every so many events; 0 = never */
    uint64_t net_ns;               /* added to what the meter sees */
    struct sim_meter *meter;
    bool merge;                    /* runs send no TOKENS: the next one that stepping would send brings all */
    void (*tokens)(void *ctx, const struct sim_node_tokens *t);
    void *ctx;
};

struct sim_node_request {
    struct sub_id sub;
    uint32_t request; /* the meter's index */
    uint8_t cls;
    uint64_t tag;
    uint32_t n_prompt, max_total;
    uint32_t n_known;   /* prompt, and output accepted elsewhere */
    const int32_t *ids; /* n_known, or NULL without prefix information */
    struct hash128 root;
    uint32_t account;
};

struct sim_node;

struct sim_node *sim_node_create(const struct sim_node_config *cfg);
void sim_node_destroy(struct sim_node **n);

uint64_t sim_node_next_ns(struct sim_node *n);
void sim_node_advance(struct sim_node *n, uint64_t now_ns);
/* A run has ends by then that were not taken. */
bool sim_node_run_due(const struct sim_node *n, uint64_t now_ns);
void sim_node_submit(struct sim_node *n, const struct sim_node_request *r);
void sim_node_ack(struct sim_node *n, struct sub_id sub);
void sim_node_cancel(struct sim_node *n, struct sub_id sub);
/* Something happened since the last call that a STATUS would tell. */
bool sim_node_changed(struct sim_node *n);

struct sim_node_stats {
    struct worker_stats core;
    struct sim_device_stats device;
    uint64_t events, runs, run_steps;
};
void sim_node_stats(const struct sim_node *n, struct sim_node_stats *out);
const char *sim_node_bad(const struct sim_node *n); /* NULL, or the first broken rule */

#endif
