/* The host tier: full blocks of those that may be preempted are copied out while nothing else wants
 * the copy path, and come back when their sequence gets a seat again.
 *
 * Priority 0 is for what somebody waits for. Checkpoints and what comes back for a lower rank while
 * real-time has seats go at priority 1, which takes no time from a step, and few at once: what is in flight
 * holds its block until it ended.
 *
 * No copy needs a fence: a full committed block is written by no step, and a block that is to be filled was
 * given out, so no step in flight holds it. The partly filled last block of one that is preempted is copied
 * once its span is gone. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>

#define WC_COPIES 16

uint32_t wc_copies_max(const struct worker_core_config *cfg)
{
    if (cfg->pool.n_host == 0) return 0;
    uint32_t n = cfg->pool.max_copies != 0 ? cfg->pool.max_copies : WC_COPIES;
    return n > WC_CHECKPOINTS ? n : WC_CHECKPOINTS + 1;
}

void wc_publish(struct worker_core *c, uint32_t slot)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    if (!wc_has_root(s)) return;
    kvpool_publish(wc_pool(c), s->seq, s->root, wc_ids(c, slot), s->rank);
}

static struct wc_copy *wc_copy_new(struct worker_core *c, uint32_t slot, const struct kv_copy *k,
                                   bool to_host)
{
    struct wc_copy *list = wc_copies(c), *copy = NULL;
    for (uint32_t i = 0; i < c->cfg.pool.max_copies && copy == NULL; i++) {
        if (list[i].id == 0) copy = &list[i];
    }
    assert(copy != NULL); /* the pool has as many */
    *copy = (struct wc_copy){.id = c->next_copy++,
                             .arrival = wc_slots(c)[slot].arrival,
                             .slot = slot,
                             .copy = k->copy,
                             .block = k->block,
                             .host = k->slot,
                             .to_host = to_host};
    c->n_copies++;
    return copy;
}

static void wc_copy_emit(const struct wc_copy *copy, uint8_t priority, struct wc_out *o)
{
    struct worker_action *a = wc_emit(o, WA_COPY);
    a->slot = copy->slot;
    a->copy.id = copy->id;
    a->copy.to_host = copy->to_host;
    a->copy.block = copy->block;
    a->copy.host = copy->host;
    a->copy.priority = priority;
}

static void wc_copy_begin(struct worker_core *c, uint32_t slot, const struct kv_copy *k,
                          bool to_host, uint8_t priority, struct wc_out *o)
{
    wc_copy_emit(wc_copy_new(c, slot, k, to_host), priority, o);
}

bool wc_suspend(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    if (s->resuming || !wc_cost_tail_pays(c, slot)) return kvpool_suspend(wc_pool(c), s->seq) > 0;
    struct kv_copy k;
    uint32_t kept = kvpool_suspend_tail(wc_pool(c), s->seq, &k);
    if (k.copy == KV_COPY_NONE) return kept > 0;
    struct wc_copy *copy = wc_copy_new(c, slot, &k, true);
    copy->left = copy->tail = 1;
    copy->waits = s->in_step != 0;
    if (!copy->waits) wc_copy_emit(copy, 1, o);
    return true;
}

void wc_tail_go(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; seen < c->n_copies; i++) {
        struct wc_copy *k = &wc_copies(c)[i];
        seen += k->id != 0;
        if (k->id == 0 || !k->waits || k->slot != slot) continue;
        k->waits = 0;
        wc_copy_emit(k, 1, o);
    }
}

void wc_swap_in(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct kv_copy k;
    bool gentle = wc_slots(c)[slot].rank > 0 && wc_realtime_here(c);
    uint32_t most = gentle ? WC_GENTLE : c->cfg.pool.max_copies;
    while (c->n_copies < most && kvpool_swap_in(wc_pool(c), wc_slots(c)[slot].seq, &k))
        wc_copy_begin(c, slot, &k, false, gentle, o);
}

void wc_swap_ins(struct worker_core *c, struct wc_out *o)
{
    for (uint32_t i = 0; i < c->n_active && c->n_resuming > 0; i++) {
        if (wc_slots(c)[wc_active(c)[i]].resuming) wc_swap_in(c, wc_active(c)[i], o);
    }
}

static uint32_t wc_checkpoints(const struct worker_core *c)
{
    uint32_t n = 0, seen = 0;
    for (uint32_t i = 0; seen < c->n_copies; i++) {
        seen += wc_copies(c)[i].id != 0;
        n += wc_copies(c)[i].id != 0 && wc_copies(c)[i].to_host;
    }
    return n;
}

static bool wc_falls_first(const struct worker_core *c, const struct wc_slot *s)
{
    return s->rank > 0 && c->cfg.classes.rows[s->cls].preemptible;
}

/* Only its equals can push it out, when they must grow and the pool, or their tenant's quota, does not
 * hold them all: copies before three quarters of that are theirs would be for nothing. The debug switch
 * takes anyone. */
static bool wc_may_be_pushed_out(const struct worker_core *c, const struct wc_slot *s)
{
    uint64_t total = kvpool_stats(wc_pool(c)).total, have[2] = {0, 0}, end[2] = {0, 0};
    if (wc_falls_first(c, s) || c->cfg.debug_preempt_every != 0) return true;
    for (uint32_t i = 0; i < c->n_active; i++) {
        const struct wc_slot *t = &wc_slots(c)[wc_active(c)[i]];
        uint32_t n, own = t->account == s->account;
        if (wc_falls_first(c, t)) continue;
        (void)kvpool_table(wc_pool(c), t->seq, &n);
        for (uint32_t k = 0; k <= own; k++) {
            have[k] += n;
            end[k] += wc_blocks_to_end(c, t);
        }
    }
    if (end[0] > total && have[0] >= total - total / 4) return true;
    return s->quota != 0 && end[1] > s->quota && have[1] >= s->quota - s->quota / 4;
}

/* The next block of a sequence that was not looked at since its last full block. */
static bool wc_checkpoint_one(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    struct kv_copy k;
    if (s->resuming) return false;
    uint32_t full = kvpool_committed(wc_pool(c), s->seq) / c->cfg.pool.block_tokens;
    if (full == 0 || s->checked == full + 1) return false;
    if (!wc_may_be_pushed_out(c, s) || !kvpool_checkpoint(wc_pool(c), s->seq, &k)) {
        s->checked = full + 1;
        return false;
    }
    wc_copy_begin(c, slot, &k, true, 1, o);
    return true;
}

/* Those that fall first, or the others; until `most` are in flight. */
static void wc_checkpoint_some(struct worker_core *c, bool first, uint32_t most, struct wc_out *o)
{
    uint32_t in_flight = wc_checkpoints(c);
    for (uint32_t k = 0; k < c->n_active && in_flight < most; k++) {
        uint32_t slot = wc_active(c)[c->tier_turn % c->n_active];
        bool turn = wc_falls_first(c, &wc_slots(c)[slot]) == first;
        while (turn && in_flight < most && c->n_copies < c->cfg.pool.max_copies &&
               wc_checkpoint_one(c, slot, o))
            in_flight++;
        if (in_flight < most) c->tier_turn++;
    }
    if (c->tier_turn > UINT32_MAX / 2) c->tier_turn = 0;
}

/* Few in flight, and none beside a swap-in, which somebody waits for. */
void wc_checkpoint(struct worker_core *c, struct wc_out *o)
{
    if (c->cfg.pool.n_host == 0 || c->n_resuming > 0) return;
    wc_checkpoint_some(c, true, WC_CHECKPOINTS, o);
    wc_checkpoint_some(c, false, 1, o);
}

void wc_copies_left(struct worker_core *c, uint32_t slot)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; seen < c->n_copies; i++) {
        struct wc_copy *k = &wc_copies(c)[i];
        seen += k->id != 0;
        if (k->id != 0 && k->slot == slot && k->arrival == wc_slots(c)[slot].arrival) k->left = 1;
    }
}

static void wc_learn_copy(struct worker_core *c, bool to_host, uint64_t ns)
{
    /* A checkpoint runs when nothing else does: its time says only how fast it can be. */
    if (ns == 0 || (to_host && ns >= c->copy_ns && c->copy_ns != 0)) return;
    if (c->copy_ns == 0)
        c->copy_ns = ns;
    else if (ns > 4 * c->copy_ns)
        ns = 4 * c->copy_ns; /* one that lost the processor */
    c->copy_ns = c->copy_ns - c->copy_ns / 8 + ns / 8;
}

static void wc_resumed(struct worker_core *c, uint32_t slot)
{
    wc_slots(c)[slot].resuming = 0;
    c->n_resuming--;
    wc_publish(c, slot);
}

void wc_copy_end(struct worker_core *c, const struct worker_event *ev, struct wc_out *o)
{
    struct wc_copy *k = NULL;
    for (uint32_t i = 0; i < c->cfg.pool.max_copies && k == NULL; i++) {
        if (ev->copy.id != 0 && wc_copies(c)[i].id == ev->copy.id) k = &wc_copies(c)[i];
    }
    assert(k != NULL);
    struct wc_copy was = *k;
    *k = (struct wc_copy){0};
    c->n_copies--;
    if (!kvpool_copy_end(wc_pool(c), was.copy, ev->copy.ok)) c->faults++;
    if (ev->copy.ok) wc_learn_copy(c, was.to_host, ev->copy.device_ns);
    struct wc_slot *s = &wc_slots(c)[was.slot];
    bool same = s->arrival == was.arrival && s->state == WC_ACTIVE;
    if (!was.to_host && ev->copy.ok) c->swap_in_positions += c->cfg.pool.block_tokens;
    if (same && s->resuming && !kvpool_resuming(wc_pool(c), s->seq)) wc_resumed(c, was.slot);
    bool away = s->arrival == was.arrival && s->state == WC_WAITING && s->seq != KV_SEQ_NONE;
    if (was.to_host && away && kvpool_kept(wc_pool(c), s->seq) == 0)
        wc_close_seq(c, was.slot); /* its tail was all it had, and did not get there */
    wc_swap_ins(c, o);
}
