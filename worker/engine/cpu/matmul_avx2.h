/* matmul_avx2.h - one row group against up to MATMUL_TOKENS tokens: what ops_matmul_avx2.c calls.
 *
 * group: the group's blocks (packed_matrix.h); act: token t's blocks begin at act + t * n_blocks.
 * acc[t] (zeroed by the caller) receives the 16 rows' chains. No panel or accumulator outlives a
 * call.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_MATMUL_AVX2_H
#define SLUICE_WORKER_ENGINE_CPU_MATMUL_AVX2_H

#include "worker/engine/cpu/ops_parts.h"

#define PANEL_TOKENS 32 /* from here on unpacking a group first pays (measured: 24 to 40) */

/* Bytes read ahead of a stream of blocks: about a DRAM latency at full speed; a fifth faster than
 * the hardware's own prefetch alone. */
#define PREFETCH_BYTES 1280

void group_q4_1_avx2(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                     uint32_t n, float (*acc)[PACKED_ROWS]);
void group_q8_0_avx2(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                     uint32_t n, float (*acc)[PACKED_ROWS]);
/* F32, F16, BF16: the whole operation (ops.h matmul). */
void matmul_float_avx2(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                       const struct act_block *act, uint32_t n_tokens, float *out,
                       size_t out_stride, bool add);

#endif
