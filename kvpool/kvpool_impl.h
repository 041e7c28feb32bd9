/* kvpool_impl.h - the pool's region as its own files see it. Internal to this room.
 *
 *   kvpool.c         region, blocks and their states, sequences, reserve, holds, looking
 *   kvpool_prefix.c  names, the index over them, publish, match, attach, eviction
 *   kvpool_host.c    slots, checkpoint, suspend, resume, swap-in, the end of a copy
 *   kvpool_check.c   the auditor
 *
 *   struct kvpool | blocks[n_blocks] | seqs[max_seqs] | holds[max_holds] | accounts[max_accounts] |
 *   tables[max_seqs][max_seq_blocks] | hold_ids[max_holds][max_seq_blocks] |
 *   with prefix_cache: names[n_blocks] | chains[max_seqs] | index[index_size] | ids[n_blocks][block_tokens] |
 *   with n_host: tiers[n_blocks] | slots[n_host] | stays[max_seqs] | kept[max_seqs][max_seq_blocks] | copies[max_copies]
 *
 * Free lists (blocks, sequences, holds, slots, copies) are threaded through their rows by index, last
 * in first out, so that the same calls always give the same ids.
 */
#ifndef SLUICE_KVPOOL_KVPOOL_IMPL_H
#define SLUICE_KVPOOL_KVPOOL_IMPL_H

#include "kvpool/kvpool.h"

#define KV_END UINT32_MAX /* end of a list, no such row */
#define KV_LISTS 4        /* of cached blocks: (hit since it was published) x (published by rank 0) */

struct kv_block {
    uint32_t generation; /* rises when its bytes are given up */
    uint32_t refs;       /* tables it appears in */
    uint32_t holds;      /* live holds and copies that list it */
    uint32_t next;       /* on the free list */
    uint32_t account;    /* it counts to, while refs > 0 */
};

struct kv_seq {
    uint32_t open; /* 0 or 1 */
    uint32_t reserved, committed;
    uint32_t n_blocks; /* entries of its table */
    uint32_t next;
    uint32_t account, quota; /* quota in blocks, 0 = none */
};

struct kv_hold {
    uint32_t live; /* 0 or 1 */
    uint32_t n_ids;
    uint32_t next, pad;
    uint64_t generations; /* sum over its blocks: each one only rises, so the sum tells any change */
};

struct kv_name { /* of a published block */
    struct hash128 hash, parent;
    uint64_t used_at;    /* clock when it was last in a table */
    uint32_t prev, next; /* on its list while CACHED */
    uint8_t published, cached, hit, urgent;
    uint32_t pad;
};

struct kv_chain { /* how far a sequence's blocks have been looked at for publishing */
    struct hash128 hash; /* of block n - 1, or the root */
    uint32_t n, pad;
};

struct kv_list {
    uint32_t head, tail;
};

struct kv_tier { /* of a block */
    uint32_t slot; /* KV_END = none; the slot may still be filling */
};

enum kv_slot_list { KV_SLOT_NOWHERE, KV_SLOT_FREE, KV_SLOT_LOOSE };

struct kv_slot {
    uint32_t refs;   /* suspended and resuming sequences that list it */
    uint32_t block;  /* on the device with the same bytes, 0 = none */
    uint32_t copies; /* in flight from or to it */
    uint32_t list;   /* enum kv_slot_list */
    uint32_t prev, next;
};

struct kv_stay { /* a sequence's place on the host */
    uint32_t n;       /* entries of its kept table: suspended, or resuming */
    uint32_t pending; /* entries without their block on the device yet, resuming only */
    uint32_t next;    /* first entry whose swap-in was not begun */
    uint32_t good;    /* resuming: blocks that will be committed when nothing is pending */
    uint32_t clean;   /* blocks before this one have a slot; only a place to start looking */
    uint32_t bad;     /* resuming: 1 + first block whose swap-in failed */
    uint32_t resuming;
    uint32_t tail;    /* positions in the last entry's slot, where it does not hold a whole block; else 0 */
};

struct kv_flight { /* a copy */
    uint32_t live, to_host;
    uint32_t block, generation, slot;
    uint32_t seq; /* KV_END: its sequence went on without it */
    uint32_t at;  /* place in the table, the same for every sequence that shares the block */
    uint32_t next;
};

struct kvpool {
    struct kvpool_config cfg;
    uint32_t free_head, free_count;
    uint32_t seq_head, seq_count; /* head of the unused ones, number of open ones */
    uint32_t hold_head, hold_count;
    uint32_t used, held, cached; /* blocks per state */
    uint32_t cap;                /* most blocks in use or cached, n_blocks - 1 unless shrunk */
    uint32_t copy_head, copy_count;
    uint32_t slot_busy, slot_free;
    struct kv_list lists[KV_LISTS], free_slots, loose_slots;
    uint64_t clock; /* blocks given out; stands still without prefix cache */
    uint64_t index_size;
    uint64_t hits, misses, evictions, checkpoints, swap_ins, copy_failures, host_dropped;
    /* byte offsets from the header */
    uint64_t blocks_at, seqs_at, holds_at, accounts_at, tables_at, hold_ids_at;
    uint64_t names_at, chains_at, index_at, ids_at;
    uint64_t tiers_at, slots_at, stays_at, kept_at, copies_at;
};

#define KV_ROWS(name, type, field)                                  \
    static inline type *name(const struct kvpool *p)                \
    {                                                               \
        return (type *)(void *)((char *)(uintptr_t)p + p->field);   \
    }
KV_ROWS(kv_blocks, struct kv_block, blocks_at)
KV_ROWS(kv_seqs, struct kv_seq, seqs_at)
KV_ROWS(kv_holds, struct kv_hold, holds_at)
KV_ROWS(kv_accounts, uint32_t, accounts_at)
KV_ROWS(kv_names, struct kv_name, names_at)
KV_ROWS(kv_chains, struct kv_chain, chains_at)
KV_ROWS(kv_index, uint32_t, index_at)
KV_ROWS(kv_ids, int32_t, ids_at)
KV_ROWS(kv_tiers, struct kv_tier, tiers_at)
KV_ROWS(kv_slots, struct kv_slot, slots_at)
KV_ROWS(kv_stays, struct kv_stay, stays_at)
KV_ROWS(kv_copies, struct kv_flight, copies_at)
#undef KV_ROWS

static inline uint32_t *kv_seq_table(const struct kvpool *p, uint32_t seq)
{
    uint32_t *all = (uint32_t *)(void *)((char *)(uintptr_t)p + p->tables_at);
    return all + (size_t)seq * p->cfg.max_seq_blocks;
}

static inline uint32_t *kv_hold_ids(const struct kvpool *p, uint32_t hold)
{
    uint32_t *all = (uint32_t *)(void *)((char *)(uintptr_t)p + p->hold_ids_at);
    return all + (size_t)hold * p->cfg.max_seq_blocks;
}

/* Slots of a suspended or resuming sequence, by table index; KV_END = its block is on the device. */
static inline uint32_t *kv_kept_table(const struct kvpool *p, uint32_t seq)
{
    uint32_t *all = (uint32_t *)(void *)((char *)(uintptr_t)p + p->kept_at);
    return all + (size_t)seq * p->cfg.max_seq_blocks;
}

/* kvpool.c */
struct kv_seq *kv_seq_at(const struct kvpool *p, uint32_t seq);
uint32_t kv_available(const struct kvpool *p); /* blocks that may be taken now, cached ones included */
bool kv_quota_allows(const struct kvpool *p, const struct kv_seq *s, uint32_t more);
void kv_table_push(struct kvpool *p, uint32_t seq); /* one fresh block; evicts */
/* A named block joins the end of the table of `seq`. */
void kv_table_join(struct kvpool *p, uint32_t seq, uint32_t block);
void kv_table_cut(struct kvpool *p, uint32_t seq, uint32_t n); /* to n entries */
void kv_block_unhold(struct kvpool *p, uint32_t block);

/* kvpool_prefix.c; all but the first three only with prefix_cache */
void kv_prefix_init(struct kvpool *p);
bool kv_is_published(const struct kvpool *p, uint32_t block);
void kv_chain_reset(struct kvpool *p, uint32_t seq);
void kv_cache(struct kvpool *p, uint32_t block);   /* used or held no more */
void kv_uncache(struct kvpool *p, uint32_t block); /* used again */
void kv_unpublish(struct kvpool *p, uint32_t block);
uint32_t kv_evict_one(struct kvpool *p); /* the cached block to go; it is cached no more */
/* The name of the block with these ids behind `parent`. */
struct hash128 kv_next_hash(const struct kvpool *p, struct hash128 parent, const int32_t *ids);
/* The published block of this name, 0 = none. */
uint32_t kv_find(const struct kvpool *p, struct hash128 hash, struct hash128 parent,
                 const int32_t *ids);
uint64_t kv_index_home(const struct kvpool *p, struct hash128 hash);

/* kvpool_host.c; only with n_host */
void kv_host_init(struct kvpool *p);
void kv_host_block_unused(struct kvpool *p, uint32_t block); /* its last table left it */
void kv_host_block_used(struct kvpool *p, uint32_t block);   /* in a table again */
void kv_host_block_gone(struct kvpool *p, uint32_t block);   /* its bytes are given up */
void kv_host_leave(struct kvpool *p, uint32_t seq);          /* reset, close: slots and copies let go */
bool kv_host_here(const struct kvpool *p, uint32_t seq);     /* not suspended with blocks kept */
/* Positions that a resuming sequence will have committed, 0 if it is not resuming. */
uint32_t kv_host_floor(const struct kvpool *p, uint32_t seq);

#endif
