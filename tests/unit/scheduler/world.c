#include "tests/unit/scheduler/world.h"

#include "scheduler/worker_core_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BAD(x, text) ((x)->bad = (x)->bad != NULL ? (x)->bad : (text))
#define GATEWAY_NAME 77u
#define WORLD_ACTIONS (4096 + 5 * WORLD_SLOTS + 64)

void world_init(struct world *x, void *gateway_region, const struct gateway_core_config *gcfg,
                void *const *worker_regions, const struct worker_core_config *wcfg,
                uint32_t n_segments)
{
    memset(x, 0, sizeof *x);
    assert(gcfg->max_slots <= WORLD_SLOTS && gcfg->max_workers >= 2 * WORLD_WORKERS);
    x->g = gateway_core_init(gateway_region, gcfg);
    x->n_slots = gcfg->max_slots;
    x->g_tenants = gcfg->max_tenants;
    x->now = 1000000000;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        vw_init(&x->w[i], worker_core_init(worker_regions[i], wcfg), wcfg, n_segments);
        x->conn[i].incarnation = 10 * (i + 1);
        x->conn[i].numerics = 1;
    }
}

static uint32_t world_index(const struct world *x, uint32_t i)
{
    return 2 * i + (x->conn[i].session & 1);
}

static struct world_msg *world_push(struct world *x, struct world_chan *c, bool alive)
{
    static struct world_msg nowhere;
    struct world_msg *m = alive && c->n < WORLD_CHAN ? &c->at[c->n++] : &nowhere;
    if (alive && m == &nowhere) BAD(x, "the test's channel is too short");
    memset(m, 0, sizeof *m);
    return m;
}

static struct world_msg world_pop(struct world_chan *c)
{
    struct world_msg m = c->at[0];
    c->n--;
    memmove(&c->at[0], &c->at[1], c->n * sizeof c->at[0]);
    memset(&c->at[c->n], 0, sizeof c->at[0]);
    return m;
}

/* Only with the mutation anything is before it: the old session's queue follows the new one's
 * greeting. */
static void world_to_front(struct world_chan *c)
{
    struct world_msg m = c->at[c->n - 1];
    memmove(&c->at[1], &c->at[0], (c->n - 1) * sizeof m);
    c->at[0] = m;
}

/* ---- the gateway's shell ---- */

static void world_deliver(struct world *x, const struct gateway_action *a,
                          const struct world_msg *m)
{
    struct world_request *r = &x->req[a->slot];
    if (!r->live || r->done) {
        BAD(x, "a delivery to a request that has ended");
        return;
    }
    if (m == NULL || m->key != r->key) BAD(x, "a delivery of another request's tokens");
    if (a->n > 0 && (m == NULL || m->from + a->skip != r->next || a->skip + a->n > m->n))
        BAD(x, "a delivery out of order");
    r->next += a->n;
    if (a->n > 0 && r->next > r->n_prompt) {
        if (r->numerics != 0 && m != NULL && r->numerics != m->numerics)
            BAD(x, "one answer from two numerics ids");
        r->numerics = m != NULL ? m->numerics : 0;
    }
    x->delivered += a->n;
    if (a->finish == FINISH_NONE) return;
    uint32_t end = r->stop_at != 0 && r->stop_at < r->max_total ? r->stop_at + 1 : r->max_total;
    if (r->next != end) BAD(x, "an answer of the wrong length");
    if (a->finish != (r->stop_at != 0 && r->stop_at < r->max_total ? FINISH_EOS : FINISH_LENGTH))
        BAD(x, "the wrong finish");
    r->done = 1;
    x->finished++;
}

static void world_failed(struct world *x, const struct gateway_action *a)
{
    struct world_request *r = &x->req[a->slot];
    bool lost = a->code == ERR_NO_WORKER || a->code == ERR_WORKER_LOST;
    if (!r->live || r->done) BAD(x, "a failure of a request that has ended");
    if (a->code == ERR_CANCELLED ? !r->cancelled
                                 : a->code != ERR_DEADLINE && !(lost && r->cls == CLASS_REALTIME))
        BAD(x, "a request failed against the rules");
    if (a->code == ERR_CANCELLED)
        x->cancelled++;
    else
        x->failed++;
    memset(r, 0, sizeof *r);
}

static void world_submit(struct world *x, const struct gateway_action *a, uint32_t i, bool alive)
{
    struct world_request *r = &x->req[a->slot];
    r->sub = a->sub;
    if (!r->live || r->done) BAD(x, "a submission of a request that has ended");
    if (a->from != r->next) BAD(x, "a submission from the wrong index");
    struct world_msg *m = world_push(x, &x->conn[i].to_w, alive);
    m->kind = WM_SUBMIT;
    m->sub = a->sub;
    m->submit = (struct vw_submit){.key = r->key,
                                   .n_prompt = r->n_prompt,
                                   .n_tokens = r->next > r->n_prompt ? r->next : r->n_prompt,
                                   .from = r->next,
                                   .max_total = r->max_total,
                                   .stop_at = r->stop_at,
                                   .cls = r->cls,
                                   .tag = a->tag,
                                   .shared_key = r->shared_key,
                                   .n_shared = r->n_shared,
                                   .scope = r->scope,
                                   .account = r->account,
                                   .quota = r->quota};
    x->submits++;
}

static void world_link(struct world *x, const struct gateway_action *a)
{
    static const enum world_kind kinds[] = {[GA_HELLO_REPLY] = WM_HELLO_REPLY,
                                            [GA_CANCEL] = WM_CANCEL,
                                            [GA_GAP] = WM_GAP,
                                            [GA_ACK] = WM_ACK};
    uint32_t i = a->worker / 2;
    bool alive = x->conn[i].alive && world_index(x, i) == a->worker;
    if (a->kind == GA_SUBMIT) {
        world_submit(x, a, i, alive);
        return;
    }
    if (a->kind == GA_HELLO_REPLY && a->code != ERR_OK) BAD(x, "a HELLO was refused");
    if (x->mutation == MUT_NO_CANCEL_OF_UNKNOWN && a->kind == GA_CANCEL && a->slot == UINT32_MAX)
        return;
    if (x->mutation == MUT_NO_GAP && a->kind == GA_GAP) return;
    struct world_msg *m = world_push(x, &x->conn[i].to_w, alive);
    m->kind = kinds[a->kind];
    m->sub = a->sub;
    m->from = a->from;
    if (a->kind == GA_HELLO_REPLY && alive) world_to_front(&x->conn[i].to_w);
}

static void world_action(struct world *x, const struct gateway_action *a, const struct world_msg *m)
{
    struct world_request *r = a->slot < x->n_slots ? &x->req[a->slot] : NULL;
    switch (a->kind) {
    case GA_DELIVER: world_deliver(x, a, m); break;
    case GA_FAIL: world_failed(x, a); break;
    case GA_RESTART:
        if (r->cls == CLASS_REALTIME) BAD(x, "a stream was started again");
        r->next = r->from;
        r->numerics = 0;
        x->restarts++;
        break;
    case GA_DRAINED: break;
    default: world_link(x, a); break;
    }
}

static void world_gw_msg(struct world *x, const struct gateway_event *ev, const struct world_msg *m)
{
    static struct gateway_action acts[WORLD_ACTIONS];
    uint32_t n = gateway_core_handle(x->g, ev, x->now, acts);
    struct gateway_event full = {.kind = GE_SEND_FULL};
    for (uint32_t k = 0; k < n; k++) {
        if (acts[k].kind == GA_SUBMIT && x->full_next && full.sub.counter == 0) {
            full.worker = acts[k].worker;
            full.sub = acts[k].sub;
            continue;
        }
        world_action(x, &acts[k], m);
    }
    const char *bad = gateway_core_check(x->g);
    if (bad != NULL) BAD(x, bad);
    if (full.sub.counter == 0) return;
    x->full_next = 0;
    if (x->mutation != MUT_SILENT_DROP) world_gw_msg(x, &full, NULL);
}

static void world_gw(struct world *x, const struct gateway_event *ev)
{
    world_gw_msg(x, ev, NULL);
}

void world_request(struct world *x, uint32_t slot, const struct world_request *r, uint64_t tag,
                   uint64_t deadline_ns)
{
    assert(!x->req[slot].live);
    x->req[slot] = *r;
    x->req[slot].live = 1;
    x->req[slot].next = r->from;
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = slot};
    ev.arrived.cls = r->cls;
    ev.arrived.tag = tag;
    ev.arrived.tenant = r->account < x->g_tenants ? r->account : 0;
    ev.arrived.priority = (int8_t)(r->key % 3) - 1;
    ev.arrived.n_prompt = ev.arrived.n_ids = r->n_prompt;
    ev.arrived.from = r->from;
    ev.arrived.max_total = r->max_total;
    ev.arrived.deadline_ns = deadline_ns;
    ev.arrived.durable = r->durable;
    world_gw(x, &ev);
}

static void world_hello(struct world *x, uint32_t i, const struct world_msg *m)
{
    struct gateway_event ev = {.kind = GE_HELLO, .worker = world_index(x, i)};
    ev.hello.name = 100 + i;
    ev.hello.incarnation = x->conn[i].incarnation;
    ev.hello.version_min = ev.hello.version_max = 1;
    ev.hello.numerics = (struct hash128){m->numerics, 1};
    ev.hello.n_ctx = 128;
    ev.hello.block_tokens = VW_BT;
    ev.hello.n_blocks = m->n;
    ev.hello.max_seqs = m->window[0];
    ev.hello.max_slots = x->w[i].max_slots;
    world_gw(x, &ev);
    if (x->mutation == MUT_SUBMIT_BEFORE_SYNC) {
        struct gateway_event sync = {.kind = GE_SYNC, .worker = ev.worker};
        world_gw(x, &sync);
    }
}

static void world_to_gw(struct world *x, uint32_t i)
{
    struct world_msg m = world_pop(&x->conn[i].to_gw);
    struct gateway_event ev = {.worker = world_index(x, i), .sub = m.sub};
    switch (m.kind) {
    case WM_HELLO: world_hello(x, i, &m); return;
    case WM_SYNC:
        ev.kind = GE_SYNC;
        ev.sync = m.sync;
        ev.n_sync = m.n_sync;
        break;
    case WM_STATUS:
        ev.kind = GE_STATUS;
        ev.status.number = m.number;
        ev.status.window[0] = m.window[0];
        ev.status.window[1] = m.window[1];
        break;
    default:
        ev.kind = GE_TOKENS;
        ev.tokens.index = m.from;
        ev.tokens.n = m.n;
        ev.tokens.finish = m.finish;
        if (x->mutation == MUT_ACCEPT_OLD_IDS) { /* whatever comes for the slot counts */
            uint32_t slot = (uint32_t)(ev.sub.counter % x->n_slots);
            if (x->req[slot].live) ev.sub = x->req[slot].sub;
        }
        break;
    }
    world_gw_msg(x, &ev, &m);
}

/* ---- the worker's shell ---- */

static void world_drain_out(struct world *x, uint32_t i)
{
    struct vworker *w = &x->w[i];
    struct world_conn *c = &x->conn[i];
    for (uint32_t k = 0; k < w->n_out; k++) {
        const struct vw_msg *o = &w->out[k];
        if (x->mutation == MUT_FINISH_ONCE && o->kind == VW_TOKENS && o->n == 0 &&
            finish_openai(o->finish) != NULL)
            continue;
        struct world_msg *m = world_push(x, &c->to_gw, c->alive && c->phase == 2);
        if (o->kind == VW_SYNC) {
            struct worker_sync list[VW_SLOTS];
            m->kind = WM_SYNC;
            m->n_sync = worker_core_sync(w->core, 0, list, VW_SLOTS);
            if (m->n_sync > WORLD_SYNC) BAD(x, "the test's SYNC is too short");
            for (uint32_t s = 0; s < m->n_sync && s < WORLD_SYNC; s++)
                m->sync[s] = (struct gateway_sync){list[s].sub, list[s].have, list[s].finished};
            continue;
        }
        m->kind = WM_TOKENS;
        m->sub = o->sub;
        m->key = o->key;
        m->numerics = c->numerics;
        m->from = o->from;
        m->n = o->n;
        m->finish = o->finish;
    }
    memset(w->out, 0, w->n_out * sizeof w->out[0]);
    w->n_out = 0;
    if (w->bad != NULL) BAD(x, w->bad);
}

static void world_open(struct world *x, uint32_t i)
{
    struct world_conn *c = &x->conn[i];
    c->session++;
    struct gateway_event down = {.kind = GE_DOWN, .worker = world_index(x, i)};
    if (c->gw_down_pending[c->session & 1]) world_gw(x, &down);
    c->gw_down_pending[c->session & 1] = 0;
    c->alive = 1;
    c->phase = 1;
    struct worker_stats st;
    worker_core_stats(x->w[i].core, &st);
    struct world_msg *m = world_push(x, &c->to_gw, true);
    m->kind = WM_HELLO;
    m->numerics = c->numerics;
    m->n = st.pool.total + 1;
    m->window[0] = 2;
    world_to_front(&c->to_gw);
}

static void world_break(struct world *x, uint32_t i)
{
    struct world_conn *c = &x->conn[i];
    if (x->mutation != MUT_OLD_QUEUE_TO_NEW_SESSION) {
        memset(&c->to_gw, 0, sizeof c->to_gw);
        memset(&c->to_w, 0, sizeof c->to_w);
    }
    c->alive = 0;
    c->gw_down_pending[c->session & 1] = 1;
    c->w_down_pending = c->phase != 0;
}

static bool world_computes(const struct world *x, uint32_t i, uint64_t key)
{
    for (uint32_t s = 0; s < x->w[i].max_slots; s++) {
        const struct wc_slot *q = &wc_slots(x->w[i].core)[s];
        if ((q->state == WC_WAITING || q->state == WC_ACTIVE) && x->w[i].seqs[s].key == key)
            return true;
    }
    return false;
}

static void world_to_w(struct world *x, uint32_t i)
{
    struct world_msg m = world_pop(&x->conn[i].to_w);
    struct vworker *w = &x->w[i];
    switch (m.kind) {
    case WM_HELLO_REPLY:
        x->conn[i].phase = 2;
        vw_up(w, 0, GATEWAY_NAME, x->now, x->trace[i]);
        break;
    case WM_SUBMIT:
        if (!x->cancel_lost && world_computes(x, i, m.submit.key))
            BAD(x, "a worker computes one request twice");
        vw_submit(w, 0, m.sub, &m.submit, x->now, x->trace[i]);
        break;
    case WM_CANCEL: vw_link(w, WE_CANCEL, 0, m.sub, 0, x->now, x->trace[i]); break;
    case WM_GAP: vw_link(w, WE_GAP, 0, m.sub, m.from, x->now, x->trace[i]); break;
    case WM_ACK: vw_link(w, WE_ACK, 0, m.sub, 0, x->now, x->trace[i]); break;
    default: BAD(x, "a message in the wrong direction"); break;
    }
    world_drain_out(x, i);
}

static void world_w_down(struct world *x, uint32_t i)
{
    x->conn[i].w_down_pending = 0;
    x->conn[i].phase = 0;
    vw_link(&x->w[i], WE_SESSION_DOWN, 0, (struct sub_id){0, 0}, 0, x->now, x->trace[i]);
    world_drain_out(x, i);
}

void world_restart_worker(struct world *x, uint32_t i, const struct worker_core_config *cfg)
{
    uint32_t segments = x->w[i].n_segments;
    if (x->conn[i].phase != 0 || x->conn[i].alive) world_break(x, i);
    x->conn[i].w_down_pending = 0;
    x->conn[i].phase = 0;
    x->conn[i].incarnation++;
    x->conn[i].status_number = 0;
    void *region = x->w[i].core;
    memset(region, 0, worker_core_bytes(cfg));
    vw_init(&x->w[i], worker_core_init(region, cfg), cfg, segments);
}

static void world_status(struct world *x, uint32_t i)
{
    struct worker_stats st;
    worker_core_stats(x->w[i].core, &st);
    struct world_msg *m =
        world_push(x, &x->conn[i].to_gw, x->conn[i].alive && x->conn[i].phase == 2);
    m->kind = WM_STATUS;
    m->number = ++x->conn[i].status_number;
    m->window[0] = st.window[0];
    m->window[1] = st.window[1];
}

/* ---- choices ---- */

static void world_settle(struct world *x, uint32_t slot)
{
    struct gateway_event ev = {.kind = x->req[slot].durable ? GE_DURABLE : GE_RELEASE,
                               .slot = slot};
    memset(&x->req[slot], 0, sizeof x->req[slot]);
    world_gw(x, &ev);
}

static void world_lose(struct world *x, struct world_chan *c)
{
    if (world_pop(c).kind == WM_CANCEL) x->cancel_lost = 1;
}

static void world_tick_to(struct world *x, uint64_t at)
{
    if (at != UINT64_MAX && at > x->now) x->now = at;
}

void world_apply(struct world *x, struct world_choice c)
{
    uint32_t i = c.who;
    struct gateway_event ev = {.kind = GE_DOWN};
    switch (c.kind) {
    case WC_DELIVER_GW: world_to_gw(x, i); break;
    case WC_DELIVER_W: world_to_w(x, i); break;
    case WC_STEP:
        (void)vw_advance(&x->w[i], x->now, x->trace[i]);
        world_drain_out(x, i);
        break;
    case WC_GW_DOWN:
        x->conn[i / 2].gw_down_pending[i & 1] = 0;
        ev.worker = i;
        world_gw(x, &ev);
        break;
    case WC_W_DOWN: world_w_down(x, i); break;
    case WC_OPEN: world_open(x, i); break;
    case WC_SETTLE: world_settle(x, i); break;
    case WC_STATUS: world_status(x, i); break;
    case WC_TICK_GW:
        world_tick_to(x, gateway_core_next_tick_ns(x->g, x->now));
        ev.kind = GE_TICK;
        world_gw(x, &ev);
        break;
    case WC_TICK_W:
        world_tick_to(x, worker_core_next_tick_ns(x->w[i].core, x->now));
        vw_link(&x->w[i], WE_TICK, 0, (struct sub_id){0, 0}, 0, x->now, x->trace[i]);
        world_drain_out(x, i);
        break;
    case WC_BREAK: world_break(x, i); break;
    case WC_KILL: break; /* the caller: world_restart_worker, it has the config */
    case WC_LOSE_GW: world_lose(x, &x->conn[i].to_gw); break;
    case WC_LOSE_W: world_lose(x, &x->conn[i].to_w); break;
    case WC_FULL: x->full_next = 1; break;
    case WC_CANCEL:
        x->req[i].cancelled = 1;
        ev.kind = GE_CANCEL;
        ev.slot = i;
        world_gw(x, &ev);
        break;
    case WC_CLIENT: break; /* the caller's: a new request */
    }
}

/* A send that failed (EAGAIN) loses one message; HELLO, SYNC and SUBMIT have their own way back. */
static bool world_losable(const struct world_chan *c)
{
    if (c->n == 0) return false;
    enum world_kind k = c->at[0].kind;
    /* without a slot it is not repeated: the worker's shell keeps it until it was sent */
    if (k == WM_TOKENS && c->at[0].finish == FINISH_HANDED_BACK) return false;
    return k == WM_TOKENS || k == WM_CANCEL || k == WM_GAP || k == WM_ACK || k == WM_STATUS;
}

bool world_can(struct world *x, struct world_choice c)
{
    uint32_t i = c.who;
    switch (c.kind) {
    case WC_BREAK: return x->conn[i].alive;
    case WC_KILL: return x->conn[i].alive || x->conn[i].phase != 0;
    case WC_LOSE_GW: return x->conn[i].alive && world_losable(&x->conn[i].to_gw);
    case WC_LOSE_W: return x->conn[i].alive && world_losable(&x->conn[i].to_w);
    case WC_FULL: return !x->full_next;
    case WC_CANCEL: return x->req[i].live && !x->req[i].done;
    case WC_TICK_GW: return gateway_core_next_tick_ns(x->g, x->now) != UINT64_MAX;
    case WC_TICK_W: return worker_core_next_tick_ns(x->w[i].core, x->now) != UINT64_MAX;
    default: return false;
    }
}

static uint32_t world_add(struct world_choice *out, uint32_t n, uint32_t cap,
                          enum world_choice_kind kind, uint32_t who)
{
    if (n < cap) out[n++] = (struct world_choice){kind, who};
    return n;
}

static uint32_t world_busy_choices(struct world *x, struct world_choice *out, uint32_t cap)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        const struct world_conn *c = &x->conn[i];
        if (c->alive && c->to_gw.n > 0) n = world_add(out, n, cap, WC_DELIVER_GW, i);
        if (c->alive && c->to_w.n > 0) n = world_add(out, n, cap, WC_DELIVER_W, i);
        if (vw_busy(&x->w[i])) n = world_add(out, n, cap, WC_STEP, i);
        for (uint32_t k = 0; k < 2; k++) {
            if (c->gw_down_pending[k]) n = world_add(out, n, cap, WC_GW_DOWN, 2 * i + k);
        }
        if (c->w_down_pending) n = world_add(out, n, cap, WC_W_DOWN, i);
        if (c->phase == 0 && !c->w_down_pending) n = world_add(out, n, cap, WC_OPEN, i);
    }
    for (uint32_t s = 0; s < x->n_slots; s++) {
        if (x->req[s].live && x->req[s].done) n = world_add(out, n, cap, WC_SETTLE, s);
    }
    return n;
}

/* Nothing moves: a STATUS if somebody waits for one, else time passes to the nearest tick. */
static uint32_t world_idle_choices(struct world *x, struct world_choice *out, uint32_t cap)
{
    struct gateway_stats st;
    gateway_core_stats(x->g, &st);
    uint64_t at = gateway_core_next_tick_ns(x->g, x->now), w_at;
    uint32_t n = 0;
    for (uint32_t i = 0; i < WORLD_WORKERS && at > x->now; i++) {
        w_at = worker_core_next_tick_ns(x->w[i].core, x->now);
        if (w_at < at) at = w_at;
    }
    if (at > x->now && st.queued[0] + st.queued[1] > 0 && at - x->now > 100000000) {
        for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
            if (x->conn[i].phase == 2) n = world_add(out, n, cap, WC_STATUS, i);
        }
        if (n > 0) return n;
    }
    if (at == UINT64_MAX) return 0;
    if (gateway_core_next_tick_ns(x->g, x->now) <= at) return world_add(out, n, cap, WC_TICK_GW, 0);
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        if (worker_core_next_tick_ns(x->w[i].core, x->now) <= at)
            return world_add(out, n, cap, WC_TICK_W, i);
    }
    return n;
}

uint32_t world_choices(struct world *x, struct world_choice *out, uint32_t cap)
{
    uint32_t n = world_busy_choices(x, out, cap);
    return n > 0 ? n : world_idle_choices(x, out, cap);
}

const char *world_leak(struct world *x)
{
    struct gateway_stats st;
    gateway_core_stats(x->g, &st);
    for (uint32_t s = 0; s < x->n_slots; s++) {
        if (x->req[s].live) return "a request did not end";
    }
    if (st.done + st.queued[0] + st.queued[1] + st.sent[0] + st.sent[1] > 0)
        return "a gateway slot leaked";
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        if (vw_used(&x->w[i]) > 0) return "a worker slot leaked";
        struct kvpool_stats p = kvpool_stats(worker_core_pool(x->w[i].core));
        if (p.free + p.cached != p.total || p.seqs > 0) return "a block leaked";
        if (p.copies > 0 || p.host_busy > 0) return "a copy leaked";
    }
    return NULL;
}

const char *world_check(struct world *x)
{
    if (x->bad != NULL) return x->bad;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        if (x->w[i].bad != NULL) return x->w[i].bad;
    }
    return gateway_core_check(x->g);
}
