/* Scalar products. A row group's block is unpacked once, then met with every token of the batch, so
 * that the twin is usable on a real model; each (row, token) chain is the one of ops.h. */
#include "worker/engine/cpu/ops_parts.h"

#include "worker/engine/cpu/f16.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct plain_block { /* one block of a row group, row after row */
    float d[PACKED_ROWS], m[PACKED_ROWS];
    int8_t w[PACKED_ROWS][PACKED_COLS];
};

static void unpack_f16(float out[PACKED_ROWS], const uint8_t *p) {
    uint16_t h[PACKED_ROWS];
    memcpy(h, p, sizeof h);
    for (int r = 0; r < PACKED_ROWS; r++)
        out[r] = f16_to_f32(h[r]);
}

static void unpack_q4_1(struct plain_block *to, const uint8_t *b) {
    unpack_f16(to->d, b);
    unpack_f16(to->m, b + 32);
    for (int col = 0; col < PACKED_COLS; col++) {
        for (int r = 0; r < PACKED_ROWS; r++) {
            uint8_t byte = b[64 + col / 8 * 64 + r * 4 + col % 4];
            to->w[r][col] = (int8_t)(col & 4 ? byte >> 4 : byte & 15);
        }
    }
}

static void unpack_q8_0(struct plain_block *to, const uint8_t *b) {
    unpack_f16(to->d, b);
    for (int col = 0; col < PACKED_COLS; col++)
        for (int r = 0; r < PACKED_ROWS; r++)
            to->w[r][col] = (int8_t)b[32 + col / 4 * 64 + r * 4 + col % 4];
}

static void step_quantised(float acc[PACKED_ROWS], const struct plain_block *b,
                           const struct act_block *a, bool minimum) {
    for (int r = 0; r < PACKED_ROWS; r++) {
        int32_t sum = 0;
        for (int col = 0; col < PACKED_COLS; col++)
            sum += b->w[r][col] * a->q[col];
        acc[r] = fmaf(b->d[r] * a->d, (float)sum, acc[r]);
        if (minimum)
            acc[r] = fmaf(b->m[r], a->s, acc[r]);
    }
}

/* The 16 weights of a column of a float block. */
static void float_column(float w[PACKED_ROWS], const uint8_t *b, int col, enum gguf_type type) {
    uint16_t h[PACKED_ROWS];
    if (type == GGUF_F32) {
        memcpy(w, b + (size_t)col * PACKED_ROWS * sizeof *w, PACKED_ROWS * sizeof *w);
        return;
    }
    memcpy(h, b + (size_t)col * sizeof h, sizeof h);
    for (int r = 0; r < PACKED_ROWS; r++)
        w[r] = type == GGUF_F16 ? f16_to_f32(h[r]) : bf16_to_f32(h[r]);
}

static void step_float(float acc[PACKED_ROWS], const uint8_t *b, enum gguf_type type,
                       const struct act_block *a) {
    for (int col = 0; col < PACKED_COLS; col++) {
        float x = a->d * (float)a->q[col], w[PACKED_ROWS];
        float_column(w, b, col, type);
        for (int r = 0; r < PACKED_ROWS; r++)
            acc[r] = fmaf(w[r], x, acc[r]);
    }
}

/* One row group, at most MATMUL_TOKENS tokens. */
static void group_sums(const struct packed_matrix *w, const uint8_t *group,
                       const struct act_block *act, uint32_t n, float (*acc)[PACKED_ROWS]) {
    struct plain_block plain;
    memset(acc, 0, n * sizeof *acc);
    for (uint32_t b = 0; b < w->n_blocks; b++, group += w->block_bytes) {
        if (w->type == GGUF_Q4_1)
            unpack_q4_1(&plain, group);
        else if (w->type == GGUF_Q8_0)
            unpack_q8_0(&plain, group);
        for (uint32_t t = 0; t < n; t++) {
            const struct act_block *a = act + (size_t)t * w->n_blocks + b;
            if (w->type == GGUF_Q4_1 || w->type == GGUF_Q8_0)
                step_quantised(acc[t], &plain, a, w->type == GGUF_Q4_1);
            else
                step_float(acc[t], group, w->type, a);
        }
    }
}

void matmul_scalar(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                   const struct act_block *act, uint32_t n_tokens, float *out, size_t out_stride,
                   bool add) {
    assert(group_begin <= group_end && group_end <= w->n_groups);
    float acc[MATMUL_TOKENS][PACKED_ROWS];
    for (uint32_t first = 0; first < n_tokens; first += MATMUL_TOKENS) {
        uint32_t n = n_tokens - first < MATMUL_TOKENS ? n_tokens - first : MATMUL_TOKENS;
        for (uint32_t g = group_begin; g < group_end; g++) {
            uint32_t row = g * PACKED_ROWS;
            uint32_t rows = w->n_rows - row < PACKED_ROWS ? w->n_rows - row : PACKED_ROWS;
            group_sums(w, w->data + g * w->group_bytes, act + (size_t)first * w->n_blocks, n, acc);
            for (uint32_t t = 0; t < n; t++) {
                float *to = out + (first + t) * out_stride + row;
                for (uint32_t r = 0; r < rows; r++)
                    to[r] = add ? to[r] + acc[t][r] : acc[t][r];
            }
        }
    }
}
