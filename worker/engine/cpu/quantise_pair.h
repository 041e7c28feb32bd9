/* quantise_pair.h - activations in 16 bits, as the sum of two int8 rows: x ~ first + second.
 *
 * Why: on the engine's precise setting (`precise`) the products whose input rounding costs most
 * are done twice, with the rounded row and with what the rounding left; the second product is added
 * to the first. The kernels are the usual ones, so every instance gives equal bytes (E4).
 * Thread: pure over its arguments. The float steps here have no fma and no reordering.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_QUANTISE_PAIR_H
#define SLUICE_WORKER_ENGINE_CPU_QUANTISE_PAIR_H

#include "worker/engine/cpu/ops.h"

/* x[0 .. n) -> ACT_BLOCKS(n) blocks in each of the rows; x is left holding x - first. `second` NULL:
 * the first alone, x is not touched. */
void quantise_pair(const struct cpu_ops *ops, struct act_block *first, struct act_block *second,
                   float *x, uint32_t n);

#endif
