#include "worker/engine/cpu/quantise_pair.h"

/* Whole blocks have a length the compiler knows, so that it makes vectors of them. */
static void take_off(float *x, const struct act_block *b)
{
    for (int i = 0; i < PACKED_COLS; i++) {
        float rounded = b->d * (float)b->q[i];
        x[i] = x[i] - rounded;
    }
}

void quantise_pair(const struct cpu_ops *ops, struct act_block *first, struct act_block *second,
                   float *x, uint32_t n)
{
    uint32_t whole = n / PACKED_COLS;
    ops->quantise(first, x, n);
    if (second == NULL)
        return;
    for (uint32_t i = 0; i < whole; i++)
        take_off(x + (size_t)i * PACKED_COLS, &first[i]);
    for (uint32_t i = whole * PACKED_COLS; i < n; i++) {
        float rounded = first[whole].d * (float)first[whole].q[i % PACKED_COLS];
        x[i] = x[i] - rounded;
    }
    ops->quantise(second, x, n);
}
