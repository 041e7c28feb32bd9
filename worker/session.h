/* session.h - one gateway's session as the worker sees it: dial, HELLO, up, loss, dial again.
 *
 *            dial                       HELLO_REPLY accepted
 *   DOWN ------------> HELLO (HELLO each second) ------------> UP (PING when silent)
 *     ^                    | refused, down, 5 s of silence       | down, BYE, 2 s of silence, cut
 *     +--------------------+-------------------------------------+    back-off 100 ms .. 1 s
 *
 * A session is one transport connection: it is closed, with what lies in it, before another is
 * dialled, so nothing queued in an old session is ever delivered. Sends never block: what the
 * transport does not take waits in a bounded backlog, in order; over its limit the session ends.
 * Time is an argument, the transport comes by a dial function, so tests are exact. Thread: the
 * link's.
 */
#ifndef SLUICE_WORKER_SESSION_H
#define SLUICE_WORKER_SESSION_H

#include "base/buf.h"
#include "base/list.h"
#include "proto/message.h"
#include "proto/transport.h"

enum session_state { SESSION_DOWN, SESSION_HELLO, SESSION_UP };

typedef int (*session_dial_fn)(struct transport **out, void *ctx, uint32_t gw, struct err *e);

struct session_config {
    session_dial_fn dial;
    void *dial_ctx;
    struct msg_hello hello;
    uint64_t heartbeat_ns, silence_ns;
    size_t backlog_bytes; /* at most so much waits for a full transport */
};

struct session {
    const struct session_config *cfg;
    uint32_t gw;
    enum session_state state;
    struct transport *t;
    uint32_t epoch;                        /* raised when it comes up */
    uint64_t gateway, gateway_incarnation; /* hash of the name; both from HELLO_REPLY */
    uint64_t dial_at_ns, backoff_ns, hello_at_ns, heard_ns, said_ns;
    struct list backlog;
    size_t backlog_bytes;
    bool blocked; /* the link cannot take messages now: silence is not the gateway's */
    uint64_t bad_messages, sessions;
    char why[128]; /* of the last end or refusal, so that a repeat is logged once */
};

void session_init(struct session *s, const struct session_config *cfg, uint32_t gw);
void session_deinit(struct session *s);

/* Everything that time alone brings: dial, HELLO, PING, silence, backlog. */
void session_turn(struct session *s, uint64_t now_ns);
/* The next message for the link (SUBMIT, CANCEL, GAP, ACK, DRAIN; session UP): true, and the caller
 * calls msg_deinit. false = nothing more now. Answers HELLO_REPLY, PING and BYE itself. */
bool session_recv(struct session *s, uint64_t now_ns, struct msg *m);
/* Encoded bytes; only while UP (HELLO: while dialled). */
void session_send(struct session *s, const void *p, size_t n, uint64_t now_ns);
void session_send_msg(struct session *s, const struct msg *m, uint64_t now_ns);
void session_end(struct session *s, uint64_t now_ns, const char *why);
/* When session_turn has something to do next without a message. */
uint64_t session_next_ns(const struct session *s, uint64_t now_ns);

#endif
