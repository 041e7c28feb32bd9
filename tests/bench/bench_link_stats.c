/* bench_link_stats.c - quantiles of arms and paired ratios with a bootstrap interval.
 *
 * Arms replay one list, so arrival i of the alone arms and of the mixed arms belong together: a
 * bootstrap sample draws arrivals, and takes all their waits from all four arms. */
#include "tests/bench/bench_link.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLES 400

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void bench_sort(double *v, size_t n) {
    qsort(v, n, sizeof(*v), compare);
}

double bench_quantile(const double *v, size_t n, double q) {
    if (n == 0)
        return 0;
    double at = (double)(n - 1) * q;
    size_t low = (size_t)at, high = low + 1 < n ? low + 1 : n - 1;
    return v[low] == v[high] ? v[low] : v[low] + (v[high] - v[low]) * (at - (double)low);
}

/* Waits of one request, ns to s; one that was not answered waits for ever, once. */
static size_t waits(const struct driver_request *r, enum bench_what what, double *out) {
    size_t n = 0;
    if (!driver_request_answered(r)) {
        out[0] = INFINITY;
        return 1;
    }
    if (what == BENCH_TTFT)
        out[n++] = (double)(r->at_ns[0] - r->sent_ns) * 1e-9;
    for (uint32_t i = 1; what == BENCH_GAP && i < r->n - r->n_prompt; i++)
        out[n++] = (double)(r->at_ns[i] - r->at_ns[i - 1]) * 1e-9;
    return n;
}

static double stat_of(double *v, size_t n, enum bench_stat stat) {
    double sum = 0;
    if (stat == BENCH_MEAN) {
        for (size_t i = 0; i < n; i++)
            sum += v[i];
        return n > 0 ? sum / (double)n : 0;
    }
    bench_sort(v, n);
    return bench_quantile(v, n, stat == BENCH_P50 ? 0.5 : 0.99);
}

static size_t most_waits(const struct arm *a) {
    size_t n = 0;
    for (uint32_t i = 0; i < a->list->n; i++)
        n += a->list->v[i].n_out;
    return n;
}

double bench_arm_stat(const struct arm *a, enum bench_what what, enum bench_stat stat) {
    size_t n = 0;
    double *v = mem_array(most_waits(a), sizeof(*v));
    if (v == NULL)
        return NAN;
    for (uint32_t i = 0; i < a->list->n; i++)
        n += waits(&a->rt[i], what, v + n);
    double s = stat_of(v, n, stat);
    mem_free(v);
    return s;
}

/* Both arms' waits of the arrivals that `draw` chooses (0 = each once). */
static double pooled(const struct arm *arms[2], enum bench_what what, enum bench_stat stat,
                     uint64_t draw, double *v) {
    size_t n = 0;
    uint32_t arrivals = arms[0]->list->n;
    for (uint32_t i = 0; i < arrivals; i++) {
        uint32_t at = draw == 0 ? i : (uint32_t)(rand_at(draw, i) % arrivals);
        for (int k = 0; k < 2; k++)
            n += waits(&arms[k]->rt[at], what, v + n);
    }
    return stat_of(v, n, stat);
}

int bench_ratio(struct bench_ratio *out, const struct arm *alone[2], const struct arm *mixed[2],
                enum bench_what what, enum bench_stat stat, uint64_t seed) {
    double ratios[SAMPLES];
    /* a sample may draw the longest arrival each time: 12 ids */
    double *v = mem_array((size_t)alone[0]->list->n * 2 * 16, sizeof(*v));
    if (v == NULL)
        return -1;
    out->alone = pooled(alone, what, stat, 0, v);
    out->mixed = pooled(mixed, what, stat, 0, v);
    out->ratio = out->mixed / out->alone;
    for (uint32_t k = 0; k < SAMPLES; k++) {
        uint64_t draw = rand_at(seed, k) | 1;
        ratios[k] = pooled(mixed, what, stat, draw, v) / pooled(alone, what, stat, draw, v);
    }
    bench_sort(ratios, SAMPLES);
    out->low = bench_quantile(ratios, SAMPLES, 0.025);
    out->high = bench_quantile(ratios, SAMPLES, 0.975);
    mem_free(v);
    return 0;
}
