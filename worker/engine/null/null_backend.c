/* The virtual engine: real blocks, segments, parking, references and costs; invented arithmetic. */
#include "worker/engine/backend.h"
#include "worker/engine/null/null_math.h"
#include "worker/engine/step/clock.h"
#include "worker/engine/step/copier.h"
#include "worker/engine/step/runner.h"
#include "worker/engine/step/segments.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define NULL_FAMILY "null-1"
#define NULL_MAX_REFS 1  /* three slots: one runs, one waits behind it, one for the upper rank */
#define NULL_STRIDE 4096 /* block_stride is a multiple of it, as for a real engine */

struct null_own { /* a slot's workspace; lives while the step is parked */
    uint64_t *x;  /* [token row] state so far */
    float *data;  /* [output] n_vocab or n_embd values */
};

struct backend {
    struct runner runner;
    struct copier *copier; /* NULL = no host tier */
    struct engine_limits limits;
    struct null_vocab vocab;
    uint32_t n_embd, row_floats;
    uint64_t token_ns, step_ns;
    uint8_t *blocks;
    struct null_own own[ENGINE_STEPS_MAX];
    size_t own_x_bytes, own_data_bytes;
};

static struct null_position *position_at(const struct backend *b, const struct engine_span *s,
                                         uint32_t pos)
{
    uint8_t *block = b->blocks + s->blocks[pos / NULL_BLOCK_TOKENS] * b->limits.block_stride;
    return (struct null_position *)(void *)block + pos % NULL_BLOCK_TOKENS;
}

/* What the last group folds in: word 0 at the end of each full block before `pos`. */
static uint64_t fold_blocks(const struct backend *b, const struct engine_span *s, uint32_t pos)
{
    uint64_t fold = 0;
    for (uint32_t k = 1; k <= pos / NULL_BLOCK_TOKENS; k++)
        fold = null_fold(fold, position_at(b, s, k * NULL_BLOCK_TOKENS - 1)->word[0]);
    return fold;
}

static void span_group(const struct backend *b, const struct engine_span *s, uint64_t *x,
                       uint32_t group)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t pos = s->pos + i;
        uint64_t before = pos > 0 ? position_at(b, s, pos - 1)->word[group] : 0;
        uint64_t fold = group == NULL_WORDS - 1 ? fold_blocks(b, s, pos) : 0;
        if (group == 0)
            x[i] = null_start(s->ids[i], pos);
        x[i] = null_word(group, x[i], before, fold);
        position_at(b, s, pos)->word[group] = x[i];
    }
}

static void row_result(const struct backend *b, struct step_slot *s, uint32_t r)
{
    const struct engine_row *row = &s->plan.rows[r];
    const struct plan_out *out = &s->plan.outs[s->plan.row_out[r]];
    const struct null_own *own = s->own;
    uint64_t h = own->x[out->token];
    struct sample_result *res = &s->results[r];
    memset(res, 0, sizeof *res);
    if (row->kind == ENGINE_ROW_SAMPLE) {
        res->id = null_draw(h, &row->params, &b->vocab);
        res->logprob = row->logprob ? null_logprob(h, res->id, &b->vocab) : 0;
    } else if (row->kind == ENGINE_ROW_SCORE) {
        res->id = row->target;
        res->logprob = null_logprob(h, res->id, &b->vocab);
    } else {
        uint32_t n = row->kind == ENGINE_ROW_LOGITS ? b->vocab.n_vocab : b->n_embd;
        float *data = own->data + (size_t)r * b->row_floats;
        for (uint32_t i = 0; i < n; i++)
            data[i] = null_value(h, i);
    }
    if (row->kind == ENGINE_ROW_SAMPLE || row->kind == ENGINE_ROW_SCORE)
        null_tops(h, row->n_top, &b->vocab, res);
}

/* Segment k's part of the cost of what is live now, slept off with the thread's time as the
 * device's. */
static void spend(const struct backend *b, const struct step_slot *s)
{
    uint64_t tokens = 0;
    for (uint32_t j = 0; j < s->plan.n_spans; j++)
        tokens += s->dropped[j] ? 0 : s->plan.spans[j].n;
    uint64_t ns = (b->step_ns + b->token_ns * tokens) / s->n_segments;
    if (ns == 0)
        return;
    uint64_t at = clock_ns() + ns;
    struct timespec t = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

/* Segment k of n does the groups [k * W / n, (k + 1) * W / n): what a position stores does not
 * depend on n. */
static int null_segment(void *backend, struct step_slot *s, uint32_t k)
{
    struct backend *b = backend;
    struct null_own *own = s->own;
    uint32_t n = s->n_segments;
    for (uint32_t g = k * NULL_WORDS / n; g < (k + 1) * NULL_WORDS / n; g++)
        for (uint32_t j = 0; j < s->plan.n_spans; j++)
            if (!s->dropped[j])
                span_group(b, &s->plan.spans[j], own->x + s->plan.first[j], g);
    for (uint32_t r = 0; k + 1 == n && r < s->plan.n_rows; r++)
        if (!s->dropped[s->plan.rows[r].span])
            row_result(b, s, r);
    spend(b, s);
    return 0;
}

static int null_thread_start(void *backend)
{
    (void)backend;
    prctl(PR_SET_TIMERSLACK, 1000); /* default slack of 50 us would be most of a short segment */
    return 0;
}

static uint32_t null_segments(void *backend, const struct plan *p)
{
    (void)p;
    return ((struct backend *)backend)->limits.n_segments;
}

static void null_step_ended(void *backend)
{
    struct backend *b = backend;
    if (b->copier != NULL)
        copier_step_ended(b->copier);
}

static const struct runner_ops null_runner_ops = {
    .thread_start = null_thread_start,
    .segments = null_segments,
    .segment = null_segment,
    .step_ended = null_step_ended,
};

static void null_close(struct backend **bp)
{
    struct backend *b = *bp;
    if (b == NULL)
        return;
    runner_stop(&b->runner); /* its steps open fences of the copier */
    copier_destroy(&b->copier);
    runner_deinit(&b->runner);
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        mem_free(b->own[i].x);
        if (b->own[i].data != NULL)
            mem_unmap(b->own[i].data, b->own_data_bytes);
    }
    if (b->blocks != NULL)
        mem_unmap(b->blocks, b->limits.n_blocks * b->limits.block_stride);
    mem_free(b);
    *bp = NULL;
}

static void describe(struct backend *b, const struct engine_config *cfg)
{
    const struct model *m = cfg->model;
    b->limits = (struct engine_limits){
        .block_tokens = NULL_BLOCK_TOKENS,
        .n_blocks = cfg->n_blocks,
        .block_bytes = NULL_BLOCK_TOKENS * sizeof(struct null_position),
        .block_stride = NULL_STRIDE,
        .max_spans = cfg->max_spans,
        .max_tokens = cfg->max_tokens,
        .max_rows = cfg->max_rows,
        .host_slots = cfg->host_slots,
        .copies = cfg->host_slots > 0,
        .n_ctx = m->hp.n_ctx,
        .n_vocab = m->hp.n_vocab,
        .max_refs = NULL_MAX_REFS,
        .n_segments =
            cfg->null_segments != 0 ? cfg->null_segments : m->hp.n_layers + segments_slices(m),
        .numerics_id = segments_numerics_id(m, "words", NULL_FAMILY),
        .family = NULL_FAMILY,
    };
    b->vocab.n_vocab = m->hp.n_vocab;
    if (m->vocab != NULL) {
        size_t n_eog;
        b->vocab.eog = vocab_eog(m->vocab, &n_eog);
        b->vocab.n_eog = (uint32_t)n_eog;
    }
    b->n_embd = m->hp.n_embd;
    b->row_floats = b->vocab.n_vocab > b->n_embd ? b->vocab.n_vocab : b->n_embd;
    b->token_ns = cfg->null_token_ns;
    b->step_ns = cfg->null_step_ns;
}

static int make_memory(struct backend *b, struct err *e)
{
    _Static_assert(NULL_BLOCK_TOKENS * sizeof(struct null_position) <= NULL_STRIDE,
                   "a block fits its stride");
    b->blocks = mem_map(b->limits.n_blocks * b->limits.block_stride);
    b->own_x_bytes = b->limits.max_tokens * sizeof(uint64_t);
    b->own_data_bytes = (size_t)b->limits.max_rows * b->row_floats * sizeof(float);
    bool ok = b->blocks != NULL;
    for (int i = 0; ok && i < ENGINE_STEPS_MAX; i++) {
        b->own[i].x = mem_alloc(b->own_x_bytes);
        b->own[i].data = mem_map(b->own_data_bytes);
        ok = b->own[i].x != NULL && b->own[i].data != NULL;
        b->runner.slots[i].own = &b->own[i];
    }
    return ok ? 0
              : err_set(e, ERR_NO_MEMORY, "no memory for %u blocks of the virtual engine",
                        b->limits.n_blocks);
}

/* The host tier and its threads, when there is one. Before the runner starts: its steps open fences. */
static int make_copier(struct backend *b, const struct engine_config *cfg, int fd, struct err *e)
{
    struct copier_config c = {
        .blocks = b->blocks,
        .stride = b->limits.block_stride,
        .host_slots = cfg->host_slots,
        .gb_s = cfg->copy_gb_s,
        .block_ns = cfg->null_copy_ns,
        .no_checksum = cfg->copy_no_checksum,
        .runner = &b->runner,
        .fd = fd,
    };
    return cfg->host_slots > 0 ? copier_create(&b->copier, &c, e) : 0;
}

static int null_open(struct backend **out, const struct engine_config *cfg, int fd, struct err *e)
{
    if (cfg->model->hp.n_vocab == 0 || cfg->model->hp.n_ctx == 0)
        return err_set(e, ERR_BAD_VALUE,
                       "the virtual engine needs a vocabulary and a context length");
    struct backend *b = mem_zalloc(sizeof *b);
    if (b == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the virtual engine");
    describe(b, cfg);
    struct plan_caps caps = {
        .max_spans = b->limits.max_spans,
        .max_tokens = b->limits.max_tokens,
        .max_rows = b->limits.max_rows,
        .n_ctx = b->limits.n_ctx,
        .n_vocab = b->limits.n_vocab,
        .block_tokens = b->limits.block_tokens,
    };
    if (runner_init(&b->runner, &null_runner_ops, b, fd, &caps, NULL_MAX_REFS, e) < 0 ||
        make_memory(b, e) < 0 ||
        make_copier(b, cfg, fd, e) < 0) {
        null_close(&b);
        return -1;
    }
    b->runner.late_seed = cfg->debug_late_seed;
    if (runner_start(&b->runner, e) < 0) {
        null_close(&b);
        return -1;
    }
    *out = b;
    return 0;
}

static const struct engine_limits *null_limits(const struct backend *b)
{
    return &b->limits;
}

static int null_submit(struct backend *b, const struct engine_step *step)
{
    return runner_submit(&b->runner, step);
}

static int null_park(struct backend *b, uint64_t step)
{
    return runner_park(&b->runner, step);
}

static int null_continue(struct backend *b, uint64_t step)
{
    return runner_continue(&b->runner, step);
}

static int null_drop_span(struct backend *b, uint64_t step, uint32_t span)
{
    return runner_drop_span(&b->runner, step, span);
}

static int null_copy_submit(struct backend *b, const struct engine_copy *c)
{
    return copier_submit(b->copier, c);
}

static int null_poll(struct backend *b, struct engine_completion *out, int max)
{
    return b->copier != NULL ? copier_poll(b->copier, out, max)
                             : runner_poll(&b->runner, out, max);
}

static const struct sample_result *null_result(const struct backend *b, uint64_t step, uint32_t row)
{
    const struct step_slot *s = runner_ended(&b->runner, step);
    return s != NULL && row < s->plan.n_rows ? &s->results[row] : NULL;
}

static const float *null_row_data(const struct backend *b, uint64_t step, uint32_t row)
{
    const struct step_slot *s = runner_ended(&b->runner, step);
    if (s == NULL || row >= s->plan.n_rows)
        return NULL;
    const struct null_own *own = s->own;
    return own->data + (size_t)row * b->row_floats;
}

static void null_release(struct backend *b, uint64_t step)
{
    runner_release(&b->runner, step);
}

static const void *null_block_bytes(const struct backend *b, uint32_t block)
{
    return b->blocks + block * b->limits.block_stride;
}

static void *null_host_bytes(const struct backend *b, uint32_t slot)
{
    return b->copier != NULL ? copier_host(b->copier, slot) : NULL;
}

static uint64_t null_positions(const struct backend *b)
{
    return runner_positions(&b->runner);
}

const struct backend_ops backend_null = {
    .name = "null",
    .open = null_open,
    .close = null_close,
    .limits = null_limits,
    .step_submit = null_submit,
    .step_park = null_park,
    .step_continue = null_continue,
    .step_drop_span = null_drop_span,
    .copy_submit = null_copy_submit,
    .poll = null_poll,
    .step_result = null_result,
    .step_row_data = null_row_data,
    .step_release = null_release,
    .block_bytes = null_block_bytes,
    .host_bytes = null_host_bytes,
    .positions_computed = null_positions,
};
