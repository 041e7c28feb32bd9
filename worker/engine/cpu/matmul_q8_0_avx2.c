/* Q8_0 row groups. Few tokens: |w| x sign(q, w) by maddubs (two products of at most 128 * 127 fit
 * int16, no saturation), each summed to int32 at once. Many tokens: weights and activations
 * widened to int16 and multiplied by madd, whose sums are int32 already; the widening is paid
 * once per group. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx2.h"

#include "worker/engine/cpu/simd_avx2.h"

#include <string.h>

#define TILE 4
#define CHUNK 12 /* blocks widened at a time: 13 KiB */

struct wide_block { /* a block of a row group as int16: one int32 lane is a row with 2 columns */
    __m256i w[16][2]; /* pair of columns, rows 0-7 and 8-15 */
    float d[PACKED_ROWS];
};

struct wide_act { /* a block of activations as int16 */
    __m256i q[2];
};

ALWAYS_INLINE __m256i load_bytes(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

ALWAYS_INLINE __m256 load_half8(const uint8_t *p) {
    return load_f16x8((const uint16_t *)(const void *)p);
}

ALWAYS_INLINE __m256i broadcast4(const void *p) {
    int32_t q;
    memcpy(&q, p, sizeof q);
    return _mm256_set1_epi32(q);
}

ALWAYS_INLINE __m256 step(__m256 acc, __m256i sum, __m256 d, const struct act_block *a) {
    __m256 scale = _mm256_mul_ps(d, _mm256_broadcast_ss(&a->d));
    return _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sum), acc);
}

ALWAYS_INLINE void direct(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                          const int T, float (*out)[PACKED_ROWS]) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 acc[TILE][2];
    UNROLL for (int t = 0; t < T; t++)
        acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b++, group += PACKED_Q8_0_BYTES) {
        __m256i sum[TILE][2];
        UNROLL for (int i = 0; i < PACKED_Q8_0_BYTES; i += 64)
            _mm_prefetch((const char *)group + PREFETCH_BYTES + i, _MM_HINT_T0);
        UNROLL for (int i = 0; i < 16; i++) { /* run of 4 columns i / 2, rows half i % 2 */
            __m256i w = load_bytes(group + 32 + 32 * i), size = _mm256_abs_epi8(w);
            UNROLL for (int t = 0; t < T; t++) {
                __m256i q = broadcast4(act[(size_t)t * n_blocks + b].q + 4 * (i / 2));
                __m256i p = _mm256_maddubs_epi16(size, _mm256_sign_epi8(q, w));
                p = _mm256_madd_epi16(p, ones);
                sum[t][i % 2] = i > 1 ? _mm256_add_epi32(sum[t][i % 2], p) : p;
                KEEP(sum[t][i % 2]);
            }
        }
        UNROLL for (int h = 0; h < 2; h++) {
            __m256 d = load_half8(group + 16 * h);
            UNROLL for (int t = 0; t < T; t++)
                acc[t][h] = step(acc[t][h], sum[t][h], d, act + (size_t)t * n_blocks + b);
        }
    }
    UNROLL for (int t = 0; t < T; t++) {
        _mm256_storeu_ps(out[t], acc[t][0]);
        _mm256_storeu_ps(out[t] + 8, acc[t][1]);
    }
}

static void widen(struct wide_block *to, const uint8_t *group, uint32_t n) {
    for (uint32_t b = 0; b < n; b++, to++, group += PACKED_Q8_0_BYTES) {
        for (int i = 0; i < 16; i++) {
            __m256i w = load_bytes(group + 32 + 32 * i);
            /* rows 0-3 and 4-7, each columns (01 23) as int32 */
            __m256 e = _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm256_castsi256_si128(w)));
            __m256 f = _mm256_castsi256_ps(_mm256_cvtepi8_epi16(_mm256_extracti128_si256(w, 1)));
            __m256i first = _mm256_castps_si256(_mm256_shuffle_ps(e, f, 0x88));
            __m256i second = _mm256_castps_si256(_mm256_shuffle_ps(e, f, 0xdd));
            to->w[i / 2 * 2][i % 2] = _mm256_permute4x64_epi64(first, 0xd8);
            to->w[i / 2 * 2 + 1][i % 2] = _mm256_permute4x64_epi64(second, 0xd8);
        }
        _mm256_storeu_ps(to->d, load_half8(group));
        _mm256_storeu_ps(to->d + 8, load_half8(group + 16));
    }
}

ALWAYS_INLINE void panel_tile(const struct wide_block *panel, uint32_t n,
                              const struct act_block *act, size_t stride, const int T,
                              float (*out)[PACKED_ROWS]) {
    struct wide_act wide[TILE];
    for (uint32_t b = 0; b < n; b++, panel++, act++) {
        __m256i sum[TILE][2];
        UNROLL for (int t = 0; t < T; t++) {
            __m256i q = load_bytes((const uint8_t *)act[(size_t)t * stride].q);
            wide[t].q[0] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
            wide[t].q[1] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1));
            sum[t][0] = sum[t][1] = _mm256_setzero_si256();
        }
        for (int pair = 0; pair < 16; pair++) {
            __m256i w0 = panel->w[pair][0], w1 = panel->w[pair][1];
            UNROLL for (int t = 0; t < T; t++) {
                __m256i q = broadcast4((const uint8_t *)&wide[t] + 4 * pair);
                sum[t][0] = _mm256_add_epi32(sum[t][0], _mm256_madd_epi16(w0, q));
                sum[t][1] = _mm256_add_epi32(sum[t][1], _mm256_madd_epi16(w1, q));
                KEEP(sum[t][0]);
                KEEP(sum[t][1]);
            }
        }
        UNROLL for (int h = 0; h < 2; h++) {
            __m256 d = _mm256_loadu_ps(panel->d + 8 * h);
            UNROLL for (int t = 0; t < T; t++) {
                float *to = out[t] + 8 * h;
                const struct act_block *a = act + (size_t)t * stride;
                _mm256_storeu_ps(to, step(_mm256_loadu_ps(to), sum[t][h], d, a));
            }
        }
    }
}

static void group_by_panel(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                           uint32_t n, float (*acc)[PACKED_ROWS]) {
    struct wide_block panel[CHUNK];
    for (uint32_t b = 0; b < n_blocks; b += CHUNK) {
        uint32_t n_chunk = n_blocks - b < CHUNK ? n_blocks - b : CHUNK, t = 0;
        widen(panel, group + (size_t)b * PACKED_Q8_0_BYTES, n_chunk);
        for (; t + TILE <= n; t += TILE)
            panel_tile(panel, n_chunk, act + (size_t)t * n_blocks + b, n_blocks, TILE, acc + t);
        for (; t < n; t++)
            panel_tile(panel, n_chunk, act + (size_t)t * n_blocks + b, n_blocks, 1, acc + t);
    }
}

void group_q8_0_avx2(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                     uint32_t n, float (*acc)[PACKED_ROWS]) {
    if (n >= PANEL_TOKENS) {
        group_by_panel(group, n_blocks, act, n, acc);
        return;
    }
    uint32_t t = 0;
    for (; t + 4 <= n; t += 4)
        direct(group, n_blocks, act + (size_t)t * n_blocks, 4, acc + t);
    act += (size_t)t * n_blocks;
    if (n - t == 3)
        direct(group, n_blocks, act, 3, acc + t);
    else if (n - t == 2)
        direct(group, n_blocks, act, 2, acc + t);
    else if (n - t == 1)
        direct(group, n_blocks, act, 1, acc + t);
}
#else
typedef int matmul_q8_0_avx2_is_empty;
#endif
