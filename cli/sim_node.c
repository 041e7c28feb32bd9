/* sim_node.c - see sim_node.h. */
#include "cli/sim_node.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

#define GATEWAY 0x51a11ce5u
#define RUN_MAX 1024  /* steps looked ahead; a longer run is taken in parts */
#define RUN_CACHED 16 /* with a prefix cache, whose ids are made for each */

struct node_slot {
    bool used, first_made;
    struct sub_id sub;
    uint32_t request, n_tokens, cached;
    uint64_t last_ns; /* of its last token */
};

struct sim_node {
    struct sim_node_config cfg;
    void *region;
    struct worker_core *core;
    struct sim_device *device;
    struct node_slot *slots;
    uint32_t *free_slots, n_free;
    struct worker_action *actions;
    struct worker_token *tokens;
    uint64_t now_ns, events, runs, run_steps;
    bool changed, run_known;
    uint32_t run_n, run_spans;        /* steps that may be taken, 0 = none */
    uint64_t run_ns[RUN_MAX + 1];     /* of each, and of the one behind them */
    uint64_t run_end_ns, run_next_ns; /* of the first; of the one behind them all */
    struct sim_shape run_shape;       /* of the first */
    uint32_t *run_slots;              /* of its spans */
    int32_t *run_ids;
    const char *bad;
};

static bool make_memory(struct sim_node *n) {
    const struct worker_core_config *c = &n->cfg.core;
    struct sim_device_config d = {.n_segments = n->cfg.n_segments,
                                  .n_blocks = c->pool.n_blocks,
                                  .block_tokens = c->pool.block_tokens,
                                  .n_host = c->pool.n_host,
                                  .max_spans = c->max_spans,
                                  .max_seq_blocks = c->pool.max_seq_blocks,
                                  .model = n->cfg.model,
                                  .live = n->cfg.live,
                                  .seed = n->cfg.seed + n->cfg.index};
    d.cost.copy_ns = n->cfg.copy_ns;
    n->region = mem_zalloc(worker_core_bytes(c));
    n->slots = mem_array(c->max_slots, sizeof(*n->slots));
    n->free_slots = mem_array(c->max_slots, sizeof(*n->free_slots));
    n->actions = mem_array(worker_core_actions_max(c), sizeof(*n->actions));
    n->tokens = mem_array(c->max_spans, sizeof(*n->tokens));
    n->run_slots = mem_array(c->max_spans, sizeof(*n->run_slots));
    n->run_ids = mem_array((size_t)c->max_spans * RUN_CACHED, sizeof(*n->run_ids));
    n->device = sim_device_create(&d);
    return n->region != NULL && n->slots != NULL && n->free_slots != NULL && n->actions != NULL &&
           n->tokens != NULL && n->run_slots != NULL && n->run_ids != NULL && n->device != NULL;
}

static void blame(struct sim_node *n, const char *what) {
    if (n->bad == NULL)
        n->bad = what;
}

static void perform(struct sim_node *n, const struct worker_action *a);

static void handle(struct sim_node *n, const struct worker_event *ev) {
    uint32_t k = worker_core_handle(n->core, ev, n->now_ns, n->actions);
    n->events++;
    n->run_known = false;
    for (uint32_t i = 0; i < k; i++)
        perform(n, &n->actions[i]);
    if (n->cfg.check_every == 0 || n->events % n->cfg.check_every != 0)
        return;
    const char *bad = worker_core_check(n->core);
    if (bad != NULL)
        blame(n, bad);
}

struct sim_node *sim_node_create(const struct sim_node_config *cfg) {
    struct sim_node *n = mem_zalloc(sizeof(*n));
    if (n == NULL)
        return NULL;
    n->cfg = *cfg;
    assert(worker_core_bytes(&cfg->core) != 0 && cfg->model != NULL && cfg->meter != NULL);
    if (!make_memory(n)) {
        sim_node_destroy(&n);
        return NULL;
    }
    n->core = worker_core_init(n->region, &cfg->core);
    for (uint32_t i = cfg->core.max_slots; i > 0; i--)
        n->free_slots[n->n_free++] = i - 1;
    struct worker_event up = {.kind = WE_SESSION_UP, .gateway = GATEWAY};
    handle(n, &up);
    return n;
}

void sim_node_destroy(struct sim_node **np) {
    struct sim_node *n = *np;
    if (n == NULL)
        return;
    sim_device_destroy(&n->device);
    mem_free(n->region);
    mem_free(n->slots);
    mem_free(n->free_slots);
    mem_free(n->actions);
    mem_free(n->tokens);
    mem_free(n->run_slots);
    mem_free(n->run_ids);
    mem_free(n);
    *np = NULL;
}

static void perform_submit(struct sim_node *n, const struct worker_plan *plan) {
    sim_device_submit(n->device, n->now_ns, plan, NULL);
    n->run_spans = plan->n_spans;
    for (uint32_t i = 0; i < plan->n_spans; i++) {
        const struct node_slot *s = &n->slots[plan->spans[i].slot];
        if (!s->used || plan->spans[i].pos + plan->spans[i].n > s->n_tokens)
            blame(n, "a span computes unknown ids");
        n->run_slots[i] = plan->spans[i].slot;
    }
}

static void perform_tokens(struct sim_node *n, const struct worker_action *a) {
    struct sim_node_tokens t = {.node = n->cfg.index,
                                .sub = a->sub,
                                .from = a->from,
                                .to = a->to,
                                .cached = a->cached,
                                .finish = a->finish,
                                .now_ns = n->now_ns};
    n->changed |= a->finish != FINISH_NONE;
    if (a->slot != WORKER_SLOT_NONE)
        n->slots[a->slot].cached = a->cached;
    n->cfg.tokens(n->cfg.ctx, &t);
}

static void perform_free(struct sim_node *n, uint32_t slot) {
    if (!n->slots[slot].used)
        blame(n, "a free slot is freed");
    memset(&n->slots[slot], 0, sizeof(n->slots[slot]));
    n->free_slots[n->n_free++] = slot;
}

static void perform(struct sim_node *n, const struct worker_action *a) {
    switch (a->kind) {
    case WA_STEP_SUBMIT: perform_submit(n, &a->plan); break;
    case WA_STEP_PARK: sim_device_park(n->device, n->now_ns, a->step); break;
    case WA_STEP_CONTINUE: sim_device_continue(n->device, n->now_ns, a->step); break;
    case WA_SPAN_DROP: sim_device_drop(n->device, n->now_ns, a->step, a->span); break;
    case WA_STEP_RELEASE: sim_device_release(n->device, a->step); break;
    case WA_COPY: sim_device_copy(n->device, n->now_ns, a); break;
    case WA_TOKENS:
    case WA_FINISH: perform_tokens(n, a); break;
    case WA_FREE: perform_free(n, a->slot); break;
    case WA_SYNC: /* nothing is ever lost here */
    case WA_EXIT: break;
    }
}

void sim_node_submit(struct sim_node *n, const struct sim_node_request *r) {
    struct worker_event ev = {.kind = WE_SUBMIT, .sub = r->sub};
    uint32_t slot = n->n_free > 0 ? n->free_slots[--n->n_free] : WORKER_SLOT_NONE;
    if (slot != WORKER_SLOT_NONE)
        n->slots[slot] = (struct node_slot){.used = true,
                                            .sub = r->sub,
                                            .request = r->request,
                                            .n_tokens = r->n_known,
                                            .first_made = r->n_known > r->n_prompt};
    ev.submit.slot = slot;
    ev.submit.n_prompt = r->n_prompt;
    ev.submit.n_tokens = ev.submit.from = r->n_known;
    ev.submit.max_total = r->max_total;
    ev.submit.cls = r->cls;
    ev.submit.tag = r->tag;
    ev.submit.ids = r->ids;
    ev.submit.root = r->root;
    ev.submit.account = r->account;
    n->changed = true;
    handle(n, &ev);
}

void sim_node_ack(struct sim_node *n, struct sub_id sub) {
    struct worker_event ev = {.kind = WE_ACK, .sub = sub};
    handle(n, &ev);
}

void sim_node_cancel(struct sim_node *n, struct sub_id sub) {
    struct worker_event ev = {.kind = WE_CANCEL, .sub = sub};
    n->changed = true;
    handle(n, &ev);
}

/* Output ids are the shell's to make up; all that matters is that they are nobody else's. */
static int32_t output_id(const struct node_slot *s, uint32_t index) {
    return (int32_t)(rand_at((uint64_t)s->request + 0x0ddba11u, index) % SIM_VOCAB);
}

static void take_result(struct sim_node *n, const struct sim_result *r, struct worker_token *t) {
    struct node_slot *s = &n->slots[r->slot];
    *t = (struct worker_token){.slot = r->slot, .made = r->sampled};
    if (!r->sampled)
        return;
    uint64_t gap = n->now_ns - s->last_ns;
    t->id = n->cfg.core.pool.prefix_cache ? output_id(s, s->n_tokens) : 0;
    if (!s->first_made)
        sim_meter_first(n->cfg.meter, s->request, n->now_ns + n->cfg.net_ns);
    else if (s->last_ns != 0)
        sim_meter_gap(n->cfg.meter, s->request, sim_hist_bucket(gap), gap);
    s->first_made = true;
    s->last_ns = n->now_ns;
    s->n_tokens++;
}

static void device_event(struct sim_node *n, const struct sim_event *e) {
    struct worker_event ev = sim_event_told(e);
    if (e->kind != SIM_COPY_END) {
        for (uint32_t i = 0; i < e->n_results && e->kind == SIM_STEP_END; i++)
            take_result(n, &e->results[i], &n->tokens[i]);
        ev.step.tokens = n->tokens;
        ev.step.n_tokens = e->n_results;
    }
    handle(n, &ev);
}

/* Looks how far the running step goes on by itself, up to the next tick. */
static void find_run(struct sim_node *n, uint64_t tick) {
    n->run_known = true;
    n->run_n = 0;
    uint32_t most = worker_core_run_limit(n->core);
    if (most == 0 || !sim_device_run_begin(n->device, &n->run_shape, &n->run_end_ns))
        return;
    if (n->cfg.core.pool.prefix_cache && most > RUN_CACHED)
        most = RUN_CACHED;
    if (most > RUN_MAX)
        most = RUN_MAX;
    struct sim_shape shape = n->run_shape;
    uint64_t end = n->run_end_ns;
    uint32_t k = 0;
    for (;; k++) { /* run_ns[k]: of the step behind k ends; end: its own */
        n->run_ns[k] = sim_model_ns(n->cfg.model, &shape);
        end += k > 0 ? n->run_ns[k] : 0;
        if (k == most || end > tick)
            break;
        sim_shape_next(&shape);
    }
    n->run_n = k;
    n->run_next_ns = end;
}

uint64_t sim_node_next_ns(struct sim_node *n) {
    uint64_t tick = worker_core_next_tick_ns(n->core, n->now_ns);
    if (n->cfg.runs && !n->run_known)
        find_run(n, tick);
    uint64_t at = n->run_n > 0 ? n->run_next_ns : sim_device_next_ns(n->device);
    return at < tick ? at : tick;
}

/* Tokens of k ends: the first gap is each sequence's own, the others are the steps' times. */
static void meter_run(struct sim_node *n, uint32_t k) {
    uint64_t last = n->run_end_ns;
    for (uint32_t i = 0; i < n->run_spans; i++) {
        struct node_slot *s = &n->slots[n->run_slots[i]];
        uint64_t gap = n->run_end_ns - s->last_ns;
        if (s->last_ns != 0)
            sim_meter_gap(n->cfg.meter, s->request, sim_hist_bucket(gap), gap);
    }
    for (uint32_t j = 1; j < k; j++) {
        uint64_t gap = n->run_ns[j];
        uint32_t bucket = sim_hist_bucket(gap);
        last += gap;
        for (uint32_t i = 0; i < n->run_spans; i++)
            sim_meter_gap(n->cfg.meter, n->slots[n->run_slots[i]].request, bucket, gap);
    }
    for (uint32_t i = 0; i < n->run_spans; i++)
        n->slots[n->run_slots[i]].last_ns = last;
}

/* What stepping would have sent. */
static void send_run(struct sim_node *n, uint32_t k) {
    uint64_t at = n->run_end_ns;
    for (uint32_t j = 0; j < k; j++) {
        at += j > 0 ? n->run_ns[j] : 0;
        for (uint32_t i = 0; i < n->run_spans; i++) {
            const struct node_slot *s = &n->slots[n->run_slots[i]];
            uint32_t from = s->n_tokens + j;
            struct sim_node_tokens t = {n->cfg.index, s->sub, from, from + 1, s->cached, FINISH_NONE, at};
            n->cfg.tokens(n->cfg.ctx, &t);
        }
    }
}

/* The first k steps of the run have ended. */
static void take_run(struct sim_node *n, uint32_t k) {
    struct worker_run r = {.n = k, .device_ns = n->run_ns, .sent = !n->cfg.merge};
    uint64_t ns = n->run_ns[0], end = n->run_end_ns;
    for (uint32_t j = 0; j < k; j++)
        sim_shape_next(&n->run_shape);
    for (uint32_t j = 1; j < k; j++) {
        ns += n->run_ns[j];
        end += n->run_ns[j];
    }
    meter_run(n, k);
    if (!n->cfg.merge)
        send_run(n, k);
    for (uint32_t i = 0; i < n->run_spans; i++) {
        struct node_slot *s = &n->slots[n->run_slots[i]];
        for (uint32_t j = 0; n->cfg.core.pool.prefix_cache && j < k; j++)
            n->run_ids[i * k + j] = output_id(s, s->n_tokens + j);
        s->n_tokens += k;
    }
    if (n->cfg.core.pool.prefix_cache)
        r.ids = n->run_ids;
    n->now_ns = end;
    uint64_t step = worker_core_run(n->core, &r, end);
    sim_device_run(n->device, k, ns, end, step, &n->run_shape);
    n->runs++;
    n->run_steps += k;
    n->run_known = false;
    const char *bad = n->cfg.check_every != 0 ? worker_core_check(n->core) : NULL;
    if (bad != NULL)
        blame(n, bad);
}

/* How many ends of the run come by `until`. */
static uint32_t run_due(const struct sim_node *n, uint64_t until) {
    uint64_t end = n->run_end_ns;
    uint32_t k = 0;
    while (k < n->run_n && end <= until) {
        k++;
        end += n->run_ns[k];
    }
    return k;
}

void sim_node_advance(struct sim_node *n, uint64_t now_ns) {
    for (;;) {
        uint64_t tick = worker_core_next_tick_ns(n->core, n->now_ns);
        if (n->cfg.runs && !n->run_known)
            find_run(n, tick);
        uint32_t k = n->cfg.runs ? run_due(n, now_ns < tick ? now_ns : tick) : 0;
        if (k > 0) {
            take_run(n, k);
            continue;
        }
        uint64_t device = sim_device_next_ns(n->device);
        if (device > now_ns && tick > now_ns)
            break;
        if (device <= tick) {
            struct sim_event e;
            n->now_ns = device > n->now_ns ? device : n->now_ns;
            bool due = sim_device_take(n->device, n->now_ns, &e);
            assert(due);
            (void)due;
            device_event(n, &e);
        } else {
            struct worker_event ev = {.kind = WE_TICK};
            n->now_ns = tick > n->now_ns ? tick : n->now_ns;
            handle(n, &ev);
        }
    }
    if (now_ns > n->now_ns)
        n->now_ns = now_ns;
}

bool sim_node_run_due(const struct sim_node *n, uint64_t now_ns) {
    return n->run_known && n->run_n > 0 && n->run_end_ns <= now_ns;
}

bool sim_node_changed(struct sim_node *n) {
    bool was = n->changed;
    n->changed = false;
    return was;
}

void sim_node_stats(const struct sim_node *n, struct sim_node_stats *out) {
    memset(out, 0, sizeof(*out));
    worker_core_stats(n->core, &out->core);
    sim_device_stats(n->device, &out->device);
    out->events = n->events;
    out->runs = n->runs;
    out->run_steps = n->run_steps;
}

const char *sim_node_bad(const struct sim_node *n) {
    const char *device = sim_device_bad(n->device);
    return n->bad != NULL ? n->bad : device;
}
