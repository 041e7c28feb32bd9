/* AVX-512 attention: one vector is 16 positions of K, or 16 values of V. */
#if defined(__x86_64__)
#include "worker/engine/cpu/attention_tile.h"
#include "worker/engine/cpu/simd_avx512.h"

#define R_MAX 6 /* rows of a register tile: 24 accumulators, 4 vectors of K or V */

/* Element `at` and the 15 behind it. */
ALWAYS_INLINE __m512 load16(const uint8_t *p, size_t at, const enum run_form form) {
    if (form == RUN_F32)
        return _mm512_loadu_ps((const float *)(const void *)p + at);
    if (form == RUN_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p + 2 * at)));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(p + at))));
}

/* Asks for the lines of element `at` of the pieces FAR_AHEAD and NEAR_AHEAD behind piece[0]. */
ALWAYS_INLINE void fetch(const uint8_t *const *piece, size_t at, const enum run_form form) {
    if (form == RUN_F32)
        return;
    at *= form == RUN_F16 ? 2 : 1;
    _mm_prefetch((const char *)piece[FAR_AHEAD] + at, _MM_HINT_T1);
    _mm_prefetch((const char *)piece[NEAR_AHEAD] + at, _MM_HINT_T0);
}

/* Blocks block .. block + B - 1 of the run. K: [head_dim][16]. */
ALWAYS_INLINE void scores_n(struct tile *t, const struct run *run, uint32_t row, const int R,
                            uint32_t block, const int B, const enum run_form form) {
    const uint8_t *const *at = run->at + block;
    const float *q = t->q + row * QUERY, *end = q + t->head_dim;
    __m512 acc[R_MAX][ATTENTION_RUN];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int b = 0; b < B; b++)
            acc[r][b] = _mm512_setzero_ps();
    for (size_t k = 0; q < end; q += 2) {
        UNROLL for (int b = 0; b < B; b++) /* INT8: every line is asked for twice */
            fetch(at + b, k, form);
        UNROLL for (int i = 0; i < 2; i++, k += KV_BLOCK_TOKENS) {
            __m512 x[ATTENTION_RUN];
            UNROLL for (int b = 0; b < B; b++)
                x[b] = load16(at[b], k, form);
            UNROLL for (int r = 0; r < R; r++) {
                __m512 y = _mm512_set1_ps(q[r * QUERY + i]);
                UNROLL for (int b = 0; b < B; b++)
                    acc[r][b] = _mm512_fmadd_ps(y, x[b], acc[r][b]);
            }
        }
    }
    const uint32_t first = run->begin + block * KV_BLOCK_TOKENS;
    float *to = t->scores + row * SCORES + first;
    UNROLL for (int b = 0; b < B; b++) {
        __m512 scale = _mm512_loadu_ps(t->key_scale + first + 16 * b);
        UNROLL for (int r = 0; r < R; r++)
            _mm512_storeu_ps(to + r * SCORES + 16 * b, _mm512_mul_ps(acc[r][b], scale));
    }
}

/* Values d .. d + 16 * C - 1 of the positions `from` .. `to` - 1 of the run. V: [16][head_dim]. */
ALWAYS_INLINE void values_n(struct tile *t, const struct run *run, uint32_t row, const int R,
                            uint32_t from, uint32_t to, uint32_t d, const int C,
                            const enum run_form form) {
    const size_t dim = t->head_dim;
    const float *w = t->scores + row * SCORES + run->begin + from;
    float *part = t->part + row * dim + d;
    __m512 acc[R_MAX][4];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int c = 0; c < C; c++)
            acc[r][c] = _mm512_loadu_ps(part + (size_t)r * dim + 16 * c);
    while (from < to) {
        const uint8_t *const *piece = run->at + from / KV_BLOCK_TOKENS, *v = *piece;
        size_t at = from % KV_BLOCK_TOKENS * dim + d;
        uint32_t end = from / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS + KV_BLOCK_TOKENS;
        const float *w_end = w + ((end < to ? end : to) - from);
        from = end;
        for (; w < w_end; w++, at += dim) {
            __m512 x[4];
            UNROLL for (int c = 0; c < C; c += 2)
                fetch(piece, at + 16 * (size_t)c, form);
            UNROLL for (int c = 0; c < C; c++)
                x[c] = load16(v, at + 16 * (size_t)c, form);
            UNROLL for (int r = 0; r < R; r++) {
                __m512 weight = _mm512_set1_ps(w[r * SCORES]);
                UNROLL for (int c = 0; c < C; c++)
                    acc[r][c] = _mm512_fmadd_ps(weight, x[c], acc[r][c]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int c = 0; c < C; c++)
            _mm512_storeu_ps(part + (size_t)r * dim + 16 * c, acc[r][c]);
}

ALWAYS_INLINE __m256 load8(const uint8_t *p, size_t at, const enum run_form form) {
    if (form == RUN_F32)
        return _mm256_loadu_ps((const float *)(const void *)p + at);
    if (form == RUN_F16)
        return load_f16x8((const uint16_t *)(const void *)p + at);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + at))));
}

/* The last 8 values where head_dim is no multiple of 16. */
ALWAYS_INLINE void values_tail(struct tile *t, const struct run *run, uint32_t row, const int R,
                               uint32_t from, uint32_t to, uint32_t d, const enum run_form form) {
    const uint32_t dim = t->head_dim;
    const float *w = t->scores + row * SCORES + run->begin;
    float *part = t->part + (size_t)row * dim + d;
    __m256 acc[R_MAX];
    UNROLL for (int r = 0; r < R; r++)
        acc[r] = _mm256_loadu_ps(part + (uint32_t)r * dim);
    for (uint32_t i = from; i < to; i++) {
        size_t at = (size_t)(i % KV_BLOCK_TOKENS) * dim + d;
        __m256 x = load8(run->at[i / KV_BLOCK_TOKENS], at, form);
        UNROLL for (int r = 0; r < R; r++)
            acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(w[r * SCORES + i]), x, acc[r]);
    }
    UNROLL for (int r = 0; r < R; r++)
        _mm256_storeu_ps(part + (uint32_t)r * dim, acc[r]);
}

ALWAYS_INLINE void scores_r(struct tile *t, const struct run *run, uint32_t row, const int R,
                            const enum run_form form) {
    uint32_t b = 0, n = (run->n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    for (; b + 4 <= n; b += 4)
        scores_n(t, run, row, R, b, 4, form);
    for (; b < n; b++)
        scores_n(t, run, row, R, b, 1, form);
}

ALWAYS_INLINE void values_r(struct tile *t, const struct run *run, uint32_t row, const int R,
                            uint32_t from, uint32_t to, const enum run_form form) {
    uint32_t d = 0;
    for (; d + 64 <= t->head_dim; d += 64)
        values_n(t, run, row, R, from, to, d, 4, form);
    for (; d + 16 <= t->head_dim; d += 16)
        values_n(t, run, row, R, from, to, d, 1, form);
    if (d < t->head_dim)
        values_tail(t, run, row, R, from, to, d, form);
}
#include "worker/engine/cpu/attention_rows.h"

/* Lane i % 8 of the sum is position i % 8: the lower half of a vector, then its upper half. */
ALWAYS_INLINE __m256 weights16(const struct tile *t, float *s, uint32_t i, __mmask16 m, __m512 max,
                               __m256 sum, const bool scaled) {
    __m512 x = _mm512_sub_ps(_mm512_maskz_loadu_ps(m, s + i), max);
    __m512 w = _mm512_maskz_mov_ps(m, exp16_negative(x)); /* a sum + 0 is the same sum */
    sum = _mm256_add_ps(sum, _mm512_castps512_ps256(w));
    sum = _mm256_add_ps(sum, _mm512_extractf32x8_ps(w, 1));
    if (scaled)
        w = _mm512_mul_ps(w, _mm512_loadu_ps(t->value_scale + i));
    _mm512_mask_storeu_ps(s + i, m, w);
    return sum;
}

static void max_of_row(struct tile *t, uint32_t row, uint32_t n) {
    const float *s = t->scores + row * SCORES;
    const __mmask16 tail = (__mmask16)((1u << (n % 16)) - 1);
    const uint32_t whole = n & ~15u;
    __m512 max = _mm512_set1_ps(-INFINITY);
    for (uint32_t i = 0; i < whole; i += 16)
        max = _mm512_max_ps(_mm512_loadu_ps(s + i), max);
    max = _mm512_mask_max_ps(max, tail, _mm512_maskz_loadu_ps(tail, s + whole), max);
    t->part_max[row] = lane_max8(_mm256_max_ps(_mm512_castps512_ps256(max),
                                               _mm512_extractf32x8_ps(max, 1)));
}

ALWAYS_INLINE void weights_n(struct tile *t, uint32_t row, uint32_t n, const bool scaled) {
    float *s = t->scores + row * SCORES;
    const __mmask16 tail = (__mmask16)((1u << (n % 16)) - 1);
    const uint32_t whole = n & ~15u;
    const __m512 max = _mm512_set1_ps(t->part_max[row]);
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t i = 0; i < whole; i += 16)
        sum = weights16(t, s, i, 0xffff, max, sum, scaled);
    if (tail)
        sum = weights16(t, s, whole, tail, max, sum, scaled);
    t->part_sum[row] = lane_sum8(sum);
}

static void weights_of_row(struct tile *t, uint32_t row, uint32_t n) {
    if (t->stored == RUN_INT8)
        weights_n(t, row, n, true);
    else
        weights_n(t, row, n, false);
}

static void widen(float *out, const uint8_t *from, uint32_t n, enum run_form form) {
    if (form == RUN_F16)
        for (uint32_t i = 0; i < n; i += 16)
            _mm512_storeu_ps(out + i, load16(from, i, RUN_F16));
    else
        for (uint32_t i = 0; i < n; i += 16)
            _mm512_storeu_ps(out + i, load16(from, i, RUN_INT8));
}

#include "worker/engine/cpu/attention_body.h"

void attention_avx512(const struct attention_args *a) {
    attention_walk(a);
}

void attention_join_avx512(const struct attention_args *a) {
    attention_join_rows(a);
}
#else
typedef int ops_attention_avx512_is_empty;
#endif
