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

/* The instance under test: the one ops_twin_use chose (0 = AVX2, 1 = AVX-512, 0 at start). */
const struct cpu_ops *ops_twin(void);
/* False, said on stdout, where this CPU does not run instance i; for 0 the scalar one takes its
 * place. A main runs its suite once for each: for (i = 0; ops_twin_use(i); i++). */
bool ops_twin_use(uint32_t i);

#endif
