#include "tests/model/state_key.h"

#include "scheduler/gateway_core_impl.h"
#include "scheduler/worker_core_impl.h"

#include <stdlib.h>

enum { KEY_MAX = 2048, IDS_MAX = 256 };

struct key {
    uint32_t n, n_ids;
    uint64_t at[KEY_MAX];
    uint64_t ids[IDS_MAX]; /* counters of all submissions in the state, sorted, unique */
};

static void put(struct key *k, uint64_t v)
{
    if (k->n == KEY_MAX) abort();
    k->at[k->n++] = v;
}

static void note(struct key *k, struct sub_id sub)
{
    uint32_t i = 0;
    if (sub.counter == 0) return;
    while (i < k->n_ids && k->ids[i] < sub.counter) i++;
    if (i < k->n_ids && k->ids[i] == sub.counter) return;
    if (k->n_ids == IDS_MAX) abort();
    for (uint32_t j = k->n_ids++; j > i; j--) k->ids[j] = k->ids[j - 1];
    k->ids[i] = sub.counter;
}

static void put_sub(struct key *k, struct sub_id sub)
{
    uint32_t i = 0;
    while (i < k->n_ids && k->ids[i] != sub.counter) i++;
    put(k, sub.counter == 0 ? 0 : i + 1);
}

/* A time to come, or 0. */
static void put_until(struct key *k, uint64_t at, uint64_t now)
{
    put(k, at > now ? at - now : 0);
}

static void note_all(struct key *k, const struct world *x)
{
    for (uint32_t s = 0; s < x->n_slots; s++) note(k, gc_slots(x->g)[s].sub);
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        const struct world_chan *chans[] = {&x->conn[i].to_gw, &x->conn[i].to_w};
        for (uint32_t s = 0; s < x->w[i].max_slots; s++) {
            note(k, wc_slots(x->w[i].core)[s].sub);
            note(k, x->w[i].seqs[s].sub);
        }
        for (int c = 0; c < 2; c++) {
            for (uint32_t m = 0; m < chans[c]->n; m++) {
                note(k, chans[c]->at[m].sub);
                for (uint32_t e = 0; e < chans[c]->at[m].n_sync; e++)
                    note(k, chans[c]->at[m].sync[e].sub);
            }
        }
    }
}

/* Which process, and is it the one that lives now? Its number does not matter. */
static void put_process(struct key *k, const struct world *x, uint64_t incarnation)
{
    uint64_t i = incarnation / 10 - 1;
    put(k, incarnation == 0 ? 0 : 2 * i + 1 + (x->conn[i].incarnation == incarnation));
}

/* A gateway session index, as "worker i's newest" or "worker i's one before". */
static uint32_t session_of(const struct world *x, uint32_t index)
{
    if (index == GC_NONE) return 99;
    return 2 * (index / 2) + ((x->conn[index / 2].session ^ index) & 1);
}

static void put_gateway(struct key *k, const struct world *x)
{
    const struct gateway_core *g = x->g;
    for (uint32_t i = 0; i < x->n_slots; i++) {
        const struct gc_slot *s = &gc_slots(g)[i];
        put(k, s->state | s->stuck << 8 | s->acked << 16 | s->has_sub << 24 |
                   (uint64_t)s->failures << 32 | (uint64_t)s->alone << 40);
        put(k, session_of(x, s->worker) | (uint64_t)s->next << 32);
        uint64_t refused = 0;
        for (uint32_t b = 0; b < 4; b++) refused |= (uint64_t)gc_refused(g, s, b) << session_of(x, b);
        put(k, s->n_ids | refused << 32);
        put_sub(k, s->sub);
        put_process(k, x, s->sub_process);
        put(k, s->numerics.lo);
        put_until(k, s->alone ? s->alone_ns + 6000000000u : 0, x->now);
    }
    for (uint32_t i = 0; i < g->cfg.max_workers; i++) {
        uint32_t at = 2 * (i / 2) + ((x->conn[i / 2].session ^ i) & 1); /* newest session first */
        const struct gc_worker *w = &gc_workers(g)[at];
        put(k, w->state | w->has_status << 8 | (uint64_t)w->n_sent << 32);
        put_process(k, x, w->incarnation);
        put(k, w->window[0] | (uint64_t)w->window[1] << 32);
        put(k, w->sent_since[0] | (uint64_t)w->sent_since[1] << 32);
        put_until(k, w->full_until_ns, x->now);
    }
}

static void put_worker_slot(struct key *k, const struct world *x, const struct worker_core *c,
                            uint32_t i)
{
    const struct wc_slot *s = &wc_slots(c)[i];
    put(k, s->state | s->attached << 8 | s->preempted << 16 | s->in_step << 24 |
               (uint64_t)s->finish << 32 | (uint64_t)s->lost << 40 |
               (uint64_t)(s->admitted != 0) << 48 | (uint64_t)(s->gw != WC_NONE) << 49);
    if (s->state == WC_FREE) return;
    put_sub(k, s->sub);
    put(k, s->n_tokens | (uint64_t)s->made << 32);
    put(k, s->sent | (uint64_t)s->from << 32);
    put(k, s->state == WC_ACTIVE ? kvpool_committed(wc_pool(c), s->seq) |
                                       (uint64_t)kvpool_reserved(wc_pool(c), s->seq) << 32
                                 : 0);
    put_until(k, s->lost ? s->lost_at_ns + 31000000000u : 0, x->now);
    put_until(k, s->state == WC_FINISHED ? s->finish_at_ns : 0, x->now);
}

static void put_worker(struct key *k, const struct world *x, uint32_t w)
{
    const struct worker_core *c = x->w[w].core;
    put(k, c->sessions[0].up);
    put_until(k, c->sessions[0].up ? c->sessions[0].sync_at_ns : 0, x->now);
    for (uint32_t i = 0; i < c->cfg.max_slots; i++) put_worker_slot(k, x, c, i);
    for (uint32_t i = 0; i < WC_STEPS; i++) {
        const struct wc_step *st = &c->steps[i];
        put(k, (st->id != 0) | st->parked << 1 | st->park_asked << 2 | st->rank << 3 |
                   (uint64_t)st->n_spans << 8);
        for (uint32_t n = 0; n < st->n_spans; n++) {
            const struct wc_span *sp = &wc_spans(c, i)[n];
            put(k, sp->slot | sp->state << 8 | (uint64_t)sp->pos << 16 | (uint64_t)sp->n << 40);
        }
    }
    for (uint32_t i = 0; i < x->w[w].max_slots; i++) {
        const struct vw_seq *q = &x->w[w].seqs[i];
        put(k, q->used | (uint64_t)q->n_tokens << 8 | (uint64_t)q->made << 32);
        if (q->used) put_sub(k, q->sub);
        put(k, q->key);
    }
}

static void put_chan(struct key *k, const struct world_chan *c)
{
    put(k, c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct world_msg *m = &c->at[i];
        put(k, m->kind | m->finish << 8 | (uint64_t)m->from << 16 | (uint64_t)m->n << 40);
        put_sub(k, m->sub);
        put(k, m->key ^ m->submit.key);
        put(k, m->numerics | m->window[0] << 8 | (uint64_t)m->window[1] << 16 |
                   (uint64_t)m->submit.n_tokens << 32 | (uint64_t)m->submit.from << 48);
        put(k, m->n_sync);
        for (uint32_t e = 0; e < m->n_sync; e++) {
            put_sub(k, m->sync[e].sub);
            put(k, m->sync[e].have | (uint64_t)m->sync[e].finished << 32);
        }
    }
}

struct hash128 state_key(const struct world *x, uint32_t extra)
{
    struct key k;
    k.n = k.n_ids = 0;
    note_all(&k, x);
    put(&k, extra | (uint64_t)x->full_next << 32 | (uint64_t)x->cancel_lost << 33);
    put_gateway(&k, x);
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        const struct world_conn *c = &x->conn[i];
        put_worker(&k, x, i);
        uint32_t newest = c->session & 1;
        put(&k, c->alive | c->phase << 8 | c->gw_down_pending[newest] << 16 |
                    c->gw_down_pending[newest ^ 1] << 17 | c->w_down_pending << 18);
        put_chan(&k, &c->to_gw);
        put_chan(&k, &c->to_w);
    }
    for (uint32_t s = 0; s < x->n_slots; s++) {
        const struct world_request *r = &x->req[s];
        put(&k, r->live | r->done << 1 | r->cancelled << 2 | (uint64_t)r->next << 8);
        put(&k, r->key);
        put(&k, r->numerics);
    }
    return hash128(k.at, k.n * sizeof k.at[0], 1);
}
