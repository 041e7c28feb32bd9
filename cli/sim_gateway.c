/* sim_gateway.c - see sim_gateway.h. */
#include "cli/sim_gateway.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

#define NO_WORKER_NS 5000000000ull

struct sim_gateway {
    struct sim_gateway_config cfg;
    void *region;
    struct gateway_core *core;
    uint32_t max_slots, n_free, n_ended;
    uint32_t *requests, *free_slots; /* by slot; a stack */
    uint32_t *ended;                 /* DONE slots that this event left, to be released */
    struct gateway_action *actions;
    uint64_t now_ns, tick_ns, *status_numbers;
    int32_t *ids;                    /* of the row at hand */
};

static struct gateway_core_config core_config(const struct sim_gateway_config *cfg) {
    struct gateway_core_config k = {.max_slots = cfg->plan->queue,
                                    .max_workers = cfg->n_nodes,
                                    .classes = cfg->plan->classes,
                                    .incarnation = 1,
                                    .no_worker_ns = NO_WORKER_NS,
                                    .lost_ns = NO_WORKER_NS,
                                    .max_tenants = cfg->trace->n_tenants,
                                    .out_weight = cfg->core->out_weight,
                                    .route_entries = cfg->plan->by_load ? 0 : 65536};
    return k;
}

struct sim_gateway *sim_gateway_create(const struct sim_gateway_config *cfg) {
    struct sim_gateway *g = mem_zalloc(sizeof(*g));
    if (g == NULL)
        return NULL;
    struct gateway_core_config k = core_config(cfg);
    size_t bytes = gateway_core_bytes(&k);
    assert(bytes != 0 && cfg->n_nodes > 0);
    g->cfg = *cfg;
    g->max_slots = k.max_slots;
    g->region = mem_zalloc(bytes);
    g->requests = mem_array(k.max_slots, sizeof(*g->requests));
    g->free_slots = mem_array(k.max_slots, sizeof(*g->free_slots));
    g->ended = mem_array(k.max_slots, sizeof(*g->ended));
    g->actions = mem_alloc(gateway_core_actions_max(&k) * sizeof(*g->actions));
    g->status_numbers = mem_array(cfg->n_nodes, sizeof(*g->status_numbers));
    g->ids = mem_array(sim_trace_longest(cfg->trace) + 1, sizeof(*g->ids));
    if (g->region == NULL || g->requests == NULL || g->free_slots == NULL || g->ended == NULL ||
        g->actions == NULL || g->status_numbers == NULL || g->ids == NULL) {
        sim_gateway_destroy(&g);
        return NULL;
    }
    g->core = gateway_core_init(g->region, &k);
    for (uint32_t i = k.max_slots; i > 0; i--)
        g->free_slots[g->n_free++] = i - 1;
    return g;
}

void sim_gateway_destroy(struct sim_gateway **gp) {
    struct sim_gateway *g = *gp;
    if (g == NULL)
        return;
    mem_free(g->region);
    mem_free(g->requests);
    mem_free(g->free_slots);
    mem_free(g->ended);
    mem_free(g->actions);
    mem_free(g->status_numbers);
    mem_free(g->ids);
    mem_free(g);
    *gp = NULL;
}

/* A tenant's prefixes are its own. */
static struct hash128 root_of(uint32_t tenant) {
    return (struct hash128){rand_at(0x700713u, tenant) | 1u, rand_at(0x700714u, tenant)};
}

static void send_submit(struct sim_gateway *g, const struct gateway_action *a) {
    const struct sim_trace_row *r = &g->cfg.trace->rows[g->requests[a->slot]];
    struct sim_wire w = {.kind = SIM_WIRE_SUBMIT, .node = g->cfg.first_node + a->worker};
    w.r.sub = a->sub;
    w.r.request = g->requests[a->slot];
    w.r.cls = r->cls;
    w.r.tag = a->tag;
    w.r.account = r->tenant;
    w.r.n_prompt = r->n_prompt;
    w.r.max_total = a->max_total;
    w.r.n_known = a->from;
    if (r->block_tokens != 0)
        w.r.root = root_of(r->tenant);
    g->cfg.send(g->cfg.ctx, &w);
}

static void send_word(struct sim_gateway *g, enum sim_wire_kind kind, const struct gateway_action *a) {
    struct sim_wire w = {.kind = kind, .node = g->cfg.first_node + a->worker};
    w.r.sub = a->sub;
    g->cfg.send(g->cfg.ctx, &w);
}

static void slot_free(struct sim_gateway *g, uint32_t slot) {
    g->free_slots[g->n_free++] = slot;
}

static void deliver(struct sim_gateway *g, const struct gateway_action *a, uint32_t n_out) {
    if (a->finish == FINISH_NONE)
        return;
    sim_meter_done(g->cfg.meter, g->requests[a->slot], n_out, g->now_ns);
    g->ended[g->n_ended++] = a->slot;
}

/* to: the index behind the tokens at hand. */
static void perform(struct sim_gateway *g, const struct gateway_action *a, uint32_t to) {
    switch (a->kind) {
    case GA_SUBMIT: send_submit(g, a); break;
    case GA_ACK: send_word(g, SIM_WIRE_ACK, a); break;
    case GA_CANCEL: send_word(g, SIM_WIRE_CANCEL, a); break;
    case GA_DELIVER:
        deliver(g, a, to - g->cfg.trace->rows[g->requests[a->slot]].n_prompt);
        break;
    case GA_FAIL:
        sim_meter_failed(g->cfg.meter, g->requests[a->slot]);
        slot_free(g, a->slot);
        break;
    default: break; /* HELLO_REPLY; and GAP, RESTART, DRAINED, which nothing here causes */
    }
}

static void handle(struct sim_gateway *g, const struct gateway_event *ev, uint64_t now_ns) {
    g->now_ns = now_ns;
    uint32_t n = gateway_core_handle(g->core, ev, now_ns, g->actions);
    for (uint32_t i = 0; i < n; i++)
        perform(g, &g->actions[i], ev->tokens.index + ev->tokens.n);
    while (g->n_ended > 0) {
        uint32_t slot = g->ended[--g->n_ended];
        struct gateway_event release = {.kind = GE_RELEASE, .slot = slot};
        slot_free(g, slot);
        n = gateway_core_handle(g->core, &release, now_ns, g->actions);
        for (uint32_t i = 0; i < n; i++)
            perform(g, &g->actions[i], 0);
    }
    g->tick_ns = gateway_core_next_tick_ns(g->core, now_ns);
}

static void tell_tenants(struct sim_gateway *g) {
    for (uint32_t i = 0; i < g->cfg.trace->n_tenants; i++) {
        struct gateway_event ev = {.kind = GE_TENANT};
        uint32_t weight = g->cfg.plan->weights[i];
        ev.tenant.index = i;
        ev.tenant.weight_permille = weight != 0 ? weight : 1000;
        handle(g, &ev, 0);
    }
}

void sim_gateway_join(struct sim_gateway *g) {
    const struct worker_core_config *c = g->cfg.core;
    tell_tenants(g);
    for (uint32_t i = 0; i < g->cfg.n_nodes; i++) {
        struct gateway_event hello = {.kind = GE_HELLO, .worker = i};
        hello.hello.name = rand_at(0x5105, g->cfg.first_node + i) | 1u;
        hello.hello.incarnation = i + 1;
        hello.hello.version_min = hello.hello.version_max = 1;
        hello.hello.numerics = (struct hash128){1, 1};
        hello.hello.n_ctx = c->n_ctx;
        hello.hello.block_tokens = c->pool.block_tokens;
        hello.hello.n_blocks = c->pool.n_blocks;
        hello.hello.max_seqs = c->max_seqs;
        hello.hello.max_slots = c->max_slots;
        handle(g, &hello, 0);
        struct gateway_event sync = {.kind = GE_SYNC, .worker = i};
        handle(g, &sync, 0);
    }
}

void sim_gateway_arrive(struct sim_gateway *g, uint32_t request, uint64_t now_ns) {
    const struct sim_trace_row *r = &g->cfg.trace->rows[request];
    if (g->n_free == 0 || !gateway_core_room(g->core, r->tenant)) { /* the queue is full */
        sim_meter_failed(g->cfg.meter, request);
        return;
    }
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = g->free_slots[--g->n_free]};
    g->requests[ev.slot] = request;
    ev.arrived.cls = r->cls;
    ev.arrived.tag = request;
    ev.arrived.tenant = r->tenant;
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = r->n_prompt;
    ev.arrived.max_total = r->n_prompt + r->n_out;
    if (r->block_tokens != 0) {
        sim_trace_ids(g->cfg.trace, r, g->ids);
        route_keys_make(&ev.arrived.route, root_of(r->tenant).lo, g->ids, r->n_prompt);
    }
    handle(g, &ev, now_ns);
}

void sim_gateway_tokens(struct sim_gateway *g, const struct sim_node_tokens *t, uint64_t now_ns) {
    struct gateway_event ev = {.kind = GE_TOKENS, .worker = t->node - g->cfg.first_node};
    ev.sub = t->sub;
    ev.tokens.index = t->from;
    ev.tokens.n = t->to - t->from;
    ev.tokens.finish = t->finish;
    ev.tokens.cached = t->cached;
    handle(g, &ev, now_ns);
}

void sim_gateway_status(struct sim_gateway *g, uint32_t node, const struct sim_node_status *s,
                        uint64_t now_ns) {
    struct gateway_event ev = {.kind = GE_STATUS, .worker = node - g->cfg.first_node};
    ev.status.number = ++g->status_numbers[ev.worker];
    memcpy(ev.status.window, s->window, sizeof(ev.status.window));
    ev.status.free_blocks = s->free_blocks;
    handle(g, &ev, now_ns);
}

uint64_t sim_gateway_next_tick_ns(const struct sim_gateway *g) {
    return g->tick_ns;
}

void sim_gateway_tick(struct sim_gateway *g, uint64_t now_ns) {
    struct gateway_event ev = {.kind = GE_TICK};
    handle(g, &ev, now_ns);
}

uint32_t sim_gateway_unfinished(const struct sim_gateway *g) {
    return g->max_slots - g->n_free;
}

uint64_t sim_gateway_resubmits(const struct sim_gateway *g) {
    struct gateway_stats s;
    gateway_core_stats(g->core, &s);
    return s.resubmits;
}

const char *sim_gateway_check(const struct sim_gateway *g) {
    return gateway_core_check(g->core);
}
