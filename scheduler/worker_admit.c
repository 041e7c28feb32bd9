/* Who gets a seat: order, room, and how a sequence that had one before gets its blocks back. */
#include "base/fault.h"
#include "scheduler/worker_core_impl.h"

#include <assert.h>

uint32_t wc_blocks_to_end(const struct worker_core *c, const struct wc_slot *s)
{
    return kvpool_blocks_for(wc_pool(c), s->max_total - 1);
}

/* Known tokens plus one block, so that a start is worth its prefill; never more than it will ever
 * use. */
uint32_t wc_blocks_to_start(const struct worker_core *c, const struct wc_slot *s)
{
    uint32_t start = kvpool_blocks_for(wc_pool(c), wc_target(s)) + 1, end = wc_blocks_to_end(c, s);
    return start < end ? start : end;
}

/* A copy may take its time, and may be of a block that nobody else wants: not counted as coming. */
uint32_t wc_coming(const struct worker_core *c, const struct kvpool_stats *st)
{
    uint32_t left = 0, seen = 0;
    for (uint32_t i = 0; seen < c->n_copies; i++) {
        seen += wc_copies(c)[i].id != 0;
        left += wc_copies(c)[i].id != 0 && wc_copies(c)[i].left;
    }
    return st->held > left ? st->held - left : 0;
}

uint32_t wc_quota_left(const struct worker_core *c, const struct wc_slot *s)
{
    if (s->quota == 0) return UINT32_MAX;
    uint32_t used = kvpool_account_blocks(wc_pool(c), s->account);
    return used < s->quota ? s->quota - used : 0;
}

struct wc_room {
    uint32_t seats, blocks, quota; /* to be had if all fell that may */
};

/* Asked before anyone falls: a preemption that does not help is only lost work. Two lower bounds of
 * what falling frees: blocks of theirs alone, and all used ones less those of who stays. */
static struct wc_room wc_room_if_all_fell(const struct worker_core *c, const struct wc_slot *f)
{
    struct kvpool_stats st = kvpool_stats(wc_pool(c));
    struct wc_room r = {c->seats - c->n_active, st.free + st.cached + st.held, wc_quota_left(c, f)};
    uint32_t freed = 0, quota = 0, stay = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        const struct wc_slot *s = &wc_slots(c)[wc_active(c)[i]];
        uint32_t n;
        (void)kvpool_table(wc_pool(c), s->seq, &n);
        if (!wc_may_take(c, s, f)) {
            stay += n;
            continue;
        }
        n = kvpool_own_blocks(wc_pool(c), s->seq);
        freed += n;
        quota += s->account == f->account ? n : 0;
        r.seats++;
    }
    if (st.used > stay && st.used - stay > freed) freed = st.used - stay;
    r.blocks += freed;
    r.quota = r.quota > UINT32_MAX - quota ? UINT32_MAX : r.quota + quota;
    return r;
}

bool wc_realtime_here(const struct worker_core *c)
{
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        if (c->cfg.classes.rows[k].rank == 0 && c->count[k][WC_ACTIVE] > 0) return true;
    }
    return false;
}

/* Lower sequences grow a block now and then: who starts leaves them their next one, or it would be
 * its own victim soon. Who starts ahead, beside real-time, leaves that its next ones, too. */
static uint32_t wc_headroom(const struct worker_core *c, const struct wc_slot *f, bool ahead)
{
    uint32_t n = 0;
    if (f->rank == 0) return 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        const struct wc_slot *s = &wc_slots(c)[wc_active(c)[i]];
        uint32_t have, soon = wc_blocks_to_start(c, s);
        if (!wc_steppable(s) || (s->rank == 0 && !ahead)) continue;
        (void)kvpool_table(wc_pool(c), s->seq, &have);
        if (s->rank == 0)
            n += have < soon ? soon - have : 0;
        else
            n += have < soon && kvpool_blocks_for(wc_pool(c), wc_target(s) + 1) > have;
    }
    return n;
}

/* A seat and `need` blocks for a waiting sequence, over those left to who runs. */
static enum wc_start wc_make_room(struct worker_core *c, uint32_t slot, uint32_t need, bool ahead,
                                  struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    bool asked = false;
    uint32_t spare = wc_headroom(c, s, ahead);
    for (;;) {
        struct kvpool_stats st = kvpool_stats(wc_pool(c));
        uint32_t room = st.free + st.cached;
        bool seat = c->n_active < c->seats, quota = wc_quota_left(c, s) >= need;
        if (seat && quota && room >= need + spare) return WC_STARTED;
        if (!asked) {
            struct wc_room r = wc_room_if_all_fell(c, s);
            if (r.quota < need) return WC_START_SKIPPED;
            if (r.seats == 0 || r.blocks < need + spare) return WC_START_BLOCKED;
            asked = true;
        }
        if (seat && quota && room + wc_coming(c, &st) >= need + spare) return WC_START_PENDING;
        uint32_t v = wc_victim(c, slot, !quota);
        if (v == WC_NONE) /* only what copies hold is left to wait for */
            return seat && quota && room + st.held >= need + spare ? WC_START_PENDING
                                                                   : WC_START_BLOCKED;
        wc_preempt(c, v, o);
    }
}

static void wc_take_seat(struct worker_core *c, uint32_t slot, bool ahead)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    bool again = s->preempted;
    wc_set_state(c, slot, WC_ACTIVE);
    if (!again) c->started_tag[s->cls] = s->tag;
    s->preempted = 0;
    s->ran_from = s->n_tokens;
    s->checked = 0;
    s->ahead = ahead;
    c->n_realtime_swaps += again && s->resuming && s->rank == 0;
    if (ahead)
        c->n_ahead++; /* its way back counts when it runs */
    else if (again && s->resuming)
        c->resumed_swap++;
    else if (again)
        c->resumed_recompute++;
}

/* Blocks from the host. The pool attaches what the index has and names the copies for the rest. */
static enum wc_start wc_start_swap(struct worker_core *c, uint32_t slot, bool ahead,
                                   struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    uint32_t n = wc_has_root(s) ? wc_hit_ids(s) : 0;
    if (kvpool_resume(wc_pool(c), s->seq, wc_target(s), s->root, wc_ids(c, slot), n) != 0)
        return WC_START_BLOCKED;
    s->resuming = kvpool_resuming(wc_pool(c), s->seq);
    c->n_resuming += s->resuming;
    wc_take_seat(c, slot, ahead);
    if (s->resuming) wc_swap_in(c, slot, o);
    if (s->resuming && fault_on(FAULT_COPY_UNFENCED)) {
        kvpool_commit(wc_pool(c), s->seq, wc_target(s) - 1);
        s->resuming = 0;
        c->n_resuming--;
    }
    if (!s->resuming) wc_publish(c, slot);
    return WC_STARTED;
}

/* What the client is told. Only the first start counts: later hits are of what was computed for it. A
 * sequence that was moved here attaches output too. */
static void wc_count_cached(struct wc_slot *s, uint32_t attached)
{
    if (s->admitted == 0) s->cached = attached < s->n_prompt ? attached : s->n_prompt - 1;
}

/* Blocks from the index, and empty ones. *need grows by what the index only lent: a cached block
 * that is attached is room no longer. */
static enum wc_start wc_start_fresh(struct worker_core *c, uint32_t slot, uint32_t *need)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    struct kvpool *pool = wc_pool(c);
    uint32_t cached = kvpool_stats(pool).cached, target = wc_target(s);
    uint32_t spare = wc_blocks_to_start(c, s) - kvpool_blocks_for(pool, target);
    wc_close_seq(c, slot);
    s->seq = kvpool_seq_open(pool);
    assert(s->seq != KV_SEQ_NONE);
    kvpool_seq_account(pool, s->seq, s->account, s->quota);
    uint32_t hit = 0;
    if (wc_has_root(s))
        hit = kvpool_attach(pool, s->seq, s->root, wc_ids(c, slot), wc_hit_ids(s));
    if (!kvpool_fits(pool, s->seq, target, spare) || kvpool_reserve(pool, s->seq, target) != 0) {
        uint32_t now = kvpool_stats(pool).cached;
        *need += cached > now ? cached - now : 0;
        wc_close_seq(c, slot);
        return WC_START_BLOCKED;
    }
    wc_count_cached(s, hit);
    wc_take_seat(c, slot, false);
    return WC_STARTED;
}

static enum wc_start wc_start(struct worker_core *c, uint32_t slot, bool ahead, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    uint32_t need = wc_blocks_to_start(c, s), hit = 0;
    if (wc_has_root(s))
        hit = kvpool_match(wc_pool(c), s->root, wc_ids(c, slot), wc_hit_ids(s));
    need -= hit / c->cfg.pool.block_tokens;
    for (int tries = 0; tries < 2; tries++) {
        uint32_t was = need;
        enum wc_start r = wc_make_room(c, slot, need, ahead, o);
        if (r != WC_STARTED) return r;
        r = s->seq != KV_SEQ_NONE && wc_cost_swap_pays(c, slot)
                ? wc_start_swap(c, slot, ahead, o)
                : wc_start_fresh(c, slot, &need);
        if (r == WC_STARTED) return r;
        if (need == was) need = wc_blocks_to_start(c, s);
    }
    return wc_quota_left(c, s) < wc_blocks_to_start(c, s) ? WC_START_SKIPPED : WC_START_BLOCKED;
}

/* Accounts whose head found its quota full: those behind it of the same account are not asked. */
struct wc_full {
    uint64_t bits[4];
};

static bool wc_is_full(const struct wc_full *f, const struct wc_slot *s)
{
    return s->quota != 0 && (f->bits[s->account / 64 % 4] >> s->account % 64 & 1) != 0;
}

static void wc_mark_full(struct wc_full *f, const struct wc_slot *s)
{
    f->bits[s->account / 64 % 4] |= (uint64_t)1 << s->account % 64;
}

/* The head of a rank blocks those behind it (what is small must not starve what is large), unless it
 * waits for another one's prefix or for its own tenant's blocks. */
enum wc_start wc_admit(struct worker_core *c, uint8_t rank, uint32_t cls, bool prefetch,
                       struct wc_out *o)
{
    struct wc_full full = {{0}};
    bool ahead = prefetch && wc_realtime_here(c);
    if (prefetch && c->n_active >= c->seats) return WC_START_NOBODY;
    /* What becomes free is for the one that grows: a newcomer that took it would be its next victim, and so
     * on for ever. */
    if ((c->growing >> rank & 1u) != 0 && c->n_queued[rank] > 0) return WC_START_PENDING;
    for (uint32_t k = 0; k < c->n_queued[rank];) {
        uint32_t slot = wc_queue(c, rank)[k];
        const struct wc_slot *s = &wc_slots(c)[slot];
        if (!wc_startable(s) || (cls != WC_NONE && s->cls != cls) || wc_is_full(&full, s)) {
            k++;
            continue;
        }
        if (prefetch && (s->seq == KV_SEQ_NONE || !wc_cost_swap_pays(c, slot)))
            return WC_START_NOBODY;
        if (wc_follows(c, slot, o)) {
            k++;
            continue;
        }
        enum wc_start r = wc_start(c, slot, ahead, o);
        if (r == WC_START_SKIPPED) {
            wc_mark_full(&full, s);
            k++;
        } else if (r != WC_STARTED) {
            return r;
        }
    }
    return WC_START_NOBODY;
}
