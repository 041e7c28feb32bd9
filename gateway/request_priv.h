/* request_priv.h - the inside of a request, shared by request.c (its life) and reply.c (its words).
 */
#ifndef SLUICE_GATEWAY_REQUEST_PRIV_H
#define SLUICE_GATEWAY_REQUEST_PRIV_H

#include "gateway/choice.h"
#include "gateway/lane.h"
#include "gateway/tenants.h"

struct request {
    struct lane_job lane;          /* first: the lane gives it back as a pointer */
    struct gateway *g;
    struct api_job job;            /* parameters and prompts; lives as long as the request */
    struct stop_set *stops;
    struct choice *choices; uint32_t n_choices, n_finished;
    enum request_state state;
    bool on_lane, closed;          /* closed while a lane works: freed when it comes back */
    bool starting;                 /* choices are being handed to the dispatcher: wake() waits */
    uint64_t charged;              /* bytes of max-queue-bytes that are ours */
    bool pulled;                   /* something was sent: errors go into the stream now */
    bool usage_sent;
    uint32_t turn;                 /* choice that is looked at first */
    struct err err; uint32_t retry_ms; /* 0 = no use in trying again */
    struct tenant *tenant;         /* held; NULL only without tenants */
    struct tenant_share share;     /* its place in the tenant's budget */
    bool prompt_charged;
    char id[48];                   /* chatcmpl-... / cmpl-... */
    char label[129];
    int64_t created_s;
    uint64_t deadline_ns;                 /* monotonic, 0 = none */
    uint64_t came_ns, read_ns, let_in_ns; /* submitted; read by its lane; through its budget */
    struct buf head; /* `{"id":..,"object":..,"created":..,"model":..` of each chunk */
    struct buf body;               /* whole reply */
    void (*wake)(void *door);
    void *door;
};

#endif
