/* shown.h - which gateway has been shown how much of what the tenants had.
 *
 * Every gateway is to hold the same account of each tenant (scheduler/tenant_account.h), so a worker shows each
 * session the counters of all tenants, whoever sent their requests: in full after the session came up, then what
 * changed. Counters are the core's, per KV account; an account that became another tenant's counts from there.
 * A tenant that comes back after that is counted from 0 again.
 *
 * Order: shown_up when a session comes up; shown_look after each event, before shown_rows; shown_rows for each TOKENS.
 * Thread: the step loop. Cost: O(accounts x classes) a call, no allocation.
 */
#ifndef SLUICE_WORKER_SHOWN_H
#define SLUICE_WORKER_SHOWN_H

#include "worker/seq_store.h"

struct shown_account {
    uint32_t owner; /* as in the store when `base` was taken */
    struct worker_tenant_account base[CLASSES_MAX];
};

struct shown {
    const struct worker_core *core;
    const struct seq_store *store;
    uint32_t n_classes;
    struct shown_account accounts[SEQ_ACCOUNTS];
    struct {
        bool swept;                  /* all have been shown since it came up */
        uint64_t told[SEQ_ACCOUNTS]; /* sum of what was shown */
    } gw[WORKER_GATEWAYS_MAX];
};

void shown_init(struct shown *s, const struct worker_core *core, const struct seq_store *store,
                uint32_t n_classes);
void shown_up(struct shown *s, uint32_t gw);
/* Notices accounts that became another tenant's, before anything is computed for that one. */
void shown_look(struct shown *s);
/* Is there anything that this gateway was not shown? */
bool shown_news(const struct shown *s, uint32_t gw);
/* Fills at most `cap` rows and returns how many; *all: nothing is left. */
uint32_t shown_rows(struct shown *s, uint32_t gw, struct msg_tenant *out, uint32_t cap, bool *all);

#endif
