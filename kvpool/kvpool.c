#include "kvpool/kvpool_impl.h"

#include <assert.h>

/* Limits that keep every product below 2^64 and every index below KV_END. */
#define KV_ROWS_MAX (1u << 28)

static uint64_t kv_align8(uint64_t n)
{
    return (n + 7u) & ~(uint64_t)7u;
}

/* Fills the offsets of `p` (which may be a temporary) and returns the region's size; 0 = absurd. */
static uint64_t kv_layout(struct kvpool *p, const struct kvpool_config *cfg)
{
    if (cfg->n_blocks < 2 || cfg->block_tokens == 0 || cfg->max_seqs == 0 ||
        cfg->max_seq_blocks == 0 || cfg->max_holds == 0)
        return 0;
    if (cfg->n_blocks > KV_ROWS_MAX || cfg->max_seqs > KV_ROWS_MAX ||
        cfg->max_seq_blocks > KV_ROWS_MAX || cfg->max_holds > KV_ROWS_MAX)
        return 0;
    uint64_t at = kv_align8(sizeof(struct kvpool));
    p->blocks_at = at;
    at = kv_align8(at + (uint64_t)cfg->n_blocks * sizeof(struct kv_block));
    p->seqs_at = at;
    at = kv_align8(at + (uint64_t)cfg->max_seqs * sizeof(struct kv_seq));
    p->holds_at = at;
    at = kv_align8(at + (uint64_t)cfg->max_holds * sizeof(struct kv_hold));
    p->tables_at = at;
    at = kv_align8(at + (uint64_t)cfg->max_seqs * cfg->max_seq_blocks * sizeof(uint32_t));
    p->hold_ids_at = at;
    at = kv_align8(at + (uint64_t)cfg->max_holds * cfg->max_seq_blocks * sizeof(uint32_t));
    return at;
}

size_t kvpool_bytes(const struct kvpool_config *cfg)
{
    struct kvpool tmp;
    return (size_t)kv_layout(&tmp, cfg);
}

struct kvpool *kvpool_init(void *region, const struct kvpool_config *cfg)
{
    struct kvpool *p = region;
    assert(((uintptr_t)region & 7u) == 0);
    uint64_t bytes = kv_layout(p, cfg);
    assert(bytes != 0);
    (void)bytes;
    p->cfg = *cfg;
    p->cap = cfg->n_blocks - 1;
    p->free_count = cfg->n_blocks - 1;
    struct kv_block *blocks = kv_blocks(p);
    for (uint32_t i = 1; i < cfg->n_blocks; i++)
        blocks[i].next = i + 1 < cfg->n_blocks ? i + 1 : KV_END;
    p->free_head = 1; /* block 0 is the trash block, in no list */
    for (uint32_t i = 0; i < cfg->max_seqs; i++)
        kv_seqs(p)[i].next = i + 1 < cfg->max_seqs ? i + 1 : KV_END;
    for (uint32_t i = 0; i < cfg->max_holds; i++)
        kv_holds(p)[i].next = i + 1 < cfg->max_holds ? i + 1 : KV_END;
    return p;
}

static struct kv_seq *kv_seq_at(const struct kvpool *p, uint32_t seq)
{
    assert(seq < p->cfg.max_seqs);
    struct kv_seq *s = &kv_seqs(p)[seq];
    assert(s->open);
    return s;
}

static void kv_block_free(struct kvpool *p, uint32_t id)
{
    struct kv_block *b = &kv_blocks(p)[id];
    assert(id != 0 && b->refs == 0 && b->holds == 0);
    b->generation++;
    b->next = p->free_head;
    p->free_head = id;
    p->free_count++;
}

static uint32_t kv_block_take(struct kvpool *p)
{
    assert(p->free_count > 0 && p->free_head != KV_END);
    uint32_t id = p->free_head;
    struct kv_block *b = &kv_blocks(p)[id];
    p->free_head = b->next;
    p->free_count--;
    b->next = KV_END;
    b->refs = 1;
    p->used++;
    return id;
}

/* One table less lists the block: HELD while a step in flight may still touch it, else FREE. */
static void kv_block_unref(struct kvpool *p, uint32_t id)
{
    struct kv_block *b = &kv_blocks(p)[id];
    assert(b->refs > 0);
    if (--b->refs > 0) return;
    p->used--;
    if (b->holds > 0)
        p->held++;
    else
        kv_block_free(p, id);
}

/* Cuts the table of `s` to n entries. */
static void kv_table_cut(struct kvpool *p, uint32_t seq, struct kv_seq *s, uint32_t n)
{
    uint32_t *table = kv_seq_table(p, seq);
    while (s->n_blocks > n) {
        s->n_blocks--;
        kv_block_unref(p, table[s->n_blocks]);
        table[s->n_blocks] = 0;
    }
}

uint32_t kvpool_seq_open(struct kvpool *p)
{
    uint32_t seq = p->seq_head;
    if (seq == KV_END || p->seq_count == p->cfg.max_seqs) return KV_SEQ_NONE;
    struct kv_seq *s = &kv_seqs(p)[seq];
    p->seq_head = s->next;
    p->seq_count++;
    *s = (struct kv_seq){.open = 1, .next = KV_END};
    return seq;
}

void kvpool_seq_close(struct kvpool *p, uint32_t seq)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    kv_table_cut(p, seq, s, 0);
    *s = (struct kv_seq){.next = p->seq_head};
    p->seq_head = seq;
    p->seq_count--;
}

uint32_t kvpool_blocks_for(const struct kvpool *p, uint32_t positions)
{
    return positions / p->cfg.block_tokens + (positions % p->cfg.block_tokens != 0);
}

/* Blocks that may be taken now: the free ones, within the debug limit. */
static uint32_t kv_available(const struct kvpool *p)
{
    uint32_t in_use = p->used + p->held;
    uint32_t room = p->cap > in_use ? p->cap - in_use : 0;
    return room < p->free_count ? room : p->free_count;
}

bool kvpool_fits(const struct kvpool *p, uint32_t seq, uint32_t positions, uint32_t extra)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    uint32_t want = kvpool_blocks_for(p, positions);
    if (want > p->cfg.max_seq_blocks) return false;
    uint32_t more = want > s->n_blocks ? want - s->n_blocks : 0;
    return (uint64_t)more + extra <= kv_available(p);
}

int kvpool_reserve(struct kvpool *p, uint32_t seq, uint32_t positions)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    if (positions <= s->reserved) return 0;
    if (!kvpool_fits(p, seq, positions, 0)) return -1;
    uint32_t want = kvpool_blocks_for(p, positions);
    uint32_t *table = kv_seq_table(p, seq);
    while (s->n_blocks < want) table[s->n_blocks++] = kv_block_take(p);
    s->reserved = positions;
    return 0;
}

void kvpool_commit(struct kvpool *p, uint32_t seq, uint32_t positions)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    assert(positions >= s->committed && positions <= s->reserved);
    s->committed = positions;
}

void kvpool_forget(struct kvpool *p, uint32_t seq, uint32_t positions)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    assert(positions >= s->committed);
    if (positions >= s->reserved) return;
    kv_table_cut(p, seq, s, kvpool_blocks_for(p, positions));
    s->reserved = positions;
}

void kvpool_reset(struct kvpool *p, uint32_t seq)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    kv_table_cut(p, seq, s, 0);
    s->reserved = s->committed = 0;
}

uint32_t kvpool_committed(const struct kvpool *p, uint32_t seq)
{
    return kv_seq_at(p, seq)->committed;
}

uint32_t kvpool_reserved(const struct kvpool *p, uint32_t seq)
{
    return kv_seq_at(p, seq)->reserved;
}

const uint32_t *kvpool_table(const struct kvpool *p, uint32_t seq, uint32_t *n)
{
    *n = kv_seq_at(p, seq)->n_blocks;
    return kv_seq_table(p, seq);
}

uint32_t kvpool_hold(struct kvpool *p, uint32_t seq)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    uint32_t hold = p->hold_head;
    if (hold == KV_END) return KV_HOLD_NONE;
    struct kv_hold *h = &kv_holds(p)[hold];
    p->hold_head = h->next;
    p->hold_count++;
    *h = (struct kv_hold){.live = 1, .n_ids = s->n_blocks, .next = KV_END};
    const uint32_t *table = kv_seq_table(p, seq);
    uint32_t *ids = kv_hold_ids(p, hold);
    for (uint32_t i = 0; i < h->n_ids; i++) {
        ids[i] = table[i];
        kv_blocks(p)[ids[i]].holds++;
    }
    return hold;
}

void kvpool_unhold(struct kvpool *p, uint32_t hold)
{
    assert(hold < p->cfg.max_holds);
    struct kv_hold *h = &kv_holds(p)[hold];
    assert(h->live);
    uint32_t *ids = kv_hold_ids(p, hold);
    for (uint32_t i = 0; i < h->n_ids; i++) {
        struct kv_block *b = &kv_blocks(p)[ids[i]];
        assert(b->holds > 0);
        if (--b->holds == 0 && b->refs == 0) {
            p->held--;
            kv_block_free(p, ids[i]);
        }
        ids[i] = 0; /* equal states have equal bytes: the protocol model hashes regions */
    }
    *h = (struct kv_hold){.next = p->hold_head};
    p->hold_head = hold;
    p->hold_count--;
}

struct kv_ref kvpool_ref(const struct kvpool *p, uint32_t block)
{
    assert(block < p->cfg.n_blocks);
    return (struct kv_ref){.id = block, .generation = kv_blocks(p)[block].generation};
}

bool kvpool_ref_valid(const struct kvpool *p, struct kv_ref r)
{
    if (r.id == 0 || r.id >= p->cfg.n_blocks) return false;
    const struct kv_block *b = &kv_blocks(p)[r.id];
    return b->generation == r.generation && (b->refs > 0 || b->holds > 0);
}

struct kvpool_stats kvpool_stats(const struct kvpool *p)
{
    return (struct kvpool_stats){.total = p->cfg.n_blocks - 1,
                                 .free = kv_available(p),
                                 .used = p->used,
                                 .held = p->held,
                                 .seqs = p->seq_count,
                                 .holds = p->hold_count};
}

void kvpool_shrink(struct kvpool *p, uint32_t n)
{
    uint32_t all = p->cfg.n_blocks - 1;
    p->cap = n == 0 || n > all ? all : n;
}
