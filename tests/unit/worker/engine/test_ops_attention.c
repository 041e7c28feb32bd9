/* KV store and attention, F16 and INT8: the instances by memcmp whatever the tile or the part, and
 * against a double reference. */
#include "tests/unit/worker/engine/ops_testing.h"

#include "base/mem.h"
#include "worker/engine/cpu/cpu_math.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POS_MAX 800   /* four splits */
#define DIM_MAX 128
#define GROUP_MAX 8
#define Q_MAX 64      /* query positions at a time */
#define SPLITS ((POS_MAX + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT)
#define INSTANCES 3
#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 12     /* each length once: the scalar twin is slow under a sanitizer */
#else
#define ROUNDS 36
#endif

static struct rnd rnd = {.seed = 31};

static const struct cpu_ops *instances[INSTANCES]; /* scalar first; absent ones stand as scalar */

struct scene { /* one sequence's K and V, in floats and in a pool per instance */
    struct kv_shape kv;
    uint32_t n_blocks, n_pos, layer, head, n_group;
    uint32_t blocks[POS_MAX / KV_BLOCK_TOKENS + 1];
    float *k, *v;
    uint8_t *pool[INSTANCES];
};

static float q[Q_MAX * GROUP_MAX * DIM_MAX], a[Q_MAX * GROUP_MAX * DIM_MAX],
    b[Q_MAX * GROUP_MAX * DIM_MAX];

static void scene_store(struct scene *s, uint32_t pos, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; d++) {
        s->k[pos * head_dim + d] = rnd_normal(&rnd) * 2;
        s->v[pos * head_dim + d] = rnd_normal(&rnd);
    }
    for (int i = 0; i < INSTANCES; i++) {
        const struct cpu_ops *ops = instances[i];
        uint8_t *block = s->pool[i] + s->blocks[pos / KV_BLOCK_TOKENS] * s->kv.block_stride;
        ops->kv_store(&s->kv, block, s->layer, s->head, pos % KV_BLOCK_TOKENS,
                      s->k + pos * head_dim, s->v + pos * head_dim);
    }
}

static void scene_make(struct scene *s, uint32_t head_dim, uint32_t n_pos,
                       enum engine_kv_type type) {
    struct hparams hp = {.n_layers = 2, .n_kv_heads = 3, .head_dim = head_dim, .n_rot = head_dim};
    ck_assert_int_eq(kv_shape_init(&s->kv, &hp, type, NULL), 0);
    s->n_pos = n_pos;
    s->n_blocks = (n_pos + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    s->layer = rnd_below(&rnd, 2);
    s->head = rnd_below(&rnd, 3);
    s->n_group = 1 + rnd_below(&rnd, GROUP_MAX);
    /* scattered, block 0 unused; 53 has no common divisor with any n_blocks here */
    for (uint32_t i = 0; i < s->n_blocks; i++)
        s->blocks[i] = 1 + (i * 53 + 3) % s->n_blocks;
    s->k = mem_alloc((size_t)n_pos * head_dim * sizeof(float));
    s->v = mem_alloc((size_t)n_pos * head_dim * sizeof(float));
    for (int i = 0; i < INSTANCES; i++) {
        size_t bytes = (s->n_blocks + 1) * s->kv.block_stride;
        s->pool[i] = mem_alloc(bytes);
        ck_assert_ptr_nonnull(s->pool[i]);
        memset(s->pool[i], 0xff, bytes); /* NaN: what is not stored must not be used */
    }
    for (uint32_t pos = 0; pos < n_pos; pos++)
        scene_store(s, pos, head_dim);
}

static void scene_drop(struct scene *s) {
    mem_free(s->k);
    mem_free(s->v);
    for (int i = 0; i < INSTANCES; i++)
        mem_free(s->pool[i]);
}

static struct attention_args args_of(struct scene *s, int which, uint32_t pos, uint32_t n,
                                     const float *from, float *out) {
    size_t stride = (size_t)s->n_group * s->kv.head_dim;
    return (struct attention_args){.kv = &s->kv, .pool = s->pool[which], .blocks = s->blocks,
                                   .layer = s->layer, .kv_head = s->head, .n_group = s->n_group,
                                   .pos = pos, .n = n, .q = from, .q_stride = stride, .out = out,
                                   .out_stride = stride};
}

static void attend(struct scene *s, int which, uint32_t pos, uint32_t n, const float *from,
                   float *out) {
    struct attention_args args = args_of(s, which, pos, n, from, out);
    instances[which]->attention(&args);
}

/* The same in parts of random splits, in random order, joined at the end. */
static void attend_in_parts(struct scene *s, int which, uint32_t pos, uint32_t n,
                            const float *from, float *out) {
    static float partials[SPLITS * ATTENTION_PART_ROWS * ATTENTION_PARTIAL(DIM_MAX)];
    struct attention_args args = args_of(s, which, pos, n, from, out);
    uint32_t n_splits = (pos + n + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT;
    memset(partials, 0xff, sizeof partials);
    args.partials = partials;
    for (uint32_t end = n_splits, step; end > 0; end -= step) {
        step = 1 + rnd_below(&rnd, end);
        args.split_begin = end - step;
        args.split_end = end + rnd_below(&rnd, 2) * (end == n_splits); /* one behind the last */
        instances[which]->attention(&args);
    }
    instances[which]->attention_join(&args);
}

/* K or V of a position as the store rounds it. */
static void rounded(const struct scene *s, const float *x, double *out) {
    uint32_t dim = s->kv.head_dim;
    float max = 0;
    for (uint32_t d = 0; d < dim; d++)
        max = fmaxf(max, fabsf(x[d]));
    for (uint32_t d = 0; d < dim; d++)
        out[d] = s->kv.type == ENGINE_KV_F16
                     ? (double)f16_to_f32(f32_to_f16(x[d]))
                     : (double)(max / 127) * rint((double)(x[d] * (127.0f / max)));
}

/* Largest error against double over the same rounded K and V. */
static double reference_error(struct scene *s, uint32_t n_keys, const float *from,
                              const float *got) {
    static double w[POS_MAX], x[DIM_MAX], v[DIM_MAX];
    uint32_t dim = s->kv.head_dim;
    double max = -1e300, sum = 0, worst = 0;
    for (uint32_t p = 0; p < n_keys; p++) {
        w[p] = 0;
        rounded(s, s->k + p * dim, x);
        for (uint32_t d = 0; d < dim; d++)
            w[p] += (double)from[d] * x[d];
        w[p] /= sqrt(dim);
        max = w[p] > max ? w[p] : max;
    }
    for (uint32_t p = 0; p < n_keys; p++)
        sum += w[p] = exp(w[p] - max);
    memset(v, 0, sizeof v);
    for (uint32_t p = 0; p < n_keys; p++) {
        rounded(s, s->v + p * dim, x);
        for (uint32_t d = 0; d < dim; d++)
            v[d] += w[p] / sum * x[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        worst = fmax(worst, fabs(v[d] - (double)got[d]));
    return worst;
}

START_TEST(store_equal_and_layout) {
    struct scene s;
    for (int round = 0; round < 20; round++) {
        uint32_t dim = 8 * (1 + rnd_below(&rnd, 16)), n_pos = 1 + rnd_below(&rnd, 70);
        scene_make(&s, dim, n_pos, ENGINE_KV_F16);
        for (int i = 1; i < INSTANCES; i++)
            ck_assert_mem_eq(s.pool[0], s.pool[i], (s.n_blocks + 1) * s.kv.block_stride);
        ck_assert_uint_eq(s.kv.block_bytes, 2 * 3 * 2 * 16 * dim * 2);
        uint32_t pos = rnd_below(&rnd, n_pos), d = rnd_below(&rnd, dim);
        const uint8_t *block = s.pool[0] + s.blocks[pos / 16] * s.kv.block_stride;
        uint16_t k, v;
        memcpy(&k, block + kv_offset_k(&s.kv, s.layer, s.head) + (d * 16 + pos % 16) * 2, 2);
        memcpy(&v, block + kv_offset_v(&s.kv, s.layer, s.head) + (pos % 16 * dim + d) * 2, 2);
        ck_assert_uint_eq(k, f32_to_f16(s.k[pos * dim + d]));
        ck_assert_uint_eq(v, f32_to_f16(s.v[pos * dim + d]));
        scene_drop(&s);
    }
}
END_TEST

START_TEST(store_int8_equal_and_layout) {
    struct scene s;
    for (int round = 0; round < 20; round++) {
        uint32_t dim = 8 * (1 + rnd_below(&rnd, 16)), n_pos = 1 + rnd_below(&rnd, 70);
        scene_make(&s, dim, n_pos, ENGINE_KV_INT8);
        for (int i = 1; i < INSTANCES; i++)
            ck_assert_mem_eq(s.pool[0], s.pool[i], (s.n_blocks + 1) * s.kv.block_stride);
        ck_assert_uint_eq(s.kv.block_bytes, 2 * 3 * 2 * 16 * (dim + 4));
        uint32_t pos = rnd_below(&rnd, n_pos), d = rnd_below(&rnd, dim);
        const uint8_t *block = s.pool[0] + s.blocks[pos / 16] * s.kv.block_stride;
        float scale[32];
        memcpy(scale, block + kv_offset_scales(&s.kv, s.layer, s.head), sizeof scale);
        int8_t k = (int8_t)block[kv_offset_k(&s.kv, s.layer, s.head) + d * 16 + pos % 16];
        int8_t v = (int8_t)block[kv_offset_v(&s.kv, s.layer, s.head) + pos % 16 * dim + d];
        ck_assert(fabsf(k * scale[pos % 16] - s.k[pos * dim + d]) <= scale[pos % 16] * 0.501f);
        ck_assert(fabsf(v * scale[16 + pos % 16] - s.v[pos * dim + d]) <=
                  scale[16 + pos % 16] * 0.501f);
        scene_drop(&s);
    }
}
END_TEST

/* A head of zeros, of tiny and of infinite values, a NaN: the same bytes, no fault. */
START_TEST(store_odd_values) {
    static const float odd[] = {0, 1e-35f, -1e-41f, INFINITY, -INFINITY, NAN, 3e38f, 1};
    struct scene s;
    for (int type = 0; type < 2; type++) {
        scene_make(&s, 24, 1, (enum engine_kv_type)type);
        for (int round = 0; round < 64; round++) {
            float x[24];
            for (int d = 0; d < 24; d++)
                x[d] = round < 8 ? odd[round] : odd[rnd_below(&rnd, 8)];
            for (int i = 0; i < INSTANCES; i++)
                instances[i]->kv_store(&s.kv, s.pool[i] + s.kv.block_stride, 1, 1, 3, x, x);
            size_t at = s.kv.block_stride + kv_offset_k(&s.kv, 1, 1);
            for (int i = 1; i < INSTANCES; i++) /* the scales may hold different NaNs */
                ck_assert_mem_eq(s.pool[0] + at, s.pool[i] + at, 2 * kv_half_bytes(&s.kv));
        }
        scene_drop(&s);
    }
}
END_TEST

static void compare_scene(struct scene *s, uint32_t pos, uint32_t n) {
    const uint32_t dim = s->kv.head_dim;
    const size_t row = (size_t)s->n_group * dim;
    memset(a, 0, sizeof a);
    attend(s, 0, pos, n, q, a);
    for (int which = 0; which < INSTANCES; which++) {
        memset(b, 0, sizeof b);
        attend(s, which, pos, n, q, b);
        ck_assert_mem_eq(a, b, sizeof a);
        memset(b, 0, sizeof b);
        for (uint32_t i = 0, step; i < n; i += step) {
            step = 1 + rnd_below(&rnd, n - i);
            attend(s, which, pos + i, step, q + i * row, b + i * row);
        }
        ck_assert_mem_eq(a, b, sizeof a);
        memset(b, 0, sizeof b);
        for (uint32_t i = 0, step; i < n; i += step) {
            step = 1 + rnd_below(&rnd, ATTENTION_PART_ROWS / s->n_group);
            step = step < n - i ? step : n - i;
            attend_in_parts(s, which, pos + i, step, q + i * row, b + i * row);
        }
        ck_assert_mem_eq(a, b, sizeof a);
    }
    for (uint32_t i = 0; i < n; i += 5)
        for (uint32_t g = 0; g < s->n_group; g++)
            ck_assert(reference_error(s, pos + i + 1, q + i * row + g * dim,
                                      a + i * row + g * dim) < 8e-6);
}

/* Instances equal; a span cut anyhow, or its splits shared out, equals the span whole; all close to
 * the reference. */
START_TEST(attention_equal_and_close) {
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 255, 256, 257, 300, 512, 513, 800};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct scene s;
        uint32_t dim = 8 * (1 + rnd_below(&rnd, 16)), n_pos = lengths[round % 12];
        scene_make(&s, round % 3 ? dim : 64, n_pos, (enum engine_kv_type)_i);
        uint32_t n = 1 + rnd_below(&rnd, n_pos < 24 ? n_pos : 24);
        rnd_fill(&rnd, q, n * s.n_group * s.kv.head_dim, 1.5f, round % 2);
        compare_scene(&s, n_pos - n, n);
        scene_drop(&s);
    }
}
END_TEST

/* Scores far apart: exp underflows to zero, splits are rescaled by zero, nothing becomes NaN. */
START_TEST(attention_with_far_scores) {
    struct scene s;
    scene_make(&s, 64, 600, (enum engine_kv_type)_i);
    for (int way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < s.n_group * 64; i++)
            q[i] = rnd_normal(&rnd) * (way ? 200 : 0);
        attend(&s, 0, 599, 1, q, a);
        for (int which = 1; which < INSTANCES; which++) {
            attend(&s, which, 599, 1, q, b);
            ck_assert_mem_eq(a, b, s.n_group * 64 * sizeof *a);
        }
        for (uint32_t g = 0; g < s.n_group; g++) /* scores are ~ 1e3 */
            ck_assert(reference_error(&s, 600, q + g * 64, a + g * 64) < 2e-3);
    }
    scene_drop(&s);
}
END_TEST

/* The widest head: half the rows and half the run. */
START_TEST(attention_of_wide_heads) {
    static float wide_q[20 * 4 * 256], got[INSTANCES][20 * 4 * 256];
    struct hparams hp = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 256, .n_rot = 256};
    struct kv_shape kv;
    uint32_t blocks[20];
    ck_assert_int_eq(kv_shape_init(&kv, &hp, (enum engine_kv_type)_i, NULL), 0);
    uint8_t *pool = mem_alloc(20 * kv.block_stride);
    rnd_fill(&rnd, wide_q, 20 * 4 * 256, 1, false);
    for (uint32_t pos = 0; pos < 320; pos++) {
        float k[256], v[256];
        rnd_fill(&rnd, k, 256, 1, false);
        rnd_fill(&rnd, v, 256, 1, false);
        blocks[pos / 16] = 19 - pos / 16;
        instances[0]->kv_store(&kv, pool + blocks[pos / 16] * kv.block_stride, 0, 0, pos % 16, k,
                               v);
    }
    for (int which = 0; which < INSTANCES; which++) {
        struct attention_args args = {.kv = &kv, .pool = pool, .blocks = blocks, .n_group = 4,
                                      .pos = 300, .n = 20, .q = wide_q, .q_stride = 1024,
                                      .out = got[which], .out_stride = 1024};
        instances[which]->attention(&args);
        ck_assert_mem_eq(got[0], got[which], sizeof got[0]);
    }
    mem_free(pool);
}
END_TEST

START_TEST(shape_refused_by_name) {
    struct kv_shape kv;
    struct err e;
    struct hparams hp = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 64, .n_rot = 64};
    ck_assert_int_eq(kv_shape_init(&kv, &hp, ENGINE_KV_F16, &e), 0);
    ck_assert_uint_eq(kv.block_stride, 4096);
    ck_assert_int_eq(kv_shape_init(&kv, &hp, ENGINE_KV_INT8, &e), 0);
    ck_assert_uint_eq(kv.block_bytes, 16 * 2 * (64 + 4));
    ck_assert_str_eq(kv_type_name(kv.type), "int8");
    hp.head_dim = 60;
    ck_assert_int_eq(kv_shape_init(&kv, &hp, ENGINE_KV_F16, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "head dimension 60"));
    hp.head_dim = 264;
    ck_assert_int_eq(kv_shape_init(&kv, &hp, ENGINE_KV_F16, &e), -1);
    hp.head_dim = 32; /* n_rot 64 is larger */
    ck_assert_int_eq(kv_shape_init(&kv, &hp, ENGINE_KV_F16, &e), -1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops_attention");
    TCase *c = tcase_create("all");
    printf("seed %llu\n", (unsigned long long)rnd.seed);
    instances[0] = instances[2] = &cpu_ops_scalar;
    instances[1] = ops_twin();
    if (cpu_ops_have_avx512())
        instances[2] = cpu_ops_choose(ENGINE_KERNEL_AVX512, NULL);
    else
        printf("note: no AVX-512 here\n");
    tcase_set_timeout(c, 100);
    tcase_add_test(c, store_equal_and_layout);
    tcase_add_test(c, store_int8_equal_and_layout);
    tcase_add_test(c, store_odd_values);
    tcase_add_loop_test(c, attention_equal_and_close, 0, 2);
    tcase_add_loop_test(c, attention_with_far_scores, 0, 2);
    tcase_add_loop_test(c, attention_of_wide_heads, 0, 2);
    tcase_add_test(c, shape_refused_by_name);
    suite_add_tcase(suite, c);
    SRunner *run = srunner_create(suite);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
