/* The model of step time on made-up machines: learning counted in updates, bounds, clipping, chunks. */
#include "base/hash.h"
#include "scheduler/step_cost.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPES 64

static uint64_t seed = 1;

static uint32_t draw(uint64_t *at, uint32_t from, uint32_t to)
{
    return from + (uint32_t)(rand_at(seed, (*at)++) % (to - from + 1));
}

/* Decodes, a prompt's chunk, or both; contexts up to 6,000. */
static struct step_shape any_shape(uint64_t *at)
{
    struct step_shape s = {.cold = draw(at, 0, 9) == 0};
    uint32_t kind = draw(at, 0, 2), most = draw(at, 0, 1) == 0 ? 500 : 6000;
    for (uint32_t i = kind == 1 ? 0 : draw(at, 1, 16); i > 0; i--)
        step_shape_add(&s, draw(at, 0, most), 1, 1);
    uint32_t pos = draw(at, 0, most), n = draw(at, 1, 256), rows = draw(at, 0, 1);
    if (kind > 0)
        step_shape_add(&s, pos, n, rows);
    return s;
}

/* What a step takes on a machine with these coefficients, computed another way than step_cost does. */
static double truth(const double ns[COST_FEATURES], const struct step_shape *s)
{
    double t = ns[COST_ONE] + (s->cold ? ns[COST_COLD] : 0) + (s->rows > 0 ? ns[COST_HEAD] : 0);
    for (uint32_t i = 0; i < s->tokens; i++)
        t += i < COST_KNEE ? ns[COST_FIRST] : ns[COST_SPILL];
    return t + ns[COST_ROWS] * s->rows + ns[COST_READS] * ((double)s->reads / 1000) +
           ns[COST_PAIRS] * ((double)s->pairs / 1000);
}

static double error_of(const struct step_cost *c, const double ns[COST_FEATURES],
                       const struct step_shape *s)
{
    double t = truth(ns, s), e = (double)step_cost_ns(c, s) / t - 1;
    return e < 0 ? -e : e;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Quantile of the errors over SHAPES random shapes. */
static double error_at(const struct step_cost *c, const double ns[COST_FEATURES], int permille)
{
    double e[SHAPES];
    uint64_t at = 1000000;
    for (int i = 0; i < SHAPES; i++) {
        struct step_shape s = any_shape(&at);
        e[i] = error_of(c, ns, &s);
    }
    qsort(e, SHAPES, sizeof *e, by_size);
    return e[(SHAPES - 1) * permille / 1000];
}

static void cpu_model(struct step_cost *c, double ns[COST_FEATURES])
{
    step_cost_start_cpu(ns, 98362432, 23040, 1);
    step_cost_init(c, ns);
}

/* n steps of the machine, each with an error of up to noise_permille. */
static void run_machine(struct step_cost *c, const double ns[COST_FEATURES], int n,
                        uint32_t noise_permille, uint64_t *at)
{
    for (int i = 0; i < n; i++) {
        struct step_shape s = any_shape(at);
        uint32_t permille = 1000 - noise_permille + draw(at, 0, 2 * noise_permille);
        step_cost_learn(c, &s, (uint64_t)(truth(ns, &s) * permille / 1000));
    }
}

static void check_sound(const struct step_cost *c)
{
    for (int i = 0; i < COST_FEATURES; i++) {
        double low = c->start[i] / COST_RANGE, high = c->start[i] * COST_RANGE;
        ck_assert_msg(c->coef[i] >= low * 0.999999, "coefficient %d below its bound", i);
        if (c->start[i] > 0)
            ck_assert_msg(c->coef[i] <= high * 1.000001, "coefficient %d above its bound", i);
        ck_assert(c->coef[i] < 1e18 && c->p[i][i] > 0 && c->p[i][i] < 1e9);
        for (int j = 0; j < COST_FEATURES; j++)
            ck_assert(memcmp(&c->p[i][j], &c->p[j][i], sizeof c->p[i][j]) == 0);
    }
    ck_assert(c->error >= 0 && c->error <= COST_CLIP);
}

START_TEST(test_shape_counts)
{
    struct step_shape s = {0};
    step_shape_add(&s, 100, 0, 0);
    ck_assert_uint_eq(s.tokens + s.spans + s.reads + s.pairs, 0);
    step_shape_add(&s, 99, 1, 1);
    ck_assert_uint_eq(s.reads, 100);
    ck_assert_uint_eq(s.pairs, 100);
    step_shape_add(&s, 10, 3, 0); /* 11 + 12 + 13 keys, walked once */
    ck_assert_uint_eq(s.reads, 113);
    ck_assert_uint_eq(s.pairs, 136);
    step_shape_add(&s, 0, COST_TILE + 1, 2);
    ck_assert_uint_eq(s.reads, 113 + 2 * (COST_TILE + 1));
    ck_assert_uint_eq(s.tokens, 4 + COST_TILE + 1);
    ck_assert_uint_eq(s.spans, 3);
    ck_assert_uint_eq(s.rows, 3);
}
END_TEST

/* Cold start: docs/BENCHMARKS.md's figures within a third, before a single step was seen. */
START_TEST(test_cold_start)
{
    double ns[COST_FEATURES], two[COST_FEATURES], big[COST_FEATURES];
    struct step_cost c;
    struct step_shape one = {0}, sixteen = {0}, prompt = {0};
    cpu_model(&c, ns);
    step_shape_add(&one, 128, 1, 1);
    for (int i = 0; i < 16; i++)
        step_shape_add(&sixteen, 128, 1, 1);
    step_shape_add(&prompt, 0, 512, 1);
    ck_assert_uint_gt(step_cost_ns(&c, &one), 3400000);
    ck_assert_uint_lt(step_cost_ns(&c, &one), 6700000);
    ck_assert_uint_gt(step_cost_ns(&c, &sixteen), 14000000);
    ck_assert_uint_lt(step_cost_ns(&c, &sixteen), 28000000);
    ck_assert_uint_gt(step_cost_ns(&c, &prompt), 267000000);
    ck_assert_uint_lt(step_cost_ns(&c, &prompt), 533000000);
    step_cost_start_cpu(two, 98362432, 23040, 2);
    step_cost_start_cpu(big, 983624320, 23040, 1);
    for (int i = 0; i < COST_FEATURES; i++)
        ck_assert(ns[i] / two[i] > 1.79 && ns[i] / two[i] < 1.81);
    ck_assert(big[COST_ONE] / ns[COST_ONE] > 9.99 && big[COST_READS] / ns[COST_READS] < 1.01);
    step_cost_start_null(ns, 5000, 700);
    step_cost_init(&c, ns);
    ck_assert_uint_eq(step_cost_ns(&c, &sixteen), 5000 + 16 * 700);
    ck_assert_uint_eq(step_cost_ns(&c, &prompt), 5000 + 512 * 700);
}
END_TEST

/* Machines whose every coefficient is 1/5 to 5 times the cold start's. */
START_TEST(test_learns_a_machine)
{
    double ns[COST_FEATURES];
    for (uint64_t machine = 0; machine < 20; machine++) {
        struct step_cost c;
        uint64_t at = machine * 1000003;
        cpu_model(&c, ns);
        for (int i = 0; i < COST_FEATURES; i++) {
            uint32_t factor = draw(&at, 10, 50);
            ns[i] = draw(&at, 0, 1) == 0 ? ns[i] * factor / 10 : ns[i] / factor * 10;
        }
        run_machine(&c, ns, 100, 20, &at);
        ck_assert_msg(error_at(&c, ns, 500) < 0.10, "machine %d: median after 100 steps", (int)machine);
        run_machine(&c, ns, 300, 20, &at);
        double median = error_at(&c, ns, 500), p90 = error_at(&c, ns, 900);
        ck_assert_msg(median < 0.05 && p90 < 0.25, "machine %d: %g, %g after 400", (int)machine,
                      median, p90);
        check_sound(&c);
    }
}
END_TEST

/* From a table that knows nothing but a step and a token. */
START_TEST(test_learns_from_null)
{
    double ns[COST_FEATURES], null[COST_FEATURES];
    struct step_cost c;
    uint64_t at = 0;
    step_cost_start_cpu(ns, 98362432, 23040, 1);
    step_cost_start_null(null, 1000000, 1000000);
    step_cost_init(&c, null);
    run_machine(&c, ns, 400, 20, &at);
    ck_assert(error_at(&c, ns, 500) < 0.05);
    ck_assert(error_at(&c, ns, 900) < 0.15);
    step_cost_start_null(null, 0, 0);
    step_cost_init(&c, null);
    run_machine(&c, null, 200, 0, &at); /* steps that take no time at all */
    check_sound(&c);
    struct step_shape s = any_shape(&at);
    ck_assert_uint_eq(step_cost_ns(&c, &s), 0);
}
END_TEST

/* The machine becomes three times slower, and fast again. */
START_TEST(test_follows_speed)
{
    double ns[COST_FEATURES], slow[COST_FEATURES];
    struct step_cost c;
    uint64_t at = 0;
    cpu_model(&c, ns);
    for (int i = 0; i < COST_FEATURES; i++)
        slow[i] = 3 * ns[i];
    run_machine(&c, ns, 300, 20, &at);
    run_machine(&c, slow, 30, 20, &at);
    ck_assert(error_at(&c, slow, 500) < 0.15);
    run_machine(&c, ns, 30, 20, &at);
    ck_assert(error_at(&c, ns, 500) < 0.15);
}
END_TEST

/* A day of nothing but one shape: what it does not show is kept, and doubt about it is bounded. */
START_TEST(test_monotony)
{
    double ns[COST_FEATURES];
    struct step_cost c;
    struct step_shape one = {0}, prompt = {0};
    cpu_model(&c, ns);
    step_shape_add(&one, 128, 1, 1);
    step_shape_add(&prompt, 2000, 200, 1);
    double before = (double)step_cost_ns(&c, &prompt);
    for (int i = 0; i < 300000; i++)
        step_cost_learn(&c, &one, (uint64_t)(truth(ns, &one) * (i % 2 == 0 ? 0.97 : 1.03)));
    for (int i = 0; i < COST_FEATURES; i++)
        ck_assert_msg(c.p[i][i] < 500, "doubt %g about %d", c.p[i][i], i);
    double moved = (double)step_cost_ns(&c, &prompt) / before;
    ck_assert_msg(moved > 0.9 && moved < 1.1, "moved %g", moved);
    ck_assert(error_of(&c, ns, &one) < 0.05);
}
END_TEST

START_TEST(test_one_outlier)
{
    double ns[COST_FEATURES];
    for (uint64_t round = 0; round < 50; round++) {
        struct step_cost c, before;
        uint64_t at = round * 1000003;
        cpu_model(&c, ns);
        run_machine(&c, ns, 400, 20, &at);
        before = c;
        struct step_shape s = any_shape(&at);
        step_cost_learn(&c, &s, (uint64_t)(50 * truth(ns, &s)));
        for (int i = 0; i < SHAPES; i++) {
            struct step_shape t = any_shape(&at);
            double moved = (double)step_cost_ns(&c, &t) / (double)step_cost_ns(&before, &t);
            ck_assert_msg(moved < 1.15 && moved > 0.85, "moved %g", moved);
        }
    }
}
END_TEST

static uint64_t any_u64(uint64_t *at) /* of any length */
{
    uint64_t bits = rand_at(seed, (*at)++);
    return bits >> draw(at, 0, 63);
}

static struct step_shape garbage_shape(uint64_t *at)
{
    struct step_shape s = {.cold = draw(at, 0, 1)};
    if (draw(at, 0, 1) == 0)
        return any_shape(at);
    s.tokens = draw(at, 0, UINT32_MAX - 1);
    s.rows = draw(at, 0, UINT32_MAX - 1);
    s.reads = any_u64(at);
    s.pairs = any_u64(at);
    return s;
}

START_TEST(test_garbage)
{
    double ns[COST_FEATURES], null[COST_FEATURES];
    struct step_cost c[2];
    uint64_t at = 0;
    cpu_model(&c[0], ns);
    step_cost_start_null(null, 0, 1);
    step_cost_init(&c[1], null);
    for (int i = 0; i < 10000; i++) {
        uint64_t time_ns = any_u64(&at);
        time_ns = i % 5 == 0 ? 0 : i % 5 == 1 ? UINT64_MAX : time_ns;
        struct step_shape s = garbage_shape(&at);
        for (int k = 0; k < 2; k++) {
            step_cost_learn(&c[k], &s, time_ns);
            check_sound(&c[k]);
            ck_assert_uint_le(step_cost_ns(&c[k], &s), 1000000000000000000u);
        }
    }
    run_machine(&c[0], ns, 2000, 20, &at); /* and it is still able to learn */
    ck_assert(error_at(&c[0], ns, 500) < 0.05);
}
END_TEST

/* A copy is a model of its own, and goes the same way byte for byte. */
START_TEST(test_copies)
{
    double ns[COST_FEATURES];
    struct step_cost a, b;
    uint64_t at = 0, again;
    cpu_model(&a, ns);
    run_machine(&a, ns, 100, 100, &at);
    b = a;
    again = at;
    run_machine(&a, ns, 100, 100, &at);
    ck_assert(memcmp(&a, &b, sizeof a) != 0);
    run_machine(&b, ns, 100, 100, &again);
    ck_assert(memcmp(&a, &b, sizeof a) == 0);
    ck_assert_uint_eq(a.n, 200);
}
END_TEST

/* The same bytes on every machine and from every compiler: recorded logs are replayed elsewhere. */
START_TEST(test_same_bytes)
{
    double ns[COST_FEATURES];
    struct step_cost c;
    uint64_t at = 0, given = seed;
    seed = 1;
    cpu_model(&c, ns);
    run_machine(&c, ns, 1000, 300, &at);
    seed = given;
    uint64_t h = hash64(&c, sizeof c, 0);
    ck_assert_msg(h == 0x61682297ac3aa3e3u, "hash is 0x%016llx", (unsigned long long)h);
}
END_TEST

static uint32_t scan(const struct step_cost *c, const struct step_shape *s, uint32_t pos, uint32_t n,
                     uint64_t limit_ns)
{
    for (uint32_t k = n; k > 0; k--) {
        struct step_shape with = *s;
        step_shape_add(&with, pos, k, 1);
        if (step_cost_ns(c, &with) <= limit_ns)
            return k;
    }
    return 0;
}

START_TEST(test_chunk)
{
    double ns[COST_FEATURES];
    struct step_cost c;
    uint64_t at = 0;
    cpu_model(&c, ns);
    for (int i = 0; i < 2000; i++) {
        run_machine(&c, ns, 1, 400, &at);
        struct step_shape s = any_shape(&at);
        uint32_t pos = draw(&at, 0, 6000), n = draw(&at, 0, 300), last = 0;
        uint64_t limit_ns = step_cost_ns(&c, &s);
        for (int k = 0; k < 4; k++) { /* monotone in the limit */
            limit_ns += draw(&at, 0, 40000000);
            uint32_t got = step_cost_chunk(&c, &s, pos, n, limit_ns);
            ck_assert_uint_eq(got, scan(&c, &s, pos, n, limit_ns));
            ck_assert_uint_ge(got, last);
            last = got;
        }
        ck_assert_uint_eq(step_cost_chunk(&c, &s, pos, n, 0), 0);
        ck_assert_uint_eq(step_cost_chunk(&c, &s, pos, n, UINT64_MAX), n);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("step_cost");
    TCase *tc = tcase_create("model");
    const char *given = getenv("SLUICE_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : seed;
    printf("SLUICE_SEED=%llu\n", (unsigned long long)seed);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_shape_counts);
    tcase_add_test(tc, test_cold_start);
    tcase_add_test(tc, test_learns_a_machine);
    tcase_add_test(tc, test_learns_from_null);
    tcase_add_test(tc, test_follows_speed);
    tcase_add_test(tc, test_monotony);
    tcase_add_test(tc, test_one_outlier);
    tcase_add_test(tc, test_garbage);
    tcase_add_test(tc, test_copies);
    tcase_add_test(tc, test_same_bytes);
    tcase_add_test(tc, test_chunk);
    suite_add_tcase(s, tc);
    return test_run(s);
}
