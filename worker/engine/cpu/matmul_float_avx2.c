/* Row groups of F32, F16 and BF16 weights. The weights keep the file's precision: they are widened
 * to float, which is exact, and met with da * (float)q by one fma chain per row and token, so the
 * three types give equal bytes for equal values. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx2.h"

#include "worker/engine/cpu/simd_avx2.h"

#define TILE 4 /* tokens of a register tile: 8 accumulators */

ALWAYS_INLINE __m128i load_half8(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* Eight weights of a column, `type` a constant. */
ALWAYS_INLINE __m256 load8(const uint8_t *p, const enum gguf_type type) {
    if (type == GGUF_F16)
        return _mm256_cvtph_ps(load_half8(p));
    if (type == GGUF_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half8(p)), 16));
    return _mm256_loadu_ps((const float *)(const void *)p);
}

ALWAYS_INLINE void widen(float x[PACKED_COLS], const struct act_block *a) {
    __m256 d = _mm256_broadcast_ss(&a->d);
    UNROLL for (int c = 0; c < PACKED_COLS; c += 8) {
        __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(a->q + c));
        _mm256_storeu_ps(x + c, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q))));
    }
}

/* One block, T tokens: 16 rows' chains over 32 columns. */
ALWAYS_INLINE void block(const uint8_t *w, const enum gguf_type type, const struct act_block *act,
                         size_t stride, const int T, float (*acc)[PACKED_ROWS]) {
    const size_t half = type == GGUF_F32 ? 32 : 16; /* bytes of 8 rows */
    float x[TILE][PACKED_COLS];
    __m256 sum[TILE][2];
    UNROLL for (int t = 0; t < T; t++) {
        widen(x[t], act + (size_t)t * stride);
        sum[t][0] = _mm256_loadu_ps(acc[t]);
        sum[t][1] = _mm256_loadu_ps(acc[t] + 8);
    }
    for (int c = 0; c < PACKED_COLS; c++, w += 2 * half) {
        __m256 w0 = load8(w, type), w1 = load8(w + half, type);
        _mm_prefetch((const char *)w + PREFETCH_BYTES, _MM_HINT_T0);
        UNROLL for (int t = 0; t < T; t++) {
            __m256 v = _mm256_broadcast_ss(&x[t][c]);
            sum[t][0] = _mm256_fmadd_ps(w0, v, sum[t][0]);
            sum[t][1] = _mm256_fmadd_ps(w1, v, sum[t][1]);
        }
    }
    UNROLL for (int t = 0; t < T; t++) {
        _mm256_storeu_ps(acc[t], sum[t][0]);
        _mm256_storeu_ps(acc[t] + 8, sum[t][1]);
    }
}

ALWAYS_INLINE void group(const uint8_t *w, size_t block_bytes, const enum gguf_type type,
                         uint32_t n_blocks, const struct act_block *act, uint32_t n,
                         float (*acc)[PACKED_ROWS]) {
    for (uint32_t b = 0; b < n_blocks; b++, w += block_bytes, act++) {
        uint32_t t = 0;
        for (; t + TILE <= n; t += TILE)
            block(w, type, act + (size_t)t * n_blocks, n_blocks, TILE, acc + t);
        for (; t < n; t++)
            block(w, type, act + (size_t)t * n_blocks, n_blocks, 1, acc + t);
    }
}

void group_f32_avx2(const uint8_t *w, uint32_t n_blocks, const struct act_block *act, uint32_t n,
                    float (*acc)[PACKED_ROWS]) {
    group(w, PACKED_F32_BYTES, GGUF_F32, n_blocks, act, n, acc);
}

void group_f16_avx2(const uint8_t *w, uint32_t n_blocks, const struct act_block *act, uint32_t n,
                    float (*acc)[PACKED_ROWS]) {
    group(w, PACKED_HALF_BYTES, GGUF_F16, n_blocks, act, n, acc);
}

void group_bf16_avx2(const uint8_t *w, uint32_t n_blocks, const struct act_block *act, uint32_t n,
                     float (*acc)[PACKED_ROWS]) {
    group(w, PACKED_HALF_BYTES, GGUF_BF16, n_blocks, act, n, acc);
}
#else
typedef int matmul_float_avx2_is_empty;
#endif
