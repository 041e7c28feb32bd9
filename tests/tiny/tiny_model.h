/* tiny_model.h - a model file of about 110 KB made from a seed: llama, 2 layers, grouped heads,
 * Q4_1 matrices, Q8_0 embedding that is also the head, F32 norms, byte-level BPE with 300 tokens,
 * its own chat template.
 *
 * Same seed, same bytes, on every machine (no libm call decides a weight). The scales are chosen so
 * that activations stay near 1, logits spread, a greedy run wanders, printable text is likelier
 * than other bytes and end-of-generation ids are possible but rare. CMake makes seed 1 as
 * ${CMAKE_BINARY_DIR}/tests/tiny.gguf (test_tiny_path() of tests/common).
 */
#ifndef SLUICE_TESTS_TINY_TINY_MODEL_H
#define SLUICE_TESTS_TINY_TINY_MODEL_H

#include "tests/tiny/gguf_builder.h"

enum {
    TINY_LAYERS = 2,
    TINY_EMBD = 64,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = 16,
    TINY_FF = 128,
    TINY_CTX = 2048,
    TINY_VOCAB = 300,
    TINY_ENDOFTEXT = 0,
    TINY_IM_START = 1,
    TINY_IM_END = 2 /* = eos */
};
#define TINY_SEED 1

/* The whole file, 64-byte aligned (fit for gguf_open_mem); free() it. NULL = no memory. */
void *tiny_model_bytes(uint64_t seed, size_t *n);
/* The same weights with other types (enum gguf_type): of the matrices and of the embedding. */
void *tiny_model_typed_bytes(uint64_t seed, uint32_t matrices, uint32_t embedding, size_t *n);
int tiny_model_write(uint64_t seed, const char *path); /* 0, or -1 with errno */

/* The parts, for tests that build a file with something changed. */
void tiny_model_keys(struct gguf_builder *b);      /* hyper-parameters */
void tiny_model_tokenizer(struct gguf_builder *b); /* vocabulary, merges, template */
void tiny_model_tensors(struct gguf_builder *b, uint64_t seed);
void tiny_model_typed_tensors(struct gguf_builder *b, uint64_t seed, uint32_t matrices,
                              uint32_t embedding);
const char *tiny_model_template(void);

#endif
