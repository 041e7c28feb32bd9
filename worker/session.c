/* session.c - see session.h. */
#include "worker/session.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MS 1000000ull
#define BACKOFF_MIN_NS (100 * MS)
#define BACKOFF_MAX_NS (1000 * MS)
#define HELLO_EVERY_NS (1000 * MS)
#define HELLO_GIVE_UP_NS (5000 * MS) /* a connection that was never answered: try another one */
#define RETRY_NS (10 * MS)           /* a full transport does not say when it has room again */

struct waiting { /* one encoded message that the transport did not take */
    struct list link;
    size_t n;
    uint8_t p[];
};

void session_init(struct session *s, const struct session_config *cfg, uint32_t gw) {
    *s = (struct session){.cfg = cfg, .gw = gw, .backoff_ns = BACKOFF_MIN_NS};
    list_init(&s->backlog);
}

static void backlog_clear(struct session *s) {
    struct list *link;
    while ((link = list_pop_front(&s->backlog)) != NULL)
        mem_free(list_item(link, struct waiting, link));
    s->backlog_bytes = 0;
}

void session_deinit(struct session *s) {
    backlog_clear(s);
    transport_close(&s->t);
    s->state = SESSION_DOWN;
}

static void say_once(struct session *s, enum log_level level, const char *what, const char *why) {
    char line[sizeof(s->why)];
    snprintf(line, sizeof(line), "%s: %.100s", what, why);
    if (strcmp(line, s->why) != 0)
        log_line(level, "gateway %" PRIu32 ": %s", s->gw, line);
    memcpy(s->why, line, sizeof(line));
}

void session_end(struct session *s, uint64_t now_ns, const char *why) {
    if (s->state == SESSION_DOWN)
        return;
    if (s->state == SESSION_UP)
        s->why[0] = '\0'; /* each end of a working session is worth its line */
    say_once(s, LOG_WARN, s->state == SESSION_UP ? "session ended" : "not connected", why);
    backlog_clear(s);
    transport_close(&s->t);
    s->state = SESSION_DOWN;
    s->dial_at_ns = now_ns + s->backoff_ns;
    s->backoff_ns = s->backoff_ns * 2 < BACKOFF_MAX_NS ? s->backoff_ns * 2 : BACKOFF_MAX_NS;
}

static void keep(struct session *s, const void *p, size_t n, uint64_t now_ns) {
    struct waiting *w = NULL;
    if (s->backlog_bytes + n <= s->cfg->backlog_bytes)
        w = mem_alloc(sizeof(*w) + n);
    if (w == NULL) {
        session_end(s, now_ns, "the gateway does not read: backlog over its limit");
        return;
    }
    w->n = n;
    memcpy(w->p, p, n);
    list_init(&w->link);
    list_push_back(&s->backlog, &w->link);
    s->backlog_bytes += n;
}

void session_send(struct session *s, const void *p, size_t n, uint64_t now_ns) {
    if (s->state == SESSION_DOWN)
        return;
    int rc = list_empty(&s->backlog) ? transport_send(s->t, 0, p, n) : TRANSPORT_FULL;
    if (rc == TRANSPORT_OK)
        s->said_ns = now_ns;
    else if (rc == TRANSPORT_FULL)
        keep(s, p, n, now_ns);
    else
        session_end(s, now_ns, "connection lost while sending");
}

void session_send_msg(struct session *s, const struct msg *m, uint64_t now_ns) {
    struct buf b;
    buf_init(&b, MSG_BYTES_MAX);
    msg_encode(&b, m);
    if (b.bad)
        session_end(s, now_ns, "no memory for a message");
    else
        session_send(s, b.p, b.len, now_ns);
    buf_deinit(&b);
}

static void flush(struct session *s, uint64_t now_ns) {
    struct list *link;
    while ((link = list_first(&s->backlog)) != NULL) {
        struct waiting *w = list_item(link, struct waiting, link);
        int rc = transport_send(s->t, 0, w->p, w->n);
        if (rc == TRANSPORT_FULL)
            return;
        if (rc != TRANSPORT_OK) {
            session_end(s, now_ns, "connection lost while sending");
            return;
        }
        s->said_ns = now_ns;
        s->backlog_bytes -= w->n;
        list_remove(link);
        mem_free(w);
    }
}

static void dial(struct session *s, uint64_t now_ns) {
    struct err e = {0};
    s->state = SESSION_HELLO;
    s->heard_ns = s->said_ns = s->hello_at_ns = now_ns;
    if (s->cfg->dial(&s->t, s->cfg->dial_ctx, s->gw, &e) != 0)
        session_end(s, now_ns, e.msg);
}

static void say_hello(struct session *s, uint64_t now_ns) {
    struct msg m = {.kind = MSG_HELLO, .u.hello = s->cfg->hello};
    s->hello_at_ns = now_ns + HELLO_EVERY_NS;
    if (list_empty(&s->backlog)) /* one HELLO in the queue says it all */
        session_send_msg(s, &m, now_ns);
}

void session_turn(struct session *s, uint64_t now_ns) {
    if (s->state == SESSION_DOWN && now_ns >= s->dial_at_ns)
        dial(s, now_ns);
    if (s->blocked)
        s->heard_ns = now_ns;
    if (s->state != SESSION_DOWN)
        flush(s, now_ns);
    if (s->state == SESSION_HELLO) {
        if (now_ns - s->heard_ns >= HELLO_GIVE_UP_NS)
            session_end(s, now_ns, "HELLO is not answered");
        else if (now_ns >= s->hello_at_ns)
            say_hello(s, now_ns);
    } else if (s->state == SESSION_UP) {
        if (now_ns - s->heard_ns >= s->cfg->silence_ns)
            session_end(s, now_ns, "the gateway is silent");
        else if (now_ns - s->said_ns >= s->cfg->heartbeat_ns && list_empty(&s->backlog))
            session_send_msg(s, &(struct msg){.kind = MSG_PING}, now_ns);
    }
}

static void hello_reply(struct session *s, const struct msg_hello_reply *r, uint64_t now_ns) {
    if (!r->accepted) {
        s->backoff_ns = BACKOFF_MAX_NS; /* it will not change its mind soon */
        session_end(s, now_ns, r->reason[0] != '\0' ? r->reason : err_name(r->code));
        return;
    }
    if (s->state == SESSION_UP) {
        if (r->incarnation != s->gateway_incarnation)
            session_end(s, now_ns, "another gateway process answers");
        return;
    }
    if (r->version < PROTO_VERSION_MIN || r->version > PROTO_VERSION_MAX) {
        session_end(s, now_ns, "the gateway chose a protocol version unknown here");
        return;
    }
    s->state = SESSION_UP;
    s->epoch++;
    s->sessions++;
    s->backoff_ns = BACKOFF_MIN_NS;
    s->gateway = hash64(r->gateway, strlen(r->gateway), 0);
    s->gateway_incarnation = r->incarnation;
    s->why[0] = '\0';
    log_info("gateway %" PRIu32 " (%s): session up", s->gw, r->gateway);
}

/* true: the message is the link's. */
static bool handle(struct session *s, struct msg *m, uint64_t now_ns) {
    switch (m->kind) {
    case MSG_HELLO_REPLY: hello_reply(s, &m->u.hello_reply, now_ns); return false;
    case MSG_BYE: session_end(s, now_ns, "the gateway left"); return false;
    case MSG_SUBMIT:
    case MSG_CANCEL:
    case MSG_GAP:
    case MSG_ACK:
    case MSG_DRAIN:
        return s->state
               == SESSION_UP; /* before its HELLO was answered a gateway has nothing to say */
    case MSG_PING: return false;
    default: s->bad_messages++; return false;
    }
}

bool session_recv(struct session *s, uint64_t now_ns, struct msg *m) {
    while (s->state != SESSION_DOWN) {
        struct transport_msg raw;
        struct err e = {0};
        int rc = transport_recv(s->t, &raw);
        if (rc == TRANSPORT_EMPTY)
            return false;
        if (rc != TRANSPORT_OK) {
            session_end(s, now_ns, "connection lost");
            return false;
        }
        int bad = msg_decode(m, raw.p, raw.n, &e);
        transport_msg_free(&raw);
        if (bad != 0 && e.code == ERR_NO_MEMORY) {
            session_end(s, now_ns, "no memory for a message");
            return false;
        }
        s->heard_ns = now_ns;
        if (bad != 0) {
            if (s->bad_messages++ == 0)
                log_warn("gateway %" PRIu32 ": message dropped: %s", s->gw, e.msg);
            continue;
        }
        if (handle(s, m, now_ns))
            return true;
        msg_deinit(m);
    }
    return false;
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t session_next_ns(const struct session *s, uint64_t now_ns) {
    if (s->state == SESSION_DOWN)
        return s->dial_at_ns;
    bool up = s->state == SESSION_UP;
    uint64_t silent = s->heard_ns + (up ? s->cfg->silence_ns : HELLO_GIVE_UP_NS);
    if (!list_empty(&s->backlog)) /* neither HELLO nor PING is due then, only another try */
        return min_u64(silent, now_ns + RETRY_NS);
    return min_u64(silent, up ? s->said_ns + s->cfg->heartbeat_ns : s->hello_at_ns);
}
