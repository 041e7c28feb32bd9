/* link.h - the worker's end of the worker link: one thread for all gateways, nothing of it on the
 * step path.
 *
 * Decodes what gateways send, builds sequences, hands both to the step loop through the mail;
 * encodes and sends what the step loop says. Decides nothing about sequences: worker_core does.
 * Order: link_init, then either link_start / link_stop (a thread of its own), or link_turn by hand
 * with an invented time (tests), link_deinit. Thread: all state is the link thread's after
 * link_start. Limits: WORKER_GATEWAYS_MAX gateways; backlog of each bounded (session.h); no memory
 * for a SUBMIT = handed back by the core, no memory for anything else = the session is cut.
 */
#ifndef SLUICE_WORKER_LINK_H
#define SLUICE_WORKER_LINK_H

#include "scheduler/worker_core.h"
#include "worker/mail.h"
#include "worker/session.h"

#include <pthread.h>

struct link_config {
    struct session_config session;
    struct seq_limits limits;
    uint32_t n_gateways;    /* sessions; the dial function knows where each goes */
    uint64_t stall_once_ns; /* debug: sleep this long after the first token went out; 0 = off */
};

/* What the link believes about one gateway, beside the session itself. */
struct link_peer {
    struct session session;
    uint32_t told_epoch; /* the step loop was told that this epoch is up; 0 = told down */
};

struct link {
    struct link_config cfg;
    struct mail *mail;
    struct link_peer peers[WORKER_GATEWAYS_MAX];
    struct buf encoded;
    bool stalled; /* the debug stall is over */
    pthread_t thread;
    bool started;
    _Atomic bool stop;
};

void link_init(struct link *l, const struct link_config *cfg, struct mail *mail);
void link_deinit(struct link *l);

int link_start(struct link *l, struct err *e);
/* Sends what was said before, says BYE, closes all sessions, joins. */
void link_stop(struct link *l);

/* One round without waiting. Returns when it wants to be called again at the latest. */
uint64_t link_turn(struct link *l, uint64_t now_ns);

#endif
