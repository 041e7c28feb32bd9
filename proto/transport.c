/* transport.c - the door: asserts what every kind demands, then the kind's own function. */
#include "proto/transport_impl.h"

#include <assert.h>

void transport_msg_free(struct transport_msg *m)
{
    struct transport_owner *owner = m->owner;
    if (owner != NULL)
        owner->free(owner);
    *m = (struct transport_msg){.peer = 0};
}

void transport_close(struct transport **t)
{
    if (*t != NULL)
        (*t)->ops->close(*t);
    *t = NULL;
}

const char *transport_endpoint(const struct transport *t)
{
    return t->endpoint;
}

int transport_fd(const struct transport *t)
{
    return t->fd;
}

int transport_monitor_fd(const struct transport *t)
{
    return t->monitor_fd;
}

bool transport_ready(const struct transport *t)
{
    assert(!t->listener);
    return t->ops->ready(t);
}

int transport_send(struct transport *t, uint32_t peer, const void *p, size_t n)
{
    assert(p != NULL || n == 0);
    assert(t->listener || peer == 0);
    return t->ops->send(t, peer, p, n);
}

int transport_recv(struct transport *t, struct transport_msg *m)
{
    assert(m != NULL);
    *m = (struct transport_msg){.peer = 0};
    return t->ops->recv(t, m);
}

void transport_peer_drop(struct transport *t, uint32_t peer)
{
    assert(t->listener);
    t->ops->peer_drop(t, peer);
}

uint64_t transport_bad_envelopes(const struct transport *t)
{
    return t->bad_envelopes;
}
