/* The host tier: full blocks of those that may be preempted are copied out while nothing else wants
 * the copy path, and come back when their sequence gets a seat again.
 *
 * No copy needs a fence: a committed block is written by no step, and a block that is to be filled
 * was given out, so no step in flight holds it. */
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

static void wc_copy_begin(struct worker_core *c, uint32_t slot, const struct kv_copy *k,
                          bool to_host, struct wc_out *o)
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
                             .to_host = to_host};
    c->n_copies++;
    struct worker_action *a = wc_emit(o, WA_COPY);
    a->slot = slot;
    a->copy.id = copy->id;
    a->copy.to_host = to_host;
    a->copy.block = k->block;
    a->copy.host = k->slot;
    a->copy.priority = to_host ? 1 : 0;
}

void wc_swap_in(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct kv_copy k;
    while (c->n_copies < c->cfg.pool.max_copies &&
           kvpool_swap_in(wc_pool(c), wc_slots(c)[slot].seq, &k))
        wc_copy_begin(c, slot, &k, false, o);
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

/* The next block of a sequence that was not looked at since its last full block. */
static bool wc_checkpoint_one(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    struct kv_copy k;
    if (!c->cfg.classes.rows[s->cls].preemptible || s->resuming) return false;
    uint32_t full = kvpool_committed(wc_pool(c), s->seq) / c->cfg.pool.block_tokens;
    if (full == 0 || s->checked == full + 1) return false;
    if (!kvpool_checkpoint(wc_pool(c), s->seq, &k)) {
        s->checked = full + 1;
        return false;
    }
    wc_copy_begin(c, slot, &k, true, o);
    return true;
}

/* Few in flight, and none beside a swap-in, which somebody waits for. */
void wc_checkpoint(struct worker_core *c, struct wc_out *o)
{
    if (c->cfg.pool.n_host == 0 || c->n_resuming > 0) return;
    uint32_t in_flight = wc_checkpoints(c);
    for (uint32_t k = 0; k < c->n_active && in_flight < WC_CHECKPOINTS; k++) {
        uint32_t slot = wc_active(c)[c->tier_turn % c->n_active];
        while (in_flight < WC_CHECKPOINTS && c->n_copies < c->cfg.pool.max_copies &&
               wc_checkpoint_one(c, slot, o))
            in_flight++;
        if (in_flight < WC_CHECKPOINTS) c->tier_turn++;
    }
    if (c->tier_turn > UINT32_MAX / 2) c->tier_turn = 0;
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
    for (uint32_t i = 0; i < c->n_active && c->n_resuming > 0; i++) {
        if (wc_slots(c)[wc_active(c)[i]].resuming) wc_swap_in(c, wc_active(c)[i], o);
    }
}
