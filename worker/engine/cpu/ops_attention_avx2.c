/* AVX2 attention. Query rows (position, head of the group) are taken ROWS at a time: K and V of a
 * block are converted to floats once for all of them. Rows are in rising position, so that those
 * which see a block are the last ones of a tile; each row's chain is that of ops_attention.c. */
#if defined(__x86_64__)
#include "worker/engine/cpu/ops_parts.h"

#include "worker/engine/cpu/simd_avx2.h"

#include <assert.h>
#include <string.h>

#define ROWS 48   /* 16 positions of 3 heads; converting K and V is then a small part of the work */
#define R_MAX 6   /* rows of a register tile: 12 accumulators */
#define BLOCK KV_BLOCK_TOKENS
/* Floats from one row's scores to the next; 256 alone would put all rows into a few cache sets. */
#define SCORES (ATTENTION_SPLIT + 16)

struct tile {
    const struct attention_args *a;
    uint32_t n_rows, head_dim;
    uint32_t n_keys[ROWS];         /* positions a row sees; never falls from row to row */
    float *out[ROWS];
    float q[KV_HEAD_DIM_MAX * ROWS]; /* [head_dim][row]: one pointer for all rows */
    float max[ROWS], sum[ROWS];    /* over the splits so far */
    float part_max[ROWS], part_sum[ROWS]; /* of the present split */
    float scores[ROWS * SCORES];
    float all[ROWS * KV_HEAD_DIM_MAX], part[ROWS * KV_HEAD_DIM_MAX]; /* [row][head_dim] */
    float block[BLOCK * KV_HEAD_DIM_MAX]; /* K or V of one block */
};

/* scores of 16 positions for n rows; k: [head_dim][16]. */
ALWAYS_INLINE void scores_n(struct tile *t, uint32_t row, const int n, uint32_t at, float scale) {
    const float *k = t->block, *q = t->q + row;
    __m256 acc[R_MAX][2];
    UNROLL for (int r = 0; r < n; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (uint32_t d = 0; d < t->head_dim; d++, k += BLOCK, q += ROWS) {
        __m256 k0 = _mm256_loadu_ps(k), k1 = _mm256_loadu_ps(k + 8);
        UNROLL for (int r = 0; r < n; r++) {
            __m256 x = _mm256_broadcast_ss(q + r);
            acc[r][0] = _mm256_fmadd_ps(x, k0, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(x, k1, acc[r][1]);
        }
    }
    UNROLL for (int r = 0; r < n; r++) {
        float *to = t->scores + (row + (uint32_t)r) * SCORES + at;
        _mm256_storeu_ps(to, _mm256_mul_ps(acc[r][0], _mm256_set1_ps(scale)));
        _mm256_storeu_ps(to + 8, _mm256_mul_ps(acc[r][1], _mm256_set1_ps(scale)));
    }
}

/* part[row][d .. d + 8 * vectors) += weight x V over n_pos positions of the block. */
ALWAYS_INLINE void values_n(struct tile *t, uint32_t row, const int n, uint32_t at, uint32_t n_pos,
                            uint32_t d, const int vectors) {
    const float *v = t->block + d, *w = t->scores + row * SCORES + at;
    float *part = t->part + (size_t)row * t->head_dim + d;
    __m256 acc[R_MAX][2];
    UNROLL for (int r = 0; r < n; r++)
        UNROLL for (int c = 0; c < vectors; c++)
            acc[r][c] = _mm256_loadu_ps(part + (uint32_t)r * t->head_dim + 8 * c);
    for (uint32_t i = 0; i < n_pos; i++, v += t->head_dim) {
        __m256 x[2];
        UNROLL for (int c = 0; c < vectors; c++)
            x[c] = _mm256_loadu_ps(v + 8 * c);
        UNROLL for (int r = 0; r < n; r++) {
            __m256 weight = _mm256_broadcast_ss(w + r * SCORES + i);
            UNROLL for (int c = 0; c < vectors; c++)
                acc[r][c] = _mm256_fmadd_ps(weight, x[c], acc[r][c]);
        }
    }
    UNROLL for (int r = 0; r < n; r++)
        UNROLL for (int c = 0; c < vectors; c++)
            _mm256_storeu_ps(part + (uint32_t)r * t->head_dim + 8 * c, acc[r][c]);
}

ALWAYS_INLINE void values_all_d(struct tile *t, uint32_t row, const int n, uint32_t at,
                                uint32_t n_pos) {
    uint32_t d = 0;
    for (; d + 16 <= t->head_dim; d += 16)
        values_n(t, row, n, at, n_pos, d, 2);
    if (d < t->head_dim)
        values_n(t, row, n, at, n_pos, d, 1);
}

/* Rows row .. end - 1, as register tiles of 6, 3 and 1. */
static void scores_rows(struct tile *t, uint32_t row, uint32_t end, uint32_t at, float scale) {
    for (; row + 6 <= end; row += 6)
        scores_n(t, row, 6, at, scale);
    for (; row + 3 <= end; row += 3)
        scores_n(t, row, 3, at, scale);
    for (; row < end; row++)
        scores_n(t, row, 1, at, scale);
}

static void values_rows(struct tile *t, uint32_t row, uint32_t end, uint32_t at, uint32_t n_pos) {
    for (; row + 6 <= end; row += 6)
        values_all_d(t, row, 6, at, n_pos);
    for (; row + 3 <= end; row += 3)
        values_all_d(t, row, 3, at, n_pos);
    for (; row < end; row++)
        values_all_d(t, row, 1, at, n_pos);
}

static const uint16_t *run_of(const struct attention_args *a, uint32_t pos) {
    const uint8_t *block = a->pool + a->blocks[pos / BLOCK] * a->kv->block_stride;
    return (const uint16_t *)(const void *)(block + kv_offset_k(a->kv, a->layer, a->kv_head));
}

static void load_block(struct tile *t, const uint16_t *from, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(t->block + i, load_f16x8(from + i));
}

static uint32_t first_row_beyond(const struct tile *t, uint32_t pos) {
    uint32_t row = 0;
    while (row < t->n_rows && t->n_keys[row] <= pos)
        row++;
    return row;
}

/* Scores of one row become weights; those of positions it does not see are never read again. */
static void weights_of_row(struct tile *t, uint32_t row, uint32_t n) {
    float *s = t->scores + row * SCORES;
    __m256 max = _mm256_set1_ps(-INFINITY), sum = _mm256_setzero_ps();
    uint32_t whole = n & ~7u, tail = n & 7u;
    for (uint32_t i = 0; i < whole; i += 8)
        max = _mm256_max_ps(_mm256_loadu_ps(s + i), max);
    if (tail)
        max = _mm256_max_ps(load_tail8(s + whole, tail, -INFINITY), max);
    t->part_max[row] = lane_max8(max);
    max = _mm256_set1_ps(t->part_max[row]);
    for (uint32_t i = 0; i < whole; i += 8) {
        __m256 w = exp8(_mm256_sub_ps(_mm256_loadu_ps(s + i), max));
        _mm256_storeu_ps(s + i, w);
        sum = _mm256_add_ps(sum, w);
    }
    if (tail) { /* weight 0 behind the tail: adding it changes no lane */
        __m256 w = exp8(_mm256_sub_ps(load_tail8(s + whole, tail, -INFINITY), max));
        store_tail8(s + whole, tail, w);
        sum = _mm256_add_ps(sum, load_tail8(s + whole, tail, 0));
    }
    t->part_sum[row] = lane_sum8(sum);
}

static void split_weights(struct tile *t, uint32_t begin, uint32_t end) {
    float scale = 1.0f / sqrtf((float)t->head_dim);
    for (uint32_t pos = begin; pos < end; pos += BLOCK) {
        load_block(t, run_of(t->a, pos), BLOCK * t->head_dim);
        scores_rows(t, first_row_beyond(t, pos), t->n_rows, pos - begin, scale);
    }
    for (uint32_t row = first_row_beyond(t, begin); row < t->n_rows; row++) {
        uint32_t n = t->n_keys[row] - begin;
        weights_of_row(t, row, n < ATTENTION_SPLIT ? n : ATTENTION_SPLIT);
    }
}

static void split_values(struct tile *t, uint32_t begin, uint32_t end) {
    for (uint32_t row = first_row_beyond(t, begin); row < t->n_rows; row++)
        memset(t->part + (size_t)row * t->head_dim, 0, t->head_dim * sizeof(float));
    for (uint32_t pos = begin; pos < end; pos += BLOCK) {
        load_block(t, run_of(t->a, pos) + BLOCK * t->head_dim, BLOCK * t->head_dim);
        uint32_t row = first_row_beyond(t, pos), seen;
        while (row < t->n_rows) { /* rows that see equally many positions of the block together */
            uint32_t last = row;
            seen = t->n_keys[row] - pos < BLOCK ? t->n_keys[row] - pos : BLOCK;
            if (seen == BLOCK)
                last = t->n_rows;
            while (last < t->n_rows && t->n_keys[last] == t->n_keys[row])
                last++;
            values_rows(t, row, last, pos - begin, seen);
            row = last;
        }
    }
}

static void join_row(struct tile *t, uint32_t row) {
    float max = t->part_max[row] > t->max[row] ? t->part_max[row] : t->max[row];
    float keep = exp_f32(t->max[row] - max), take = exp_f32(t->part_max[row] - max);
    float *all = t->all + (size_t)row * t->head_dim;
    const float *part = t->part + (size_t)row * t->head_dim;
    for (uint32_t d = 0; d < t->head_dim; d += 8) {
        __m256 old = _mm256_mul_ps(_mm256_loadu_ps(all + d), _mm256_set1_ps(keep));
        __m256 new = _mm256_loadu_ps(part + d);
        _mm256_storeu_ps(all + d, _mm256_fmadd_ps(new, _mm256_set1_ps(take), old));
    }
    t->sum[row] = fmaf(t->part_sum[row], take, t->sum[row] * keep);
    t->max[row] = max;
}

static void join(struct tile *t, uint32_t begin) {
    for (uint32_t row = first_row_beyond(t, begin); row < t->n_rows; row++) {
        if (begin == 0) {
            size_t at = (size_t)row * t->head_dim;
            memcpy(t->all + at, t->part + at, t->head_dim * sizeof(float));
            t->sum[row] = t->part_sum[row];
            t->max[row] = t->part_max[row];
        } else {
            join_row(t, row);
        }
    }
}

static void attend_tile(struct tile *t) {
    uint32_t n_keys = t->n_keys[t->n_rows - 1];
    for (uint32_t begin = 0; begin < n_keys; begin += ATTENTION_SPLIT) {
        uint32_t end = n_keys - begin < ATTENTION_SPLIT ? n_keys : begin + ATTENTION_SPLIT;
        split_weights(t, begin, end);
        split_values(t, begin, end);
        join(t, begin);
    }
    for (uint32_t row = 0; row < t->n_rows; row++) {
        __m256 sum = _mm256_set1_ps(t->sum[row]);
        const float *all = t->all + (size_t)row * t->head_dim;
        for (uint32_t d = 0; d < t->head_dim; d += 8)
            _mm256_storeu_ps(t->out[row] + d, _mm256_div_ps(_mm256_loadu_ps(all + d), sum));
    }
}

void attention_avx2(const struct attention_args *a) {
    assert(a->layer < a->kv->n_layers && a->kv_head < a->kv->n_kv_heads);
    assert(a->kv->head_dim <= KV_HEAD_DIM_MAX && a->kv->head_dim % 8 == 0);
    struct tile t;
    t.a = a;
    t.head_dim = a->kv->head_dim;
    uint32_t n_rows = a->n * a->n_group;
    for (uint32_t first = 0; first < n_rows; first += ROWS) {
        t.n_rows = n_rows - first < ROWS ? n_rows - first : ROWS;
        for (uint32_t r = 0; r < t.n_rows; r++) {
            uint32_t i = (first + r) / a->n_group, g = (first + r) % a->n_group;
            t.n_keys[r] = a->pos + i + 1;
            const float *q = a->q + i * a->q_stride + (size_t)g * t.head_dim;
            for (uint32_t d = 0; d < t.head_dim; d++)
                t.q[d * ROWS + r] = q[d];
            t.out[r] = a->out + i * a->out_stride + (size_t)g * t.head_dim;
        }
        attend_tile(&t);
    }
}
#else
typedef int ops_attention_avx2_is_empty;
#endif
