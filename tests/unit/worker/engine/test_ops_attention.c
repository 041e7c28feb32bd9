/* KV store and attention: the twins by memcmp whatever the tile, and against a double reference. */
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

static struct rnd rnd = {.seed = 31};

struct scene { /* one sequence's K and V, in floats and in two pools (scalar and twin) */
    struct kv_shape kv;
    uint32_t n_blocks, n_pos, layer, head, n_group;
    uint32_t blocks[POS_MAX / KV_BLOCK_TOKENS + 1];
    float *k, *v;
    uint8_t *pool[2];
};

static float q[Q_MAX * GROUP_MAX * DIM_MAX], a[Q_MAX * GROUP_MAX * DIM_MAX],
    b[Q_MAX * GROUP_MAX * DIM_MAX];

static void scene_store(struct scene *s, uint32_t pos, uint32_t head_dim) {
    for (uint32_t d = 0; d < head_dim; d++) {
        s->k[pos * head_dim + d] = rnd_normal(&rnd) * 2;
        s->v[pos * head_dim + d] = rnd_normal(&rnd);
    }
    for (int i = 0; i < 2; i++) {
        const struct cpu_ops *ops = i ? ops_twin() : &cpu_ops_scalar;
        uint8_t *block = s->pool[i] + s->blocks[pos / KV_BLOCK_TOKENS] * s->kv.block_stride;
        ops->kv_store(&s->kv, block, s->layer, s->head, pos % KV_BLOCK_TOKENS,
                      s->k + pos * head_dim, s->v + pos * head_dim);
    }
}

static void scene_make(struct scene *s, uint32_t head_dim, uint32_t n_pos) {
    struct hparams hp = {.n_layers = 2, .n_kv_heads = 3, .head_dim = head_dim, .n_rot = head_dim};
    ck_assert_int_eq(kv_shape_init(&s->kv, &hp, NULL), 0);
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
    for (int i = 0; i < 2; i++) {
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
    mem_free(s->pool[0]);
    mem_free(s->pool[1]);
}

static void attend(struct scene *s, int which, uint32_t pos, uint32_t n, const float *from,
                   float *out) {
    size_t stride = (size_t)s->n_group * s->kv.head_dim;
    struct attention_args args = {.kv = &s->kv, .pool = s->pool[which], .blocks = s->blocks,
                                  .layer = s->layer, .kv_head = s->head, .n_group = s->n_group,
                                  .pos = pos, .n = n, .q = from, .q_stride = stride, .out = out,
                                  .out_stride = stride};
    (which ? ops_twin() : &cpu_ops_scalar)->attention(&args);
}

static double half(float f) {
    return (double)f16_to_f32(f32_to_f16(f));
}

/* Largest error against double over the same F16 K and V. */
static double reference_error(struct scene *s, uint32_t n_keys, const float *from,
                              const float *got) {
    static double w[POS_MAX];
    uint32_t dim = s->kv.head_dim;
    double max = -1e300, sum = 0, worst = 0;
    for (uint32_t p = 0; p < n_keys; p++) {
        w[p] = 0;
        for (uint32_t d = 0; d < dim; d++)
            w[p] += (double)from[d] * half(s->k[p * dim + d]);
        w[p] /= sqrt(dim);
        max = w[p] > max ? w[p] : max;
    }
    for (uint32_t p = 0; p < n_keys; p++)
        sum += w[p] = exp(w[p] - max);
    for (uint32_t d = 0; d < dim; d++) {
        double v = 0;
        for (uint32_t p = 0; p < n_keys; p++)
            v += w[p] / sum * half(s->v[p * dim + d]);
        worst = fmax(worst, fabs(v - (double)got[d]));
    }
    return worst;
}

START_TEST(store_equal_and_layout) {
    struct scene s;
    for (int round = 0; round < 20; round++) {
        uint32_t dim = 8 * (1 + rnd_below(&rnd, 16)), n_pos = 1 + rnd_below(&rnd, 70);
        scene_make(&s, dim, n_pos);
        ck_assert_mem_eq(s.pool[0], s.pool[1], (s.n_blocks + 1) * s.kv.block_stride);
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

/* Twins equal; a span cut anyhow equals the span whole; both close to the reference. */
START_TEST(attention_equal_and_close) {
    static const uint32_t lengths[] = {1, 2, 15, 16, 17, 255, 256, 257, 300, 512, 513, 800};
    for (uint32_t round = 0; round < 36; round++) {
        struct scene s;
        uint32_t dim = 8 * (1 + rnd_below(&rnd, 16)), n_pos = lengths[round % 12];
        scene_make(&s, round % 3 ? dim : 64, n_pos);
        dim = s.kv.head_dim;
        uint32_t n = 1 + rnd_below(&rnd, n_pos < 24 ? n_pos : 24), pos = n_pos - n;
        size_t row = (size_t)s.n_group * dim;
        rnd_fill(&rnd, q, n * (uint32_t)row, 1.5f, round % 2);
        memset(a, 0, sizeof a);
        memset(b, 0, sizeof b);
        attend(&s, 0, pos, n, q, a);
        attend(&s, 1, pos, n, q, b);
        ck_assert_mem_eq(a, b, sizeof a);
        memset(b, 0, sizeof b);
        for (uint32_t i = 0, step; i < n; i += step) {
            step = 1 + rnd_below(&rnd, n - i);
            attend(&s, 1, pos + i, step, q + i * row, b + i * row);
        }
        ck_assert_mem_eq(a, b, sizeof a);
        for (uint32_t i = 0; i < n; i += 5)
            for (uint32_t g = 0; g < s.n_group; g++)
                ck_assert(reference_error(&s, pos + i + 1, q + i * row + g * dim,
                                          a + i * row + g * dim) < 4e-6);
        scene_drop(&s);
    }
}
END_TEST

/* Scores far apart: exp underflows to zero, splits are rescaled by zero, nothing becomes NaN. */
START_TEST(attention_with_far_scores) {
    struct scene s;
    scene_make(&s, 64, 600);
    for (int way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < s.n_group * 64; i++)
            q[i] = rnd_normal(&rnd) * (way ? 200 : 0);
        attend(&s, 0, 599, 1, q, a);
        attend(&s, 1, 599, 1, q, b);
        ck_assert_mem_eq(a, b, s.n_group * 64 * sizeof *a);
        for (uint32_t g = 0; g < s.n_group; g++) /* scores are ~ 1e3 */
            ck_assert(reference_error(&s, 600, q + g * 64, a + g * 64) < 2e-3);
    }
    scene_drop(&s);
}
END_TEST

START_TEST(shape_refused_by_name) {
    struct kv_shape kv;
    struct err e;
    struct hparams hp = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 64, .n_rot = 64};
    ck_assert_int_eq(kv_shape_init(&kv, &hp, &e), 0);
    ck_assert_uint_eq(kv.block_stride, 4096);
    hp.head_dim = 60;
    ck_assert_int_eq(kv_shape_init(&kv, &hp, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "head dimension 60"));
    hp.head_dim = 264;
    ck_assert_int_eq(kv_shape_init(&kv, &hp, &e), -1);
    hp.head_dim = 32; /* n_rot 64 is larger */
    ck_assert_int_eq(kv_shape_init(&kv, &hp, &e), -1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops_attention");
    TCase *c = tcase_create("all");
    printf("seed %llu\n", (unsigned long long)rnd.seed);
    tcase_set_timeout(c, 100);
    tcase_add_test(c, store_equal_and_layout);
    tcase_add_test(c, attention_equal_and_close);
    tcase_add_test(c, attention_with_far_scores);
    tcase_add_test(c, shape_refused_by_name);
    suite_add_tcase(suite, c);
    SRunner *run = srunner_create(suite);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
