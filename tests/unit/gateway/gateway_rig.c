#include "tests/unit/gateway/gateway_rig.h"

#include "base/mem.h"

#include <string.h>

#define WAIT_NS 10000000000ull

void rig_open(struct rig *r, void (*tweak)(struct settings *s))
{
    struct err e = {0};
    memset(r, 0, sizeof *r);
    ck_assert_int_eq(tiny_text_model_open(&r->model, "tiny"), 0);
    settings_defaults(&r->settings);
    r->settings.max_queue_requests = 64;
    r->settings.link_silence_s = 600; /* a script does not send heartbeats */
    if (tweak) tweak(&r->settings);
    uv_loop_init(&r->loop);
    r->g.settings = &r->settings;
    r->g.model = &r->model;
    r->g.loop = &r->loop;
    r->g.incarnation = 7;
    api_limits_fill(&r->g.limits, &r->settings, &r->model);
    metrics_init(&r->g.metrics);
    ck_assert_msg(transport_fake_listen(&r->listener, &e) == 0, "%s", e.msg);
    ck_assert_msg(lanes_create(&r->g.lanes, &r->g, &e) == 0, "%s", e.msg);
    ck_assert_msg(dispatch_create(&r->g.dispatch, &r->g, r->listener, &e) == 0, "%s", e.msg);
    r->incarnation = 100;
    r->numerics = 4;
}

void rig_close(struct rig *r)
{
    lanes_destroy(&r->g.lanes);
    dispatch_destroy(&r->g.dispatch);
    transport_close(&r->dialer);
    ck_assert_uint_eq(r->g.live_requests, 0);
    ck_assert_uint_eq(r->g.queue_bytes, 0);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&r->loop), 0);
    model_close(&r->model);
}

void rig_turn(struct rig *r)
{
    uv_run(&r->loop, UV_RUN_ONCE); /* the dispatcher's own timer ends it at the latest */
}

void rig_send(struct rig *r, const struct msg *m)
{
    struct buf b = {0};
    struct err e = {0};
    ck_assert_msg(msg_check(m, &e) == 0, "%s", e.msg);
    msg_encode(&b, m);
    ck_assert_int_eq(transport_send(r->dialer, 0, b.p, b.len), TRANSPORT_OK);
    buf_deinit(&b);
}

bool rig_try_recv(struct rig *r, struct msg *m)
{
    struct transport_msg t;
    struct err e = {0};
    while (transport_recv(r->dialer, &t) == TRANSPORT_OK) {
        ck_assert_msg(msg_decode(m, t.p, t.n, &e) == 0, "%s", e.msg);
        transport_msg_free(&t);
        if (m->kind != MSG_PING) return true;
        msg_deinit(m);
    }
    return false;
}

void rig_recv(struct rig *r, struct msg *m)
{
    uint64_t end = gateway_now_ns() + WAIT_NS;
    while (!rig_try_recv(r, m)) {
        ck_assert_msg(gateway_now_ns() < end, "the gateway sent nothing");
        rig_turn(r);
    }
}

void rig_expect(struct rig *r, enum msg_kind kind, struct sub_id sub)
{
    struct msg m;
    rig_recv(r, &m);
    ck_assert_msg(m.kind == kind, "%s instead of %s", msg_name(m.kind), msg_name(kind));
    ck_assert(sub_id_equal(m.u.sub.sub, sub));
    msg_deinit(&m);
}

static void hello(struct rig *r, uint32_t n_blocks)
{
    struct err e = {0};
    struct msg m = {.kind = MSG_HELLO};
    ck_assert_int_eq(transport_fake_dial(&r->dialer, r->listener, &e), 0);
    m.u.hello = (struct msg_hello){.version_min = 1,
                                   .version_max = 1,
                                   .name = "w0",
                                   .incarnation = r->incarnation,
                                   .vocab = r->model.vocab_hash,
                                   .numerics = {3, r->numerics},
                                   .n_ctx = TINY_CTX,
                                   .n_vocab = TINY_VOCAB,
                                   .block_tokens = 16,
                                   .n_blocks = n_blocks,
                                   .max_seqs = 8,
                                   .max_slots = 64};
    rig_send(r, &m);
    rig_recv(r, &m);
    ck_assert_int_eq(m.kind, MSG_HELLO_REPLY);
    ck_assert_msg(m.u.hello_reply.accepted, "%s", m.u.hello_reply.reason);
    msg_deinit(&m);
}

static void status(struct rig *r)
{
    struct msg m = {.kind = MSG_STATUS};
    m.u.status =
        (struct msg_status){.number = ++r->status_number, .n_classes = 2, .window = {8, 8}};
    rig_send(r, &m);
}

void rig_join(struct rig *r, uint32_t n_blocks)
{
    struct msg m = {.kind = MSG_SYNC};
    hello(r, n_blocks);
    rig_send(r, &m);
    status(r);
    uint64_t end = gateway_now_ns() + WAIT_NS;
    while (!dispatch_ready(r->g.dispatch)) {
        ck_assert(gateway_now_ns() < end);
        rig_turn(r);
    }
}

void rig_redial(struct rig *r, bool same_process)
{
    transport_close(&r->dialer);
    if (!same_process) r->incarnation++;
    hello(r, 512);
}


static void on_wake(void *door)
{
    ((struct rig_door *)door)->wakes++;
}

void rig_post(struct rig *r, struct rig_door *d, enum endpoint endpoint, const char *cls,
              const char *body)
{
    struct request_in in = {.endpoint = endpoint, .wake = on_wake, .door = d};
    memset(d, 0, sizeof *d);
    snprintf(in.cls, sizeof in.cls, "%s", cls);
    in.n_body = strlen(body);
    in.body = mem_memdup(body, in.n_body + 1);
    d->request = request_submit(&r->g, &in);
    ck_assert_ptr_nonnull(d->request);
}

enum request_state rig_settle(struct rig *r, struct rig_door *d)
{
    uint64_t end = gateway_now_ns() + WAIT_NS;
    while (request_state(d->request) == REQUEST_PENDING) {
        ck_assert_msg(gateway_now_ns() < end, "the request does not settle");
        rig_turn(r);
    }
    return request_state(d->request);
}

enum pull rig_pull(struct rig_door *d)
{
    struct buf b = {0};
    if (d->events == NULL) d->events = json_array();
    for (;;) {
        buf_clear(&b);
        d->last = request_pull(d->request, &b);
        if (d->last == PULL_NONE || d->last == PULL_DONE) break;
        json_t *j = json_loadb(b.p, b.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
        ck_assert_msg(j != NULL, "%.*s", (int)(b.len > 300 ? 300 : b.len), b.p);
        json_array_append_new(d->events, j);
        if (d->last == PULL_ERROR) break;
    }
    buf_deinit(&b);
    return d->last;
}

void rig_pull_to_end(struct rig *r, struct rig_door *d)
{
    uint64_t end = gateway_now_ns() + WAIT_NS;
    while (rig_pull(d) == PULL_NONE) {
        ck_assert_msg(gateway_now_ns() < end, "the stream does not end");
        rig_turn(r);
    }
}

json_t *rig_body(struct rig *r, struct rig_door *d)
{
    size_t n;
    struct buf b = {0};
    uint32_t retry;
    if (rig_settle(r, d) == REQUEST_FAILED) {
        error_json(&b, request_error(d->request, &retry));
    } else {
        ck_assert_int_eq(request_state(d->request), REQUEST_REPLY);
        const char *p = request_body(d->request, &n);
        buf_add(&b, p, n);
    }
    json_error_t je;
    json_t *j = json_loadb(b.p, b.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &je);
    ck_assert_msg(j != NULL, "%s", je.text);
    buf_deinit(&b);
    return j;
}

void rig_drop(struct rig_door *d)
{
    request_close(&d->request);
    json_decref(d->events);
    d->events = NULL;
}

struct msg_submit rig_submitted(struct rig *r, struct msg *keep)
{
    rig_recv(r, keep);
    ck_assert_msg(keep->kind == MSG_SUBMIT, "%s instead of SUBMIT", msg_name(keep->kind));
    return keep->u.submit;
}

void rig_tokens(struct rig *r, struct sub_id sub, uint32_t index, const int32_t *ids, uint32_t n,
                const struct msg_record *records, enum finish finish, uint32_t visible)
{
    struct msg_record own[256];
    struct msg_tokens_entry t = {.sub = sub, .index = index, .n = n, .logprobs = records != NULL,
                                 .finish = finish, .visible_bytes = visible};
    ck_assert_uint_le(n, 256);
    memset(own, 0, sizeof own);
    for (uint32_t i = 0; i < n; i++) own[i].id = ids ? ids[i] : records[i].id;
    t.records = records ? (struct msg_record *)records : own;
    struct msg m = {.kind = MSG_TOKENS};
    m.u.tokens = (struct msg_tokens){.entries = &t, .n = 1};
    rig_send(r, &m);
}

void rig_answer(struct rig *r, const struct msg_submit *s, const char *text, enum finish finish)
{
    int32_t ids[256];
    uint32_t n = (uint32_t)strlen(text);
    ck_assert_uint_le(n, 256);
    for (uint32_t i = 0; i < n; i++) ids[i] = TINY_BYTE(text[i]);
    rig_tokens(r, s->sub, s->n_ids, ids, n, NULL, finish, n);
}

void rig_idle(struct rig *r)
{
    uint64_t end = gateway_now_ns() + WAIT_NS;
    while (r->g.live_requests > 0 || !dispatch_idle(r->g.dispatch)) {
        ck_assert_msg(gateway_now_ns() < end, "%u requests live", r->g.live_requests);
        rig_turn(r);
    }
    ck_assert_uint_eq(r->g.queue_bytes, 0);
}
