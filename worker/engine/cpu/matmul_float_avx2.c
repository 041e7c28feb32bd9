/* F32, F16 and BF16 products, 8 lanes. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx2.h"

#include <immintrin.h>

typedef __m256 vec;
#define LANES 8
#define ACC_MOST 12 /* of 16 registers: two weights, one input, one to spare */
#define vec_set1(f) _mm256_set1_ps(f)
#define vec_mul(a, b) _mm256_mul_ps(a, b)
#define vec_add(a, b) _mm256_add_ps(a, b)
#define vec_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vec_store(p, v) _mm256_storeu_ps(p, v)

static inline __m256 vec_f32(const uint8_t *p) {
    return _mm256_loadu_ps((const float *)(const void *)p);
}

static inline __m256 vec_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

static inline __m256 vec_bf16(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline __m256 vec_q(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

#include "worker/engine/cpu/matmul_float_body.h"

void matmul_float_avx2(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                       const struct act_block *act, uint32_t n_tokens, float *out,
                       size_t out_stride, bool add) {
    matmul_float(w, group_begin, group_end, act, n_tokens, out, out_stride, add);
}
#else
typedef int matmul_float_avx2_is_empty;
#endif
