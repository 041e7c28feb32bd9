/* Q4_1 row groups. In one int32 lane lie 4 columns of a row: maddubs makes two int16 sums of two
 * products each, and the 8 of a block are summed in int16 (2 * 15 * 127 * 8 = 30,480 fits), so one
 * madd, conversion and two fma serve 32 columns of 8 rows. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx2.h"

#include "worker/engine/cpu/simd_avx2.h"

#include <string.h>

#define TILE 4         /* tokens of a register tile: 8 int16 accumulators */
#define CHUNK 24       /* blocks unpacked at a time: 15 KiB, half of the smallest L1 */

struct panel_block { /* a block of a row group, unpacked */
    __m256i w[8][2]; /* run of 4 columns, rows 0-7 and 8-15; unsigned bytes */
    float d[PACKED_ROWS], m[PACKED_ROWS];
};

ALWAYS_INLINE __m256i load_bytes(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

ALWAYS_INLINE __m256 load_half8(const uint8_t *p) {
    return load_f16x8((const uint16_t *)(const void *)p);
}

ALWAYS_INLINE __m256i four_columns(const struct act_block *a, int run) {
    int32_t q;
    memcpy(&q, a->q + 4 * run, sizeof q);
    return _mm256_set1_epi32(q);
}

/* The two float steps of a block: acc = fma(m, s, fma(d * da, (float)sum, acc)). */
ALWAYS_INLINE __m256 step(__m256 acc, __m256i sum16, __m256 d, __m256 m,
                          const struct act_block *a) {
    __m256 sum = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum16, _mm256_set1_epi16(1)));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_broadcast_ss(&a->d)), sum, acc);
    return _mm256_fmadd_ps(m, _mm256_broadcast_ss(&a->s), acc);
}

/* T tokens straight from the packed bytes: few tokens are bound by memory, not by unpacking. */
ALWAYS_INLINE void direct(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                          const int T, float (*out)[PACKED_ROWS]) {
    const __m256i low = _mm256_set1_epi8(15);
    __m256 acc[TILE][2];
    UNROLL for (int t = 0; t < T; t++)
        acc[t][0] = acc[t][1] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b++, group += PACKED_Q4_1_BYTES) {
        __m256i sum[TILE][2];
        UNROLL for (int i = 0; i < PACKED_Q4_1_BYTES; i += 64)
            _mm_prefetch((const char *)group + PREFETCH_BYTES + i, _MM_HINT_T0);
        UNROLL for (int run = 0; run < 8; run++) { /* an even one low, the odd one behind it high */
            const uint8_t *at = group + 64 + run / 2 * 64;
            __m256i w0 = load_bytes(at), w1 = load_bytes(at + 32);
            w0 = _mm256_and_si256(run % 2 ? _mm256_srli_epi16(w0, 4) : w0, low);
            w1 = _mm256_and_si256(run % 2 ? _mm256_srli_epi16(w1, 4) : w1, low);
            UNROLL for (int t = 0; t < T; t++) {
                __m256i q = four_columns(act + (size_t)t * n_blocks + b, run);
                __m256i p0 = _mm256_maddubs_epi16(w0, q), p1 = _mm256_maddubs_epi16(w1, q);
                sum[t][0] = run ? _mm256_add_epi16(sum[t][0], p0) : p0;
                sum[t][1] = run ? _mm256_add_epi16(sum[t][1], p1) : p1;
                KEEP(sum[t][0]);
                KEEP(sum[t][1]);
            }
        }
        UNROLL for (int h = 0; h < 2; h++) {
            __m256 d = load_half8(group + 16 * h), m = load_half8(group + 32 + 16 * h);
            UNROLL for (int t = 0; t < T; t++)
                acc[t][h] = step(acc[t][h], sum[t][h], d, m, act + (size_t)t * n_blocks + b);
        }
    }
    UNROLL for (int t = 0; t < T; t++) {
        _mm256_storeu_ps(out[t], acc[t][0]);
        _mm256_storeu_ps(out[t] + 8, acc[t][1]);
    }
}

static void unpack(struct panel_block *to, const uint8_t *group, uint32_t n) {
    const __m256i low = _mm256_set1_epi8(15);
    for (uint32_t b = 0; b < n; b++, to++, group += PACKED_Q4_1_BYTES) {
        UNROLL for (int i = 0; i < 8; i++) {
            __m256i w = load_bytes(group + 64 + 32 * i);
            to->w[i / 2 * 2][i % 2] = _mm256_and_si256(w, low);
            to->w[i / 2 * 2 + 1][i % 2] = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
        }
        for (int h = 0; h < 2; h++) {
            _mm256_storeu_ps(to->d + 8 * h, load_half8(group + 16 * h));
            _mm256_storeu_ps(to->m + 8 * h, load_half8(group + 32 + 16 * h));
        }
    }
}

/* T tokens against n unpacked blocks; `out` goes on where the chunk before left it. */
ALWAYS_INLINE void panel_tile(const struct panel_block *panel, uint32_t n,
                              const struct act_block *act, size_t stride, const int T,
                              float (*out)[PACKED_ROWS]) {
    for (uint32_t b = 0; b < n; b++, panel++, act++) {
        __m256i sum[TILE][2];
        UNROLL for (int run = 0; run < 8; run++) {
            __m256i w0 = panel->w[run][0], w1 = panel->w[run][1];
            UNROLL for (int t = 0; t < T; t++) {
                __m256i q = four_columns(act + (size_t)t * stride, run);
                __m256i p0 = _mm256_maddubs_epi16(w0, q), p1 = _mm256_maddubs_epi16(w1, q);
                sum[t][0] = run ? _mm256_add_epi16(sum[t][0], p0) : p0;
                sum[t][1] = run ? _mm256_add_epi16(sum[t][1], p1) : p1;
                KEEP(sum[t][0]);
                KEEP(sum[t][1]);
            }
        }
        UNROLL for (int h = 0; h < 2; h++) {
            __m256 d = _mm256_loadu_ps(panel->d + 8 * h), m = _mm256_loadu_ps(panel->m + 8 * h);
            UNROLL for (int t = 0; t < T; t++) {
                float *to = out[t] + 8 * h;
                const struct act_block *a = act + (size_t)t * stride;
                _mm256_storeu_ps(to, step(_mm256_loadu_ps(to), sum[t][h], d, m, a));
            }
        }
    }
}

static void group_by_panel(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                           uint32_t n, float (*acc)[PACKED_ROWS]) {
    struct panel_block panel[CHUNK];
    for (uint32_t b = 0; b < n_blocks; b += CHUNK) {
        uint32_t n_chunk = n_blocks - b < CHUNK ? n_blocks - b : CHUNK, t = 0;
        unpack(panel, group + (size_t)b * PACKED_Q4_1_BYTES, n_chunk);
        for (; t + TILE <= n; t += TILE)
            panel_tile(panel, n_chunk, act + (size_t)t * n_blocks + b, n_blocks, TILE, acc + t);
        for (; t < n; t++)
            panel_tile(panel, n_chunk, act + (size_t)t * n_blocks + b, n_blocks, 1, acc + t);
    }
}

void group_q4_1_avx2(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
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
typedef int matmul_q4_1_avx2_is_empty;
#endif
