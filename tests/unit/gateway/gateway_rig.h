/* gateway_rig.h - a gateway without doors and a worker that is a script: dispatcher, text lanes and
 * requests over the transport of memory, everything on one thread but the lanes' own.
 *
 * rig_open -> rig_join (worker session up) -> rig_post (a request) -> rig_submitted (what the
 * worker was asked) -> rig_tokens (what it answers) -> rig_pull -> rig_close. Waiting runs the
 * gateway's loop; each wait fails the test after 10 s.
 */
#ifndef SLUICE_TESTS_GATEWAY_RIG_H
#define SLUICE_TESTS_GATEWAY_RIG_H

#include "gateway/dispatch.h"
#include "gateway/lane.h"
#include "gateway/request.h"
#include "tests/common/test_run.h"
#include "tests/unit/gateway/tiny_text_model.h"

struct rig {
    struct gateway g;
    struct settings settings;
    struct model model;
    uv_loop_t loop;
    struct transport *listener, *dialer; /* the listener belongs to the dispatcher */
    uint64_t incarnation, numerics;      /* of the scripted worker */
    uint64_t status_number;
};

/* Like a door: counts wakes, keeps what was pulled. */
struct rig_door {
    struct request *request;
    int wakes;
    json_t *events;                /* of a stream, in order */
    enum pull last;                /* what the last pull said */
};

void rig_open(struct rig *r, void (*tweak)(struct settings *s)); /* NULL = defaults */
void rig_close(struct rig *r);
void rig_turn(struct rig *r);                         /* one turn of the loop */
void rig_join(struct rig *r, uint32_t n_blocks);      /* HELLO, empty SYNC, STATUS */
void rig_redial(struct rig *r,
                bool same_process); /* the session is lost; a new one up to HELLO_REPLY */
void rig_send(struct rig *r, const struct msg *m);
/* The next message that is no PING; msg_deinit it. */
void rig_recv(struct rig *r, struct msg *m);
bool rig_try_recv(struct rig *r, struct msg *m);
void rig_expect(struct rig *r, enum msg_kind kind, struct sub_id sub); /* CANCEL, GAP, ACK */
void rig_post(struct rig *r, struct rig_door *d, enum endpoint endpoint, const char *cls,
              const char *body);
/* Runs until the request is past PENDING. */
enum request_state rig_settle(struct rig *r, struct rig_door *d);
enum pull rig_pull(struct rig_door *d);               /* all there is now, into d->events */
void rig_pull_to_end(struct rig *r, struct rig_door *d);
json_t *rig_body(struct rig *r,
                 struct rig_door *d); /* the whole reply, or the error object; json_decref it */
void rig_drop(struct rig_door *d);                    /* request_close, and the events */
struct msg_submit rig_submitted(struct rig *r, struct msg *keep); /* lists live in `keep` */
/* Records for ids[0..n) from absolute index `index`, then the finish. lps may be NULL. */
void rig_tokens(struct rig *r, struct sub_id sub, uint32_t index, const int32_t *ids, uint32_t n,
                const struct msg_record *records, enum finish finish, uint32_t visible);
/* The answer `text`, each byte an id, all at once. */
void rig_answer(struct rig *r, const struct msg_submit *s, const char *text, enum finish finish);
/* Gateway counts and the core's auditor after everything ended. */
void rig_idle(struct rig *r);

#endif
