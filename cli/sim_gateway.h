/* sim_gateway.h - one gateway of a simulated pool: gateway_core and the little its shell does.
 *
 * Use: create, join (its workers appear, at time 0); arrive, tokens, status, tick as they come, time never falling.
 * What it sends goes to the sink, in order. Thread: one owner. Failure: NULL for no memory.
 */
#ifndef SLUICE_CLI_SIM_GATEWAY_H
#define SLUICE_CLI_SIM_GATEWAY_H

#include "cli/sim_cluster.h"
#include "cli/sim_node.h"
#include "scheduler/gateway_core.h"

enum sim_wire_kind { SIM_WIRE_SUBMIT, SIM_WIRE_ACK, SIM_WIRE_CANCEL };

struct sim_wire { /* to a worker */
    enum sim_wire_kind kind;
    uint32_t node;             /* of the pool */
    struct sim_node_request r; /* SUBMIT: without ids; the others: r.sub */
};

struct sim_gateway_config {
    const struct sim_plan *plan;
    const struct sim_trace *trace;
    struct sim_meter *meter;
    const struct worker_core_config *core; /* of its workers */
    uint32_t first_node, n_nodes;
    void (*send)(void *ctx, const struct sim_wire *w);
    void *ctx;
};

struct sim_gateway;

struct sim_gateway *sim_gateway_create(const struct sim_gateway_config *cfg);
void sim_gateway_destroy(struct sim_gateway **g);
void sim_gateway_join(struct sim_gateway *g);
void sim_gateway_arrive(struct sim_gateway *g, uint32_t request, uint64_t now_ns);
void sim_gateway_tokens(struct sim_gateway *g, const struct sim_node_tokens *t, uint64_t now_ns);
struct sim_node_status {
    uint32_t window[CLASSES_MAX], free_blocks;
};
void sim_gateway_status(struct sim_gateway *g, uint32_t node, const struct sim_node_status *s,
                        uint64_t now_ns);
uint64_t sim_gateway_next_tick_ns(const struct sim_gateway *g);
void sim_gateway_tick(struct sim_gateway *g, uint64_t now_ns);
uint32_t sim_gateway_unfinished(const struct sim_gateway *g);
uint64_t sim_gateway_resubmits(const struct sim_gateway *g);
const char *sim_gateway_check(const struct sim_gateway *g);

#endif
