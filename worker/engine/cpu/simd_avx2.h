/* simd_avx2.h - vector pieces shared by the *_avx2.c files; each does the steps of its scalar twin.
 * Include only from files compiled with -mavx2 -mfma -mf16c.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_SIMD_AVX2_H
#define SLUICE_WORKER_ENGINE_CPU_SIMD_AVX2_H

#include "worker/engine/cpu/cpu_math.h"
#include "worker/engine/cpu/unroll.h"

#include <immintrin.h>
#include <stdint.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* Pins an accumulator to a register at this place. GCC otherwise reorders the integer sums of an
 * unrolled loop into trees and spills every product: a third of the speed. */
#define KEEP(x) __asm__("" : "+x"(x))

/* cpu_math.h exp_f32 in 8 lanes, for x <= 0, and 0 in lanes not `in` (a mask of all bits). */
ALWAYS_INLINE __m256 exp8_masked(__m256 x, __m256 in) {
    const __m256 round = _mm256_set1_ps(EXP_ROUND);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), round);
    __m256 n = _mm256_sub_ps(t, round);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_C6), r, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    __m256i e = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127));
    __m256 y = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
    return _mm256_and_ps(in, y);
}

/* The same for all lanes; NaN stays NaN. */
ALWAYS_INLINE __m256 exp8_negative(__m256 x) {
    return exp8_masked(x, _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN), _CMP_NLT_UQ));
}

ALWAYS_INLINE __m256 exp8(__m256 x) {
    __m256 over = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MAX), _CMP_GT_OQ);
    return _mm256_blendv_ps(exp8_negative(x), _mm256_set1_ps(INFINITY), over);
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
ALWAYS_INLINE float lane_sum8(__m256 x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

ALWAYS_INLINE float lane_max8(__m256 x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

ALWAYS_INLINE __m256 load_f16x8(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* The first n of 8 floats, `fill` behind them: for the tail of a row. */
ALWAYS_INLINE __m256 load_tail8(const float *p, uint32_t n, float fill) {
    float t[8];
    for (uint32_t i = 0; i < 8; i++)
        t[i] = i < n ? p[i] : fill;
    return _mm256_loadu_ps(t);
}

ALWAYS_INLINE void store_tail8(float *p, uint32_t n, __m256 x) {
    float t[8];
    _mm256_storeu_ps(t, x);
    for (uint32_t i = 0; i < n; i++)
        p[i] = t[i];
}

#endif
