/* pump.h - waiting for a transport in a test: by its descriptors, never by sleeping. PUMP_MS is only the end of
 * a test that hangs; nothing is measured by it. */
#ifndef SLUICE_TESTS_PUMP_H
#define SLUICE_TESTS_PUMP_H

#include "proto/transport.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define PUMP_MS 20000

/* Waits until one of the transport's descriptors is readable. False: PUMP_MS passed. */
static inline bool pump_wait(const struct transport *t)
{
    struct pollfd fds[2] = {{transport_fd(t), POLLIN, 0}, {transport_monitor_fd(t), POLLIN, 0}};
    return poll(fds, 2, PUMP_MS) > 0; /* a descriptor of -1 is ignored */
}

/* The next thing that is not EMPTY. */
static inline int pump_recv(struct transport *t, struct transport_msg *m)
{
    for (;;) {
        int rc = transport_recv(t, m);
        if (rc != TRANSPORT_EMPTY)
            return rc;
        ck_assert_msg(pump_wait(t), "nothing came");
    }
}

/* Until the dialer is connected, or down: which. */
static inline int pump_ready(struct transport *t)
{
    for (;;) {
        struct transport_msg m;
        int rc = transport_recv(t, &m);
        if (rc == TRANSPORT_DOWN)
            return rc;
        ck_assert_int_eq(rc, TRANSPORT_EMPTY);
        if (transport_ready(t))
            return TRANSPORT_OK;
        ck_assert_msg(pump_wait(t), "neither connected nor refused");
    }
}

static inline int pump_send(struct transport *t, uint32_t peer, const void *p, size_t n)
{
    for (;;) {
        int rc = transport_send(t, peer, p, n);
        if (rc != TRANSPORT_FULL)
            return rc;
        ck_assert_msg(pump_wait(t), "full for ever");
        struct transport_msg m;
        ck_assert_int_eq(transport_recv(t, &m), TRANSPORT_EMPTY);
    }
}

/* Expects exactly this text next; returns who sent it. */
static inline uint32_t pump_expect(struct transport *t, const char *text)
{
    struct transport_msg m;
    ck_assert_int_eq(pump_recv(t, &m), TRANSPORT_OK);
    ck_assert_uint_eq(m.n, strlen(text));
    if (m.n > 0)
        ck_assert_mem_eq(m.p, text, m.n);
    uint32_t peer = m.peer;
    transport_msg_free(&m);
    return peer;
}

#endif
