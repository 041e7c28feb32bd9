/* gateway.h - the gateway process: what its modules share, and on which thread each lives.
 *
 * Threads: the *loop* (one libuv loop: HTTP, RPC door, worker link, dispatch, streams, metrics)
 * owns all mutable state; two *text lanes* (gateway/lane.h) parse, render and tokenize, and hand
 * results back through a ring and uv_async. Nothing blocks the loop; bodies over 64 KiB are parsed
 * on a lane.
 */
#ifndef SLUICE_GATEWAY_GATEWAY_H
#define SLUICE_GATEWAY_GATEWAY_H

#include "gateway/api_limits.h"
#include "gateway/metrics.h"

#include <uv.h>

struct dispatch;   /* gateway/dispatch.h: gateway_core, the link, slots */
struct lanes;      /* gateway/lane.h */
struct http_server; /* gateway/http.h */
struct rpc_door;   /* gateway/rpc_door.h */
struct tenants;    /* gateway/tenants.h */
struct usage;      /* gateway/usage.h */
struct budget_file; /* gateway/budget_file.h */
struct explain;    /* gateway/explain.h */

struct gateway {
    const struct settings *settings;
    uv_loop_t *loop;
    struct model *model;
    int64_t started_wall_s;        /* unix time; `created` of the model card */
    uint64_t incarnation;
    struct api_limits limits;
    struct metrics metrics;
    struct dispatch *dispatch;
    struct lanes *lanes;
    struct http_server *http;
    struct rpc_door *rpc;
    struct tenants *tenants;       /* NULL only in tests: no tenants, no limits */
    struct usage *usage;           /* NULL only in tests: nothing is counted */
    struct budget_file *budgets;   /* NULL: a restart forgets what was used and reserved */
    struct explain *explain;       /* NULL: nothing is kept of requests that ended */
    bool draining;                 /* first SIGTERM: /ready 503, new requests 503 */
    uint32_t live_requests;
    uint64_t queue_bytes; /* bodies, ids, scores of all requests: max-queue-bytes bounds it */
};

/* Take `more` bytes of max-queue-bytes: 0, or -1 (nothing taken). Give back with gateway_uncharge.
 */
int gateway_charge(struct gateway *g, uint64_t more);
void gateway_uncharge(struct gateway *g, uint64_t bytes);

/* The class table of the settings' file into g->limits; before anything reads it. */
int gateway_classes(struct gateway *g, struct err *e);

uint64_t gateway_now_ns(void);     /* CLOCK_MONOTONIC */
int64_t gateway_wall_s(void);

#endif
