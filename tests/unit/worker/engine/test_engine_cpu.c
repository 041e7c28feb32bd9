/* The CPU engine on the tiny model: equal bytes whatever the company, chunks, threads, kernel,
 * parks and drops; close to the float reference; and the hash of 1,000 logit rows that names the
 * family (rule E10). All of it with F16 and with INT8 keys and values. */
#include "tests/common/testpaths.h"
#include "tests/tiny/tiny_reference.h"
#include "tests/unit/worker/engine/engine_rig.h"
#include "worker/engine/cpu/ops.h"

#include "base/mem.h"

#include <check.h>
#include <math.h>
#include <string.h>

#ifdef SLUICE_TSAN
#define LEN 290 /* 20 times slower: still over one attention split of 256 */
#else
#define LEN 600 /* over one attention split, over one chunk of 512 */
#endif
#define FAMILY (precise ? "cpu-q16a-1" : "cpu-q8a-1")
/* hash128 over the bytes of 1,000 logit rows, in order. It changes only together with FAMILY (in
 * cpu_backend.c). */
static const char *const family_hashes[2][2] = {
    {[ENGINE_KV_F16] = "f459c43b29d4a2f9df864db0341bb6af",
     [ENGINE_KV_INT8] = "c829914bff10da96ab71469232c0ed33"},
    {[ENGINE_KV_F16] = "da81ea511356634e6b5ce4cde0f99ed1"},
};

static struct rig rig;
static struct rig_step st;
static struct rig_seq seqs[16];
static float want[LEN * 300], got[LEN * 300];
static int32_t text[LEN];
static uint32_t n_parks;
static enum engine_kv_type kv_type; /* of the suite that runs */
static bool precise;                /* likewise */

static void open_cpu(enum engine_kernel kernel, uint32_t threads, uint64_t chaos)
{
    struct engine_config cfg = rig_config("cpu");
    cfg.kernel = kernel;
    cfg.kv_type = kv_type;
    cfg.precise = precise;
    cfg.n_threads = threads;
    cfg.chaos_seed = chaos;
    rig_open(&rig, test_tiny_path(), &cfg);
    ck_assert_uint_eq(rig.limits->n_vocab, 300);
    rig_ids(text, LEN, 77, 300);
}

/* Logits of every position of `q`, its rows stepped in chunks; `other` sequences ride along, a
 * decode each. */
static void logits_of(struct rig_seq *q, float *out, uint32_t chunk, uint32_t others, bool parking)
{
    while (q->n_done < q->n_ids) {
        uint32_t at = q->n_done, n = q->n_ids - at < chunk ? q->n_ids - at : chunk;
        rig_step_init(&rig, &st);
        for (uint32_t i = 0; i < others; i++) { /* before and behind the one that is looked at */
            if (i == others / 2)
                rig_span(&rig, &st, q, n);
            rig_span(&rig, &st, &seqs[1 + i], 1 + i % 3);
        }
        if (others == 0)
            rig_span(&rig, &st, q, n);
        uint32_t span = others / 2;
        ck_assert_ptr_eq(st.seqs[span], q);
        for (uint32_t i = 0; i < n; i++)
            rig_row(&st, span, i, ENGINE_ROW_LOGITS);
        if (parking)
            n_parks += rig_run_parking(&rig, &st);
        else
            rig_run(&rig, &st);
        for (uint32_t i = 0; i < n; i++)
            memcpy(out + (size_t)(at + i) * 300, engine_step_row_data(rig.eng, st.step.id, i),
                   300 * sizeof *out);
        rig_release(&rig, &st);
    }
}

static void start(struct rig_seq *q)
{
    rig_seq_init(q, 1, text, LEN);
}

/* Fresh riders for every run, with ids for each step. */
static void start_others(void)
{
    int32_t ids[RIG_CTX];
    for (uint32_t i = 0; i < 15; i++) {
        rig_ids(ids, RIG_CTX, 1000 + i, 300);
        rig_seq_init(&seqs[1 + i], 2 + i, ids, RIG_CTX);
    }
}

static void run_and_compare(uint32_t chunk, uint32_t others, bool parking)
{
    start(&seqs[0]);
    start_others();
    memset(got, 0, sizeof got);
    logits_of(&seqs[0], got, chunk, others, parking);
    ck_assert_msg(memcmp(got, want, sizeof want) == 0,
                  "chunk %u, %u others, parking %d: other bytes", chunk, others, parking);
    for (int i = 0; i < 16; i++)
        rig_seq_free(&rig, &seqs[i]);
}

/* The bytes that all others must equal: scalar, one thread, alone, in two chunks. */
static void make_want(void)
{
    open_cpu(ENGINE_KERNEL_SCALAR, 1, 0);
    start(&seqs[0]);
    logits_of(&seqs[0], want, 512, 0, false);
    rig_close(&rig);
}

START_TEST(same_bytes_always)
{
    static const enum engine_kernel kernels[] = {ENGINE_KERNEL_SCALAR, ENGINE_KERNEL_AVX2,
                                                 ENGINE_KERNEL_AVX512};
    enum engine_kernel kernel = kernels[_i / 2];
    if (cpu_ops_choose(kernel, NULL) == NULL)
        return;
    make_want();
    n_parks = 0;
    open_cpu(kernel, 1 + (uint32_t)_i % 2, 0);
    run_and_compare(1, 0, false);
    run_and_compare(7, 0, true);
    run_and_compare(64, 15, false);
    run_and_compare(64, 2, true);
    run_and_compare(512, 15, true);
    ck_assert_uint_gt(n_parks, 20);
    rig_close(&rig);
}
END_TEST

/* Neighbours before and behind the span are dropped in the middle of each step. */
START_TEST(drops_do_not_matter)
{
    make_want();
    open_cpu(ENGINE_KERNEL_AUTO, 2, (uint64_t)_i * 7);
    uint32_t drops = 0;
    for (uint32_t at_segment = 0; at_segment < rig.limits->n_segments; at_segment++) {
        start(&seqs[0]);
        start_others();
        rig_step_init(&rig, &st);
        for (uint32_t i = 0; i < 5; i++)
            rig_row(&st, rig_span(&rig, &st, &seqs[(i + 3) % 5], 90), 89,
                    ENGINE_ROW_LOGITS); /* 3 4 0 1 2 */
        rig_submit(&rig, &st);
        for (uint32_t parks = 0;; parks++) {
            ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), 0);
            if (rig_await_stop(&rig, st.step.id)->kind == ENGINE_STEP_END)
                break;
            for (uint32_t i = 0; i < 5 && parks == at_segment; i += 1 + (i == 1))
                ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, i),
                                 0); /* all but span 2 */
            ck_assert_int_eq(engine_step_continue(rig.eng, st.step.id), 0);
        }
        rig_end(&rig, &st);
        drops += rig_count(&rig, ENGINE_SPAN_DROPPED, st.step.id);
        ck_assert_mem_eq(engine_step_row_data(rig.eng, st.step.id, 2), want + 89 * 300,
                         300 * sizeof *want);
        rig_release(&rig, &st);
        for (int i = 0; i < 16; i++)
            rig_seq_free(&rig, &seqs[i]);
    }
    ck_assert_uint_gt(drops, 0);
    rig_close(&rig);
}
END_TEST

START_TEST(family_hash)
{
    static float rows[1000 * 300];
    open_cpu(ENGINE_KERNEL_AUTO, 1, 0);
    ck_assert_str_eq(rig.limits->family, FAMILY);
    int32_t ids[1000];
    rig_ids(ids, 1000, 12345, 300);
    rig_seq_init(&seqs[0], 1, ids, 1000);
    logits_of(&seqs[0], rows, 512, 0, false);
    char hex[33];
    hash128_hex(hash128(rows, sizeof rows, 0), hex);
    rig_close(&rig);
    ck_assert_msg(strcmp(hex, family_hashes[precise][kv_type]) == 0,
                  "1,000 logit rows of family %s hash to %s, not %s: output bytes "
                  "changed, so the family must be raised",
                  FAMILY, hex, family_hashes[precise][kv_type]);
}
END_TEST

START_TEST(near_the_float_reference)
{
    open_cpu(ENGINE_KERNEL_AUTO, 1, 0);
    struct tiny_reference *ref;
    struct err e;
    ck_assert_int_eq(tiny_reference_create(&ref, rig.model.gguf, LEN, &e), 0);
    start(&seqs[0]);
    logits_of(&seqs[0], got, 512, 0, false);
    double sum = 0, worst = 0;
    uint32_t same = 0;
    for (uint32_t i = 0; i + 1 < LEN; i++) {
        const double *lp = tiny_reference_step(ref, text[i]);
        const float *row = got + (size_t)i * 300;
        float max = row[0];
        uint32_t best = 0;
        for (uint32_t k = 1; k < 300; k++)
            if (row[k] > max)
                max = row[best = k];
        double z = 0;
        for (uint32_t k = 0; k < 300; k++)
            z += exp((double)row[k] - max);
        double diff = fabs((double)row[text[i + 1]] - max - log(z) - lp[text[i + 1]]);
        sum += diff;
        worst = diff > worst ? diff : worst;
        same += (int32_t)best == tiny_reference_argmax(ref);
    }
    printf("tiny model: mean |difference| %.4f, largest %.4f nat, argmax equal in %u of %d\n",
           sum / (LEN - 1), worst, same, LEN - 1);
    /* 64 wide, 2 layers: int8 activations weigh more than on a real model (there 0.056,
     * tests/golden). */
    ck_assert_double_le(sum / (LEN - 1), 0.12);
    ck_assert_uint_ge(same, (LEN - 1) * 90 / 100);
    tiny_reference_destroy(&ref);
    rig_close(&rig);
}
END_TEST

/* Greedy and seeded answers: alone in one chunk, against small chunks parked at each segment under
 * chaos. */
START_TEST(answers_do_not_depend_on_how)
{
    static struct rig_seq one, two;
    for (int seeded = 0; seeded < 2; seeded++) {
        open_cpu(ENGINE_KERNEL_AUTO, 1, 0);
        rig_seq_init(&one, 1, text, 100);
        rig_generate(&rig, &one, 40, 512, seeded ? 0.9f : 0, 5, false);
        rig_close(&rig);
        open_cpu(ENGINE_KERNEL_SCALAR, 2, 99);
        rig_seq_init(&two, 1, text, 100);
        rig_generate(&rig, &two, 40, 16, seeded ? 0.9f : 0, 5, true);
        rig_close(&rig);
        ck_assert_mem_eq(one.ids, two.ids, 140 * sizeof(int32_t));
    }
}
END_TEST

START_TEST(rows_of_every_kind)
{
    open_cpu(ENGINE_KERNEL_AUTO, 1, 0);
    ck_assert_uint_eq(rig.limits->max_refs, 0);
    ck_assert_uint_eq(rig.limits->block_stride % 4096, 0);
    start(&seqs[0]);
    rig_step_init(&rig, &st);
    uint32_t span = rig_span(&rig, &st, &seqs[0], 50);
    for (uint32_t i = 0; i < 49; i++) {
        struct engine_row *row = rig_row(&st, span, i, ENGINE_ROW_SCORE);
        row->target = text[i + 1];
        row->n_top = 3;
    }
    rig_row(&st, span, 49, ENGINE_ROW_HIDDEN);
    rig_row(&st, span, 7, ENGINE_ROW_LOGITS);
    struct engine_row *greedy = rig_row(&st, span, 7, ENGINE_ROW_SAMPLE);
    greedy->logprob = true;
    rig_run(&rig, &st);
    const float *logits = engine_step_row_data(rig.eng, st.step.id, 50);
    const struct sample_result *top = engine_step_result(rig.eng, st.step.id, 7);
    const struct sample_result *draw = engine_step_result(rig.eng, st.step.id, 51);
    ck_assert_int_eq(draw->id, top->top[0].id);
    ck_assert(draw->logprob == top->top[0].logprob);
    ck_assert_int_eq(top->id, text[8]);
    ck_assert(logits[draw->id] >= logits[text[8]]);
    ck_assert_float_le(fabsf((logits[draw->id] - logits[text[8]]) - (draw->logprob - top->logprob)),
                       1e-3f);
    const float *hidden = engine_step_row_data(rig.eng, st.step.id, 49);
    float square = 0;
    for (uint32_t i = 0; i < rig.model.hp.n_embd; i++)
        square += hidden[i] * hidden[i];
    ck_assert(square > 0 && isfinite(square));
    rig_release(&rig, &st);

    /* Without logits a step is its layers only. */
    rig_step_init(&rig, &st);
    rig_row(&st, rig_span(&rig, &st, &seqs[0], 20), 19, ENGINE_ROW_HIDDEN);
    rig_run(&rig, &st);
    ck_assert_uint_eq(rig_event(&rig, ENGINE_STEP_END, st.step.id)->segments_done,
                      rig.model.hp.n_layers);
    rig_release(&rig, &st);
    rig_close(&rig);
}
END_TEST

/* Garbage in blocks that no position of the sequence has written must not be read: NaN bits
 * everywhere. */
START_TEST(unwritten_bytes_are_not_read)
{
    make_want();
    open_cpu(ENGINE_KERNEL_AUTO, 1, 0);
    for (uint32_t b = 0; b < rig.limits->n_blocks; b++)
        memset((void *)engine_block_bytes(rig.eng, b), 0xff, rig.limits->block_bytes);
    start(&seqs[0]);
    logits_of(&seqs[0], got, 33, 0, false);
    ck_assert_mem_eq(got, want, sizeof want);
    rig_close(&rig);
}
END_TEST

START_TEST(numerics_id_names_the_file)
{
    struct hash128 ids[5];
    for (int i = 0; i < 2; i++) {
        open_cpu(i == 0 ? ENGINE_KERNEL_SCALAR : ENGINE_KERNEL_AUTO, 1, 0);
        ids[i] = rig.limits->numerics_id;
        rig_close(&rig);
    }
    struct engine_config cfg = rig_config("null");
    rig_open(&rig, test_tiny_path(), &cfg);
    ids[2] = rig.limits->numerics_id;
    rig_close(&rig);
    ck_assert(hash128_equal(ids[0], ids[1]));
    ck_assert(!hash128_equal(ids[0], ids[2]));
    kv_type = kv_type == ENGINE_KV_F16 ? ENGINE_KV_INT8 : ENGINE_KV_F16;
    open_cpu(ENGINE_KERNEL_AUTO, 1, 0);
    ids[3] = rig.limits->numerics_id;
    rig_close(&rig);
    kv_type = kv_type == ENGINE_KV_F16 ? ENGINE_KV_INT8 : ENGINE_KV_F16;
    ck_assert(!hash128_equal(ids[0], ids[3])); /* no stream goes on under the other type */
    precise = !precise;
    open_cpu(ENGINE_KERNEL_AUTO, 1, 0);
    ids[4] = rig.limits->numerics_id;
    rig_close(&rig);
    precise = !precise;
    ck_assert(!hash128_equal(ids[0], ids[4]));
}
END_TEST

/* Every allocation of open fails once: an error, and nothing is kept. */
START_TEST(open_survives_lack_of_memory)
{
    struct model m;
    struct err e;
    ck_assert_int_eq(model_open(&m, test_tiny_path(), NULL, &e), 0);
    struct engine_config cfg = rig_config("cpu");
    cfg.model = &m;
    cfg.precise = precise;
    cfg.n_threads = 2;
    size_t before = mem_used();
    int rc = -1;
    for (uint64_t n = 1; rc < 0; n++) {
        struct engine *eng;
        err_clear(&e);
        mem_fail_nth(n);
        rc = engine_open(&eng, &cfg, &e);
        mem_fail_nth(0);
        if (rc < 0)
            ck_assert_int_eq(e.code, ERR_NO_MEMORY);
        else
            ck_assert_uint_gt(n, 10);
        engine_close(&eng);
        ck_assert_uint_eq(mem_used(), before);
    }
    model_close(&m);
}
END_TEST

static void with_f16(void)
{
    kv_type = ENGINE_KV_F16;
}

static void with_int8(void)
{
    kv_type = ENGINE_KV_INT8;
}

static void with_precise(void)
{
    kv_type = ENGINE_KV_F16;
    precise = true;
}

static TCase *cases(const char *name, void (*with)(void))
{
    TCase *t = tcase_create(name);
    tcase_add_unchecked_fixture(t, with, NULL);
#ifdef SLUICE_TSAN
    tcase_add_loop_test(t, same_bytes_always, 1, 2); /* one thread cannot race */
    tcase_add_loop_test(t, same_bytes_always, 3, 4);
    tcase_add_loop_test(t, same_bytes_always, 5, 6);
#else
    tcase_add_loop_test(t, same_bytes_always, 0, 6);
#endif
    tcase_add_loop_test(t, drops_do_not_matter, 0, 2);
    tcase_add_test(t, family_hash);
    tcase_add_test(t, near_the_float_reference);
    tcase_add_test(t, answers_do_not_depend_on_how);
    tcase_add_test(t, rows_of_every_kind);
    tcase_add_test(t, unwritten_bytes_are_not_read);
    tcase_add_test(t, numerics_id_names_the_file);
    tcase_add_test(t, open_survives_lack_of_memory);
    tcase_set_timeout(t, 0);
    return t;
}

int main(void)
{
    if (test_tiny_path() == NULL)
        return test_skip("the tiny model was not built");
    Suite *s = suite_create("engine_cpu");
    suite_add_tcase(s, cases("f16", with_f16));
    suite_add_tcase(s, cases("int8", with_int8));
    suite_add_tcase(s, cases("precise", with_precise));
    SRunner *run = srunner_create(s);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed != 0;
}
