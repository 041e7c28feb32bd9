/* ops.h - the arithmetic of a llama-family forward pass on a CPU, as a table of functions with a
 * scalar, an AVX2+FMA+F16C and an AVX-512+VNNI instance whose results are equal to the last bit
 * (rule E4).
 *
 * Nothing here knows a step, a span, a sequence or a thread. Every function works on a TILE its
 * caller chose (some row groups and tokens of a product, one row of a norm, some query positions
 * of one KV head), and each output value has one fixed chain of float operations that depends on
 * absolute positions only: results never depend on how work was cut into tiles, nor on tile order
 * (E2).
 *
 * Order of calls: cpu_ops_choose once; matrices are packed once (packed_matrix.h), rope_table_fill
 * once; then any op from any thread. Thread: all functions are pure over their arguments; two
 * threads may run any two ops at once as long as their outputs do not overlap. No allocation, no
 * state, about 340 KiB of stack at most. Failure: none after choose; wrong shapes assert.
 * Floating-point modes: round to nearest even and no flush-to-zero are expected of the calling
 * thread.
 * NaN: a NaN input gives some NaN (or garbage of finite size after quantisation), never a fault;
 * which NaN may differ between the instances.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_OPS_H
#define SLUICE_WORKER_ENGINE_CPU_OPS_H

#include "base/err.h"
#include "worker/engine/cpu/kv_shape.h"
#include "worker/engine/cpu/packed_matrix.h"
#include "worker/engine/cpu/rope_table.h"
#include "worker/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTENTION_SPLIT 256 /* positions of one softmax split; a multiple of KV_BLOCK_TOKENS (E2) */

/* 32 activations of one token: x[i] ~ d * q[i]. q is in -127 .. 127 (-128 would overflow the int16
 * sums of the products). The size is a multiple of 4, so that four q are loaded aligned. */
struct act_block {
    float d;      /* largest |x| / 127; 0 when all |x| < 1e-30 */
    float s;      /* d * (float)(sum of q): factor of a weight block's minimum */
    int32_t lift; /* -128 * (sum of q): what a sum of (w + 128) * q is too large by, negated */
    int8_t q[32];
};
/* Blocks of one token of n values: the last one is filled up with zeros. */
#define ACT_BLOCKS(n) (((n) + 31u) / 32u)

struct attention_args {
    const struct kv_shape *kv;
    const uint8_t *pool;       /* block id i lies at pool + i * kv->block_stride */
    const uint32_t *blocks;    /* ids of the blocks of positions 0 .. pos + n - 1, stored */
    uint32_t layer, kv_head;
    uint32_t n_group;          /* query heads that share this KV head; >= 1 */
    uint32_t pos, n;           /* query positions pos .. pos + n - 1; each sees 0 .. itself */
    /* q of query position i, head g of the group: q + i * q_stride + g * head_dim; `out` likewise.
     * (Heads of a token lie side by side: point at the first head of the group.) They may not
     * overlap. */
    const float *q; size_t q_stride;
    float *out; size_t out_stride;
    /* NULL: everything, into `out`. Else only the splits split_begin .. split_end - 1 (which need
     * not all exist) into partials[split][row][ATTENTION_PARTIAL(head_dim)], `out` untouched; once
     * all splits are there, attention_join makes `out`, with the bytes of the undivided call. So
     * one long context is shared by many threads. Then n * n_group <= ATTENTION_PART_ROWS. */
    float *partials;
    uint32_t split_begin, split_end;
};
#define ATTENTION_PART_ROWS 24
#define ATTENTION_PARTIAL(head_dim) ((size_t)(head_dim) + 8) /* values, maximum, sum, 6 unused */

static inline float *attention_partial(const struct attention_args *a, uint32_t split,
                                       uint32_t row) {
    size_t rows = (size_t)split * a->n * a->n_group + row;
    return a->partials + rows * ATTENTION_PARTIAL(a->kv->head_dim);
}

struct cpu_ops {
    const char *name;          /* "scalar", "avx2", "avx512" */

    /* x[0 .. n) -> ACT_BLOCKS(n) blocks. Rounds half to even. */
    void (*quantise)(struct act_block *out, const float *x, uint32_t n);

    /* out[t * out_stride + r] = sum over k of w[r][k] * act[t][k], for t < n_tokens and the rows
     * r of the groups group_begin .. group_end - 1 (16 rows each; rows >= w->n_rows are not
     * written). With `add` the sum is added to what `out` holds: out = out + sum. act: n_tokens *
     * w->n_blocks blocks, token after token. Chain of one value, over blocks b ascending from acc
     * = 0, i = exact integer sum of weights x q:
     *   Q8_0: acc = fma(dw * da, (float)i, acc)
     *   Q4_1: the same, then acc = fma(mw, s, acc)
     *   F32, F16, BF16: acc = fma(w, da * (float)q, acc) for each k ascending
     * Cost: one token reads each weight once; from 8 tokens on groups are unpacked to L1 first,
     * so that tiles of many tokens and few groups are best. A good tile is >= 1 group and all
     * tokens of the step. */
    void (*matmul)(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                   const struct act_block *act, uint32_t n_tokens, float *out, size_t out_stride,
                   bool add);

    /* out = x / sqrt(mean(x^2) + eps) * w; may work in place. */
    void (*rmsnorm)(float *out, const float *x, const float *w, uint32_t n, float eps);

    /* Rotates the first n_rot values of each of n_heads heads at x (head_dim apart), in place, by
     * the angles of one position: row = rope_table_row(table, position). Pairs are (2i, 2i + 1). */
    void (*rope)(float *x, uint32_t n_heads, uint32_t head_dim, const float *row, uint32_t n_rot);

    /* out = gate / (1 + exp(-gate)) * up; out may be gate or up. */
    void (*silu_mul)(float *out, const float *gate, const float *up, uint32_t n);

    void (*add)(float *x, const float *y, uint32_t n); /* x += y */

    void (*to_f16)(uint16_t *out, const float *x, uint32_t n);   /* nearest even, or inf */
    void (*from_f16)(float *out, const uint16_t *x, uint32_t n); /* exact */

    /* Stores K (after rope) and V of one position and one KV head: F16, or INT8 as quantise does
     * it but with one scale for the whole head. block: the block's first byte; slot = position %
     * KV_BLOCK_TOKENS. Slots of one (layer, head) share cache lines: give a head's positions to
     * one thread where that is free. */
    void (*kv_store)(const struct kv_shape *kv, uint8_t *block, uint32_t layer, uint32_t kv_head,
                     uint32_t slot, const float *k, const float *v);

    /* Causal attention of some query positions against one KV head. Chain of one (query, head):
     * score of a position = (fma chain over head_dim ascending) * f, f = 1 / sqrtf(head_dim), INT8:
     * the position's K scale times that; in each split of ATTENTION_SPLIT absolute positions:
     * maximum, weight = exp(score - maximum), sum of weights in 8 lanes (position % 8) and fixed
     * tree, V added by one fma chain per value in position order (INT8: weight times the
     * position's V scale first); splits ascending are joined with rescaling; one division at the
     * end. K and V come from the store, own span's too (E1). Several query rows share each read
     * of K and V: 32 positions and more at a time is cheapest; few rows read the store only once.
     * Stack: 340 KiB. */
    void (*attention)(const struct attention_args *a);
    void (*attention_join)(const struct attention_args *a); /* see attention_args.partials */

    /* Index of the largest value, the smallest index among equals; NaN counts as -inf. n >= 1; all
     * -inf or NaN: 0. */
    uint32_t (*argmax)(const float *x, uint32_t n);

    /* Sum of exp((x[i] - max) / temperature) in 8 double lanes (i % 8) and a fixed tree. NaN and
     * -inf add nothing. max must not be below any x[i]; +inf in x is the caller's to remove. */
    double (*sum_exp)(const float *x, uint32_t n, float max, float temperature);

    /* The i with lower <= x[i] < upper and x[i] > -inf, ascending, into ids (room for n). Returns
     * how many; NaN is never among them. */
    uint32_t (*select)(const float *x, uint32_t n, float lower, float upper, int32_t *ids);

    /* Reads all bytes once, as fast as the instance's widest loads go, and returns the XOR of their
     * 64-bit words: a yardstick of read bandwidth. bytes % 512 = 0, memory 64-byte aligned. */
    uint64_t (*read_xor)(const void *memory, size_t bytes);
};

extern const struct cpu_ops cpu_ops_scalar;
#if defined(__x86_64__)
extern const struct cpu_ops cpu_ops_avx2; /* call only where cpu_ops_have_avx2() */
extern const struct cpu_ops cpu_ops_avx512;
#endif

/* Whether this CPU and this system (saved registers) run AVX2, FMA and F16C; all that and AVX-512
 * F, BW, VL, DQ and VNNI. */
bool cpu_ops_have_avx2(void);
bool cpu_ops_have_avx512(void);

/* AUTO: the best this CPU runs. The others: that one, or NULL and ERR_INVALID saying what is
 * missing. */
const struct cpu_ops *cpu_ops_choose(enum engine_kernel kernel, struct err *e);

#endif
