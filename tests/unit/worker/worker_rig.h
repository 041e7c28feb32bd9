/* worker_rig.h - what the worker's tests share: the tiny model opened, messages built, and one
 * gateway's end of the fake transport that speaks the link by script.
 */
#ifndef SLUICE_TESTS_WORKER_RIG_H
#define SLUICE_TESTS_WORKER_RIG_H

#include "model/model.h"
#include "proto/message.h"
#include "proto/transport.h"
#include "tests/common/test_run.h"
#include "tests/tiny/tiny_model.h"
#include "worker/link.h"

#define RIG_BYTE(b)                                                                                \
    (4 + (int32_t)(uint8_t)(b)) /* the tiny vocabulary: 4 controls, then bytes, then merges */

struct rig_model {
    struct model m;
    char dir[4096];
};
void rig_model_open(struct rig_model *r);
void rig_model_close(struct rig_model *r);

/* A valid SUBMIT of `n` ids, greedy, that runs to `max_total`. Lists are the caller's. */
struct msg_submit rig_submit(struct sub_id sub, int32_t *ids, uint32_t n, uint32_t max_total);

/* A scripted gateway. */
struct rig_gateway {
    struct transport *t;
    uint32_t peer; /* of the newest message */
    char name[MSG_NAME_MAX];
    uint64_t incarnation;
    _Atomic(struct transport *) dialer; /* the newest one */
};
void rig_gateway_open(struct rig_gateway *g);
void rig_gateway_listen(struct rig_gateway *g, const char *keys); /* ZeroMQ, on a free port */
void rig_gateway_close(struct rig_gateway *g);
int rig_dial(struct transport **out, void *ctx, uint32_t gw, struct err *e); /* ctx: the gateway */
void rig_send(struct rig_gateway *g, const struct msg *m);
void rig_send_sub(struct rig_gateway *g, enum msg_kind kind, struct sub_id sub, uint32_t from);
void rig_accept(struct rig_gateway *g); /* HELLO_REPLY */
/* The next message, pings left out; false = none there. The caller calls msg_deinit. */
bool rig_recv(struct rig_gateway *g, struct msg *m);
/* The same, waiting up to 10 s for it (threads); fails the test otherwise. */
void rig_wait(struct rig_gateway *g, struct msg *m);
/* Cuts the connection. The link must have no reason to close it by itself meanwhile (long
 * silence_ns). */
void rig_cut(struct rig_gateway *g);

#endif
