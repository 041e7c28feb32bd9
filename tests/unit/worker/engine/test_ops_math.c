/* Own exp, log, pow, sin, cos against libm within the bounds of cpu_math.h; F16 conversions. */
#include "tests/unit/worker/engine/ops_testing.h"

#include "worker/engine/cpu/cpu_math.h"

#include <check.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rnd rnd = {.seed = 5};

START_TEST(exp_f32_within_one_ulp) {
    double worst = 0;
    uint64_t n = 0;
    for (uint32_t u = 0; u < 0x43000000u; u += 1999) { /* every 1999th float up to 128 */
        for (int sign = 0; sign < 2; sign++, n++) {
            float x = f32_of_bits(u | (uint32_t)sign << 31), y = exp_f32(x);
            if (x > EXP_MAX)
                ck_assert(y == INFINITY);
            else if (x < EXP_MIN)
                ck_assert(y == 0);
            else {
                double want = exp((double)x), ulp = ldexp(1, ilogb(want) - 23);
                double off = fabs(y - want) / ulp;
                worst = off > worst ? off : worst;
                ck_assert(y >= FLT_MIN);
            }
        }
    }
    printf("exp_f32: %llu values, worst %.3f ulp\n", (unsigned long long)n, worst);
    ck_assert(worst <= 1.0);
    ck_assert(exp_f32(0) == 1 && exp_f32(-0.0f) == 1);
    ck_assert(exp_f32(INFINITY) == INFINITY && exp_f32(-INFINITY) == 0);
    float not_a_number = exp_f32(NAN);
    ck_assert(not_a_number != not_a_number);
}
END_TEST

static double ulps(double got, double want) {
    return fabs(got - want) / ldexp(1, ilogb(want) - 52);
}

START_TEST(exp_log_pow_f64_close) {
    double worst_exp = 0, worst_log = 0;
    for (int i = 0; i < 200000; i++) {
        double x = ((double)rnd_unit(&rnd) + rnd_unit(&rnd) * 1e-8) * 1400 - 700;
        double u = ulps(exp_f64(x), exp(x));
        worst_exp = u > worst_exp ? u : worst_exp;
        double y = exp(x) * (1 + rnd_unit(&rnd));
        double off = fabs(log_f64(y) - log(y)) / (fabs(log(y)) * 0x1p-52 + 1e-16);
        worst_log = off > worst_log ? off : worst_log;
    }
    printf("exp_f64 worst %.2f ulp, log_f64 worst %.2f units\n", worst_exp, worst_log);
    ck_assert(worst_exp <= 2 && worst_log <= 2);
    ck_assert(log_f64(1) == 0 && log_f64(0) == -INFINITY && log_f64(INFINITY) == INFINITY);
    double negative = log_f64(-1);
    ck_assert(negative != negative);
    ck_assert(fabs(pow_f64(100000, -0.5) - pow(100000, -0.5)) < 1e-17);
}
END_TEST

START_TEST(sincos_f64_close) {
    double worst = 0;
    for (int i = 0; i < 400000; i++) {
        double x = i < 100000 ? i * (M_PI / 4) /* the hard places */
                              : ((double)rnd_unit(&rnd) + rnd_unit(&rnd) * 1e-8) * 2097152 *
                                    (i % 2 ? 1 : -1);
        double s, c;
        sincos_f64(x, &s, &c);
        double off = fmax(fabs(s - sin(x)), fabs(c - cos(x)));
        worst = off > worst ? off : worst;
    }
    printf("sincos_f64 worst %.3g\n", worst);
    ck_assert(worst <= 2.3e-16); /* libm's own half ulp is in it */
}
END_TEST

/* Straight from the format's definition. */
static double f16_meaning(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
    return h >> 15 ? -v : v;
}

START_TEST(f16_to_f32_all_values) {
    static uint16_t in[65536];
    static float p[65536], q[65536];
    for (uint32_t i = 0; i < 65536; i++)
        in[i] = (uint16_t)i;
    cpu_ops_scalar.from_f16(p, in, 65536);
    ops_twin()->from_f16(q, in, 65536);
    ck_assert_mem_eq(p, q, sizeof p);
    for (uint32_t i = 0; i < 65536; i++) {
        if ((i & 0x7c00) == 0x7c00)
            ck_assert((i & 1023) ? p[i] != p[i] : isinf(p[i]) && (p[i] < 0) == (i >> 15));
        else
            ck_assert(p[i] == f16_meaning((uint16_t)i) && !signbit(p[i]) == !(i >> 15));
    }
}
END_TEST

/* Nearest, ties to even, by trying the neighbours of a truncation. */
static uint16_t nearest_f16(float f) {
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    double a = fabs((double)f);
    if (a >= 65520)
        return sign | 0x7c00;
    uint16_t lo = 0, hi = 0x7bff;
    while (lo < hi) { /* largest half <= a */
        uint16_t mid = (uint16_t)((lo + hi + 1) / 2);
        if (f16_meaning(mid) <= a)
            lo = mid;
        else
            hi = (uint16_t)(mid - 1);
    }
    double next = lo == 0x7bff ? 65536 : f16_meaning((uint16_t)(lo + 1));
    double below = a - f16_meaning(lo), above = next - a;
    return (uint16_t)(sign | (above < below || (above == below && lo & 1) ? lo + 1 : lo));
}

START_TEST(f32_to_f16_nearest_even) {
    enum { M = 1 << 16 };
    static float x[M];
    static uint16_t p[M], q[M];
    static const uint32_t off[4] = {0, 0x1000, 0xfff, 0x1001};
    for (int round = 0; round < 24; round++) {
        for (uint32_t i = 0; i < M; i++) {
            uint32_t u = (uint32_t)rnd_u64(&rnd);
            if (round < 8) /* halves, and the middles between two, exact and off by one bit */
                u = f32_bits(f16_to_f32((uint16_t)i)) + off[round % 4];
            else if (round < 20) /* exponents that halves have, denormals too */
                u = (u & 0x807fffffu) | (98 + rnd_below(&rnd, 50)) << 23;
            x[i] = f32_of_bits(u);
        }
        cpu_ops_scalar.to_f16(p, x, M);
        ops_twin()->to_f16(q, x, M);
        ck_assert_mem_eq(p, q, sizeof p);
        for (uint32_t i = 0; i < M; i++)
            if (x[i] == x[i])
                ck_assert_uint_eq(p[i], nearest_f16(x[i]));
            else
                ck_assert((p[i] & 0x7e00) == 0x7e00);
    }
}
END_TEST

START_TEST(odd_lengths_of_conversions) {
    float x[40], p[40], q[40];
    uint16_t h[40], g[40];
    for (uint32_t n = 1; n <= 40; n++) {
        rnd_fill(&rnd, x, n, 3, true);
        cpu_ops_scalar.to_f16(h, x, n);
        ops_twin()->to_f16(g, x, n);
        ck_assert_mem_eq(h, g, n * sizeof *h);
        cpu_ops_scalar.from_f16(p, h, n);
        ops_twin()->from_f16(q, g, n);
        ck_assert_mem_eq(p, q, n * sizeof *p);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops_math");
    TCase *c = tcase_create("all");
    printf("seed %llu\n", (unsigned long long)rnd.seed);
    tcase_set_timeout(c, 100);
    tcase_add_test(c, exp_f32_within_one_ulp);
    tcase_add_test(c, exp_log_pow_f64_close);
    tcase_add_test(c, sincos_f64_close);
    tcase_add_test(c, f16_to_f32_all_values);
    tcase_add_test(c, f32_to_f16_nearest_even);
    tcase_add_test(c, odd_lengths_of_conversions);
    suite_add_tcase(suite, c);
    SRunner *run = srunner_create(suite);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
