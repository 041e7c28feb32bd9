/* Blocks, sequences, holds and names of the model. */
#include "tests/unit/kvpool/naive_pool.h"

#include <string.h>

void naive_init(struct naive *m, const struct kvpool_config *cfg)
{
    REQUIRE(cfg->n_blocks <= NAIVE_BLOCKS && cfg->max_seqs <= NAIVE_SEQS);
    REQUIRE(cfg->max_seq_blocks <= NAIVE_TABLE && cfg->block_tokens == NAIVE_TOKENS);
    REQUIRE(cfg->n_host <= NAIVE_SLOTS && cfg->max_copies <= NAIVE_COPIES);
    memset(m, 0, sizeof *m);
    m->cfg = *cfg;
    m->cap = cfg->n_blocks - 1;
    for (int b = 0; b < NAIVE_BLOCKS; b++) m->blocks[b].slot = NAIVE_NONE;
}

static bool naive_idle(const struct naive_block *b)
{
    return b->refs == 0 && b->holds == 0;
}

uint32_t naive_in_use(const struct naive *m, uint32_t *cached)
{
    uint32_t n = 0;
    *cached = 0;
    for (uint32_t i = 1; i < m->cfg.n_blocks; i++) {
        n += !naive_idle(&m->blocks[i]);
        *cached += m->blocks[i].cached;
    }
    return n;
}

uint32_t naive_account_blocks(const struct naive *m, uint32_t account)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < m->cfg.n_blocks; i++)
        n += m->blocks[i].refs > 0 && m->blocks[i].account == account;
    return n;
}

static void naive_free(struct naive *m, uint32_t block)
{
    struct naive_block *b = &m->blocks[block];
    if (b->slot != NAIVE_NONE) m->slots[b->slot].block = 0;
    *b = (struct naive_block){
        .generation = b->generation + 1, .slot = NAIVE_NONE, .bytes = ++m->garbage};
}

/* "The block with the smallest (clock of its last use + bonus) goes first": of equal ones those
 * never hit, then those of lower rank, then the one cached first. */
static void naive_evict(struct naive *m)
{
    uint32_t best = 0;
    uint64_t best_worth = 0;
    for (uint32_t i = 1; i < m->cfg.n_blocks; i++) {
        const struct naive_block *b = &m->blocks[i], *than = &m->blocks[best];
        if (!b->cached) continue;
        uint64_t worth = b->used_at + (uint64_t)(b->hit + b->urgent) * m->cfg.n_blocks;
        bool less = best == 0 || worth < best_worth;
        if (best != 0 && worth == best_worth)
            less = b->hit != than->hit         ? !b->hit
                   : b->urgent != than->urgent ? !b->urgent
                                               : b->order < than->order;
        if (!less) continue;
        best = i;
        best_worth = worth;
    }
    REQUIRE(best != 0);
    naive_free(m, best);
    m->evictions++;
}

void naive_take(struct naive *m, uint32_t account, uint32_t block)
{
    uint32_t cached, in_use = naive_in_use(m, &cached);
    if (in_use + cached >= m->cap || in_use + cached == m->cfg.n_blocks - 1) naive_evict(m);
    REQUIRE(block > 0 && block < m->cfg.n_blocks);
    struct naive_block *b = &m->blocks[block];
    REQUIRE(naive_idle(b) && !b->cached);
    b->refs = 1;
    b->account = account;
    m->clock += m->cfg.prefix_cache;
}

void naive_join(struct naive *m, uint32_t account, uint32_t block)
{
    struct naive_block *b = &m->blocks[block];
    if (b->refs++ == 0) b->account = account;
    b->cached = false;
    b->hit = true;
    m->hits++;
}

void naive_rest(struct naive *m, uint32_t block)
{
    struct naive_block *b = &m->blocks[block];
    uint32_t cached, in_use = naive_in_use(m, &cached);
    if (!naive_idle(b)) return;
    if (!b->published || in_use + cached >= m->cap) {
        naive_free(m, block);
        return;
    }
    b->cached = true;
    b->used_at = m->clock;
    b->order = ++m->order;
}

void naive_cut(struct naive *m, uint32_t seq, uint32_t n)
{
    struct naive_seq *s = &m->seqs[seq];
    while (s->n > n) {
        uint32_t block = s->table[--s->n];
        m->blocks[block].refs--;
        naive_rest(m, block);
    }
}

/* ---- the calls ---- */

void naive_open(struct naive *m, uint32_t seq)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < m->cfg.max_seqs; i++) open += m->seqs[i].open;
    REQUIRE((seq == KV_SEQ_NONE) == (open == m->cfg.max_seqs));
    if (seq == KV_SEQ_NONE) return;
    REQUIRE(seq < m->cfg.max_seqs && !m->seqs[seq].open);
    m->seqs[seq] = (struct naive_seq){.open = true, .bad = NAIVE_TABLE};
}

static uint32_t naive_ceil(uint32_t positions)
{
    return (positions + NAIVE_TOKENS - 1) / NAIVE_TOKENS;
}

bool naive_fits(const struct naive *m, uint32_t seq, uint32_t positions, uint32_t extra)
{
    const struct naive_seq *s = &m->seqs[seq];
    uint32_t want = naive_ceil(positions), more = want > s->n ? want - s->n : 0, cached;
    uint32_t in_use = naive_in_use(m, &cached);
    if (want > m->cfg.max_seq_blocks || in_use + more + extra > m->cap) {
        if (want > m->cfg.max_seq_blocks || more + extra > 0) return false;
    }
    return s->quota == 0 || naive_account_blocks(m, s->account) + more <= s->quota;
}

void naive_reserve(struct naive *m, uint32_t seq, uint32_t positions, int rc, const uint32_t *table)
{
    struct naive_seq *s = &m->seqs[seq];
    bool fits = positions <= s->reserved || naive_fits(m, seq, positions, 0);
    REQUIRE(rc == (fits ? 0 : -1));
    if (!fits || positions <= s->reserved) return;
    for (uint32_t want = naive_ceil(positions); s->n < want; s->n++) {
        naive_take(m, s->account, table[s->n]);
        s->table[s->n] = table[s->n];
    }
    s->reserved = positions;
}

void naive_commit(struct naive *m, uint32_t seq, uint32_t positions)
{
    struct naive_seq *s = &m->seqs[seq];
    for (uint32_t k = s->committed / NAIVE_TOKENS; k < positions / NAIVE_TOKENS; k++) {
        struct naive_block *b = &m->blocks[s->table[k]];
        REQUIRE(b->refs == 1 && !b->published && b->slot == NAIVE_NONE); /* written by one alone */
        b->bytes = s->names[k];
    }
    if (positions % NAIVE_TOKENS != 0)
        m->blocks[s->table[positions / NAIVE_TOKENS]].bytes = naive_bytes(s, positions);
    s->committed = positions;
}

void naive_forget(struct naive *m, uint32_t seq, uint32_t positions)
{
    struct naive_seq *s = &m->seqs[seq];
    if (positions >= s->reserved) return;
    naive_cut(m, seq, naive_ceil(positions));
    s->reserved = positions;
}

void naive_reset(struct naive *m, uint32_t seq)
{
    struct naive_seq *s = &m->seqs[seq];
    for (uint32_t c = 0; c < m->cfg.max_copies; c++) {
        if (m->copies[c].live && m->copies[c].seq == (int)seq) m->copies[c].seq = NAIVE_NONE;
    }
    for (uint32_t k = 0; k < s->n_kept; k++) {
        if (s->kept[k] != NAIVE_NONE) m->slots[s->kept[k]].refs--;
    }
    naive_cut(m, seq, 0);
    s->n_kept = s->tail = s->good = s->reserved = s->committed = s->looked = 0;
    s->bad = NAIVE_TABLE;
    s->resuming = false;
}

void naive_close(struct naive *m, uint32_t seq)
{
    naive_reset(m, seq);
    m->seqs[seq] = (struct naive_seq){0};
}

void naive_hold(struct naive *m, uint32_t seq, uint32_t hold)
{
    const struct naive_seq *s = &m->seqs[seq];
    uint32_t live = 0;
    for (uint32_t i = 0; i < m->cfg.max_holds; i++) live += m->holds[i].live;
    REQUIRE((hold == KV_HOLD_NONE) == (live == m->cfg.max_holds));
    if (hold == KV_HOLD_NONE) return;
    REQUIRE(hold < m->cfg.max_holds && !m->holds[hold].live);
    struct naive_hold *h = &m->holds[hold];
    h->live = true;
    h->n = s->n;
    memcpy(h->ids, s->table, sizeof h->ids);
    for (uint32_t k = 0; k < h->n; k++) m->blocks[h->ids[k]].holds++;
}

void naive_unhold(struct naive *m, uint32_t hold)
{
    struct naive_hold *h = &m->holds[hold];
    h->live = false;
    for (uint32_t k = h->n; k-- > 0;) { /* the deepest first */
        m->blocks[h->ids[k]].holds--;
        naive_rest(m, h->ids[k]);
    }
}

void naive_shrink(struct naive *m, uint32_t n)
{
    uint32_t all = m->cfg.n_blocks - 1, cached;
    m->cap = n == 0 || n > all ? all : n;
    while (naive_in_use(m, &cached) + cached > m->cap && cached > 0) naive_evict(m);
}

/* ---- names ---- */

uint32_t naive_find(const struct naive *m, uint64_t name)
{
    for (uint32_t i = 1; i < m->cfg.n_blocks; i++) {
        if (m->blocks[i].published && m->blocks[i].name == name) return i;
    }
    return 0;
}

void naive_publish(struct naive *m, uint32_t seq)
{
    struct naive_seq *s = &m->seqs[seq];
    if (!m->cfg.prefix_cache) return;
    for (; s->looked < s->committed / NAIVE_TOKENS; s->looked++) {
        struct naive_block *b = &m->blocks[s->table[s->looked]];
        if (b->published || naive_find(m, s->names[s->looked]) != 0) continue;
        b->published = true;
        b->name = s->names[s->looked];
        b->hit = false;
        b->urgent = s->rank == 0;
    }
}

static uint32_t naive_full_inputs(uint32_t n_ids)
{
    return n_ids == 0 ? 0 : (n_ids - 1) / NAIVE_TOKENS;
}

uint32_t naive_match(const struct naive *m, uint32_t seq, uint32_t n_ids)
{
    uint32_t k = 0, full = naive_full_inputs(n_ids);
    while (m->cfg.prefix_cache && k < full && naive_find(m, m->seqs[seq].names[k]) != 0) k++;
    return k * NAIVE_TOKENS;
}

uint32_t naive_attach(struct naive *m, uint32_t seq, uint32_t n_ids)
{
    struct naive_seq *s = &m->seqs[seq];
    uint32_t full = naive_full_inputs(n_ids);
    if (!m->cfg.prefix_cache) return 0;
    for (; s->n < full; s->n++) {
        uint32_t block = naive_find(m, s->names[s->n]);
        if (block == 0) break;
        bool counts = m->blocks[block].refs == 0 && s->quota != 0;
        if (counts && naive_account_blocks(m, s->account) + 1 > s->quota) break;
        naive_join(m, s->account, block);
        s->table[s->n] = block;
    }
    m->misses += full - s->n;
    s->looked = s->n;
    s->reserved = s->committed = s->n * NAIVE_TOKENS;
    return s->committed;
}
