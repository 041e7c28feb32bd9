/* matmul_float_body.h - products with F32, F16 and BF16 weights, included by matmul_float_avx2.c and
 * matmul_float_avx512.c, which define before:
 *
 *   vec, LANES             a vector of floats and how many it holds
 *   ACC_MOST               accumulators of a register tile
 *   vec_f16/_bf16/_f32(p)  LANES weights as floats; vec_q(p) LANES int8 as floats
 *   vec_set1(f), vec_mul, vec_add, vec_fma, vec_store(p, v)
 *
 * Weights keep the file's precision: they are widened to float, which is exact, and met with
 * da * (float)q by one fma chain per row and token (ops.h), so the three types give equal bytes for
 * equal values. Up to FLOAT_FEW tokens go straight from the packed bytes, several groups at a
 * time where there are few tokens, because one chain alone waits for its own sums. More tokens
 * share one widened copy of a few blocks in L1, and the blocks after them are fetched meanwhile.
 */
#include "worker/engine/cpu/ops_parts.h"
#include "worker/engine/cpu/simd_avx2.h"

#include <assert.h>
#include <string.h>

#define FLOAT_TOKENS 6    /* of a register tile */
#define FLOAT_FEW 12      /* tokens for which widening first does not pay */
#define FLOAT_GROUPS 4    /* of a register tile, at most */
#define FLOAT_BATCH 128   /* tokens that share one widening */
#define FLOAT_CHUNK 3     /* blocks widened at a time: at most 24 KiB */
#define FLOAT_AHEAD 2048  /* bytes read ahead of a stream of packed blocks */
#define VECS (PACKED_ROWS / LANES) /* of a group */

typedef float float_acc[FLOAT_BATCH][PACKED_ROWS]; /* of a group */

/* What is fetched while something else is multiplied: the packed bytes of G groups, `apart` bytes
 * from one to the next; at NULL = nothing. */
struct ahead {
    const uint8_t *at;
    size_t apart;
    uint32_t step; /* bytes of two columns of a group: one line, or two */
};

ALWAYS_INLINE vec load(const uint8_t *p, const enum gguf_type type) {
    return type == GGUF_F16 ? vec_f16(p) : type == GGUF_BF16 ? vec_bf16(p) : vec_f32(p);
}

ALWAYS_INLINE size_t column_bytes(const enum gguf_type type) {
    return PACKED_ROWS * (type == GGUF_F32 ? sizeof(float) : sizeof(uint16_t));
}

ALWAYS_INLINE void fetch(struct ahead *a, const int G) {
    if (a->at == NULL)
        return;
    UNROLL for (int g = 0; g < G; g++) {
        _mm_prefetch((const char *)a->at + (size_t)g * a->apart, _MM_HINT_T0);
        if (a->step > 64)
            _mm_prefetch((const char *)a->at + (size_t)g * a->apart + 64, _MM_HINT_T0);
    }
    a->at += a->step;
}

/* G groups, `apart` bytes from one to the next, against T tokens over n blocks; `out` goes on where
 * the blocks before left it. */
ALWAYS_INLINE void tile(const uint8_t *w, size_t apart, const enum gguf_type type, uint32_t n,
                        const struct act_block *act, size_t stride, struct ahead ahead, const int T,
                        const int G, float_acc *out, uint32_t first) {
    _Alignas(64) float x[FLOAT_TOKENS][PACKED_COLS];
    vec acc[FLOAT_GROUPS][FLOAT_TOKENS][VECS];
    UNROLL for (int g = 0; g < G; g++)
        UNROLL for (int t = 0; t < T; t++)
            UNROLL for (int v = 0; v < VECS; v++)
                acc[g][t][v] = vec_f32((const uint8_t *)&out[g][first + (uint32_t)t][v * LANES]);
    for (uint32_t b = 0; b < n; b++, act++) {
        UNROLL for (int t = 0; t < T; t++) {
            const struct act_block *a = act + (size_t)t * stride;
            UNROLL for (int c = 0; c < PACKED_COLS; c += LANES)
                vec_store(x[t] + c, vec_mul(vec_set1(a->d), vec_q(a->q + c)));
        }
        for (int c = 0; c < PACKED_COLS; c += 2) {
            fetch(&ahead, G);
            UNROLL for (int i = 0; i < 2; i++, w += column_bytes(type)) {
                vec y[FLOAT_GROUPS][VECS];
                UNROLL for (int g = 0; g < G; g++)
                    UNROLL for (int v = 0; v < VECS; v++)
                        y[g][v] = load(w + (size_t)g * apart + v * column_bytes(type) / VECS, type);
                UNROLL for (int t = 0; t < T; t++) {
                    vec s = vec_set1(x[t][c + i]);
                    UNROLL for (int g = 0; g < G; g++)
                        UNROLL for (int v = 0; v < VECS; v++)
                            acc[g][t][v] = vec_fma(y[g][v], s, acc[g][t][v]);
                }
            }
        }
    }
    UNROLL for (int g = 0; g < G; g++)
        UNROLL for (int t = 0; t < T; t++)
            UNROLL for (int v = 0; v < VECS; v++)
                vec_store(&out[g][first + (uint32_t)t][v * LANES], acc[g][t][v]);
}

/* Groups of a register tile of T tokens: what fits the registers. */
#define GROUPS_OF(T)                                                                               \
    ((T)*VECS * 4 <= ACC_MOST ? 4 : (T)*VECS * 2 <= ACC_MOST ? 2 : 1)

/* CASE(T) for each number of tokens, so that each is compiled by itself. */
#define EACH_TOKENS(n)                                                                             \
    switch (n) {                                                                                   \
        CASE(1)                                                                                    \
        CASE(2)                                                                                    \
        CASE(3)                                                                                    \
        CASE(4)                                                                                    \
        CASE(5)                                                                                    \
        CASE(6)                                                                                    \
    }

static uint32_t groups_of(uint32_t tokens) {
#define CASE(T) case T: return GROUPS_OF(T);
    EACH_TOKENS(tokens)
#undef CASE
    return 1;
}

/* `groups` is 1 or groups_of(tokens). */
ALWAYS_INLINE void tile_straight(const uint8_t *w, size_t apart, const enum gguf_type type,
                                 uint32_t n, const struct act_block *act, size_t stride,
                                 uint32_t tokens, uint32_t groups, float_acc *out, uint32_t first) {
    struct ahead far = {w + FLOAT_AHEAD, apart, (uint32_t)(2 * column_bytes(type))};
#define CASE(T)                                                                                    \
    case T:                                                                                        \
        if (groups == GROUPS_OF(T))                                                                \
            tile(w, apart, type, n, act, stride, far, T, GROUPS_OF(T), out, first);                \
        else                                                                                       \
            tile(w, apart, type, n, act, stride, far, T, 1, out, first);                           \
        break;
    EACH_TOKENS(tokens)
#undef CASE
}

/* `groups` is 1 or GROUPS_OF(FLOAT_TOKENS). */
static void tile_panel(const float *panel, uint32_t n, const struct act_block *act, size_t stride,
                       struct ahead ahead, uint32_t tokens, uint32_t groups, float_acc *out,
                       uint32_t first) {
    const size_t apart = (size_t)n * PACKED_COLS * PACKED_ROWS * sizeof *panel;
    const uint8_t *w = (const uint8_t *)panel;
    enum { G = GROUPS_OF(FLOAT_TOKENS) };
#define CASE(T)                                                                                    \
    case T:                                                                                        \
        if (groups == G)                                                                           \
            tile(w, apart, GGUF_F32, n, act, stride, ahead, T, G, out, first);                     \
        else                                                                                       \
            tile(w, apart, GGUF_F32, n, act, stride, ahead, T, 1, out, first);                     \
        break;
    EACH_TOKENS(tokens)
#undef CASE
}

ALWAYS_INLINE void widen_type(float *to, const uint8_t *from, uint32_t n,
                              const enum gguf_type type) {
    for (uint32_t i = 0; i < n; i += LANES, from += column_bytes(type) / VECS)
        vec_store(to + i, load(from, type));
}

/* n floats of weights; n is a multiple of a block's. */
static void widen(float *to, const uint8_t *from, uint32_t n, enum gguf_type type) {
    if (type == GGUF_F16)
        widen_type(to, from, n, GGUF_F16);
    else if (type == GGUF_BF16)
        widen_type(to, from, n, GGUF_BF16);
    else
        widen_type(to, from, n, GGUF_F32);
}

static uint32_t float_tile_tokens(uint32_t left) { /* even tiles instead of full ones and a rest */
    uint32_t parts = (left + FLOAT_TOKENS - 1) / FLOAT_TOKENS;
    return (left + parts - 1) / parts;
}

/* All blocks at once for one tile of tokens; a few at a time for two, so that the second finds the
 * weights in L1. */
static void few_tokens(const struct packed_matrix *w, uint32_t group, uint32_t groups,
                       const struct act_block *act, uint32_t n, float_acc *acc) {
    const uint32_t stride = w->n_blocks, most = n <= FLOAT_TOKENS ? stride : FLOAT_CHUNK;
    const size_t apart = w->group_bytes;
    for (uint32_t b = 0, size; b < stride; b += size) {
        size = stride - b < most ? stride - b : most;
        const uint8_t *at = w->data + group * apart + b * w->block_bytes;
        for (uint32_t t = 0, tokens; t < n; t += tokens) {
            tokens = float_tile_tokens(n - t);
            const struct act_block *a = act + (size_t)t * stride + b;
            if (w->type == GGUF_F16)
                tile_straight(at, apart, GGUF_F16, size, a, stride, tokens, groups, acc, t);
            else if (w->type == GGUF_BF16)
                tile_straight(at, apart, GGUF_BF16, size, a, stride, tokens, groups, acc, t);
            else
                tile_straight(at, apart, GGUF_F32, size, a, stride, tokens, groups, acc, t);
        }
    }
}

static void many_tokens(const struct packed_matrix *w, uint32_t group, uint32_t groups,
                        const struct act_block *act, uint32_t n, float_acc *acc) {
    _Alignas(64) float panel[FLOAT_GROUPS * FLOAT_CHUNK * PACKED_COLS * PACKED_ROWS];
    const uint8_t *at = w->data + group * w->group_bytes;
    for (uint32_t b = 0, size; b < w->n_blocks; b += size) {
        size = w->n_blocks - b < FLOAT_CHUNK ? w->n_blocks - b : FLOAT_CHUNK;
        uint32_t floats = size * PACKED_COLS * PACKED_ROWS;
        for (uint32_t g = 0; g < groups; g++)
            widen(panel + g * floats, at + g * w->group_bytes + b * w->block_bytes, floats, w->type);
        struct ahead next = {at + (b + size) * w->block_bytes, w->group_bytes,
                             (uint32_t)(2 * column_bytes(w->type))};
        for (uint32_t t = 0, tokens; t < n; t += tokens) {
            tokens = float_tile_tokens(n - t);
            tile_panel(panel, size, act + (size_t)t * w->n_blocks + b, w->n_blocks, next, tokens,
                       groups, acc, t);
            next.at = NULL;
        }
    }
}

static void store_rows(float *to, const float *acc, uint32_t rows, bool add) {
    if (rows < PACKED_ROWS) {
        for (uint32_t r = 0; r < rows; r++)
            to[r] = add ? to[r] + acc[r] : acc[r];
        return;
    }
    UNROLL for (int r = 0; r < PACKED_ROWS; r += LANES) {
        vec v = vec_f32((const uint8_t *)(acc + r));
        vec_store(to + r, add ? vec_add(vec_f32((const uint8_t *)(to + r)), v) : v);
    }
}

/* Tokens first .. first + n - 1, n <= FLOAT_BATCH. */
static void matmul_batch(const struct packed_matrix *w, uint32_t g, uint32_t end,
                         const struct act_block *act, uint32_t n, float *out, size_t out_stride,
                         bool add) {
    _Alignas(64) float_acc acc[FLOAT_GROUPS];
    bool few = n <= FLOAT_FEW;
    uint32_t most = groups_of(n < FLOAT_TOKENS ? n : FLOAT_TOKENS);
    for (uint32_t groups; g < end; g += groups) {
        groups = end - g < most ? 1 : most;
        for (uint32_t i = 0; i < groups; i++)
            memset(acc[i], 0, n * sizeof acc[i][0]);
        (few ? few_tokens : many_tokens)(w, g, groups, act, n, acc);
        for (uint32_t i = 0; i < groups; i++) {
            uint32_t row = (g + i) * PACKED_ROWS, rows = w->n_rows - row;
            for (uint32_t t = 0; t < n; t++)
                store_rows(out + t * out_stride + row, acc[i][t], rows, add);
        }
    }
}

static void matmul_float(const struct packed_matrix *w, uint32_t group_begin, uint32_t group_end,
                         const struct act_block *act, uint32_t n_tokens, float *out,
                         size_t out_stride, bool add) {
    for (uint32_t t = 0, n; t < n_tokens; t += n) {
        n = n_tokens - t < FLOAT_BATCH ? n_tokens - t : FLOAT_BATCH;
        matmul_batch(w, group_begin, group_end, act + (size_t)t * w->n_blocks, n,
                     out + t * out_stride, out_stride, add);
    }
}
