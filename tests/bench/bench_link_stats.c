/* bench_link_stats.c - waits of the link driver's requests, for the statistics that `sluice bench
 * mixed` uses too (cli/bench_stats.h).
 *
 * Arms replay one list, so arrival i of the alone arms and of the mixed arms belong together. */
#include "tests/bench/bench_link.h"

#include "cli/bench_stats.h"

#include <math.h>

void bench_sort(double *v, size_t n) {
    stats_sort(v, n);
}

double bench_quantile(const double *v, size_t n, double q) {
    return stats_quantile(v, n, q);
}

/* Waits of one request, ns to s; one that was not answered waits for ever, once. */
static void add_waits(struct stats_waits *w, uint32_t at, const struct driver_request *r,
                      enum bench_what what) {
    if (!driver_request_answered(r)) {
        stats_waits_add(w, at, INFINITY);
        return;
    }
    if (what == BENCH_TTFT)
        stats_waits_add(w, at, (double)(r->at_ns[0] - r->sent_ns) * 1e-9);
    for (uint32_t i = 1; what == BENCH_GAP && i < r->n - r->n_prompt; i++)
        stats_waits_add(w, at, (double)(r->at_ns[i] - r->at_ns[i - 1]) * 1e-9);
}

static int waits_of(struct stats_waits *w, const struct arm *a, enum bench_what what) {
    uint32_t cap = 0;
    for (uint32_t i = 0; i < a->list->n; i++)
        cap += a->list->v[i].n_out + 1;
    if (stats_waits_init(w, a->list->n, cap) != 0)
        return -1;
    for (uint32_t i = 0; i < a->list->n; i++)
        add_waits(w, i, &a->rt[i], what);
    return 0;
}

static enum stats_kind kind_of(enum bench_stat stat) {
    return stat == BENCH_MEAN ? STATS_MEAN : stat == BENCH_P50 ? STATS_P50 : STATS_P99;
}

double bench_arm_stat(const struct arm *a, enum bench_what what, enum bench_stat stat) {
    struct stats_waits w;
    const struct stats_waits *one[1] = {&w};
    double out[STATS_KINDS];
    if (waits_of(&w, a, what) != 0)
        return NAN;
    int rc = stats_pooled(out, one, 1);
    stats_waits_deinit(&w);
    return rc == 0 ? out[kind_of(stat)] : NAN;
}

int bench_ratio(struct bench_ratio *out, const struct arm *alone[2], const struct arm *mixed[2],
                enum bench_what what, enum bench_stat stat, uint64_t seed) {
    struct stats_waits w[4] = {{0}};
    const struct stats_waits *a[2] = {&w[0], &w[1]}, *m[2] = {&w[2], &w[3]};
    struct stats_ratio r[STATS_KINDS];
    int rc = 0;
    for (int k = 0; k < 4 && rc == 0; k++)
        rc = waits_of(&w[k], k < 2 ? alone[k] : mixed[k - 2], what);
    if (rc == 0)
        rc = stats_ratios(r, a, m, 2, seed);
    for (int k = 0; k < 4; k++)
        stats_waits_deinit(&w[k]);
    if (rc != 0)
        return -1;
    const struct stats_ratio *q = &r[kind_of(stat)];
    *out = (struct bench_ratio){q->alone, q->mixed, q->ratio, q->low, q->high};
    return 0;
}
