#include "tests/unit/worker/worker_rig.h"

#include "tests/common/testpaths.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

void rig_model_open(struct rig_model *r) {
    struct err e = {0};
    char path[4200];
    ck_assert_int_eq(test_tmpdir_make(r->dir, "worker"), 0);
    snprintf(path, sizeof(path), "%s/tiny.gguf", r->dir);
    ck_assert_int_eq(tiny_model_write(TINY_SEED, path), 0);
    ck_assert_msg(model_open(&r->m, path, NULL, &e) == 0, "%s", e.msg);
}

void rig_model_close(struct rig_model *r) {
    model_close(&r->m);
    test_tmpdir_remove(r->dir);
}

struct msg_submit rig_submit(struct sub_id sub, int32_t *ids, uint32_t n, uint32_t max_total) {
    return (struct msg_submit){.sub = sub,
                               .cls = CLASS_BATCH,
                               .rank = 1,
                               .tenant = "t",
                               .ids = ids,
                               .n_ids = n,
                               .n_prompt = n,
                               .from = n,
                               .max_total = max_total,
                               .top_p = 1.0f,
                               .repetition_penalty = 1.0f,
                               .seed = 1,
                               .skip_special = true};
}

void rig_gateway_open(struct rig_gateway *g) {
    struct err e = {0};
    memset(g, 0, sizeof(*g));
    strcpy(g->name, "gw0");
    g->incarnation = 11;
    ck_assert_msg(transport_fake_listen(&g->t, &e) == 0, "%s", e.msg);
}

void rig_gateway_listen(struct rig_gateway *g, const char *keys) {
    struct err e = {0};
    struct transport_keys k = {0};
    memset(g, 0, sizeof(*g));
    strcpy(g->name, "gw0");
    g->incarnation = 11;
    ck_assert_msg(transport_keys_load(&k, keys, true, &e) == 0, "%s", e.msg);
    ck_assert_msg(transport_listen(&g->t, "tcp://127.0.0.1:*", &k, MSG_BYTES_MAX, &e) == 0, "%s",
                  e.msg);
    transport_keys_wipe(&k);
}

void rig_gateway_close(struct rig_gateway *g) {
    transport_close(&g->t);
}

int rig_dial(struct transport **out, void *ctx, uint32_t gw, struct err *e) {
    struct rig_gateway *g = ctx;
    (void)gw;
    int rc = transport_fake_dial(out, g->t, e);
    if (rc == 0)
        atomic_store(&g->dialer, *out);
    return rc;
}

void rig_send(struct rig_gateway *g, const struct msg *m) {
    struct buf b;
    buf_init(&b, 0);
    msg_encode(&b, m);
    ck_assert(!b.bad);
    transport_send(g->t, g->peer, b.p, b.len); /* a peer that is gone is a case of the tests */
    buf_deinit(&b);
}

void rig_send_sub(struct rig_gateway *g, enum msg_kind kind, struct sub_id sub, uint32_t from) {
    rig_send(g, &(struct msg){.kind = kind, .u.sub = {.sub = sub, .from = from}});
}

void rig_accept(struct rig_gateway *g) {
    struct msg m = {.kind = MSG_HELLO_REPLY};
    m.u.hello_reply =
        (struct msg_hello_reply){.accepted = true, .version = 1, .incarnation = g->incarnation};
    memcpy(m.u.hello_reply.gateway, g->name, sizeof(g->name));
    rig_send(g, &m);
}

bool rig_recv(struct rig_gateway *g, struct msg *m) {
    struct transport_msg raw;
    struct err e = {0};
    while (transport_recv(g->t, &raw) == TRANSPORT_OK) {
        g->peer = raw.peer;
        ck_assert_msg(msg_decode(m, raw.p, raw.n, &e) == 0, "%s", e.msg);
        transport_msg_free(&raw);
        if (m->kind != MSG_PING)
            return true;
        msg_deinit(m);
    }
    return false;
}

void rig_wait(struct rig_gateway *g, struct msg *m) {
    for (int i = 0; i < 1000; i++) {
        if (rig_recv(g, m))
            return;
        struct pollfd p = {.fd = transport_fd(g->t), .events = POLLIN};
        poll(&p, 1, 10);
    }
    ck_abort_msg("nothing came in 10 s");
}

void rig_cut(struct rig_gateway *g) {
    transport_fake_cut(atomic_load(&g->dialer));
}
