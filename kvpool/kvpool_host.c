/* The host tier: which blocks have their bytes in a slot, who is away from the device, and which
 * copies are in flight.
 *
 * A slot is free; busy while a copy reads or fills it; else kept, by its block on the device, by
 * sequences that are away, or both. Kept ones that only an unused block keeps are **loose**: they go
 * when a checkpoint needs a slot, oldest first. Slots of blocks in use are not dropped for a
 * checkpoint: one clean block of a running sequence is worth as much as another, and dropping it
 * would only start the next copy. */
#include "base/fault.h"
#include "kvpool/kvpool_impl.h"

#include <assert.h>

void kv_host_init(struct kvpool *p)
{
    for (uint32_t i = 0; i < p->cfg.n_blocks; i++) kv_tiers(p)[i].slot = KV_END;
    for (uint32_t i = 0; i < p->cfg.max_copies; i++)
        kv_copies(p)[i].next = i + 1 < p->cfg.max_copies ? i + 1 : KV_END;
    p->loose_slots = (struct kv_list){KV_END, KV_END};
    p->free_slots = (struct kv_list){0, p->cfg.n_host - 1};
    for (uint32_t i = 0; i < p->cfg.n_host; i++)
        kv_slots(p)[i] = (struct kv_slot){.list = KV_SLOT_FREE,
                                          .prev = i == 0 ? KV_END : i - 1,
                                          .next = i + 1 < p->cfg.n_host ? i + 1 : KV_END};
    p->slot_free = p->cfg.n_host;
}

/* ---- the two lists of slots ---- */

static struct kv_list *kv_slot_list(struct kvpool *p, uint32_t list)
{
    return list == KV_SLOT_FREE ? &p->free_slots : &p->loose_slots;
}

static void kv_slot_unlink(struct kvpool *p, uint32_t slot)
{
    struct kv_slot *rows = kv_slots(p), *s = &rows[slot];
    struct kv_list *l = kv_slot_list(p, s->list);
    if (s->prev != KV_END)
        rows[s->prev].next = s->next;
    else
        l->head = s->next;
    if (s->next != KV_END)
        rows[s->next].prev = s->prev;
    else
        l->tail = s->prev;
    p->slot_free -= s->list == KV_SLOT_FREE;
    s->prev = s->next = KV_END;
    s->list = KV_SLOT_NOWHERE;
}

static void kv_slot_append(struct kvpool *p, uint32_t slot, uint32_t list)
{
    struct kv_slot *rows = kv_slots(p), *s = &rows[slot];
    struct kv_list *l = kv_slot_list(p, list);
    s->list = list;
    s->prev = l->tail;
    s->next = KV_END;
    if (l->tail != KV_END)
        rows[l->tail].next = slot;
    else
        l->head = slot;
    l->tail = slot;
    p->slot_free += list == KV_SLOT_FREE;
}

/* Puts the slot where its counts say it belongs; called after each change of them. */
static void kv_slot_settle(struct kvpool *p, uint32_t slot)
{
    const struct kv_slot *s = &kv_slots(p)[slot];
    uint32_t list = KV_SLOT_NOWHERE;
    if (s->copies == 0 && (s->refs == 0 || fault_on(FAULT_SLOT_REUSED))) {
        if (s->block == 0)
            list = KV_SLOT_FREE;
        else if (kv_blocks(p)[s->block].refs == 0)
            list = KV_SLOT_LOOSE;
    }
    if (list == s->list) return;
    if (s->list != KV_SLOT_NOWHERE) kv_slot_unlink(p, slot);
    if (list != KV_SLOT_NOWHERE) kv_slot_append(p, slot, list);
}

static void kv_slot_copies(struct kvpool *p, uint32_t slot, int change)
{
    struct kv_slot *s = &kv_slots(p)[slot];
    uint32_t before = s->copies;
    s->copies = (uint32_t)((int)s->copies + change);
    p->slot_busy += (s->copies != 0) - (before != 0);
    kv_slot_settle(p, slot);
}

static void kv_slot_unref(struct kvpool *p, uint32_t slot)
{
    assert(kv_slots(p)[slot].refs > 0);
    kv_slots(p)[slot].refs--;
    kv_slot_settle(p, slot);
}

/* ---- a block and its slot ---- */

static void kv_tie(struct kvpool *p, uint32_t block, uint32_t slot)
{
    kv_tiers(p)[block].slot = slot;
    kv_slots(p)[slot].block = block;
    kv_slot_settle(p, slot);
}

static void kv_untie(struct kvpool *p, uint32_t block)
{
    uint32_t slot = kv_tiers(p)[block].slot;
    if (slot == KV_END) return;
    kv_tiers(p)[block].slot = KV_END;
    kv_slots(p)[slot].block = 0;
    kv_slot_settle(p, slot);
}

void kv_host_block_unused(struct kvpool *p, uint32_t block)
{
    if (kv_tiers(p)[block].slot != KV_END) kv_slot_settle(p, kv_tiers(p)[block].slot);
}

void kv_host_block_used(struct kvpool *p, uint32_t block)
{
    kv_host_block_unused(p, block);
}

void kv_host_block_gone(struct kvpool *p, uint32_t block)
{
    kv_untie(p, block);
}

/* The slot holds all its bytes: it is not being filled. A slot that is only read is clean. */
static bool kv_is_filling(const struct kvpool *p, uint32_t slot)
{
    if (kv_slots(p)[slot].copies == 0) return false;
    for (uint32_t i = 0; i < p->cfg.max_copies; i++) {
        const struct kv_flight *f = &kv_copies(p)[i];
        if (f->live && f->to_host && f->slot == slot) return true;
    }
    return false;
}

static bool kv_is_clean(const struct kvpool *p, uint32_t block)
{
    uint32_t slot = kv_tiers(p)[block].slot;
    return slot != KV_END && !kv_is_filling(p, slot);
}

/* ---- copies ---- */

static void kv_begin(struct kvpool *p, uint32_t seq, uint32_t at, uint32_t block, uint32_t slot,
                     bool to_host, struct kv_copy *out)
{
    uint32_t row = p->copy_head;
    struct kv_flight *f = &kv_copies(p)[row];
    assert(row != KV_END);
    p->copy_head = f->next;
    p->copy_count++;
    *f = (struct kv_flight){.live = 1,
                            .to_host = to_host,
                            .block = block,
                            .generation = kv_blocks(p)[block].generation,
                            .slot = slot,
                            .seq = seq,
                            .at = at,
                            .next = KV_END};
    kv_blocks(p)[block].holds++;
    kv_slot_copies(p, slot, 1);
    *out = (struct kv_copy){.copy = row, .block = block, .slot = slot};
    if (!to_host && fault_on(FAULT_COPY_SLOT)) out->slot = (slot + 1) % p->cfg.n_host;
}

/* A slot to fill, KV_END = none. */
static uint32_t kv_slot_take(struct kvpool *p)
{
    if (p->free_slots.head == KV_END && p->loose_slots.head != KV_END) {
        kv_untie(p, kv_slots(p)[p->loose_slots.head].block);
        p->host_dropped++;
    }
    return p->free_slots.head;
}

bool kvpool_checkpoint(struct kvpool *p, uint32_t seq, struct kv_copy *out)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    if (p->cfg.n_host == 0 || p->copy_head == KV_END) return false;
    struct kv_stay *stay = &kv_stays(p)[seq];
    uint32_t full = s->committed / p->cfg.block_tokens;
    if (fault_on(FAULT_COPY_UNFILLED)) full = kvpool_blocks_for(p, s->committed);
    const uint32_t *table = kv_seq_table(p, seq);
    while (stay->clean < full && kv_tiers(p)[table[stay->clean]].slot != KV_END) stay->clean++;
    if (stay->clean >= full) return false;
    uint32_t block = table[stay->clean], slot = kv_slot_take(p);
    if (slot == KV_END) return false;
    kv_tie(p, block, slot);
    kv_begin(p, seq, stay->clean, block, slot, true, out);
    return true;
}

uint32_t kvpool_unclean(const struct kvpool *p, uint32_t seq)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    uint32_t full = s->committed / p->cfg.block_tokens, n = 0;
    if (p->cfg.n_host == 0) return full;
    for (uint32_t i = 0; i < full; i++) n += !kv_is_clean(p, kv_seq_table(p, seq)[i]);
    return n;
}

/* Copies in flight of `seq` go on without it: their blocks and slots stay held until they end. */
static void kv_disown(struct kvpool *p, uint32_t seq)
{
    for (uint32_t i = 0; i < p->cfg.max_copies; i++) {
        struct kv_flight *f = &kv_copies(p)[i];
        if (f->live && f->seq == seq) f->seq = KV_END;
    }
}

/* Lets go of the slots that are listed from entry `from` on. */
static void kv_kept_cut(struct kvpool *p, uint32_t seq, uint32_t from)
{
    struct kv_stay *stay = &kv_stays(p)[seq];
    uint32_t *kept = kv_kept_table(p, seq);
    for (uint32_t i = from; i < stay->n; i++) {
        if (kept[i] != KV_END) kv_slot_unref(p, kept[i]);
        kept[i] = 0;
    }
    if (from >= stay->n) return;
    stay->n = from;
    stay->tail = 0;
}

static bool kv_is_tail(const struct kv_stay *stay, uint32_t at)
{
    return stay->tail != 0 && at + 1 == stay->n;
}

/* Positions that the first `blocks` entries stand for. */
static uint32_t kv_positions(const struct kvpool *p, const struct kv_stay *stay, uint32_t blocks)
{
    uint32_t short_by = stay->tail != 0 && blocks == stay->n ? p->cfg.block_tokens - stay->tail : 0;
    return blocks * p->cfg.block_tokens - short_by;
}

bool kv_host_here(const struct kvpool *p, uint32_t seq)
{
    return kv_stays(p)[seq].n == 0 || kv_stays(p)[seq].resuming;
}

uint32_t kv_host_floor(const struct kvpool *p, uint32_t seq)
{
    const struct kv_stay *stay = &kv_stays(p)[seq];
    return stay->resuming ? kv_positions(p, stay, stay->good) : 0;
}

void kv_host_leave(struct kvpool *p, uint32_t seq)
{
    if (p->copy_count > 0) kv_disown(p, seq);
    kv_kept_cut(p, seq, 0);
    kv_stays(p)[seq] = (struct kv_stay){0};
}

/* ---- away and back ---- */

/* How many blocks from the front have their bytes on the host. */
static uint32_t kv_clean_front(const struct kvpool *p, uint32_t seq)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    const struct kv_stay *stay = &kv_stays(p)[seq];
    uint32_t full = s->committed / p->cfg.block_tokens, k = 0;
    uint32_t end = stay->resuming && stay->good > full ? stay->good : full;
    for (; k < end; k++) {
        bool listed = k < stay->n && kv_kept_table(p, seq)[k] != KV_END;
        if (!listed && !kv_is_clean(p, kv_seq_table(p, seq)[k])) break;
        /* its copy may still fail, and would not find the sequence any more */
        if (listed && kv_is_tail(stay, k) && kv_is_filling(p, kv_kept_table(p, seq)[k])) break;
    }
    return k;
}

uint32_t kvpool_suspend(struct kvpool *p, uint32_t seq)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    if (p->cfg.n_host == 0) {
        kvpool_reset(p, seq);
        return 0;
    }
    struct kv_stay *stay = &kv_stays(p)[seq];
    uint32_t *kept = kv_kept_table(p, seq), k = kv_clean_front(p, seq);
    for (uint32_t i = 0; i < k; i++) {
        if (i < stay->n && kept[i] != KV_END) continue; /* a swap-in not ended: listed already */
        kept[i] = kv_tiers(p)[kv_seq_table(p, seq)[i]].slot;
        kv_slots(p)[kept[i]].refs++;
        kv_slot_settle(p, kept[i]);
    }
    kv_kept_cut(p, seq, k); /* what lies behind a gap is of no use */
    if (p->copy_count > 0) kv_disown(p, seq);
    *stay = (struct kv_stay){.n = k, .tail = stay->tail};
    kv_table_cut(p, seq, 0);
    s->reserved = s->committed = 0;
    kv_chain_reset(p, seq);
    return kv_positions(p, stay, k);
}

/* The copy is begun first, so that its hold keeps the block when the table lets it go. */
uint32_t kvpool_suspend_tail(struct kvpool *p, uint32_t seq, struct kv_copy *out)
{
    const struct kv_seq *s = kv_seq_at(p, seq);
    uint32_t full = s->committed / p->cfg.block_tokens, tail = s->committed % p->cfg.block_tokens;
    out->copy = KV_COPY_NONE;
    if (p->cfg.n_host == 0 || p->copy_head == KV_END || tail == 0) return kvpool_suspend(p, seq);
    struct kv_stay *stay = &kv_stays(p)[seq];
    if (stay->resuming || kv_clean_front(p, seq) < full) return kvpool_suspend(p, seq);
    uint32_t slot = kv_slot_take(p);
    if (slot == KV_END) return kvpool_suspend(p, seq);
    kv_begin(p, KV_END, full, kv_seq_table(p, seq)[full], slot, true, out);
    (void)kvpool_suspend(p, seq);
    assert(stay->n == full);
    kv_kept_table(p, seq)[full] = slot;
    kv_slots(p)[slot].refs++;
    stay->n = full + 1;
    stay->tail = tail;
    kv_copies(p)[out->copy].seq = seq; /* it is not on its own: when it fails the list is shorter */
    return kv_positions(p, stay, stay->n);
}

uint32_t kvpool_kept(const struct kvpool *p, uint32_t seq)
{
    (void)kv_seq_at(p, seq);
    if (p->cfg.n_host == 0 || kv_stays(p)[seq].resuming) return 0;
    return kv_positions(p, &kv_stays(p)[seq], kv_stays(p)[seq].n);
}

/* What the index has of the blocks of a sequence that comes back. */
struct kv_found {
    uint32_t good;   /* blocks that will be there: kept ones, and found ones directly behind */
    uint32_t found;  /* of these, in the index */
    uint32_t room;   /* found ones that take up room: cached now */
    uint32_t counted; /* found ones that will count to the account */
    struct kv_chain front; /* the unbroken front: publish need not look at it again */
};

/* Changes nothing but `blocks`, where it notes what it found. */
static struct kv_found kv_walk(struct kvpool *p, uint32_t seq, struct hash128 root,
                               const int32_t *ids, uint32_t n_ids, uint32_t *blocks)
{
    struct kv_found f = {.good = kv_stays(p)[seq].n};
    uint32_t bt = p->cfg.block_tokens, last = n_ids == 0 ? 0 : (n_ids - 1) / bt;
    if (last > p->cfg.max_seq_blocks) last = p->cfg.max_seq_blocks;
    struct hash128 parent = root, hash;
    for (uint32_t i = 0; i < last && p->cfg.prefix_cache; i++, parent = hash) {
        hash = kv_next_hash(p, parent, ids + (size_t)i * bt);
        uint32_t block = kv_find(p, hash, parent, ids + (size_t)i * bt);
        if (block == 0 && i >= kv_stays(p)[seq].n) break;
        if (block == 0 && kv_is_tail(&kv_stays(p)[seq], i)) break; /* what lies behind it is of no use */
        blocks[i] = block;
        if (i >= f.good) f.good = i + 1;
        if (block == 0) continue;
        if (f.front.n == i) f.front = (struct kv_chain){.hash = hash, .n = i + 1};
        f.found++;
        f.room += kv_blocks(p)[block].refs == 0 && kv_blocks(p)[block].holds == 0;
        f.counted += kv_blocks(p)[block].refs == 0;
    }
    return f;
}

/* Found blocks join first, all of them, so that no fresh one evicts what is about to be used. */
static void kv_refill(struct kvpool *p, uint32_t seq, uint32_t want, struct kv_found f)
{
    struct kv_seq *s = &kv_seqs(p)[seq];
    uint32_t *table = kv_seq_table(p, seq);
    for (uint32_t i = 0; i < f.good; i++) {
        uint32_t block = table[i];
        if (block == 0) continue;
        s->n_blocks = i; /* joins at its own place */
        kv_table_join(p, seq, block);
        kv_names(p)[block].hit = 1;
        p->hits++;
    }
    for (uint32_t i = 0; i < want; i++) {
        if (i < f.good && table[i] != 0) continue;
        s->n_blocks = i;
        kv_table_push(p, seq);
    }
    s->n_blocks = want;
}

/* The last one is back. After a failure the table is cut before the first bad block: those behind it
 * may be shared, and what comes next there has to be computed into blocks of its own. */
static void kv_arrived(struct kvpool *p, uint32_t seq)
{
    struct kv_seq *s = &kv_seqs(p)[seq];
    struct kv_stay *stay = &kv_stays(p)[seq];
    uint32_t bt = p->cfg.block_tokens, good = stay->good;
    if (stay->bad != 0) {
        good = stay->bad - 1;
        kv_table_cut(p, seq, good);
        s->reserved = good * bt;
    }
    s->committed = stay->bad != 0 ? good * bt : kv_positions(p, stay, good);
    kv_kept_cut(p, seq, 0);
    *stay = (struct kv_stay){0};
}

int kvpool_resume(struct kvpool *p, uint32_t seq, uint32_t positions, struct hash128 root,
                  const int32_t *ids, uint32_t n_ids)
{
    struct kv_seq *s = kv_seq_at(p, seq);
    assert(p->cfg.n_host != 0 && s->n_blocks == 0);
    struct kv_stay *stay = &kv_stays(p)[seq];
    uint32_t want = kvpool_blocks_for(p, positions), *table = kv_seq_table(p, seq);
    uint32_t *kept = kv_kept_table(p, seq);
    bool named = (root.lo | root.hi) != 0 && ids != NULL;
    assert(!stay->resuming && want >= stay->n);
    if (want > p->cfg.max_seq_blocks) return -1;
    if (n_ids > positions + 1) n_ids = positions + 1;
    struct kv_found f = kv_walk(p, seq, root, ids, named ? n_ids : 0, table);
    uint32_t fresh = want - f.found;
    if ((uint64_t)fresh + f.room > kv_available(p) || !kv_quota_allows(p, s, fresh + f.counted)) {
        for (uint32_t i = 0; i < f.good; i++) table[i] = 0;
        return -1;
    }
    kv_refill(p, seq, want, f);
    if (p->cfg.prefix_cache) kv_chains(p)[seq] = f.front;
    s->reserved = positions;
    stay->good = f.good;
    for (uint32_t i = 0; i < stay->n; i++) {
        bool there = named && i < f.good && kv_is_published(p, table[i]);
        bool whole = !kv_is_tail(stay, i);
        if (there && whole && kv_tiers(p)[table[i]].slot == KV_END &&
            kv_slots(p)[kept[i]].block == 0)
            kv_tie(p, table[i], kept[i]);
        if (there && !whole) stay->tail = 0; /* somebody else has computed that block to its end */
        if (there) {
            kv_slot_unref(p, kept[i]);
            kept[i] = KV_END;
        }
        stay->pending += !there;
        if (stay->pending == 0) s->committed = (i + 1) * p->cfg.block_tokens;
    }
    stay->resuming = 1;
    if (stay->pending == 0) kv_arrived(p, seq);
    return 0;
}

bool kvpool_swap_in(struct kvpool *p, uint32_t seq, struct kv_copy *out)
{
    (void)kv_seq_at(p, seq);
    if (p->cfg.n_host == 0 || p->copy_head == KV_END || !kv_stays(p)[seq].resuming) return false;
    struct kv_stay *stay = &kv_stays(p)[seq];
    const uint32_t *kept = kv_kept_table(p, seq);
    while (stay->next < stay->n && kept[stay->next] == KV_END) stay->next++;
    if (stay->next >= stay->n) return false;
    if (kv_is_tail(stay, stay->next) && kv_is_filling(p, kept[stay->next])) return false;
    uint32_t at = stay->next++;
    kv_begin(p, seq, at, kv_seq_table(p, seq)[at], kept[at], false, out);
    return true;
}

bool kvpool_resuming(const struct kvpool *p, uint32_t seq)
{
    (void)kv_seq_at(p, seq);
    return p->cfg.n_host != 0 && kv_stays(p)[seq].resuming;
}

/* The entry is on the device, or given up. */
static void kv_kept_drop(struct kvpool *p, uint32_t seq, uint32_t at)
{
    uint32_t *kept = kv_kept_table(p, seq), slot = kept[at];
    if (slot == KV_END) return;
    kept[at] = KV_END;
    kv_stays(p)[seq].pending--;
    kv_slot_unref(p, slot);
}

static void kv_swapped_in(struct kvpool *p, const struct kv_flight *f, bool ok)
{
    struct kv_stay *stay = &kv_stays(p)[f->seq];
    if (ok && !kv_is_tail(stay, f->at) && kv_slots(p)[f->slot].block == 0)
        kv_tie(p, f->block, f->slot);
    kv_kept_drop(p, f->seq, f->at);
    if (!ok) { /* those not begun lie behind it: not worth their copies */
        if (stay->bad == 0 || f->at + 1 < stay->bad) stay->bad = f->at + 1;
        for (; stay->next < stay->n; stay->next++) kv_kept_drop(p, f->seq, stay->next);
    }
    if (stay->pending == 0) kv_arrived(p, f->seq);
}

/* The tail did not get to the host: its sequence goes on without it. */
static void kv_tail_lost(struct kvpool *p, const struct kv_flight *f)
{
    struct kv_stay *stay = &kv_stays(p)[f->seq];
    if (!kv_is_tail(stay, f->at) || kv_kept_table(p, f->seq)[f->at] != f->slot) return;
    if (!stay->resuming) {
        kv_kept_cut(p, f->seq, f->at);
        return;
    }
    if (stay->bad == 0) stay->bad = f->at + 1; /* else one before it failed, too */
    kv_kept_drop(p, f->seq, f->at);
    if (stay->pending == 0) kv_arrived(p, f->seq);
}

/* A checkpoint failed: whoever shares the block must not believe it is on its way any more. */
static void kv_look_again(struct kvpool *p, uint32_t block, uint32_t at)
{
    for (uint32_t i = 0; i < p->cfg.max_seqs; i++) {
        struct kv_stay *stay = &kv_stays(p)[i];
        bool has = kv_seqs(p)[i].n_blocks > at && kv_seq_table(p, i)[at] == block;
        if (has && stay->clean > at) stay->clean = at;
    }
}

bool kvpool_copy_end(struct kvpool *p, uint32_t copy, bool ok)
{
    assert(p->cfg.n_host != 0 && copy < p->cfg.max_copies && kv_copies(p)[copy].live);
    struct kv_flight f = kv_copies(p)[copy];
    kv_copies(p)[copy] = (struct kv_flight){.next = p->copy_head};
    p->copy_head = copy;
    p->copy_count--;
    bool mine = kv_blocks(p)[f.block].generation == f.generation;
    p->copy_failures += !ok || !mine;
    if (f.to_host) {
        p->checkpoints += ok && mine;
        if ((!ok || !mine) && kv_tiers(p)[f.block].slot == f.slot) {
            kv_untie(p, f.block);
            kv_look_again(p, f.block, f.at);
        }
        /* only a tail is still its sequence's once that has given up its seat */
        if ((!ok || !mine) && f.seq != KV_END && kv_stays(p)[f.seq].n != 0) kv_tail_lost(p, &f);
    } else {
        p->swap_ins += ok && mine;
    }
    kv_slot_copies(p, f.slot, -1);
    if (!f.to_host && f.seq != KV_END) kv_swapped_in(p, &f, ok && mine);
    kv_block_unhold(p, f.block);
    return mine;
}
