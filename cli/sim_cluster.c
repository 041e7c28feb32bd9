/* sim_cluster.c - see sim_cluster.h.
 *
 * Why both ways through time agree: a worker hears of others only by messages, which take net_ns; so between two of
 * them it may be taken forward alone, in steps or in runs, and what it sent lies in order of time either way. Before
 * anything of time T happens, every run has been counted up to T - net_ns, so that all that a gateway can have heard
 * by then is there. */
#include "cli/sim_cluster.h"

#include "base/heap.h"
#include "base/list.h"
#include "base/mem.h"
#include "cli/sim_queue.h"

#include <assert.h>
#include <string.h>

#define STATUS_NS 250000000ull
#define CHECK_EVERY 5000 /* with `check` */

struct place { /* of a worker */
    struct sim_node *node;
    struct heap_node link;
    uint64_t next_ns, status_ns; /* status_ns: when one is due, SIM_NEVER = nothing to tell */
    uint32_t index, gateway;
    struct sim_node_status status; /* of the last beat; net_ns is shorter than a beat */
};

struct cluster {
    const struct sim_plan *plan;
    const struct sim_trace *trace;
    struct sim_meter *meter;
    struct worker_core_config core;
    struct place *places;
    struct sim_gateway **gateways;
    uint32_t n_gateways;
    struct heap heap; /* of places, by next_ns, then index */
    struct sim_mail_heap mail;
    struct sim_wire_ring wires;
    int32_t *ids;
    uint64_t now_ns, synced_ns;
    uint32_t next_arrival;
    uint8_t phase;
    bool merge;
    const char *bad;
};

static bool place_before(const struct heap_node *a, const struct heap_node *b, void *ctx) {
    const struct place *x = list_item(a, struct place, link), *y = list_item(b, struct place, link);
    (void)ctx;
    return x->next_ns != y->next_ns ? x->next_ns < y->next_ns : x->index < y->index;
}

static void on_tokens(void *ctx, const struct sim_node_tokens *t) {
    struct cluster *c = ctx;
    struct sim_mail m = {.at_ns = t->now_ns + c->plan->net_ns,
                         .sub = t->sub,
                         .node = t->node,
                         .from = t->from,
                         .to = t->to,
                         .cached = t->cached,
                         .finish = (uint8_t)t->finish,
                         .phase = c->phase};
    sim_mail_put(&c->mail, &m);
}

static void on_send(void *ctx, const struct sim_wire *w) {
    struct cluster *c = ctx;
    sim_wire_put(&c->wires, w, c->now_ns + c->plan->net_ns);
}

/* The beat is each worker's own, so that a thousand do not speak at once. */
static uint64_t next_beat_ns(const struct cluster *c, const struct place *p) {
    uint64_t phase = STATUS_NS * p->index / c->plan->workers;
    uint64_t at = c->now_ns >= phase ? (c->now_ns - phase) / STATUS_NS + 1 : 0;
    return phase + at * STATUS_NS;
}

static void place_moved(struct cluster *c, struct place *p) {
    if (sim_node_changed(p->node) && p->status_ns == SIM_NEVER)
        p->status_ns = next_beat_ns(c, p);
    p->next_ns = sim_node_next_ns(p->node);
    if (p->status_ns < p->next_ns)
        p->next_ns = p->status_ns;
    heap_moved(&c->heap, &p->link);
}

static void put_status(struct cluster *c, struct place *p) {
    struct sim_node_stats st;
    sim_node_stats(p->node, &st);
    memcpy(p->status.window, st.core.window, sizeof(p->status.window));
    p->status.free_blocks = st.core.pool.free;
    struct sim_mail m = {.at_ns = c->now_ns + c->plan->net_ns, .node = p->index, .is_status = 1};
    sim_mail_put(&c->mail, &m);
}

static void place_event(struct cluster *c, struct place *p) {
    c->phase = 0;
    sim_node_advance(p->node, c->now_ns);
    if (p->status_ns <= c->now_ns) {
        p->status_ns = SIM_NEVER;
        put_status(c, p);
    }
    place_moved(c, p);
}

static void wire_event(struct cluster *c) {
    struct sim_wire w;
    (void)sim_wire_take(&c->wires, &w);
    struct place *p = &c->places[w.node];
    c->phase = 0;
    sim_node_advance(p->node, c->now_ns);
    c->phase = 1;
    if (w.kind == SIM_WIRE_SUBMIT) {
        const struct sim_trace_row *r = &c->trace->rows[w.r.request];
        if (r->block_tokens != 0 && c->core.pool.prefix_cache && w.r.n_known == r->n_prompt) {
            sim_trace_ids(c->trace, r, c->ids);
            w.r.ids = c->ids;
        }
        sim_node_submit(p->node, &w.r);
    } else if (w.kind == SIM_WIRE_ACK) {
        sim_node_ack(p->node, w.r.sub);
    } else {
        sim_node_cancel(p->node, w.r.sub);
    }
    place_moved(c, p);
}

static void mail_event(struct cluster *c) {
    struct sim_mail m;
    (void)sim_mail_take(&c->mail, &m);
    struct sim_gateway *g = c->gateways[c->places[m.node].gateway];
    if (m.is_status) {
        sim_gateway_status(g, m.node, &c->places[m.node].status, c->now_ns);
        return;
    }
    struct sim_node_tokens t = {.node = m.node, .sub = m.sub, .from = m.from, .to = m.to};
    t.finish = (enum finish)m.finish;
    t.cached = m.cached;
    t.now_ns = c->now_ns;
    sim_gateway_tokens(g, &t, c->now_ns);
}

/* The gateway with fewest unfinished requests a worker. */
static void arrival_event(struct cluster *c) {
    uint32_t best = 0;
    uint64_t best_load = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_gateways; i++) {
        uint32_t from = c->plan->workers * i / c->n_gateways;
        uint32_t to = c->plan->workers * (i + 1) / c->n_gateways;
        uint64_t load = (uint64_t)sim_gateway_unfinished(c->gateways[i]) * 1000 / (to - from);
        if (load >= best_load)
            continue;
        best = i;
        best_load = load;
    }
    sim_gateway_arrive(c->gateways[best], c->next_arrival++, c->now_ns);
}

static uint64_t gateway_tick_ns(const struct cluster *c, uint32_t *which) {
    uint64_t at = SIM_NEVER;
    for (uint32_t i = 0; i < c->n_gateways; i++) {
        uint64_t t = sim_gateway_next_tick_ns(c->gateways[i]);
        if (t >= at)
            continue;
        at = t;
        *which = i;
    }
    return at;
}

/* All workers as far as a gateway can have heard of at `now`. */
static bool sync_places(struct cluster *c, uint64_t now_ns) {
    uint64_t to = now_ns > c->plan->net_ns ? now_ns - c->plan->net_ns : 0;
    if (!c->plan->runs || c->merge || to <= c->synced_ns)
        return false;
    c->phase = 0;
    for (uint32_t i = 0; i < c->plan->workers; i++) {
        struct place *p = &c->places[i];
        if (sim_node_run_due(p->node, to)) {
            sim_node_advance(p->node, to);
            place_moved(c, p);
        }
    }
    c->synced_ns = to;
    return true;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The next thing that happens anywhere; false: nothing will. */
static bool one_event(struct cluster *c) {
    struct place *first = list_item(heap_top(&c->heap), struct place, link);
    uint64_t arrival = c->next_arrival < c->trace->n ? c->trace->rows[c->next_arrival].at_ns : SIM_NEVER;
    uint64_t mail = sim_mail_next_ns(&c->mail), wire = sim_wire_next_ns(&c->wires);
    uint32_t which = 0;
    uint64_t tick = gateway_tick_ns(c, &which);
    uint64_t worker = least(first->next_ns, wire), gateway = least(least(mail, arrival), tick);
    uint64_t now = least(worker, gateway);
    if (now == SIM_NEVER)
        return false;
    if (sync_places(c, now))
        return true; /* what comes first may be another now */
    assert(now >= c->now_ns);
    c->now_ns = now;
    if (first->next_ns == now)
        place_event(c, first);
    else if (wire == now)
        wire_event(c);
    else if (mail == now)
        mail_event(c);
    else if (arrival == now)
        arrival_event(c);
    else
        sim_gateway_tick(c->gateways[which], now);
    return true;
}

static const char *check(const struct cluster *c) {
    for (uint32_t i = 0; i < c->plan->workers; i++) {
        const char *bad = sim_node_bad(c->places[i].node);
        if (bad != NULL)
            return bad;
    }
    for (uint32_t i = 0; i < c->n_gateways; i++) {
        const char *bad = sim_gateway_check(c->gateways[i]);
        if (bad != NULL)
            return bad;
    }
    return c->mail.bad || c->wires.bad ? "out of memory for messages" : NULL;
}

static bool make_nodes(struct cluster *c) {
    const struct sim_live *live = &c->plan->hardware->live;
    struct sim_node_config n = {.core = c->core,
                                .model = &c->plan->hardware->model,
                                .live = sim_live_scatters(live) ? live : NULL,
                                .seed = c->plan->seed,
                                .n_segments = c->plan->hardware->n_segments,
                                .copy_ns = c->plan->hardware->copy_ns,
                                .runs = c->plan->runs,
                                .check_every = c->plan->check ? 100 : 0,
                                .net_ns = c->plan->net_ns,
                                .meter = c->meter,
                                .merge = c->merge,
                                .tokens = on_tokens,
                                .ctx = c};
    for (uint32_t i = 0; i < c->plan->workers; i++) {
        struct place *p = &c->places[i];
        n.index = p->index = i;
        p->status_ns = p->next_ns = SIM_NEVER;
        p->node = sim_node_create(&n);
        if (p->node == NULL)
            return false;
        heap_node_init(&p->link);
        if (heap_push(&c->heap, &p->link) != 0)
            return false;
    }
    return true;
}

static bool make_gateways(struct cluster *c) {
    for (uint32_t i = 0; i < c->n_gateways; i++) {
        uint32_t from = c->plan->workers * i / c->n_gateways;
        uint32_t to = c->plan->workers * (i + 1) / c->n_gateways;
        struct sim_gateway_config g = {.plan = c->plan,
                                       .trace = c->trace,
                                       .meter = c->meter,
                                       .core = &c->core,
                                       .first_node = from,
                                       .n_nodes = to - from,
                                       .send = on_send,
                                       .ctx = c};
        c->gateways[i] = sim_gateway_create(&g);
        if (c->gateways[i] == NULL)
            return false;
        for (uint32_t k = from; k < to; k++)
            c->places[k].gateway = i;
        sim_gateway_join(c->gateways[i]);
    }
    return true;
}

static bool make(struct cluster *c) {
    const struct sim_plan *p = c->plan;
    sim_hardware_core(p->hardware, &p->classes, sim_trace_has_prefixes(c->trace), &c->core);
    c->core.pool.max_accounts = c->trace->n_tenants;
    c->merge = c->trace->n_tenants == 1;
    c->n_gateways = (p->workers + GATEWAY_WORKERS_MAX - 1) / GATEWAY_WORKERS_MAX;
    c->places = mem_array(p->workers, sizeof(*c->places));
    c->gateways = mem_array(c->n_gateways, sizeof(struct sim_gateway *));
    c->ids = mem_array(sim_trace_longest(c->trace), sizeof(*c->ids));
    if (c->places == NULL || c->gateways == NULL || c->ids == NULL ||
        heap_init(&c->heap, p->workers, place_before, NULL) != 0)
        return false;
    return make_nodes(c) && make_gateways(c);
}

static void unmake(struct cluster *c) {
    for (uint32_t i = 0; c->places != NULL && i < c->plan->workers; i++)
        sim_node_destroy(&c->places[i].node);
    for (uint32_t i = 0; c->gateways != NULL && i < c->n_gateways; i++)
        sim_gateway_destroy(&c->gateways[i]);
    heap_deinit(&c->heap);
    mem_free(c->places);
    mem_free(c->gateways);
    mem_free(c->ids);
    sim_mail_free(&c->mail);
    sim_wire_free(&c->wires);
}

static void add_node(struct sim_totals *t, const struct sim_node_stats *s) {
    uint64_t busy = s->device.rank_ns[0] + s->device.rank_ns[1];
    t->busy_ns[0] += s->device.rank_ns[0];
    t->busy_ns[1] += s->device.rank_ns[1];
    if (busy > t->busiest_ns)
        t->busiest_ns = busy;
    if (busy < t->laziest_ns)
        t->laziest_ns = busy;
    t->positions += s->device.positions;
    t->steps += s->device.steps;
    t->preemptions += s->core.preemptions;
    t->parks += s->core.parks;
    t->drops += s->core.drops;
    t->copies += s->device.copies;
    t->cache_hits += s->core.pool.hits;
    t->cache_misses += s->core.pool.misses;
    for (uint32_t k = 0; k < CLASSES_MAX; k++) {
        t->recomputed += s->core.account[k].recomputed;
        t->dropped += s->core.account[k].dropped;
    }
    t->events += s->events;
    t->runs += s->runs;
    t->run_steps += s->run_steps;
}

static void add_up(const struct cluster *c, struct sim_totals *t) {
    memset(t, 0, sizeof(*t));
    t->laziest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < c->plan->workers; i++) {
        struct sim_node_stats s;
        sim_node_stats(c->places[i].node, &s);
        add_node(t, &s);
    }
    for (uint32_t i = 0; i < c->n_gateways; i++)
        t->resubmits += sim_gateway_resubmits(c->gateways[i]);
    for (uint32_t k = 0; k < c->plan->classes.n; k++)
        if (c->meter->by_class[k].last_ns > t->end_ns)
            t->end_ns = c->meter->by_class[k].last_ns;
}

static const char *drive(struct cluster *c) {
    const char *bad = NULL;
    for (uint64_t n = 1; bad == NULL && one_event(c); n++)
        if (c->mail.bad || c->wires.bad || (c->plan->check && n % CHECK_EVERY == 0))
            bad = check(c);
    return bad != NULL ? bad : check(c);
}

int sim_cluster_run(const struct sim_plan *plan, const struct sim_trace *t, struct sim_meter *m,
                    struct sim_totals *out, struct err *e) {
    struct cluster c = {.plan = plan, .trace = t, .meter = m};
    int rc = 0;
    assert(plan->workers >= 1 && plan->workers <= SIM_WORKERS_MAX && plan->net_ns >= SIM_NET_MIN_NS);
    m->live = &plan->hardware->live;
    m->seed = plan->seed;
    m->known_ns = 2 * plan->net_ns; /* there and back */
    memcpy(m->deadline_ns, plan->deadline_ns, sizeof(m->deadline_ns));
    if (!make(&c)) {
        rc = err_set(e, ERR_NO_MEMORY, "out of memory for %u workers", plan->workers);
    } else {
        const char *bad = drive(&c);
        if (bad != NULL)
            rc = err_set(e, ERR_INTERNAL, "the simulator broke a rule: %s", bad);
        sim_meter_end(m);
        add_up(&c, out);
    }
    unmake(&c);
    return rc;
}
