/* matmul_avx512.h - row groups against tokens with AVX-512 VNNI: what ops_matmul_avx512.c calls.
 *
 * One vpdpbusd does 4 columns of 16 rows. Few tokens are multiplied straight from the packed bytes
 * (bound by memory); from PANEL512_TOKENS on two groups at a time are unpacked to L1, and register
 * tiles of 32 rows x TILE512 tokens keep 12 integer and 12 float accumulators in registers. The
 * float chain of a value is the one of ops.h, the integer sums are exact.
 *
 * acc[g][t] are 16 rows of group g (the second group's blocks follow the first's); token t's blocks
 * begin at act + t * n_blocks. `direct` takes 1 .. TILE512 tokens of one group and sets acc; `panel` goes
 * on from what acc holds (the caller zeroes it), pair = two groups.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_MATMUL_AVX512_H
#define SLUICE_WORKER_ENGINE_CPU_MATMUL_AVX512_H

#include "worker/engine/cpu/ops_parts.h"
#include "worker/engine/cpu/simd_avx2.h"

#define TILE512 6            /* tokens of a register tile */
#define DIRECT512_TOKENS 6   /* at most; above, unpacking first pays */
#define PANEL512_BLOCKS 18   /* unpacked at a time: 22.5 KiB, so that activations fit L1 as well */
#define MATMUL512_TOKENS 256 /* tokens that share one unpacking */
#define PREFETCH512_BYTES 4096 /* ahead of a stream of blocks: 2,048 is 3 % slower */

typedef float acc512[MATMUL512_TOKENS][PACKED_ROWS];

void direct_q4_1_avx512(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                        uint32_t n, float (*acc)[PACKED_ROWS]);
void panel_q4_1_avx512(const uint8_t *group, bool pair, uint32_t n_blocks,
                       const struct act_block *act, uint32_t n, acc512 *acc);
void direct_q8_0_avx512(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                        uint32_t n, float (*acc)[PACKED_ROWS]);
void panel_q8_0_avx512(const uint8_t *group, bool pair, uint32_t n_blocks,
                       const struct act_block *act, uint32_t n, acc512 *acc);

/* F32, F16, BF16: the whole operation (ops.h matmul). */
void matmul_float_avx512(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                         const struct act_block *act, uint32_t n_tokens, float *out,
                         size_t out_stride, bool add);

/* Blocks of a panel and tokens of the next tile: even parts instead of full ones and a rest. */
static inline uint32_t panel_blocks(uint32_t n_blocks) {
    uint32_t parts = (n_blocks + PANEL512_BLOCKS - 1) / PANEL512_BLOCKS;
    return (n_blocks + parts - 1) / parts;
}

static inline uint32_t tile_tokens(uint32_t left) {
    uint32_t parts = (left + TILE512 - 1) / TILE512;
    return (left + parts - 1) / parts;
}

/* Runs `call` with T a constant of 1 .. TILE512, so that each count is compiled by itself: its
 * accumulators are registers. */
#define WITH_TOKENS(n, call)                                                                       \
    switch (n) {                                                                                   \
        TOKENS_CASE(1, call)                                                                       \
        TOKENS_CASE(2, call)                                                                       \
        TOKENS_CASE(3, call)                                                                       \
        TOKENS_CASE(4, call)                                                                       \
        TOKENS_CASE(5, call)                                                                       \
        TOKENS_CASE(6, call)                                                                       \
    }
#define TOKENS_CASE(N, call)                                                                       \
    case N: {                                                                                      \
        enum { T = N };                                                                            \
        call;                                                                                      \
        break;                                                                                     \
    }

#endif
