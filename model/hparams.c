#include "model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMBD_MAX (1u << 16)
#define FF_MAX (1u << 18)
#define HEADS_MAX 1024u
#define HEAD_DIM_MAX 512u

/* An integer key within [min, max]; `fallback` != 0 is taken when the key is absent. */
static int read_u32(const struct gguf *g, const char *key, uint32_t min, uint32_t max,
                    uint32_t fallback, uint32_t *out, struct err *e)
{
    uint64_t v;
    if (gguf_get_u64(g, key, &v) != 0) {
        if (fallback == 0)
            return err_set(e, ERR_BAD_FILE, "key '%s' is missing or no integer", key);
        v = fallback;
    }
    if (v < min || v > max)
        return err_set(e, ERR_BAD_FILE, "key '%s' is %llu, not %u to %u", key,
                       (unsigned long long)v, min, max);
    *out = (uint32_t)v;
    return 0;
}

static int read_f32(const struct gguf *g, const char *key, float min, float max, float fallback,
                    float *out, struct err *e)
{
    float v;
    if (gguf_get_f32(g, key, &v) != 0) {
        if (fallback == 0)
            return err_set(e, ERR_BAD_FILE, "key '%s' is missing or no number", key);
        v = fallback;
    }
    if (!isfinite(v) || v < min || v > max)
        return err_set(e, ERR_BAD_FILE, "key '%s' is %g, not %g to %g", key, (double)v, (double)min,
                       (double)max);
    *out = v;
    return 0;
}

static int check_arch(const struct gguf *g, struct err *e)
{
    struct gguf_str s;
    if (gguf_get_str(g, "general.architecture", &s) != 0)
        return err_set(e, ERR_BAD_FILE, "key 'general.architecture' is missing or no string");
    if (s.n != 5 || memcmp(s.p, "llama", 5) != 0)
        return err_set(e, ERR_BAD_FILE, "architecture '%s' is not supported, only 'llama'",
                       gguf_show(s).s);
    return 0;
}

/* Features of the family that change the output and that the engine does not compute: taken
 * silently they would give wrong text, so they are refused. */
static int check_features(const struct gguf *g, struct err *e)
{
    static const char *const must_be_zero[] = {"llama.expert_count",
                                               "llama.attention.sliding_window"};
    struct gguf_str s;
    uint64_t v;
    for (size_t i = 0; i < sizeof must_be_zero / sizeof must_be_zero[0]; i++)
        if (gguf_get_u64(g, must_be_zero[i], &v) == 0 && v != 0)
            return err_set(e, ERR_BAD_FILE, "key '%s' is %llu: this feature is not supported",
                           must_be_zero[i], (unsigned long long)v);
    if (gguf_get_str(g, "llama.rope.scaling.type", &s) == 0 &&
        !(s.n == 4 && !memcmp(s.p, "none", 4)))
        return err_set(e, ERR_BAD_FILE, "key 'llama.rope.scaling.type': scaling is not supported");
    return 0;
}

static int read_sizes(struct hparams *hp, const struct gguf *g, struct err *e)
{
    int64_t n_tokens = gguf_array_count(g, "tokenizer.ggml.tokens");
    uint32_t n_names = n_tokens > 0 && n_tokens <= HPARAMS_VOCAB_MAX ? (uint32_t)n_tokens : 0;
    if (read_u32(g, "llama.block_count", 1, HPARAMS_LAYERS_MAX, 0, &hp->n_layers, e) != 0 ||
        read_u32(g, "llama.context_length", 1, HPARAMS_CONTEXT_MAX, 0, &hp->n_ctx, e) != 0 ||
        read_u32(g, "llama.embedding_length", 2, EMBD_MAX, 0, &hp->n_embd, e) != 0 ||
        read_u32(g, "llama.feed_forward_length", 1, FF_MAX, 0, &hp->n_ff, e) != 0 ||
        read_u32(g, "llama.attention.head_count", 1, HEADS_MAX, 0, &hp->n_heads, e) != 0 ||
        read_u32(g, "llama.attention.head_count_kv", 1, hp->n_heads, hp->n_heads, &hp->n_kv_heads,
                 e) != 0 ||
        read_u32(g, "llama.vocab_size", 1, HPARAMS_VOCAB_MAX, n_names, &hp->n_vocab, e) != 0)
        return -1;
    if (n_tokens >= 0 && (uint64_t)n_tokens != hp->n_vocab)
        return err_set(e, ERR_BAD_FILE,
                       "key 'llama.vocab_size' is %u, but 'tokenizer.ggml.tokens' has %lld",
                       hp->n_vocab, (long long)n_tokens);
    if (hp->n_heads % hp->n_kv_heads != 0)
        return err_set(e, ERR_BAD_FILE,
                       "key 'llama.attention.head_count_kv' is %u, which does not divide "
                       "the %u heads",
                       hp->n_kv_heads, hp->n_heads);
    return 0;
}

static int read_head(struct hparams *hp, const struct gguf *g, struct err *e)
{
    uint32_t v_dim, whole = hp->n_embd % hp->n_heads == 0 ? hp->n_embd / hp->n_heads : 0;
    if (whole == 0 && gguf_get_u64(g, "llama.attention.key_length", &(uint64_t){0}) != 0)
        return err_set(e, ERR_BAD_FILE,
                       "key 'llama.attention.head_count' is %u, which does not divide "
                       "embedding_length %u",
                       hp->n_heads, hp->n_embd);
    if (read_u32(g, "llama.attention.key_length", 2, HEAD_DIM_MAX, whole, &hp->head_dim, e) != 0 ||
        read_u32(g, "llama.attention.value_length", 2, HEAD_DIM_MAX, hp->head_dim, &v_dim, e) !=
            0 ||
        read_u32(g, "llama.rope.dimension_count", 2, hp->head_dim, hp->head_dim, &hp->n_rot, e) !=
            0)
        return -1;
    if (v_dim != hp->head_dim)
        return err_set(e, ERR_BAD_FILE,
                       "key 'llama.attention.value_length' is %u, not key_length %u", v_dim,
                       hp->head_dim);
    if (hp->n_rot % 2 != 0)
        return err_set(e, ERR_BAD_FILE, "key 'llama.rope.dimension_count' is %u, an odd number",
                       hp->n_rot);
    if (read_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-12f, 0.1f, 0, &hp->rms_eps, e) !=
        0)
        return -1;
    return read_f32(g, "llama.rope.freq_base", 1.0f, 1e12f, 10000.0f, &hp->rope_base, e);
}

static bool matrix_type(uint32_t type)
{
    switch (type) {
    case GGUF_F32:
    case GGUF_F16:
    case GGUF_BF16:
    case GGUF_Q4_0:
    case GGUF_Q4_1:
    case GGUF_Q8_0:
        return true;
    default:
        return false;
    }
}

/* One tensor of shape (n0, n1); n1 = 1 with `norm`: a vector of F32. */
static int check_tensor(const struct gguf *g, const char *name, uint32_t n0, uint32_t n1, bool norm,
                        struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t)
        return err_set(e, ERR_BAD_FILE, "tensor '%s' is missing", name);
    if (t->dims[0] != n0 || t->dims[1] != n1 || t->dims[2] != 1 || t->dims[3] != 1)
        return err_set(e, ERR_BAD_FILE,
                       "tensor '%s' is %llu x %llu, the hyper-parameters say %u x %u", name,
                       (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], n0, n1);
    if (t->type == GGUF_F32 || (!norm && matrix_type(t->type)))
        return 0;
    return err_set(e, ERR_BAD_FILE, "tensor '%s' is of type %s; supported: %s", name,
                   gguf_type_name(t->type), norm ? "F32" : "Q4_0, Q4_1, Q8_0, F16, BF16, F32");
}

struct layer_row {
    const char *name;
    uint32_t n0, n1;
    bool norm;
};
#define LAYER_ROWS 9

static void layer_rows(const struct hparams *hp, struct layer_row r[LAYER_ROWS])
{
    uint32_t q = hp->n_heads * hp->head_dim, kv = hp->n_kv_heads * hp->head_dim;
    r[0] = (struct layer_row){"attn_norm", hp->n_embd, 1, true};
    r[1] = (struct layer_row){"attn_q", hp->n_embd, q, false};
    r[2] = (struct layer_row){"attn_k", hp->n_embd, kv, false};
    r[3] = (struct layer_row){"attn_v", hp->n_embd, kv, false};
    r[4] = (struct layer_row){"attn_output", q, hp->n_embd, false};
    r[5] = (struct layer_row){"ffn_norm", hp->n_embd, 1, true};
    r[6] = (struct layer_row){"ffn_gate", hp->n_embd, hp->n_ff, false};
    r[7] = (struct layer_row){"ffn_up", hp->n_embd, hp->n_ff, false};
    r[8] = (struct layer_row){"ffn_down", hp->n_ff, hp->n_embd, false};
}

static bool name_is(struct gguf_str s, const char *want)
{
    return s.n == strlen(want) && memcmp(s.p, want, s.n) == 0;
}

static bool known_tensor(const struct hparams *hp, struct gguf_str s)
{
    struct layer_row rows[LAYER_ROWS];
    char want[64];
    unsigned layer = 0;
    size_t i = 4;
    if (name_is(s, "token_embd.weight") || name_is(s, "output_norm.weight") ||
        name_is(s, "output.weight"))
        return true;
    if (s.n < 6 || memcmp(s.p, "blk.", 4) != 0)
        return false;
    while (i < s.n && i < 9 && s.p[i] >= '0' && s.p[i] <= '9')
        layer = layer * 10 + (unsigned)(s.p[i++] - '0');
    if (layer >= hp->n_layers)
        return false;
    layer_rows(hp, rows);
    for (unsigned k = 0; k < LAYER_ROWS; k++) {
        snprintf(want, sizeof want, "blk.%u.%s.weight", layer, rows[k].name);
        if (name_is(s, want))
            return true;
    }
    return false;
}

/* A tensor nobody would read (a bias, rope factors, a layer too many) means another model than the
 * one that would be computed. */
static int check_no_others(const struct hparams *hp, const struct gguf *g, struct err *e)
{
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        struct gguf_str s = gguf_tensor_at(g, i)->name;
        if (!known_tensor(hp, s))
            return err_set(e, ERR_BAD_FILE,
                           "tensor '%s' is none of the llama family's with %u layers",
                           gguf_show(s).s, hp->n_layers);
    }
    return 0;
}

static int check_tensors(struct hparams *hp, const struct gguf *g, struct err *e)
{
    struct layer_row rows[LAYER_ROWS];
    char name[64];
    layer_rows(hp, rows);
    if (check_tensor(g, "token_embd.weight", hp->n_embd, hp->n_vocab, false, e) != 0 ||
        check_tensor(g, "output_norm.weight", hp->n_embd, 1, true, e) != 0)
        return -1;
    hp->tied_head = gguf_tensor_find(g, "output.weight") == NULL;
    if (!hp->tied_head && check_tensor(g, "output.weight", hp->n_embd, hp->n_vocab, false, e) != 0)
        return -1;
    for (uint32_t l = 0; l < hp->n_layers; l++)
        for (unsigned k = 0; k < LAYER_ROWS; k++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, rows[k].name);
            if (check_tensor(g, name, rows[k].n0, rows[k].n1, rows[k].norm, e) != 0)
                return -1;
        }
    return check_no_others(hp, g, e);
}

int hparams_read(struct hparams *hp, const struct gguf *g, struct err *e)
{
    memset(hp, 0, sizeof *hp);
    if (check_arch(g, e) != 0 || check_features(g, e) != 0 || read_sizes(hp, g, e) != 0 ||
        read_head(hp, g, e) != 0)
        return -1;
    return check_tensors(hp, g, e);
}

uint64_t hparams_kv_bytes_per_token(const struct hparams *hp)
{
    return (uint64_t)2 * hp->n_layers * hp->n_kv_heads * hp->head_dim * 2;
}

uint64_t hparams_kv_bytes_per_token_int8(const struct hparams *hp)
{
    return (uint64_t)2 * hp->n_layers * hp->n_kv_heads * (hp->head_dim + sizeof(float));
}
