#include "tests/tiny/tiny_model.h"

#include "tests/tiny/tiny_half.h"

#include "base/hash.h"
#include "base/mem.h"
#include "model/gguf.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a layer adds to the residual has to outweigh the embedding that came in: with a tied head
 * the embedding alone would make every token predict itself. */
#define GAIN_EMBD 0.30f
#define GAIN_QK 2.0f /* sharp attention, so that what came long before matters */
#define GAIN_OUT 2.0f
#define GAIN_OTHER 1.5f
/* Rows of the embedding, so of the head too: shorter rows win less often. */
#define ROW_EOG 0.60f
#define ROW_CONTROL 0.50f
#define ROW_OTHER_BYTE 0.75f

/* About normal, mean 0, variance 1: twelve uniform values. Exact arithmetic, equal everywhere. */
static float bell(uint64_t seed, uint64_t *counter)
{
    float sum = -6.0f;
    for (int i = 0; i < 12; i++)
        sum += rand_unit(seed, (*counter)++);
    return sum;
}

static void add_matrix(struct gguf_builder *b, const char *name, uint64_t seed, uint64_t n0,
                       uint64_t n1, float gain, uint32_t type)
{
    uint64_t counter = 0, key = hash64(name, strlen(name), seed);
    size_t n = (size_t)(n0 * n1);
    float *x = mem_array(n, sizeof *x);
    size_t bytes = gguf_type_bytes(type, n);
    uint8_t *q = mem_array(bytes, 1);
    float root = 1; /* 1 / sqrt(n0) for the powers of two in use */
    assert(n0 == 64 || n0 == 128);
    root = n0 == 64 ? 0.125f : 0.08838835f;
    if (x && q) {
        for (size_t i = 0; i < n; i++)
            x[i] = bell(key, &counter) * gain * root;
        tiny_quantise(type, x, n, q);
        gguf_builder_tensor(b, name, 2, (uint64_t[]){n0, n1}, type, q, bytes);
    }
    b->data.bad |= !x || !q;
    mem_free(x);
    mem_free(q);
}

static void add_norm(struct gguf_builder *b, const char *name, uint64_t seed)
{
    uint64_t counter = 0, key = hash64(name, strlen(name), seed);
    float x[TINY_EMBD];
    for (int i = 0; i < TINY_EMBD; i++)
        x[i] = 1.0f + 0.125f * bell(key, &counter);
    gguf_builder_tensor(b, name, 1, (uint64_t[]){TINY_EMBD}, GGUF_F32, x, sizeof x);
}

static float row_gain(int id)
{
    if (id == TINY_ENDOFTEXT || id == TINY_IM_END)
        return ROW_EOG;
    if (id < 4)
        return ROW_CONTROL;
    int byte = id - 4;
    return byte >= 256 || (byte >= 0x20 && byte < 0x7f) ? 1.0f : ROW_OTHER_BYTE;
}

static void add_embedding(struct gguf_builder *b, uint64_t seed, uint32_t type)
{
    uint64_t counter = 0, key = hash64("token_embd", 10, seed);
    static const uint64_t dims[] = {TINY_EMBD, TINY_VOCAB};
    uint8_t q[TINY_EMBD * sizeof(float)];
    struct buf all = {0};
    for (int id = 0; id < TINY_VOCAB; id++) {
        float x[TINY_EMBD];
        for (int i = 0; i < TINY_EMBD; i++)
            x[i] = bell(key, &counter) * GAIN_EMBD * row_gain(id);
        tiny_quantise(type, x, TINY_EMBD, q);
        buf_add(&all, q, gguf_type_bytes(type, TINY_EMBD));
    }
    gguf_builder_tensor(b, "token_embd.weight", 2, dims, type, all.p, all.len);
    b->data.bad |= all.bad;
    buf_deinit(&all);
}

void tiny_model_typed_tensors(struct gguf_builder *b, uint64_t seed, uint32_t matrices,
                              uint32_t embedding)
{
    static const struct {
        const char *name;
        uint64_t n0, n1;
        float gain;
    } rows[] = {
        {"ffn_down", TINY_FF, TINY_EMBD, GAIN_OUT},
        {"ffn_gate", TINY_EMBD, TINY_FF, GAIN_OTHER},
        {"ffn_up", TINY_EMBD, TINY_FF, GAIN_OTHER},
        {"attn_k", TINY_EMBD, TINY_KV_HEADS * TINY_HEAD_DIM, GAIN_QK},
        {"attn_output", TINY_HEADS * TINY_HEAD_DIM, TINY_EMBD, GAIN_OUT},
        {"attn_q", TINY_EMBD, TINY_HEADS * TINY_HEAD_DIM, GAIN_QK},
        {"attn_v", TINY_EMBD, TINY_KV_HEADS * TINY_HEAD_DIM, GAIN_OTHER},
    };
    char name[64];
    add_embedding(b, seed, embedding);
    for (int l = 0; l < TINY_LAYERS; l++) {
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", l);
        add_norm(b, name, seed);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, rows[i].name);
            add_matrix(b, name, seed, rows[i].n0, rows[i].n1, rows[i].gain, matrices);
        }
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", l);
        add_norm(b, name, seed);
    }
    add_norm(b, "output_norm.weight", seed);
}

void tiny_model_tensors(struct gguf_builder *b, uint64_t seed)
{
    tiny_model_typed_tensors(b, seed, GGUF_Q4_1, GGUF_Q8_0);
}

void tiny_model_keys(struct gguf_builder *b)
{
    gguf_builder_str(b, "general.architecture", "llama");
    gguf_builder_str(b, "general.name", "Tiny");
    gguf_builder_u32(b, "llama.block_count", TINY_LAYERS);
    gguf_builder_u32(b, "llama.context_length", TINY_CTX);
    gguf_builder_u32(b, "llama.embedding_length", TINY_EMBD);
    gguf_builder_u32(b, "llama.feed_forward_length", TINY_FF);
    gguf_builder_u32(b, "llama.attention.head_count", TINY_HEADS);
    gguf_builder_u32(b, "llama.attention.head_count_kv", TINY_KV_HEADS);
    gguf_builder_f32(b, "llama.rope.freq_base", 10000.0f);
    gguf_builder_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_builder_u32(b, "general.file_type", 3);
    gguf_builder_u32(b, "llama.vocab_size", TINY_VOCAB);
    gguf_builder_u32(b, "llama.rope.dimension_count", TINY_HEAD_DIM);
    gguf_builder_u32(b, "general.quantization_version", 2);
}

void *tiny_model_typed_bytes(uint64_t seed, uint32_t matrices, uint32_t embedding, size_t *n)
{
    struct gguf_builder b;
    gguf_builder_init(&b);
    tiny_model_keys(&b);
    tiny_model_tokenizer(&b);
    tiny_model_typed_tensors(&b, seed, matrices, embedding);
    void *p = gguf_builder_finish(&b, n);
    gguf_builder_deinit(&b);
    return p;
}

void *tiny_model_bytes(uint64_t seed, size_t *n)
{
    return tiny_model_typed_bytes(seed, GGUF_Q4_1, GGUF_Q8_0, n);
}

int tiny_model_write(uint64_t seed, const char *path)
{
    size_t n;
    void *p = tiny_model_bytes(seed, &n);
    FILE *f = p ? fopen(path, "wb") : NULL;
    int rc = -1;
    if (f) {
        size_t put = fwrite(p, 1, n, f);
        rc = fclose(f) == 0 && put == n ? 0 : -1;
    }
    free(p);
    return rc;
}
