/* Row operations: the twins by memcmp, and against plain references. */
#include "tests/unit/worker/engine/ops_testing.h"

#include "worker/engine/cpu/cpu_math.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 1000

static const struct cpu_ops *s = &cpu_ops_scalar;
static struct rnd rnd = {.seed = 11};
static float x[N], y[N], a[N], b[N];

START_TEST(quantise_equal_and_close) {
    static struct act_block p[ACT_BLOCKS(N)], q[ACT_BLOCKS(N)];
    for (int round = 0; round < 300; round++) {
        uint32_t n = 1 + rnd_below(&rnd, N);
        rnd_fill(&rnd, x, n, ldexpf(1, (int)rnd_below(&rnd, 200) - 120), round % 2);
        memset(p, 0x55, sizeof p);
        memset(q, 0x55, sizeof q);
        s->quantise(p, x, n);
        ops_twin()->quantise(q, x, n);
        ck_assert_mem_eq(p, q, sizeof p);
        for (uint32_t i = 0; i < n; i++) {
            struct act_block *k = &p[i / 32];
            ck_assert_int_ge(k->q[i % 32], -127);
            if (k->d > 0)
                ck_assert(fabsf(x[i] - k->d * (float)k->q[i % 32]) <= 0.5001f * k->d);
            else
                ck_assert(fabsf(x[i]) < 1e-30f && k->q[i % 32] == 0);
        }
        for (uint32_t i = n; i < ACT_BLOCKS(n) * 32; i++)
            ck_assert_int_eq(p[i / 32].q[i % 32], 0);
    }
}
END_TEST

START_TEST(quantise_rounds_half_to_even) {
    struct act_block p;
    memset(x, 0, sizeof x);
    x[0] = 127; /* scale 1 */
    x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -0.5f, x[5] = -1.5f, x[6] = -126.5f;
    s->quantise(&p, x, 32);
    const int8_t want[7] = {127, 0, 2, 2, 0, -2, -126};
    ck_assert_mem_eq(p.q, want, 7);
    ck_assert(p.d == 1.0f && p.s == 3.0f);
}
END_TEST

START_TEST(quantise_survives_nan_and_infinity) {
    struct act_block p, q;
    rnd_fill(&rnd, x, 32, 1, false);
    x[3] = NAN, x[7] = INFINITY, x[8] = -INFINITY;
    s->quantise(&p, x, 32);
    ops_twin()->quantise(&q, x, 32);
    ck_assert_mem_eq(p.q, q.q, 32);
    for (int i = 0; i < 32; i++)
        ck_assert_int_ge(p.q[i], -127);
}
END_TEST

START_TEST(rmsnorm_equal_and_close) {
    for (int round = 0; round < 300; round++) {
        uint32_t n = 1 + rnd_below(&rnd, N);
        rnd_fill(&rnd, x, n, 3, round % 2);
        rnd_fill(&rnd, y, n, 1, round % 2);
        s->rmsnorm(a, x, y, n, 1e-5f);
        ops_twin()->rmsnorm(b, x, y, n, 1e-5f);
        ck_assert_mem_eq(a, b, n * sizeof *a);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += (double)x[i] * x[i];
        double scale = 1 / sqrt(sum / n + 1e-5);
        for (uint32_t i = 0; i < n; i++)
            ck_assert(fabs(a[i] - x[i] * scale * y[i]) <= 2e-6 * fabs(x[i] * scale * y[i]) + 1e-37);
    }
}
END_TEST

START_TEST(rope_equal_and_close) {
    static float table[64 * 64];
    for (int round = 0; round < 200; round++) {
        uint32_t head_dim = 8 * (1 + rnd_below(&rnd, 8)), heads = 1 + rnd_below(&rnd, 4);
        uint32_t n_rot = 2 * (1 + rnd_below(&rnd, head_dim / 2)), pos = rnd_below(&rnd, 64);
        struct rope_table t = {.data = table, .n_rot = n_rot, .base = 10000.0f};
        rope_table_fill(&t, 0, 64);
        rnd_fill(&rnd, a, heads * head_dim, 1, round % 2);
        memcpy(b, a, sizeof a);
        memcpy(x, a, sizeof a);
        s->rope(a, heads, head_dim, rope_table_row(&t, pos), n_rot);
        ops_twin()->rope(b, heads, head_dim, rope_table_row(&t, pos), n_rot);
        ck_assert_mem_eq(a, b, sizeof a);
        for (uint32_t i = 0; i < heads * head_dim; i++) {
            uint32_t d = i % head_dim;
            double angle = pos * pow(10000.0, -(double)(d / 2 * 2) / n_rot), want = x[i];
            if (d < n_rot)
                want = x[i] * cos(angle) + (d % 2 ? x[i - 1] : -x[i + 1]) * sin(angle);
            ck_assert(fabs(a[i] - want) < 1e-6);
        }
    }
}
END_TEST

START_TEST(rope_table_is_right_far_out) {
    static float table[8192 * 64];
    struct rope_table t = {.data = table, .n_rot = 64, .base = 100000.0f};
    rope_table_fill(&t, 8191, 8192);
    const float *row = rope_table_row(&t, 8191);
    for (int i = 0; i < 32; i++) {
        double angle = 8191 * pow(100000.0, -2.0 * i / 64);
        ck_assert(fabs(row[i] - cos(angle)) < 6.1e-8);
        ck_assert(fabs(row[32 + i] - sin(angle)) < 6.1e-8);
    }
}
END_TEST

START_TEST(silu_mul_and_add_equal_and_close) {
    for (int round = 0; round < 300; round++) {
        uint32_t n = 1 + rnd_below(&rnd, N);
        rnd_fill(&rnd, x, n, round % 3 ? 4 : 60, round % 2);
        rnd_fill(&rnd, y, n, 2, round % 2);
        s->silu_mul(a, x, y, n);
        ops_twin()->silu_mul(b, x, y, n);
        ck_assert_mem_eq(a, b, n * sizeof *a);
        for (uint32_t i = 0; i < n; i++) {
            double want = x[i] / (1 + exp(-(double)x[i])) * y[i];
            if (x[i] > -87)
                ck_assert(fabs(a[i] - want) <= 5e-7 * fabs(want) + 1e-37);
        }
        memcpy(b, a, sizeof a);
        s->add(a, y, n);
        ops_twin()->add(b, y, n);
        ck_assert_mem_eq(a, b, n * sizeof *a);
    }
}
END_TEST

START_TEST(argmax_equal_and_right) {
    const struct cpu_ops *v = ops_twin();
    for (int round = 0; round < 1000; round++) {
        uint32_t n = 1 + rnd_below(&rnd, 200), want = 0;
        for (uint32_t i = 0; i < n; i++)
            x[i] = (float)rnd_below(&rnd, 6) - 3; /* many ties */
        for (uint32_t i = 1; i < n; i++)
            want = x[i] > x[want] ? i : want;
        ck_assert_uint_eq(s->argmax(x, n), want);
        ck_assert_uint_eq(v->argmax(x, n), want);
        uint32_t hole = rnd_below(&rnd, n);
        x[hole] = NAN;
        ck_assert_uint_eq(s->argmax(x, n), v->argmax(x, n));
        ck_assert(n == 1 || s->argmax(x, n) != hole);
    }
    for (uint32_t i = 0; i < 100; i++)
        x[i] = i % 2 ? NAN : -INFINITY;
    ck_assert_uint_eq(s->argmax(x, 100), 0);
    ck_assert_uint_eq(v->argmax(x, 100), 0);
}
END_TEST

START_TEST(sum_exp_equal_and_close) {
    for (int round = 0; round < 300; round++) {
        uint32_t n = 1 + rnd_below(&rnd, N);
        float temperature = 0.05f + rnd_unit(&rnd) * 2;
        rnd_fill(&rnd, x, n, 5, round % 2);
        if (round % 5 == 0)
            x[rnd_below(&rnd, n)] = -INFINITY;
        if (round % 7 == 0)
            x[rnd_below(&rnd, n)] = NAN;
        float max = x[s->argmax(x, n)];
        double p = s->sum_exp(x, n, max, temperature);
        double q = ops_twin()->sum_exp(x, n, max, temperature);
        ck_assert_mem_eq(&p, &q, sizeof p);
        double want = 0;
        for (uint32_t i = 0; i < n; i++)
            if (x[i] == x[i] && max > -INFINITY)
                want += exp((double)((x[i] - max) / temperature));
        ck_assert(fabs(p - want) <= 2e-7 * want);
    }
}
END_TEST

/* Every word counts once: one flipped bit anywhere is seen. */
START_TEST(read_xor_equal_and_whole) {
    static _Alignas(64) uint64_t words[4096];
    struct rnd r = {.seed = 43};
    uint64_t want = 0;
    for (size_t i = 0; i < 4096; i++)
        want ^= words[i] = rnd_u64(&r);
    ck_assert_uint_eq(cpu_ops_scalar.read_xor(words, sizeof words), want);
    ck_assert_uint_eq(ops_twin()->read_xor(words, sizeof words), want);
    ck_assert_uint_eq(ops_twin()->read_xor(words, 0), 0);
    ck_assert_uint_eq(ops_twin()->read_xor(words, 512), cpu_ops_scalar.read_xor(words, 512));
    for (int i = 0; i < 200; i++) {
        uint64_t bit = 1ull << rnd_below(&r, 64);
        words[rnd_below(&r, 4096)] ^= bit;
        want ^= bit;
        ck_assert_uint_eq(ops_twin()->read_xor(words, sizeof words), want);
    }
}
END_TEST

START_TEST(choose_says_what_it_gives) {
    struct err e;
    err_clear(&e);
    ck_assert_ptr_eq(cpu_ops_choose(ENGINE_KERNEL_SCALAR, &e), &cpu_ops_scalar);
    const struct cpu_ops *best = cpu_ops_choose(ENGINE_KERNEL_AUTO, &e);
    const struct cpu_ops *wide = cpu_ops_choose(ENGINE_KERNEL_AVX2, &e);
    ck_assert_int_eq(e.code, wide == NULL ? ERR_INVALID : 0);
    ck_assert(wide == NULL || strcmp(wide->name, "avx2") == 0);
    ck_assert_int_eq(wide != NULL, cpu_ops_have_avx2());
    err_clear(&e);
    const struct cpu_ops *wider = cpu_ops_choose(ENGINE_KERNEL_AVX512, &e);
    ck_assert_int_eq(e.code, wider == NULL ? ERR_INVALID : 0);
    ck_assert(wider == NULL || strcmp(wider->name, "avx512") == 0);
    ck_assert_int_eq(wider != NULL, cpu_ops_have_avx512());
    ck_assert_ptr_eq(best, wider != NULL ? wider : wide != NULL ? wide : &cpu_ops_scalar);
    ck_assert_ptr_null(cpu_ops_choose((enum engine_kernel)77, &e));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops_vector");
    TCase *c = tcase_create("all");
    printf("seed %llu\n", (unsigned long long)rnd.seed);
    tcase_set_timeout(c, 100);
    tcase_add_test(c, quantise_equal_and_close);
    tcase_add_test(c, quantise_rounds_half_to_even);
    tcase_add_test(c, quantise_survives_nan_and_infinity);
    tcase_add_test(c, rmsnorm_equal_and_close);
    tcase_add_test(c, rope_equal_and_close);
    tcase_add_test(c, rope_table_is_right_far_out);
    tcase_add_test(c, silu_mul_and_add_equal_and_close);
    tcase_add_test(c, argmax_equal_and_right);
    tcase_add_test(c, sum_exp_equal_and_close);
    tcase_add_test(c, read_xor_equal_and_whole);
    tcase_add_test(c, choose_says_what_it_gives);
    suite_add_tcase(suite, c);
    SRunner *run = srunner_create(suite);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
