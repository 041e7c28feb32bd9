/* AVX2 products: batches of tokens, row groups, the last group's padding. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx2.h"

#include "worker/engine/cpu/simd_avx2.h"

#include <assert.h>
#include <string.h>

static void group_sums(const struct packed_matrix *w, const uint8_t *group,
                       const struct act_block *act, uint32_t n, float (*acc)[PACKED_ROWS]) {
    memset(acc, 0, n * sizeof *acc);
    if (w->type == GGUF_Q4_1)
        group_q4_1_avx2(group, w->n_blocks, act, n, acc);
    else
        group_q8_0_avx2(group, w->n_blocks, act, n, acc);
}

static void store_row16(float *to, const float *acc, uint32_t rows, bool add) {
    if (rows < PACKED_ROWS) {
        for (uint32_t r = 0; r < rows; r++)
            to[r] = add ? to[r] + acc[r] : acc[r];
        return;
    }
    for (uint32_t r = 0; r < PACKED_ROWS; r += 8) {
        __m256 v = _mm256_loadu_ps(acc + r);
        _mm256_storeu_ps(to + r, add ? _mm256_add_ps(_mm256_loadu_ps(to + r), v) : v);
    }
}

void matmul_avx2(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                 const struct act_block *act, uint32_t n_tokens, float *out, size_t out_stride,
                 bool add) {
    assert(group_begin <= group_end && group_end <= w->n_groups);
    if (w->type != GGUF_Q4_1 && w->type != GGUF_Q8_0) {
        matmul_float_avx2(w, group_begin, group_end, act, n_tokens, out, out_stride, add);
        return;
    }
    _Alignas(32) float acc[MATMUL_TOKENS][PACKED_ROWS];
    for (uint32_t first = 0; first < n_tokens; first += MATMUL_TOKENS) {
        uint32_t n = n_tokens - first < MATMUL_TOKENS ? n_tokens - first : MATMUL_TOKENS;
        for (uint32_t g = group_begin; g < group_end; g++) {
            uint32_t row = g * PACKED_ROWS;
            uint32_t rows = w->n_rows - row < PACKED_ROWS ? w->n_rows - row : PACKED_ROWS;
            group_sums(w, w->data + g * w->group_bytes, act + (size_t)first * w->n_blocks, n, acc);
            for (uint32_t t = 0; t < n; t++)
                store_row16(out + (first + t) * out_stride + row, acc[t], rows, add);
        }
    }
}
#else
typedef int ops_matmul_avx2_is_empty;
#endif
