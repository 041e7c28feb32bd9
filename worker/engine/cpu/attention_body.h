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

/* K of the block of a position. */
static const uint8_t *keys_of(const struct tile *t, uint32_t pos) {
    return t->head + t->a->blocks[pos / KV_BLOCK_TOKENS] * t->a->kv->block_stride;
}

static void split_find(struct tile *t, uint32_t begin, uint32_t end) {
    const uint32_t n = (end - begin + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    const uint32_t n_keys = t->n_keys[t->n_rows - 1];
    const uint8_t **piece = t->pieces;
    for (uint32_t b = 0; b < n; b++) {
        piece[b] = keys_of(t, begin + b * KV_BLOCK_TOKENS);
        piece[n + b] = piece[b] + t->half;
    }
    for (uint32_t b = 0; b < FAR_AHEAD; b++) { /* behind the last split its last piece again */
        uint32_t pos = begin + ATTENTION_SPLIT + b * KV_BLOCK_TOKENS;
        piece[2 * n + b] = pos < n_keys ? keys_of(t, pos) : piece[2 * n - 1];
    }
}

/* Positions of a run: all of a split where the kernels read the store, else as many as are widened
 * at a time. */
static uint32_t run_tokens(const struct tile *t) {
    if (t->form != RUN_F32)
        return ATTENTION_SPLIT;
    return t->head_dim > KV_HEAD_DIM_MAX / 2 ? RUN_TOKENS / 2 : RUN_TOKENS;
}

/* The run that begins at `pos` of the split begin .. end - 1. */
static struct run run_find(const struct tile *t, uint32_t pos, uint32_t begin, uint32_t end,
                           bool values) {
    const uint32_t n = (end - begin + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS, step = run_tokens(t);
    return (struct run){
        .at = t->pieces + (pos - begin) / KV_BLOCK_TOKENS + (values ? n : 0),
        .begin = pos - begin,
        .n = end - pos < step ? end - pos : step,
    };
}

/* Factors of the split's n positions. Of positions not yet written they are garbage, which meets
 * only scores that are never read. F16: the same for all, written once a tile. */
static void split_scales(struct tile *t, uint32_t n) {
    const __m256 scale = _mm256_set1_ps(1.0f / sqrtf((float)t->head_dim));
    for (uint32_t i = 0; i < n; i += 8) {
        float *keys = t->key_scale + i, *values = t->value_scale + i;
        if (t->stored != RUN_INT8) {
            _mm256_storeu_ps(keys, scale);
            continue;
        }
        const uint8_t *block = t->pieces[i / KV_BLOCK_TOKENS] + 2 * t->half;
        const float *s = (const float *)(const void *)block + i % KV_BLOCK_TOKENS;
        _mm256_storeu_ps(keys, _mm256_mul_ps(_mm256_loadu_ps(s), scale));
        _mm256_storeu_ps(values, _mm256_loadu_ps(s + KV_BLOCK_TOKENS));
    }
}

/* Many rows: the run as floats, once for all of them; `at` is room for its pointers. */
static void run_widen(struct tile *t, struct run *r, const uint8_t **at) {
    const uint32_t n = KV_BLOCK_TOKENS * t->head_dim;
    if (t->form != RUN_F32)
        return;
    for (uint32_t b = 0; b * KV_BLOCK_TOKENS < r->n; b++) {
        float *to = t->wide + (size_t)b * n;
        widen(to, r->at[b], n, t->stored);
        at[b] = (const uint8_t *)to;
    }
    r->at = at;
}

/* The share of rows row .. row + m - 1 in fetching the pieces FAR_AHEAD behind `from`: all of it at
 * once would wait. */
static void run_fetch(const struct tile *t, const uint8_t *const *from, const struct run *r,
                      uint32_t row, uint32_t m) {
    if (t->form != RUN_F32)
        return;
    size_t begin = t->half * row / t->n_rows & ~(size_t)63, end = t->half * (row + m) / t->n_rows;
    for (uint32_t b = 0; b * KV_BLOCK_TOKENS < r->n; b++)
        for (size_t i = begin; i < end; i += 64)
            _mm_prefetch((const char *)from[FAR_AHEAD + b] + i, _MM_HINT_T1);
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
        const uint8_t *wide[ATTENTION_RUN];
        struct run r = run_find(t, pos, begin, end, false);
        const uint8_t *const *from = r.at;
        const uint32_t n = r.n;
        run_widen(t, &r, wide);
        for (uint32_t row = first_row_beyond(t, pos), m; row < t->n_rows; row += m) {
            m = rows_at_once(t->n_rows - row);
            uint32_t seen = t->n_keys[row + m - 1] - pos;
            r.n = seen < n ? seen : n;
            run_fetch(t, from, &r, row, m);
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
        const uint8_t *wide[ATTENTION_RUN];
        struct run r = run_find(t, pos, begin, end, true);
        const uint8_t *const *from = r.at;
        run_widen(t, &r, wide);
        for (uint32_t row = first_row_beyond(t, pos), m; row < t->n_rows; row += m) {
            m = rows_at_once(t->n_rows - row);
            uint32_t common = seen_of(t, row, pos, r.n);
            run_fetch(t, from, &r, row, m);
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
        split_find(t, begin, end);
        if (t->stored == RUN_INT8)
            split_scales(t, end - begin);
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
    t.head = a->pool + kv_offset_k(a->kv, a->layer, a->kv_head);
    t.half = kv_half_bytes(a->kv);
    t.stored = a->kv->type == ENGINE_KV_INT8 ? RUN_INT8 : RUN_F16;
    if (t.stored != RUN_INT8)
        split_scales(&t, ATTENTION_SPLIT);
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
