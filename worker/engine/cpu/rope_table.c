#include "worker/engine/cpu/rope_table.h"

#include "worker/engine/cpu/cpu_math.h"

#include <assert.h>

/* Frequencies are made in runs of this many, so that a fill needs no allocation. */
#define RUN 64

size_t rope_table_bytes(uint32_t n_ctx, uint32_t n_rot) {
    return (size_t)n_ctx * n_rot * sizeof(float);
}

void rope_table_fill(const struct rope_table *t, uint32_t pos_begin, uint32_t pos_end) {
    assert(t->n_rot % 2 == 0 && t->base > 1);
    uint32_t half = t->n_rot / 2;
    for (uint32_t first = 0; first < half; first += RUN) {
        double inv[RUN];
        uint32_t n = half - first < RUN ? half - first : RUN;
        for (uint32_t i = 0; i < n; i++)
            inv[i] = pow_f64(t->base, -(double)(2 * (first + i)) / t->n_rot);
        for (uint32_t pos = pos_begin; pos < pos_end; pos++) {
            float *row = t->data + (size_t)pos * t->n_rot + first;
            for (uint32_t i = 0; i < n; i++) {
                double s, c;
                sincos_f64(pos * inv[i], &s, &c);
                row[i] = (float)c;
                row[half + i] = (float)s;
            }
        }
    }
}
