/* F32, F16 and BF16 products, 16 lanes. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx512.h"

#include <immintrin.h>

typedef __m512 vec;
#define LANES 16
#define ACC_MOST 24 /* of 32 registers: four weights, inputs from memory */
#define vec_set1(f) _mm512_set1_ps(f)
#define vec_mul(a, b) _mm512_mul_ps(a, b)
#define vec_add(a, b) _mm512_add_ps(a, b)
#define vec_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vec_store(p, v) _mm512_storeu_ps(p, v)

static inline __m512 vec_f32(const uint8_t *p) {
    return _mm512_loadu_ps(p);
}

static inline __m512 vec_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

static inline __m512 vec_bf16(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline __m512 vec_q(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

#include "worker/engine/cpu/matmul_float_body.h"

void matmul_float_avx512(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                         const struct act_block *act, uint32_t n_tokens, float *out,
                         size_t out_stride, bool add) {
    matmul_float(w, group_begin, group_end, act, n_tokens, out, out_stride, add);
}
#else
typedef int matmul_float_avx512_is_empty;
#endif
