/* seq_store.c - a plain table; a scan for a free slot costs less than one token's logits. */
#include "worker/seq_store.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

int seq_store_init(struct seq_store *st, uint32_t n_slots) {
    *st = (struct seq_store){.n_slots = n_slots, .n_accounts = 1};
    st->slots = mem_array(n_slots, sizeof(*st->slots));
    return st->slots != NULL ? 0 : -1;
}

void seq_store_deinit(struct seq_store *st) {
    for (uint32_t i = 0; st->slots != NULL && i < st->n_slots; i++)
        seq_destroy(&st->slots[i]);
    mem_free(st->slots);
    *st = (struct seq_store){0};
}

static uint32_t account_of(struct seq_store *st, const struct seq *s) {
    uint32_t idle = 0;
    for (uint32_t i = 1; i < st->n_accounts; i++) {
        if (st->accounts[i].tenant == s->tenant)
            return i;
        if (st->accounts[i].n_seqs == 0 && idle == 0)
            idle = i;
    }
    if (st->n_accounts < SEQ_ACCOUNTS)
        idle = st->n_accounts++;
    if (idle == 0)
        return 0;
    struct seq_account *a = &st->accounts[idle];
    a->tenant = s->tenant;
    a->owner++;
    memcpy(a->name, s->tenant_name, sizeof(a->name));
    return idle;
}

uint32_t seq_store_put(struct seq_store *st, struct seq **s) {
    assert(*s != NULL);
    for (uint32_t i = 0; st->n_used < st->n_slots && i < st->n_slots; i++) {
        if (st->slots[i] != NULL)
            continue;
        (*s)->account = account_of(st, *s);
        st->accounts[(*s)->account].n_seqs++;
        st->slots[i] = *s;
        st->n_used++;
        st->bytes += (*s)->bytes;
        *s = NULL;
        return i;
    }
    seq_destroy(s);
    return WORKER_SLOT_NONE;
}

struct seq *seq_store_get(const struct seq_store *st, uint32_t slot) {
    assert(slot < st->n_slots && st->slots[slot] != NULL);
    return st->slots[slot];
}

void seq_store_free(struct seq_store *st, uint32_t slot) {
    struct seq *s = seq_store_get(st, slot);
    st->bytes -= s->bytes;
    st->accounts[s->account].n_seqs--;
    st->n_used--;
    seq_destroy(&st->slots[slot]);
}
