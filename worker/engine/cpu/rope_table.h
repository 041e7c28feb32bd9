/* rope_table.h - cosines and sines of the rotary embedding, made once by own code (rule E3).
 *
 * Row of position p: n_rot / 2 cosines, then n_rot / 2 sines, of p * base^(-2i / n_rot), computed
 * in double and rounded to float. Memory is the caller's: rope_table_bytes, then fill over all
 * positions (any ranges, any threads). About 40 ns a pair.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_ROPE_TABLE_H
#define SLUICE_WORKER_ENGINE_CPU_ROPE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct rope_table {
    float *data;       /* n_ctx rows of n_rot floats */
    uint32_t n_rot;    /* even */
    float base;        /* > 1 */
};

size_t rope_table_bytes(uint32_t n_ctx, uint32_t n_rot);
void rope_table_fill(const struct rope_table *t, uint32_t pos_begin, uint32_t pos_end);

static inline const float *rope_table_row(const struct rope_table *t, uint32_t pos) {
    return t->data + (size_t)pos * t->n_rot;
}

#endif
