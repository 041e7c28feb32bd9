/* rpc_client.c - the client's end of the RPC door.
 *
 * No clock is read: a timer descriptor is due every RPC_PING_S, another ends a wait. The connection counts
 * as lost when RPC_SILENCE_S / RPC_PING_S pings in a row saw nothing come back. One epoll descriptor
 * holds socket, monitor and ping timer, so that an owner with its own loop needs to watch only one.
 */
#include "proto/rpc.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PINGS_UNANSWERED_MAX (RPC_SILENCE_S / RPC_PING_S)

struct rpc_client {
    struct transport *t;
    int watch_fd, ping_fd, deadline_fd;
    unsigned unanswered;
    uint64_t pings;
    bool lost;
};

static int arm(int fd, long ms, bool again)
{
    struct itimerspec s = {.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}};
    if (again)
        s.it_interval = s.it_value;
    return timerfd_settime(fd, 0, &s, NULL);
}

/* Whether the timer fired since the last look. */
static bool fired(int fd)
{
    uint64_t n;
    return read(fd, &n, sizeof n) == (ssize_t)sizeof n;
}

static int watch(struct rpc_client *c, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN};
    return epoll_ctl(c->watch_fd, EPOLL_CTL_ADD, fd, &ev);
}

static int make_fds(struct rpc_client *c, struct err *e)
{
    c->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    c->ping_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    c->deadline_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (c->watch_fd < 0 || c->ping_fd < 0 || c->deadline_fd < 0 ||
        watch(c, transport_fd(c->t)) != 0 || watch(c, transport_monitor_fd(c->t)) != 0 ||
        watch(c, c->ping_fd) != 0)
        return err_set(e, ERR_IO, "cannot watch the connection: %s", strerror(errno));
    return 0;
}

/* Waits for something to look at or the deadline. */
static void wait_fds(struct rpc_client *c)
{
    struct pollfd fds[2] = {{c->watch_fd, POLLIN, 0}, {c->deadline_fd, POLLIN, 0}};
    poll(fds, 2, -1); /* EINTR: the caller looks again, which costs nothing */
}

/* Nothing can come before our first message, so recv only moves the handshake on. */
static int wait_connected(struct rpc_client *c, const char *endpoint, struct err *e)
{
    arm(c->deadline_fd, RPC_CONNECT_S * 1000L, false);
    for (;;) {
        struct transport_msg m;
        int rc = transport_recv(c->t, &m);
        transport_msg_free(&m);
        if (rc == TRANSPORT_DOWN)
            return err_set(e, ERR_IO, "nobody answers at %s (is `sluice up` running?)", endpoint);
        if (transport_ready(c->t))
            return 0;
        if (rc == TRANSPORT_OK)
            continue;
        if (fired(c->deadline_fd))
            return err_set(e, ERR_IO, "no connection to %s within %d s", endpoint, RPC_CONNECT_S);
        wait_fds(c);
    }
}

int rpc_client_open(struct rpc_client **out, const char *endpoint, struct err *e)
{
    *out = NULL;
    struct rpc_client *c = mem_zalloc(sizeof(*c));
    if (c == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for an RPC client");
    c->watch_fd = c->ping_fd = c->deadline_fd = -1;
    if (transport_dial(&c->t, endpoint, NULL, RPC_BYTES_MAX, e) != 0 || make_fds(c, e) != 0 ||
        wait_connected(c, endpoint, e) != 0) {
        rpc_client_close(&c);
        return -1;
    }
    arm(c->ping_fd, RPC_PING_S * 1000L, true);
    *out = c;
    return 0;
}

void rpc_client_close(struct rpc_client **out)
{
    struct rpc_client *c = *out;
    *out = NULL;
    if (c == NULL)
        return;
    if (c->watch_fd >= 0)
        close(c->watch_fd); /* before the descriptors in it, which ZeroMQ closes when it likes */
    if (c->ping_fd >= 0)
        close(c->ping_fd);
    if (c->deadline_fd >= 0)
        close(c->deadline_fd);
    transport_close(&c->t);
    mem_free(c);
}

int rpc_client_fd(const struct rpc_client *c)
{
    return c->watch_fd;
}

int rpc_client_send(struct rpc_client *c, const struct buf *encoded)
{
    assert(!encoded->bad && encoded->len > 0);
    if (c->lost)
        return TRANSPORT_DOWN;
    int rc = transport_send(c->t, 0, encoded->p, encoded->len);
    return rc == TRANSPORT_GONE ? TRANSPORT_DOWN : rc;
}

static int lose(struct rpc_client *c, struct err *e, const char *why)
{
    c->lost = true;
    return err_set(e, ERR_IO, "the connection to %s is lost: %s", transport_endpoint(c->t), why);
}

/* A ping when one is due. -1 = the server has been silent for too long. */
static int ping(struct rpc_client *c)
{
    if (!fired(c->ping_fd))
        return 0;
    if (c->unanswered++ >= PINGS_UNANSWERED_MAX)
        return -1;
    struct buf b = {0};
    rpc_put_ping(&b, ++c->pings, false);
    if (!b.bad)
        (void)transport_send(c->t, 0, b.p, b.len); /* FULL: the next one; GONE: recv tells */
    buf_deinit(&b);
    return 0;
}

/* One message that is not a PONG: 1, 0 = none there now, -1 = lost. */
static int take(struct rpc_client *c, struct rpc_msg *m, struct err *e)
{
    for (;;) {
        struct transport_msg got;
        int rc = transport_recv(c->t, &got);
        if (rc == TRANSPORT_DOWN)
            return lose(c, e, "closed by the other side");
        if (rc != TRANSPORT_OK)
            return 0;
        c->unanswered = 0;
        rc = rpc_decode(m, got.p, got.n, e);
        transport_msg_free(&got);
        if (rc != 0) {
            c->lost = true; /* `e` says what was wrong */
            return -1;
        }
        if (m->kind != RPC_PONG)
            return 1;
        rpc_msg_deinit(m);
    }
}

int rpc_client_recv(struct rpc_client *c, struct rpc_msg *m, int timeout_ms, struct err *e)
{
    if (c->lost)
        return lose(c, e, "reopen it");
    arm(c->deadline_fd, timeout_ms > 0 ? timeout_ms : 0, false); /* 0 disarms */
    for (;;) {
        if (ping(c) != 0)
            return lose(c, e, "the other side is silent");
        int got = take(c, m, e);
        if (got != 0)
            return got;
        if (timeout_ms == 0 || (timeout_ms > 0 && fired(c->deadline_fd)))
            return 0;
        wait_fds(c);
    }
}
