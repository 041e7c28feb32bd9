/* AVX2 attention: two vectors are 16 positions of K; V goes 16 or 32 values at a time. */
#if defined(__x86_64__)
#include "worker/engine/cpu/attention_tile.h"
#include "worker/engine/cpu/simd_avx2.h"

#define R_MAX 6 /* rows of a register tile: 12 accumulators, however they are shared out */

/* Element `at` and the 7 behind it. */
ALWAYS_INLINE __m256 load8(const uint8_t *p, size_t at, const enum run_form form) {
    if (form == RUN_F32)
        return _mm256_loadu_ps((const float *)(const void *)p + at);
    if (form == RUN_F16)
        return load_f16x8((const uint16_t *)(const void *)p + at);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + at))));
}

/* Asks for the lines of element `at` of the pieces FAR_AHEAD and NEAR_AHEAD behind piece[0]. */
ALWAYS_INLINE void fetch(const uint8_t *const *piece, size_t at, const enum run_form form) {
    if (form == RUN_F32)
        return;
    at *= form == RUN_F16 ? 2 : 1;
    _mm_prefetch((const char *)piece[FAR_AHEAD] + at, _MM_HINT_T1);
    _mm_prefetch((const char *)piece[NEAR_AHEAD] + at, _MM_HINT_T0);
}

/* Blocks block .. block + B - 1 of the run, two vectors each. K: [head_dim][16]. */
ALWAYS_INLINE void scores_n(struct tile *t, const struct run *run, uint32_t row, const int R,
                            uint32_t block, const int B, const enum run_form form) {
    const uint8_t *const *at = run->at + block;
    const float *q = t->q + row * QUERY, *end = q + t->head_dim;
    __m256 acc[R_MAX][2 * ATTENTION_RUN];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int b = 0; b < 2 * B; b++)
            acc[r][b] = _mm256_setzero_ps();
    for (size_t k = 0; q < end; q += 2) {
        UNROLL for (int b = 0; b < B; b++) /* INT8: every line is asked for twice */
            fetch(at + b, k, form);
        UNROLL for (int i = 0; i < 2; i++, k += KV_BLOCK_TOKENS) {
            __m256 x[2 * ATTENTION_RUN];
            UNROLL for (int b = 0; b < 2 * B; b++)
                x[b] = load8(at[b / 2], k + (size_t)b % 2 * 8, form);
            UNROLL for (int r = 0; r < R; r++) {
                __m256 y = _mm256_broadcast_ss(q + r * QUERY + i);
                UNROLL for (int b = 0; b < 2 * B; b++)
                    acc[r][b] = _mm256_fmadd_ps(y, x[b], acc[r][b]);
            }
        }
    }
    const uint32_t first = run->begin + block * KV_BLOCK_TOKENS;
    float *to = t->scores + row * SCORES + first;
    UNROLL for (int b = 0; b < 2 * B; b++) {
        __m256 scale = _mm256_loadu_ps(t->key_scale + first + 8 * b);
        UNROLL for (int r = 0; r < R; r++)
            _mm256_storeu_ps(to + r * SCORES + 8 * b, _mm256_mul_ps(acc[r][b], scale));
    }
}

/* Values d .. d + 8 * C - 1 of the positions `from` .. `to` - 1 of the run. V: [16][head_dim]. */
ALWAYS_INLINE void values_n(struct tile *t, const struct run *run, uint32_t row, const int R,
                            uint32_t from, uint32_t to, uint32_t d, const int C,
                            const enum run_form form) {
    const size_t dim = t->head_dim;
    const float *w = t->scores + row * SCORES + run->begin + from;
    float *part = t->part + row * dim + d;
    __m256 acc[R_MAX][8];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int c = 0; c < C; c++)
            acc[r][c] = _mm256_loadu_ps(part + (size_t)r * dim + 8 * c);
    while (from < to) {
        const uint8_t *const *piece = run->at + from / KV_BLOCK_TOKENS, *v = *piece;
        size_t at = from % KV_BLOCK_TOKENS * dim + d;
        uint32_t end = from / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS + KV_BLOCK_TOKENS;
        const float *w_end = w + ((end < to ? end : to) - from);
        from = end;
        for (; w < w_end; w++, at += dim) {
            __m256 x[8];
            UNROLL for (int c = 0; c < C; c += 4)
                fetch(piece, at + 8 * (size_t)c, form);
            UNROLL for (int c = 0; c < C; c++)
                x[c] = load8(v, at + 8 * (size_t)c, form);
            UNROLL for (int r = 0; r < R; r++) {
                __m256 weight = _mm256_broadcast_ss(w + r * SCORES);
                UNROLL for (int c = 0; c < C; c++)
                    acc[r][c] = _mm256_fmadd_ps(weight, x[c], acc[r][c]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int c = 0; c < C; c++)
            _mm256_storeu_ps(part + (size_t)r * dim + 8 * c, acc[r][c]);
}

/* Few rows take more blocks at a time: 8 accumulators at least keep both units busy. */
ALWAYS_INLINE void scores_r(struct tile *t, const struct run *run, uint32_t row, const int R,
                            const enum run_form form) {
    const int B = R == 1 ? 4 : R <= 3 ? 2 : 1;
    uint32_t b = 0, n = (run->n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    for (; b + (uint32_t)B <= n; b += (uint32_t)B)
        scores_n(t, run, row, R, b, B, form);
    for (; b < n; b++)
        scores_n(t, run, row, R, b, 1, form);
}

ALWAYS_INLINE void values_r(struct tile *t, const struct run *run, uint32_t row, const int R,
                            uint32_t from, uint32_t to, const enum run_form form) {
    const int C = R == 1 ? 8 : R <= 3 ? 4 : 2;
    uint32_t d = 0;
    for (; d + 8 * (uint32_t)C <= t->head_dim; d += 8 * (uint32_t)C)
        values_n(t, run, row, R, from, to, d, C, form);
    for (; d < t->head_dim; d += 8)
        values_n(t, run, row, R, from, to, d, 1, form);
}
#include "worker/engine/cpu/attention_rows.h"

static void max_of_row(struct tile *t, uint32_t row, uint32_t n) {
    float *s = t->scores + row * SCORES;
    __m256 max = _mm256_set1_ps(-INFINITY);
    if (n % 8) /* weight 0 behind the last: adding it changes no lane, and nobody reads it there */
        _mm256_storeu_ps(s + n / 8 * 8, load_tail8(s + n / 8 * 8, n % 8, -INFINITY));
    for (uint32_t i = 0; i < n; i += 8)
        max = _mm256_max_ps(_mm256_loadu_ps(s + i), max);
    t->part_max[row] = lane_max8(max);
}

ALWAYS_INLINE void weights_n(struct tile *t, uint32_t row, uint32_t n, const bool scaled) {
    float *s = t->scores + row * SCORES;
    const __m256 max = _mm256_set1_ps(t->part_max[row]);
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t i = 0; i < n; i += 8) {
        __m256 w = exp8_negative(_mm256_sub_ps(_mm256_loadu_ps(s + i), max));
        sum = _mm256_add_ps(sum, w);
        if (scaled)
            w = _mm256_mul_ps(w, _mm256_loadu_ps(t->value_scale + i));
        _mm256_storeu_ps(s + i, w);
    }
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
        for (uint32_t i = 0; i < n; i += 8)
            _mm256_storeu_ps(out + i, load8(from, i, RUN_F16));
    else
        for (uint32_t i = 0; i < n; i += 8)
            _mm256_storeu_ps(out + i, load8(from, i, RUN_INT8));
}

#include "worker/engine/cpu/attention_body.h"

void attention_avx2(const struct attention_args *a) {
    attention_walk(a);
}

void attention_join_avx2(const struct attention_args *a) {
    attention_join_rows(a);
}
#else
typedef int ops_attention_avx2_is_empty;
#endif
