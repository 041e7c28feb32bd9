/* rpc_stand_in.c - see rpc_stand_in.h. */
#include "tests/unit/cli/rpc_stand_in.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static int text_index(struct rpc_stand_in *s, const struct value *body) {
    const struct value *v = value_get(body, "prompt");
    char text[64];
    if (v == NULL || v->kind != VALUE_STR || v->n_bytes >= sizeof(text))
        return -1;
    memcpy(text, v->as.s, v->n_bytes);
    text[v->n_bytes] = '\0';
    for (int i = 0; i < s->n_texts; i++)
        if (strcmp(s->texts[i], text) == 0)
            return i;
    if (s->n_texts == STAND_IN_TEXTS)
        return -1;
    strcpy(s->texts[s->n_texts], text);
    return s->n_texts++;
}

static void put_text(struct buf *b, const char *text) {
    value_put_str(b, text, strlen(text));
}

/* {"id":"cmpl-x","usage":{"completion_tokens":3}} or {"error":{"message":"no"}} */
static void put_body(struct buf *b, bool good) {
    value_put_map(b, good ? 2 : 1);
    if (good) {
        put_text(b, "id");
        put_text(b, "cmpl-x");
    }
    put_text(b, good ? "usage" : "error");
    value_put_map(b, 1);
    put_text(b, good ? "completion_tokens" : "message");
    if (good)
        value_put_uint(b, 3);
    else
        put_text(b, "no");
}

static void reply(struct rpc_stand_in *s, struct transport *t, uint32_t peer, uint64_t id, int status) {
    struct buf body = {0}, out = {0};
    put_body(&body, status == 200);
    if (status == 200)
        rpc_put_done(&out, id, &body);
    else
        rpc_put_error(&out, id, (uint32_t)status, s->retry_after_ms, &body);
    while (transport_send(t, peer, out.p, out.len) == TRANSPORT_FULL)
        poll(NULL, 0, 1);
    buf_deinit(&body);
    buf_deinit(&out);
}

/* False: hang up. */
static bool take(struct rpc_stand_in *s, struct transport *t, const struct transport_msg *raw) {
    struct rpc_msg m;
    struct err e;
    bool stays = true;
    if (rpc_decode(&m, raw->p, raw->n, &e) != 0)
        return true;
    if (m.kind == RPC_REQUEST) {
        int i = text_index(s, m.body);
        int status = i >= 0 ? s->answer(s->texts[i], s->asked[i]++) : 400;
        atomic_fetch_add(&s->requests, 1);
        stays = status != STAND_IN_HANG_UP;
        if (status > 0)
            reply(s, t, raw->peer, m.id, status);
    } else if (m.kind == RPC_CANCEL) {
        atomic_fetch_add(&s->cancels, 1);
        reply(s, t, raw->peer, m.id, 499);
    } else if (m.kind == RPC_PING) {
        struct buf out = {0};
        rpc_put_ping(&out, m.id, true);
        transport_send(t, raw->peer, out.p, out.len);
        buf_deinit(&out);
    }
    rpc_msg_deinit(&m);
    return stays;
}

static void *serve(void *arg) {
    struct rpc_stand_in *s = arg;
    struct transport *t = s->first;
    struct err e;
    while (!atomic_load(&s->stop)) {
        struct transport_msg raw;
        if (t == NULL && transport_listen(&t, s->endpoint, NULL, RPC_BYTES_MAX, &e) != 0) {
            fprintf(stderr, "stand-in: %s\n", e.msg);
            poll(NULL, 0, 10);
            continue;
        }
        if (transport_recv(t, &raw) != 0) {
            struct pollfd f = {.fd = transport_fd(t), .events = POLLIN};
            poll(&f, 1, 10);
            continue;
        }
        bool stays = take(s, t, &raw);
        transport_msg_free(&raw);
        if (!stays)
            transport_close(&t);
    }
    transport_close(&t);
    return NULL;
}

int rpc_stand_in_start(struct rpc_stand_in *s, const char *endpoint) {
    struct err e;
    snprintf(s->endpoint, sizeof(s->endpoint), "%s", endpoint);
    /* Here, so that it listens when this returns; the thread takes it over. */
    if (transport_listen(&s->first, s->endpoint, NULL, RPC_BYTES_MAX, &e) != 0) {
        fprintf(stderr, "stand-in: %s\n", e.msg);
        return -1;
    }
    return pthread_create(&s->thread, NULL, serve, s);
}

void rpc_stand_in_stop(struct rpc_stand_in *s) {
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
}
