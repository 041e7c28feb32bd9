/* Single-flight: of those who would compute the same block only one does, the others wait for it.
 *
 * A waiter has no seat and no blocks, and does not block those behind it. It waits until its leader
 * has committed all that both have in common (or is gone), so it is looked at twice and not once a
 * block. The leader is of its own rank or above; a lower one that computes the block is preempted:
 * what it has published stays, the higher one computes on from there and the lower one waits. */
#include "scheduler/worker_core_impl.h"

#include <string.h>

struct wc_leader {
    uint32_t slot, goal;
};

static bool wc_follow_holds(const struct worker_core *c, const struct wc_slot *s)
{
    const struct wc_slot *l = &wc_slots(c)[s->follows - 1];
    return l->state == WC_ACTIVE && l->arrival == s->follow_no && l->rank <= s->rank &&
           wc_steppable(l) && wc_has_root(l) &&
           kvpool_committed(wc_pool(c), l->seq) < s->follow_goal;
}

/* Ids that both have from the front on, up to n. */
static uint32_t wc_common(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Positions that `slot` could have in common with `l`, if that one is computing the block at `at`;
 * 0: it is not. */
static uint32_t wc_leads(const struct worker_core *c, uint32_t l, uint32_t slot, uint32_t at,
                         uint32_t limit)
{
    const struct wc_slot *s = &wc_slots(c)[slot], *ls = &wc_slots(c)[l];
    uint32_t bt = c->cfg.pool.block_tokens, done = kvpool_committed(wc_pool(c), ls->seq);
    if (!wc_steppable(ls) || !hash128_equal(ls->root, s->root)) return 0;
    if (done < at || done >= at + bt || ls->n_tokens < at + bt) return 0;
    if (memcmp(wc_ids(c, l), wc_ids(c, slot), (size_t)(at + bt) * sizeof(int32_t)) != 0) return 0;
    uint32_t n = ls->n_tokens < limit ? ls->n_tokens : limit;
    return wc_common(wc_ids(c, l), wc_ids(c, slot), n) / bt * bt;
}

static struct wc_leader wc_leader(const struct worker_core *c, uint32_t slot, bool lower)
{
    const struct wc_slot *s = &wc_slots(c)[slot];
    struct wc_leader best = {WC_NONE, 0};
    uint32_t bt = c->cfg.pool.block_tokens, n = wc_hit_ids(s), at = 0;
    if (n < bt + 1) return best;
    at = kvpool_match(wc_pool(c), s->root, wc_ids(c, slot), n);
    if (s->seq != KV_SEQ_NONE && kvpool_kept(wc_pool(c), s->seq) > at)
        at = kvpool_kept(wc_pool(c), s->seq);
    if (at + bt > n - 1) return best; /* what is left is its own to compute anyway */
    for (uint32_t i = 0; i < c->n_active; i++) {
        uint32_t l = wc_active(c)[i];
        if ((wc_slots(c)[l].rank > s->rank) != lower) continue;
        if (lower && !wc_may_take(c, &wc_slots(c)[l], s)) continue;
        uint32_t goal = wc_leads(c, l, slot, at, n - 1);
        if (goal > best.goal) best = (struct wc_leader){l, goal};
    }
    return best;
}

bool wc_follows(struct worker_core *c, uint32_t slot, struct wc_out *o)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    if (!wc_has_root(s)) return false;
    if (s->follows != 0 && wc_follow_holds(c, s)) return true;
    s->follows = 0;
    s->follow_no = 0;
    s->follow_goal = 0;
    struct wc_leader l = wc_leader(c, slot, false);
    if (l.slot != WC_NONE) {
        s->follows = l.slot + 1;
        s->follow_no = wc_slots(c)[l.slot].arrival;
        s->follow_goal = l.goal;
        c->followers += !s->counted;
        s->counted = 1;
        return true;
    }
    if (s->rank > 0) return false;
    while ((l = wc_leader(c, slot, true)).slot != WC_NONE) {
        wc_preempt(c, l.slot, o);
        c->role_changes++;
    }
    return false;
}
