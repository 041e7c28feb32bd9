/* The shell of the virtual worker: slots, ids, and the way of events and actions between core and
 * device. */
#include "cli/sim_worker.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

#define GATEWAY 0x51a11ce5u

struct sim_slot {
    bool used, started;
    uint8_t cls, rank;
    uint64_t request, seed;
    uint32_t n_prompt, n_tokens, end, high; /* end: n_tokens at which the model stops by itself */
    struct sim_chain chain;                 /* over all known ids */
};

struct sim_worker {
    struct sim_worker_config cfg;
    void *region;
    struct worker_core *core;
    struct sim_device *device;
    struct sim_slot *slots;
    int32_t *ids; /* n_ctx a slot */
    uint32_t *free_slots;
    uint32_t n_free;
    uint64_t *acks; /* finished requests whose ACK is due */
    uint32_t n_acks, max_acks;
    struct worker_action *actions;
    struct worker_token *tokens;
    struct sim_input *inputs;
    uint64_t now_ns, events, useful[2], prompt_positions, wrong;
    const char *bad;
};

static void *new_region(size_t bytes)
{
    void *p = bytes == 0 ? NULL : mem_zalloc(bytes);
    assert(((uintptr_t)p & 63u) == 0);
    return p;
}

static bool make_memory(struct sim_worker *w)
{
    const struct worker_core_config *c = &w->cfg.core;
    w->region = new_region(worker_core_bytes(c));
    w->slots = mem_array(c->max_slots, sizeof *w->slots);
    w->ids = mem_array((size_t)c->max_slots * c->n_ctx, sizeof *w->ids);
    w->free_slots = mem_array(c->max_slots, sizeof *w->free_slots);
    w->max_acks = 2 * c->max_slots + 8;
    w->acks = mem_array(w->max_acks, sizeof *w->acks);
    w->actions = mem_array(worker_core_actions_max(c), sizeof *w->actions);
    w->tokens = mem_array(c->max_spans, sizeof *w->tokens);
    w->inputs = mem_array(c->max_spans, sizeof *w->inputs);
    struct sim_device_config d = {.cost = w->cfg.cost,
                                  .n_segments = w->cfg.n_segments,
                                  .n_blocks = c->pool.n_blocks,
                                  .block_tokens = c->pool.block_tokens,
                                  .n_host = c->pool.n_host,
                                  .max_spans = c->max_spans,
                                  .max_seq_blocks = c->pool.max_seq_blocks,
                                  .corrupt_every = w->cfg.corrupt_every};
    w->device = sim_device_create(&d);
    return w->region != NULL && w->slots != NULL && w->ids != NULL && w->free_slots != NULL &&
           w->acks != NULL && w->actions != NULL && w->tokens != NULL && w->inputs != NULL &&
           w->device != NULL;
}

static void blame(struct sim_worker *w, const char *what)
{
    if (w->bad == NULL) w->bad = what;
}

static void perform(struct sim_worker *w, const struct worker_action *a);

static void handle(struct sim_worker *w, const struct worker_event *ev)
{
    uint32_t n = worker_core_handle(w->core, ev, w->now_ns, w->actions);
    w->events++;
    if (w->cfg.sink.event != NULL) w->cfg.sink.event(w->cfg.sink.ctx, ev, w->now_ns, w->actions, n);
    for (uint32_t i = 0; i < n; i++) perform(w, &w->actions[i]);
    if (w->cfg.check_every == 0 || w->events % w->cfg.check_every != 0) return;
    const char *bad = worker_core_check(w->core);
    if (bad != NULL) blame(w, bad);
}

/* Finishes seen while actions were performed are acknowledged after them. */
static void send_acks(struct sim_worker *w)
{
    while (w->n_acks > 0) {
        struct worker_event ev = {.kind = WE_ACK};
        ev.sub = (struct sub_id){1, w->acks[--w->n_acks]};
        handle(w, &ev);
    }
}

struct sim_worker *sim_worker_create(const struct sim_worker_config *cfg)
{
    struct sim_worker *w = mem_zalloc(sizeof *w);
    if (w == NULL) return NULL;
    w->cfg = *cfg;
    if (!make_memory(w)) {
        sim_worker_destroy(&w);
        return NULL;
    }
    w->core = worker_core_init(w->region, &cfg->core);
    for (uint32_t i = cfg->core.max_slots; i > 0; i--) w->free_slots[w->n_free++] = i - 1;
    struct worker_event up = {.kind = WE_SESSION_UP, .gateway = GATEWAY};
    handle(w, &up);
    return w;
}

void sim_worker_destroy(struct sim_worker **wp)
{
    struct sim_worker *w = *wp;
    if (w == NULL) return;
    sim_device_destroy(&w->device);
    mem_free(w->region);
    mem_free(w->slots);
    mem_free(w->ids);
    mem_free(w->free_slots);
    mem_free(w->acks);
    mem_free(w->actions);
    mem_free(w->tokens);
    mem_free(w->inputs);
    mem_free(w);
    *wp = NULL;
}

static int32_t *slot_ids(const struct sim_worker *w, uint32_t slot)
{
    return w->ids + (size_t)slot * w->cfg.core.n_ctx;
}

static void perform_submit(struct sim_worker *w, const struct worker_plan *plan)
{
    if (plan->n_spans > w->cfg.core.max_spans) {
        blame(w, "a step with too many spans");
        return;
    }
    for (uint32_t i = 0; i < plan->n_spans; i++) {
        const struct worker_span *sp = &plan->spans[i];
        const struct sim_slot *s = &w->slots[sp->slot];
        if (!s->used || sp->pos + sp->n > s->n_tokens) blame(w, "a span computes unknown ids");
        w->inputs[i] = (struct sim_input){.ids = slot_ids(w, sp->slot), .seed = s->seed};
    }
    sim_device_submit(w->device, w->now_ns, plan, w->inputs);
    uint32_t positions;
    uint8_t rank;
    uint64_t ns = sim_device_running_ns(w->device, &positions, &rank);
    for (uint32_t i = 0; i < plan->n_spans; i++) {
        struct sim_slot *s = &w->slots[plan->spans[i].slot];
        if (s->started) continue;
        s->started = true;
        if (w->cfg.sink.started != NULL)
            w->cfg.sink.started(w->cfg.sink.ctx, s->request, w->now_ns, ns / w->cfg.n_segments);
    }
}

static void perform_tokens(struct sim_worker *w, const struct worker_action *a)
{
    struct sim_tokens t = {.request = a->sub.counter,
                           .from = a->from,
                           .to = a->to,
                           .finish = a->finish,
                           .now_ns = w->now_ns};
    if (a->slot != WORKER_SLOT_NONE) {
        const struct sim_slot *s = &w->slots[a->slot];
        if (!s->used || s->request != a->sub.counter || a->to > s->n_tokens)
            blame(w, "tokens are sent that were not made");
        t.cls = s->cls;
        t.n_prompt = s->n_prompt;
    }
    if (w->cfg.sink.tokens != NULL) w->cfg.sink.tokens(w->cfg.sink.ctx, &t);
    if (t.finish == FINISH_NONE || a->kind != WA_TOKENS) return;
    if (w->n_acks < w->max_acks)
        w->acks[w->n_acks++] = t.request;
    else
        blame(w, "more finishes at once than slots");
}

static void perform_free(struct sim_worker *w, uint32_t slot)
{
    if (!w->slots[slot].used) {
        blame(w, "a free slot is freed");
        return;
    }
    memset(&w->slots[slot], 0, sizeof w->slots[slot]);
    w->free_slots[w->n_free++] = slot;
}

static void perform(struct sim_worker *w, const struct worker_action *a)
{
    switch (a->kind) {
    case WA_STEP_SUBMIT: perform_submit(w, &a->plan); break;
    case WA_STEP_PARK: sim_device_park(w->device, w->now_ns, a->step); break;
    case WA_STEP_CONTINUE: sim_device_continue(w->device, w->now_ns, a->step); break;
    case WA_SPAN_DROP: sim_device_drop(w->device, w->now_ns, a->step, a->span); break;
    case WA_STEP_RELEASE: sim_device_release(w->device, a->step); break;
    case WA_COPY: sim_device_copy(w->device, w->now_ns, a); break;
    case WA_TOKENS:
    case WA_FINISH: perform_tokens(w, a); break;
    case WA_FREE: perform_free(w, a->slot); break;
    case WA_SYNC:
    case WA_EXIT: break;
    }
}

int sim_worker_submit(struct sim_worker *w, const struct sim_request *r)
{
    assert(r->id > 0 && r->n_prompt > 0 && r->n_out > 0 && r->n_out <= r->max_out);
    assert(r->n_prompt + r->n_out <= w->cfg.core.n_ctx);
    if (w->n_free == 0) return -1;
    uint32_t slot = w->free_slots[--w->n_free];
    struct sim_slot *s = &w->slots[slot];
    *s = (struct sim_slot){.used = true, .cls = r->cls, .request = r->id, .seed = r->seed};
    s->rank = w->cfg.core.classes.rows[r->cls].rank != 0;
    s->n_prompt = s->n_tokens = r->n_prompt;
    s->end = r->n_out < r->max_out ? r->n_prompt + r->n_out : UINT32_MAX;
    int32_t *ids = slot_ids(w, slot);
    memcpy(ids, r->ids, r->n_prompt * sizeof *ids);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        sim_chain_add(&s->chain, ids[i], w->cfg.core.pool.block_tokens);
    struct worker_event ev = {.kind = WE_SUBMIT, .sub = {1, r->id}};
    ev.submit.slot = slot;
    ev.submit.n_prompt = ev.submit.n_tokens = ev.submit.from = r->n_prompt;
    ev.submit.max_total = r->n_prompt + r->max_out;
    ev.submit.cls = r->cls;
    ev.submit.tag = r->tag;
    ev.submit.ids = ids;
    ev.submit.root = r->root;
    ev.submit.ttft_ms = r->ttft_ms;
    ev.submit.tpot_ms = r->tpot_ms;
    handle(w, &ev);
    send_acks(w);
    return 0;
}

void sim_worker_cancel(struct sim_worker *w, uint64_t request)
{
    struct worker_event ev = {.kind = WE_CANCEL, .sub = {1, request}};
    handle(w, &ev);
    send_acks(w);
}

static void take_result(struct sim_worker *w, const struct sim_result *r, struct worker_token *t)
{
    struct sim_slot *s = &w->slots[r->slot];
    *t = (struct worker_token){.slot = r->slot, .made = r->sampled, .id = r->id};
    uint32_t to = r->pos + r->n;
    if (to > s->high) {
        w->useful[s->rank] += to - (r->pos > s->high ? r->pos : s->high);
        s->high = to;
    }
    if (r->pos < s->n_prompt) w->prompt_positions += (to < s->n_prompt ? to : s->n_prompt) - r->pos;
    if (!r->sampled) return;
    w->wrong += r->id != sim_chain_next(&s->chain, s->seed);
    sim_chain_add(&s->chain, r->id, w->cfg.core.pool.block_tokens);
    slot_ids(w, r->slot)[s->n_tokens++] = r->id;
    if (s->n_tokens == s->end) t->finish = FINISH_EOS;
}

static void device_event(struct sim_worker *w, const struct sim_event *e)
{
    struct worker_event ev = sim_event_told(e);
    if (e->kind != SIM_COPY_END) {
        for (uint32_t i = 0; i < e->n_results && e->kind == SIM_STEP_END; i++)
            take_result(w, &e->results[i], &w->tokens[i]);
        ev.step.tokens = w->tokens;
        ev.step.n_tokens = e->n_results;
    }
    handle(w, &ev);
}

uint64_t sim_worker_now_ns(const struct sim_worker *w)
{
    return w->now_ns;
}

uint64_t sim_worker_next_ns(const struct sim_worker *w)
{
    uint64_t device = sim_device_next_ns(w->device);
    uint64_t tick = worker_core_next_tick_ns(w->core, w->now_ns);
    uint64_t at = device < tick ? device : tick;
    return at < w->now_ns ? w->now_ns : at;
}

bool sim_worker_step(struct sim_worker *w, uint64_t until_ns)
{
    struct sim_event e;
    uint64_t device = sim_device_next_ns(w->device);
    uint64_t tick = worker_core_next_tick_ns(w->core, w->now_ns);
    if (device > until_ns && tick > until_ns) {
        if (until_ns > w->now_ns && until_ns != SIM_NEVER) w->now_ns = until_ns;
        return false;
    }
    if (device <= tick) {
        if (device > w->now_ns) w->now_ns = device;
        bool due = sim_device_take(w->device, w->now_ns, &e);
        assert(due);
        (void)due;
        device_event(w, &e);
    } else {
        struct worker_event ev = {.kind = WE_TICK};
        if (tick > w->now_ns) w->now_ns = tick;
        handle(w, &ev);
    }
    send_acks(w);
    return true;
}

void sim_worker_run_until(struct sim_worker *w, uint64_t until_ns)
{
    while (sim_worker_step(w, until_ns)) {
    }
}

void sim_worker_stats(const struct sim_worker *w, struct sim_worker_stats *out)
{
    memset(out, 0, sizeof *out);
    worker_core_stats(w->core, &out->core);
    sim_device_stats(w->device, &out->device);
    out->events = w->events;
    out->useful[0] = w->useful[0];
    out->useful[1] = w->useful[1];
    out->prompt_positions = w->prompt_positions;
    out->wrong = w->wrong;
    out->free_slots = w->n_free;
}

const struct worker_core *sim_worker_core(const struct sim_worker *w)
{
    return w->core;
}

const struct sim_device *sim_worker_device(const struct sim_worker *w)
{
    return w->device;
}

const char *sim_worker_bad(const struct sim_worker *w)
{
    const char *device = sim_device_bad(w->device);
    return w->bad != NULL ? w->bad : device;
}
