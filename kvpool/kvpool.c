#include "kvpool/kvpool_impl.h"

#include <assert.h>

/* Limits that keep every product below 2^64 and every index below KV_END. */
#define KV_ROWS_MAX (1u << 28)

/* A region of n rows of `bytes` each; returns where it begins. */
static uint64_t kv_place(uint64_t *at, uint64_t n, uint64_t bytes)
{
    uint64_t here = *at;
    *at = (here + n * bytes + 7u) & ~(uint64_t)7u;
    return here;
}

static bool kv_sane(const struct kvpool_config *cfg)
{
    if (cfg->n_blocks < 2 || cfg->block_tokens == 0 || cfg->max_seqs == 0 ||
        cfg->max_seq_blocks == 0 || cfg->max_holds == 0)
        return false;
    if (cfg->n_host != 0 && (cfg->max_copies == 0 || cfg->max_copies > KV_ROWS_MAX)) return false;
    return cfg->n_blocks <= KV_ROWS_MAX && cfg->max_seqs <= KV_ROWS_MAX &&
           cfg->max_seq_blocks <= KV_ROWS_MAX && cfg->max_holds <= KV_ROWS_MAX &&
           cfg->n_host <= KV_ROWS_MAX && cfg->max_accounts <= KV_ROWS_MAX &&
           cfg->block_tokens <= KV_ROWS_MAX;
}

static uint64_t kv_layout_prefix(struct kvpool *p, const struct kvpool_config *cfg, uint64_t at)
{
    if (!cfg->prefix_cache) return at;
    p->index_size = 4;
    while (p->index_size < 2ull * cfg->n_blocks) p->index_size *= 2;
    p->names_at = kv_place(&at, cfg->n_blocks, sizeof(struct kv_name));
    p->chains_at = kv_place(&at, cfg->max_seqs, sizeof(struct kv_chain));
    p->index_at = kv_place(&at, p->index_size, sizeof(uint32_t));
    p->ids_at = kv_place(&at, (uint64_t)cfg->n_blocks * cfg->block_tokens, sizeof(int32_t));
    return at;
}

static uint64_t kv_layout_host(struct kvpool *p, const struct kvpool_config *cfg, uint64_t at)
{
    if (cfg->n_host == 0) return at;
    p->tiers_at = kv_place(&at, cfg->n_blocks, sizeof(struct kv_tier));
    p->slots_at = kv_place(&at, cfg->n_host, sizeof(struct kv_slot));
    p->stays_at = kv_place(&at, cfg->max_seqs, sizeof(struct kv_stay));
    p->kept_at = kv_place(&at, (uint64_t)cfg->max_seqs * cfg->max_seq_blocks, sizeof(uint32_t));
    p->copies_at = kv_place(&at, cfg->max_copies, sizeof(struct kv_flight));
    return at;
}

/* Fills the offsets of `p` (which may be a temporary) and returns the region's size; 0 = absurd. */
static uint64_t kv_layout(struct kvpool *p, const struct kvpool_config *cfg)
{
    if (!kv_sane(cfg)) return 0;
    uint64_t at = 0;
    (void)kv_place(&at, 1, sizeof(struct kvpool));
    p->blocks_at = kv_place(&at, cfg->n_blocks, sizeof(struct kv_block));
    p->seqs_at = kv_place(&at, cfg->max_seqs, sizeof(struct kv_seq));
    p->holds_at = kv_place(&at, cfg->max_holds, sizeof(struct kv_hold));
    p->accounts_at = kv_place(&at, cfg->max_accounts ? cfg->max_accounts : 1, sizeof(uint32_t));
    p->tables_at =
        kv_place(&at, (uint64_t)cfg->max_seqs * cfg->max_seq_blocks, sizeof(uint32_t));
    p->hold_ids_at =
        kv_place(&at, (uint64_t)cfg->max_holds * cfg->max_seq_blocks, sizeof(uint32_t));
    return kv_layout_host(p, cfg, kv_layout_prefix(p, cfg, at));
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
    if (p->cfg.max_accounts == 0) p->cfg.max_accounts = 1;
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
    if (cfg->prefix_cache) kv_prefix_init(p);
    if (cfg->n_host != 0) kv_host_init(p);
    return p;
}

struct kv_seq *kv_seq_at(const struct kvpool *p, uint32_t seq)
{
    assert(seq < p->cfg.max_seqs);
    struct kv_seq *s = &kv_seqs(p)[seq];
    assert(s->open);
    return s;
}

/* ---- a block's states ---- */

static void kv_block_free(struct kvpool *p, uint32_t id)
{
    struct kv_block *b = &kv_blocks(p)[id];
    assert(id != 0 && b->refs == 0 && b->holds == 0);
    if (p->cfg.n_host != 0) kv_host_block_gone(p, id);
    b->generation++;
    b->next = p->free_head;
    p->free_head = id;
    p->free_count++;
}

/* Nobody uses it, nothing in flight touches it: it stays under its name, or is free. */
static void kv_block_rest(struct kvpool *p, uint32_t id)
{
    bool named = kv_is_published(p, id);
    if (named && p->used + p->held + p->cached < p->cap) {
        kv_cache(p, id);
        return;
    }
    if (named) kv_unpublish(p, id); /* shrunk meanwhile: no room to keep it */
    kv_block_free(p, id);
}

static void kv_evict(struct kvpool *p)
{
    uint32_t id = kv_evict_one(p);
    kv_unpublish(p, id);
    kv_block_free(p, id);
    p->evictions++;
}

static void kv_count_to(struct kvpool *p, struct kv_block *b, uint32_t account)
{
    b->account = account;
    kv_accounts(p)[account]++;
    p->used++;
}

static uint32_t kv_block_take(struct kvpool *p, uint32_t account)
{
    if (p->free_count == 0 || p->used + p->held + p->cached >= p->cap) kv_evict(p);
    assert(p->free_count > 0 && p->free_head != KV_END);
    uint32_t id = p->free_head;
    struct kv_block *b = &kv_blocks(p)[id];
    p->free_head = b->next;
    p->free_count--;
    b->next = KV_END;
    b->refs = 1;
    kv_count_to(p, b, account);
    if (p->cfg.prefix_cache) p->clock++;
    return id;
}

/* One table less lists the block: HELD while something in flight may still touch it. */
static void kv_block_unref(struct kvpool *p, uint32_t id)
{
    struct kv_block *b = &kv_blocks(p)[id];
    assert(b->refs > 0);
    if (--b->refs > 0) return;
    p->used--;
    assert(kv_accounts(p)[b->account] > 0);
    kv_accounts(p)[b->account]--;
    if (p->cfg.n_host != 0) kv_host_block_unused(p, id);
    if (b->holds > 0)
        p->held++;
    else
        kv_block_rest(p, id);
}

void kv_block_unhold(struct kvpool *p, uint32_t id)
{
    struct kv_block *b = &kv_blocks(p)[id];
    assert(b->holds > 0);
    if (--b->holds > 0 || b->refs > 0) return;
    p->held--;
    kv_block_rest(p, id);
}

void kv_table_push(struct kvpool *p, uint32_t seq)
{
    struct kv_seq *s = &kv_seqs(p)[seq];
    assert(s->n_blocks < p->cfg.max_seq_blocks);
    kv_seq_table(p, seq)[s->n_blocks++] = kv_block_take(p, s->account);
}

void kv_table_join(struct kvpool *p, uint32_t seq, uint32_t block)
{
    struct kv_seq *s = &kv_seqs(p)[seq];
    struct kv_block *b = &kv_blocks(p)[block];
    assert(s->n_blocks < p->cfg.max_seq_blocks);
    if (b->refs++ == 0) {
        if (b->holds > 0)
            p->held--;
        else
            kv_uncache(p, block);
        kv_count_to(p, b, s->account);
        if (p->cfg.n_host != 0) kv_host_block_used(p, block);
    }
    kv_seq_table(p, seq)[s->n_blocks++] = block;
}

/* From the end: the deepest block is given up first, so that it is the first to be evicted. */
void kv_table_cut(struct kvpool *p, uint32_t seq, uint32_t n)
{
    struct kv_seq *s = &kv_seqs(p)[seq];
    uint32_t *table = kv_seq_table(p, seq);
    while (s->n_blocks > n) {
        s->n_blocks--;
        kv_block_unref(p, table[s->n_blocks]);
        table[s->n_blocks] = 0;
    }
}

/* ---- sequences ---- */

uint32_t kvpool_seq_open(struct kvpool *p)
{
    uint32_t seq = p->seq_head;
    if (seq == KV_END || p->seq_count == p->cfg.max_seqs) return KV_SEQ_NONE;
    struct kv_seq *s = &kv_seqs(p)[seq];
    p->seq_head = s->next;
    p->seq_count++;
    *s = (struct kv_seq){.open = 1, .next = KV_END};
    kv_chain_reset(p, seq);
    return seq;
}

void kvpool_seq_account(struct kvpool *p, uint32_t seq, uint32_t account, uint32_t quota)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    assert(s->n_blocks == 0 && account < p->cfg.max_accounts);
    s->account = account;
    s->quota = quota;
}

void kvpool_seq_close(struct kvpool *p, uint32_t seq)
{
    kvpool_reset(p, seq);
    kv_seqs(p)[seq] = (struct kv_seq){.next = p->seq_head};
    p->seq_head = seq;
    p->seq_count--;
}

uint32_t kvpool_blocks_for(const struct kvpool *p, uint32_t positions)
{
    return positions / p->cfg.block_tokens + (positions % p->cfg.block_tokens != 0);
}

uint32_t kv_available(const struct kvpool *p)
{
    uint32_t in_use = p->used + p->held;
    uint32_t room = p->cap > in_use ? p->cap - in_use : 0;
    uint32_t there = p->free_count + p->cached;
    return room < there ? room : there;
}

bool kv_quota_allows(const struct kvpool *p, const struct kv_seq *s, uint32_t more)
{
    return s->quota == 0 || (uint64_t)kv_accounts(p)[s->account] + more <= s->quota;
}

bool kvpool_fits(const struct kvpool *p, uint32_t seq, uint32_t positions, uint32_t extra)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    uint32_t want = kvpool_blocks_for(p, positions);
    if (want > p->cfg.max_seq_blocks) return false;
    uint32_t more = want > s->n_blocks ? want - s->n_blocks : 0;
    return (uint64_t)more + extra <= kv_available(p) && kv_quota_allows(p, s, more);
}

int kvpool_reserve(struct kvpool *p, uint32_t seq, uint32_t positions)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    if (positions <= s->reserved) return 0;
    assert(p->cfg.n_host == 0 || kv_host_here(p, seq)); /* away: resume or reset comes first */
    if (!kvpool_fits(p, seq, positions, 0)) return -1;
    uint32_t want = kvpool_blocks_for(p, positions);
    while (s->n_blocks < want) kv_table_push(p, seq);
    s->reserved = positions;
    return 0;
}

void kvpool_commit(struct kvpool *p, uint32_t seq, uint32_t positions)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    assert(positions >= s->committed && positions <= s->reserved);
    assert(p->cfg.n_host == 0 || kv_host_floor(p, seq) == 0); /* nothing is computed before all is back */
    s->committed = positions;
}

void kvpool_forget(struct kvpool *p, uint32_t seq, uint32_t positions)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    assert(positions >= s->committed);
    assert(p->cfg.n_host == 0 || positions >= kv_host_floor(p, seq));
    if (positions >= s->reserved) return;
    kv_table_cut(p, seq, kvpool_blocks_for(p, positions));
    s->reserved = positions;
}

void kvpool_reset(struct kvpool *p, uint32_t seq)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    if (p->cfg.n_host != 0) kv_host_leave(p, seq);
    kv_table_cut(p, seq, 0);
    s->reserved = s->committed = 0;
    kv_chain_reset(p, seq);
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
        struct kv_block *b = &kv_blocks(p)[table[i]];
        ids[i] = table[i];
        b->holds++;
        h->generations += b->generation;
    }
    return hold;
}

void kvpool_unhold(struct kvpool *p, uint32_t hold)
{
    assert(hold < p->cfg.max_holds);
    struct kv_hold *h = &kv_holds(p)[hold];
    assert(h->live);
    uint32_t *ids = kv_hold_ids(p, hold), n = h->n_ids;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = p->cfg.prefix_cache ? n - 1 - i : i; /* the deepest is cached first, so it goes first */
        kv_block_unhold(p, ids[k]);
        ids[k] = 0; /* equal states have equal bytes: the protocol model hashes regions */
    }
    *h = (struct kv_hold){.next = p->hold_head};
    p->hold_head = hold;
    p->hold_count--;
}

bool kvpool_hold_valid(const struct kvpool *p, uint32_t hold)
{
    assert(hold < p->cfg.max_holds);
    const struct kv_hold *h = &kv_holds(p)[hold];
    assert(h->live);
    const uint32_t *ids = kv_hold_ids(p, hold);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < h->n_ids; i++) sum += kv_blocks(p)[ids[i]].generation;
    return sum == h->generations;
}

/* ---- looking ---- */

struct kv_ref kvpool_ref(const struct kvpool *p, uint32_t block)
{
    assert(block < p->cfg.n_blocks);
    return (struct kv_ref){.id = block, .generation = kv_blocks(p)[block].generation};
}

bool kvpool_ref_valid(const struct kvpool *p, struct kv_ref r)
{
    if (r.id == 0 || r.id >= p->cfg.n_blocks) return false;
    const struct kv_block *b = &kv_blocks(p)[r.id];
    return b->generation == r.generation &&
           (b->refs > 0 || b->holds > 0 || kv_is_published(p, r.id));
}

struct kvpool_stats kvpool_stats(const struct kvpool *p)
{
    uint32_t room = kv_available(p);
    return (struct kvpool_stats){.total = p->cfg.n_blocks - 1,
                                 .free = room > p->cached ? room - p->cached : 0,
                                 .used = p->used,
                                 .held = p->held,
                                 .seqs = p->seq_count,
                                 .holds = p->hold_count,
                                 .cached = p->cached,
                                 .host_total = p->cfg.n_host,
                                 .host_free = p->slot_free,
                                 .host_busy = p->slot_busy,
                                 .copies = p->copy_count,
                                 .hits = p->hits,
                                 .misses = p->misses,
                                 .evictions = p->evictions,
                                 .checkpoints = p->checkpoints,
                                 .swap_ins = p->swap_ins,
                                 .copy_failures = p->copy_failures,
                                 .host_dropped = p->host_dropped};
}

uint32_t kvpool_account_blocks(const struct kvpool *p, uint32_t account)
{
    assert(account < p->cfg.max_accounts);
    return kv_accounts(p)[account];
}

uint32_t kvpool_own_blocks(const struct kvpool *p, uint32_t seq)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    const uint32_t *table = kv_seq_table(p, seq);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_blocks; i++) n += kv_blocks(p)[table[i]].refs == 1;
    return n;
}

void kvpool_shrink(struct kvpool *p, uint32_t n)
{
    uint32_t all = p->cfg.n_blocks - 1;
    p->cap = n == 0 || n > all ? all : n;
    while (p->cached > 0 && p->used + p->held + p->cached > p->cap) kv_evict(p);
}

void kvpool_debug_free_early(struct kvpool *p, uint32_t block)
{
    assert(block != 0 && block < p->cfg.n_blocks);
    kv_blocks(p)[block].generation++;
}
