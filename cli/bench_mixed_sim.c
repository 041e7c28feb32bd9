/* bench_mixed_sim.c - the same hour in the simulator: a step model from the worker's own log of this run, its arms
 * replayed by `sluice sim`'s objects, and both beside each other (see bench_mixed.h).
 *
 * What the path adds (HTTP, text, gateway, network) is a client's wait less the worker's own of the same request: the
 * n-th real-time arrival of an arm is the n-th real-time submission between its begin and end. Batch is replayed
 * at the times at which this run sent it. */
#include "base/hash.h"
#include "base/mem.h"
#include "cli/bench_mixed_report.h"
#include "cli/clock.h"
#include "cli/sim_cluster.h"
#include "cli/sim_fit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NET_NS 50000u /* a message's way on one machine; the rest of the path is drawn */

static const int replayed[4] = {MIXED_A1, MIXED_A2, MIXED_M1, MIXED_M2};

int mixed_sim_prepare(struct mixed *m, struct err *e) {
    const char *tmp = getenv("TMPDIR");
    if (!m->o.simulate && m->o.save_hardware == NULL)
        return 0;
    (void)snprintf(m->sim.log, sizeof(m->sim.log), "%s/sluice-events-XXXXXX",
                   tmp != NULL && strlen(tmp) < 32 ? tmp : "/tmp");
    int fd = mkstemp(m->sim.log);
    if (fd < 0) {
        m->sim.log[0] = '\0';
        return err_set(e, ERR_IO, "cannot make a file for the worker's log: %s", strerror(errno));
    }
    close(fd);
    return 0;
}

/* ---- the path */

static double client_wait_ms(const struct arm_request *r, int end) {
    return (end != 0 ? answer_last_ms(&r->answer) : answer_first_ms(&r->answer)) - r->first_sent_ms;
}

/* Adds the arm's waits beside the worker's; 0 = they cannot be matched. */
static uint32_t path_of(const struct arm *a, const struct sim_fit *f, double *first, double *end) {
    uint32_t n = 0, seen = 0;
    for (uint32_t i = 0; i < f->n_requests; i++) {
        const struct sim_fit_request *q = &f->requests[i];
        double at = (double)q->at_ns / 1e6;
        seen += q->rank == 0 && at >= a->from_ms && at <= a->to_ms;
    }
    if (seen != a->plan->n)
        return 0;
    seen = 0;
    for (uint32_t i = 0; i < f->n_requests; i++) {
        const struct sim_fit_request *q = &f->requests[i];
        double at = (double)q->at_ns / 1e6;
        if (q->rank != 0 || at < a->from_ms || at > a->to_ms)
            continue;
        const struct arm_request *r = &a->rt[seen++];
        if (!r->answer.whole || q->end_ns == 0)
            continue;
        first[n] = client_wait_ms(r, 0) - (double)(q->first_ns - q->at_ns) / 1e6;
        end[n++] = client_wait_ms(r, 1) - (double)(q->end_ns - q->at_ns) / 1e6;
    }
    return n;
}

static int path(struct mixed *m, struct sim_fit *f) {
    struct sim_live *l = &f->hardware.live;
    double *v[2];
    uint32_t n = 0;
    v[0] = mem_array((size_t)4 * m->plan.n + 1, sizeof(double));
    v[1] = mem_array((size_t)4 * m->plan.n + 1, sizeof(double));
    for (int k = 0; k < 4 && v[0] != NULL && v[1] != NULL; k++)
        n += path_of(&m->runs[0].arms[replayed[k]], f, v[0] + n, v[1] + n);
    for (int end = 0; end < 2 && n > 1; end++) {
        stats_sort(v[end], n);
        for (int q = 0; q < SIM_LIVE_PATH; q++) {
            double ms = stats_quantile(v[end], n, (double)q / (SIM_LIVE_PATH - 1));
            l->path_ns[end][q] = ms > 0 ? (uint64_t)(ms * 1e6) : 0;
        }
        m->sim.path_ms[end] = stats_quantile(v[end], n, 0.5);
    }
    l->has_path = n > 1;
    mem_free(v[0]);
    mem_free(v[1]);
    return n > 1 ? 0 : -1;
}

/* ---- an arm as a trace */

static int by_time(const void *a, const void *b) {
    const struct sim_trace_row *x = a, *y = b;
    return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

/* Real-time rows have copy = their index + 1 (sim_trace_read sets none); batch rows 0. */
static int arm_trace(const struct mixed *m, const struct arm *a, struct sim_trace *t) {
    double begin = a->from_ms - a->warm_s * 1e3;
    memset(t, 0, sizeof(*t));
    t->cap = a->plan->n + a->n_batch;
    t->rows = mem_array((size_t)t->cap + 1, sizeof(*t->rows));
    t->tenants = mem_array(1, sizeof(*t->tenants));
    if (t->rows == NULL || t->tenants == NULL)
        return -1;
    t->n_tenants = 1;
    t->tenants[0][0] = '-';
    for (uint32_t i = 0; i < a->plan->n; i++) {
        const struct load_row *r = &m->plan.rows[i];
        t->rows[t->n++] =
            (struct sim_trace_row){.at_ns = (uint64_t)((r->at_s + a->warm_s) * 1e9), .n_prompt = r->n_in, .n_out = r->n_out};
    }
    for (uint32_t i = 0; i < a->n_batch; i++) {
        const struct arm_request *r = a->batch[i];
        double at = r->first_sent_ms - begin;
        t->rows[t->n++] = (struct sim_trace_row){.at_ns = at > 0 ? (uint64_t)(at * 1e6) : 0,
                                                 .n_prompt = r->ask.n_in,
                                                 .n_out = r->ask.n_out,
                                                 .cls = 1};
    }
    qsort(t->rows, t->n, sizeof(*t->rows), by_time);
    return 0;
}

int mixed_sim_save_trace(const struct mixed *m, struct err *e) {
    struct sim_trace t;
    int rc = arm_trace(m, &m->runs[0].arms[MIXED_M1], &t);
    FILE *f = rc == 0 ? fopen(m->o.save_trace, "we") : NULL;
    if (f != NULL) {
        fprintf(f, "arrival_ms,input_tokens,output_tokens,class,tenant,session,block_tokens,prefix_ids\n");
        for (uint32_t i = 0; i < t.n; i++)
            fprintf(f, "%.6f,%u,%u,%s,,,0,\n", (double)t.rows[i].at_ns / 1e6, t.rows[i].n_prompt,
                    t.rows[i].n_out, t.rows[i].cls == 0 ? "realtime" : "batch");
        rc = ferror(f) != 0 ? -1 : 0;
        rc = fclose(f) != 0 ? -1 : rc;
    }
    sim_trace_free(&t);
    return f != NULL && rc == 0 ? 0 : err_set(e, ERR_IO, "cannot write %s", m->o.save_trace);
}

/* ---- the comparison */

/* Real-time waits of a simulated arm, ms: [0] first token, [1] end. */
static uint32_t waits(const struct sim_meter *s, const struct sim_trace *t, double *v[2]) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct sim_request_seen *q = &s->seen[i];
        if (t->rows[i].cls != 0)
            continue;
        bool came = q->done_ns != 0 && q->done_ns != UINT64_MAX;
        v[0][n] = came ? (double)(q->first_ns - t->rows[i].at_ns) / 1e6 : INFINITY;
        v[1][n++] = came ? (double)(q->done_ns - t->rows[i].at_ns) / 1e6 : INFINITY;
    }
    return n;
}

static int replay(struct mixed *m, const struct sim_hardware *h, int k, double *v[2], struct err *e) {
    struct sim_plan p = {.hardware = h, .workers = 1, .queue = 65536, .net_ns = NET_NS, .runs = true};
    struct sim_totals totals;
    struct sim_meter meter;
    struct sim_trace t;
    class_table_default(&p.classes);
    p.seed = (uint32_t)(rand_at(m->o.seed, (uint64_t)k) | 1u);
    int rc = arm_trace(m, &m->runs[0].arms[replayed[k]], &t);
    if (rc == 0 && sim_meter_init(&meter, &t, &p.classes) == 0) {
        rc = sim_cluster_run(&p, &t, &meter, &totals, e);
        if (rc == 0)
            waits(&meter, &t, v);
        sim_meter_deinit(&meter);
    } else {
        rc = err_set(e, ERR_NO_MEMORY, "no memory to simulate");
    }
    sim_trace_free(&t);
    return rc;
}

/* Of one arm (n) or two behind each other (2 n), sorted by it. */
static void figure(double out[MIXED_SIM_QUANTILES], double *v, uint32_t n) {
    stats_sort(v, n);
    out[0] = stats_quantile(v, n, 0.5);
    out[1] = stats_quantile(v, n, 0.9);
    out[2] = stats_quantile(v, n, 0.99);
}

static void compare(struct mixed *m, double *live, double *sim, int side, int end) {
    struct mixed_sim_row *row = &m->sim.rows[side][end];
    uint32_t n = m->plan.n;
    double one[2][MIXED_SIM_QUANTILES];
    figure(one[0], live, n);
    figure(one[1], live + n, n);
    for (int q = 0; q < MIXED_SIM_QUANTILES; q++)
        row->spread[q] = fabs(one[0][q] - one[1][q]) / fmin(one[0][q], one[1][q]);
    figure(row->live, live, 2 * n);
    figure(row->sim, sim, 2 * n);
}

static int compare_all(struct mixed *m, const struct sim_hardware *h, struct err *e) {
    uint32_t n = m->plan.n;
    double *v = mem_array((size_t)8 * n, sizeof(*v)); /* [live, sim][first, end][2 arms] */
    int rc = v != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory to simulate");
    for (int side = 0; side < 2 && rc == 0; side++) {
        for (int k = 0; k < 2 && rc == 0; k++) {
            const struct arm *a = &m->runs[0].arms[replayed[2 * side + k]];
            double *sim[2] = {v + 4 * (size_t)n + (size_t)k * n, v + 6 * (size_t)n + (size_t)k * n};
            for (int end = 0; end < 2; end++)
                for (uint32_t i = 0; i < n; i++)
                    v[((size_t)end * 2 + (size_t)k) * n + i] =
                        a->rt[i].answer.whole ? client_wait_ms(&a->rt[i], end) : INFINITY;
            rc = replay(m, h, 2 * side + k, sim, e);
        }
        for (int end = 0; end < 2 && rc == 0; end++)
            compare(m, v + (size_t)end * 2 * n, v + (4 + (size_t)end * 2) * n, side, end);
    }
    mem_free(v);
    return rc;
}

int mixed_simulate(struct mixed *m, struct err *e) {
    struct sim_fit *f = mem_zalloc(sizeof(*f));
    if (m->sim.log[0] == '\0' || f == NULL) {
        mem_free(f);
        return 0;
    }
    int rc = sim_fit_read(f, m->sim.log, e);
    if (rc == 0 && path(m, f) != 0)
        rc = err_set(e, ERR_INTERNAL, "arrivals and the worker's submissions do not match");
    if (rc == 0 && m->o.save_hardware != NULL)
        rc = sim_hardware_write(&f->hardware, m->o.save_hardware, e);
    if (rc == 0 && m->o.simulate)
        rc = compare_all(m, &f->hardware, e);
    m->sim.n_steps = f->n_steps;
    m->sim.error = f->error;
    m->sim.done = rc == 0 && m->o.simulate;
    sim_fit_deinit(f);
    mem_free(f);
    return rc;
}

void mixed_sim_cleanup(struct mixed *m) {
    if (m->sim.log[0] != '\0')
        unlink(m->sim.log);
    m->sim.log[0] = '\0';
}

/* ---- reports */

static const char *const sides[2] = {"alone", "mixed"}, *const whats[2] = {"TTFT", "finish"};
static const char *const quantiles[MIXED_SIM_QUANTILES] = {"p50", "p90", "p99"};

void mixed_sim_table(const struct mixed *m, FILE *f) {
    fprintf(f,
            "\nthe simulator on the same arrivals (model from %u steps of this worker, mean error %.1f %%; path to "
            "the client %.2f ms at the first token)\n%-18s %10s %10s %8s %14s\n",
            m->sim.n_steps, 100 * m->sim.error, m->sim.path_ms[0], "", "live ms", "sim ms", "sim/live",
            "live arms apart");
    for (int side = 0; side < 2; side++)
        for (int end = 0; end < 2; end++)
            for (int q = 0; q < MIXED_SIM_QUANTILES; q++) {
                const struct mixed_sim_row *r = &m->sim.rows[side][end];
                fprintf(f, "%-5s %-6s %-5s %10.2f %10.2f %8.3f %13.1f%%\n", sides[side], whats[end],
                        quantiles[q], r->live[q], r->sim[q], r->sim[q] / r->live[q], 100 * r->spread[q]);
            }
}

json_t *mixed_sim_json(const struct mixed *m) {
    json_t *j = json_pack("{s:i,s:f,s:f,s:f}", "steps", (int)m->sim.n_steps, "mean_error", m->sim.error,
                          "path_first_ms", m->sim.path_ms[0], "path_end_ms", m->sim.path_ms[1]);
    for (int side = 0; side < 2; side++)
        for (int end = 0; end < 2; end++) {
            const struct mixed_sim_row *r = &m->sim.rows[side][end];
            char name[32];
            json_t *o = json_object();
            (void)snprintf(name, sizeof(name), "%s_%s", sides[side], whats[end]);
            for (int q = 0; q < MIXED_SIM_QUANTILES; q++)
                json_object_set_new(o, quantiles[q],
                                    json_pack("{s:o,s:o,s:o}", "live_ms", json_real(r->live[q]), "sim_ms",
                                              json_real(r->sim[q]), "live_arms_apart",
                                              json_real(r->spread[q])));
            json_object_set_new(j, name, o);
        }
    return j;
}
