/* hparams.h - the hyper-parameters of a llama-family model, checked against its tensors.
 *
 * hparams_read refuses, by name, an architecture other than `llama`, a missing or absurd value, and
 * a tensor whose shape or type does not fit (accepted types: Q4_0, Q4_1, Q8_0, F16, BF16, F32; norms
 * F32 only).
 * Limits below bound every later allocation. Thread: pure.
 */
#ifndef SLUICE_MODEL_HPARAMS_H
#define SLUICE_MODEL_HPARAMS_H

#include "model/gguf.h"

#define HPARAMS_LAYERS_MAX 512
#define HPARAMS_VOCAB_MAX (1 << 20)
#define HPARAMS_CONTEXT_MAX (1 << 20)

struct hparams {
    uint32_t n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_rot, n_vocab, n_ctx;
    float rms_eps, rope_base;
    bool tied_head; /* no output.weight: token_embd.weight is the head */
};

int hparams_read(struct hparams *hp, const struct gguf *g, struct err *e);
/* Bytes of K and V of one token position over all layers with F16 KV: 2 * layers * kv_heads * head_dim * 2. */
uint64_t hparams_kv_bytes_per_token(const struct hparams *hp);
/* The same with INT8 KV: a byte a value, and a float scale for each K and V of a head. */
uint64_t hparams_kv_bytes_per_token_int8(const struct hparams *hp);

#endif
