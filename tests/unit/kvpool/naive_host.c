/* Slots and copies of the model, and the comparison. */
#include "tests/unit/kvpool/naive_pool.h"

#include "base/hash.h"

#include <string.h>

static int naive_slot_status(const struct naive *m, uint32_t slot)
{
    const struct naive_slot *s = &m->slots[slot];
    for (uint32_t c = 0; c < m->cfg.max_copies; c++) {
        if (m->copies[c].live && m->copies[c].slot == slot) return NAIVE_BUSY;
    }
    if (s->refs == 0 && s->block == 0) return NAIVE_FREE;
    return s->refs == 0 && m->blocks[s->block].refs == 0 ? NAIVE_LOOSE : NAIVE_KEPT;
}

void naive_settle(struct naive *m)
{
    m->calls++;
    for (uint32_t i = 0; i < m->cfg.n_host; i++) {
        int now = naive_slot_status(m, i);
        if (now != m->slots[i].status) m->slots[i].since = m->calls;
        m->slots[i].status = now;
    }
}

static bool naive_filling(const struct naive *m, int slot)
{
    for (uint32_t c = 0; c < m->cfg.max_copies; c++) {
        const struct naive_copy *f = &m->copies[c];
        if (f->live && f->to_host && (int)f->slot == slot) return true;
    }
    return false;
}

bool naive_clean(const struct naive *m, uint32_t block)
{
    int slot = m->blocks[block].slot;
    return slot != NAIVE_NONE && !naive_filling(m, slot);
}

uint64_t naive_bytes(const struct naive_seq *s, uint32_t positions)
{
    return hash64(s->ids, positions * sizeof s->ids[0], s->text + 77);
}

static bool naive_is_tail(const struct naive_seq *s, uint32_t at)
{
    return s->tail != 0 && at + 1 == s->n_kept;
}

uint32_t naive_positions(const struct naive_seq *s, uint32_t blocks)
{
    if (s->tail == 0 || blocks != s->n_kept) return blocks * NAIVE_TOKENS;
    return (blocks - 1) * NAIVE_TOKENS + s->tail;
}

static uint32_t naive_live_copies(const struct naive *m)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < m->cfg.max_copies; c++) n += m->copies[c].live;
    return n;
}

static void naive_begin(struct naive *m, struct kv_copy k, bool to_host, uint32_t seq, uint32_t at)
{
    REQUIRE(k.copy < m->cfg.max_copies && !m->copies[k.copy].live);
    m->copies[k.copy] = (struct naive_copy){true, to_host, k.block, k.slot, at, (int)seq};
    m->blocks[k.block].holds++;
}

/* A free slot if there is one, else the one that was loose longest. */
static void naive_take_slot(struct naive *m, uint32_t slot)
{
    REQUIRE(slot < m->cfg.n_host);
    struct naive_slot *s = &m->slots[slot];
    if (s->status == NAIVE_FREE) return;
    REQUIRE(s->status == NAIVE_LOOSE);
    for (uint32_t i = 0; i < m->cfg.n_host; i++) {
        REQUIRE(m->slots[i].status != NAIVE_FREE);
        if (m->slots[i].status == NAIVE_LOOSE) REQUIRE(m->slots[i].since >= s->since);
    }
    m->blocks[s->block].slot = NAIVE_NONE;
    m->dropped++;
}

void naive_checkpoint(struct naive *m, uint32_t seq, bool begun, struct kv_copy k)
{
    const struct naive_seq *s = &m->seqs[seq];
    uint32_t at = 0, full = s->committed / NAIVE_TOKENS;
    bool can = m->cfg.n_host > 0 && naive_live_copies(m) < m->cfg.max_copies, room = false;
    while (can && at < full && m->blocks[s->table[at]].slot != NAIVE_NONE) at++;
    for (uint32_t i = 0; i < m->cfg.n_host; i++)
        room |= m->slots[i].status == NAIVE_FREE || m->slots[i].status == NAIVE_LOOSE;
    REQUIRE(begun == (can && room && at < full));
    if (!begun) return;
    REQUIRE(k.block == s->table[at]);
    naive_take_slot(m, k.slot);
    m->slots[k.slot].block = k.block;
    m->slots[k.slot].bytes = ++m->garbage; /* until it ended */
    m->blocks[k.block].slot = (int)k.slot;
    naive_begin(m, k, true, seq, at);
}

uint32_t naive_suspend(struct naive *m, uint32_t seq)
{
    struct naive_seq *s = &m->seqs[seq];
    uint32_t k = 0, full = s->committed / NAIVE_TOKENS;
    int kept[NAIVE_TABLE];
    if (s->resuming && s->good > full) full = s->good;
    for (; m->cfg.n_host > 0 && k < full; k++) {
        bool listed = k < s->n_kept && s->kept[k] != NAIVE_NONE;
        if (!listed && !naive_clean(m, s->table[k])) break;
        if (listed && naive_is_tail(s, k) && naive_filling(m, s->kept[k])) break;
        kept[k] = listed ? s->kept[k] : m->blocks[s->table[k]].slot;
    }
    for (uint32_t i = 0; i < k; i++) m->slots[kept[i]].refs++;
    uint32_t tail = k == s->n_kept ? s->tail : 0;
    naive_reset(m, seq);
    s->n_kept = k;
    s->tail = tail;
    memcpy(s->kept, kept, k * sizeof *kept);
    memset(s->begun, 0, sizeof s->begun);
    return naive_positions(s, k);
}

uint32_t naive_suspend_tail(struct naive *m, uint32_t seq, struct kv_copy k)
{
    struct naive_seq *s = &m->seqs[seq];
    uint32_t full = s->committed / NAIVE_TOKENS, tail = s->committed % NAIVE_TOKENS;
    bool can = m->cfg.n_host > 0 && naive_live_copies(m) < m->cfg.max_copies && !s->resuming;
    bool room = false;
    for (uint32_t i = 0; i < full; i++) can &= naive_clean(m, s->table[i]);
    for (uint32_t i = 0; i < m->cfg.n_host; i++)
        room |= m->slots[i].status == NAIVE_FREE || m->slots[i].status == NAIVE_LOOSE;
    REQUIRE((k.copy != KV_COPY_NONE) == (can && room && tail != 0));
    if (k.copy == KV_COPY_NONE) return naive_suspend(m, seq);
    REQUIRE(k.block == s->table[full]);
    naive_take_slot(m, k.slot);
    m->slots[k.slot].block = 0;
    m->slots[k.slot].bytes = ++m->garbage; /* until it ended */
    naive_begin(m, k, true, seq, full);
    (void)naive_suspend(m, seq);
    REQUIRE(s->n_kept == full);
    m->copies[k.copy].seq = (int)seq;
    m->slots[k.slot].refs++;
    s->kept[full] = (int)k.slot;
    s->n_kept = full + 1;
    s->tail = tail;
    return naive_positions(s, s->n_kept);
}

/* All that were waited for are there or given up. */
static void naive_arrived(struct naive *m, uint32_t seq)
{
    struct naive_seq *s = &m->seqs[seq];
    for (uint32_t k = 0; k < s->n_kept; k++) {
        if (s->kept[k] != NAIVE_NONE) return;
    }
    uint32_t good = s->good;
    if (s->bad < NAIVE_TABLE) {
        good = s->bad;
        naive_cut(m, seq, good);
        s->reserved = good * NAIVE_TOKENS;
    }
    s->committed = s->bad < NAIVE_TABLE ? good * NAIVE_TOKENS : naive_positions(s, good);
    s->n_kept = s->tail = s->good = 0;
    s->bad = NAIVE_TABLE;
    s->resuming = false;
}

/* Which blocks the index still has: all along the kept ones, behind them until the first gap. */
static uint32_t naive_refind(const struct naive *m, const struct naive_seq *s, uint32_t last,
                             uint32_t *found)
{
    uint32_t good = s->n_kept;
    memset(found, 0, NAIVE_TABLE * sizeof *found);
    for (uint32_t i = 0; i < last; i++) {
        found[i] = m->cfg.prefix_cache ? naive_find(m, s->names[i]) : 0;
        if (found[i] == 0 && (i >= s->n_kept || naive_is_tail(s, i))) break;
        if (i >= good) good = i + 1;
    }
    return good;
}

static bool naive_resume_fits(const struct naive *m, const struct naive_seq *s, uint32_t want,
                              const uint32_t *found)
{
    uint32_t room = 0, counted = 0, cached, in_use = naive_in_use(m, &cached);
    for (uint32_t i = 0; i < want; i++) {
        const struct naive_block *b = &m->blocks[found[i]];
        room += found[i] == 0 || (b->refs == 0 && b->holds == 0);
        counted += found[i] == 0 || b->refs == 0;
    }
    if (room > 0 && in_use + room > m->cap) return false;
    return s->quota == 0 || naive_account_blocks(m, s->account) + counted <= s->quota;
}

void naive_resume(struct naive *m, uint32_t seq, uint32_t positions, uint32_t n_ids, int rc,
                  const uint32_t *table)
{
    struct naive_seq *s = &m->seqs[seq];
    uint32_t want = (positions + NAIVE_TOKENS - 1) / NAIVE_TOKENS, found[NAIVE_TABLE];
    uint32_t last = n_ids == 0 ? 0 : (n_ids - 1) / NAIVE_TOKENS;
    if (last > positions / NAIVE_TOKENS) last = positions / NAIVE_TOKENS;
    uint32_t good = naive_refind(m, s, last, found);
    bool fits = naive_resume_fits(m, s, want, found);
    REQUIRE(rc == (fits ? 0 : -1));
    if (!fits) return;
    for (uint32_t i = 0; i < want; i++) {
        if (found[i] != 0) naive_join(m, s->account, found[i]);
        if (found[i] != 0) REQUIRE(table[i] == found[i]);
    }
    for (uint32_t i = 0; i < want; i++) {
        if (found[i] == 0) naive_take(m, s->account, table[i]);
        s->table[i] = table[i];
    }
    s->n = want;
    s->reserved = positions;
    s->good = good;
    s->resuming = true;
    bool gap = false;
    for (uint32_t i = 0; i < s->n_kept; i++) {
        gap |= found[i] == 0;
        if (!gap) s->committed = (i + 1) * NAIVE_TOKENS;
        if (found[i] == 0) continue;
        struct naive_slot *slot = &m->slots[s->kept[i]];
        bool whole = !naive_is_tail(s, i);
        slot->refs--;
        if (!whole) s->tail = 0;
        if (whole && m->blocks[found[i]].slot == NAIVE_NONE && slot->block == 0) {
            m->blocks[found[i]].slot = s->kept[i];
            slot->block = found[i];
        }
        s->kept[i] = NAIVE_NONE;
    }
    naive_arrived(m, seq);
}

void naive_swap_in(struct naive *m, uint32_t seq, bool begun, struct kv_copy k)
{
    struct naive_seq *s = &m->seqs[seq];
    uint32_t at = 0;
    bool can = s->resuming && naive_live_copies(m) < m->cfg.max_copies;
    while (can && at < s->n_kept && (s->kept[at] == NAIVE_NONE || s->begun[at])) at++;
    if (can && naive_is_tail(s, at) && naive_filling(m, s->kept[at])) can = false;
    REQUIRE(begun == (can && at < s->n_kept));
    if (!begun) return;
    REQUIRE(k.block == s->table[at] && (int)k.slot == s->kept[at]);
    s->begun[at] = true;
    naive_begin(m, k, false, seq, at);
}

static void naive_swapped_in(struct naive *m, const struct naive_copy *f, bool ok)
{
    struct naive_seq *s = &m->seqs[f->seq];
    struct naive_slot *slot = &m->slots[f->slot];
    if (ok && slot->block == 0 && !naive_is_tail(s, f->at)) {
        slot->block = f->block;
        m->blocks[f->block].slot = (int)f->slot;
    }
    s->kept[f->at] = NAIVE_NONE;
    slot->refs--;
    if (!ok && f->at < s->bad) s->bad = f->at;
    for (uint32_t i = 0; !ok && i < s->n_kept; i++) {
        if (s->kept[i] == NAIVE_NONE || s->begun[i]) continue;
        m->slots[s->kept[i]].refs--;
        s->kept[i] = NAIVE_NONE;
    }
    naive_arrived(m, (uint32_t)f->seq);
}

static void naive_tail_lost(struct naive *m, const struct naive_copy *f)
{
    struct naive_seq *s = &m->seqs[f->seq];
    if (!naive_is_tail(s, f->at) || s->kept[f->at] != (int)f->slot) return;
    m->slots[f->slot].refs--;
    s->kept[f->at] = NAIVE_NONE;
    if (!s->resuming) {
        s->n_kept = f->at;
        s->tail = 0;
        return;
    }
    if (f->at < s->bad) s->bad = f->at;
    naive_arrived(m, (uint32_t)f->seq);
}

void naive_copy_end(struct naive *m, uint32_t copy, bool ok)
{
    struct naive_copy f = m->copies[copy];
    struct naive_block *b = &m->blocks[f.block];
    m->copies[copy].live = false;
    m->failures += !ok;
    if (f.to_host) {
        m->checkpoints += ok;
        if (ok) m->slots[f.slot].bytes = b->bytes;
        if (!ok) {
            b->slot = NAIVE_NONE;
            m->slots[f.slot].block = 0;
            if (f.seq != NAIVE_NONE) naive_tail_lost(m, &f);
        }
    } else {
        m->swap_ins += ok;
        b->bytes = ok ? m->slots[f.slot].bytes : ++m->garbage;
        if (f.seq != NAIVE_NONE) naive_swapped_in(m, &f, ok);
    }
    b->holds--;
    naive_rest(m, f.block);
}

/* ---- the comparison ---- */

static void naive_compare_seq(const struct naive *m, const struct kvpool *p, uint32_t seq)
{
    const struct naive_seq *s = &m->seqs[seq];
    uint32_t n, full = s->committed / NAIVE_TOKENS, own = 0, unclean = 0;
    const uint32_t *table = kvpool_table(p, seq, &n);
    REQUIRE(n == s->n && kvpool_reserved(p, seq) == s->reserved);
    REQUIRE(kvpool_committed(p, seq) == s->committed);
    REQUIRE(n == 0 || memcmp(table, s->table, n * sizeof *table) == 0);
    for (uint32_t k = 0; k < n; k++) {
        const struct naive_block *b = &m->blocks[table[k]];
        own += b->refs == 1;
        if (k < full) REQUIRE(b->bytes == s->names[k]); /* what the engine would read */
        unclean += k < full && !naive_clean(m, table[k]);
    }
    REQUIRE(kvpool_own_blocks(p, seq) == own);
    REQUIRE(kvpool_unclean(p, seq) == unclean);
    REQUIRE(kvpool_resuming(p, seq) == s->resuming);
    if (n > 0 && !s->resuming && s->committed % NAIVE_TOKENS != 0)
        REQUIRE(m->blocks[table[full]].bytes == naive_bytes(s, s->committed));
    REQUIRE(kvpool_kept(p, seq) == (s->resuming ? 0 : naive_positions(s, s->n_kept)));
    for (uint32_t k = 0; !s->resuming && k < s->n_kept; k++) {
        if (!naive_filling(m, s->kept[k]))
            REQUIRE(m->slots[s->kept[k]].bytes == naive_bytes(s, naive_positions(s, k + 1)));
    }
}

static void naive_compare_stats(const struct naive *m, const struct kvpool *p)
{
    struct kvpool_stats st = kvpool_stats(p);
    uint32_t cached, in_use = naive_in_use(m, &cached), used = 0, busy = 0, n_free = 0;
    uint32_t all = m->cfg.n_blocks - 1;
    for (uint32_t i = 1; i < m->cfg.n_blocks; i++) used += m->blocks[i].refs > 0;
    for (uint32_t i = 0; i < m->cfg.n_host; i++) {
        busy += m->slots[i].status == NAIVE_BUSY;
        n_free += m->slots[i].status == NAIVE_FREE;
    }
    REQUIRE(st.total == all && st.used == used && st.held == in_use - used);
    REQUIRE(st.cached == cached);
    REQUIRE(st.free == (m->cap > in_use + cached ? m->cap - in_use - cached : 0));
    REQUIRE(st.host_total == m->cfg.n_host && st.host_free == n_free && st.host_busy == busy);
    REQUIRE(st.copies == naive_live_copies(m));
    REQUIRE(st.hits == m->hits && st.misses == m->misses && st.evictions == m->evictions);
    REQUIRE(st.checkpoints == m->checkpoints && st.swap_ins == m->swap_ins);
    REQUIRE(st.copy_failures == m->failures && st.host_dropped == m->dropped);
}

void naive_compare(const struct naive *m, const struct kvpool *p)
{
    for (uint32_t i = 0; i < m->cfg.max_seqs; i++) {
        if (m->seqs[i].open) naive_compare_seq(m, p, i);
    }
    for (uint32_t i = 1; i < m->cfg.n_blocks; i++) {
        const struct naive_block *b = &m->blocks[i];
        struct kv_ref r = kvpool_ref(p, i);
        REQUIRE(r.generation == b->generation);
        REQUIRE(kvpool_ref_valid(p, r) == (b->refs > 0 || b->holds > 0 || b->cached));
        if (b->cached) REQUIRE(b->bytes == b->name);
    }
    for (uint32_t a = 0; a < m->cfg.max_accounts; a++)
        REQUIRE(kvpool_account_blocks(p, a) == naive_account_blocks(m, a));
    naive_compare_stats(m, p);
}
