#include "worker/engine/step/plan.h"

#include "base/mem.h"
#include "worker/engine/step/carve.h"

#include <assert.h>
#include <string.h>

static size_t row_list_bytes(const struct plan_caps *c)
{
    size_t mask = (c->n_vocab + 63) / 64 * sizeof(uint64_t);
    return c->n_ctx * sizeof(int32_t) + mask + SAMPLE_BIAS_MAX * sizeof(struct sample_bias) +
           SAMPLE_BANNED_MAX * sizeof(int32_t) + 4 * 8; /* each list is rounded up to 8 */
}

static void carve_arrays(struct plan *p, struct carve *c)
{
    const struct plan_caps *k = &p->caps;
    uint32_t per_span = (k->n_ctx + k->block_tokens - 1) / k->block_tokens;
    p->spans = carve_take(c, k->max_spans, sizeof *p->spans);
    p->first = carve_take(c, k->max_spans, sizeof *p->first);
    p->rows = carve_take(c, k->max_rows, sizeof *p->rows);
    p->row_out = carve_take(c, k->max_rows, sizeof *p->row_out);
    p->outs = carve_take(c, k->max_rows, sizeof *p->outs);
    p->token_out = carve_take(c, k->max_tokens, sizeof *p->token_out);
    p->ids = carve_take(c, k->max_tokens, sizeof *p->ids);
    p->blocks = carve_take(c, (size_t)k->max_spans * per_span, sizeof *p->blocks);
    p->arena_bytes = k->max_rows * row_list_bytes(k);
    p->arena = carve_take(c, p->arena_bytes, 1);
}

int plan_init(struct plan *p, const struct plan_caps *caps, struct err *e)
{
    memset(p, 0, sizeof *p);
    p->caps = *caps;
    struct carve c = {0};
    carve_arrays(p, &c);
    p->map_bytes = c.used;
    p->map = mem_map(c.used);
    if (p->map == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the plan of a step (%zu bytes)", c.used);
    c = (struct carve){.base = p->map};
    carve_arrays(p, &c);
    return 0;
}

void plan_deinit(struct plan *p)
{
    if (p->map != NULL)
        mem_unmap(p->map, p->map_bytes);
    memset(p, 0, sizeof *p);
}

/* Copies a list into the arena; NULL for an empty one or when the arena is full (then *bad is set).
 */
static const void *keep(struct plan *p, const void *src, size_t bytes, bool *bad)
{
    if (src == NULL || bytes == 0)
        return NULL;
    size_t room = (bytes + 7) & ~(size_t)7;
    if (room > p->arena_bytes - p->arena_used) {
        *bad = true;
        return NULL;
    }
    void *dst = p->arena + p->arena_used;
    p->arena_used += room;
    memcpy(dst, src, bytes);
    return dst;
}

static int copy_params(struct plan *p, struct sample_params *q)
{
    bool bad = false;
    size_t mask_bytes = (p->caps.n_vocab + 63) / 64 * sizeof(uint64_t);
    q->history = keep(p, q->history, q->n_history * sizeof *q->history, &bad);
    q->bias = keep(p, q->bias, q->n_bias * sizeof *q->bias, &bad);
    q->banned = keep(p, q->banned, q->n_banned * sizeof *q->banned, &bad);
    q->mask = keep(p, q->mask, mask_bytes, &bad);
    return bad ? -1 : 0;
}

static void copy_spans(struct plan *p, const struct engine_step *step)
{
    uint32_t *blocks = p->blocks;
    p->n_spans = step->n_spans;
    p->n_tokens = 0;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        struct engine_span *s = &p->spans[i];
        *s = step->spans[i];
        p->first[i] = p->n_tokens;
        assert(s->n <= p->caps.max_tokens - p->n_tokens);
        memcpy(p->ids + p->n_tokens, s->ids, s->n * sizeof *s->ids);
        s->ids = p->ids + p->n_tokens;
        p->n_tokens += s->n;
        /* Entries past the span's last position are never read: a longer table is cut. */
        s->n_blocks = (s->pos + s->n + p->caps.block_tokens - 1) / p->caps.block_tokens;
        memcpy(blocks, s->blocks, s->n_blocks * sizeof *blocks);
        s->blocks = blocks;
        blocks += s->n_blocks;
    }
}

static int copy_rows(struct plan *p, const struct engine_step *step)
{
    p->n_rows = step->n_rows;
    p->n_outs = 0;
    p->arena_used = 0;
    for (uint32_t t = 0; t < p->n_tokens; t++)
        p->token_out[t] = PLAN_NO_OUT;
    for (uint32_t i = 0; i < step->n_rows; i++) {
        struct engine_row *r = &p->rows[i];
        *r = step->rows[i];
        if (r->kind == ENGINE_ROW_SAMPLE && copy_params(p, &r->params) < 0)
            return -1;
        uint32_t token = p->first[r->span] + r->index;
        uint32_t o = p->token_out[token];
        if (o == PLAN_NO_OUT) {
            o = p->token_out[token] = p->n_outs++;
            p->outs[o] = (struct plan_out){.span = r->span, .index = r->index, .token = token};
        }
        p->row_out[i] = o;
        if (r->kind == ENGINE_ROW_HIDDEN)
            p->outs[o].hidden = true;
        else
            p->outs[o].logits = true;
    }
    return 0;
}

int plan_copy(struct plan *p, const struct engine_step *step)
{
    assert(step->n_spans <= p->caps.max_spans && step->n_rows <= p->caps.max_rows);
    p->id = step->id;
    p->rank = step->rank;
    copy_spans(p, step);
    return copy_rows(p, step);
}

bool plan_wants_logits(const struct plan *p)
{
    for (uint32_t o = 0; o < p->n_outs; o++)
        if (p->outs[o].logits)
            return true;
    return false;
}
