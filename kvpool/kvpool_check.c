/* The auditor: recounts every number of the pool from its tables, holds and lists alone. It changes
 * nothing and allocates nothing, so "how often does block b appear" is asked block by block where a
 * cheap sum could not tell; O(pool) for the sums, O(entries of b) per block. */
#include "kvpool/kvpool_impl.h"

/* Each table by itself, and what its entries name. */
static const char *kv_check_tables(const struct kvpool *p, uint64_t *entries)
{
    const struct kv_block *blocks = kv_blocks(p);
    uint32_t open = 0;
    for (uint32_t i = 0; i < p->cfg.max_seqs; i++) {
        const struct kv_seq *s = &kv_seqs(p)[i];
        if (!s->open) {
            if (s->n_blocks != 0 || s->reserved != 0) return "I4: a closed sequence has blocks";
            continue;
        }
        open++;
        if (s->n_blocks != kvpool_blocks_for(p, s->reserved))
            return "I4: table length is not ceil(reserved)";
        if (s->committed > s->reserved) return "I4: committed > reserved";
        const uint32_t *table = kv_seq_table(p, i);
        for (uint32_t k = 0; k < s->n_blocks; k++) {
            if (table[k] == 0) return "I6: the trash block is in a table";
            if (table[k] >= p->cfg.n_blocks) return "I2: a table names a block that does not exist";
            const struct kv_block *b = &blocks[table[k]];
            if (b->refs == 0) return "I2: a table names a block without refs";
            if (b->refs > 1 && (uint64_t)(k + 1) * p->cfg.block_tokens > s->committed)
                return "I5: a shared block is not full and committed";
        }
        *entries += s->n_blocks;
    }
    return open == p->seq_count ? NULL : "open sequences miscounted";
}

static const char *kv_check_holds(const struct kvpool *p, uint64_t *entries)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < p->cfg.max_holds; i++) {
        const struct kv_hold *h = &kv_holds(p)[i];
        if (!h->live) continue;
        live++;
        const uint32_t *ids = kv_hold_ids(p, i);
        for (uint32_t k = 0; k < h->n_ids; k++) {
            if (ids[k] == 0) return "I6: the trash block is in a hold";
            if (ids[k] >= p->cfg.n_blocks) return "I2: a hold names a block that does not exist";
            if (kv_blocks(p)[ids[k]].holds == 0) return "I2: a hold names a block without holds";
        }
        *entries += h->n_ids;
    }
    return live == p->hold_count ? NULL : "live holds miscounted";
}

/* States: every block in exactly one, sums as stated. */
static const char *kv_check_states(const struct kvpool *p, uint64_t *refs, uint64_t *holds)
{
    const struct kv_block *blocks = kv_blocks(p);
    uint32_t n_free = 0, n_used = 0, n_held = 0, on_list = 0;
    if (blocks[0].refs != 0 || blocks[0].holds != 0) return "I6: the trash block is in use";
    for (uint32_t i = 1; i < p->cfg.n_blocks; i++) {
        *refs += blocks[i].refs;
        *holds += blocks[i].holds;
        if (blocks[i].refs > 0)
            n_used++;
        else if (blocks[i].holds > 0)
            n_held++;
        else
            n_free++;
    }
    for (uint32_t at = p->free_head; at != KV_END; at = blocks[at].next) {
        if (at == 0 || at >= p->cfg.n_blocks) return "I3: the free list leaves the pool";
        if (blocks[at].refs != 0 || blocks[at].holds != 0)
            return "I1: a block in use is on the free list";
        if (++on_list > n_free)
            return "I3: the free list is longer than the free blocks, or a ring";
    }
    if (on_list != n_free || n_free != p->free_count)
        return "I3: free count is not the list's length";
    if (n_used != p->used || n_held != p->held) return "I1: used or held miscounted";
    if (n_free + n_used + n_held != p->cfg.n_blocks - 1)
        return "I3: free + used + held is not n - 1";
    return NULL;
}

static uint32_t kv_count_tables(const struct kvpool *p, uint32_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->cfg.max_seqs; i++) {
        const uint32_t *table = kv_seq_table(p, i);
        for (uint32_t k = 0; k < kv_seqs(p)[i].n_blocks; k++) n += table[k] == id;
    }
    return n;
}

static uint32_t kv_count_holds(const struct kvpool *p, uint32_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->cfg.max_holds; i++) {
        const uint32_t *ids = kv_hold_ids(p, i);
        for (uint32_t k = 0; kv_holds(p)[i].live && k < kv_holds(p)[i].n_ids; k++)
            n += ids[k] == id;
    }
    return n;
}

const char *kvpool_check(const struct kvpool *p)
{
    uint64_t table_entries = 0, hold_entries = 0, refs = 0, holds = 0;
    const char *bad = kv_check_tables(p, &table_entries);
    if (bad == NULL) bad = kv_check_holds(p, &hold_entries);
    if (bad == NULL) bad = kv_check_states(p, &refs, &holds);
    if (bad != NULL) return bad;
    if (refs != table_entries) return "I2: refs is not the number of table entries";
    if (holds != hold_entries) return "I2: holds is not the number of hold entries";
    /* Equal sums still allow one block's count to be high and another's low. Big pools skip this
     * quadratic part: there each wrong pair shows as an entry without refs as soon as one drops to
     * 0. */
    if ((uint64_t)p->cfg.n_blocks * (table_entries + hold_entries) > 1u << 20) return NULL;
    for (uint32_t i = 1; i < p->cfg.n_blocks; i++) {
        if (kv_blocks(p)[i].refs != kv_count_tables(p, i))
            return "I2: a block's refs are not its tables";
        if (kv_blocks(p)[i].holds != kv_count_holds(p, i))
            return "I2: a block's holds are not its live holds";
    }
    return NULL;
}
