/* bench_link_isolation.c - DESIGN section 8 at the link, without HTTP: arms B A M M A B on one
 * worker, then every real-time answer of the mixed arms, and a sample of the batch, against the
 * same request alone on a fresh worker.
 *
 * 400 requests an arm by default, not the 2,000 of DESIGN: a run is 8 minutes instead of 25. The
 * intervals say what that leaves open, `--requests 2000` is the letter. Batch steps are sized by
 * `--batch-interference 2`, as in bench_virtual (a later --worker flag wins): what 5 % allows is
 * all the bar leaves. Batch lengths are one list for all arms, so that harvest compares like work.
 *
 * The ledger comes from the event log of a second worker, for the log takes CPU time: the first
 * arrivals of the list once more, alone and mixed; of the time that real-time sequences spend in the
 * worker, how much has a lower step on the device. U is the worker's CPU time; against it stands
 * what the engine alone takes for the steps of that alone arm (positions of steps with a prompt in
 * them at the prefill rate, decode steps by their width at the decode rates). */
#include "tests/bench/bench_link.h"
#include "tests/bench/bench_link_log.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { B1, A1, M1, M2, A2, B2, ARMS };
static const char *const arm_names[ARMS] = {"B1", "A1", "M1", "M2", "A2", "B2"};

struct isolation {
    struct bench_options o;
    struct bench_report *r;
    struct link_driver d;
    struct arrivals list;
    struct arm arms[ARMS];
    double rate, u;
    struct log_window ledger[2]; /* alone, mixed */
    char log[4300];
};

#define LEDGER_REQUESTS 120

static void sizes(struct bench_options *o) {
    o->requests = o->requests != 0 ? o->requests : o->quick ? 40 : 400;
    o->seats = o->seats != 0 ? o->seats : 16;
    o->batch_in = o->batch_in != 0 ? o->batch_in : 160;
    o->batch_out = o->batch_out != 0 ? o->batch_out : 160;
    o->prefill_chunk = o->prefill_chunk != 0 ? o->prefill_chunk : 128;
    o->seconds = o->seconds > 0 ? o->seconds : o->quick ? 6 : 36;
    o->warm_s = o->warm_s > 0 ? o->warm_s : o->quick ? 3 : 6;
    /* two thirds of what the seats' sequences fill at their ends */
    uint32_t full = o->seats * (o->batch_in + o->batch_out);
    o->kv_tokens = o->kv_tokens != 0 ? o->kv_tokens : full * 2 / 3 / 16 * 16;
    if (o->quick)
        o->verify = o->verify < 10 ? o->verify : 10;
}

static struct driver_config worker_of(const struct isolation *s) {
    struct driver_config c = bench_worker(&s->o);
    bench_first_flag(&c, "--batch-interference=2");
    bench_host_tier(&s->o, &c);
    return c;
}

static double busy(const struct isolation *s, const struct arm *a) {
    return s->o.null_engine ? a->busy : a->cpu_s / a->wall_s; /* null sleeps through its steps */
}

/* A short list by itself; its U tells by how much the rate must change. */
static int try_rate(struct isolation *s, uint32_t n, struct err *e) {
    struct arrivals list;
    struct arm a = {.d = &s->d, .list = &list, .seed = s->o.seed ^ 0xca1b0000u ^ n};
    if (arrivals_make(&list, s->o.seed ^ 0xca11u, n, s->rate) != 0)
        return err_set(e, ERR_NO_MEMORY, "no memory");
    int rc = arm_run(&a, e);
    double u = rc == 0 ? busy(s, &a) : 0;
    double wanted = (double)n / s->rate; /* the list's own length: chance taken out */
    if (rc == 0 && u > 0.01)
        s->rate *= s->o.target / u * (wanted / a.wall_s);
    for (uint32_t i = 0; i < list.n; i++)
        s->d.by_counter[a.rt[i].sub.counter - 1] = NULL;
    arm_free(&a);
    arrivals_free(&list);
    return rc;
}

static int calibrate(struct isolation *s, struct err *e) {
    s->rate = s->o.rate > 0 ? s->o.rate : 4;
    if (s->o.rate > 0)
        return 0;
    return try_rate(s, 16, e) != 0 || try_rate(s, s->o.quick ? 40 : 80, e) != 0 ? -1 : 0;
}

static int run_arm(struct isolation *s, int k, struct err *e) {
    struct arm *a = &s->arms[k];
    bool rt = k != B1 && k != B2, batch = k != A1 && k != A2;
    *a = (struct arm){.d = &s->d,
                      .list = rt ? &s->list : NULL,
                      .keep = batch ? 4 * s->o.seats + 4 : 0,
                      .batch_in = s->o.batch_in,
                      .batch_out = s->o.batch_out,
                      .warm_s = batch ? s->o.warm_s : 0.5,
                      .seconds = rt ? 0 : s->o.seconds,
                      .seed = rand_at(s->o.seed, 100 + (uint64_t)k),
                      .length_seed = s->o.seed};
    if (arm_run(a, e) != 0)
        return -1;
    char name[64];
    snprintf(name, sizeof(name), "%s_%s", arm_names[k], rt ? "ttft_p99_ms" : "batch_tok_s");
    bench_figure(s->r, name,
                 rt ? bench_arm_stat(a, BENCH_TTFT, BENCH_P99) * 1e3 : arm_batch_rate(a, true));
    snprintf(name, sizeof(name), "%s_busy", arm_names[k]);
    bench_figure(s->r, name, busy(s, a));
    /* of link, loop and copies; too small where others took the core during steps */
    snprintf(name, sizeof(name), "%s_cpu_beside_steps", arm_names[k]);
    if (!s->o.null_engine)
        bench_figure(s->r, name, a->cpu_s / a->wall_s - a->busy);
    return 0;
}

static void latencies(struct isolation *s) {
    static const struct {
        const char *name;
        enum bench_what what;
        enum bench_stat stat;
    } rows[] = {{"ttft_p50", BENCH_TTFT, BENCH_P50}, {"ttft_mean", BENCH_TTFT, BENCH_MEAN},
                {"ttft_p99", BENCH_TTFT, BENCH_P99}, {"gap_p50", BENCH_GAP, BENCH_P50},
                {"gap_mean", BENCH_GAP, BENCH_MEAN}, {"gap_p99", BENCH_GAP, BENCH_P99}};
    const struct arm *alone[] = {&s->arms[A1], &s->arms[A2]};
    const struct arm *mixed[] = {&s->arms[M1], &s->arms[M2]};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bench_ratio q;
        char name[64];
        if (bench_ratio(&q, alone, mixed, rows[i].what, rows[i].stat, s->o.seed + i) != 0)
            q = (struct bench_ratio){.ratio = NAN};
        snprintf(name, sizeof(name), "%s_mixed_over_alone", rows[i].name);
        bench_verdict(s->r, name, q.ratio, s->o.null_engine ? 1.02 : 1.05, true);
        const double v[] = {q.low, q.high, q.alone * 1e3, q.mixed * 1e3};
        static const char *const parts[] = {"low", "high", "alone_ms", "mixed_ms"};
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof(name), "%s_%s", rows[i].name, parts[k]);
            bench_figure(s->r, name, v[k]);
        }
    }
}

static double both(const struct arm *a, const struct arm *b, bool prompts) {
    return (arm_batch_rate(a, prompts) * a->wall_s + arm_batch_rate(b, prompts) * b->wall_s)
           / (a->wall_s + b->wall_s);
}

static void harvest(struct isolation *s) {
    const struct arm *a = s->arms;
    double u = s->o.null_engine
                   ? (a[A1].busy * a[A1].wall_s + a[A2].busy * a[A2].wall_s)
                         / (a[A1].wall_s + a[A2].wall_s)
                   : (a[A1].cpu_s + a[A2].cpu_s) / (a[A1].wall_s + a[A2].wall_s);
    s->u = u;
    bench_figure(s->r, "U", u);
    if (u < 0.30 || u > 0.50)
        bench_void(s->r, "U is not within 0.30 .. 0.50");
    for (int prompts = 1; prompts >= 0; prompts--) {
        double alone = both(&a[B1], &a[B2], prompts), mixed = both(&a[M1], &a[M2], prompts);
        if (prompts)
            bench_verdict(s->r, "harvest", mixed / (alone * (1 - u)),
                          s->o.null_engine ? 0.98 : 0.95, false);
        else
            bench_figure(s->r, "harvest_output_only", mixed / (alone * (1 - u)));
        bench_figure(s->r, prompts ? "batch_alone_tok_s" : "batch_alone_out_tok_s", alone);
        bench_figure(s->r, prompts ? "batch_mixed_tok_s" : "batch_mixed_out_tok_s", mixed);
    }
}

/* The two halves of the run, each by itself: how far to believe the whole. */
static void harvest_halves(struct isolation *s) {
    static const int halves[2][3] = {{B1, A1, M1}, {B2, A2, M2}};
    for (int k = 0; k < 2; k++) {
        const struct arm *b = &s->arms[halves[k][0]], *m = &s->arms[halves[k][2]];
        double u = busy(s, &s->arms[halves[k][1]]);
        bench_figure(s->r, k == 0 ? "harvest_B1_A1_M1" : "harvest_B2_A2_M2",
                     arm_batch_rate(m, true) / (arm_batch_rate(b, true) * (1 - u)));
    }
}

static void validity(struct isolation *s) {
    double p = bench_arm_stat(&s->arms[A1], BENCH_TTFT, BENCH_P99);
    double q = bench_arm_stat(&s->arms[A2], BENCH_TTFT, BENCH_P99);
    double late = 0;
    uint32_t shortest = UINT32_MAX;
    for (int k = 0; k < ARMS; k++) {
        const struct arm *a = &s->arms[k];
        late = a->late_p99_s > late ? a->late_p99_s : late;
        if (a->keep != 0 && a->shortest < shortest)
            shortest = a->shortest;
    }
    bench_figure(s->r, "A_arms_ttft_p99_apart", fabs(p / q - 1));
    if (!(fabs(p / q - 1) <= 0.05))
        bench_void(s->r, "the A arms' p99 are more than 5 % apart");
    bench_figure(s->r, "driver_late_p99_ms", late * 1e3);
    /* 3 x the seats wait at the worker, the driver has any number more; a slow moment of the driver
     * may take a part of them */
    bench_figure(s->r, "shortest_backlog_over_seats", (double)shortest / s->o.seats - 1);
    if (shortest < 3 * s->o.seats)
        bench_void(s->r, "the backlog at the worker fell below 2 x the seats");
    double all = 0, handed = (double)s->d.handed_back;
    for (int k = A1; k <= A2; k++)
        for (uint32_t i = 0; i < s->list.n; i++)
            all += !driver_request_answered(&s->arms[k].rt[i]);
    bench_figure(s->r, "realtime_unanswered", all);
    bench_figure(s->r, "handed_back", handed);
    bench_figure(s->r, "ids_changed", (double)s->d.changed);
}

/* What the engine alone takes for the upper steps of a window. */
static double engine_cost_s(const struct log_window *w, double prefill, const double decode[4]) {
    double s = (double)w->prefill_tokens / prefill;
    for (uint32_t k = 1; k <= LOG_WIDTHS; k++) {
        int at = k < 2 ? 0 : k < 4 ? 1 : 2; /* measured: widths 1, 2, 4, 8; straight between */
        double low = 1 << at, t0 = low / decode[at], t1 = 2 * low / decode[at + 1];
        s += w->decode_steps[k] * (t0 + (t1 - t0) * (k - low) / low);
    }
    return s;
}

/* Neither half of the comparison may be handicapped: alone, real-time and batch must be what the
 * engine can do. The batch's seats are those the pool let it use. */
static void against_engine(struct isolation *s) {
    static const uint32_t widths[] = {1, 2, 4, 8};
    const struct arm *a = s->arms;
    double in, rates[4], prefill, many, n_in = s->o.batch_in, n_out = s->o.batch_out;
    uint32_t seats = (uint32_t)((a[B1].seats_used + a[B2].seats_used) / 2 + 0.5);
    seats = seats > 0 ? seats : 1;
    if (s->o.null_engine)
        return;
    if (bench_engine_rates(&s->o, 24, 32, widths, 4, &in, rates) != 0
        || bench_engine_rates(&s->o, s->o.batch_in, s->o.batch_in + s->o.batch_out / 2, &seats, 1,
                              &prefill, &many)
               != 0) {
        bench_void(s->r, "`sluice bench engine` could not be run beside it");
        return;
    }
    const struct arm *alone[] = {&a[A1], &a[A2]};
    struct bench_ratio q = {0};
    bench_ratio(&q, alone, alone, BENCH_TTFT, BENCH_P50, 1);
    double ttft = q.alone / (24 / in + 1 / rates[0]);
    double batch = both(&a[B1], &a[B2], true) * (n_in / prefill + n_out / many) / (n_in + n_out);
    bench_figure(s->r, "batch_seats_used", seats);
    bench_figure(s->r, "alone_ttft_p50_over_engine", ttft);
    bench_figure(s->r, "batch_alone_over_engine", batch);
    if (!(ttft <= 1.15) || !(batch >= 0.95))
        bench_void(s->r, "real-time or batch alone is slower than the engine by itself");
    double each = engine_cost_s(&s->ledger[0], in, rates) / s->ledger[0].requests;
    double u = each * 2 * s->list.n / (a[A1].wall_s + a[A2].wall_s);
    bench_figure(s->r, "U_by_engine_bench", u);
    bench_figure(s->r, "U_over_engine_bench", s->u / u);
    if (!(fabs(s->u / u - 1) <= 0.10))
        bench_void(s->r, "U and the engine bench's cost of the same steps are over 10 % apart");
}

/* An arm of the second worker. */
static int ledger_arm(struct isolation *s, int mixed, const struct arrivals *list, struct err *e) {
    struct arm a = {.d = &s->d,
                    .list = list,
                    .keep = mixed ? 4 * s->o.seats + 4 : 0,
                    .batch_in = s->o.batch_in,
                    .batch_out = s->o.batch_out,
                    .warm_s = mixed ? s->o.warm_s : 0.5,
                    .seed = rand_at(s->o.seed, 200 + (uint64_t)mixed),
                    .length_seed = s->o.seed};
    int rc = arm_run(&a, e);
    s->ledger[mixed] = (struct log_window){.from_ns = a.from_ns, .to_ns = a.to_ns};
    for (uint64_t i = 0; i < s->d.counter; i++)
        s->d.by_counter[i] = NULL; /* they are freed before the driver */
    arm_free(&a);
    return rc;
}

/* "Waited for batch". */
static int ledger(struct isolation *s, struct err *e) {
    struct link_log l = {0};
    struct driver_config c = worker_of(s);
    struct arrivals list = s->list;
    list.n = list.n < LEDGER_REQUESTS ? list.n : LEDGER_REQUESTS;
    c.event_log = s->log;
    int rc = driver_open(&s->d, &c, e);
    for (int mixed = 0; rc == 0 && mixed < 2; mixed++)
        rc = ledger_arm(s, mixed, &list, e);
    driver_close(&s->d); /* the log is whole after this */
    if (rc == 0)
        rc = link_log_read(&l, s->log, s->ledger, 2, e);
    if (s->o.log == NULL)
        unlink(s->log);
    if (rc != 0)
        return -1;
    const struct log_window *alone = &s->ledger[0], *mixed = &s->ledger[1];
    bench_figure(s->r, "ledger_requests", mixed->requests);
    bench_verdict(s->r, "waited_for_batch_share", mixed->behind_s / mixed->latency_s, 0.02, true);
    bench_figure(s->r, "waited_for_batch_ms_a_request", 1e3 * mixed->behind_s / mixed->requests);
    bench_figure(s->r, "realtime_device_s_mixed_over_alone", mixed->rank_s[0] / alone->rank_s[0]);
    if (l.dropped > 0 || mixed->requests < list.n || alone->requests < list.n)
        bench_void(s->r, "the event log lost records");
    link_log_free(&l);
    return 0;
}

static void counts(struct isolation *s) {
    double n[4] = {0};
    for (int k = M1; k <= M2; k++) {
        const struct msg_status *x = &s->arms[k].status[0], *y = &s->arms[k].status[1];
        n[0] += (double)(y->parks - x->parks);
        n[1] += (double)(y->drops - x->drops);
        n[2] += (double)(y->preemptions - x->preemptions);
        n[3] += arm_tax(&s->arms[k]) / 2;
    }
    bench_figure(s->r, "mixed_parks", n[0]);
    bench_figure(s->r, "mixed_drops", n[1]);
    bench_figure(s->r, "mixed_preemptions", n[2]);
    bench_figure(s->r, "mixed_recomputed_over_useful", n[3]);
    double alone = (arm_tax(&s->arms[B1]) + arm_tax(&s->arms[B2])) / 2;
    bench_figure(s->r, "batch_alone_recomputed_over_useful", alone);
}

static int compare_some(struct isolation *s, struct link_driver *fresh, const struct arm *a,
                        uint32_t same[2], uint32_t n[2], struct err *e) {
    for (uint32_t i = 0; i < s->list.n; i++) {
        int rc = alone_compare(fresh, &a->rt[i], e);
        if (rc < 0)
            return -1;
        same[0] += (uint32_t)rc;
        n[0]++;
    }
    for (uint32_t i = 0; a->n_batch > 0 && i < s->o.verify / 2; i++) {
        int rc = alone_compare(fresh, a->batch[rand_at(a->seed ^ 0xc0ffeeu, i) % a->n_batch], e);
        if (rc < 0)
            return -1;
        same[1] += (uint32_t)rc;
        n[1]++;
    }
    return 0;
}

/* On a fresh worker with room for everything and one sequence at a time. */
static int exactness(struct isolation *s, struct err *e) {
    static struct link_driver fresh;
    struct driver_config c = bench_worker(&s->o);
    uint32_t same[2] = {0}, n[2] = {0};
    c.kv_tokens = 16384;
    c.threads = 2; /* the driver waits anyway; bytes do not depend on it */
    c.worker_core = c.driver_core = -1;
    int rc = driver_open(&fresh, &c, e);
    for (int k = M1; rc == 0 && k <= M2; k++)
        rc = compare_some(s, &fresh, &s->arms[k], same, n, e);
    driver_close(&fresh);
    if (rc != 0)
        return -1;
    bench_figure(s->r, "realtime_compared", n[0]);
    bench_verdict(s->r, "realtime_identical_share", (double)same[0] / n[0], 1, false);
    bench_figure(s->r, "batch_compared", n[1]);
    bench_verdict(s->r, "batch_identical_share", n[1] > 0 ? (double)same[1] / n[1] : 1, 1, false);
    return 0;
}

/* An idle worker takes at most 2 %. */
static int idle(struct isolation *s, struct err *e) {
    double cpu = driver_cpu_s(&s->d), seconds = s->o.quick ? 2 : 5;
    uint64_t until = driver_clock_ns() + (uint64_t)(seconds * 1e9);
    while (driver_clock_ns() < until)
        if (driver_turn(&s->d, until, e) != 0)
            return -1;
    bench_verdict(s->r, "idle_worker_busy", (driver_cpu_s(&s->d) - cpu) / seconds, 0.02, true);
    return 0;
}

static int measure(struct isolation *s, struct err *e) {
    struct driver_config c = worker_of(s);
    if (driver_open(&s->d, &c, e) != 0 || idle(s, e) != 0 || calibrate(s, e) != 0)
        return -1;
    bench_figure(s->r, "rate_per_s", s->rate);
    bench_figure(s->r, "kv_tokens", s->o.kv_tokens);
    if (arrivals_make(&s->list, s->o.seed, s->o.requests, s->rate) != 0)
        return err_set(e, ERR_NO_MEMORY, "no memory");
    for (int k = 0; k < ARMS; k++)
        if (run_arm(s, k, e) != 0)
            return -1;
    return 0;
}

int bench_isolation(const struct bench_options *o, struct bench_report *r, struct err *e) {
    struct isolation *s = mem_zalloc(sizeof(*s));
    if (s == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory");
    s->o = *o;
    s->r = r;
    sizes(&s->o);
    if (o->log != NULL)
        snprintf(s->log, sizeof(s->log), "%s", o->log);
    else
        snprintf(s->log, sizeof(s->log), "/tmp/bench_link.%d.jsonl", (int)getpid());
    int rc = measure(s, e);
    if (rc == 0) {
        latencies(s);
        harvest(s);
        harvest_halves(s);
        validity(s);
        counts(s);
    }
    driver_close(&s->d);
    if (rc == 0)
        rc = ledger(s, e);
    if (rc == 0)
        against_engine(s);
    if (rc == 0)
        rc = exactness(s, e);
    for (int k = 0; k < ARMS; k++)
        arm_free(&s->arms[k]);
    arrivals_free(&s->list);
    mem_free(s);
    return rc;
}
