/* AVX2 twins of ops_vector.c: lane i % 8 of a vector is "lane" i % 8 there. */
#if defined(__x86_64__)
#include "worker/engine/cpu/ops_parts.h"

#include "worker/engine/cpu/simd_avx2.h"

#include <assert.h>
#include <string.h>

static void quantise_block(struct act_block *out, const float *x) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 v[4], largest = _mm256_setzero_ps();
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        largest = _mm256_max_ps(_mm256_and_ps(v[i], no_sign), largest); /* NaN: the second one */
    }
    float max = lane_max8(largest);
    bool tiny = max < 1e-30f;
    __m256 scale = _mm256_set1_ps(tiny ? 0 : 127.0f / max);
    __m256i q[4];
    UNROLL for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], scale));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]),
                                       _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    bytes = _mm256_max_epi8(bytes, _mm256_set1_epi8(-127));
    _mm256_storeu_si256((__m256i *)(void *)out->q, bytes);
    __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)),
                                   _mm256_setzero_si256()); /* of q + 128 */
    __m128i s = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    int32_t sum = _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 2) - 32 * 128;
    out->d = tiny ? 0 : max / 127.0f;
    out->s = out->d * (float)sum;
    out->lift = -128 * sum;
}

void quantise_avx2(struct act_block *out, const float *x, uint32_t n) {
    uint32_t at = 0;
    for (; at + PACKED_COLS <= n; at += PACKED_COLS)
        quantise_block(out++, x + at);
    if (at < n) {
        float t[PACKED_COLS] = {0};
        memcpy(t, x + at, (n - at) * sizeof *x);
        quantise_block(out, t);
    }
}

void rmsnorm_avx2(float *out, const float *x, const float *w, uint32_t n, float eps) {
    uint32_t i = 0, whole = n & ~7u;
    __m256 acc = _mm256_setzero_ps();
    for (; i < whole; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        acc = _mm256_fmadd_ps(v, v, acc);
    }
    if (i < n) {
        __m256 v = load_tail8(x + i, n - i, 0); /* adding 0 * 0 changes no lane */
        acc = _mm256_fmadd_ps(v, v, acc);
    }
    float scale = 1.0f / sqrtf(lane_sum8(acc) / (float)n + eps);
    for (i = 0; i < whole; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(v, _mm256_loadu_ps(w + i)));
    }
    for (; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

void rope_avx2(float *x, uint32_t n_heads, uint32_t head_dim, const float *row, uint32_t n_rot) {
    assert(n_rot % 2 == 0 && n_rot <= head_dim);
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const float *cosines = row, *sines = row + n_rot / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        uint32_t i = 0;
        for (; i + 4 <= n_rot / 2; i += 4) {
            __m256 c = _mm256_castps128_ps256(_mm_loadu_ps(cosines + i));
            __m256 s = _mm256_castps128_ps256(_mm_loadu_ps(sines + i));
            c = _mm256_permutevar8x32_ps(c, twice);
            s = _mm256_permutevar8x32_ps(s, twice);
            __m256 v = _mm256_loadu_ps(x + 2 * i);
            __m256 other = _mm256_permute_ps(v, 0xb1); /* (b, a) of each pair */
            v = _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(other, s)); /* a c - b s, b c + a s */
            _mm256_storeu_ps(x + 2 * i, v);
        }
        for (; i < n_rot / 2; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = fmaf(a, cosines[i], -(b * sines[i]));
            x[2 * i + 1] = fmaf(b, cosines[i], a * sines[i]);
        }
    }
}

ALWAYS_INLINE __m256 silu_mul8(__m256 gate, __m256 up) {
    __m256 e = exp8(_mm256_xor_ps(gate, _mm256_set1_ps(-0.0f)));
    return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), up);
}

void silu_mul_avx2(float *out, const float *gate, const float *up, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, silu_mul8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i < n)
        store_tail8(out + i, n - i,
                    silu_mul8(load_tail8(gate + i, n - i, 0), load_tail8(up + i, n - i, 0)));
}

void add_avx2(float *x, const float *y, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}

ALWAYS_INLINE __m128i to_f16x8(__m256 x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

void to_f16_avx2(uint16_t *out, const float *x, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i), to_f16x8(_mm256_loadu_ps(x + i)));
    if (i < n) {
        uint16_t t[8];
        _mm_storeu_si128((__m128i *)(void *)t, to_f16x8(load_tail8(x + i, n - i, 0)));
        memcpy(out + i, t, (n - i) * sizeof *t);
    }
}

void from_f16_avx2(float *out, const uint16_t *x, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, load_f16x8(x + i));
    if (i < n) {
        uint16_t t[8] = {0};
        memcpy(t, x + i, (n - i) * sizeof *t);
        store_tail8(out + i, n - i, load_f16x8(t));
    }
}

/* n (a multiple of 8) values with one scale. Returns the scale. */
static float quantise_head(int8_t *out, const float *x, uint32_t n) {
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 largest = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i += 8)
        largest = _mm256_max_ps(_mm256_and_ps(_mm256_loadu_ps(x + i), no_sign), largest);
    float max = lane_max8(largest);
    bool tiny = max < 1e-30f;
    __m256 scale = _mm256_set1_ps(tiny ? 0 : 127.0f / max);
    for (uint32_t i = 0; i < n; i += 8) {
        __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), scale));
        __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
        __m128i b = _mm_max_epi8(_mm_packs_epi16(h, h), _mm_set1_epi8(-127));
        _mm_storel_epi64((__m128i *)(void *)(out + i), b);
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

void kv_store_avx2(const struct kv_shape *kv, uint8_t *block, uint32_t layer, uint32_t kv_head,
                   uint32_t slot, const float *k, const float *v) {
    assert(layer < kv->n_layers && kv_head < kv->n_kv_heads && slot < KV_BLOCK_TOKENS);
    if (kv->type == ENGINE_KV_INT8) {
        kv_store_int8(kv, block, layer, kv_head, slot, k, v);
        return;
    }
    uint16_t *to_k = (uint16_t *)(void *)(block + kv_offset_k(kv, layer, kv_head)) + slot;
    uint16_t *to_v = (uint16_t *)(void *)(block + kv_offset_v(kv, layer, kv_head)) +
                     (size_t)slot * kv->head_dim;
    uint16_t half[KV_HEAD_DIM_MAX];
    to_f16_avx2(half, k, kv->head_dim);
    for (uint32_t d = 0; d < kv->head_dim; d++)
        to_k[d * KV_BLOCK_TOKENS] = half[d];
    to_f16_avx2(to_v, v, kv->head_dim);
}

/* Largest of n values (a multiple of 32), -inf where all are NaN: max_ps(x, m) is m where x is. */
static float largest_of(const float *x, uint32_t n) {
    __m256 m[4];
    UNROLL for (int k = 0; k < 4; k++)
        m[k] = _mm256_set1_ps(-INFINITY);
    for (uint32_t i = 0; i < n; i += 32)
        UNROLL for (int k = 0; k < 4; k++)
            m[k] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * k), m[k]);
    return lane_max8(_mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
}

#define ARGMAX_RUN 2048 /* only the run that holds the largest is read a second time */

uint32_t argmax_avx2(const float *x, uint32_t n) {
    float best = -INFINITY;
    uint32_t at = 0, whole = n & ~31u, size;
    for (uint32_t i = 0; i < whole; i += size) {
        size = whole - i < ARGMAX_RUN ? whole - i : ARGMAX_RUN;
        float largest = largest_of(x + i, size);
        at = largest > best ? i : at;
        best = largest > best ? largest : best;
    }
    for (uint32_t i = whole; i < n; i++) {
        at = x[i] > best ? i : at;
        best = x[i] > best ? x[i] : best;
    }
    if (best == -INFINITY)
        return 0;
    while (x[at] != best)
        at++;
    return at;
}

struct exp_sum {
    __m256d lo, hi; /* lanes 0 .. 3 and 4 .. 7 */
};

/* 8 more weights; a NaN and what is too small for exp are 0. */
ALWAYS_INLINE void add_weights(struct exp_sum *s, __m256 z) {
    __m256 w = exp8_masked(z, _mm256_cmp_ps(z, _mm256_set1_ps(EXP_MIN), _CMP_GE_OQ));
    s->lo = _mm256_add_pd(s->lo, _mm256_cvtps_pd(_mm256_castps256_ps128(w)));
    s->hi = _mm256_add_pd(s->hi, _mm256_cvtps_pd(_mm256_extractf128_ps(w, 1)));
}

ALWAYS_INLINE void sum_whole(struct exp_sum *s, const float *x, uint32_t n, __m256 max, __m256 t,
                             const bool divide) {
    for (uint32_t i = 0; i + 8 <= n; i += 8) {
        __m256 z = _mm256_sub_ps(_mm256_loadu_ps(x + i), max);
        add_weights(s, divide ? _mm256_div_ps(z, t) : z);
    }
}

double sum_exp_avx2(const float *x, uint32_t n, float max, float temperature) {
    const __m256 m = _mm256_set1_ps(max), t = _mm256_set1_ps(temperature);
    struct exp_sum s = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    if (temperature == 1.0f)
        sum_whole(&s, x, n, m, t, false);
    else
        sum_whole(&s, x, n, m, t, true);
    if (n % 8 != 0) {
        __m256 v = load_tail8(x + n / 8 * 8, n % 8, -INFINITY);
        add_weights(&s, _mm256_div_ps(_mm256_sub_ps(v, m), t));
    }
    double l[4];
    _mm256_storeu_pd(l, _mm256_add_pd(s.lo, s.hi));
    return (l[0] + l[2]) + (l[1] + l[3]);
}

uint32_t select_avx2(const float *x, uint32_t n, float lower, float upper, int32_t *ids) {
    const __m256 lo = _mm256_set1_ps(lower), hi = _mm256_set1_ps(upper);
    const __m256 none = _mm256_set1_ps(-INFINITY);
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 v = n - i >= 8 ? _mm256_loadu_ps(x + i) : load_tail8(x + i, n - i, -INFINITY);
        __m256 in = _mm256_cmp_ps(v, lo, _CMP_GE_OQ);
        in = _mm256_and_ps(in, _mm256_cmp_ps(v, hi, _CMP_LT_OQ));
        in = _mm256_and_ps(in, _mm256_cmp_ps(v, none, _CMP_GT_OQ));
        for (unsigned hits = (unsigned)_mm256_movemask_ps(in); hits != 0; hits &= hits - 1)
            ids[found++] = (int32_t)(i + (uint32_t)__builtin_ctz(hits));
    }
    return found;
}
#else
typedef int ops_vector_avx2_is_empty;
#endif
