/* Names: which full committed blocks can be found again by what their tokens are.
 *
 * The index is an open-addressing table of block ids at most half full, probed linearly, with
 * deletion by moving back (Knuth, TAOCP 3, 6.4, algorithm R), so that a lookup never passes graves.
 * Cached blocks hang on one of four lists by what they are worth; inside a list the oldest is first. */
#include "base/fault.h"
#include "kvpool/kvpool_impl.h"

#include <assert.h>
#include <string.h>

void kv_prefix_init(struct kvpool *p)
{
    for (int i = 0; i < KV_LISTS; i++) p->lists[i] = (struct kv_list){KV_END, KV_END};
    for (uint32_t i = 0; i < p->cfg.n_blocks; i++)
        kv_names(p)[i].prev = kv_names(p)[i].next = KV_END;
}

bool kv_is_published(const struct kvpool *p, uint32_t block)
{
    return p->cfg.prefix_cache && kv_names(p)[block].published;
}

void kv_chain_reset(struct kvpool *p, uint32_t seq)
{
    if (p->cfg.prefix_cache) kv_chains(p)[seq] = (struct kv_chain){0};
}

/* ---- the lists of cached blocks ---- */

static uint32_t kv_list_of(const struct kv_name *n)
{
    return (n->hit ? 2u : 0u) + (n->urgent ? 1u : 0u);
}

void kv_cache(struct kvpool *p, uint32_t block)
{
    struct kv_name *names = kv_names(p), *n = &names[block];
    struct kv_list *l = &p->lists[kv_list_of(n)];
    assert(n->published && !n->cached);
    n->cached = 1;
    n->used_at = p->clock;
    n->prev = l->tail;
    n->next = KV_END;
    if (l->tail != KV_END)
        names[l->tail].next = block;
    else
        l->head = block;
    l->tail = block;
    p->cached++;
}

void kv_uncache(struct kvpool *p, uint32_t block)
{
    struct kv_name *names = kv_names(p), *n = &names[block];
    struct kv_list *l = &p->lists[kv_list_of(n)];
    assert(n->cached);
    if (n->prev != KV_END)
        names[n->prev].next = n->next;
    else
        l->head = n->next;
    if (n->next != KV_END)
        names[n->next].prev = n->prev;
    else
        l->tail = n->prev;
    n->prev = n->next = KV_END;
    n->cached = 0;
    p->cached--;
}

uint32_t kv_evict_one(struct kvpool *p)
{
    uint32_t best = KV_END;
    uint64_t best_worth = 0;
    for (uint32_t i = 0; i < KV_LISTS; i++) {
        uint32_t head = p->lists[i].head;
        if (head == KV_END) continue;
        uint64_t bonus = ((i >> 1) + (i & 1u)) * (uint64_t)p->cfg.n_blocks;
        uint64_t worth = kv_names(p)[head].used_at + bonus;
        if (best != KV_END && worth >= best_worth) continue;
        best = head;
        best_worth = worth;
    }
    assert(best != KV_END);
    kv_uncache(p, best);
    return best;
}

/* ---- the index ---- */

uint64_t kv_index_home(const struct kvpool *p, struct hash128 hash)
{
    return hash.lo & (p->index_size - 1);
}

static int32_t *kv_block_ids(const struct kvpool *p, uint32_t block)
{
    return kv_ids(p) + (size_t)block * p->cfg.block_tokens;
}

/* The name of the block behind `parent`. */
struct hash128 kv_next_hash(const struct kvpool *p, struct hash128 parent,
                                   const int32_t *ids)
{
    if (fault_on(FAULT_HIT_NO_IDS)) parent = (struct hash128){1, 1};
    return prefix_hash(parent, ids, p->cfg.block_tokens);
}

uint32_t kv_find(const struct kvpool *p, struct hash128 hash, struct hash128 parent,
                 const int32_t *ids)
{
    const uint32_t *index = kv_index(p);
    for (uint64_t at = kv_index_home(p, hash); index[at] != 0; at = (at + 1) & (p->index_size - 1)) {
        const struct kv_name *n = &kv_names(p)[index[at]];
        if (!hash128_equal(n->hash, hash)) continue;
        bool same = (hash128_equal(n->parent, parent) || fault_on(FAULT_HIT_NO_IDS)) &&
                    memcmp(kv_block_ids(p, index[at]), ids,
                           (size_t)p->cfg.block_tokens * sizeof *ids) == 0;
        return same ? index[at] : 0;
    }
    return 0;
}

static bool kv_name_taken(const struct kvpool *p, struct hash128 hash)
{
    const uint32_t *index = kv_index(p);
    for (uint64_t at = kv_index_home(p, hash); index[at] != 0; at = (at + 1) & (p->index_size - 1)) {
        if (hash128_equal(kv_names(p)[index[at]].hash, hash)) return true;
    }
    return false;
}

static void kv_index_add(struct kvpool *p, uint32_t block)
{
    uint32_t *index = kv_index(p);
    uint64_t at = kv_index_home(p, kv_names(p)[block].hash);
    while (index[at] != 0) at = (at + 1) & (p->index_size - 1);
    index[at] = block;
}

void kv_unpublish(struct kvpool *p, uint32_t block)
{
    uint32_t *index = kv_index(p);
    uint64_t mask = p->index_size - 1, hole = kv_index_home(p, kv_names(p)[block].hash);
    assert(kv_names(p)[block].published && !kv_names(p)[block].cached);
    while (index[hole] != block) hole = (hole + 1) & mask;
    for (uint64_t at = (hole + 1) & mask; index[at] != 0; at = (at + 1) & mask) {
        uint64_t home = kv_index_home(p, kv_names(p)[index[at]].hash);
        if (((at - home) & mask) < ((at - hole) & mask)) continue; /* its home lies behind the hole */
        index[hole] = index[at];
        hole = at;
    }
    index[hole] = 0;
    kv_names(p)[block] = (struct kv_name){.prev = KV_END, .next = KV_END};
}

static void kv_name_block(struct kvpool *p, uint32_t block, struct hash128 hash,
                          struct hash128 parent, const int32_t *ids, uint8_t rank)
{
    kv_names(p)[block] = (struct kv_name){.hash = hash,
                                          .parent = parent,
                                          .prev = KV_END,
                                          .next = KV_END,
                                          .published = 1,
                                          .urgent = rank == 0};
    memcpy(kv_block_ids(p, block), ids, (size_t)p->cfg.block_tokens * sizeof *ids);
    kv_index_add(p, block);
}

/* ---- what the scheduler calls ---- */

void kvpool_publish(struct kvpool *p, uint32_t seq, struct hash128 root, const int32_t *ids,
                    uint8_t rank)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    if (!p->cfg.prefix_cache) return;
    struct kv_chain *chain = &kv_chains(p)[seq];
    uint32_t bt = p->cfg.block_tokens, full = s->committed / bt;
    if (fault_on(FAULT_HASH_UNCOMMITTED)) full = s->reserved / bt;
    if (chain->n == 0) chain->hash = root;
    for (; chain->n < full; chain->n++) {
        const int32_t *own = ids + (size_t)chain->n * bt;
        uint32_t block = kv_seq_table(p, seq)[chain->n];
        struct hash128 parent = chain->hash;
        chain->hash = kv_next_hash(p, parent, own);
        if (!kv_names(p)[block].published && !kv_name_taken(p, chain->hash))
            kv_name_block(p, block, chain->hash, parent, own, rank);
    }
}

static uint32_t kv_full_inputs(const struct kvpool *p, uint32_t n_ids)
{
    if (fault_on(FAULT_HIT_WHOLE)) n_ids++;
    uint32_t n = n_ids == 0 ? 0 : (n_ids - 1) / p->cfg.block_tokens;
    return n < p->cfg.max_seq_blocks ? n : p->cfg.max_seq_blocks;
}

uint32_t kvpool_match(const struct kvpool *p, struct hash128 root, const int32_t *ids,
                      uint32_t n_ids)
{
    if (!p->cfg.prefix_cache) return 0;
    uint32_t bt = p->cfg.block_tokens, full = kv_full_inputs(p, n_ids), n = 0;
    for (struct hash128 parent = root, hash; n < full; n++, parent = hash) {
        hash = kv_next_hash(p, parent, ids + (size_t)n * bt);
        if (kv_find(p, hash, parent, ids + (size_t)n * bt) == 0) break;
    }
    return n * bt;
}

uint32_t kvpool_attach(struct kvpool *p, uint32_t seq, struct hash128 root, const int32_t *ids,
                       uint32_t n_ids)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    assert(s->n_blocks == 0 && (p->cfg.n_host == 0 || kv_host_here(p, seq)));
    if (!p->cfg.prefix_cache) return 0;
    struct kv_chain *chain = &kv_chains(p)[seq];
    uint32_t bt = p->cfg.block_tokens, full = kv_full_inputs(p, n_ids);
    chain->hash = root;
    while (chain->n < full) {
        const int32_t *own = ids + (size_t)chain->n * bt;
        struct hash128 hash = kv_next_hash(p, chain->hash, own);
        uint32_t block = kv_find(p, hash, chain->hash, own);
        if (block == 0 || (kv_blocks(p)[block].refs == 0 && !kv_quota_allows(p, s, 1))) break;
        kv_table_join(p, seq, block);
        kv_names(p)[block].hit = 1; /* after it left its list: the list follows from it */
        chain->hash = hash;
        chain->n++;
        p->hits++;
    }
    p->misses += full - chain->n;
    s->reserved = s->committed = chain->n * bt;
    return s->committed;
}
