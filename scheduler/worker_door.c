/* SUBMIT: the finish at the door, or a slot that waits. */
#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <string.h>

static void wc_refuse_at_door(const struct worker_event *ev, enum finish f, struct wc_out *o)
{
    struct worker_action *a = wc_emit(o, WA_FINISH);
    a->gw = ev->gw;
    a->sub = ev->sub;
    a->finish = f;
}

static void wc_give_back(uint32_t slot, struct wc_out *o)
{
    if (slot == WORKER_SLOT_NONE) return;
    wc_emit(o, WA_FREE)->slot = slot;
}

/* Could it ever end here: within a table, the pool, its account's quota? */
static bool wc_ever_fits(const struct worker_core *c, const struct wc_slot *s)
{
    uint32_t end = wc_blocks_to_end(c, s), blocks = c->cfg.pool.n_blocks - 1;
    if (c->cfg.debug_pool_blocks != 0 && c->cfg.debug_pool_blocks < blocks)
        blocks = c->cfg.debug_pool_blocks;
    if (s->quota != 0 && s->quota < blocks) blocks = s->quota;
    return end <= c->cfg.pool.max_seq_blocks && end <= blocks;
}

/* The finish a new submission gets at the door, or FINISH_NONE: it may wait for a seat. */
static enum finish wc_door(const struct worker_core *c, const struct worker_event *ev,
                           const struct wc_slot *s)
{
    if (ev->submit.refused || ev->submit.cls >= c->cfg.classes.n) return FINISH_REFUSED;
    if (s->n_tokens == 0 || s->n_prompt == 0 || s->n_prompt > s->n_tokens) return FINISH_REFUSED;
    if (s->from == 0 || s->from > s->n_tokens) return FINISH_REFUSED;
    if (c->draining) return FINISH_HANDED_BACK;
    if (s->n_tokens > c->cfg.n_ctx || !wc_ever_fits(c, s)) return FINISH_TOO_LARGE;
    if (s->n_tokens >= s->max_total && s->from == s->n_tokens) return FINISH_LENGTH;
    return FINISH_NONE;
}

static void wc_fill_slot(struct worker_core *c, struct wc_slot *s, const struct worker_event *ev)
{
    const struct wc_session *ses = &c->sessions[ev->gw];
    uint32_t accounts = c->cfg.pool.max_accounts;
    memset(s, 0, sizeof *s);
    s->cls = ev->submit.cls < c->cfg.classes.n ? ev->submit.cls : 0;
    s->rank = c->cfg.classes.rows[s->cls].rank != 0;
    s->attached = 1;
    s->gw = ev->gw;
    s->gateway = ses->gateway;
    s->sub = ev->sub;
    s->n_prompt = ev->submit.n_prompt;
    s->n_tokens = ev->submit.n_tokens;
    s->max_total = ev->submit.max_total < c->cfg.n_ctx ? ev->submit.max_total : c->cfg.n_ctx;
    if (s->max_total < s->n_tokens) s->max_total = s->n_tokens;
    s->from = s->made = s->sent = ev->submit.from;
    s->seq = KV_SEQ_NONE;
    s->tag = s->order_tag = ev->submit.tag;
    s->arrival = c->next_arrival++;
    s->submitted_ns = c->now_ns;
    wc_ledger_begin(c, s);
    s->account = ev->submit.account < accounts ? ev->submit.account : 0;
    s->quota = ev->submit.quota;
    s->tpot_ms = ev->submit.tpot_ms;
    s->host_choice = ev->submit.host_choice;
    s->fresh = s->rank == 0 && s->n_tokens == s->n_prompt;
    /* A retry: what it has was computed elsewhere, so computing it here is waste, not first work.
     */
    s->high = s->n_tokens > s->n_prompt ? s->n_tokens - 1 : 0;
}

/* The ids are kept for the index, unless rows of the prompt are wanted: what is hit has none. */
static void wc_keep_ids(struct worker_core *c, uint32_t slot, const struct worker_event *ev)
{
    struct wc_slot *s = &wc_slots(c)[slot];
    int32_t *ids = wc_ids(c, slot);
    if (ids == NULL || ev->submit.ids == NULL || s->from < s->n_prompt) return;
    memcpy(ids, ev->submit.ids, (size_t)s->n_tokens * sizeof *ids);
    s->root = ev->submit.root;
}

void wc_submit(struct worker_core *c, const struct worker_event *ev, struct wc_out *o)
{
    const struct wc_session *ses = &c->sessions[ev->gw];
    uint32_t slot = ev->submit.slot;
    if (!ses->up || wc_find(c, ses->gateway, ev->sub) != WC_NONE) {
        wc_give_back(slot, o);
        return;
    }
    if (slot == WORKER_SLOT_NONE) {
        wc_refuse_at_door(ev, ev->submit.refused ? FINISH_REFUSED : FINISH_HANDED_BACK, o);
        return;
    }
    assert(slot < c->cfg.max_slots);
    struct wc_slot *s = &wc_slots(c)[slot];
    assert(s->state == WC_FREE);
    wc_fill_slot(c, s, ev);
    wc_set_state(c, slot, WC_WAITING);
    wc_set_name(c, slot);
    enum finish f = wc_door(c, ev, s);
    if (f == FINISH_REFUSED) s->max_total = s->from = s->made = s->sent = s->n_tokens; /* no sense */
    if (f != FINISH_NONE)
        wc_finish(c, slot, f, o);
    else
        wc_keep_ids(c, slot, ev);
}
