/* `eval` on the tiny model: A alone, A against itself (no difference at all), against INT8 K and V,
 * its own greedy text, what is refused; and a short `bench engine` that leaves a sample in each
 * case. */
#include "cli/bench_report.h"
#include "cli/eval_report.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

#define LEN 300

static struct eval_run r;
static struct bench_engine b;
static struct err e;
static int32_t ids[LEN];

static void open_run(const char *other, enum engine_kv_type kv, uint32_t ctx) {
    memset(&r, 0, sizeof(r));
    r.a.path = test_tiny_path();
    r.a.kv_type = kv;
    r.b.path = other;
    r.threads = 2;
    r.ctx = ctx;
    r.quiet = true;
    ck_assert_msg(eval_open(&r, &e) == 0, "%s", e.msg);
    for (uint32_t i = 0; i < LEN; i++)
        ids[i] = (int32_t)(rand_at(3, i) % 300);
}

START_TEST(alone_and_in_windows) {
    open_run(NULL, ENGINE_KV_F16, 0);
    ck_assert_int_eq(eval_text(&r, ids, LEN, &e), 0);
    ck_assert(r.stats.all.n == LEN - 1 && r.n_windows == 1);
    double whole = eval_perplexity_a(&r.stats.all);
    ck_assert(whole > 10 && isfinite(whole));
    eval_close(&r);
    open_run(NULL, ENGINE_KV_F16, 100);
    ck_assert_int_eq(eval_text(&r, ids, LEN, &e), 0);
    ck_assert(r.stats.all.n == LEN - 3 && r.n_windows == 3);
    ck_assert_int_eq(eval_text(&r, ids, 1, &e), -1);
    eval_close(&r);
}
END_TEST

START_TEST(against_itself_and_int8) {
    open_run(test_tiny_path(), ENGINE_KV_F16, 0);
    ck_assert_int_eq(eval_text(&r, ids, LEN, &e), 0);
    ck_assert(r.stats.all.kl == 0 && r.stats.all.same == r.stats.all.n);
    eval_close(&r);
    open_run(test_tiny_path(), ENGINE_KV_INT8, 0);
    ck_assert_int_eq(eval_text(&r, ids, LEN, &e), 0);
    ck_assert(r.stats.all.kl > 0 && eval_mean(r.stats.all.kl, r.stats.all.n) < 0.05);
    json_t *j = eval_report_json(&r, false);
    ck_assert(json_is_real(json_object_get(json_object_get(j, "all"), "kl_mean_nat")));
    ck_assert_uint_eq(json_array_size(json_object_get(j, "buckets")), EVAL_BUCKETS);
    json_decref(j);
    eval_close(&r);
}
END_TEST

/* Written one by one and read in chunks: the same choices (an answer depends on tokens alone). */
START_TEST(its_own_words) {
    struct id_list l = {0};
    open_run(NULL, ENGINE_KV_F16, 0);
    ck_assert_int_eq(id_list_add(&l, ids, 40), 0);
    ck_assert_int_eq(eval_self(&r, &l, 60, true, &e), 0);
    ck_assert(l.n == 100 && r.n_made == 60);
    ck_assert(r.stats.all.n == 60 && r.stats.all.same == 60);
    ck_assert_int_eq(eval_self(&r, &l, 5000, true, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "--ctx"));
    id_list_deinit(&l);
    eval_close(&r);
}
END_TEST

START_TEST(wrong_files) {
    memset(&r, 0, sizeof(r));
    r.a.path = "/nowhere/m.gguf";
    ck_assert_int_eq(eval_open(&r, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "/nowhere/m.gguf"));
    eval_close(&r);
    memset(&r, 0, sizeof(r));
    r.a.path = test_tiny_path();
    r.threads = 1;
    r.ctx = 5000;
    ck_assert_int_eq(eval_open(&r, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "2048"));
    eval_close(&r);
}
END_TEST

START_TEST(a_short_bench) {
    memset(&b, 0, sizeof(b));
    b.model_path = test_tiny_path();
    b.threads = (struct bench_list){{1}, 1};
    b.seqs = (struct bench_list){{1, 3}, 2};
    b.contexts = (struct bench_list){{8, 64, 4096}, 3};
    b.prefill = 32;
    b.rounds = 1;
    b.quiet = true;
    ck_assert_msg(bench_engine_open(&b, &e) == 0, "%s", e.msg);
    ck_assert_msg(bench_engine_run(&b, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(b.n_cases, 1 + 2 + 3 + 3);
    for (uint32_t i = 0; i < b.n_cases; i++) {
        const struct bench_case *c = &b.cases[i];
        ck_assert_int_eq(c->skipped, c->context == 4096); /* past the model's context */
        ck_assert_int_eq(c->ours.n, c->skipped ? 0 : 1);
        ck_assert(c->skipped || (c->ours.v[0] > 0 && c->bound > 0));
    }
    json_t *j = bench_report_json(&b);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "cases")), b.n_cases);
    json_decref(j);
    bench_engine_close(&b);
    ck_assert_uint_eq(mem_used(), 0);
}
END_TEST

int main(void) {
    if (test_tiny_path() == NULL)
        return test_skip("the tiny model was not built");
    Suite *s = suite_create("eval_run");
    TCase *t = tcase_create("tiny");
    tcase_add_test(t, alone_and_in_windows);
    tcase_add_test(t, against_itself_and_int8);
    tcase_add_test(t, its_own_words);
    tcase_add_test(t, wrong_files);
    tcase_add_test(t, a_short_bench);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    return test_run(s);
}
