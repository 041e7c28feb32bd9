/* The CPU backend: opens weights, KV pool and workspace, and gives the runner its segments. */
#include "worker/engine/backend.h"
#include "worker/engine/cpu/copy_stream.h"
#include "worker/engine/cpu/cpu_rates.h"
#include "worker/engine/cpu/forward.h"
#include "worker/engine/step/copier.h"
#include "worker/engine/step/runner.h"
#include "worker/engine/step/segments.h"

#include "base/fault.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Raised whenever any output byte changes; the same for scalar and every SIMD width (rule E10). */
#define CPU_FAMILY "cpu-q8a-1"
#define CPU_FAMILY_PRECISE "cpu-q16a-1"
#define WARM_ROWS 16

struct backend {
    struct runner runner;
    struct copier *copier; /* NULL = no host tier */
    struct engine_limits limits;
    struct forward f;
    struct slot_work work[ENGINE_STEPS_MAX];
    void *sampler_bytes;
    size_t blocks_bytes;
    int cpu; /* of compute thread 0; -1 = not pinned */
};

static int cpu_thread_start(void *backend)
{
    struct backend *b = backend;
    if (b->cpu >= 0)
        pool_pin((uint32_t)b->cpu);
    pool_fp_env();
    return 0;
}

static uint32_t cpu_segments(void *backend, const struct plan *p)
{
    struct backend *b = backend;
    return plan_wants_logits(p) ? b->limits.n_segments : b->f.hp.n_layers;
}

static int cpu_segment(void *backend, struct step_slot *s, uint32_t k)
{
    struct backend *b = backend;
    if (s->was_parked && k > 0 && fault_on(FAULT_PARK_ROWS))
        ((struct slot_work *)s->own)->x[0] += 1.0f;
    if (k < b->f.hp.n_layers)
        forward_layer(&b->f, s, k);
    else
        forward_slice(&b->f, s, k - b->f.hp.n_layers, k + 1 == s->n_segments);
    return 0;
}

static void cpu_step_ended(void *backend)
{
    struct backend *b = backend;
    if (b->copier != NULL)
        copier_step_ended(b->copier);
}

static const struct runner_ops cpu_runner_ops = {
    .thread_start = cpu_thread_start,
    .segments = cpu_segments,
    .segment = cpu_segment,
    .step_ended = cpu_step_ended,
};

static void cpu_close(struct backend **bp)
{
    struct backend *b = *bp;
    if (b == NULL)
        return;
    runner_stop(&b->runner); /* its steps open fences of the copier */
    copier_destroy(&b->copier);
    runner_deinit(&b->runner);
    pool_destroy(&b->f.pool);
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        slot_work_deinit(&b->work[i]);
    scratch_deinit(&b->f.scratch);
    weights_deinit(&b->f.weights);
    if (b->f.blocks != NULL)
        mem_unmap(b->f.blocks, b->blocks_bytes);
    mem_free(b->f.samplers);
    mem_free(b->sampler_bytes);
    mem_free(b);
    *bp = NULL;
}

static int check_shape(const struct hparams *hp, struct err *e)
{
    if (hp->n_kv_heads == 0 || hp->n_heads % hp->n_kv_heads != 0)
        return err_set(e, ERR_BAD_FILE, "%u query heads are no multiple of %u KV heads",
                       hp->n_heads, hp->n_kv_heads);
    return 0;
}

static void describe(struct backend *b, const struct engine_config *cfg)
{
    const struct hparams *hp = &b->f.hp;
    const char *family = cfg->precise ? CPU_FAMILY_PRECISE : CPU_FAMILY;
    b->f.slice_rows = segments_slice_rows(cfg->model);
    b->limits = (struct engine_limits){
        .block_tokens = KV_BLOCK_TOKENS,
        .n_blocks = cfg->n_blocks,
        .block_bytes = b->f.kv.block_bytes,
        .block_stride = b->f.kv.block_stride,
        .max_spans = cfg->max_spans,
        .max_tokens = cfg->max_tokens,
        .max_rows = cfg->max_rows,
        .host_slots = cfg->host_slots,
        .copies = cfg->host_slots > 0,
        .n_ctx = hp->n_ctx,
        .n_vocab = hp->n_vocab,
        .n_segments = hp->n_layers + segments_slices(cfg->model),
        .numerics_id = segments_numerics_id(cfg->model, kv_type_name(cfg->kv_type), family),
    };
    snprintf(b->limits.family, sizeof b->limits.family, "%s", family);
}

static int make_samplers(struct backend *b, uint32_t n_threads, struct err *e)
{
    size_t each = (sampler_bytes(b->f.hp.n_vocab) + 63) & ~(size_t)63;
    b->f.samplers = mem_array(n_threads, sizeof *b->f.samplers);
    b->sampler_bytes = mem_array(n_threads, each);
    if (b->f.samplers == NULL || b->sampler_bytes == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for %u samplers", n_threads);
    for (uint32_t i = 0; i < n_threads; i++)
        sampler_init(&b->f.samplers[i], b->f.ops, b->f.hp.n_vocab,
                     (uint8_t *)b->sampler_bytes + i * each);
    return 0;
}

/* Writes the workspace once, so that no step pays for its pages and the table of pools says what is
 * resident. Logits of more rows than WARM_ROWS come when a step wants them: prompt scoring is rare. */
static void touch_workspace(const struct backend *b)
{
    size_t warm = b->limits.max_rows < WARM_ROWS ? b->limits.max_rows : WARM_ROWS;
    size_t asked = b->f.scratch.map_bytes, used = asked;
    memset(b->f.scratch.map, 0, b->f.scratch.map_bytes);
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        const struct slot_work *w = &b->work[i];
        size_t fixed = (size_t)((char *)w->logits - (char *)w->map);
        size_t bytes = fixed + warm * b->f.hp.n_vocab * sizeof *w->logits;
        memset(w->map, 0, bytes);
        used += bytes;
        asked += w->map_bytes;
    }
    mem_pool_set("engine weights", b->f.weights.map_bytes, b->f.weights.map_bytes,
                 b->f.weights.map_bytes);
    mem_pool_set("engine workspace", asked, used, asked);
}

static int make_memory(struct backend *b, const struct engine_config *cfg, struct err *e)
{
    const struct hparams *hp = &b->f.hp;
    struct work_caps caps = {
        .max_tokens = cfg->max_tokens,
        .max_rows = cfg->max_rows,
        .n_embd = hp->n_embd,
        .n_ff = hp->n_ff,
        .n_heads = hp->n_heads,
        .n_kv_heads = hp->n_kv_heads,
        .head_dim = hp->head_dim,
        .n_vocab = hp->n_vocab,
        .n_threads = cfg->n_threads,
        .n_ctx = hp->n_ctx,
        .precise = cfg->precise,
    };
    b->blocks_bytes = cfg->n_blocks * b->f.kv.block_stride;
    b->f.blocks = mem_map(b->blocks_bytes);
    if (b->f.blocks == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for %u KV blocks (%zu bytes)", cfg->n_blocks,
                       b->blocks_bytes);
    madvise(b->f.blocks, b->blocks_bytes, MADV_HUGEPAGE);
    if (scratch_init(&b->f.scratch, &caps, e) < 0)
        return -1;
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        if (slot_work_init(&b->work[i], &caps, e) < 0)
            return -1;
        b->runner.slots[i].own = &b->work[i];
    }
    if (make_samplers(b, cfg->n_threads, e) < 0)
        return -1;
    touch_workspace(b);
    return 0;
}

/* The host tier and its threads, when there is one. Before the runner starts: its steps open fences. */
static int make_copier(struct backend *b, const struct engine_config *cfg, int fd, struct err *e)
{
    struct copier_config c = {
        .blocks = b->f.blocks,
        .stride = b->limits.block_stride,
        .host_slots = cfg->host_slots,
        .gb_s = cfg->copy_gb_s,
        .no_checksum = cfg->copy_no_checksum,
        .runner = &b->runner,
        .fd = fd,
        .move = copy_stream,
        .drain = copy_stream_drain,
    };
    return cfg->host_slots > 0 ? copier_create(&b->copier, &c, e) : 0;
}

static int open_parts(struct backend *b, const struct engine_config *cfg, int fd, struct err *e)
{
    b->f.hp = cfg->model->hp;
    b->f.precise = cfg->precise;
    b->cpu = cfg->n_cpus > 0 ? (int)cfg->cpus[0] : -1;
    b->f.ops = cpu_ops_choose(cfg->kernel, e);
    if (b->f.ops == NULL || check_shape(&b->f.hp, e) < 0 ||
        kv_shape_init(&b->f.kv, &b->f.hp, cfg->kv_type, e) < 0)
        return -1;
    describe(b, cfg);
    struct plan_caps caps = {
        .max_spans = cfg->max_spans,
        .max_tokens = cfg->max_tokens,
        .max_rows = cfg->max_rows,
        .n_ctx = b->limits.n_ctx,
        .n_vocab = b->limits.n_vocab,
        .block_tokens = KV_BLOCK_TOKENS,
    };
    if (runner_init(&b->runner, &cpu_runner_ops, b, fd, &caps, 0, e) < 0)
        return -1;
    b->runner.late_seed = cfg->debug_late_seed;
    if (pool_create(&b->f.pool, cfg->n_threads, cfg->cpus, cfg->n_cpus, e) < 0 ||
        weights_init(&b->f.weights, cfg->model, b->f.pool, e) < 0 || make_memory(b, cfg, e) < 0 ||
        make_copier(b, cfg, fd, e) < 0)
        return -1;
    return runner_start(&b->runner, e);
}

static int cpu_open(struct backend **out, const struct engine_config *cfg, int fd, struct err *e)
{
    if (cfg->model->gguf == NULL)
        return err_set(e, ERR_BAD_VALUE, "the cpu backend needs a model file");
    struct backend *b = mem_zalloc(sizeof *b);
    if (b == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the cpu backend");
    if (open_parts(b, cfg, fd, e) < 0) {
        cpu_close(&b);
        return -1;
    }
    *out = b;
    return 0;
}

static const struct engine_limits *cpu_limits(const struct backend *b)
{
    return &b->limits;
}

static int cpu_submit(struct backend *b, const struct engine_step *step)
{
    return runner_submit(&b->runner, step);
}

static int cpu_park(struct backend *b, uint64_t step)
{
    return runner_park(&b->runner, step);
}

static int cpu_continue(struct backend *b, uint64_t step)
{
    return runner_continue(&b->runner, step);
}

static int cpu_drop_span(struct backend *b, uint64_t step, uint32_t span)
{
    return runner_drop_span(&b->runner, step, span);
}

static int cpu_copy_submit(struct backend *b, const struct engine_copy *c)
{
    return copier_submit(b->copier, c);
}

static int cpu_poll(struct backend *b, struct engine_completion *out, int max)
{
    return b->copier != NULL ? copier_poll(b->copier, out, max)
                             : runner_poll(&b->runner, out, max);
}

static const struct sample_result *cpu_result(const struct backend *b, uint64_t step, uint32_t row)
{
    const struct step_slot *s = runner_ended(&b->runner, step);
    return s != NULL && row < s->plan.n_rows ? &s->results[row] : NULL;
}

static const float *cpu_row_data(const struct backend *b, uint64_t step, uint32_t row)
{
    const struct step_slot *s = runner_ended(&b->runner, step);
    if (s == NULL || row >= s->plan.n_rows)
        return NULL;
    const struct slot_work *w = s->own;
    size_t o = s->plan.row_out[row];
    return s->plan.rows[row].kind == ENGINE_ROW_HIDDEN ? w->hidden + o * b->f.hp.n_embd
                                                       : w->logits + o * b->f.hp.n_vocab;
}

static void cpu_release(struct backend *b, uint64_t step)
{
    runner_release(&b->runner, step);
}

static const void *cpu_block_bytes(const struct backend *b, uint32_t block)
{
    return b->f.blocks + block * b->f.kv.block_stride;
}

static void *cpu_host_bytes(const struct backend *b, uint32_t slot)
{
    return b->copier != NULL ? copier_host(b->copier, slot) : NULL;
}

static uint64_t cpu_positions(const struct backend *b)
{
    return runner_positions(&b->runner);
}

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .limits = cpu_limits,
    .step_submit = cpu_submit,
    .step_park = cpu_park,
    .step_continue = cpu_continue,
    .step_drop_span = cpu_drop_span,
    .copy_submit = cpu_copy_submit,
    .poll = cpu_poll,
    .step_result = cpu_result,
    .step_row_data = cpu_row_data,
    .step_release = cpu_release,
    .block_bytes = cpu_block_bytes,
    .host_bytes = cpu_host_bytes,
    .positions_computed = cpu_positions,
    .measure = cpu_measure,
};
