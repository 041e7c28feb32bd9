#include "gateway/rpc_door.h"

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/api_pages.h"
#include "gateway/auth.h"
#include "gateway/json_value.h"
#include "gateway/request.h"
#include "proto/rpc.h"

#include <string.h>

#define SWEEP_MS 250
#define CLIENT_CALLS_MAX 4096

struct rpc_peer {
    struct list node;
    uint32_t peer;
    uint64_t heard_ns, stuck_since_ns;
    uint32_t n_calls;
    bool broken;
};

struct rpc_call {
    struct list node;
    struct rpc_door *d;
    struct rpc_peer *peer;
    uint64_t id;                   /* the client's label */
    struct request *request;
    struct buf unsent;             /* an encoded message the socket would not take */
    bool last;                     /* `unsent` is the end of the call */
};

struct rpc_door {
    struct gateway *g;
    struct transport *listener;
    uv_poll_t poll;
    uv_timer_t sweep;
    uv_prepare_t prepare;
    int open_handles;
    struct list calls, peers;
    struct buf json, body, out;
    bool receiving;
    bool sent;                     /* the edge-triggered descriptor must be looked at again */
};

static void call_end(struct rpc_call *c)
{
    request_close(&c->request);
    list_remove(&c->node);
    c->peer->n_calls--;
    buf_deinit(&c->unsent);
    mem_free(c);
}

/* ---- sending: what the socket does not take waits in the call, and the cursor with it */

static int send_bytes(struct rpc_door *d, struct rpc_peer *p, const struct buf *b)
{
    if (b->bad) { /* a hole in what the client gets: it must start anew */
        p->broken = true;
        return TRANSPORT_FULL;
    }
    int r = transport_send(d->listener, p->peer, b->p, b->len);
    d->sent = true;
    if (r == TRANSPORT_OK) p->stuck_since_ns = 0;
    else if (r == TRANSPORT_GONE) p->broken = true;
    else if (p->stuck_since_ns == 0) p->stuck_since_ns = gateway_now_ns();
    return r;
}

static void put_error(struct rpc_door *d, uint64_t id, const struct err *e, uint32_t retry_ms)
{
    buf_clear(&d->json);
    buf_clear(&d->body);
    buf_clear(&d->out);
    error_json(&d->json, e);
    bool ok = !d->json.bad && json_to_value(d->json.p, d->json.len, &d->body) == 0;
    rpc_put_error(&d->out, id, (uint32_t)err_http_status(e->code), retry_ms, &d->body);
    if (!ok) d->out.bad = true;
}

/* d->out answers something that has no call to wait in: a client that does not take it loses its
 * connection, it would wait for this answer for ever. */
static void reply_or_break(struct rpc_door *d, struct rpc_peer *p)
{
    if (send_bytes(d, p, &d->out) != TRANSPORT_OK) p->broken = true;
}

static void send_error(struct rpc_door *d, struct rpc_peer *p, uint64_t id, const struct err *e,
                       uint32_t retry_ms)
{
    put_error(d, id, e, retry_ms);
    reply_or_break(d, p);
}

/* One pulled event into d->out. true = it is the call's last message. */
static bool encode_pull(struct rpc_call *c, enum pull kind)
{
    struct rpc_door *d = c->d;
    uint32_t retry_s;
    bool never;
    buf_clear(&d->body);
    buf_clear(&d->out);
    if (kind == PULL_DONE) {
        rpc_put_done(&d->out, c->id, NULL);
        return true;
    }
    if (d->json.bad || json_to_value(d->json.p, d->json.len, &d->body) != 0) {
        struct err e;
        err_set(&e, ERR_NO_MEMORY, "The server is out of memory; try again.");
        put_error(d, c->id, &e, 1000);
        return true;
    }
    if (kind == PULL_EVENT) {
        rpc_put_delta(&d->out, c->id, &d->body);
        return false;
    }
    const struct err *e = request_error(c->request, &retry_s);
    rpc_put_error(&d->out, c->id, (uint32_t)err_http_status(e->code),
                  request_retry_ms(c->request, &never), &d->body);
    return true;
}

/* The next message of the call into d->out. 0 = none now, 1 = more may follow, 2 = the last. */
static int next_message(struct rpc_call *c)
{
    struct rpc_door *d = c->d;
    uint32_t retry_s;
    bool never;
    size_t n;
    enum pull kind;
    const struct err *e;
    switch (request_state(c->request)) {
    case REQUEST_PENDING: return 0;
    case REQUEST_STREAMING:
    case REQUEST_ENDED:
        buf_clear(&d->json);
        kind = request_pull(c->request, &d->json);
        if (kind == PULL_NONE) return 0;
        return encode_pull(c, kind) ? 2 : 1;
    case REQUEST_REPLY: {
        const char *p = request_body(c->request, &n);
        buf_clear(&d->body);
        buf_clear(&d->out);
        if (json_to_value(p, n, &d->body) == 0) {
            rpc_put_done(&d->out, c->id, &d->body);
        } else {
            struct err none;
            err_set(&none, ERR_NO_MEMORY, "The server is out of memory; try again.");
            put_error(d, c->id, &none, 1000);
        }
        return 2;
    }
    case REQUEST_FAILED:
        e = request_error(c->request, &retry_s);
        put_error(d, c->id, e, request_retry_ms(c->request, &never));
        return 2;
    }
    return 0;
}

static void pump(struct rpc_call *c)
{
    struct rpc_door *d = c->d;
    if (c->peer->broken) return;
    if (c->unsent.len) {
        if (send_bytes(d, c->peer, &c->unsent) != TRANSPORT_OK) return;
        buf_clear(&c->unsent);
        if (c->last) {
            call_end(c);
            return;
        }
    }
    for (;;) {
        int r = next_message(c);
        if (r == 0) return;
        c->last = r == 2;
        if (send_bytes(d, c->peer, &d->out) != TRANSPORT_OK) {
            buf_add(&c->unsent, d->out.p,
                    d->out.len); /* later; ids wait in the request meanwhile */
            if (c->unsent.bad)
                c->peer->broken = true; /* a hole in a stream: the sweep ends the connection */
            return;
        }
        if (c->last) {
            call_end(c);
            return;
        }
    }
}

static void on_wake(void *door)
{
    pump(door);
}

/* ---- receiving */

static struct rpc_peer *peer_of(struct rpc_door *d, uint32_t peer)
{
    struct list *at, *next;
    list_each(at, next, &d->peers) {
        struct rpc_peer *p = list_item(at, struct rpc_peer, node);
        if (p->peer == peer) return p;
    }
    struct rpc_peer *p = mem_zalloc(sizeof *p);
    if (p == NULL) return NULL;
    p->peer = peer;
    list_push_back(&d->peers, &p->node);
    return p;
}

static struct rpc_call *call_of(struct rpc_door *d, const struct rpc_peer *p, uint64_t id)
{
    struct list *at, *next;
    list_each(at, next, &d->calls) {
        struct rpc_call *c = list_item(at, struct rpc_call, node);
        if (c->peer == p && c->id == id) return c;
    }
    return NULL;
}

static bool path_is(const struct rpc_msg *m, const char *path)
{
    return m->n_path == strlen(path) && memcmp(m->path, path, m->n_path) == 0;
}

/* Pages without a body: the same objects as over HTTP. */
static bool reply_page(struct rpc_door *d, struct rpc_peer *p, const struct rpc_msg *m,
                       const struct tenant *t)
{
    if (!path_is(m, "/v1/models")) return false;
    buf_clear(&d->json);
    buf_clear(&d->body);
    buf_clear(&d->out);
    api_page_models(d->g, t, &d->json);
    bool ok = !d->json.bad && json_to_value(d->json.p, d->json.len, &d->body) == 0;
    rpc_put_done(&d->out, m->id, &d->body);
    if (!ok) d->out.bad = true;
    reply_or_break(d, p);
    return true;
}

static int fill_request(const struct rpc_msg *m, struct request_in *in, struct err *e)
{
    static const struct { const char *path; enum endpoint endpoint; } paths[] = {
        {"/v1/chat/completions", ENDPOINT_CHAT}, {"/v1/completions", ENDPOINT_COMPLETION},
        {"/tokenize", ENDPOINT_TOKENIZE}, {"/detokenize", ENDPOINT_DETOKENIZE},
    };
    int found = -1;
    for (int i = 0; i < 4; i++) {
        if (path_is(m, paths[i].path)) found = i;
    }
    if (found < 0)
        return err_set(e, ERR_NOT_FOUND, "Invalid path '%.*s'.",
                       (int)(m->n_path > 80 ? 80 : m->n_path), m->path ? m->path : "");
    if (m->n_cls >= sizeof in->cls)
        return err_set_param(e, ERR_BAD_VALUE, "class", "There is no such class.");
    if (m->n_cls) memcpy(in->cls, m->cls, m->n_cls);
    struct buf body = {0};
    if (m->body == NULL || m->body->kind != VALUE_MAP || value_to_json(m->body, &body) != 0) {
        buf_deinit(&body);
        return err_set(e, ERR_BAD_JSON, "'body' must be a map with the keys of an OpenAI request.");
    }
    in->endpoint = paths[found].endpoint;
    in->body = buf_take(&body, &in->n_body);
    return in->body ? 0 : err_set(e, ERR_NO_MEMORY, "out of memory");
}

static void on_request(struct rpc_door *d, struct rpc_peer *p, const struct rpc_msg *m)
{
    struct err e;
    struct request_in in = {.wake = on_wake};
    d->g->metrics.rpc_requests++;
    if (auth_key(d->g, m->key, m->n_key, &in.who, &e) != 0) {
        send_error(d, p, m->id, &e, 0);
        return;
    }
    if (reply_page(d, p, m, in.who.tenant)) return;
    if (call_of(d, p, m->id)) {
        err_set_param(&e, ERR_BAD_VALUE, "id", "Request id %llu is in use on this connection.",
                      (unsigned long long)m->id);
        send_error(d, p, m->id, &e, 0);
        return;
    }
    if (p->n_calls >= CLIENT_CALLS_MAX) {
        err_set(&e, ERR_QUEUE_FULL, "At most %d requests at once on a connection.",
                CLIENT_CALLS_MAX);
        send_error(d, p, m->id, &e, 1000);
        return;
    }
    if (fill_request(m, &in, &e) != 0) {
        send_error(d, p, m->id, &e, 0);
        return;
    }
    struct rpc_call *c = mem_zalloc(sizeof *c);
    in.door = c;
    struct request *r = c ? request_submit(d->g, &in) : NULL;
    if (r == NULL) {
        if (c == NULL) mem_free(in.body);
        mem_free(c);
        err_set(&e, ERR_NO_MEMORY, "The server is out of memory; try again.");
        send_error(d, p, m->id, &e, 1000);
        return;
    }
    c->d = d;
    c->peer = p;
    c->id = m->id;
    c->request = r;
    p->n_calls++;
    list_push_back(&d->calls, &c->node);
    pump(c);
}

static void on_message(struct rpc_door *d, struct rpc_peer *p, const struct rpc_msg *m)
{
    struct rpc_call *c;
    switch (m->kind) {
    case RPC_REQUEST: on_request(d, p, m); break;
    case RPC_CANCEL:
        c = call_of(d, p, m->id);
        if (c == NULL) break;
        struct err e;
        err_set(&e, ERR_CANCELLED, "The request was cancelled.");
        send_error(d, p, m->id, &e, 0); /* each request ends with one DONE or ERROR */
        call_end(c);
        break;
    case RPC_PING:
        buf_clear(&d->out);
        rpc_put_ping(&d->out, m->id, true);
        send_bytes(d, p, &d->out);
        break;
    default: d->g->metrics.link_bad_messages++;
    }
}

static void receive_one(struct rpc_door *d, const struct transport_msg *t)
{
    struct rpc_msg m;
    struct err e;
    struct rpc_peer *p = peer_of(d, t->peer);
    if (p == NULL) return;
    p->heard_ns = gateway_now_ns();
    if (rpc_decode(&m, t->p, t->n, &e) != 0) {
        if (e.code == ERR_PROTOCOL)
            e.code = ERR_BAD_JSON; /* the client's fault, not a peer process's */
        send_error(d, p, call_of(d, p, m.id) ? 0 : m.id, &e,
                   0); /* a live call ends by its own word only */
        return;
    }
    on_message(d, p, &m);
    rpc_msg_deinit(&m);
}

static void receive(struct rpc_door *d)
{
    struct transport_msg t;
    if (d->receiving) return;
    d->receiving = true;
    d->sent = false;
    while (transport_recv(d->listener, &t) == TRANSPORT_OK) {
        receive_one(d, &t);
        transport_msg_free(&t);
    }
    d->receiving = false;
}

/* ---- time: silent or stuck clients, calls whose socket was full */

static struct rpc_call *any_call_of(struct rpc_door *d, const struct rpc_peer *p)
{
    struct list *at, *next;
    list_each(at, next, &d->calls) {
        struct rpc_call *c = list_item(at, struct rpc_call, node);
        if (c->peer == p) return c;
    }
    return NULL;
}

static void peer_end(struct rpc_door *d, struct rpc_peer *p)
{
    struct rpc_call *c;
    while ((c = any_call_of(d, p)) != NULL) call_end(c);
    transport_peer_drop(d->listener, p->peer);
    list_remove(&p->node);
    mem_free(p);
}

/* A client that left is seen by sending to it only; one that waits for a whole reply is sent
 * nothing for long. */
static void probe(struct rpc_door *d, struct rpc_peer *p)
{
    if (p->n_calls == 0 || p->broken) return;
    buf_clear(&d->out);
    rpc_put_ping(&d->out, 0, true); /* clients take a PONG as a sign of life */
    d->sent = true;
    if (transport_send(d->listener, p->peer, d->out.p, d->out.len) == TRANSPORT_GONE) {
        p->broken = true;
    }
}

static void on_sweep(uv_timer_t *t)
{
    struct rpc_door *d = t->data;
    struct list *at, *next;
    uint64_t now = gateway_now_ns();
    receive(d);
    list_each(at, next, &d->calls) {
        struct rpc_call *c = list_item(at, struct rpc_call, node);
        if (c->unsent.len) pump(c);
    }
    list_each(at, next, &d->peers) {
        struct rpc_peer *p = list_item(at, struct rpc_peer, node);
        bool silent = now - p->heard_ns > RPC_SILENCE_S * 1000000000ull;
        bool stuck = p->stuck_since_ns &&
                     (double)(now - p->stuck_since_ns) > d->g->settings->slow_reader_s * 1e9;
        if (stuck) d->g->metrics.slow_readers_cut++;
        probe(d, p);
        if (silent || stuck || p->broken) peer_end(d, p);
    }
    receive(d);
}

/* Once a turn, outside any loop over calls. */
static void on_prepare(uv_prepare_t *p)
{
    struct rpc_door *d = p->data;
    if (d->sent) receive(d);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    receive(p->data);
}

/* ---- life */

int rpc_door_create(struct rpc_door **out, struct gateway *g, struct err *e)
{
    struct rpc_door *d = mem_zalloc(sizeof *d);
    if (d == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    d->g = g;
    list_init(&d->calls);
    list_init(&d->peers);
    if (transport_listen(&d->listener, g->settings->rpc, NULL, RPC_BYTES_MAX, e) != 0) {
        mem_free(d);
        return -1;
    }
    d->poll.data = d->sweep.data = d->prepare.data = d;
    if (uv_poll_init(g->loop, &d->poll, transport_fd(d->listener)) != 0) {
        transport_close(&d->listener);
        mem_free(d);
        return err_set(e, ERR_IO, "cannot watch the RPC door");
    }
    uv_timer_init(g->loop, &d->sweep);
    uv_prepare_init(g->loop, &d->prepare);
    uv_prepare_start(&d->prepare, on_prepare);
    d->open_handles = 3;
    uv_poll_start(&d->poll, UV_READABLE, on_readable);
    uv_timer_start(&d->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    *out = d;
    return 0;
}

const char *rpc_door_endpoint(const struct rpc_door *d)
{
    return transport_endpoint(d->listener);
}

static void on_closed(uv_handle_t *h)
{
    ((struct rpc_door *)h->data)->open_handles--;
}

void rpc_door_destroy(struct rpc_door **pd)
{
    struct rpc_door *d = *pd;
    struct list *at, *next;
    *pd = NULL;
    if (d == NULL) return;
    d->receiving = true; /* nothing new from here on */
    list_each(at, next, &d->peers) peer_end(d, list_item(at, struct rpc_peer, node));
    uv_close((uv_handle_t *)&d->poll, on_closed);
    uv_close((uv_handle_t *)&d->sweep, on_closed);
    uv_close((uv_handle_t *)&d->prepare, on_closed);
    while (d->open_handles > 0) uv_run(d->g->loop, UV_RUN_ONCE);
    transport_close(&d->listener);
    buf_deinit(&d->json);
    buf_deinit(&d->body);
    buf_deinit(&d->out);
    mem_free(d);
}
