/* simd_avx512.h - vector pieces shared by *_avx512.c files; each does the steps of its scalar twin.
 * Include only from files compiled with the AVX-512 flags of CMakeLists.txt.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_SIMD_AVX512_H
#define SLUICE_WORKER_ENGINE_CPU_SIMD_AVX512_H

#include "worker/engine/cpu/simd_avx2.h"

/* cpu_math.h exp_f32 in 16 lanes, for x <= 0, and 0 in lanes not `in`. No result is denormal, so
 * that the scaling instruction rounds nothing. */
ALWAYS_INLINE __m512 exp16_masked(__m512 x, __mmask16 in) {
    const __m512 round = _mm512_set1_ps(EXP_ROUND);
    __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), round), round);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_C6), r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(in, p, n);
}

/* The same for all lanes; NaN stays NaN. */
ALWAYS_INLINE __m512 exp16_negative(__m512 x) {
    return exp16_masked(x, _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MIN), _CMP_NLT_UQ));
}

#endif
