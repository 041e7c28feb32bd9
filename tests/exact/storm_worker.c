#include "tests/exact/storm_worker.h"

#include "base/hash.h"
#include "base/mem.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#define CORE_SLOTS 256
#define MS 1000000ull

const char *const storm_kind_names[STORM_KINDS] = {"parks",      "drops",     "swaps", "recomputes",
                                                   "cache hits", "cancelled", "killed"};

const char *const storm_fault_names[STORM_FAULTS] = {"bits flipped on the host", "late copies",
                                                     "blocks of steps given away",
                                                     "sources of checkpoints given away"};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fill_core_config(struct storm *s)
{
    const struct engine_limits *l = engine_limits(s->engine);
    const struct storm_config *c = &s->cfg;
    s->core_cfg = (struct worker_core_config){
        .max_slots = CORE_SLOTS,
        .max_seqs = c->max_seqs,
        .max_spans = l->max_spans,
        .max_tokens = l->max_tokens,
        .max_rows = l->max_rows,
        .prefill_chunk = c->chunk,
        .n_ctx = l->n_ctx,
        .min_run = 1,
        .park_max_ns = 2000 * MS,
        .lost_realtime_ns = 2000 * MS,
        .lost_batch_ns = 30000 * MS,
        .finish_repeat_ns = 1000 * MS,
        .out_weight = 2,
        .copy_ns = 1000,
        .n_segments = l->n_segments,
        .max_refs = c->no_refs ? 0 : l->max_refs,
        .debug_preempt_every = c->preempt_every,
        .debug_park_every = c->park_every,
        .debug_drop_every = c->drop_every,
        .debug_pool_blocks = c->pool_blocks,
        .debug_resume = c->resume,
        .pool = {.n_blocks = l->n_blocks,
                 .block_tokens = l->block_tokens,
                 .max_seq_blocks = (l->n_ctx + l->block_tokens - 1) / l->block_tokens,
                 .n_host = l->host_slots,
                 .max_accounts = 4,
                 .prefix_cache = c->cache},
    };
    class_table_default(&s->core_cfg.classes);
}

static void feed(struct storm *s, const struct worker_event *ev);

void storm_open(struct storm *s, const struct storm_config *cfg)
{
    struct err e = {0};
    uint64_t counter = s->counter; /* submission ids are fresh over kills, too */
    *s = (struct storm){.cfg = *cfg, .counter = counter};
    struct engine_config ec = cfg->engine;
    ec.model = cfg->model;
    ec.n_blocks = (cfg->kv_tokens + 15) / 16 + 1;
    ec.max_spans = cfg->max_seqs;
    ec.max_tokens = cfg->max_seqs + cfg->chunk;
    ec.max_rows = cfg->max_seqs + 128;
    STORM_REQUIRE(engine_open(&s->engine, &ec, &e) == 0, e.msg);
    fill_core_config(s);
    s->core_bytes = worker_core_bytes(&s->core_cfg);
    STORM_REQUIRE((s->core_bytes) != (0), "");
    void *region = mem_map(s->core_bytes);
    STORM_REQUIRE((region) != NULL, "");
    s->core = worker_core_init(region, &s->core_cfg);
    STORM_REQUIRE((seq_store_init(&s->store, CORE_SLOTS)) == (0), "");
    STORM_REQUIRE((steps_init(&s->steps, s->engine, &s->store, cfg->model->vocab)) == (0), "");
    s->actions = mem_array(worker_core_actions_max(&s->core_cfg), sizeof *s->actions);
    s->by_slot = mem_zalloc(CORE_SLOTS * sizeof(struct storm_line *));
    STORM_REQUIRE(s->actions != NULL && s->by_slot != NULL, "");
    feed(s, &(struct worker_event){.kind = WE_SESSION_UP, .gateway = 1});
}

/* ---- actions ---- */

static void take_tokens(struct storm *s, const struct worker_action *a)
{
    struct storm_line *l = s->by_slot[a->slot];
    const struct seq *seq = seq_store_get(&s->store, a->slot);
    struct msg_top top[SAMPLE_TOP_MAX];
    if (l == NULL) return; /* cancelled meanwhile */
    for (uint32_t i = a->from; i < a->to; i++) {
        struct msg_record r;
        seq_record(seq, i, &r, top);
        STORM_REQUIRE(i <= l->n, "an id is missing");
        if (i < l->n) STORM_REQUIRE((l->ids[i]) == (r.id), "");
        l->ids[i] = r.id;
        l->logprobs[i] = r.logprob;
        l->n = i + 1 > l->n ? i + 1 : l->n;
    }
    if (a->finish == FINISH_NONE || l->done) return;
    l->finish = a->finish;
    l->visible = (uint32_t)seq->stop.visible;
    l->done = true;
    s->n_live--;
}

/* ---- injected faults ---- */

static bool chance(struct storm *s, uint32_t one_in)
{
    return s->cfg.inject != 0 && rand_at(s->cfg.inject, s->draws++) % one_in == 0;
}

static void give_away(struct storm *s, uint32_t block)
{
    kvpool_debug_free_early((struct kvpool *)(uintptr_t)worker_core_pool(s->core), block);
}

/* One fault a copy at most. */
static void inject_copy(struct storm *s, const struct worker_action *a)
{
    if (!chance(s, a->copy.to_host ? 32 : 4)) return;
    enum storm_fault f = a->copy.to_host ? STORM_STALE_COPY : chance(s, 2) ? STORM_FLIP : STORM_LATE_COPY;
    if (f == STORM_FLIP) {
        uint8_t *slot = engine_host_bytes(s->engine, a->copy.host);
        uint64_t bit = rand_at(s->cfg.inject, s->draws++) % (8 * engine_limits(s->engine)->block_bytes);
        slot[bit / 8] ^= (uint8_t)(1u << bit % 8);
    } else {
        give_away(s, a->copy.block);
    }
    s->faults.injected[f]++;
    for (int i = 0; i < ENGINE_COPIES_MAX; i++) {
        if (s->bad_copies[i] != 0) continue;
        s->bad_copies[i] = a->copy.id;
        return;
    }
}

static void inject_step(struct storm *s, const struct worker_plan *p)
{
    if (!chance(s, 24 + 2 * STORM_LEN_MAX / s->cfg.chunk)) return; /* or nobody would ever be done */
    s->freed_step = p->step;
    s->freed_span = (uint32_t)(rand_at(s->cfg.inject, s->draws++) % p->n_spans);
    const struct worker_span *sp = &p->spans[s->freed_span];
    give_away(s, sp->blocks[sp->n_blocks - 1]); /* the newest: nobody else's */
    s->faults.injected[STORM_FREE_STEP]++;
}

static void copy(struct storm *s, const struct worker_action *a)
{
    inject_copy(s, a); /* before the engine sees it: a flip is read, a block given away is noticed at the end */
    struct engine_copy c = {.id = a->copy.id,
                            .kind = a->copy.to_host ? ENGINE_COPY_BLOCK_TO_HOST
                                                    : ENGINE_COPY_HOST_TO_BLOCK,
                            .from = a->copy.to_host ? a->copy.block : a->copy.host,
                            .to = a->copy.to_host ? a->copy.host : a->copy.block,
                            .priority = a->copy.priority,
                            .after_step = a->copy.after_step};
    STORM_REQUIRE((engine_copy_submit(s->engine, &c)) == (0), "");
}

static void perform(struct storm *s, const struct worker_action *a)
{
    switch (a->kind) {
    case WA_STEP_SUBMIT:
        for (uint32_t i = 0; i < a->plan.n_spans; i++) {
            const struct worker_span *sp = &a->plan.spans[i];
            struct seq *seq = seq_store_get(&s->store, sp->slot);
            s->counts[STORM_HIT] += seq->computed == 0 && seq->preemptions == 0 && sp->pos > 0;
        }
        STORM_REQUIRE((steps_submit(&s->steps, &a->plan)) == (0), "");
        inject_step(s, &a->plan);
        break;
    case WA_STEP_PARK: engine_step_park(s->engine, a->step); break;
    case WA_STEP_CONTINUE: STORM_REQUIRE((engine_step_continue(s->engine, a->step)) == (0), ""); break;
    case WA_SPAN_DROP: steps_drop_span(&s->steps, a->step, a->span); break;
    case WA_STEP_RELEASE: steps_release(&s->steps, a->step); break;
    case WA_COPY: copy(s, a); break;
    case WA_TOKENS: take_tokens(s, a); break;
    case WA_FREE:
        s->by_slot[a->slot] = NULL;
        seq_store_free(&s->store, a->slot);
        break;
    case WA_FINISH:
    case WA_SYNC:
    case WA_EXIT: break;
    }
}

static void feed(struct storm *s, const struct worker_event *ev)
{
    uint32_t n = worker_core_handle(s->core, ev, now_ns(), s->actions);
    struct sub_id acks[CORE_SLOTS];
    uint32_t n_acks = 0;
    for (uint32_t i = 0; i < n; i++) {
        perform(s, &s->actions[i]);
        if (s->actions[i].kind == WA_TOKENS && s->actions[i].finish != FINISH_NONE)
            acks[n_acks++] = s->actions[i].sub;
    }
    const char *broken = s->cfg.audit ? worker_core_check(s->core) : NULL;
    STORM_REQUIRE(broken == NULL, broken);
    for (uint32_t i = 0; i < n_acks; i++)
        feed(s, &(struct worker_event){.kind = WE_ACK, .sub = acks[i]});
}

/* ---- lines ---- */

/* Eight kinds of sampling, among them everything that looks at more than the newest logits. */
static void sampling(const struct storm_line *l, struct msg_submit *m, struct msg_stop *stop)
{
    m->temperature = l->variant == 0 || l->variant == 7 ? 0.0f : 1.0f;
    m->logprobs = l->variant == 2 || l->variant == 5;
    if (l->variant == 3) m->top_p = 0.8f;
    if (l->variant == 4) {
        m->presence_penalty = 0.7f;
        m->frequency_penalty = 0.4f;
        m->repetition_penalty = 1.2f;
    }
    if (l->variant == 6) {
        *stop = (struct msg_stop){"the", 3};
        m->stops = stop;
        m->n_stops = 1;
        m->min_total = l->n_prompt + 9;
    }
    m->ignore_eos = l->variant != 6;
}

void storm_submit(struct storm *s, struct storm_line *l)
{
    struct msg_stop stop;
    l->sub = (struct sub_id){7, ++s->counter};
    struct msg_submit m = {.sub = l->sub,
                           .cls = l->cls,
                           .rank = l->cls != CLASS_REALTIME,
                           .tenant = "t",
                           .ids = l->ids,
                           .n_ids = l->n,
                           .n_prompt = l->n_prompt,
                           .from = l->from != 0 && l->n == l->n_prompt ? l->from : l->n,
                           .max_total = l->max_total,
                           .top_p = 1.0f,
                           .repetition_penalty = 1.0f,
                           .seed = l->seed,
                           .skip_special = true};
    sampling(l, &m, &stop);
    struct seq_limits limits = {.vocab = s->cfg.model->vocab,
                                .n_vocab = engine_limits(s->engine)->n_vocab,
                                .n_ctx = engine_limits(s->engine)->n_ctx,
                                .n_classes = s->core_cfg.classes.n};
    struct seq *seq = seq_create(&m, &limits);
    STORM_REQUIRE(seq != NULL && seq->refused == NULL, "");
    bool hits = m.from == l->n; /* prompt scores are computed, not found */
    struct worker_event ev = {.kind = WE_SUBMIT, .sub = l->sub};
    ev.submit.n_prompt = l->n_prompt;
    ev.submit.n_tokens = l->n;
    ev.submit.from = m.from;
    ev.submit.max_total = l->max_total;
    ev.submit.cls = l->cls;
    ev.submit.tag = s->counter;
    ev.submit.ids = seq->ids;
    ev.submit.account = l->tenant;
    ev.submit.host_choice = seq_host_choice(seq);
    if (hits && s->cfg.cache) ev.submit.root = prefix_root(&l->tenant, sizeof l->tenant, 99);
    ev.submit.slot = l->slot = seq_store_put(&s->store, &seq);
    STORM_REQUIRE((l->slot) != (WORKER_SLOT_NONE), "");
    s->by_slot[l->slot] = l;
    l->done = false;
    s->n_live++;
    feed(s, &ev);
}

void storm_cancel(struct storm *s, struct storm_line *l)
{
    STORM_REQUIRE(!l->done, "");
    s->by_slot[l->slot] = NULL;
    l->done = l->cancelled = true;
    s->n_live--;
    s->counts[STORM_CANCEL]++;
    feed(s, &(struct worker_event){.kind = WE_CANCEL, .sub = l->sub});
}

/* ---- the engine's reports ---- */

static void count_at(uint64_t *bins, uint32_t at)
{
    bins[at < STORM_BINS ? at : STORM_BINS - 1]++;
}

static void completion(struct storm *s, const struct engine_completion *c)
{
    struct worker_event ev = {.kind = WE_STEP_END};
    if (c->kind == ENGINE_COPY_END) {
        ev.kind = WE_COPY_END;
        ev.copy.id = c->id;
        ev.copy.ok = c->status == ENGINE_STEP_OK;
        ev.copy.device_ns = c->device_ns;
        for (int i = 0; i < ENGINE_COPIES_MAX; i++)
            if (s->bad_copies[i] == c->id) s->bad_copies[i] = 0;
        feed(s, &ev);
        return;
    }
    ev.step.step = c->id;
    ev.step.device_ns = c->device_ns;
    ev.step.segments_done = c->segments_done;
    ev.step.segment_at_request = c->segment_at_request;
    STORM_REQUIRE((c->kind) != (ENGINE_DEVICE_LOST), "");
    if (c->kind == ENGINE_STEP_END) {
        STORM_REQUIRE((c->status) == (ENGINE_STEP_OK), "");
        ev.step.tokens = steps_collect(&s->steps, c->id, false, &ev.step.n_tokens);
    } else if (c->kind == ENGINE_STEP_PARKED) {
        ev.kind = WE_STEP_PARKED;
        count_at(s->parked_at, c->segments_done);
    } else {
        ev.kind = WE_SPAN_DROPPED;
        ev.step.span = c->span;
        count_at(s->dropped_at, c->segments_done);
        s->faults.unread += c->id == s->freed_step && c->span == s->freed_span;
        steps_span_dropped(&s->steps, c->id, c->span);
    }
    feed(s, &ev);
}

void storm_turn(struct storm *s)
{
    struct engine_completion done[16];
    struct pollfd fd = {.fd = engine_fd(s->engine), .events = POLLIN};
    int n = engine_poll(s->engine, done, 16);
    if (n == 0) {
        STORM_REQUIRE(poll(&fd, 1, 60000) == 1, "nothing ends for a minute");
        n = engine_poll(s->engine, done, 16);
    }
    for (int i = 0; i < n; i++) completion(s, &done[i]);
    uint64_t now = now_ns();
    if (worker_core_next_tick_ns(s->core, now) <= now) feed(s, &(struct worker_event){.kind = WE_TICK});
}

void storm_close(struct storm *s)
{
    struct worker_stats st;
    worker_core_stats(s->core, &st);
    for (int i = 0; i < ENGINE_COPIES_MAX; i++) s->faults.unread_copies += s->bad_copies[i] != 0;
    s->faults.copies_noticed += st.pool.copy_failures;
    s->faults.steps_noticed += st.faults;
    STORM_REQUIRE(s->cfg.inject != 0 || st.faults == 0, "a block was given away while it was used");
    STORM_REQUIRE(s->cfg.inject != 0 || st.pool.copy_failures == 0, "a copy came back with other bytes");
    s->counts[STORM_PARK] += st.parks;
    s->counts[STORM_DROP] += st.drops;
    s->counts[STORM_SWAP] += st.resumed_swap;
    s->counts[STORM_RECOMPUTE] += st.resumed_recompute;
    engine_close(&s->engine);
    steps_deinit(&s->steps);
    seq_store_deinit(&s->store);
    mem_free(s->actions);
    mem_free(s->by_slot);
    mem_unmap(s->core, s->core_bytes);
    s->core = NULL;
}

void storm_add(struct storm *sum, const struct storm *s)
{
    for (int i = 0; i < STORM_FAULTS; i++) sum->faults.injected[i] += s->faults.injected[i];
    sum->faults.unread += s->faults.unread;
    sum->faults.unread_copies += s->faults.unread_copies;
    sum->faults.copies_noticed += s->faults.copies_noticed;
    sum->faults.steps_noticed += s->faults.steps_noticed;
    for (int i = 0; i < STORM_KINDS; i++) sum->counts[i] += s->counts[i];
    for (int i = 0; i < STORM_BINS; i++) {
        sum->parked_at[i] += s->parked_at[i];
        sum->dropped_at[i] += s->dropped_at[i];
        sum->lengths[i] += s->lengths[i];
    }
}
