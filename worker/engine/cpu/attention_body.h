/* attention_body.h - the walk of attention_tile.h, included by each instance after its kernels:
 *
 *   scores_rows(t, run, row, n_rows)      scores of n_rows (1 .. 6) rows for all blocks of the run
 *   values_rows(t, run, row, n_rows, from, to)  part += weight x V, positions from .. to - 1 of it
 *   max_of_row(t, row, n)                 part_max of n scores
 *   weights_of_row(t, row, n)             scores of n positions become weights; part_sum
 *   widen(out, from, n, form)             n numbers of the store as floats; n is a multiple of 128
 *
 * Everything here is 8 lanes wide in both instances: it is a small part of the work.
 */
#include "worker/engine/cpu/attention_tile.h"
#include "worker/engine/cpu/simd_avx2.h"

#include <assert.h>
#include <string.h>

/* The K half of a block, or its V half. */
static const uint8_t *half_of(const struct tile *t, uint32_t pos, bool values) {
    const struct attention_args *a = t->a;
    const uint8_t *block = a->pool + a->blocks[pos / KV_BLOCK_TOKENS] * a->kv->block_stride;
    return block + (values ? kv_offset_v(a->kv, a->layer, a->kv_head)
                           : kv_offset_k(a->kv, a->layer, a->kv_head));
}

static uint32_t run_tokens(const struct tile *t) {
    return t->head_dim > KV_HEAD_DIM_MAX / 2 ? RUN_TOKENS / 2 : RUN_TOKENS;
}

/* The run that begins at `pos` of the split begin .. end - 1. */
static void run_find(const struct tile *t, struct run *r, uint32_t pos, uint32_t begin,
                     uint32_t end, bool values) {
    uint32_t step = run_tokens(t), next = pos + RUNS_AHEAD * step;
    bool next_values = values;
    r->begin = pos - begin;
    r->n = end - pos < step ? end - pos : step;
    if (next >= end) { /* behind the scores come the split's values, behind them the next split */
        next = (values ? begin + ATTENTION_SPLIT : begin) + (next - end);
        next_values = !values;
    }
    uint32_t last = t->n_keys[t->n_rows - 1] - 1;
    for (uint32_t b = 0; b * KV_BLOCK_TOKENS < r->n; b++) {
        uint32_t ahead = next + b * KV_BLOCK_TOKENS;
        r->at[b] = half_of(t, pos + b * KV_BLOCK_TOKENS, values);
        r->ahead[b] = half_of(t, ahead < last ? ahead : last, next_values);
    }
}

/* Factors of the run's positions. Of positions not yet written they are garbage, which meets only
 * scores that are never read. */
static void run_scales(struct tile *t, const struct run *r) {
    const __m256 scale = _mm256_set1_ps(1.0f / sqrtf((float)t->head_dim));
    const size_t behind = 2 * kv_half_bytes(t->a->kv);
    for (uint32_t i = 0; i < r->n; i += 8) {
        float *keys = t->key_scale + r->begin + i, *values = t->value_scale + r->begin + i;
        if (t->stored != RUN_INT8) {
            _mm256_storeu_ps(keys, scale);
            continue;
        }
        const uint8_t *block = r->at[i / KV_BLOCK_TOKENS] + behind;
        const float *s = (const float *)(const void *)block + i % KV_BLOCK_TOKENS;
        _mm256_storeu_ps(keys, _mm256_mul_ps(_mm256_loadu_ps(s), scale));
        _mm256_storeu_ps(values, _mm256_loadu_ps(s + KV_BLOCK_TOKENS));
    }
}

/* Many rows: the run as floats, once for all of them. */
static void run_widen(struct tile *t, struct run *r) {
    uint32_t n = KV_BLOCK_TOKENS * t->head_dim;
    if (t->form != RUN_F32)
        return;
    for (uint32_t b = 0; b * KV_BLOCK_TOKENS < r->n; b++) {
        float *to = t->wide + (size_t)b * n;
        widen(to, r->at[b], n, t->stored);
        r->at[b] = (const uint8_t *)to;
    }
}

/* The share of rows row .. row + m - 1 in fetching the next run: all of it at once would wait. */
static void run_fetch(const struct tile *t, const struct run *r, uint32_t row, uint32_t m) {
    if (t->form != RUN_F32)
        return;
    size_t bytes = kv_half_bytes(t->a->kv);
    size_t from = bytes * row / t->n_rows & ~(size_t)63, to = bytes * (row + m) / t->n_rows;
    for (uint32_t b = 0; b * KV_BLOCK_TOKENS < r->n; b++)
        for (size_t i = from; i < to; i += 64)
            _mm_prefetch((const char *)r->ahead[b] + i, _MM_HINT_T1);
}

/* Rows of a register tile from `row` on. */
static uint32_t rows_at_once(uint32_t left) {
    return left >= 6 ? 6 : left == 5 ? 3 : left;
}

static uint32_t first_row_beyond(const struct tile *t, uint32_t pos) {
    uint32_t row = 0;
    while (row < t->n_rows && t->n_keys[row] <= pos)
        row++;
    return row;
}

/* How many of the n positions from pos on a row sees. */
static uint32_t seen_of(const struct tile *t, uint32_t row, uint32_t pos, uint32_t n) {
    uint32_t keys = t->n_keys[row];
    return keys <= pos ? 0 : keys - pos < n ? keys - pos : n;
}

static void split_weights(struct tile *t, uint32_t begin, uint32_t end) {
    for (uint32_t pos = begin; pos < end; pos += run_tokens(t)) {
        struct run r;
        run_find(t, &r, pos, begin, end, false);
        run_scales(t, &r);
        run_widen(t, &r);
        uint32_t n = r.n;
        for (uint32_t row = first_row_beyond(t, pos), m; row < t->n_rows; row += m) {
            m = rows_at_once(t->n_rows - row);
            uint32_t seen = t->n_keys[row + m - 1] - pos;
            r.n = seen < n ? seen : n;
            run_fetch(t, &r, row, m);
            scores_rows(t, &r, row, m);
        }
    }
    for (uint32_t row = first_row_beyond(t, begin), m; row < t->n_rows; row += m) {
        m = rows_at_once(t->n_rows - row); /* a maximum's latency is hidden behind other rows */
        for (uint32_t i = row; i < row + m; i++)
            max_of_row(t, i, seen_of(t, i, begin, ATTENTION_SPLIT));
        for (uint32_t i = row; i < row + m; i++)
            weights_of_row(t, i, seen_of(t, i, begin, ATTENTION_SPLIT));
    }
}

/* What all rows of a register tile see goes together, the rest of each row alone: a position that a
 * row does not see must not even be multiplied with zero. */
static void split_values(struct tile *t, uint32_t begin, uint32_t end) {
    uint32_t first = first_row_beyond(t, begin);
    memset(t->part + (size_t)first * t->head_dim, 0,
           (size_t)(t->n_rows - first) * t->head_dim * sizeof(float));
    for (uint32_t pos = begin; pos < end; pos += run_tokens(t)) {
        struct run r;
        run_find(t, &r, pos, begin, end, true);
        run_widen(t, &r);
        for (uint32_t row = first_row_beyond(t, pos), m; row < t->n_rows; row += m) {
            m = rows_at_once(t->n_rows - row);
            uint32_t common = seen_of(t, row, pos, r.n);
            run_fetch(t, &r, row, m);
            values_rows(t, &r, row, m, 0, common);
            for (uint32_t i = row; i < row + m; i++)
                if (seen_of(t, i, pos, r.n) > common)
                    values_rows(t, &r, i, 1, common, seen_of(t, i, pos, r.n));
        }
    }
}

/* all = all and part joined; max and sum likewise. */
static void join_row(float *all, float *max, float *sum, const float *part, float part_max,
                     float part_sum, uint32_t head_dim) {
    float top = part_max > *max ? part_max : *max;
    float keep = exp_f32(*max - top), take = exp_f32(part_max - top);
    for (uint32_t d = 0; d < head_dim; d += 8) {
        __m256 old = _mm256_mul_ps(_mm256_loadu_ps(all + d), _mm256_set1_ps(keep));
        __m256 new = _mm256_loadu_ps(part + d);
        _mm256_storeu_ps(all + d, _mm256_fmadd_ps(new, _mm256_set1_ps(take), old));
    }
    *sum = fmaf(part_sum, take, *sum * keep);
    *max = top;
}

static void divide_row(float *out, const float *all, float sum, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; d += 8)
        _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_loadu_ps(all + d), _mm256_set1_ps(sum)));
}

static void split_join(struct tile *t, uint32_t begin) {
    for (uint32_t row = first_row_beyond(t, begin); row < t->n_rows; row++) {
        size_t at = (size_t)row * t->head_dim;
        if (begin != 0) {
            join_row(t->all + at, &t->max[row], &t->sum[row], t->part + at, t->part_max[row],
                     t->part_sum[row], t->head_dim);
            continue;
        }
        memcpy(t->all + at, t->part + at, t->head_dim * sizeof(float));
        t->sum[row] = t->part_sum[row];
        t->max[row] = t->part_max[row];
    }
}

static void split_keep(const struct tile *t, uint32_t split) {
    const struct attention_args *a = t->a;
    for (uint32_t row = first_row_beyond(t, split * ATTENTION_SPLIT); row < t->n_rows; row++) {
        float *to = attention_partial(a, split, row);
        memcpy(to, t->part + (size_t)row * t->head_dim, t->head_dim * sizeof(float));
        to[t->head_dim] = t->part_max[row];
        to[t->head_dim + 1] = t->part_sum[row];
    }
}

static void tile_walk(struct tile *t) {
    const struct attention_args *a = t->a;
    uint32_t n_keys = t->n_keys[t->n_rows - 1];
    uint32_t split = a->partials ? a->split_begin : 0, n = a->partials ? a->split_end : UINT32_MAX;
    for (; split < n && split * ATTENTION_SPLIT < n_keys; split++) {
        uint32_t begin = split * ATTENTION_SPLIT;
        uint32_t end = n_keys - begin < ATTENTION_SPLIT ? n_keys : begin + ATTENTION_SPLIT;
        split_weights(t, begin, end);
        split_values(t, begin, end);
        if (a->partials)
            split_keep(t, split);
        else
            split_join(t, begin);
    }
    for (uint32_t row = 0; a->partials == NULL && row < t->n_rows; row++)
        divide_row(t->out[row], t->all + (size_t)row * t->head_dim, t->sum[row], t->head_dim);
}

static void attention_walk(const struct attention_args *a) {
    assert(a->layer < a->kv->n_layers && a->kv_head < a->kv->n_kv_heads);
    assert(a->kv->head_dim <= KV_HEAD_DIM_MAX && a->kv->head_dim % 8 == 0);
    struct tile t;
    t.a = a;
    t.head_dim = a->kv->head_dim;
    t.stored = a->kv->type == ENGINE_KV_INT8 ? RUN_INT8 : RUN_F16;
    uint32_t n_rows = a->n * a->n_group, most = ATTENTION_ROWS;
    if (t.head_dim > KV_HEAD_DIM_MAX / 2)
        most /= 2;
    assert(a->partials == NULL || n_rows <= ATTENTION_PART_ROWS);
    for (uint32_t first = 0; first < n_rows; first += most) {
        t.n_rows = n_rows - first < most ? n_rows - first : most;
        t.form = t.n_rows <= ATTENTION_DIRECT ? t.stored : RUN_F32;
        for (uint32_t r = 0; r < t.n_rows; r++) {
            uint32_t i = (first + r) / a->n_group, g = (first + r) % a->n_group;
            t.n_keys[r] = a->pos + i + 1;
            memcpy(t.q + r * QUERY, a->q + i * a->q_stride + (size_t)g * t.head_dim,
                   t.head_dim * sizeof(float));
            t.out[r] = a->out + i * a->out_stride + (size_t)g * t.head_dim;
        }
        tile_walk(&t);
    }
}

static void attention_join_rows(const struct attention_args *a) {
    float all[KV_HEAD_DIM_MAX];
    uint32_t head_dim = a->kv->head_dim;
    for (uint32_t row = 0; row < a->n * a->n_group; row++) {
        uint32_t i = row / a->n_group, g = row % a->n_group, n_keys = a->pos + i + 1;
        const float *p = attention_partial(a, 0, row);
        float max = p[head_dim], sum = p[head_dim + 1];
        memcpy(all, p, head_dim * sizeof *all);
        for (uint32_t split = 1; split * ATTENTION_SPLIT < n_keys; split++) {
            p = attention_partial(a, split, row);
            join_row(all, &max, &sum, p, p[head_dim], p[head_dim + 1], head_dim);
        }
        divide_row(a->out + i * a->out_stride + (size_t)g * head_dim, all, sum, head_dim);
    }
}
