/* seq_store.c - a plain table; a scan for a free slot costs less than one token's logits. */
#include "worker/seq_store.h"

#include "base/mem.h"

#include <assert.h>

int seq_store_init(struct seq_store *st, uint32_t n_slots) {
    *st = (struct seq_store){.n_slots = n_slots};
    st->slots = mem_array(n_slots, sizeof(*st->slots));
    return st->slots != NULL ? 0 : -1;
}

void seq_store_deinit(struct seq_store *st) {
    for (uint32_t i = 0; st->slots != NULL && i < st->n_slots; i++)
        seq_destroy(&st->slots[i]);
    mem_free(st->slots);
    *st = (struct seq_store){0};
}

static uint32_t account_of(struct seq_store *st, uint64_t tenant) {
    uint32_t empty = 0;
    for (uint32_t i = 1; i < SEQ_ACCOUNTS; i++) {
        if (st->accounts[i].n_seqs != 0 && st->accounts[i].tenant == tenant)
            return i;
        if (st->accounts[i].n_seqs == 0 && empty == 0)
            empty = i;
    }
    st->accounts[empty].tenant = tenant;
    return empty;
}

uint32_t seq_store_put(struct seq_store *st, struct seq **s) {
    assert(*s != NULL);
    for (uint32_t i = 0; st->n_used < st->n_slots && i < st->n_slots; i++) {
        if (st->slots[i] != NULL)
            continue;
        (*s)->account = account_of(st, (*s)->tenant);
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
