/* Scalar attention: the definition, one (query position, head) after the other. */
#include "worker/engine/cpu/ops_parts.h"

#include "worker/engine/cpu/cpu_math.h"

#include <assert.h>
#include <string.h>

struct partial { /* softmax-weighted sum of V over some splits, not yet divided */
    float max, sum;
    float v[KV_HEAD_DIM_MAX];
};

/* One position of the store. */
struct stored {
    const struct kv_shape *kv;
    const uint8_t *head; /* the (layer, head) run of its block */
    uint32_t slot;
};

static struct stored stored_at(const struct attention_args *a, uint32_t pos) {
    const uint8_t *block = a->pool + a->blocks[pos / KV_BLOCK_TOKENS] * a->kv->block_stride;
    return (struct stored){.kv = a->kv, .head = block + kv_offset_k(a->kv, a->layer, a->kv_head),
                           .slot = pos % KV_BLOCK_TOKENS};
}

static float number(const struct stored *s, const uint8_t *half, size_t at) {
    if (s->kv->type == ENGINE_KV_INT8)
        return (int8_t)half[at];
    return f16_to_f32(((const uint16_t *)(const void *)half)[at]);
}

static float key(const struct stored *s, uint32_t d) {
    return number(s, s->head, d * KV_BLOCK_TOKENS + s->slot);
}

static float value(const struct stored *s, uint32_t d) {
    return number(s, s->head + kv_half_bytes(s->kv), (size_t)s->slot * s->kv->head_dim + d);
}

static float scale_of(const struct stored *s, bool values) {
    if (s->kv->type != ENGINE_KV_INT8)
        return 1;
    const uint8_t *scales = s->head + 2 * kv_half_bytes(s->kv);
    return ((const float *)(const void *)scales)[values * KV_BLOCK_TOKENS + s->slot];
}

static float score(const struct attention_args *a, const float *q, uint32_t pos, float scale) {
    struct stored s = stored_at(a, pos);
    float acc = 0;
    for (uint32_t d = 0; d < a->kv->head_dim; d++)
        acc = fmaf(q[d], key(&s, d), acc);
    return acc * (scale_of(&s, false) * scale);
}

/* Positions begin .. end - 1, all of one split. */
static void split_sums(const struct attention_args *a, const float *q, uint32_t begin, uint32_t end,
                       struct partial *p) {
    uint32_t head_dim = a->kv->head_dim;
    float scale = 1.0f / sqrtf((float)head_dim);
    float w[ATTENTION_SPLIT], l[8] = {0};
    p->max = -INFINITY;
    for (uint32_t i = 0; i < end - begin; i++) {
        w[i] = score(a, q, begin + i, scale);
        p->max = w[i] > p->max ? w[i] : p->max;
    }
    for (uint32_t d = 0; d < head_dim; d++)
        p->v[d] = 0;
    for (uint32_t i = 0; i < end - begin; i++) {
        struct stored s = stored_at(a, begin + i);
        float weight = exp_f32(w[i] - p->max);
        l[i % 8] += weight;
        weight *= scale_of(&s, true);
        for (uint32_t d = 0; d < head_dim; d++)
            p->v[d] = fmaf(weight, value(&s, d), p->v[d]);
    }
    p->sum = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static void join(struct partial *all, const struct partial *p, uint32_t head_dim) {
    float max = p->max > all->max ? p->max : all->max;
    float keep = exp_f32(all->max - max), take = exp_f32(p->max - max);
    for (uint32_t d = 0; d < head_dim; d++)
        all->v[d] = fmaf(p->v[d], take, all->v[d] * keep);
    all->sum = fmaf(p->sum, take, all->sum * keep);
    all->max = max;
}

static void divide(const struct partial *all, uint32_t head_dim, float *out) {
    for (uint32_t d = 0; d < head_dim; d++)
        out[d] = all->v[d] / all->sum;
}

static void keep(const struct attention_args *a, uint32_t split, uint32_t row,
                 const struct partial *p) {
    float *to = attention_partial(a, split, row);
    memcpy(to, p->v, a->kv->head_dim * sizeof *to);
    to[a->kv->head_dim] = p->max;
    to[a->kv->head_dim + 1] = p->sum;
}

static void attend(const struct attention_args *a, uint32_t row, const float *q, float *out) {
    uint32_t n_keys = a->pos + row / a->n_group + 1;
    uint32_t split = a->partials ? a->split_begin : 0, n = a->partials ? a->split_end : UINT32_MAX;
    struct partial all, part;
    for (; split < n && split * ATTENTION_SPLIT < n_keys; split++) {
        uint32_t begin = split * ATTENTION_SPLIT;
        uint32_t end = n_keys - begin < ATTENTION_SPLIT ? n_keys : begin + ATTENTION_SPLIT;
        split_sums(a, q, begin, end, split == 0 ? &all : &part);
        if (a->partials)
            keep(a, split, row, split == 0 ? &all : &part);
        else if (split != 0)
            join(&all, &part, a->kv->head_dim);
    }
    if (a->partials == NULL)
        divide(&all, a->kv->head_dim, out);
}

static size_t at_row(const struct attention_args *a, uint32_t row, size_t stride) {
    return row / a->n_group * stride + (size_t)(row % a->n_group) * a->kv->head_dim;
}

void attention_scalar(const struct attention_args *a) {
    assert(a->layer < a->kv->n_layers && a->kv_head < a->kv->n_kv_heads);
    assert(a->kv->head_dim <= KV_HEAD_DIM_MAX && a->kv->head_dim % 8 == 0);
    assert(a->partials == NULL || a->n * a->n_group <= ATTENTION_PART_ROWS);
    for (uint32_t row = 0; row < a->n * a->n_group; row++)
        attend(a, row, a->q + at_row(a, row, a->q_stride), a->out + at_row(a, row, a->out_stride));
}

void attention_join_scalar(const struct attention_args *a) {
    uint32_t head_dim = a->kv->head_dim;
    for (uint32_t row = 0; row < a->n * a->n_group; row++) {
        struct partial all, part;
        uint32_t n_keys = a->pos + row / a->n_group + 1;
        for (uint32_t split = 0; split * ATTENTION_SPLIT < n_keys; split++) {
            struct partial *p = split == 0 ? &all : &part;
            const float *from = attention_partial(a, split, row);
            memcpy(p->v, from, head_dim * sizeof *from);
            p->max = from[head_dim];
            p->sum = from[head_dim + 1];
            if (split != 0)
                join(&all, &part, head_dim);
        }
        divide(&all, head_dim, a->out + at_row(a, row, a->out_stride));
    }
}
