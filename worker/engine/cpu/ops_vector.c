/* Scalar operations over rows. "Lanes" stand for those of the AVX2 twin: value i belongs to lane
 * i % 8, and lane_sum is the twin's order of adding lanes. */
#include "worker/engine/cpu/ops_parts.h"

#include "worker/engine/cpu/cpu_math.h"

#include <assert.h>
#include <string.h>

#define LANES 8
#define QUANTISE_TINY 1e-30f /* below, 127 / max would overflow; such a block is zero */

static float lane_sum(const float l[LANES]) {
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

static void quantise_block(struct act_block *out, const float *x, uint32_t n) {
    float max = 0;
    for (uint32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        max = a > max ? a : max;
    }
    bool tiny = max < QUANTISE_TINY;
    float scale = tiny ? 0 : 127.0f / max;
    int32_t sum = 0;
    for (uint32_t i = 0; i < PACKED_COLS; i++) {
        float v = i < n ? x[i] * scale : 0;
        /* NaN and infinity become -127, as in the twin's saturating conversions */
        out->q[i] = v != v ? -127 : (int8_t)((v + EXP_ROUND) - EXP_ROUND);
        sum += out->q[i];
    }
    out->d = tiny ? 0 : max / 127.0f;
    out->s = out->d * (float)sum;
    out->lift = -128 * sum;
}

void quantise_scalar(struct act_block *out, const float *x, uint32_t n) {
    for (uint32_t at = 0; at < n; at += PACKED_COLS)
        quantise_block(out++, x + at, n - at < PACKED_COLS ? n - at : PACKED_COLS);
}

void rmsnorm_scalar(float *out, const float *x, const float *w, uint32_t n, float eps) {
    float lanes[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        lanes[i % LANES] = fmaf(x[i], x[i], lanes[i % LANES]);
    float scale = 1.0f / sqrtf(lane_sum(lanes) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

void rope_scalar(float *x, uint32_t n_heads, uint32_t head_dim, const float *row, uint32_t n_rot) {
    assert(n_rot % 2 == 0 && n_rot <= head_dim);
    const float *cosines = row, *sines = row + n_rot / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        for (uint32_t i = 0; i < n_rot / 2; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = fmaf(a, cosines[i], -(b * sines[i]));
            x[2 * i + 1] = fmaf(b, cosines[i], a * sines[i]);
        }
    }
}

void silu_mul_scalar(float *out, const float *gate, const float *up, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

void add_scalar(float *x, const float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] += y[i];
}

void to_f16_scalar(uint16_t *out, const float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = f32_to_f16(x[i]);
}

void from_f16_scalar(float *out, const uint16_t *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        out[i] = f16_to_f32(x[i]);
}

/* n values with one scale, rounded as quantise_block does. Returns the scale. */
static float quantise_head(int8_t *out, const float *x, uint32_t n) {
    float max = 0;
    for (uint32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        max = a > max ? a : max;
    }
    bool tiny = max < QUANTISE_TINY;
    float scale = tiny ? 0 : 127.0f / max;
    for (uint32_t i = 0; i < n; i++) {
        float v = x[i] * scale;
        out[i] = v != v ? -127 : (int8_t)((v + EXP_ROUND) - EXP_ROUND);
    }
    return tiny ? 0 : max / 127.0f;
}

static void kv_store_int8(const struct kv_shape *kv, uint8_t *block, uint32_t layer,
                          uint32_t kv_head, uint32_t slot, const float *k, const float *v) {
    float *scales = (float *)(void *)(block + kv_offset_scales(kv, layer, kv_head)) + slot;
    int8_t *to_k = (int8_t *)block + kv_offset_k(kv, layer, kv_head) + slot;
    int8_t *to_v = (int8_t *)block + kv_offset_v(kv, layer, kv_head) + (size_t)slot * kv->head_dim;
    int8_t q[KV_HEAD_DIM_MAX];
    scales[0] = quantise_head(q, k, kv->head_dim);
    for (uint32_t d = 0; d < kv->head_dim; d++)
        to_k[d * KV_BLOCK_TOKENS] = q[d];
    scales[KV_BLOCK_TOKENS] = quantise_head(to_v, v, kv->head_dim);
}

void kv_store_scalar(const struct kv_shape *kv, uint8_t *block, uint32_t layer, uint32_t kv_head,
                     uint32_t slot, const float *k, const float *v) {
    assert(layer < kv->n_layers && kv_head < kv->n_kv_heads && slot < KV_BLOCK_TOKENS);
    if (kv->type == ENGINE_KV_INT8) {
        kv_store_int8(kv, block, layer, kv_head, slot, k, v);
        return;
    }
    uint16_t *to_k = (uint16_t *)(void *)(block + kv_offset_k(kv, layer, kv_head)) + slot;
    uint16_t *to_v = (uint16_t *)(void *)(block + kv_offset_v(kv, layer, kv_head)) +
                     (size_t)slot * kv->head_dim;
    for (uint32_t d = 0; d < kv->head_dim; d++)
        to_k[d * KV_BLOCK_TOKENS] = f32_to_f16(k[d]);
    to_f16_scalar(to_v, v, kv->head_dim);
}

uint32_t argmax_scalar(const float *x, uint32_t n) {
    float best = -INFINITY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > best) {
            best = x[i];
            at = i;
        }
    }
    return at;
}

double sum_exp_scalar(const float *x, uint32_t n, float max, float temperature) {
    double l[LANES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        float z = (x[i] - max) / temperature;
        if (z == z)
            l[i % LANES] += exp_f32(z);
    }
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

uint32_t select_scalar(const float *x, uint32_t n, float lower, float upper, int32_t *ids) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        if (x[i] >= lower && x[i] < upper && x[i] > -INFINITY)
            ids[found++] = (int32_t)i;
    return found;
}
