/* The tiny model is what the other tests take it for: the same bytes everywhere, a model that
 * wanders, a reference that agrees with itself; half precision and blocks are right. */
#include "tests/tiny/tiny_half.h"
#include "tests/tiny/tiny_model.h"
#include "tests/tiny/tiny_reference.h"

#include "base/hash.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(half_precision)
{
    static const struct {
        float f;
        uint16_t h;
    } rows[] = {
        {0.0f, 0},          {-0.0f, 0x8000},           {1.0f, 0x3c00},
        {-2.0f, 0xc000},    {65504.0f, 0x7bff},        {0x1p-24f, 1},
        {0x1p-14f, 0x0400}, {0x1.ff8p-15f, 0x03ff},    {0x1p-25f, 0},
        {0x1.8p-24f, 2},    {1.0f + 0x1p-11f, 0x3c00}, {1.0f + 0x1.8p-10f, 0x3c02},
        {0.1f, 0x2e66},     {2047.5f, 0x6800},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(tiny_to_half(rows[i].f) == rows[i].h, "%a is %04x", (double)rows[i].f,
                      tiny_to_half(rows[i].f));
    for (uint32_t h = 0; h < 0x10000; h++)
        if ((h >> 10 & 31) != 31)
            ck_assert_uint_eq(tiny_to_half(tiny_from_half((uint16_t)h)), h);
}
END_TEST

START_TEST(blocks)
{
    float x[64], y[64];
    uint8_t q[68];
    for (int i = 0; i < 64; i++)
        x[i] = (float)((i * 37) % 64 - 20) / 16;
    tiny_quantise_q4_1(x, 64, q);
    ck_assert_int_eq(tiny_dequantise(GGUF_Q4_1, q, 64, y), 0);
    for (int i = 0; i < 64; i++)
        ck_assert_msg(fabsf(x[i] - y[i]) <= 4.0f / 15 / 2 + 0.005f, "Q4_1 %d: %g %g", i,
                      (double)x[i], (double)y[i]);
    tiny_quantise_q8_0(x, 64, q);
    ck_assert_int_eq(tiny_dequantise(GGUF_Q8_0, q, 64, y), 0);
    for (int i = 0; i < 64; i++)
        ck_assert_msg(fabsf(x[i] - y[i]) <= 3.0f / 127 / 2 + 0.002f, "Q8_0 %d: %g %g", i,
                      (double)x[i], (double)y[i]);
    tiny_quantise_q4_0(x, 64, q);
    ck_assert_int_eq(tiny_dequantise(GGUF_Q4_0, q, 64, y), 0);
    for (int i = 0; i < 64; i++) /* the 16th value is lost at one end, so a whole step there */
        ck_assert_msg(fabsf(x[i] - y[i]) <= 3.0f / 8 + 0.002f, "Q4_0 %d: %g %g", i, (double)x[i],
                      (double)y[i]);
    ck_assert_int_eq(tiny_quantise(GGUF_BF16, x, 32, q), 0);
    ck_assert_int_eq(tiny_dequantise(GGUF_BF16, q, 32, y), 0);
    for (int i = 0; i < 32; i++)
        ck_assert_msg(fabsf(x[i] - y[i]) <= fabsf(x[i]) / 256, "BF16 %d: %g %g", i, (double)x[i],
                      (double)y[i]);
    ck_assert_uint_eq(tiny_to_bf16(1.0f), 0x3f80);
    ck_assert_uint_eq(tiny_to_bf16(0x1.01p0f), 0x3f80); /* a tie goes to the even one */
    ck_assert_uint_eq(tiny_to_bf16(0x1.03p0f), 0x3f82);
    ck_assert_int_eq(tiny_dequantise(12, q, 64, y), -1); /* Q4_K */
}
END_TEST

START_TEST(same_seed_same_bytes)
{
    size_t n, m;
    char path[TEST_PATH_MAX], dir[TEST_PATH_MAX];
    void *a = tiny_model_bytes(TINY_SEED, &n), *b = tiny_model_bytes(TINY_SEED + 1, &m);
    ck_assert(a && b);
    ck_assert_uint_eq(n, m);
    ck_assert_int_ne(memcmp(a, b, n), 0);
    ck_assert_uint_lt(n, 200000);
    /* Raise this by hand when the model is changed on purpose; a difference between machines is a
     * fault. */
    ck_assert_msg(hash64(a, n, 0) == UINT64_C(0x4fef3cdfc5bbecb5), "hash is %016llx",
                  (unsigned long long)hash64(a, n, 0));
    ck_assert_int_eq(test_tmpdir_make(dir, "tiny"), 0);
    snprintf(path, sizeof path, "%.4000s/t.gguf", dir);
    ck_assert_int_eq(tiny_model_write(TINY_SEED, path), 0);
    char *c = test_read_file(path, &m);
    ck_assert(c && m == n && memcmp(a, c, n) == 0);
    free(a);
    free(b);
    free(c);
    test_tmpdir_remove(dir);
}
END_TEST

static struct tiny_reference *open_reference(uint64_t seed, uint32_t positions)
{
    struct tiny_reference *r;
    struct gguf *g;
    struct err e;
    size_t n;
    void *p = tiny_model_bytes(seed, &n);
    ck_assert_msg(gguf_open_mem(&g, p, n, &e) == 0, "%s", e.msg);
    ck_assert_msg(tiny_reference_create(&r, g, positions, &e) == 0, "%s", e.msg);
    gguf_close(&g);
    free(p);
    return r;
}

/* One greedy run of 64 from a prompt that depends on the seed. */
static void wander(uint64_t seed, double *eog_mean)
{
    struct tiny_reference *r = open_reference(seed, 96);
    bool seen[TINY_VOCAB] = {false};
    int distinct = 0, repeats = 0;
    int32_t last = -1;
    double eog = 0;
    for (int i = 0; i < 96; i++) {
        int32_t id =
            i < 32 ? (int32_t)(rand_at(seed, (uint64_t)i) % TINY_VOCAB) : tiny_reference_argmax(r);
        const double *lp = tiny_reference_step(r, id);
        double sum = 0;
        ck_assert_ptr_nonnull(lp);
        for (int k = 0; k < TINY_VOCAB; k++)
            sum += exp(lp[k]);
        ck_assert_double_lt(fabs(sum - 1), 1e-9);
        eog += exp(lp[TINY_ENDOFTEXT]) + exp(lp[TINY_IM_END]);
        if (i < 32)
            continue;
        distinct += !seen[id];
        seen[id] = true;
        repeats += id == last;
        last = id;
    }
    ck_assert_msg(distinct >= 16, "seed %llu: %d distinct of 64", (unsigned long long)seed,
                  distinct);
    ck_assert_msg(repeats <= 24, "seed %llu: %d repeats of 64", (unsigned long long)seed, repeats);
    ck_assert_ptr_null(tiny_reference_step(r, 5));
    *eog_mean += eog / 96;
    tiny_reference_destroy(&r);
}

START_TEST(greedy_runs_wander)
{
    double eog_mean = 0;
    for (uint64_t seed = 1; seed <= 4; seed++)
        wander(seed, &eog_mean);
    eog_mean /= 4;
    ck_assert_msg(eog_mean > 1e-4 && eog_mean < 0.02, "mean probability of an end: %g", eog_mean);
}
END_TEST

/* What came before changes what follows, at once and far back; a second run repeats the first
 * exactly. */
START_TEST(context_matters)
{
    struct tiny_reference *r = open_reference(TINY_SEED, 200);
    double last[3];
    for (int run = 0; run < 3; run++) {
        const double *lp = NULL;
        tiny_reference_reset(r);
        for (int i = 0; i < 150; i++)
            lp = tiny_reference_step(r, i == 3 && run == 2 ? 99 : 4 + i % 200);
        last[run] = lp[70];
    }
    ck_assert_double_eq(last[0], last[1]);
    ck_assert_double_gt(fabs(last[0] - last[2]), 1e-6);
    tiny_reference_destroy(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tiny");
    TCase *c = tcase_create("all");
    tcase_add_test(c, half_precision);
    tcase_add_test(c, blocks);
    tcase_add_test(c, same_seed_same_bytes);
    tcase_add_test(c, greedy_runs_wander);
    tcase_add_test(c, context_matters);
    suite_add_tcase(s, c);
    return test_run(s);
}
