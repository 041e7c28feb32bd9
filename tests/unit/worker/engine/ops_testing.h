/* ops_testing.h - what the tests of the CPU operations share: seeded values, made-up tensors, the
 * twin to compare with. Buffers are fixed-size statics of the tests or mem_* blocks. Thread: one.
 */
#ifndef SLUICE_TESTS_OPS_TESTING_H
#define SLUICE_TESTS_OPS_TESTING_H

#include "worker/engine/cpu/ops.h"

struct rnd { uint64_t seed, n; };             /* a stream of base/hash.h rand_at */
uint64_t rnd_u64(struct rnd *r);
uint32_t rnd_below(struct rnd *r, uint32_t n);
float rnd_unit(struct rnd *r);                /* [0, 1) */
float rnd_normal(struct rnd *r);              /* about N(0, 1) */
/* n values of about N(0, size); with `odd` some are zero, minus zero, denormal or very small. */
void rnd_fill(struct rnd *r, float *x, uint32_t n, float size, bool odd);

/* A tensor of random values of the type; t->data is a mem_* block of the caller's. */
void tensor_make(struct gguf_tensor *t, struct rnd *r, enum gguf_type type, uint32_t rows,
                 uint32_t cols);
/* Its value at (row, col), read from the file's layout in double. */
double tensor_at(const struct gguf_tensor *t, uint32_t row, uint32_t col);
void matrix_make(struct packed_matrix *m, const struct gguf_tensor *t); /* m->data by mem_alloc */

/* The AVX2 instance, or the scalar one (said once on stdout) where this CPU has no AVX2. */
const struct cpu_ops *ops_twin(void);

#endif
