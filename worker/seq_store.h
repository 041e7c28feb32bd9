/* seq_store.h - slot to sequence: the payloads behind worker_core's slot numbers.
 *
 * The core decides by slot number and never sees an id; the store holds what a slot means. Slots
 * are handed out smallest first and given back when the core says WA_FREE. Thread: the step loop.
 * Nothing is allocated after init; the sequences come from the link thread (worker/seq.h) and are
 * owned here.
 */
#ifndef SLUICE_WORKER_SEQ_STORE_H
#define SLUICE_WORKER_SEQ_STORE_H

#include "scheduler/worker_core.h"
#include "worker/seq.h"

/* KV accounts: one for each tenant that has, or had, a sequence here; when all are taken, one whose tenant has none now
 * becomes another's. 0 = those of more tenants at once than there are accounts; without a quota, since it would be
 * everybody's. */
#define SEQ_ACCOUNTS 256

struct seq_account {
    uint64_t tenant;
    uint32_t n_seqs;
    uint32_t owner; /* number of its tenants so far: 0 = nobody's yet */
    char name[MSG_NAME_MAX];
};

struct seq_store {
    struct seq **slots;
    uint32_t n_slots, n_used;
    uint64_t bytes; /* of all sequences held */
    struct seq_account accounts[SEQ_ACCOUNTS];
    uint32_t n_accounts; /* 1 + the last one that was ever given */
};

int seq_store_init(struct seq_store *st, uint32_t n_slots); /* -1 = no memory */
void seq_store_deinit(struct seq_store *st);                /* destroys what it holds */
/* Takes *s and gives it its account. Slot, or WORKER_SLOT_NONE when all are taken: then *s is destroyed. *s is NULL
 * afterwards. */
uint32_t seq_store_put(struct seq_store *st, struct seq **s);
struct seq *seq_store_get(const struct seq_store *st, uint32_t slot); /* asserts that it is taken */
void seq_store_free(struct seq_store *st, uint32_t slot);

#endif
