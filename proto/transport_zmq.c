/* transport_zmq.c - ROUTER and DEALER behind transport.h.
 *
 * What libzmq does that decides this file (each tried; tests/unit/proto/test_transport_zmq.c holds it so):
 *   - a ROUTER without MANDATORY drops silently at its high-water mark; with it EAGAIN and EHOSTUNREACH are told;
 *   - a DEALER that reconnects delivers its old queue to the new peer: so it never reconnects (RECONNECT_IVL
 *     -1), queues nothing before it is connected (IMMEDIATE), and its end is told by the monitor;
 *   - zmq_send with DONTWAIT may give EAGAIN only because commands were not looked at: read ZMQ_EVENTS, try again;
 *   - ZMQ_FD is edge-triggered, of the socket and of the monitor: recv runs both dry;
 *   - a ROUTER makes up routing ids that no peer can choose; a peer with an id in use is ignored (no handover).
 */
#include "proto/transport_impl.h"

#include "base/mem.h"
#include "proto/peer_map.h"
#include "proto/zmq_context.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

/* Per peer, in messages. Sending: over 1,000 messages a peer has not taken for a long time, FULL; windows keep a
 * healthy one far below. Receiving: small, because what is not read stays in the peer's TCP window
 * and nothing is lost by it, while each place may hold max_bytes. */
#define SEND_HWM 1024
#define RECV_HWM 64
/* A peer that connects and says nothing, or dials a port that swallows packets. */
#define HANDSHAKE_MS 5000
#define CONNECT_MS 5000

#define DOWN_EVENTS                                                                                \
    (ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_CLOSE_FAILED |                          \
     ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |                            \
     ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |                       \
     ZMQ_EVENT_MONITOR_STOPPED)

struct zmq_transport {
    struct transport base;
    void *socket, *monitor;
    struct peer_map *peers;        /* listener */
    bool ready, down;              /* dialer */
    struct zmq_owner *spare;       /* allocated before a message is taken, so that none is lost for memory */
    char domain[ZMQ_DOMAIN_MAX];   /* listener with CURVE */
};

struct zmq_owner {
    struct transport_owner base;
    zmq_msg_t msg;                 /* never moved: small bodies lie inside it */
};

static void owner_free(void *p)
{
    struct zmq_owner *o = p;
    zmq_msg_close(&o->msg);
    mem_free(o);
}

static struct zmq_transport *self(struct transport *t)
{
    return (struct zmq_transport *)t;
}

static void zmq_transport_close(struct transport *t)
{
    struct zmq_transport *z = self(t);
    if (z->monitor != NULL) {
        zmq_socket_monitor(z->socket, NULL, 0);
        zmq_close(z->monitor);
    }
    if (z->socket != NULL)
        zmq_close(z->socket);
    zmq_context_forget(z->domain);
    peer_map_destroy(&z->peers);
    if (z->spare != NULL)
        owner_free(z->spare); /* it may hold the last frame of a dropped message */
    mem_free(z);
    zmq_context_put();
}

/* Makes the socket look at what its I/O thread told it; -1 = the context ends. */
static int look(void *socket)
{
    int events;
    size_t n = sizeof events;
    return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &n);
}

/* Sends `msg` unless it would block; 0 or an errno. EINTR is tried again: nothing was sent. */
static int send_now(void *socket, zmq_msg_t *msg, int flags)
{
    for (unsigned tries = 0;;) {
        if (zmq_msg_send(msg, socket, flags | ZMQ_DONTWAIT) >= 0)
            return 0;
        int code = errno;
        if (code == EINTR)
            continue;
        if (code != EAGAIN || tries++ > 0 || look(socket) != 0)
            return code;
    }
}

static int send_result(int code)
{
    return code == 0 ? TRANSPORT_OK : code == EAGAIN ? TRANSPORT_FULL : TRANSPORT_GONE;
}

/* The frame that names the peer. EAGAIN and "no such peer" show here, before the body is given away. */
static int send_route(struct zmq_transport *z, uint32_t peer)
{
    size_t n;
    const void *id = peer_map_id(z->peers, peer, &n);
    zmq_msg_t msg;
    if (id == NULL)
        return TRANSPORT_GONE;
    if (zmq_msg_init_size(&msg, n) != 0)
        return TRANSPORT_FULL;
    memcpy(zmq_msg_data(&msg), id, n);
    int rc = send_result(send_now(z->socket, &msg, ZMQ_SNDMORE));
    zmq_msg_close(&msg);
    if (rc == TRANSPORT_GONE)
        peer_map_drop(z->peers, peer);
    return rc;
}

static int zmq_transport_send(struct transport *t, uint32_t peer, const void *p, size_t n)
{
    struct zmq_transport *z = self(t);
    zmq_msg_t msg;
    if (z->down)
        return TRANSPORT_GONE;
    if (zmq_msg_init_size(&msg, n) != 0)
        return TRANSPORT_FULL; /* no memory: as if the peer were slow */
    if (n > 0)
        memcpy(zmq_msg_data(&msg), p, n);
    int rc = t->listener ? send_route(z, peer) : TRANSPORT_OK;
    if (rc == TRANSPORT_OK)
        rc = send_result(send_now(z->socket, &msg, 0));
    zmq_msg_close(&msg);
    return rc;
}

/* Takes one frame without blocking; false = none. */
static bool take_frame(void *socket, zmq_msg_t *msg)
{
    for (;;) {
        if (zmq_msg_recv(msg, socket, ZMQ_DONTWAIT) >= 0)
            return true;
        if (errno != EINTR)
            return false;
    }
}

/* Takes the frames of a message after the first; how many. They come whole or not at all. */
static unsigned drop_rest(void *socket, zmq_msg_t *msg)
{
    unsigned n = 0;
    while (zmq_msg_more(msg) && take_frame(socket, msg))
        n++;
    return n;
}

/* One message into z->spare: 1 = taken, 0 = a bad envelope was dropped, -1 = none there. */
static int take_message(struct zmq_transport *z, uint32_t *peer)
{
    zmq_msg_t *body = &z->spare->msg;
    if (!take_frame(z->socket, body))
        return -1;
    *peer = 0;
    if (z->base.listener) {
        *peer = peer_map_touch(z->peers, zmq_msg_data(body), zmq_msg_size(body));
        if (!zmq_msg_more(body) || !take_frame(z->socket, body) || *peer == PEER_NONE) {
            drop_rest(z->socket, body);
            return 0;
        }
    }
    return drop_rest(z->socket, body) == 0;
}

/* Reads the monitor until it is empty: what became of the connection. */
static void read_monitor(struct zmq_transport *z)
{
    zmq_msg_t msg;
    zmq_msg_init(&msg);
    while (take_frame(z->monitor, &msg)) {
        uint16_t event = 0;
        if (zmq_msg_size(&msg) >= sizeof event)
            memcpy(&event, zmq_msg_data(&msg), sizeof event);
        if (event & ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
            z->ready = true;
        if (event & DOWN_EVENTS)
            z->down = true;
        drop_rest(z->monitor, &msg); /* the address */
    }
    zmq_msg_close(&msg);
    if (z->down)
        z->ready = false;
}

/* z->spare is there, holding an empty message. */
static bool have_spare(struct zmq_transport *z)
{
    if (z->spare != NULL)
        return true;
    z->spare = mem_alloc(sizeof(*z->spare));
    if (z->spare == NULL)
        return false;
    z->spare->base.free = owner_free;
    zmq_msg_init(&z->spare->msg);
    return true;
}

static int zmq_transport_recv(struct transport *t, struct transport_msg *m)
{
    struct zmq_transport *z = self(t);
    for (;;) {
        uint32_t peer;
        if (!have_spare(z))
            return TRANSPORT_EMPTY; /* the messages stay where they are */
        int got = take_message(z, &peer);
        if (got > 0) {
            *m = (struct transport_msg){.peer = peer, .p = zmq_msg_data(&z->spare->msg),
                                        .n = zmq_msg_size(&z->spare->msg), .owner = z->spare};
            z->spare = NULL;
            return TRANSPORT_OK;
        }
        if (got == 0) {
            t->bad_envelopes++;
            continue;
        }
        if (z->monitor == NULL || z->down)
            return z->down ? TRANSPORT_DOWN : TRANSPORT_EMPTY;
        read_monitor(z);
        if (!z->down)
            return TRANSPORT_EMPTY;
        /* Down: what arrived before the end comes first. */
    }
}

static void zmq_transport_drop(struct transport *t, uint32_t peer)
{
    peer_map_drop(self(t)->peers, peer);
}

static bool zmq_transport_ready(const struct transport *t)
{
    return ((const struct zmq_transport *)t)->ready;
}

static const struct transport_ops zmq_ops = {
    .close = zmq_transport_close,
    .send = zmq_transport_send,
    .recv = zmq_transport_recv,
    .peer_drop = zmq_transport_drop,
    .ready = zmq_transport_ready,
};

static int set_int(void *socket, int option, int v)
{
    return zmq_setsockopt(socket, option, &v, sizeof v);
}

static int set_key(void *socket, int option, const uint8_t key[TRANSPORT_KEY_BYTES])
{
    return zmq_setsockopt(socket, option, key, TRANSPORT_KEY_BYTES);
}

static int set_common(void *socket, size_t max_bytes)
{
    int64_t max = (int64_t)max_bytes;
    return set_int(socket, ZMQ_LINGER, 0) | set_int(socket, ZMQ_SNDHWM, SEND_HWM) |
           set_int(socket, ZMQ_RCVHWM, RECV_HWM) |
           set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) |
           zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max, sizeof max);
}

/* CURVE, or nothing: libzmq's NULL mechanism without a domain asks no ZAP handler. */
static int set_keys(struct zmq_transport *z, const struct transport_keys *k, struct err *e)
{
    int rc = set_key(z->socket, ZMQ_CURVE_SECRETKEY, k->own_secret) |
             set_key(z->socket, ZMQ_CURVE_PUBLICKEY, k->own_public);
    if (!z->base.listener) {
        rc |= set_key(z->socket, ZMQ_CURVE_SERVERKEY, k->server_public);
    } else {
        if (zmq_context_admit(k, z->domain, e) != 0)
            return -1;
        rc |= set_int(z->socket, ZMQ_CURVE_SERVER, 1);
        rc |= zmq_setsockopt(z->socket, ZMQ_ZAP_DOMAIN, z->domain, strlen(z->domain));
    }
    return rc == 0 ? 0 : err_set(e, ERR_IO, "cannot set the link's keys: %s", zmq_strerror(errno));
}

static int set_fd(void *socket, int *fd)
{
    size_t n = sizeof *fd;
    return zmq_getsockopt(socket, ZMQ_FD, fd, &n);
}

static int open_socket(struct zmq_transport *z, void *context, const struct transport_keys *keys,
                       size_t max_bytes, struct err *e)
{
    z->socket = zmq_socket(context, z->base.listener ? ZMQ_ROUTER : ZMQ_DEALER);
    if (z->socket == NULL)
        return err_set(e, ERR_IO, "cannot make a ZeroMQ socket: %s", zmq_strerror(errno));
    if (set_common(z->socket, max_bytes) != 0 || set_fd(z->socket, &z->base.fd) != 0)
        return err_set(e, ERR_IO, "cannot set up a ZeroMQ socket: %s", zmq_strerror(errno));
    return keys != NULL && keys->on ? set_keys(z, keys, e) : 0;
}

/* A transport with its socket, not yet bound or connected. */
static struct zmq_transport *zmq_transport_new(bool listener, const struct transport_keys *keys,
                                               size_t max_bytes, void **context, struct err *e)
{
    assert(max_bytes > 0 && max_bytes <= INT64_MAX);
    *context = zmq_context_get(e);
    if (*context == NULL)
        return NULL;
    struct zmq_transport *z = mem_zalloc(sizeof(*z));
    if (z == NULL) {
        zmq_context_put();
        err_set(e, ERR_NO_MEMORY, "no memory for a transport");
        return NULL;
    }
    z->base = (struct transport){.ops = &zmq_ops, .listener = listener, .fd = -1, .monitor_fd = -1};
    if (open_socket(z, *context, keys, max_bytes, e) != 0) {
        zmq_transport_close(&z->base);
        return NULL;
    }
    return z;
}

/* "HOST:PORT" with a port of digits up to 65535, or "*". libzmq looks at it late, and not at all when dialing. */
static bool has_port(const char *address)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon == address)
        return false;
    if (strcmp(colon, ":*") == 0)
        return true;
    size_t n = strspn(colon + 1, "0123456789");
    return n >= 1 && n <= 5 && colon[1 + n] == '\0' && strtoul(colon + 1, NULL, 10) <= 65535;
}

/* "tcp://host:0" in libzmq's words, which knows "*" only. */
static int bind_name(const char *endpoint, char out[TRANSPORT_ENDPOINT_MAX], struct err *e)
{
    size_t n = strlen(endpoint);
    bool tcp = strncmp(endpoint, "tcp://", 6) == 0 && has_port(endpoint + 6);
    bool ipc = strncmp(endpoint, "ipc://", 6) == 0;
    if ((!tcp && !ipc) || n < 7 || n >= TRANSPORT_ENDPOINT_MAX)
        return err_set(e, ERR_INVALID, "\"%s\" is not tcp://HOST:PORT or ipc://PATH", endpoint);
    memcpy(out, endpoint, n + 1);
    if (tcp && strcmp(out + n - 2, ":0") == 0)
        out[n - 1] = '*';
    return 0;
}

static int bind_socket(struct zmq_transport *z, const char *endpoint, struct err *e)
{
    char name[TRANSPORT_ENDPOINT_MAX];
    size_t n = sizeof z->base.endpoint;
    if (bind_name(endpoint, name, e) != 0)
        return -1;
    /* a dual-stack socket would call 127.0.0.1 ::ffff:127.0.0.1, which people are shown */
    if (strchr(name, '[') == NULL && set_int(z->socket, ZMQ_IPV6, 0) != 0)
        return err_set(e, ERR_IO, "%s: %s", endpoint, zmq_strerror(errno));
    if (set_int(z->socket, ZMQ_ROUTER_MANDATORY, 1) != 0 || zmq_bind(z->socket, name) != 0)
        return err_set(e, errno == EINVAL ? ERR_INVALID : ERR_IO, "cannot listen on %s: %s%s",
                       endpoint, zmq_strerror(errno),
                       errno == EADDRINUSE ? " (is another one running?)" : "");
    if (zmq_getsockopt(z->socket, ZMQ_LAST_ENDPOINT, z->base.endpoint, &n) != 0)
        return err_set(e, ERR_IO, "%s: %s", endpoint, zmq_strerror(errno));
    if (strncmp(name, "ipc://", 6) == 0 && name[6] != '@' && chmod(name + 6, 0600) != 0)
        return err_set(e, ERR_IO, "cannot close %s to others: %s", endpoint, strerror(errno));
    return 0;
}

int transport_listen(struct transport **out, const char *endpoint,
                     const struct transport_keys *keys, size_t max_bytes, struct err *e)
{
    void *context;
    *out = NULL;
    struct zmq_transport *z = zmq_transport_new(true, keys, max_bytes, &context, e);
    if (z == NULL)
        return -1;
    int rc = bind_socket(z, endpoint, e);
    if (rc == 0 && peer_map_create(&z->peers, TRANSPORT_PEERS_MAX) != 0)
        rc = err_set(e, ERR_NO_MEMORY, "no memory for the table of peers");
    if (rc != 0) {
        zmq_transport_close(&z->base);
        return -1;
    }
    *out = &z->base;
    return 0;
}

static int open_monitor(struct zmq_transport *z, void *context, struct err *e)
{
    static _Atomic unsigned long counter; /* names must differ in the process; nothing is ordered by it */
    char name[64];
    snprintf(name, sizeof name, "inproc://sluice.monitor.%lu",
             atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed));
    z->monitor = zmq_socket(context, ZMQ_PAIR);
    if (z->monitor == NULL || set_int(z->monitor, ZMQ_LINGER, 0) != 0 ||
        zmq_socket_monitor(z->socket, name, DOWN_EVENTS | ZMQ_EVENT_HANDSHAKE_SUCCEEDED) != 0 ||
        zmq_connect(z->monitor, name) != 0 || set_fd(z->monitor, &z->base.monitor_fd) != 0)
        return err_set(e, ERR_IO, "cannot watch a ZeroMQ socket: %s", zmq_strerror(errno));
    return 0;
}

static int connect_socket(struct zmq_transport *z, const char *endpoint, struct err *e)
{
    if (set_int(z->socket, ZMQ_IMMEDIATE, 1) != 0 ||
        set_int(z->socket, ZMQ_RECONNECT_IVL, -1) != 0 ||
        set_int(z->socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS) != 0 ||
        zmq_connect(z->socket, endpoint) != 0)
        return err_set(e, errno == EINVAL ? ERR_INVALID : ERR_IO, "cannot dial %s: %s", endpoint,
                       zmq_strerror(errno));
    snprintf(z->base.endpoint, sizeof z->base.endpoint, "%s", endpoint);
    return 0;
}

int transport_dial(struct transport **out, const char *endpoint, const struct transport_keys *keys,
                   size_t max_bytes, struct err *e)
{
    void *context;
    char name[TRANSPORT_ENDPOINT_MAX];
    *out = NULL;
    if (bind_name(endpoint, name, e) != 0)
        return -1;
    struct zmq_transport *z = zmq_transport_new(false, keys, max_bytes, &context, e);
    if (z == NULL)
        return -1;
    if (open_monitor(z, context, e) != 0 || connect_socket(z, endpoint, e) != 0) {
        zmq_transport_close(&z->base);
        return -1;
    }
    *out = &z->base;
    return 0;
}
