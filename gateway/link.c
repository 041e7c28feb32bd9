/* link.c - the gateway's side of the worker link: peers to sessions, messages to events and back.
 */
#include "gateway/dispatch_priv.h"
#include "gateway/tenants.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/usage.h"

#include <string.h>

static uint32_t session_of(struct dispatch *d, uint32_t peer)
{
    for (uint32_t i = 0; i < GATEWAY_WORKERS_MAX; i++) {
        if (d->sessions[i].used && d->sessions[i].peer == peer) return i;
    }
    return GATEWAY_WORKERS_MAX;
}

static void session_end(struct dispatch *d, uint32_t i, const char *why)
{
    struct link_session *s = &d->sessions[i];
    if (!s->used) return;
    log_warn("worker %s: session ended (%s)", s->hello.name[0] ? s->hello.name : "?", why);
    transport_peer_drop(d->listener, s->peer);
    memset(s, 0, sizeof *s);
    struct gateway_event ev = {.kind = GE_DOWN, .worker = i};
    dispatch_event(d, &ev);
}

static uint32_t session_new(struct dispatch *d, uint32_t peer)
{
    for (uint32_t i = 0; i < GATEWAY_WORKERS_MAX; i++) {
        if (d->sessions[i].used) continue;
        memset(&d->sessions[i], 0, sizeof d->sessions[i]);
        d->sessions[i].used = true;
        d->sessions[i].peer = peer;
        return i;
    }
    return GATEWAY_WORKERS_MAX;
}

static void on_hello(struct dispatch *d, uint32_t i, const struct msg_hello *h)
{
    struct link_session *s = &d->sessions[i];
    uint64_t name = hash64(h->name, strlen(h->name), 0);
    for (uint32_t k = 0; k < GATEWAY_WORKERS_MAX; k++) {
        /* the newer session of a name takes over: the old connection is dead or about to be */
        if (k != i && d->sessions[k].used && d->sessions[k].name == name)
            session_end(d, k, "replaced by a newer one");
    }
    s->hello = *h;
    s->hello_ns = gateway_now_ns();
    s->synced = false;
    s->name = name;
    struct gateway_event ev = {.kind = GE_HELLO, .worker = i};
    ev.hello.name = name;
    ev.hello.incarnation = h->incarnation;
    ev.hello.version_min = h->version_min;
    ev.hello.version_max = h->version_max;
    ev.hello.model = h->tensors;
    ev.hello.vocab = h->vocab;
    ev.hello.numerics = h->numerics;
    ev.hello.n_ctx = h->n_ctx;
    ev.hello.block_tokens = h->block_tokens;
    ev.hello.n_blocks = h->n_blocks;
    ev.hello.max_seqs = h->max_seqs;
    ev.hello.max_slots = h->max_slots;
    dispatch_event(d, &ev);
}

static void on_sync(struct dispatch *d, uint32_t i, const struct msg_sync *m)
{
    struct gateway_sync *list = mem_array(m->n ? m->n : 1, sizeof *list);
    if (list == NULL) return; /* as if it was lost: link_heartbeat */
    d->sessions[i].synced = true;
    for (uint32_t k = 0; k < m->n; k++) {
        list[k] =
            (struct gateway_sync){m->entries[k].sub, m->entries[k].have, m->entries[k].finished};
    }
    struct gateway_event ev = {.kind = GE_SYNC, .worker = i, .sync = list, .n_sync = m->n};
    dispatch_event(d, &ev);
    mem_free(list);
}

static bool ids_valid(const struct dispatch *d, const struct msg_tokens_entry *t)
{
    for (uint32_t k = 0; k < t->n; k++) {
        if (t->records[k].id < 0 || (uint32_t)t->records[k].id >= d->g->model->hp.n_vocab)
            return false;
    }
    return true;
}

/* What all of its gateways' work cost the worker. */
static void count_engine(struct dispatch *d, const struct link_session *s,
                         const struct msg_tokens *m)
{
    usage_engine(d->g->usage, gateway_wall_s(), s->hello.incarnation, s->young, m->accounts,
                 m->n_accounts);
}

/* What tenants had of this worker, through any gateway; before the entries, so that nothing is free for a moment.
 * A tenant that is not ours counts in no account here. */
static void count_tenants(struct dispatch *d, uint32_t i, const struct msg_tokens *m)
{
    for (uint32_t k = 0; k < m->n_tenants; k++) {
        const struct msg_tenant *t = &m->tenants[k];
        const struct tenant *known = tenants_by_name(d->g->tenants, t->name);
        struct gateway_event ev = {.kind = GE_ACCOUNT, .worker = i};
        if (known == NULL) continue;
        ev.account.tenant = known->index;
        ev.account.cls = t->cls;
        ev.account.prompt_first = t->prompt_first;
        ev.account.output = t->output;
        dispatch_event(d, &ev);
    }
    struct gateway_event ev = {.kind = GE_ACCOUNT, .worker = i, .account.all = true};
    if (m->tenants_all) dispatch_event(d, &ev);
}

static void on_tokens(struct dispatch *d, uint32_t i, const struct msg_tokens *m)
{
    count_engine(d, &d->sessions[i], m);
    if (d->g->tenants != NULL) count_tenants(d, i, m);
    for (uint32_t k = 0; k < m->n; k++) {
        const struct msg_tokens_entry *t = &m->entries[k];
        if (!ids_valid(d, t)) { /* not a worker of this vocabulary, whatever its HELLO said */
            session_end(d, i, "it sent token ids outside the vocabulary");
            return;
        }
        struct gateway_event ev = {.kind = GE_TOKENS, .worker = i, .sub = t->sub};
        ev.tokens.index = t->index;
        ev.tokens.n = t->n;
        ev.tokens.finish = t->finish;
        ev.tokens.cached = t->cached;
        d->entry = t;
        dispatch_event(d, &ev);
        if (!d->sessions[i].used) return;
    }
}

static void on_status(struct dispatch *d, uint32_t i, const struct msg_status *m)
{
    struct gateway_event ev = {.kind = GE_STATUS, .worker = i};
    uint32_t classes = d->g->limits.classes.n;
    struct link_session *s = &d->sessions[i];
    if (s->status.number == 0 && m->n_classes != classes) {
        log_error("worker %s knows %u classes, this gateway %u: start both with the same --classes",
                  s->hello.name, m->n_classes, classes);
    }
    s->status = *m;
    if (!s->told) { /* one that has done nothing yet is as good as young */
        int64_t up_s = gateway_wall_s() - d->g->started_wall_s;
        s->young = m->steps == 0 || (int64_t)(m->uptime_ns / 1000000000u) < up_s;
    }
    s->told = true;
    ev.status.number = m->number;
    memcpy(ev.status.window, m->window, sizeof ev.status.window);
    ev.status.free_blocks = m->blocks_free + m->blocks_cached; /* cached ones are room */
    ev.status.draining = m->draining;
    ev.status.cost = m->cost;
    ev.status.n_cost = m->n_cost;
    memcpy(ev.status.started_tag, m->started_tag, sizeof ev.status.started_tag);
    dispatch_event(d, &ev);
}

static void on_message(struct dispatch *d, uint32_t i, const struct msg *m)
{
    switch (m->kind) {
    case MSG_HELLO: on_hello(d, i, &m->u.hello); break;
    case MSG_SYNC: on_sync(d, i, &m->u.sync); break;
    case MSG_STATUS: on_status(d, i, &m->u.status); break;
    case MSG_TOKENS: on_tokens(d, i, &m->u.tokens); break;
    case MSG_BYE: session_end(d, i, "it left"); break;
    case MSG_PING: break;
    default: /* a gateway's message from a worker: counted, dropped */
        d->g->metrics.link_bad_messages++;
    }
}

static void receive_one(struct dispatch *d, const struct transport_msg *t)
{
    struct msg m;
    struct err e;
    if (msg_decode(&m, t->p, t->n, &e) != 0) {
        d->g->metrics.link_bad_messages++;
        log_warn("link: message dropped: %s", e.msg);
        return;
    }
    d->g->metrics.link_messages_in++;
    uint32_t i = session_of(d, t->peer);
    if (i == GATEWAY_WORKERS_MAX && m.kind == MSG_HELLO) i = session_new(d, t->peer);
    if (i < GATEWAY_WORKERS_MAX) {
        d->sessions[i].heard_ns = gateway_now_ns();
        on_message(d, i, &m);
    } else if (m.kind != MSG_HELLO) {
        d->g->metrics.link_bad_messages++; /* a session that has ended here: the worker will notice
                                              the silence */
    }
    msg_deinit(&m);
}

void link_receive(struct dispatch *d)
{
    struct transport_msg t;
    if (d->performing) return; /* the next turn comes back here */
    d->sent = false;
    while (transport_recv(d->listener, &t) == TRANSPORT_OK) {
        receive_one(d, &t);
        transport_msg_free(&t);
    }
}

int link_send(struct dispatch *d, uint32_t worker, const struct msg *m)
{
    struct link_session *s = &d->sessions[worker];
    if (!s->used) return TRANSPORT_GONE;
    buf_clear(&d->out);
    msg_encode(&d->out, m);
    if (d->out.bad) return TRANSPORT_FULL;
    int r = transport_send(d->listener, s->peer, d->out.p, d->out.len);
    d->sent = true;
    if (r == TRANSPORT_OK) {
        s->sent_ns = gateway_now_ns();
        d->g->metrics.link_messages_out++;
    }
    return r;
}

int link_submit(struct dispatch *d, const struct gateway_action *a, struct sequence *s)
{
    uint32_t n = s->n_prompt + s->n_out;
    if (n > d->cap_ids) {
        int32_t *grown = mem_realloc(d->ids, (size_t)n * 2 * sizeof *grown);
        if (grown == NULL) return TRANSPORT_FULL;
        d->ids = grown;
        d->cap_ids = n * 2;
    }
    memcpy(d->ids, s->prompt, s->n_prompt * sizeof *d->ids);
    if (s->n_out) memcpy(d->ids + s->n_prompt, s->out, s->n_out * sizeof *d->ids);
    const struct class_row *row = &d->g->limits.classes.rows[s->submit.cls];
    sequence_shorten(s, a->max_total);
    struct msg m = {.kind = MSG_SUBMIT, .u.submit = s->submit};
    m.u.submit.sub = a->sub;
    m.u.submit.rank = row->rank;
    m.u.submit.ttft_ms = row->ttft_ms;
    m.u.submit.tpot_ms = row->tpot_ms;
    m.u.submit.ids = d->ids;
    m.u.submit.n_ids = n;
    m.u.submit.from = a->from;
    if (s->deadline_ns) {
        uint64_t now = gateway_now_ns();
        m.u.submit.deadline_in_ns = s->deadline_ns > now ? s->deadline_ns - now : 1;
    }
    return link_send(d, a->worker, &m);
}

void link_heartbeat(struct dispatch *d, uint64_t now_ns)
{
    const struct settings *st = d->g->settings;
    for (uint32_t i = 0; i < GATEWAY_WORKERS_MAX; i++) {
        struct link_session *s = &d->sessions[i];
        if (!s->used) continue;
        uint64_t silence_ns = (uint64_t)(st->link_silence_s * 1e9);
        if (now_ns - s->heard_ns > silence_ns) {
            session_end(d, i, "silent for too long");
        } else if (s->accepted && !s->synced && now_ns - s->hello_ns > silence_ns) {
            /* a SYNC that names nothing is not repeated; one lost here for want of memory would
             * leave the session without work for ever */
            session_end(d, i, "it sent no SYNC");
        } else if (now_ns - s->sent_ns > (uint64_t)(st->link_heartbeat_s * 1e9)) {
            struct msg m = {.kind = MSG_PING};
            if (link_send(d, i, &m) == TRANSPORT_GONE) session_end(d, i, "connection lost");
        }
    }
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    link_receive(p->data);
}

/* A listener of memory may be there already: tests. */
static int listen_for_workers(struct dispatch *d, struct err *e)
{
    const struct settings *s = d->g->settings;
    if (d->listener != NULL) return 0;
    return transport_listen(&d->listener, s->workers_endpoint, d->keys.on ? &d->keys : NULL,
                            MSG_BYTES_MAX, e);
}

int link_open(struct dispatch *d, struct err *e)
{
    const struct settings *s = d->g->settings;
    if (s->link_keys[0] && transport_keys_load(&d->keys, s->link_keys, true, e) != 0) return -1;
    buf_init(&d->out, MSG_BYTES_MAX);
    int r = listen_for_workers(d, e);
    transport_keys_wipe(&d->keys);
    if (r != 0) return -1;
    d->poll.data = d;
    if (uv_poll_init(d->g->loop, &d->poll, transport_fd(d->listener)) != 0) {
        transport_close(&d->listener);
        return err_set(e, ERR_IO, "cannot watch the worker link");
    }
    d->open_handles++;
    uv_poll_start(&d->poll, UV_READABLE, on_readable);
    return 0;
}

void link_close(struct dispatch *d)
{
    struct msg m = {.kind = MSG_BYE};
    for (uint32_t i = 0; i < GATEWAY_WORKERS_MAX; i++) {
        if (d->sessions[i].used) link_send(d, i, &m);
    }
}
