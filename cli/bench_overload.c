/* bench_overload.c - see bench_overload.h. */
#include "cli/bench_overload.h"
#include "base/mem.h"
#include "cli/clock.h"

#include <math.h>
#include <string.h>

#define WARM_S 3.0  /* of an arm: its queue has to fill first */
#define SAMPLE_S 0.5

/* Busy time of the worker while somebody waits out a Retry-After. */
struct away {
    struct overload *v;
    double at_ms, busy_s, sum_busy_s, sum_s;
    bool was;
};

static bool is_null(const struct overload *v) {
    return strcmp(v->m.o.engine, "null") == 0;
}

static int busy_now(struct overload *v, double *s, struct err *e) {
    struct bench_counters c;
    *s = 0;
    if (!is_null(v)) {
        *s = bench_cpu_s(v->m.server.worker);
        return 0;
    }
    int rc = bench_counters_get(&c, v->m.client, e);
    if (rc == 0)
        *s = c.busy_s;
    return rc;
}

static int watch(struct arm *a, double at_s, struct err *e) {
    struct away *w = a->ctx;
    double now = clock_ms(), busy;
    (void)at_s;
    if (w->at_ms > 0 && now - w->at_ms < SAMPLE_S * 1e3)
        return 0;
    if (busy_now(w->v, &busy, e) != 0)
        return -1;
    if (w->at_ms > 0 && w->was && a->rt_away > 0) {
        w->sum_busy_s += busy - w->busy_s;
        w->sum_s += (now - w->at_ms) / 1e3;
    }
    w->was = a->rt_away > 0;
    w->at_ms = now;
    w->busy_s = busy;
    return 0;
}

static bool attained(const struct mixed_options *o, const struct arm_request *r, double *ttft_ms) {
    if (!r->answer.whole)
        return false;
    double first = answer_first_ms(&r->answer), last = answer_last_ms(&r->answer);
    *ttft_ms = first - r->call.sent_ms;
    double gap = r->answer.n_pieces > 1 ? (last - first) / (r->answer.n_pieces - 1) : 0;
    return *ttft_ms <= o->slo_ttft_ms && gap <= o->slo_gap_ms;
}

static int figures(const struct overload *v, struct overload_arm *f, const struct arm *a) {
    double until = a->from_ms + load_plan_length_s(a->plan) * 1e3, s[STATS_KINDS];
    double from = a->from_ms + WARM_S * 1e3, *waits = mem_array(a->plan->n + 1, sizeof(*waits));
    uint32_t good = 0, in_window = 0, n = 0;
    double tokens = 0;
    if (waits == NULL)
        return -1;
    for (uint32_t i = 0; i < a->plan->n; i++) {
        const struct arm_request *r = &a->rt[i];
        double ttft = INFINITY;
        bool ok = attained(&v->m.o, r, &ttft);
        f->answered += r->answer.whole;
        f->refused += r->refused > 0;
        f->returned += r->sends > 1;
        f->admitted += r->sends > 1 && r->answer.whole;
        good += ok;
        if (!r->answer.whole)
            continue;
        waits[n++] = ttft;
        double last = answer_last_ms(&r->answer);
        if (last < from || last > until)
            continue;
        in_window += ok;
        tokens += r->ask.n_in + r->ask.n_out;
    }
    stats_of(s, waits, n);
    f->ttft_p50_ms = n > 0 ? s[STATS_P50] : INFINITY;
    f->ttft_p99_ms = n > 0 ? s[STATS_P99] : INFINITY;
    f->arrivals = a->plan->n;
    f->goodput = in_window / ((until - from) / 1e3);
    f->attained = (double)good / a->plan->n;
    double batch = a->keep > 0 ? arm_batch_tokens(a, from, until, true) : 0;
    f->batch_share = batch + tokens > 0 ? batch / (batch + tokens) : 0;
    mem_free(waits);
    return 0;
}

static int one_arm(struct overload *v, struct overload_arm *f, double rate, uint64_t seed,
                   struct err *e) {
    struct load_plan plan;
    const struct mixed_options *o = &v->m.o;
    struct away w = {.v = v};
    f->offered = rate;
    if (load_plan_make(&plan, o->seed + seed, (uint32_t)(rate * o->seconds) + 1, rate, e) != 0)
        return -1;
    struct arm a = {.client = v->m.client,
                    .style = &v->m.style,
                    .plan = &plan,
                    .worker = v->m.server.worker,
                    .keep = f->batch ? o->keep : 0,
                    .batch_in = o->batch_in,
                    .batch_out = o->batch_out,
                    .warm_s = f->batch ? WARM_S : 0,
                    .seed = o->seed * 1000 + seed,
                    .length_seed = o->seed,
                    .return_once = true,
                    .watch = watch,
                    .ctx = &w,
                    .stop = o->stop};
    int rc = arm_run(&a, e);
    if (rc == 0 && figures(v, f, &a) != 0)
        rc = err_set(e, ERR_NO_MEMORY, "no memory for the figures");
    f->busy_away = w.sum_s > 0 ? w.sum_busy_s / w.sum_s : -1;
    if (rc == 0)
        mixed_progress(&v->m, "%.1f/s%s: goodput %.1f/s, %u of %u refused, %u of %u back and taken",
                       rate, f->batch ? " beside batch" : "", f->goodput, f->refused, f->arrivals,
                       f->admitted, f->returned);
    arm_deinit(&a);
    load_plan_deinit(&plan);
    return rc;
}

/* With all seats taken and more waiting: about the most it can do, requests a second. */
static int capacity(struct overload *v, double *rate, struct err *e) {
    struct arm a = {.client = v->m.client,
                    .style = &v->m.style,
                    .keep = v->m.o.seats * 2,
                    .batch_in = 24,
                    .batch_out = 8,
                    .fixed = true,
                    .warm_s = 3,
                    .seconds = 8,
                    .seed = v->m.o.seed + 77,
                    .stop = v->m.o.stop};
    int rc = arm_run(&a, e);
    if (rc == 0)
        *rate = arm_batch_tokens(&a, a.from_ms, a.to_ms, false) / 8 / arm_wall_s(&a);
    arm_deinit(&a);
    if (rc == 0 && !(*rate > 0))
        rc = err_set(e, ERR_IO, "the server answered nothing");
    return rc;
}

/* From above: the first rate whose arrivals are answered in time. */
static int find_knee(struct overload *v, struct err *e) {
    static const double shares[OVERLOAD_TRIES] = {1.0, 0.92, 0.84, 0.76, 0.68};
    double most;
    if (v->m.o.rate > 0) {
        v->knee = v->m.o.rate;
        return 0;
    }
    if (capacity(v, &most, e) != 0)
        return -1;
    mixed_progress(&v->m, "all seats taken: %.1f requests/s", most);
    for (v->n_tries = 0; v->n_tries < OVERLOAD_TRIES && v->knee == 0; v->n_tries++) {
        struct overload_arm *f = &v->tries[v->n_tries];
        if (one_arm(v, f, most * shares[v->n_tries], 10 + v->n_tries, e) != 0)
            return -1;
        if (f->attained >= 0.98 && f->refused == 0)
            v->knee = f->offered;
    }
    if (v->knee == 0)
        v->knee = most * shares[OVERLOAD_TRIES - 1];
    return 0;
}

int overload_measure(struct overload *v, struct err *e) {
    static const double plain[OVERLOAD_ARMS] = {1, 1.5, 3, 3, 1.5, 1};
    uint32_t n = v->floor ? 4 : OVERLOAD_ARMS;
    if (find_knee(v, e) != 0)
        return -1;
    mixed_progress(&v->m, "knee: %.1f requests/s; %u arms of %.0f s", v->knee, n, v->m.o.seconds);
    for (v->n_arms = 0; v->n_arms < n; v->n_arms++) {
        struct overload_arm *f = &v->arms[v->n_arms];
        f->factor = v->floor ? 1.5 : plain[v->n_arms];
        f->batch = v->floor && (v->n_arms == 1 || v->n_arms == 2);
        if (one_arm(v, f, v->knee * f->factor, 100 + v->n_arms, e) != 0)
            return -1;
    }
    return 0;
}

double overload_goodput(const struct overload *v, double factor, bool batch) {
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n_arms; i++) {
        if (v->arms[i].factor != factor || v->arms[i].batch != batch)
            continue;
        sum += v->arms[i].goodput;
        n++;
    }
    return n > 0 ? sum / n : 0;
}
