/* answers.h - what the step loop says to gateways: TOKENS collected per event and gateway, SYNC,
 * STATUS.
 *
 * worker_core speaks sequence by sequence; a gateway hears one TOKENS message for all that one
 * event (a step's end, usually) brought it, with the account counters attached; who gets nothing else
 * is shown the tenants' counters beside STATUS. Records are copied
 * out of the sequences at once, so that a slot may be freed or go on while its message is on the
 * way. A message that cannot be made (no memory) cuts the session: SYNC and GAP repair it. Thread:
 * the step loop. Order: any number of answers_tokens / answers_finish, then answers_flush.
 */
#ifndef SLUICE_WORKER_ANSWERS_H
#define SLUICE_WORKER_ANSWERS_H

#include "worker/mail.h"
#include "worker/seq_store.h"
#include "worker/shown.h"

struct answers {
    struct mail *mail;
    const struct worker_core *core;
    const struct seq_store *store;
    uint32_t n_classes, max_slots;
    struct {
        uint32_t epoch;
        struct mail_out *tokens;
    } gw[WORKER_GATEWAYS_MAX]; /* epoch 0 = down */
    struct worker_sync *sync;  /* max_slots */
    uint64_t status_number;
    struct shown *shown;
};

int answers_init(struct answers *a, struct mail *mail, const struct worker_core *core,
                 const struct seq_store *store, uint32_t n_classes);
void answers_deinit(struct answers *a);

void answers_up(struct answers *a, uint32_t gw, uint32_t epoch);
void answers_down(struct answers *a, uint32_t gw);
bool answers_any_up(const struct answers *a);

/* WA_TOKENS: records [from, to) of a slot, then the finish. */
void answers_tokens(struct answers *a, const struct worker_action *act);
/* WA_FINISH: no slot; `index` is the one its gateway waits for, where that is known. */
void answers_finish(struct answers *a, const struct worker_action *act, uint32_t index);
void answers_flush(struct answers *a);
void answers_sync(struct answers *a, uint32_t gw);
void answers_status(struct answers *a, uint64_t busy_ns, uint64_t uptime_ns);

#endif
