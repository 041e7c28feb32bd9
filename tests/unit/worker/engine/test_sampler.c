/* The sampler: each step by hand-made logits, order and ties, counted draws, log-probabilities; and
 * both instances of the operations give the same results. */
#include "tests/unit/worker/engine/ops_testing.h"

#include "base/mem.h"
#include "worker/engine/cpu/cpu_math.h"
#include "worker/engine/cpu/sampler.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V_MAX 5000

static struct rnd rnd = {.seed = 77};
static float logits[V_MAX];
#define TWINS 3
static struct sampler twins[TWINS]; /* scalar, AVX2, AVX-512; absent ones stand as scalar */
static void *work[TWINS];

static const struct cpu_ops *instance(int i) {
    static const enum engine_kernel kernels[TWINS] = {ENGINE_KERNEL_SCALAR, ENGINE_KERNEL_AVX2,
                                                      ENGINE_KERNEL_AVX512};
    const struct cpu_ops *ops = cpu_ops_choose(kernels[i], NULL);
    return ops != NULL ? ops : &cpu_ops_scalar;
}

static void use_vocab(uint32_t n_vocab) {
    for (int i = 0; i < TWINS; i++) {
        mem_free(work[i]);
        work[i] = mem_alloc(sampler_bytes(n_vocab)); /* exact: a sanitizer sees any overrun */
        ck_assert_ptr_nonnull(work[i]);
        sampler_init(&twins[i], instance(i), n_vocab, work[i]);
    }
}

static struct sample_params plain(float temperature) {
    return (struct sample_params){.temperature = temperature, .top_p = 1, .repetition_penalty = 1,
                                  .seed = 99};
}

/* All instances, which must agree byte for byte. */
static struct sample_result sample(const struct sample_params *p, bool logprob, uint32_t n_top) {
    struct sample_result r[TWINS];
    memset(r, 0, sizeof r);
    for (int i = 0; i < TWINS; i++)
        sampler_sample(&twins[i], logits, p, logprob, n_top, &r[i]);
    for (int i = 1; i < TWINS; i++)
        ck_assert_mem_eq(&r[0], &r[i], sizeof r[0]);
    for (uint32_t i = 0; i < twins[0].n_vocab; i++)
        ck_assert_uint_eq(twins[0].counts[i], 0);
    return r[0];
}

static int32_t sample_id(const struct sample_params *p) {
    return sample(p, false, 0).id;
}

static void set_logits(const float *x, uint32_t n) {
    use_vocab(n);
    memcpy(logits, x, n * sizeof *x);
}

static void random_logits(uint32_t n, float size) {
    use_vocab(n);
    rnd_fill(&rnd, logits, n, size, false);
}

/* How often each of the first n ids is drawn. */
static void count_draws(struct sample_params p, uint32_t draws, uint32_t *counts, uint32_t n) {
    memset(counts, 0, n * sizeof *counts);
    for (p.position = 0; p.position < draws; p.position++) {
        int32_t id = sample_id(&p);
        ck_assert(id >= 0 && (uint32_t)id < n);
        counts[id]++;
    }
}

START_TEST(greedy_and_ties) {
    struct sample_params p = plain(0);
    set_logits((float[]){1, 5, 3, 5, 5}, 5);
    ck_assert_int_eq(sample_id(&p), 1);
    p.banned = (int32_t[]){1, 3};
    p.n_banned = 2;
    ck_assert_int_eq(sample_id(&p), 4);
    p.temperature = 1e-3f; /* hot enough for the draw, cold enough to be sure */
    ck_assert_int_eq(sample_id(&p), 4);
}
END_TEST

START_TEST(bias_mask_banned) {
    struct sample_params p = plain(0);
    struct sample_bias bias[] = {{2, 100}, {1, -100}, {9, 5}, {-1, 5}};
    uint64_t mask[1] = {0x1b}; /* all but 2 */
    set_logits((float[]){1, 5, 3, 4.5f, 2}, 5);
    p.bias = bias;
    p.n_bias = 4;
    ck_assert_int_eq(sample_id(&p), 2);
    p.mask = mask;
    ck_assert_int_eq(sample_id(&p), 3);
    p.banned = (int32_t[]){3, 1000};
    p.n_banned = 2;
    ck_assert_int_eq(sample_id(&p), 4);
    for (p.position = 0, p.temperature = 2; p.position < 500; p.position++) {
        int32_t id = sample_id(&p);
        ck_assert(id == 0 || id == 4); /* 1 is at -95: never in 500 draws */
    }
    mask[0] = 0;
    ck_assert_int_eq(sample_id(&p), 0);
    p.temperature = 0;
    ck_assert_int_eq(sample_id(&p), 0);
}
END_TEST

START_TEST(penalties) {
    struct sample_params p = plain(0);
    int32_t history[] = {0, 1, 1, 1, -5, 700}; /* prompt: 0, 1; output: 1, 1 and strangers */
    set_logits((float[]){4, 3.9f, 3.0f, -1}, 4);
    p.history = history;
    p.n_history = 6;
    p.n_prompt = 2;
    p.repetition_penalty = 2; /* 2, 1.95, 3 */
    ck_assert_int_eq(sample_id(&p), 2);
    p.repetition_penalty = 1;
    p.frequency_penalty = 0.5f; /* prompt ids are not counted: 4, 2.9, 3 */
    ck_assert_int_eq(sample_id(&p), 0);
    p.n_prompt = 0; /* 3.5, 2.4, 3 */
    ck_assert_int_eq(sample_id(&p), 0);
    p.frequency_penalty = 0;
    p.presence_penalty = 1.5f; /* 2.5, 2.4, 3 */
    ck_assert_int_eq(sample_id(&p), 2);
    p.presence_penalty = -2; /* 6, 5.9, 3 */
    ck_assert_int_eq(sample_id(&p), 0);
    p.presence_penalty = 0;
    p.repetition_penalty = 0.1f; /* below 0 it divides upwards: -1 stays worst, 0 wins by 40 */
    ck_assert_int_eq(sample_id(&p), 0);
    set_logits((float[]){-1, -1.5f}, 2);
    p.repetition_penalty = 2; /* -2, -1.5 when only 0 was seen */
    p.n_history = 1;
    ck_assert_int_eq(sample_id(&p), 1);
}
END_TEST

START_TEST(cuts_keep_the_right_ids) {
    static uint32_t counts[8];
    /* probabilities 0.4 0.3 0.2 0.1, not in order */
    set_logits((float[]){logf(0.2f), logf(0.4f), logf(0.1f), logf(0.3f)}, 4);
    struct sample_params p = plain(1);
    p.top_k = 1;
    count_draws(p, 300, counts, 4);
    ck_assert_uint_eq(counts[1], 300);
    p.top_k = 2;
    count_draws(p, 300, counts, 4);
    ck_assert(counts[1] + counts[3] == 300 && counts[3] > 80 && counts[1] > 120);
    p.top_k = 0;
    p.top_p = 1e-6f;
    count_draws(p, 300, counts, 4);
    ck_assert_uint_eq(counts[1], 300);
    p.top_p = 0.65f;
    count_draws(p, 300, counts, 4);
    ck_assert(counts[1] + counts[3] == 300 && counts[3] > 80);
    p.top_p = 0.75f;
    count_draws(p, 300, counts, 4);
    ck_assert(counts[2] == 0 && counts[0] > 30);
    p.top_p = 1;
    p.min_p = 0.6f; /* of 0.4: 0.24 */
    count_draws(p, 300, counts, 4);
    ck_assert(counts[1] + counts[3] == 300 && counts[3] > 80);
    p.min_p = 1;
    count_draws(p, 300, counts, 4);
    ck_assert_uint_eq(counts[1], 300);
    p.min_p = 0;
    p.top_k = 3;
    p.top_p = 0.7f; /* of 0.9: 0.63, two ids */
    count_draws(p, 300, counts, 4);
    ck_assert(counts[1] + counts[3] == 300 && counts[3] > 80);
    p.top_p = 0; /* out of its range, still one id */
    ck_assert_int_eq(sample_id(&p), 1);
}
END_TEST

START_TEST(top_k_ties_by_id) {
    static uint32_t counts[64];
    use_vocab(64);
    for (int i = 0; i < 64; i++)
        logits[i] = i % 2; /* 32 equal at the top: 1, 3, 5, ... */
    struct sample_params p = plain(1.5f);
    p.top_k = 3;
    count_draws(p, 600, counts, 64);
    ck_assert_uint_eq(counts[1] + counts[3] + counts[5], 600);
    ck_assert(counts[1] > 150 && counts[3] > 150 && counts[5] > 150);
}
END_TEST

/* Pearson's chi square of 20,000 draws with a fixed seed, 12 cells: 11 degrees of freedom. */
static double chi_square(struct sample_params p, const double *want, uint32_t n) {
    static uint32_t counts[32];
    const uint32_t draws = 20000;
    double x = 0;
    count_draws(p, draws, counts, n);
    for (uint32_t i = 0; i < n; i++)
        if (want[i] > 0)
            x += pow(counts[i] - draws * want[i], 2) / (draws * want[i]);
        else
            ck_assert_uint_eq(counts[i], 0);
    return x;
}

START_TEST(draws_follow_the_distribution) {
    enum { N = 12 };
    double want[N], sum = 0;
    random_logits(N, 1.0f);
    struct sample_params p = plain(0.8f);
    for (int i = 0; i < N; i++)
        sum += want[i] = exp((double)logits[i] / 0.8);
    for (int i = 0; i < N; i++)
        want[i] /= sum;
    double all = chi_square(p, want, N);
    p.top_k = N - 1; /* the smallest falls away */
    int least = 0;
    for (int i = 1; i < N; i++)
        least = want[i] < want[least] ? i : least;
    double rest = 1 - want[least];
    want[least] = 0;
    for (int i = 0; i < N; i++)
        want[i] /= rest;
    double cut = chi_square(p, want, N);
    printf("chi square %.1f and %.1f (11 and 10 degrees, 0.1 %% limit 31.3)\n", all, cut);
    ck_assert(all < 31.3 && cut < 31.3);
}
END_TEST

/* The definition with a full sort, in place of bands, heaps and partial sums. */
static const float *sort_key;

static int by_falling(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_key[i] != sort_key[j])
        return sort_key[i] > sort_key[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Accepts ids whose interval holds u within rounding: returns whether `got` is one. */
static bool drawn_rightly(const struct sample_params *p, uint32_t n_vocab, int32_t got) {
    static int32_t ids[V_MAX];
    static double w[V_MAX];
    double total = 0, kept = 0, running = 0, unit = (double)rand_unit(p->seed, p->position);
    for (uint32_t i = 0; i < n_vocab; i++)
        ids[i] = (int32_t)i;
    sort_key = logits;
    qsort(ids, n_vocab, sizeof *ids, by_falling);
    uint32_t n = p->top_k > 0 && (uint32_t)p->top_k < n_vocab ? (uint32_t)p->top_k : n_vocab, m = 0;
    for (uint32_t i = 0; i < n; i++)
        total += w[i] = exp(((double)logits[ids[i]] - (double)logits[ids[0]]) /
                            (double)p->temperature);
    double enough = (double)p->top_p * total * (1 - 1e-9);
    while (m < n && (m == 0 || (kept < enough && w[m] >= (double)p->min_p)))
        kept += w[m++];
    for (uint32_t i = 0; i < m; running += w[i++])
        if (ids[i] == got)
            return unit * kept >= running - 1e-6 * kept &&
                   unit * kept <= running + w[i] + 1e-6 * kept;
    return false;
}

/* The definition in the engine's own arithmetic: a full sort, then sums in its order. */
static int32_t draw_by_sort(const struct sample_params *p, uint32_t n_vocab) {
    static int32_t ids[V_MAX];
    static float w[V_MAX];
    for (uint32_t i = 0; i < n_vocab; i++)
        ids[i] = (int32_t)i;
    sort_key = logits;
    qsort(ids, n_vocab, sizeof *ids, by_falling);
    bool limited = p->top_k > 0 && (uint32_t)p->top_k < n_vocab, cut = p->top_p < 1 || p->min_p > 0;
    uint32_t n = limited ? (uint32_t)p->top_k : n_vocab, m = 0;
    float max = logits[ids[0]];
    double total = 0, kept = 0, running = 0;
    for (uint32_t i = 0; i < n; i++)
        total += w[i] = exp_f32((logits[ids[i]] - max) / p->temperature);
    if (!limited)
        total = cpu_ops_scalar.sum_exp(logits, n_vocab, max, p->temperature);
    while (m < n && (m == 0 || ((p->top_p >= 1 || kept < p->top_p * total) && w[m] >= p->min_p)))
        kept += w[m++];
    if (!limited && !cut)
        kept = total;
    for (uint32_t i = 0; i < m; i++) {
        running += w[i];
        if (running > rand_unit(p->seed, p->position) * kept)
            return ids[i];
    }
    return ids[m - 1];
}

/* Thousands of likely ids, ties among them: bands are dealt out into buckets. */
START_TEST(draws_equal_the_sort_exactly) {
    static const float sizes[] = {0, 0.01f, 0.5f, 2, 5};
    for (int round = 0; round < 300; round++) {
        uint32_t n = round % 4 == 0 ? V_MAX : 1 + rnd_below(&rnd, V_MAX);
        random_logits(n, sizes[round % 5]);
        for (uint32_t i = 0; round % 3 == 0 && i < n; i++)
            logits[i] = floorf(logits[i] * 8) / 8;
        struct sample_params p = plain(0.05f + 1.95f * rnd_unit(&rnd));
        p.temperature = round % 7 ? p.temperature : 1;
        p.seed = rnd_u64(&rnd);
        p.top_k = rnd_below(&rnd, 2) ? (int32_t)rnd_below(&rnd, n + 10) : 0;
        p.top_p = rnd_below(&rnd, 2) ? 0.05f + 0.95f * rnd_unit(&rnd) : 1;
        p.min_p = rnd_below(&rnd, 3) ? 0 : rnd_unit(&rnd) * 0.3f;
        for (p.position = 0; p.position < 4; p.position++)
            ck_assert_int_eq(sample(&p, true, SAMPLE_TOP_MAX).id, draw_by_sort(&p, n));
    }
}
END_TEST

START_TEST(select_finds_all) {
    static int32_t got[V_MAX];
    for (int round = 0; round < 200; round++) {
        uint32_t n = 1 + rnd_below(&rnd, 300), want = 0;
        float a = rnd_normal(&rnd), b = round % 4 ? a + rnd_unit(&rnd) : INFINITY;
        a = round % 5 ? a : -INFINITY;
        random_logits(n, 1);
        for (uint32_t i = 0; i < n; i += 1 + rnd_below(&rnd, 40))
            logits[i] = (float[]){NAN, INFINITY, -INFINITY, a, b}[rnd_below(&rnd, 5)];
        for (int which = 0; which < TWINS; which++) {
            uint32_t found = instance(which)->select(logits, n, a, b, got);
            want = 0;
            for (uint32_t i = 0; i < n; i++)
                if (logits[i] >= a && logits[i] < b && logits[i] > -INFINITY)
                    ck_assert(want < found && got[want++] == (int32_t)i);
            ck_assert_uint_eq(found, want);
        }
    }
}
END_TEST

START_TEST(draws_equal_the_full_sort) {
    static const float sizes[] = {0.01f, 1, 4, 20};
    for (int round = 0; round < 400; round++) {
        uint32_t n = round % 10 == 0 ? V_MAX : 1 + rnd_below(&rnd, 400);
        random_logits(n, sizes[rnd_below(&rnd, 4)]);
        struct sample_params p = plain(0.1f + 1.9f * rnd_unit(&rnd));
        p.seed = rnd_u64(&rnd);
        p.position = rnd_below(&rnd, 9000);
        p.top_k = rnd_below(&rnd, 2) ? (int32_t)rnd_below(&rnd, n + 10) : 0;
        p.top_p = rnd_below(&rnd, 2) ? 0.05f + 0.95f * rnd_unit(&rnd) : 1;
        p.min_p = rnd_below(&rnd, 3) ? 0 : rnd_unit(&rnd) * 0.3f;
        ck_assert_msg(drawn_rightly(&p, n, sample_id(&p)), "round %d", round);
    }
}
END_TEST

START_TEST(draw_depends_on_seed_and_position_only) {
    random_logits(1000, 1);
    struct sample_params p = plain(1);
    int different = 0;
    for (p.position = 0; p.position < 50; p.position++) {
        int32_t id = sample_id(&p);
        ck_assert_int_eq(id, sample_id(&p));
        struct sample_params other = p;
        other.seed++;
        different += sample_id(&other) != id;
    }
    ck_assert_int_gt(different, 40);
}
END_TEST

START_TEST(logprobs_and_top_list) {
    for (int round = 0; round < 50; round++) {
        uint32_t n = 1 + rnd_below(&rnd, round % 2 ? 3000 : 30);
        random_logits(n, 3);
        if (round % 3 == 0 && n > 8) /* ties in the list */
            logits[7] = logits[3] = logits[5] = 9;
        struct sample_params p = plain(0.7f);
        p.position = (uint64_t)round;
        struct sample_bias far = {.id = (int32_t)n - 1, .bias = 100};
        p.bias = &far; /* reported values are of the raw logits */
        p.n_bias = 1;
        struct sample_result r = sample(&p, true, SAMPLE_TOP_MAX);
        ck_assert_uint_eq(r.n_top, n < SAMPLE_TOP_MAX ? n : SAMPLE_TOP_MAX);
        ck_assert_int_eq(r.id, (int32_t)n - 1);
        double sum = 0, max = -1e9;
        for (uint32_t i = 0; i < n; i++)
            max = fmax(max, (double)logits[i]);
        for (uint32_t i = 0; i < n; i++)
            sum += exp((double)logits[i] - max);
        ck_assert(fabs((double)r.logprob - ((double)logits[r.id] - max - log(sum))) < 2e-6);
        ck_assert_int_eq(r.top[0].id, (int32_t)cpu_ops_scalar.argmax(logits, n));
        for (uint32_t i = 0; i < r.n_top; i++) {
            float v = logits[r.top[i].id];
            ck_assert(fabs((double)r.top[i].logprob - ((double)v - max - log(sum))) < 2e-6);
            if (i > 0) {
                float before = logits[r.top[i - 1].id];
                ck_assert(before > v || (before == v && r.top[i - 1].id < r.top[i].id));
            }
        }
        if (r.n_top == SAMPLE_TOP_MAX) { /* nobody outside of the list beats its last */
            uint32_t better = 0;
            for (uint32_t i = 0; i < n; i++)
                better += logits[i] > logits[r.top[SAMPLE_TOP_MAX - 1].id];
            ck_assert_uint_lt(better, SAMPLE_TOP_MAX);
        }
        r = sample(&p, false, 0);
        ck_assert(r.logprob == 0 && r.n_top == 0);
    }
}
END_TEST

START_TEST(scores_sum_to_one) {
    random_logits(500, 2);
    double sum = 0;
    for (int32_t id = 0; id < 500; id++) {
        struct sample_result r[2];
        memset(r, 0, sizeof r);
        for (int i = 0; i < 2; i++)
            sampler_score(&twins[i], logits, id, 3, &r[i]);
        ck_assert_mem_eq(&r[0], &r[1], sizeof r[0]);
        ck_assert(r[0].id == id && r[0].n_top == 3 && r[0].logprob <= 0);
        sum += exp((double)r[0].logprob);
    }
    ck_assert(fabs(sum - 1) < 1e-5);
}
END_TEST

START_TEST(odd_logits_do_no_harm) {
    struct sample_params p = plain(1);
    random_logits(300, 2);
    for (int way = 0; way < 4; way++) {
        for (int i = 0; i < 300; i += way < 2 ? 3 : 1)
            logits[i] = way == 0 ? NAN : way == 1 ? INFINITY : way == 2 ? NAN : -INFINITY;
        for (int i = 0; i < 8; i++) {
            p.temperature = i % 2 ? 1e-30f * (float)i : (float)i;
            p.top_k = i & 2 ? 5 : 0;
            p.top_p = i & 4 ? 0.5f : 1;
            struct sample_result r = sample(&p, true, 5);
            ck_assert(r.id >= 0 && r.id < 300);
            ck_assert(r.logprob <= 0 && r.logprob >= SAMPLER_LOGPROB_MIN);
            ck_assert_uint_eq(r.n_top, 5);
            for (uint32_t k = 0; k < 5; k++)
                ck_assert(r.top[k].logprob <= 0 && r.top[k].logprob >= SAMPLER_LOGPROB_MIN);
            if (way == 0)
                ck_assert(logits[r.id] == logits[r.id]);
        }
    }
    sampler_score(&twins[0], logits, -1, 0, &(struct sample_result){0}); /* out of range: no read */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sampler");
    TCase *c = tcase_create("all");
    printf("seed %llu\n", (unsigned long long)rnd.seed);
    tcase_set_timeout(c, 100);
    tcase_add_test(c, greedy_and_ties);
    tcase_add_test(c, bias_mask_banned);
    tcase_add_test(c, penalties);
    tcase_add_test(c, cuts_keep_the_right_ids);
    tcase_add_test(c, top_k_ties_by_id);
    tcase_add_test(c, draws_follow_the_distribution);
    tcase_add_test(c, draws_equal_the_full_sort);
    tcase_add_test(c, draws_equal_the_sort_exactly);
    tcase_add_test(c, select_finds_all);
    tcase_add_test(c, draw_depends_on_seed_and_position_only);
    tcase_add_test(c, logprobs_and_top_list);
    tcase_add_test(c, scores_sum_to_one);
    tcase_add_test(c, odd_logits_do_no_harm);
    suite_add_tcase(suite, c);
    SRunner *run = srunner_create(suite);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    for (int i = 0; i < TWINS; i++)
        mem_free(work[i]);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
