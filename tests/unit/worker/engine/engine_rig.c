#include "tests/unit/worker/engine/engine_rig.h"

#include "base/mem.h"

#include <poll.h>
#include <string.h>
#include <time.h>

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

struct engine_config rig_config(const char *backend)
{
    return (struct engine_config){
        .backend = backend,
        .n_threads = 1,
        .n_blocks = 24576 / 16 + 1,
        .max_spans = RIG_SPANS,
        .max_tokens = 512 + RIG_SPANS,
        .max_rows = 512,
    };
}

static void describe_model(struct model *m)
{
    memset(m, 0, sizeof *m);
    m->hp = (struct hparams){
        .n_layers = 4,
        .n_embd = 32,
        .n_ff = 64,
        .n_heads = 2,
        .n_kv_heads = 1,
        .head_dim = 16,
        .n_rot = 16,
        .n_vocab = 300,
        .n_ctx = RIG_CTX,
        .rms_eps = 1e-5f,
        .rope_base = 10000,
    };
}

/* Free list in scattered order: block ids 1 .. n - 1 by a fixed stride. */
static void scatter_blocks(struct rig *r)
{
    uint32_t n = r->limits->n_blocks - 1, stride = 7;
    while (n % stride == 0)
        stride += 2;
    r->free_blocks = malloc(n * sizeof *r->free_blocks);
    rig_require(r->free_blocks != NULL);
    for (uint32_t i = 0; i < n; i++)
        r->free_blocks[i] = 1 + (uint32_t)((uint64_t)i * stride % n);
    r->n_free = n;
}

void rig_open(struct rig *r, const char *path, const struct engine_config *cfg)
{
    memset(r, 0, sizeof *r);
    struct err e;
    err_clear(&e);
    r->has_file = path != NULL;
    if (path == NULL)
        describe_model(&r->model);
    else if (model_open(&r->model, path, NULL, &e) < 0)
        fprintf(stderr, "model: %s\n", e.msg);
    struct engine_config c = *cfg;
    c.model = &r->model;
    if (e.code == ERR_OK && engine_open(&r->eng, &c, &e) < 0)
        fprintf(stderr, "engine: %s\n", e.msg);
    rig_require(r->eng != NULL);
    r->limits = engine_limits(r->eng);
    scatter_blocks(r);
}

void rig_close(struct rig *r)
{
    engine_close(&r->eng);
    if (r->has_file)
        model_close(&r->model);
    free(r->free_blocks);
    memset(r, 0, sizeof *r);
}

void rig_seq_init(struct rig_seq *q, uint64_t name, const int32_t *ids, uint32_t n)
{
    memset(q, 0, sizeof *q);
    q->name = name;
    rig_require(n <= RIG_CTX);
    memcpy(q->ids, ids, n * sizeof *ids);
    q->n_ids = n;
}

void rig_seq_random(const struct rig *r, struct rig_seq *q, uint64_t seed, uint32_t n)
{
    int32_t ids[RIG_CTX];
    rig_ids(ids, n, seed, r->limits->n_vocab);
    rig_seq_init(q, seed, ids, n);
}

void rig_seq_free(struct rig *r, struct rig_seq *q)
{
    while (q->n_blocks > 0)
        r->free_blocks[r->n_free++] = q->blocks[--q->n_blocks];
    q->n_done = 0;
}

void rig_ids(int32_t *ids, uint32_t n, uint64_t seed, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(rand_at(seed, i) % n_vocab);
}

void rig_step_init(struct rig *r, struct rig_step *st)
{
    st->step = (struct engine_step){.id = ++r->last_step, .spans = st->spans, .rows = st->rows};
}

uint32_t rig_span(struct rig *r, struct rig_step *st, struct rig_seq *q, uint32_t n)
{
    uint32_t bt = r->limits->block_tokens, i = st->step.n_spans++;
    rig_require(i < RIG_SPANS && q->n_done + n <= RIG_CTX);
    while (q->n_blocks * bt < q->n_done + n) {
        rig_require(r->n_free > 0);
        q->blocks[q->n_blocks++] = r->free_blocks[--r->n_free];
    }
    st->seqs[i] = q;
    st->spans[i] = (struct engine_span){
        .seq = q->name,
        .ids = q->ids + q->n_done,
        .n = n,
        .pos = q->n_done,
        .blocks = q->blocks,
        .n_blocks = q->n_blocks,
    };
    return i;
}

struct engine_row *rig_row(struct rig_step *st, uint32_t span, uint32_t index,
                           enum engine_row_kind kind)
{
    rig_require(st->step.n_rows < RIG_ROWS);
    struct engine_row *row = &st->rows[st->step.n_rows++];
    *row = (struct engine_row){
        .span = span,
        .index = index,
        .kind = kind,
        .params = rig_params(0, 0, st->spans[span].pos + index + 1),
    };
    return row;
}

struct sample_params rig_params(float temperature, uint64_t seed, uint64_t position)
{
    return (struct sample_params){
        .temperature = temperature,
        .top_p = 1,
        .repetition_penalty = 1,
        .seed = seed,
        .position = position,
    };
}

void rig_submit(struct rig *r, struct rig_step *st)
{
    rig_require(engine_step_submit(r->eng, &st->step) == 0);
}

void rig_pump(struct rig *r, int timeout_ms)
{
    struct pollfd p = {.fd = engine_fd(r->eng), .events = POLLIN};
    if (poll(&p, 1, timeout_ms) <= 0)
        return;
    if (r->n_events > RIG_EVENTS / 2) { /* old ones are of no use any more */
        uint32_t keep = RIG_EVENTS / 4;
        memmove(r->events, r->events + r->n_events - keep, keep * sizeof r->events[0]);
        r->n_events = keep;
    }
    int n = engine_poll(r->eng, r->events + r->n_events, (int)(RIG_EVENTS - r->n_events));
    rig_require(n >= 0);
    r->n_events += (uint32_t)n;
}

const struct engine_completion *rig_event(const struct rig *r, enum engine_completion_kind kind,
                                          uint64_t id)
{
    for (uint32_t i = r->n_events; i > 0; i--)
        if (r->events[i - 1].kind == kind && r->events[i - 1].id == id)
            return &r->events[i - 1];
    return NULL;
}

uint32_t rig_count(const struct rig *r, enum engine_completion_kind kind, uint64_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_events; i++)
        n += r->events[i].kind == kind && r->events[i].id == id;
    return n;
}

const struct engine_completion *rig_await(struct rig *r, enum engine_completion_kind kind,
                                          uint64_t id)
{
    uint64_t end = now_ms() + RIG_WAIT_S * 1000u;
    const struct engine_completion *c;
    while ((c = rig_event(r, kind, id)) == NULL) {
        rig_require(now_ms() < end);
        rig_pump(r, 1000);
    }
    return c;
}

const struct engine_completion *rig_await_stop(struct rig *r, uint64_t id)
{
    uint64_t end = now_ms() + RIG_WAIT_S * 1000u;
    uint32_t parked = rig_count(r, ENGINE_STEP_PARKED, id);
    for (;;) {
        const struct engine_completion *c = rig_event(r, ENGINE_STEP_END, id);
        if (c != NULL)
            return c;
        if (rig_count(r, ENGINE_STEP_PARKED, id) > parked)
            return rig_event(r, ENGINE_STEP_PARKED, id);
        rig_require(now_ms() < end);
        rig_pump(r, 1000);
    }
}

void rig_end(struct rig *r, struct rig_step *st)
{
    const struct engine_completion *c = rig_await(r, ENGINE_STEP_END, st->step.id);
    rig_require(c->status == ENGINE_STEP_OK);
    for (uint32_t i = 0; i < st->step.n_spans; i++) {
        bool dropped = false;
        for (uint32_t k = 0; k < r->n_events; k++)
            dropped |= r->events[k].kind == ENGINE_SPAN_DROPPED && r->events[k].id == st->step.id &&
                       r->events[k].span == i;
        if (!dropped)
            st->seqs[i]->n_done += st->spans[i].n;
    }
}

void rig_run(struct rig *r, struct rig_step *st)
{
    rig_submit(r, st);
    rig_end(r, st);
}

uint32_t rig_run_parking(struct rig *r, struct rig_step *st)
{
    uint32_t parks = 0;
    rig_submit(r, st);
    for (;;) {
        rig_require(engine_step_park(r->eng, st->step.id) == 0);
        const struct engine_completion *c = rig_await_stop(r, st->step.id);
        if (c->kind == ENGINE_STEP_END)
            break;
        rig_require(c->segments_done <= c->segment_at_request + 1);
        parks++;
        rig_require(engine_step_continue(r->eng, st->step.id) == 0);
    }
    rig_end(r, st);
    return parks;
}

void rig_release(struct rig *r, struct rig_step *st)
{
    engine_step_release(r->eng, st->step.id);
}

void rig_generate(struct rig *r, struct rig_seq *q, uint32_t n_new, uint32_t chunk,
                  float temperature, uint64_t seed, bool parking)
{
    static struct rig_step st;
    for (uint32_t made = 0; made < n_new;) {
        uint32_t left = q->n_ids - q->n_done, n = left < chunk ? left : chunk;
        rig_step_init(r, &st);
        uint32_t span = rig_span(r, &st, q, n);
        if (n == left)
            rig_row(&st, span, n - 1, ENGINE_ROW_SAMPLE)->params =
                rig_params(temperature, seed, q->n_ids);
        if (parking)
            rig_run_parking(r, &st);
        else
            rig_run(r, &st);
        if (n == left) {
            rig_require(q->n_ids < RIG_CTX);
            q->ids[q->n_ids++] = engine_step_result(r->eng, st.step.id, 0)->id;
            made++;
        }
        rig_release(r, &st);
    }
}
