/* AVX-512 products: batches of tokens, pairs of row groups, the last group's padding. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx512.h"

#include <assert.h>
#include <immintrin.h>
#include <string.h>

ALWAYS_INLINE void store_row16(float *to, const float *acc, uint32_t rows, bool add) {
    __mmask16 mask = rows < PACKED_ROWS ? (__mmask16)((1u << rows) - 1) : (__mmask16)0xffff;
    __m512 v = _mm512_load_ps(acc);
    if (add)
        v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), v);
    _mm512_mask_storeu_ps(to, mask, v);
}

/* acc of one or two groups from row `row` on. */
static void store(const struct packed_matrix *w, uint32_t group, uint32_t n_groups, acc512 *acc,
                  uint32_t n, float *out, size_t out_stride, bool add) {
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t row = (group + g) * PACKED_ROWS;
        for (uint32_t t = 0; t < n; t++)
            store_row16(out + t * out_stride + row, acc[g][t], w->n_rows - row, add);
    }
}

/* Tile after tile of tokens on one group: the first reads it from memory, the others from L1. */
static void few_tokens(const struct packed_matrix *w, uint32_t g, uint32_t end,
                       const struct act_block *act, uint32_t n, float *out, size_t out_stride,
                       bool add) {
    _Alignas(64) float acc[TILE512][PACKED_ROWS];
    for (; g < end; g++) {
        const uint8_t *group = w->data + g * w->group_bytes;
        for (uint32_t t = 0, size; t < n; t += size) {
            size = tile_tokens(n - t);
            if (w->type == GGUF_Q4_1)
                direct_q4_1_avx512(group, w->n_blocks, act + (size_t)t * w->n_blocks, size, acc);
            else
                direct_q8_0_avx512(group, w->n_blocks, act + (size_t)t * w->n_blocks, size, acc);
            for (uint32_t i = 0; i < size; i++)
                store_row16(out + (t + i) * out_stride + g * PACKED_ROWS, acc[i],
                            w->n_rows - g * PACKED_ROWS, add);
        }
    }
}

static void many_tokens(const struct packed_matrix *w, uint32_t g, uint32_t end,
                        const struct act_block *act, uint32_t n, float *out, size_t out_stride,
                        bool add) {
    _Alignas(64) acc512 acc[2];
    for (uint32_t n_groups; g < end; g += n_groups) {
        n_groups = end - g < 2 ? 1 : 2;
        for (uint32_t i = 0; i < n_groups; i++)
            memset(acc[i], 0, n * sizeof acc[i][0]);
        const uint8_t *group = w->data + g * w->group_bytes;
        if (w->type == GGUF_Q4_1)
            panel_q4_1_avx512(group, n_groups == 2, w->n_blocks, act, n, acc);
        else
            panel_q8_0_avx512(group, n_groups == 2, w->n_blocks, act, n, acc);
        store(w, g, n_groups, acc, n, out, out_stride, add);
    }
}

void matmul_avx512(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                   const struct act_block *act, uint32_t n_tokens, float *out, size_t out_stride,
                   bool add) {
    assert(group_begin <= group_end && group_end <= w->n_groups);
    if (w->type != GGUF_Q4_1 && w->type != GGUF_Q8_0) {
        matmul_float_avx512(w, group_begin, group_end, act, n_tokens, out, out_stride, add);
        return;
    }
    for (uint32_t t = 0, n; t < n_tokens; t += n) {
        n = n_tokens - t < MATMUL512_TOKENS ? n_tokens - t : MATMUL512_TOKENS;
        (n <= DIRECT512_TOKENS ? few_tokens : many_tokens)(
            w, group_begin, group_end, act + (size_t)t * w->n_blocks, n, out + t * out_stride,
            out_stride, add);
    }
}
#else
typedef int ops_matmul_avx512_is_empty;
#endif
