/* rpc_door.h - the RPC door: requests as msgpack over ZeroMQ (proto/rpc.h) on the libuv loop. */
#ifndef SLUICE_GATEWAY_RPC_DOOR_H
#define SLUICE_GATEWAY_RPC_DOOR_H

#include "gateway/gateway.h"

int rpc_door_create(struct rpc_door **out, struct gateway *g, struct err *e);
void rpc_door_destroy(struct rpc_door **d);
const char *rpc_door_endpoint(const struct rpc_door *d);

#endif
