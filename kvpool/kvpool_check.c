/* The auditor: recounts every number of the pool from its tables, holds and lists alone. It changes
 * nothing and allocates nothing, so "how often does block b appear" is asked block by block where a
 * cheap sum could not tell; O(pool) for the sums, O(entries of b) per block. */
#include "kvpool/kvpool_impl.h"

/* Entries from the front that are full and committed; of a resuming sequence those that will be. */
static uint32_t kv_full_blocks(const struct kvpool *p, uint32_t seq)
{
    uint32_t n = kv_seqs(p)[seq].committed / p->cfg.block_tokens;
    if (p->cfg.n_host == 0 || !kv_stays(p)[seq].resuming) return n;
    return kv_stays(p)[seq].good > n ? kv_stays(p)[seq].good : n;
}

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
        uint32_t full = kv_full_blocks(p, i);
        for (uint32_t k = 0; k < s->n_blocks; k++) {
            if (table[k] == 0) return "I6: the trash block is in a table";
            if (table[k] >= p->cfg.n_blocks) return "I2: a table names a block that does not exist";
            const struct kv_block *b = &blocks[table[k]];
            if (b->refs == 0) return "I2: a table names a block without refs";
            bool clean = p->cfg.n_host != 0 && kv_tiers(p)[table[k]].slot != KV_END;
            if ((b->refs > 1 || kv_is_published(p, table[k]) || clean) && k >= full)
                return "I5: a shared, published or clean block is not full and committed";
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
    uint32_t n_free = 0, n_used = 0, n_held = 0, n_cached = 0, on_list = 0;
    if (blocks[0].refs != 0 || blocks[0].holds != 0 || kv_is_published(p, 0))
        return "I6: the trash block is in use";
    for (uint32_t i = 1; i < p->cfg.n_blocks; i++) {
        *refs += blocks[i].refs;
        *holds += blocks[i].holds;
        if (blocks[i].refs > 0)
            n_used++;
        else if (blocks[i].holds > 0)
            n_held++;
        else if (kv_is_published(p, i))
            n_cached++;
        else
            n_free++;
    }
    for (uint32_t at = p->free_head; at != KV_END; at = blocks[at].next) {
        if (at == 0 || at >= p->cfg.n_blocks) return "I3: the free list leaves the pool";
        if (blocks[at].refs != 0 || blocks[at].holds != 0 || kv_is_published(p, at))
            return "I1: a block in use is on the free list";
        if (++on_list > n_free)
            return "I3: the free list is longer than the free blocks, or a ring";
    }
    if (on_list != n_free || n_free != p->free_count)
        return "I3: free count is not the list's length";
    if (n_used != p->used || n_held != p->held || n_cached != p->cached)
        return "I1: used, held or cached miscounted";
    if (n_free + n_used + n_held + n_cached != p->cfg.n_blocks - 1)
        return "I3: free + used + held + cached is not n - 1";
    return NULL;
}

/* The four lists hold exactly the cached blocks, oldest first. */
static const char *kv_check_lists(const struct kvpool *p)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < KV_LISTS; l++) {
        uint32_t prev = KV_END;
        for (uint32_t at = p->lists[l].head; at != KV_END; at = kv_names(p)[at].next) {
            if (at == 0 || at >= p->cfg.n_blocks || ++n > p->cached)
                return "I1: a list of cached blocks leaves the pool, or is a ring";
            const struct kv_name *name = &kv_names(p)[at];
            if (!name->cached || !name->published || kv_blocks(p)[at].refs != 0)
                return "I1: a block on a list of cached ones is not cached";
            if (l != (name->hit ? 2u : 0u) + (name->urgent ? 1u : 0u))
                return "I1: a cached block is on the wrong list";
            if (name->prev != prev) return "I1: a list of cached blocks does not lead back";
            if (prev != KV_END && kv_names(p)[prev].used_at > name->used_at)
                return "I1: a list of cached blocks is not in order";
            prev = at;
        }
        if (p->lists[l].tail != prev) return "I1: a list of cached blocks has another end";
    }
    return n == p->cached ? NULL : "I1: the lists do not hold all cached blocks";
}

static const char *kv_check_index(const struct kvpool *p)
{
    uint64_t entries = 0, published = 0;
    for (uint64_t at = 0; at < p->index_size; at++) {
        uint32_t block = kv_index(p)[at];
        if (block == 0) continue;
        entries++;
        if (block >= p->cfg.n_blocks || !kv_names(p)[block].published)
            return "I7: the index names a block that is not published";
    }
    for (uint32_t i = 0; i < p->cfg.n_blocks; i++) {
        const struct kv_name *n = &kv_names(p)[i];
        const int32_t *ids = kv_ids(p) + (size_t)i * p->cfg.block_tokens;
        published += n->published;
        if (!n->published) continue;
        if (!hash128_equal(prefix_hash(n->parent, ids, p->cfg.block_tokens), n->hash))
            return "I7: a published block's name is not the hash of its ids";
        if (kv_find(p, n->hash, n->parent, ids) != i)
            return "I7: a published block is not found by its name";
    }
    return entries == published ? NULL : "I7: the index does not hold each published block once";
}

static const char *kv_check_accounts(const struct kvpool *p)
{
    uint64_t sum = 0;
    for (uint32_t a = 0; a < p->cfg.max_accounts; a++) {
        uint32_t n = 0;
        sum += kv_accounts(p)[a];
        if (p->cfg.max_accounts > 8 && p->cfg.n_blocks > 4096) continue; /* the sum must do */
        for (uint32_t i = 1; i < p->cfg.n_blocks; i++)
            n += kv_blocks(p)[i].refs > 0 && kv_blocks(p)[i].account == a;
        if (n != kv_accounts(p)[a]) return "I9: an account's blocks are not the used ones counted to it";
    }
    return sum == p->used ? NULL : "I9: the accounts together are not the used blocks";
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
    for (uint32_t i = 0; p->cfg.n_host != 0 && i < p->cfg.max_copies; i++)
        n += kv_copies(p)[i].live && kv_copies(p)[i].block == id;
    return n;
}

/* ---- the host tier ---- */

static uint32_t kv_count_kept(const struct kvpool *p, uint32_t slot)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->cfg.max_seqs; i++) {
        const uint32_t *kept = kv_kept_table(p, i);
        for (uint32_t k = 0; k < kv_stays(p)[i].n; k++) n += kept[k] == slot;
    }
    return n;
}

static uint32_t kv_count_copies(const struct kvpool *p, uint32_t slot)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->cfg.max_copies; i++)
        n += kv_copies(p)[i].live && kv_copies(p)[i].slot == slot;
    return n;
}

static const char *kv_check_slot(const struct kvpool *p, uint32_t slot)
{
    const struct kv_slot *s = &kv_slots(p)[slot];
    if (s->block >= p->cfg.n_blocks) return "I8: a slot names a block that does not exist";
    if (s->block != 0 && kv_tiers(p)[s->block].slot != slot) return "I8: a slot's block has another";
    bool idle = s->copies == 0 && s->refs == 0;
    bool loose = idle && s->block != 0 && kv_blocks(p)[s->block].refs == 0;
    uint32_t list = idle && s->block == 0 ? KV_SLOT_FREE : loose ? KV_SLOT_LOOSE : KV_SLOT_NOWHERE;
    return s->list == list ? NULL : "I8: a slot is on the wrong list";
}

/* One list of slots leads through all that say they are on it, and back. */
static bool kv_slots_listed(const struct kvpool *p, struct kv_list l, uint32_t list, uint32_t n)
{
    uint32_t prev = KV_END, seen = 0;
    for (uint32_t at = l.head; at != KV_END; at = kv_slots(p)[at].next) {
        if (at >= p->cfg.n_host || ++seen > n) return false;
        if (kv_slots(p)[at].list != list || kv_slots(p)[at].prev != prev) return false;
        prev = at;
    }
    return seen == n && l.tail == prev;
}

static const char *kv_check_slots(const struct kvpool *p)
{
    uint32_t n_free = 0, n_busy = 0, n_loose = 0;
    for (uint32_t i = 0; i < p->cfg.n_host; i++) {
        const char *bad = kv_check_slot(p, i);
        if (bad != NULL) return bad;
        n_free += kv_slots(p)[i].list == KV_SLOT_FREE;
        n_loose += kv_slots(p)[i].list == KV_SLOT_LOOSE;
        n_busy += kv_slots(p)[i].copies != 0;
    }
    if (n_free != p->slot_free || !kv_slots_listed(p, p->free_slots, KV_SLOT_FREE, n_free))
        return "I8: free slots miscounted";
    if (!kv_slots_listed(p, p->loose_slots, KV_SLOT_LOOSE, n_loose))
        return "I8: the list of loose slots does not hold them all";
    if (n_busy != p->slot_busy) return "I8: busy slots miscounted";
    for (uint32_t i = 1; i < p->cfg.n_blocks; i++) {
        uint32_t slot = kv_tiers(p)[i].slot;
        if (slot == KV_END) continue;
        if (slot >= p->cfg.n_host || kv_slots(p)[slot].block != i)
            return "I8: a block's slot belongs to another";
    }
    return NULL;
}

/* The lists of those away and coming back, and the copies, against the slots' own counts. */
static const char *kv_check_slot_counts(const struct kvpool *p)
{
    uint64_t refs = 0, kept = 0, copies = 0;
    for (uint32_t i = 0; i < p->cfg.max_seqs; i++) {
        const struct kv_stay *st = &kv_stays(p)[i];
        uint32_t listed = 0;
        if (st->tail >= p->cfg.block_tokens || (st->tail != 0 && st->n == 0))
            return "I8: a tail is no part of a block, or nobody's";
        for (uint32_t k = 0; k < st->n; k++) {
            uint32_t slot = kv_kept_table(p, i)[k];
            if (slot != KV_END && slot >= p->cfg.n_host) return "I8: no such slot is kept";
            listed += slot != KV_END;
        }
        if (st->resuming ? listed != st->pending || listed == 0 : listed != st->n)
            return "I8: a sequence away or coming back lists other slots than it should";
        kept += listed;
    }
    for (uint32_t i = 0; i < p->cfg.n_host; i++) {
        refs += kv_slots(p)[i].refs;
        copies += kv_slots(p)[i].copies;
    }
    if (refs != kept) return "I8: the slots' refs are not the lists they are on";
    if (copies != p->copy_count) return "I8: the slots' copies are not those in flight";
    if (p->cfg.n_host * (kept + p->cfg.max_copies) > 1u << 20) return NULL; /* the sums must do */
    for (uint32_t i = 0; i < p->cfg.n_host; i++) {
        if (kv_slots(p)[i].refs != kv_count_kept(p, i))
            return "I8: a slot's refs are not the lists it is on";
        if (kv_slots(p)[i].copies != kv_count_copies(p, i))
            return "I8: a slot's copies are not those in flight";
    }
    return NULL;
}

static const char *kv_check_flights(const struct kvpool *p, uint64_t *holds)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < p->cfg.max_copies; i++) {
        const struct kv_flight *f = &kv_copies(p)[i];
        if (!f->live) continue;
        live++;
        if (f->block == 0) return "I6: the trash block is in a copy";
        if (f->block >= p->cfg.n_blocks || kv_blocks(p)[f->block].holds == 0)
            return "I2: a copy in flight does not hold its block";
    }
    *holds += live;
    return live == p->copy_count ? NULL : "I8: copies in flight miscounted";
}

static const char *kv_check_parts(const struct kvpool *p, uint64_t *hold_entries)
{
    const char *bad = kv_check_accounts(p);
    if (bad == NULL && p->cfg.prefix_cache) bad = kv_check_lists(p);
    if (bad == NULL && p->cfg.prefix_cache) bad = kv_check_index(p);
    if (bad == NULL && p->cfg.n_host != 0) bad = kv_check_flights(p, hold_entries);
    if (bad == NULL && p->cfg.n_host != 0) bad = kv_check_slots(p);
    if (bad == NULL && p->cfg.n_host != 0) bad = kv_check_slot_counts(p);
    return bad;
}

const char *kvpool_check(const struct kvpool *p)
{
    uint64_t table_entries = 0, hold_entries = 0, refs = 0, holds = 0;
    const char *bad = kv_check_tables(p, &table_entries);
    if (bad == NULL) bad = kv_check_holds(p, &hold_entries);
    if (bad == NULL) bad = kv_check_states(p, &refs, &holds);
    if (bad == NULL) bad = kv_check_parts(p, &hold_entries);
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
