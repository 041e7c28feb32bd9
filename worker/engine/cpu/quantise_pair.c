#include "worker/engine/cpu/quantise_pair.h"

void quantise_pair(const struct cpu_ops *ops, struct act_block *first, struct act_block *second,
                   float *x, uint32_t n)
{
    ops->quantise(first, x, n);
    if (second == NULL)
        return;
    for (uint32_t i = 0; i < n; i++) {
        const struct act_block *b = &first[i / PACKED_COLS];
        float rounded = b->d * (float)b->q[i % PACKED_COLS];
        x[i] = x[i] - rounded;
    }
    ops->quantise(second, x, n);
}
