/* Scalar attention: the definition, one (query position, head) after the other. */
#include "worker/engine/cpu/ops_parts.h"

#include "worker/engine/cpu/cpu_math.h"

#include <assert.h>

struct partial { /* softmax-weighted sum of V over some splits, not yet divided */
    float max, sum;
    float v[KV_HEAD_DIM_MAX];
};

static const uint16_t *head_of(const struct attention_args *a, uint32_t pos) {
    const uint8_t *block = a->pool + a->blocks[pos / KV_BLOCK_TOKENS] * a->kv->block_stride;
    return (const uint16_t *)(const void *)(block + kv_offset_k(a->kv, a->layer, a->kv_head));
}

static float score(const struct attention_args *a, const float *q, uint32_t pos, float scale) {
    const uint16_t *k = head_of(a, pos) + pos % KV_BLOCK_TOKENS;
    float acc = 0;
    for (uint32_t d = 0; d < a->kv->head_dim; d++)
        acc = fmaf(q[d], f16_to_f32(k[d * KV_BLOCK_TOKENS]), acc);
    return acc * scale;
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
        const uint16_t *v = head_of(a, begin + i) + KV_BLOCK_TOKENS * head_dim +
                            (begin + i) % KV_BLOCK_TOKENS * head_dim;
        w[i] = exp_f32(w[i] - p->max);
        l[i % 8] += w[i];
        for (uint32_t d = 0; d < head_dim; d++)
            p->v[d] = fmaf(w[i], f16_to_f32(v[d]), p->v[d]);
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

static void attend(const struct attention_args *a, const float *q, uint32_t n_keys, float *out) {
    struct partial all, part;
    for (uint32_t begin = 0; begin < n_keys; begin += ATTENTION_SPLIT) {
        uint32_t end = n_keys - begin < ATTENTION_SPLIT ? n_keys : begin + ATTENTION_SPLIT;
        split_sums(a, q, begin, end, begin == 0 ? &all : &part);
        if (begin != 0)
            join(&all, &part, a->kv->head_dim);
    }
    for (uint32_t d = 0; d < a->kv->head_dim; d++)
        out[d] = all.v[d] / all.sum;
}

void attention_scalar(const struct attention_args *a) {
    assert(a->layer < a->kv->n_layers && a->kv_head < a->kv->n_kv_heads);
    assert(a->kv->head_dim <= KV_HEAD_DIM_MAX && a->kv->head_dim % 8 == 0);
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t g = 0; g < a->n_group; g++) {
            size_t at = (size_t)g * a->kv->head_dim;
            attend(a, a->q + i * a->q_stride + at, a->pos + i + 1, a->out + i * a->out_stride + at);
        }
    }
}
