/* bench_mixed_run.c - the measurement from its first process to its last (see bench_mixed.h). */
#include "base/hash.h"
#include "cli/bench_mixed.h"
#include "cli/clock.h"
#include "config/cpulist.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define READY_MS 120e3
#define IDLE_S 3.0
#define FIRST_RATE 4.0
#define FIRST_TRY 24
#define SECOND_TRY_MOST 80
#define ALONE_KV "16384"
#define BLOCK 16

void mixed_progress(const struct mixed *m, const char *fmt, ...) {
    va_list ap;
    if (m->o.quiet)
        return;
    fprintf(stderr, "[%6.1f s] ", (clock_ms() - m->began_ms) / 1e3);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
}

/* ---- the server */

/* First core: worker; second: gateway and driver. More threads: the worker takes the first cores of
 * all. */
static void place(const struct mixed *m, char *cpus, size_t cap, bool alone) {
    struct cpulist all, worker = {{0}};
    char list[256];
    cpulist_allowed(&all);
    int first = cpulist_next(&all, 0), second = cpulist_next(&all, first + 1);
    uint32_t left = alone ? (uint32_t)cpulist_count(&all) : m->o.threads;
    cpus[0] = '\0';
    if (second < 0)
        return;
    for (int c = first; c >= 0 && left > 0; c = cpulist_next(&all, c + 1), left--)
        worker.bits[c / 64] |= 1ull << (c % 64);
    if (cpulist_format(&worker, list, sizeof(list)) == 0)
        snprintf(cpus, cap, "--cpus=gateway=%d,worker=%s", second, list);
}

static void pin_driver(void) {
    struct cpulist all, own = {{0}};
    cpulist_allowed(&all);
    int second = cpulist_next(&all, cpulist_next(&all, 0) + 1);
    if (second < 0)
        return;
    own.bits[second / 64] |= 1ull << (second % 64);
    cpulist_apply(&own, NULL);
}

int mixed_server_start(struct mixed *m, bool alone, struct err *e) {
    const char *flags[BENCH_SERVER_FLAGS_MAX + 1];
    char cpus[320], text[4][40], log[96];
    struct cpulist all;
    uint32_t n = 0;
    cpulist_allowed(&all);
    place(m, cpus, sizeof(cpus), alone);
    snprintf(text[0], sizeof(text[0]), "--threads=%d",
             alone ? cpulist_count(&all) : (int)m->o.threads);
    snprintf(text[1], sizeof(text[1]), "--max-seqs=%u", m->o.seats);
    snprintf(text[2], sizeof(text[2]), "--kv-tokens=%u", m->kv_tokens);
    snprintf(text[3], sizeof(text[3]), "--engine=%s", m->o.engine);
    for (uint32_t i = 0; alone && i < m->o.n_up_flags && n < BENCH_SERVER_FLAGS_MAX / 2; i++)
        flags[n++] = m->o.up_flags[i]; /* what changes answers (KV type, ...) holds here too */
    const char *own[] = {
        "--model", m->o.model,        text[0], text[1], alone ? "--kv-tokens=" ALONE_KV : text[2],
        text[3],   "--log-level=warn"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        flags[n++] = own[i];
    if (cpus[0] != '\0')
        flags[n++] = cpus;
    if (strcmp(m->o.engine, "null") == 0 &&
        !alone) { /* as bench_virtual: a step 4 ms, a token 0.65 ms */
        flags[n++] = "--null-step-us=4000";
        flags[n++] = "--null-token-us=650";
        flags[n++] = "--null-segments=40";
    } else if (alone) { /* what an engine costs does not change what it says */
        flags[n++] = "--null-step-us=0";
        flags[n++] = "--null-token-us=0";
    }
    if (m->sim.log[0] != '\0' && !alone) {
        snprintf(log, sizeof(log), "--event-log=%s", m->sim.log);
        flags[n++] = log;
    }
    for (uint32_t i = 0; i < m->o.n_up_flags && !alone && n < BENCH_SERVER_FLAGS_MAX; i++)
        flags[n++] = m->o.up_flags[i];
    flags[n] = NULL;
    if (bench_server_start(&m->server, flags, READY_MS, e) != 0)
        return -1;
    return http_client_create(&m->client, m->server.url, m->o.key, e);
}

void mixed_server_stop(struct mixed *m) {
    http_client_destroy(&m->client);
    bench_server_stop(&m->server);
    for (uint32_t i = 0; i < m->n_runs; i++)
        for (int k = 0; k < MIXED_ARMS; k++)
            m->runs[i].arms[k].client = NULL;
    m->kill.arm.client = NULL;
}

static int attach(struct mixed *m, struct err *e) {
    if (http_client_create(&m->client, m->o.url, m->o.key, e) != 0)
        return -1;
    if (m->o.name != NULL)
        snprintf(m->model, sizeof(m->model), "%s", m->o.name);
    else if (bench_server_model(m->client, m->model, sizeof(m->model), e) != 0)
        return -1;
    m->server.worker = m->o.worker_pid;
    m->busy_by = m->o.worker_pid > 0 ? MIXED_BUSY_CPU : MIXED_BUSY_SEEN;
    return 0;
}

/* Two thirds of what the seats' sequences fill at their ends. */
static int open_server(struct mixed *m, struct err *e) {
    if (m->o.url != NULL)
        return attach(m, e);
    m->kv_tokens = m->o.seats * (m->o.batch_in + m->o.batch_out) * 2 / 3 / BLOCK * BLOCK;
    if (mixed_server_start(m, false, e) != 0)
        return -1;
    snprintf(m->model, sizeof(m->model), "%s", m->server.model);
    m->busy_by = strcmp(m->o.engine, "null") == 0 ? MIXED_BUSY_STEPS : MIXED_BUSY_CPU;
    return 0;
}

/* ---- before the arms */

static int idle(struct mixed *m, struct err *e) {
    double from = clock_ms(), cpu = bench_cpu_s(m->server.worker);
    m->idle_busy = -1;
    if (m->server.worker == 0)
        return 0;
    while (clock_ms() < from + IDLE_S * 1e3) {
        if (m->o.stop != NULL && *m->o.stop)
            return err_set(e, ERR_CANCELLED, "interrupted");
        http_client_turn(m->client, from + IDLE_S * 1e3);
    }
    m->idle_busy = (bench_cpu_s(m->server.worker) - cpu) / ((clock_ms() - from) / 1e3);
    return 0;
}

/* What a request of the list costs, in about decodes: for what chance gave the short list. */
static double weight(const struct load_plan *p) {
    return load_plan_mean_in(p) / 6 + load_plan_mean_out(p);
}

/* The list's begin by itself: busy time a request, and so the rate that makes the busy share. */
static int try_rate(struct mixed *m, uint32_t n, double *at, struct err *e) {
    load_plan_set_rate(&m->plan, *at);
    struct load_plan p = m->plan; /* the same rows, fewer */
    p.n = n < p.n ? n : p.n;
    struct arm a = {.client = m->client,
                    .style = &m->style,
                    .plan = &p,
                    .worker = m->server.worker,
                    .seed = m->o.seed ^ 0xca1b0000u ^ n,
                    .stop = m->o.stop};
    int rc = arm_run(&a, e);
    double u = rc == 0 ? mixed_busy(m, &a) : 0;
    if (rc == 0)
        mixed_progress(m, "calibration: %u requests in %.1f s keep the worker busy %.3f", p.n,
                       arm_wall_s(&a), u);
    if (rc == 0 && u > 0.01)
        *at = p.n / arm_wall_s(&a) * m->o.target / u * (weight(&p) / weight(&m->plan));
    arm_deinit(&a);
    return rc;
}

static int calibrate(struct mixed *m, struct err *e) {
    m->plan.rate = m->plan.n / load_plan_length_s(&m->plan); /* as drawn, not as meant */
    double rate = m->o.as_recorded ? m->plan.rate : m->o.rate > 0 ? m->o.rate : FIRST_RATE;
    uint32_t second = m->o.requests / 5;
    second = second > SECOND_TRY_MOST ? SECOND_TRY_MOST : second < FIRST_TRY ? FIRST_TRY : second;
    if (!m->o.as_recorded && m->o.rate <= 0 &&
        (try_rate(m, FIRST_TRY, &rate, e) != 0 || try_rate(m, second, &rate, e) != 0))
        return -1;
    load_plan_set_rate(&m->plan, rate);
    mixed_progress(m, "%u arrivals at %.3f/s: %.0f s an arm", m->plan.n, rate,
                   load_plan_length_s(&m->plan));
    return m->o.save_trace != NULL ? load_plan_write(&m->plan, m->o.save_trace, e) : 0;
}

/* ---- the arms */

static void show(const struct mixed *m, const struct mixed_run *r, int k, const char *name) {
    const struct arm *a = &r->arms[k];
    uint32_t answered = 0;
    for (uint32_t i = 0; a->plan != NULL && i < a->plan->n; i++)
        answered += a->rt[i].answer.whole;
    char text[200];
    int n = snprintf(text, sizeof(text), "arm %s: %.1f s", name, arm_wall_s(a));
    if (a->plan != NULL)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ", %u of %u answered, busy %.3f",
                      answered, a->plan->n, mixed_busy(m, a));
    if (a->n_batch > 0)
        snprintf(text + n, sizeof(text) - (size_t)n, ", batch %.1f tokens/s",
                 arm_batch_tokens(a, a->from_ms, a->to_ms, true) / arm_wall_s(a));
    mixed_progress(m, "%s", text);
}

static int run_arms(struct mixed *m, struct mixed_run *r, uint32_t n, struct err *e) {
    static const char *const names[MIXED_ARMS] = {"B1", "A1", "M1", "M2", "A2", "B2"};
    for (int k = 0; k < MIXED_ARMS; k++) {
        bool rt = k != MIXED_B1 && k != MIXED_B2, batch = k != MIXED_A1 && k != MIXED_A2;
        r->arms[k] = (struct arm){.client = m->client,
                                  .style = &m->style,
                                  .plan = rt ? &m->plan : NULL,
                                  .worker = m->server.worker,
                                  .keep = batch ? m->o.keep : 0,
                                  .batch_in = m->o.batch_in,
                                  .batch_out = m->o.batch_out,
                                  .warm_s = batch ? m->o.warm_s : 0.5,
                                  .seconds = rt ? 0 : m->o.seconds,
                                  .seed = rand_at(m->o.seed, 100 * (uint64_t)(n + 1) + (uint64_t)k),
                                  .length_seed = m->o.seed,
                                  .stop = m->o.stop};
        if (arm_run(&r->arms[k], e) != 0)
            return -1;
        show(m, r, k, names[k]);
    }
    return mixed_figures(m, r, e);
}

static int all_runs(struct mixed *m, struct err *e) {
    for (uint32_t i = 0; i < m->o.runs; i++) {
        m->n_runs = i + 1;
        if (run_arms(m, &m->runs[i], i, e) != 0)
            return -1;
    }
    return m->o.kill ? mixed_kill_phase(m, e) : 0;
}

static int after(struct mixed *m, struct err *e) {
    if (m->o.url == NULL)
        mixed_server_stop(m);
    if ((m->o.save_trace != NULL && mixed_sim_save_trace(m, e) != 0) || mixed_simulate(m, e) != 0)
        return -1;
    for (uint32_t i = 0; i < m->n_runs; i++)
        mixed_engine_measure(m, &m->runs[i]);
    if (m->o.url == NULL && m->o.verify > 0 && mixed_server_start(m, true, e) != 0)
        return -1;
    if (mixed_verify(m, e) != 0)
        return -1;
    for (uint32_t i = 0; i < m->n_runs; i++)
        mixed_check_all(m, &m->runs[i]);
    return 0;
}

int mixed_measure(struct mixed *m, struct err *e) {
    m->began_ms = clock_ms();
    int rc = m->o.trace != NULL ? load_plan_read(&m->plan, m->o.trace, m->o.requests, e)
                                : load_plan_make(&m->plan, m->o.seed, m->o.requests, 1, e);
    if (rc != 0 || mixed_sim_prepare(m, e) != 0 || open_server(m, e) != 0)
        return -1;
    m->style = (struct ask_style){m->model, m->o.id_low, m->o.id_high, m->o.words, m->o.batch_tier};
    mixed_progress(m, "%s serves %s", m->o.url != NULL ? m->o.url : m->server.url, m->model);
    struct cpulist before;
    cpulist_allowed(&before);
    if (m->o.url == NULL)
        pin_driver();
    rc = idle(m, e) != 0 || calibrate(m, e) != 0 || all_runs(m, e) != 0;
    cpulist_apply(&before, NULL);
    rc = rc != 0 || after(m, e) != 0 ? -1 : 0;
    m->took_s = (clock_ms() - m->began_ms) / 1e3;
    mixed_server_stop(m);
    return rc;
}

void mixed_deinit(struct mixed *m) {
    for (uint32_t i = 0; i < m->n_runs; i++)
        for (int k = 0; k < MIXED_ARMS; k++)
            arm_deinit(&m->runs[i].arms[k]);
    arm_deinit(&m->kill.arm);
    mixed_server_stop(m);
    mixed_sim_cleanup(m);
    load_plan_deinit(&m->plan);
    load_plan_deinit(&m->kill_plan);
}
