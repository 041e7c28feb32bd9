/* AVX-512 versions of what the sampler scans a vocabulary with (twins in ops_vector.c). */
#if defined(__x86_64__)
#include "worker/engine/cpu/ops_parts.h"

#include "worker/engine/cpu/simd_avx512.h"

#include <float.h>

/* 16 more weights: the lower half of a vector is lanes 0 .. 7 of the sum, then the upper half is. A
 * NaN and what is too small for exp are 0. */
ALWAYS_INLINE __m512d add_weights(__m512d sum, __m512 z) {
    __mmask16 in = _mm512_cmp_ps_mask(z, _mm512_set1_ps(EXP_MIN), _CMP_GE_OQ);
    __m512 w = exp16_masked(z, in);
    sum = _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_castps512_ps256(w)));
    return _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_extractf32x8_ps(w, 1)));
}

ALWAYS_INLINE __m512d sum_whole(const float *x, uint32_t n, float max, float temperature,
                                const bool divide) {
    const __m512 m = _mm512_set1_ps(max), t = _mm512_set1_ps(temperature);
    __m512d sum = _mm512_setzero_pd();
    for (uint32_t i = 0; i + 16 <= n; i += 16) {
        __m512 z = _mm512_sub_ps(_mm512_loadu_ps(x + i), m);
        sum = add_weights(sum, divide ? _mm512_div_ps(z, t) : z);
    }
    if (n % 16 != 0) {
        __mmask16 in = (__mmask16)((1u << (n % 16)) - 1);
        __m512 v = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY), in, x + n / 16 * 16);
        sum = add_weights(sum, _mm512_div_ps(_mm512_sub_ps(v, m), t));
    }
    return sum;
}

double sum_exp_avx512(const float *x, uint32_t n, float max, float temperature) {
    double l[8];
    _mm512_storeu_pd(l, temperature == 1.0f ? sum_whole(x, n, max, 1, false)
                                            : sum_whole(x, n, max, temperature, true));
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

ALWAYS_INLINE uint32_t keep_ids(int32_t *ids, uint32_t found, uint32_t i, __mmask16 in) {
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint32_t hits = (uint32_t)__builtin_popcount(in);
    __m512i at = _mm512_add_epi32(_mm512_set1_epi32((int)i), step);
    _mm512_mask_storeu_epi32(ids + found, (__mmask16)((1u << hits) - 1),
                             _mm512_maskz_compress_epi32(in, at));
    return found + hits;
}

uint32_t select_avx512(const float *x, uint32_t n, float lower, float upper, int32_t *ids) {
    const __m512 lo = _mm512_set1_ps(lower < -FLT_MAX ? -FLT_MAX : lower);
    const __m512 hi = _mm512_set1_ps(upper);
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 in = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        __m512 v = _mm512_maskz_loadu_ps(in, x + i);
        in = _mm512_mask_cmp_ps_mask(in, v, lo, _CMP_GE_OQ);
        in = _mm512_mask_cmp_ps_mask(in, v, hi, _CMP_LT_OQ);
        if (in != 0)
            found = keep_ids(ids, found, i, in);
    }
    return found;
}
#else
typedef int ops_sample_avx512_is_empty;
#endif
