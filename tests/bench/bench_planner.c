/* bench_planner - how well scheduler/step_cost foretells the next step of the CPU engine:
 *
 *   bench_planner [--json] [--csv] [--cpu] [--seed N] [--steps N] [--threads N] [--kernel NAME]
 *                 [--model MODEL.gguf]
 *
 * A mixed sequence of steps on the real engine, one model of cost learning all the while: decode
 * of 1 to 16 sequences at contexts of 16 to 6,000, prefill in chunks of 1 to 256 alone and beside
 * decodes, shapes that stay for some steps and shapes that never come again, steps parked for a
 * real-time step and continued, pauses. Each step is foretold before it runs and learned after it. Printed
 * are median and 90th percentile of |foretold - device time| / device time after WARM_UP steps:
 *   decode    every span one position, context up to 2k
 *   prefill   every span a chunk of a prompt, context up to 2k
 *   long      a span behind more than 2,048 positions (of any kind)
 *   parked    the first step after a park, or after a pause of > 5 ms (after_park: without pauses)
 * and of all steps. The fourth group is left out of the others. --csv prints every step instead. --cpu takes
 * the CPU time of the process in place of device time (one thread only): what a busy machine
 * does to the clock is no fault of the model, and no figure of merit either.
 * K and V are copies of one computed prompt: what a step costs does not depend on their bytes.
 * Without a model: the one tests use, or exit 77. Needs 1.2 GB. About 2 minutes on a quiet core.
 * Exit: 0 each of the kinds has median <= 10 % and p90 <= 25 % over >= 100 steps, 1 one has not,
 * 2 it could not be run.
 */
#include "base/hash.h"
#include "cli/engine_flags.h"
#include "scheduler/step_cost.h"
#include "tests/bench/bench_rig.h"
#include "tests/common/testpaths.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARM_UP 200
#define STEPS_MAX 100000
#define CHUNK 256
#define CONTEXT 6000
#define LONG 2048
#define SEQS 18 /* 16 decode, 2 prefill */
#define DECODES 16
#define BLOCK 16
#define TABLE ((CONTEXT + 2 * CHUNK) / BLOCK + 2)
#define SHARED 2048                  /* blocks that contexts are taken from */
#define OWN (CHUNK / BLOCK + 2)      /* blocks a sequence writes */
#define COLD_NS 5000000

#define LEAST 100
enum group { DECODE, PREFILL, LONG_CONTEXT, PARKED, AFTER_PARK, ALL, GROUPS };
static const char *const names[GROUPS] = {"decode", "prefill", "long", "parked", "after_park",
                                          "all"};

struct seq { uint32_t pos, chunk, shift; }; /* chunk: 1 = decode */

struct plan { /* of one step */
    struct engine_span spans[SEQS];
    struct engine_row rows[SEQS];
    uint32_t tables[SEQS][TABLE];
    struct step_shape shape;
    struct engine_step step;
    uint32_t longest;
    bool one, chunk; /* has spans of one position, of more */
};

static struct engine *eng;
static struct step_cost cost;
static int32_t ids[CHUNK];
static uint64_t seed = 1, draws, step_id, last_end_ns;
static uint32_t n_steps = 1300, done;
static bool csv, by_cpu, after_park;
static double *errors[GROUPS];
static int counts[GROUPS];
static double ran_ns, told_ns, off_ns;

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_planner: %s\n", what);
    exit(2);
}

static uint32_t draw(uint32_t from, uint32_t to)
{
    return from + (uint32_t)(rand_at(seed, draws++) % (to - from + 1));
}

static uint32_t draw_log(uint32_t from, uint32_t to)
{
    double u = rand_unit(seed, draws++);
    return (uint32_t)(from * pow((double)to / from, u) + 0.5);
}

static bool chance(uint32_t percent)
{
    return draw(1, 100) <= percent;
}

static uint64_t now_ns(void)
{
    return (uint64_t)(bench_now_s() * 1e9);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- a step ---- */

static void plan_span(struct plan *p, uint32_t slot, const struct seq *q, uint32_t n, bool row)
{
    uint32_t i = p->step.n_spans++, n_blocks = (q->pos + n + BLOCK - 1) / BLOCK;
    for (uint32_t b = 0; b < n_blocks; b++)
        p->tables[i][b] = b < q->pos / BLOCK ? 1 + (q->shift + b) % SHARED
                                             : 1 + SHARED + slot * OWN + b - q->pos / BLOCK;
    p->spans[i] = (struct engine_span){.seq = slot + 1, .ids = ids, .n = n, .pos = q->pos,
                                       .blocks = p->tables[i], .n_blocks = n_blocks};
    if (row) {
        struct engine_row *r = &p->rows[p->step.n_rows++];
        *r = (struct engine_row){.span = i, .index = n - 1, .kind = ENGINE_ROW_SAMPLE};
        r->params.top_p = r->params.repetition_penalty = 1;
        r->params.position = (uint64_t)q->pos + n;
    }
    step_shape_add(&p->shape, q->pos, n, row);
    p->longest = q->pos > p->longest ? q->pos : p->longest;
    p->one = p->one || n == 1;
    p->chunk = p->chunk || n > 1;
}

static void plan_begin(struct plan *p)
{
    p->step = (struct engine_step){.id = ++step_id, .spans = p->spans, .rows = p->rows};
    memset(&p->shape, 0, sizeof p->shape);
    p->longest = 0;
    p->one = p->chunk = false;
}

static void note(enum group g, double error)
{
    errors[g][counts[g]++] = error;
}

static void learn(const struct plan *p, uint64_t told, uint64_t device_ns, bool was_parked)
{
    double error = fabs((double)told - (double)device_ns) / (double)device_ns;
    if (csv)
        printf("%u,%u,%u,%llu,%llu,%d,%d,%u,%d,%llu,%llu\n", p->shape.tokens, p->shape.spans,
               p->shape.rows, (unsigned long long)p->shape.reads,
               (unsigned long long)p->shape.pairs, p->shape.cold, was_parked, p->longest,
               p->one + 2 * p->chunk, (unsigned long long)device_ns, (unsigned long long)told);
    step_cost_learn(&cost, &p->shape, device_ns);
    if (done++ < WARM_UP)
        return;
    ran_ns += (double)device_ns;
    told_ns += (double)told;
    off_ns += error * (double)device_ns;
    note(ALL, error);
    if (after_park)
        note(AFTER_PARK, error);
    if (p->shape.cold)
        note(PARKED, error);
    else if (p->longest > LONG)
        note(LONG_CONTEXT, error);
    else if (p->one != p->chunk)
        note(p->one ? DECODE : PREFILL, error);
}

/* ENGINE_STEP_END, ENGINE_STEP_PARKED; timeout_ms < 0: for as long as it takes; else maybe
 * nothing, -1. */
static int await(uint64_t id, int timeout_ms, uint64_t *device_ns)
{
    uint64_t until = now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
    for (;;) {
        struct engine_completion e;
        while (engine_poll(eng, &e, 1) == 1) {
            need(e.kind != ENGINE_DEVICE_LOST && e.status == ENGINE_STEP_OK, "a step failed");
            *device_ns = e.device_ns;
            if (e.id == id && (e.kind == ENGINE_STEP_END || e.kind == ENGINE_STEP_PARKED))
                return (int)e.kind;
        }
        int left = timeout_ms < 0 ? -1 : (int)((int64_t)(until - now_ns()) / 1000000);
        if (timeout_ms >= 0 && left <= 0)
            return -1;
        struct pollfd f = {.fd = engine_fd(eng), .events = POLLIN};
        poll(&f, 1, left);
    }
}

static void run_alone(struct plan *p, bool cold);

/* What comes in between: a short prompt, or a few decodes. */
static void run_realtime(void)
{
    static struct plan p;
    plan_begin(&p);
    if (chance(60)) {
        struct seq q = {.shift = draw(0, SHARED - 1), .pos = chance(50) ? 0 : draw(0, 400)};
        plan_span(&p, SEQS, &q, draw(8, 64), true);
    } else {
        for (uint32_t i = draw(0, 3); i < 4; i++) {
            struct seq q = {.shift = draw(0, SHARED - 1), .pos = draw_log(16, 600)};
            plan_span(&p, SEQS + i, &q, 1, true);
        }
    }
    after_park = true;
    run_alone(&p, true);
    after_park = false;
}

static void finish(struct plan *p, uint64_t told, uint64_t device_ns, bool was_parked)
{
    engine_step_release(eng, p->step.id);
    last_end_ns = now_ns();
    learn(p, told, device_ns, was_parked);
}

static void run_alone(struct plan *p, bool cold)
{
    uint64_t ns = 0;
    p->shape.cold = cold || now_ns() - last_end_ns > COLD_NS;
    uint64_t told = step_cost_ns(&cost, &p->shape), cpu = cpu_ns();
    need(engine_step_submit(eng, &p->step) == 0, "a step was refused");
    need(await(p->step.id, -1, &ns) == ENGINE_STEP_END, "no end");
    finish(p, told, by_cpu ? cpu_ns() - cpu : ns, false);
}

/* Parked somewhere, unless it ends before. A real-time step runs meanwhile. */
static void run_parked(struct plan *p)
{
    uint64_t ns = 0, told = step_cost_ns(&cost, &p->shape), cpu = cpu_ns(), between = 0;
    need(engine_step_submit(eng, &p->step) == 0, "a step was refused");
    int part = (int)(told / 1000000), kind = await(p->step.id, (int)draw(0, (uint32_t)part), &ns);
    if (kind < 0) {
        engine_step_park(eng, p->step.id);
        kind = await(p->step.id, -1, &ns);
    }
    bool parked = kind == ENGINE_STEP_PARKED;
    if (parked) {
        between = cpu_ns();
        run_realtime();
        between = cpu_ns() - between;
        need(engine_step_continue(eng, p->step.id) == 0, "not continued");
        need(await(p->step.id, -1, &ns) == ENGINE_STEP_END, "no end");
    }
    finish(p, told, by_cpu ? cpu_ns() - cpu - between : ns, parked);
}

/* ---- a sequence of steps ---- */

static struct seq seqs[SEQS];
static uint32_t n_decode, n_prefill, left;
static bool churn; /* other contexts at each step */

static void place(struct seq *q, uint32_t chunk, uint32_t most)
{
    q->chunk = chunk;
    q->shift = draw(0, SHARED - 1);
    q->pos = draw_log(16, most);
    if (chunk > 1 && chance(50))
        q->pos = 0;
}

static void new_episode(void)
{
    uint32_t kind = draw(0, 3), most = chance(40) ? 800 : CONTEXT;
    left = draw(1, 16);
    churn = chance(25);
    n_decode = kind == 1 ? 0 : draw(1, DECODES);
    n_prefill = kind == 0 ? 0 : draw(1, 2);
    for (uint32_t i = 0; i < SEQS; i++)
        place(&seqs[i], i < DECODES ? 1 : draw_log(1, CHUNK), most);
}

static void next_plan(struct plan *p)
{
    plan_begin(p);
    for (uint32_t i = 0; i < SEQS; i++) {
        struct seq *q = &seqs[i];
        if (i < DECODES ? i >= n_decode : i - DECODES >= n_prefill)
            continue;
        if (churn || q->pos + q->chunk > CONTEXT + CHUNK)
            place(q, i < DECODES ? 1 : draw_log(1, CHUNK), CONTEXT);
        plan_span(p, i, q, q->chunk, i < DECODES || chance(30));
        q->pos += q->chunk;
    }
}

static void run_all(void)
{
    static struct plan p;
    while (done < n_steps) {
        if (left-- == 0)
            new_episode();
        next_plan(&p);
        if (chance(4)) {
            struct timespec rest = {.tv_nsec = (long)draw(6, 40) * 1000000};
            nanosleep(&rest, NULL);
        }
        bool cold = now_ns() - last_end_ns > COLD_NS;
        if (!cold && chance(12) && step_cost_ns(&cost, &p.shape) > 5000000)
            run_parked(&p);
        else
            run_alone(&p, false);
    }
}

/* ---- engine, figures ---- */

static void fill_pool(uint32_t n_blocks)
{
    static struct plan p;
    struct seq q = {0};
    uint64_t ns;
    plan_begin(&p);
    plan_span(&p, 0, &q, CHUNK, true);
    need(engine_step_submit(eng, &p.step) == 0, "a step was refused");
    need(await(p.step.id, -1, &ns) == ENGINE_STEP_END, "no end");
    engine_step_release(eng, p.step.id);
    for (uint32_t i = 1; i < n_blocks; i++) {
        const void *from = engine_block_bytes(eng, p.tables[0][i % (CHUNK / BLOCK)]);
        const void *to = engine_block_bytes(eng, i);
        if (from != to)
            memcpy((void *)(uintptr_t)to, from, engine_limits(eng)->block_bytes);
    }
}

/* 1 = above the bars, or too few to say. */
static int print_group(enum group g, bool json)
{
    double median = counts[g] ? bench_quantile(errors[g], counts[g], 0.5) : 0;
    double p90 = counts[g] ? bench_quantile(errors[g], counts[g], 0.9) : 0;
    bool ok = g == ALL || (median <= 0.10 && p90 <= 0.25 && counts[g] >= LEAST);
    if (json)
        printf("\"%s\":{\"n\":%d,\"median\":%.4f,\"p90\":%.4f,\"met\":%s},", names[g], counts[g],
               median, p90, ok ? "true" : "false");
    else
        printf("%-10s %6d steps   median %5.1f %%   p90 %5.1f %%%s\n", names[g], counts[g],
               100 * median, 100 * p90,
               ok ? "" : counts[g] < LEAST ? "   too few" : "   above 10 % or 25 %");
    return !ok;
}

static int print_figures(bool json)
{
    static const char *const words[COST_FEATURES] = {"one",   "first", "spill", "rows",
                                                     "reads", "pairs", "cold",  "head"};
    printf(json ? "{\"seed\":%llu," : "seed %llu\n", (unsigned long long)seed);
    int missed = 0;
    for (enum group g = 0; g < GROUPS; g++)
        missed += print_group(g, json);
    printf(json ? "\"bias\":%.4f,\"weighted\":%.4f,\"coefficients_ns\":{"
                : "foretold / run %.3f, error of the time as a whole %.3f\n",
           json ? told_ns / ran_ns - 1 : told_ns / ran_ns, off_ns / ran_ns);
    for (int i = 0; i < COST_FEATURES; i++)
        printf(json ? "%s\"%s\":%.0f" : "%s%s %.0f", i == 0 ? "" : json ? "," : ", ", words[i],
               cost.coef[i]);
    printf(json ? "}}\n" : " ns\n");
    return missed;
}

static uint32_t number(const char *text, uint32_t low, uint32_t high)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    need(*text != 0 && *end == 0 && v >= low && v <= high, "a number is out of range");
    return (uint32_t)v;
}

static bool parse(int argc, char **argv, struct engine_config *cfg, const char **path)
{
    bool json = false;
    struct err e;
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(flag, "--json") == 0)
            json = true;
        else if (strcmp(flag, "--csv") == 0)
            csv = true;
        else if (strcmp(flag, "--cpu") == 0)
            by_cpu = true;
        else if (i++, strcmp(flag, "--seed") == 0)
            seed = number(value, 0, UINT32_MAX);
        else if (strcmp(flag, "--steps") == 0)
            n_steps = number(value, WARM_UP + 1, STEPS_MAX);
        else if (strcmp(flag, "--threads") == 0)
            cfg->n_threads = number(value, 1, ENGINE_CPUS_MAX);
        else if (strcmp(flag, "--kernel") == 0)
            need(engine_flags_kernel(&cfg->kernel, value, &e) == 0, "no such kernel");
        else if (strcmp(flag, "--model") == 0)
            *path = value;
        else
            need(false, "no such flag");
    }
    return json;
}

int main(int argc, char **argv)
{
    struct engine_config cfg = {.backend = "cpu", .n_threads = 1, .max_tokens = 1024};
    const char *path = test_model_path();
    bool json = parse(argc, argv, &cfg, &path);
    struct model m;
    struct err e;
    if (path == NULL)
        return test_skip("no model to measure");
    need(model_open(&m, path, NULL, &e) == 0, "no such model");
    cfg.model = &m;
    cfg.n_blocks = 1 + SHARED + (SEQS + 4) * OWN;
    cfg.max_spans = cfg.max_rows = SEQS + 4;
    need(engine_open(&eng, &cfg, &e) == 0, "the engine does not open");
    for (int i = 0; i < CHUNK; i++)
        ids[i] = (int32_t)(rand_at(seed, draws++) % m.hp.n_vocab);
    for (int g = 0; g < GROUPS; g++)
        need((errors[g] = calloc(n_steps + 1, sizeof **errors)) != NULL, "no memory");
    fill_pool(cfg.n_blocks);
    double start[COST_FEATURES];
    step_cost_start_cpu(start, gguf_file_bytes(m.gguf), engine_limits(eng)->block_bytes / BLOCK, cfg.n_threads);
    step_cost_init(&cost, start);
    last_end_ns = now_ns();
    run_all();
    int missed = csv ? 0 : print_figures(json);
    engine_close(&eng);
    model_close(&m);
    for (int g = 0; g < GROUPS; g++)
        free(errors[g]);
    return missed > 0;
}
