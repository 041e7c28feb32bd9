/* kvpool_impl.h - the pool's region as kvpool.c and its auditor see it. Internal to this room.
 *
 *   struct kvpool | blocks[n_blocks] | seqs[max_seqs] | holds[max_holds] |
 *   tables[max_seqs][max_seq_blocks] | hold_ids[max_holds][max_seq_blocks]
 *
 * Three free lists (blocks, sequences, holds) are threaded through their rows by index, last in
 * first out, so that the same calls always give the same ids.
 */
#ifndef SLUICE_KVPOOL_KVPOOL_IMPL_H
#define SLUICE_KVPOOL_KVPOOL_IMPL_H

#include "kvpool/kvpool.h"

#define KV_END UINT32_MAX /* end of a free list */

struct kv_block {
    uint32_t generation; /* rises when the block is freed */
    uint32_t refs;       /* tables it appears in */
    uint32_t holds;      /* live holds that list it */
    uint32_t next;       /* on the free list */
};

struct kv_seq {
    uint32_t open; /* 0 or 1 */
    uint32_t reserved, committed;
    uint32_t n_blocks; /* entries of its table */
    uint32_t next;
};

struct kv_hold {
    uint32_t live; /* 0 or 1 */
    uint32_t n_ids;
    uint32_t next;
};

struct kvpool {
    struct kvpool_config cfg;
    uint32_t free_head, free_count;
    uint32_t seq_head, seq_count; /* head of the unused ones, number of open ones */
    uint32_t hold_head, hold_count;
    uint32_t used, held; /* blocks per state */
    uint32_t cap;        /* most blocks in use, n_blocks - 1 unless shrunk */
    uint32_t pad;
    uint64_t blocks_at, seqs_at, holds_at, tables_at,
        hold_ids_at; /* byte offsets from the header */
};

static inline struct kv_block *kv_blocks(const struct kvpool *p)
{
    return (struct kv_block *)((char *)(uintptr_t)p + p->blocks_at);
}

static inline struct kv_seq *kv_seqs(const struct kvpool *p)
{
    return (struct kv_seq *)((char *)(uintptr_t)p + p->seqs_at);
}

static inline struct kv_hold *kv_holds(const struct kvpool *p)
{
    return (struct kv_hold *)((char *)(uintptr_t)p + p->holds_at);
}

static inline uint32_t *kv_seq_table(const struct kvpool *p, uint32_t seq)
{
    uint32_t *all = (uint32_t *)((char *)(uintptr_t)p + p->tables_at);
    return all + (size_t)seq * p->cfg.max_seq_blocks;
}

static inline uint32_t *kv_hold_ids(const struct kvpool *p, uint32_t hold)
{
    uint32_t *all = (uint32_t *)((char *)(uintptr_t)p + p->hold_ids_at);
    return all + (size_t)hold * p->cfg.max_seq_blocks;
}

#endif
