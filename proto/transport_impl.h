/* transport_impl.h - inside proto/: what the two kinds of transport share, and the door between them.
 *
 * A kind embeds struct transport as its first member and fills `ops`. Tables of functions, as in a socket
 * layer: transport.c only dispatches. Thread: as transport.h.
 */
#ifndef SLUICE_PROTO_TRANSPORT_IMPL_H
#define SLUICE_PROTO_TRANSPORT_IMPL_H

#include "proto/transport.h"

#define TRANSPORT_ENDPOINT_MAX 256

struct transport_ops {
    void (*close)(struct transport *t);                            /* frees t */
    int (*send)(struct transport *t, uint32_t peer, const void *p, size_t n);
    int (*recv)(struct transport *t, struct transport_msg *m);
    void (*peer_drop)(struct transport *t, uint32_t peer);         /* listener only */
    bool (*ready)(const struct transport *t);
};

struct transport {
    const struct transport_ops *ops;
    bool listener;
    int fd, monitor_fd;
    uint64_t bad_envelopes;
    char endpoint[TRANSPORT_ENDPOINT_MAX];
};

/* Every received message's `owner` begins with this, so that transport_msg_free knows the kind. */
struct transport_owner { void (*free)(void *owner); };

#endif
