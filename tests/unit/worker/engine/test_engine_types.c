/* Every tensor type the engine runs, as a whole model: the tiny weights in that type are close to
 * the float reference of the same file, equal bytes from the scalar and the best kernel, and the
 * float types lose nothing: F32 weights that fit F16 or BF16 give the bytes of those. */
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"
#include "tests/tiny/tiny_half.h"
#include "tests/tiny/tiny_model.h"
#include "tests/tiny/tiny_reference.h"
#include "tests/unit/worker/engine/engine_rig.h"
#include "worker/engine/cpu/ops.h"

#include <math.h>
#include <string.h>

#define LEN 120
#define VOCAB 300

static const struct {
    const char *name;
    uint32_t matrices, embedding;
} rows[] = {
    {"Q4_0", GGUF_Q4_0, GGUF_Q4_0}, {"Q4_0 + F16", GGUF_Q4_0, GGUF_F16},
    {"Q4_1", GGUF_Q4_1, GGUF_Q4_1}, {"Q8_0", GGUF_Q8_0, GGUF_Q8_0},
    {"F16", GGUF_F16, GGUF_F16},    {"BF16", GGUF_BF16, GGUF_BF16},
    {"F32", GGUF_F32, GGUF_F32},
};
#define ROWS ((int)(sizeof rows / sizeof rows[0]))

static struct rig rig;
static struct rig_step st;
static struct rig_seq seq;
static char dir[TEST_PATH_MAX], path[TEST_PATH_MAX];
static float best[LEN * VOCAB], plain[LEN * VOCAB];

static void write_model(uint32_t matrices, uint32_t embedding)
{
    size_t n;
    void *p = tiny_model_typed_bytes(TINY_SEED, matrices, embedding, &n);
    ck_assert_ptr_nonnull(p);
    FILE *f = fopen(path, "wb");
    ck_assert(f != NULL && fwrite(p, 1, n, f) == n && fclose(f) == 0);
    free(p);
}

/* Logits of LEN positions, in chunks that reach both the kernels for few and for many tokens. */
static void logits_of(enum engine_kernel kernel, uint32_t threads, bool precise, float *out)
{
    static const uint32_t chunks[] = {1, 3, 50, 66};
    int32_t ids[LEN];
    struct engine_config cfg = rig_config("cpu");
    cfg.kernel = kernel;
    cfg.precise = precise;
    cfg.n_threads = threads;
    rig_open(&rig, path, &cfg);
    rig_ids(ids, LEN, 31, VOCAB);
    rig_seq_init(&seq, 1, ids, LEN);
    for (int c = 0; c < 4; c++) {
        uint32_t at = seq.n_done;
        rig_step_init(&rig, &st);
        rig_span(&rig, &st, &seq, chunks[c]);
        for (uint32_t i = 0; i < chunks[c]; i++)
            rig_row(&st, 0, i, ENGINE_ROW_LOGITS);
        rig_run(&rig, &st);
        for (uint32_t i = 0; i < chunks[c]; i++)
            memcpy(out + (size_t)(at + i) * VOCAB, engine_step_row_data(rig.eng, st.step.id, i),
                   VOCAB * sizeof *out);
        rig_release(&rig, &st);
    }
    ck_assert_uint_eq(seq.n_done, LEN);
}

static double logprob(const float *row, int32_t id, uint32_t *argmax)
{
    double z = 0;
    *argmax = 0;
    for (uint32_t k = 1; k < VOCAB; k++)
        if (row[k] > row[*argmax])
            *argmax = k;
    for (uint32_t k = 0; k < VOCAB; k++)
        z += exp((double)row[k] - (double)row[*argmax]);
    return (double)row[id] - (double)row[*argmax] - log(z);
}

static void compare_with_reference(const char *name)
{
    struct tiny_reference *ref;
    struct err e;
    double sum = 0;
    uint32_t same = 0, top;
    ck_assert_int_eq(tiny_reference_create(&ref, rig.model.gguf, LEN, &e), 0);
    for (uint32_t i = 0; i + 1 < LEN; i++) {
        const double *lp = tiny_reference_step(ref, seq.ids[i]);
        double ours = logprob(best + (size_t)i * VOCAB, seq.ids[i + 1], &top);
        sum += fabs(ours - lp[seq.ids[i + 1]]);
        same += (int32_t)top == tiny_reference_argmax(ref);
    }
    printf("%-10s mean |difference| %.4f nat, argmax equal in %u of %d\n", name, sum / (LEN - 1),
           same, LEN - 1);
    /* The bound of the tiny model (test_engine_cpu): int8 activations, whatever the weights. */
    ck_assert_double_le(sum / (LEN - 1), 0.12);
    ck_assert_uint_ge(same, (LEN - 1) * 88 / 100);
    tiny_reference_destroy(&ref);
}

/* Scalar against each instance this CPU runs, one and two threads. */
static void every_kernel_agrees(const char *name, bool precise)
{
    static const enum engine_kernel kernels[] = {ENGINE_KERNEL_AVX2, ENGINE_KERNEL_AVX512};
    logits_of(ENGINE_KERNEL_SCALAR, 1, precise, plain);
    rig_close(&rig);
    for (uint32_t k = 0; k < 2; k++) {
        if (cpu_ops_choose(kernels[k], NULL) == NULL)
            continue;
        logits_of(kernels[k], 1 + k, precise, best);
        rig_close(&rig);
        ck_assert_msg(memcmp(plain, best, sizeof best) == 0, "%s, precise %d: %s differs", name,
                      precise, k == 0 ? "avx2" : "avx512");
    }
}

START_TEST(one_type)
{
    write_model(rows[_i].matrices, rows[_i].embedding);
    every_kernel_agrees(rows[_i].name, true);
    every_kernel_agrees(rows[_i].name, false);
    logits_of(ENGINE_KERNEL_AUTO, 2, false, best);
    compare_with_reference(rows[_i].name);
    rig_close(&rig);
}
END_TEST

/* A file of halves and the same values written out as F32: equal logits, to the byte. */
START_TEST(nothing_is_lost)
{
    uint32_t type = _i == 0 ? GGUF_F16 : GGUF_BF16;
    size_t n;
    struct gguf_builder b;
    struct gguf *g;
    write_model(type, type);
    logits_of(ENGINE_KERNEL_AUTO, 1, false, best);
    rig_close(&rig);
    ck_assert_int_eq(gguf_open(&g, path, NULL), 0);
    gguf_builder_init(&b);
    tiny_model_keys(&b);
    tiny_model_tokenizer(&b);
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        static float x[TINY_VOCAB * TINY_EMBD];
        char name[64];
        size_t count = (size_t)(t->dims[0] * t->dims[1]);
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.p);
        ck_assert_int_eq(tiny_dequantise(t->type, t->data, count, x), 0);
        gguf_builder_tensor(&b, name, t->n_dims, t->dims, GGUF_F32, x, count * sizeof *x);
    }
    gguf_close(&g);
    void *p = gguf_builder_finish(&b, &n);
    gguf_builder_deinit(&b);
    FILE *f = fopen(path, "wb");
    ck_assert(p != NULL && f != NULL && fwrite(p, 1, n, f) == n && fclose(f) == 0);
    free(p);
    logits_of(ENGINE_KERNEL_AUTO, 1, false, plain);
    rig_close(&rig);
    ck_assert_mem_eq(plain, best, sizeof best);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine_types");
    TCase *t = tcase_create("tiny");
    if (test_tmpdir_make(dir, "types") != 0)
        return 1;
    snprintf(path, sizeof path, "%.4000s/t.gguf", dir);
    tcase_add_loop_test(t, one_type, 0, ROWS);
    tcase_add_loop_test(t, nothing_is_lost, 0, 2);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    int rc = test_run(s);
    test_tmpdir_remove(dir);
    return rc;
}
