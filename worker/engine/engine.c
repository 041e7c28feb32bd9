#include "worker/engine/engine.h"

#include "base/mem.h"
#include "worker/engine/backend.h"
#include "worker/engine/chaos.h"
#include "worker/engine/copy_book.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define POLL_BATCH 64
#define COPY_GB_S_MAX 1e6

struct engine {
    const struct backend_ops *ops;
    struct backend *backend;
    const struct engine_limits *limits;
    struct chaos *chaos;
    int fd;
    /* Steps as the owner sees them: with chaos the backend may be further than it was told. */
    struct live {
        uint64_t id;
        uint32_t n_spans, stamp;
        bool ended;
        uint64_t dropped[(ENGINE_SPANS_MAX + 63) / 64]; /* spans that write no more */
    } live[ENGINE_STEPS_MAX];
    struct writer {
        uint32_t stamp, span; /* number of the last submit that writes the block, and who in it */
    } *written;
    uint32_t submits;
    struct copy_book copies;
};

static const struct backend_ops *const backends[] = {&backend_cpu, &backend_null};

static const struct backend_ops *backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (name != NULL && strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

static int check_config(const struct engine_config *cfg, struct err *e)
{
    if (cfg->model == NULL)
        return err_set(e, ERR_MISSING, "the engine needs an open model");
    if (cfg->n_threads < 1)
        return err_set_param(e, ERR_BAD_VALUE, "threads",
                             "the engine needs at least one compute thread");
    if (cfg->n_cpus > ENGINE_CPUS_MAX)
        return err_set_param(e, ERR_BAD_VALUE, "cpus", "at most %d CPUs can be named",
                             ENGINE_CPUS_MAX);
    if (!(cfg->copy_gb_s >= 0 && cfg->copy_gb_s <= COPY_GB_S_MAX))
        return err_set_param(e, ERR_BAD_VALUE, "copy-gbps",
                             "the rate of copies must be 0 (no limit) to %g GB/s", COPY_GB_S_MAX);
    if (cfg->n_blocks < 2)
        return err_set_param(e, ERR_BAD_VALUE, "kv-tokens",
                             "the KV pool needs a block beside the trash block");
    if (cfg->max_spans < 1 || cfg->max_spans > ENGINE_SPANS_MAX)
        return err_set(e, ERR_BAD_VALUE, "spans of a step must be 1 to %d, not %u",
                       ENGINE_SPANS_MAX, cfg->max_spans);
    if (cfg->max_tokens < cfg->max_spans || cfg->max_rows < 1)
        return err_set(e, ERR_BAD_VALUE,
                       "a step of %u spans needs as many tokens and at least one row",
                       cfg->max_spans);
    return 0;
}

static int open_parts(struct engine *g, const struct engine_config *cfg, struct err *e)
{
    g->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->fd < 0)
        return err_set(e, ERR_IO, "eventfd of the engine: %s", strerror(errno));
    if (g->ops->open(&g->backend, cfg, g->fd, e) < 0)
        return -1;
    g->limits = g->ops->limits(g->backend);
    g->written = mem_array(g->limits->n_blocks, sizeof *g->written);
    if (g->written == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the engine's checks");
    if (copy_book_init(&g->copies, g->limits->n_blocks, e) < 0)
        return -1;
    if (cfg->chaos_seed == 0)
        return 0;
    uint32_t cap = ENGINE_STEPS_MAX * (g->limits->max_spans + 2) + ENGINE_COPIES_MAX + POLL_BATCH;
    return chaos_create(&g->chaos, cfg->chaos_seed, cap, g->fd, e);
}

int engine_open(struct engine **out, const struct engine_config *cfg, struct err *e)
{
    *out = NULL;
    const struct backend_ops *ops = backend_find(cfg->backend);
    if (ops == NULL)
        return err_set_param(e, ERR_BAD_VALUE, "backend",
                             "there is no backend '%s' (there are: cpu, null)",
                             cfg->backend != NULL ? cfg->backend : "");
    if (check_config(cfg, e) < 0)
        return -1;
    struct engine *g = mem_zalloc(sizeof *g);
    if (g == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the engine");
    g->ops = ops;
    g->fd = -1;
    if (open_parts(g, cfg, e) < 0) {
        engine_close(&g);
        return -1;
    }
    *out = g;
    return 0;
}

int engine_measure(const struct engine_config *cfg, struct engine_rates *out, struct err *e)
{
    const struct backend_ops *ops = backend_find(cfg->backend);
    if (ops == NULL || ops->measure == NULL)
        return err_set_param(e, ERR_BAD_VALUE, "backend", "backend '%s' has no rates to measure",
                             cfg->backend != NULL ? cfg->backend : "");
    if (cfg->n_threads < 1 || cfg->n_cpus > ENGINE_CPUS_MAX)
        return err_set_param(e, ERR_BAD_VALUE, "threads", "no threads to measure with");
    return ops->measure(cfg, out, e);
}

void engine_close(struct engine **eng)
{
    struct engine *g = *eng;
    if (g == NULL)
        return;
    if (g->backend != NULL)
        g->ops->close(&g->backend);
    chaos_destroy(&g->chaos);
    mem_free(g->written);
    copy_book_deinit(&g->copies);
    if (g->fd >= 0)
        close(g->fd);
    mem_free(g);
    *eng = NULL;
}

const struct engine_limits *engine_limits(const struct engine *g)
{
    return g->limits;
}

int engine_fd(const struct engine *g)
{
    return g->chaos != NULL ? chaos_fd(g->chaos) : g->fd;
}

/* ---- what can be known at submit ---- */

static struct live *live_find(struct engine *g, uint64_t id)
{
    for (int i = 0; id != 0 && i < ENGINE_STEPS_MAX; i++)
        if (g->live[i].id == id)
            return &g->live[i];
    return NULL;
}

static struct live *live_free(struct engine *g)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        if (g->live[i].id == 0)
            return &g->live[i];
    return NULL;
}

static bool span_ok(struct engine *g, const struct engine_step *step, uint32_t span)
{
    const struct engine_limits *l = g->limits;
    const struct engine_span *s = &step->spans[span];
    if (s->n == 0 || s->ids == NULL || s->blocks == NULL || s->pos > l->n_ctx ||
        s->n > l->n_ctx - s->pos)
        return false;
    if ((uint64_t)s->n_blocks * l->block_tokens < (uint64_t)s->pos + s->n)
        return false;
    uint32_t n_ids =
        s->ref_step != 0 ? s->n - 1 : s->n; /* a referenced input's id is not known yet */
    for (uint32_t i = 0; i < n_ids; i++)
        if (s->ids[i] < 0 || (uint32_t)s->ids[i] >= l->n_vocab)
            return false;
    uint32_t used = (s->pos + s->n + l->block_tokens - 1) / l->block_tokens;
    for (uint32_t i = 0; i < used; i++)
        if (s->blocks[i] >= l->n_blocks || g->copies.writes[s->blocks[i]])
            return false;
    /* Two spans that write one block: a copy-on-write was forgotten. The trash block is
     * everybody's. */
    for (uint32_t i = s->pos / l->block_tokens; i < used; i++) {
        uint32_t b = s->blocks[i];
        if ((b != 0 && g->written[b].stamp == g->submits) || g->copies.reads[b] != 0)
            return false;
        g->written[b] = (struct writer){g->submits, span};
    }
    return true;
}

static bool params_ok(const struct sample_params *p, uint32_t n_ctx)
{
    return p->temperature >= 0 && isfinite(p->temperature) && p->top_p > 0 && p->top_p <= 1 &&
           p->min_p >= 0 && p->min_p <= 1 && p->top_k >= 0 && p->repetition_penalty > 0 &&
           isfinite(p->repetition_penalty) && isfinite(p->presence_penalty) &&
           isfinite(p->frequency_penalty) && p->n_history <= n_ctx && p->n_prompt <= p->n_history &&
           p->n_bias <= SAMPLE_BIAS_MAX && p->n_banned <= SAMPLE_BANNED_MAX;
}

static bool row_ok(const struct engine *g, const struct engine_step *step,
                   const struct engine_row *r)
{
    if (r->span >= step->n_spans || r->index >= step->spans[r->span].n || r->n_top > SAMPLE_TOP_MAX)
        return false;
    switch (r->kind) {
    case ENGINE_ROW_SAMPLE: return params_ok(&r->params, g->limits->n_ctx);
    case ENGINE_ROW_SCORE: return r->target >= 0 && (uint32_t)r->target < g->limits->n_vocab;
    case ENGINE_ROW_LOGITS:
    case ENGINE_ROW_HIDDEN: return true;
    }
    return false;
}

static bool step_ok(struct engine *g, const struct engine_step *step)
{
    const struct engine_limits *l = g->limits;
    if (step->id == 0 || step->n_spans < 1 || step->n_spans > l->max_spans ||
        step->n_rows > l->max_rows)
        return false;
    uint64_t tokens = 0;
    if (++g->submits == 0) { /* the stamp wrapped: forget all old ones */
        memset(g->written, 0, l->n_blocks * sizeof *g->written);
        g->submits = 1;
    }
    for (uint32_t i = 0; i < step->n_spans; i++) {
        tokens += step->spans[i].n;
        if (tokens > l->max_tokens || !span_ok(g, step, i))
            return false;
    }
    for (uint32_t i = 0; i < step->n_rows; i++)
        if (!row_ok(g, step, &step->rows[i]))
            return false;
    return true;
}

int engine_step_submit(struct engine *g, const struct engine_step *step)
{
    struct live *l = live_free(g);
    if (l == NULL || live_find(g, step->id) != NULL || !step_ok(g, step))
        return -1;
    if (g->ops->step_submit(g->backend, step) < 0)
        return -1;
    *l = (struct live){.id = step->id, .n_spans = step->n_spans, .stamp = g->submits};
    return 0;
}

/* ---- requests: only about steps whose end the owner has not seen ---- */

int engine_step_park(struct engine *g, uint64_t step)
{
    struct live *l = live_find(g, step);
    return l == NULL || l->ended ? -1 : g->ops->step_park(g->backend, step);
}

int engine_step_continue(struct engine *g, uint64_t step)
{
    struct live *l = live_find(g, step);
    if (l == NULL)
        return -1;
    /* Its last span was dropped, and its end polled in one go with that: the caller has not come to it yet. */
    return l->ended ? 0 : g->ops->step_continue(g->backend, step);
}

int engine_step_drop_span(struct engine *g, uint64_t step, uint32_t span)
{
    struct live *l = live_find(g, step);
    if (l == NULL || l->ended || span >= l->n_spans)
        return -1;
    return g->ops->step_drop_span(g->backend, step, span);
}

/* ---- copies ---- */

/* A block that a live step writes may be read only behind that step, or when the span that writes it was
 * dropped. A block that came by copy is written by no step any more. */
static bool fence_ok(const struct engine *g, const struct engine_copy *c)
{
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        const struct live *l = &g->live[i];
        const struct writer *w = &g->written[c->from];
        if (l->id == 0 || l->ended || l->stamp != w->stamp || l->id == c->after_step)
            continue;
        if ((l->dropped[w->span / 64] >> w->span % 64 & 1u) == 0)
            return false;
    }
    return true;
}

static bool copy_ok(const struct engine *g, const struct engine_copy *c)
{
    bool in = c->kind == ENGINE_COPY_HOST_TO_BLOCK, out = c->kind == ENGINE_COPY_BLOCK_TO_HOST;
    const struct engine_limits *l = g->limits;
    if (c->id == 0 || c->priority > 1 || (!in && !out && c->kind != ENGINE_COPY_BLOCK_TO_BLOCK))
        return false;
    if (c->from >= (in ? l->host_slots : l->n_blocks) ||
        c->to >= (out ? l->host_slots : l->n_blocks))
        return false;
    /* the trash block holds nobody's bytes */
    if ((!in && c->from == 0) || (!out && c->to == 0) || (!in && !out && c->from == c->to))
        return false;
    return copy_book_may(&g->copies, c) && (in || fence_ok(g, c));
}

int engine_copy_submit(struct engine *g, const struct engine_copy *c)
{
    if (!g->limits->copies || g->ops->copy_submit == NULL || !copy_ok(g, c) ||
        g->ops->copy_submit(g->backend, c) < 0)
        return -1;
    copy_book_add(&g->copies, c);
    return 0;
}

static void copy_ended(struct engine *g, uint64_t id)
{
    struct engine_copy c = copy_book_end(&g->copies, id);
    assert(c.id == id);
    if (c.kind != ENGINE_COPY_BLOCK_TO_HOST)
        g->written[c.to].stamp = 0;
}

/* ---- completions and results ---- */

static int poll_through_chaos(struct engine *g, struct engine_completion *out, int max)
{
    struct engine_completion batch[POLL_BATCH];
    for (;;) {
        uint32_t room = chaos_room(g->chaos);
        int n = g->ops->poll(g->backend, batch, room < POLL_BATCH ? (int)room : POLL_BATCH);
        for (int i = 0; i < n; i++)
            chaos_push(g->chaos, &batch[i]);
        if (n < POLL_BATCH)
            break;
    }
    return chaos_take(g->chaos, out, max);
}

int engine_poll(struct engine *g, struct engine_completion *out, int max)
{
    int n = g->chaos != NULL ? poll_through_chaos(g, out, max) : g->ops->poll(g->backend, out, max);
    for (int i = 0; i < n; i++) {
        struct live *l = live_find(g, out[i].id);
        if (out[i].kind == ENGINE_STEP_END && l != NULL)
            l->ended = true;
        if (out[i].kind == ENGINE_SPAN_DROPPED && l != NULL)
            l->dropped[out[i].span / 64] |= (uint64_t)1 << out[i].span % 64;
        if (out[i].kind == ENGINE_COPY_END)
            copy_ended(g, out[i].id);
    }
    return n;
}

const struct sample_result *engine_step_result(const struct engine *g, uint64_t step, uint32_t row)
{
    return g->ops->step_result(g->backend, step, row);
}

const float *engine_step_row_data(const struct engine *g, uint64_t step, uint32_t row)
{
    return g->ops->step_row_data(g->backend, step, row);
}

void engine_step_release(struct engine *g, uint64_t step)
{
    struct live *l = live_find(g, step);
    assert(l != NULL && l->ended);
    g->ops->step_release(g->backend, step);
    l->id = 0;
}

const void *engine_block_bytes(const struct engine *g, uint32_t block)
{
    return g->ops->block_bytes != NULL && block < g->limits->n_blocks
               ? g->ops->block_bytes(g->backend, block)
               : NULL;
}

void *engine_host_bytes(const struct engine *g, uint32_t slot)
{
    return g->ops->host_bytes != NULL && slot < g->limits->host_slots
               ? g->ops->host_bytes(g->backend, slot)
               : NULL;
}

uint64_t engine_positions_computed(const struct engine *g)
{
    return g->ops->positions_computed(g->backend);
}
