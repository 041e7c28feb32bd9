/* ops_parts.h - the functions behind the two tables of ops.h, for the files that make the tables.
 *
 * Use the tables. Meanings: ops.h. One operation family per file: ops_vector, ops_matmul,
 * ops_attention, each with its _avx2 twin.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_OPS_PARTS_H
#define SLUICE_WORKER_ENGINE_CPU_OPS_PARTS_H

#include "worker/engine/cpu/ops.h"

/* Tokens whose accumulators are held at a time; a row group is unpacked once for that many. */
#define MATMUL_TOKENS 64

#define OPS_PARTS(arch)                                                                            \
    void quantise_##arch(struct act_block *out, const float *x, uint32_t n);                       \
    void matmul_##arch(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,    \
                       const struct act_block *act, uint32_t n_tokens, float *out,                 \
                       size_t out_stride, bool add);                                               \
    void rmsnorm_##arch(float *out, const float *x, const float *w, uint32_t n, float eps);        \
    void rope_##arch(float *x, uint32_t n_heads, uint32_t head_dim, const float *row,              \
                     uint32_t n_rot);                                                              \
    void silu_mul_##arch(float *out, const float *gate, const float *up, uint32_t n);              \
    void add_##arch(float *x, const float *y, uint32_t n);                                         \
    void to_f16_##arch(uint16_t *out, const float *x, uint32_t n);                                 \
    void from_f16_##arch(float *out, const uint16_t *x, uint32_t n);                               \
    void kv_store_##arch(const struct kv_shape *kv, uint8_t *block, uint32_t layer,                \
                         uint32_t kv_head, uint32_t slot, const float *k, const float *v);         \
    void attention_##arch(const struct attention_args *a);                                         \
    void attention_join_##arch(const struct attention_args *a);                                    \
    uint32_t argmax_##arch(const float *x, uint32_t n);                                            \
    double sum_exp_##arch(const float *x, uint32_t n, float max, float temperature);               \
    uint32_t select_##arch(const float *x, uint32_t n, float lower, float upper, int32_t *ids);    \
    uint64_t read_xor_##arch(const void *memory, size_t bytes);

OPS_PARTS(scalar)
OPS_PARTS(avx2)
/* Only what gains from 512 bits has a third version; the table takes the rest from avx2. */
void matmul_avx512(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                   const struct act_block *act, uint32_t n_tokens, float *out, size_t out_stride,
                   bool add);
void attention_avx512(const struct attention_args *a);
void attention_join_avx512(const struct attention_args *a);
double sum_exp_avx512(const float *x, uint32_t n, float max, float temperature);
uint32_t select_avx512(const float *x, uint32_t n, float lower, float upper, int32_t *ids);
uint64_t read_xor_avx512(const void *memory, size_t bytes);

/* An instance: the names of the versions of row-wise operations, of products, of
 * attention with what the sampler scans. */
#define OPS_TABLE(arch, rows, products, att)                                                       \
    {                                                                                              \
        .name = #arch, .quantise = quantise_##rows, .matmul = matmul_##products,                   \
        .rmsnorm = rmsnorm_##rows, .rope = rope_##rows, .silu_mul = silu_mul_##rows,               \
        .add = add_##rows, .to_f16 = to_f16_##rows, .from_f16 = from_f16_##rows,                   \
        .kv_store = kv_store_##rows, .attention = attention_##att,                                 \
        .attention_join = attention_join_##att, .argmax = argmax_##rows,                           \
        .sum_exp = sum_exp_##att, .select = select_##att, .read_xor = read_xor_##att,              \
    }

#endif
