/* bench_stats.c - see bench_stats.h. */
#include "cli/bench_stats.h"
#include "base/hash.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void stats_sort(double *v, size_t n) {
    qsort(v, n, sizeof(*v), compare);
}

double stats_quantile(const double *v, size_t n, double q) {
    if (n == 0)
        return 0;
    double at = (double)(n - 1) * q;
    size_t low = (size_t)at, high = low + 1 < n ? low + 1 : n - 1;
    if (v[low] == v[high] || at == (double)low) /* two infinities make no NaN */
        return v[low];
    return v[low] + (v[high] - v[low]) * (at - (double)low);
}

void stats_of(double out[STATS_KINDS], double *v, size_t n) {
    double sum = 0;
    stats_sort(v, n);
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    out[STATS_P50] = stats_quantile(v, n, 0.5);
    out[STATS_P90] = stats_quantile(v, n, 0.9);
    out[STATS_P99] = stats_quantile(v, n, 0.99);
    out[STATS_MEAN] = n > 0 ? sum / (double)n : 0;
}

int stats_waits_init(struct stats_waits *w, uint32_t n_arrivals, uint32_t cap) {
    *w = (struct stats_waits){.n = n_arrivals, .cap = cap};
    w->v = mem_array(cap + 1, sizeof(*w->v));
    w->at = mem_array((size_t)n_arrivals + 1, sizeof(*w->at));
    if (w->v != NULL && w->at != NULL)
        return 0;
    stats_waits_deinit(w);
    return -1;
}

void stats_waits_deinit(struct stats_waits *w) {
    mem_free(w->v);
    mem_free(w->at);
    w->v = NULL;
    w->at = NULL;
}

void stats_waits_add(struct stats_waits *w, uint32_t arrival, double wait) {
    uint32_t n = w->at[w->n];
    assert(arrival < w->n && n < w->cap);
    assert(w->at[arrival + 1] == n); /* nothing of a later arrival yet */
    w->v[n] = wait;
    for (uint32_t i = arrival + 1; i <= w->n; i++)
        w->at[i] = n + 1;
}

static size_t most(const struct stats_waits *const *arms, uint32_t n_arms) {
    size_t sum = 0;
    for (uint32_t k = 0; k < n_arms; k++) {
        uint32_t longest = 0;
        for (uint32_t i = 0; i < arms[k]->n; i++)
            if (arms[k]->at[i + 1] - arms[k]->at[i] > longest)
                longest = arms[k]->at[i + 1] - arms[k]->at[i];
        sum += (size_t)longest * arms[k]->n; /* a sample may draw the longest each time */
    }
    return sum;
}

/* The waits of the arrivals that `draw` chooses (0 = each once). */
static void pooled(double out[STATS_KINDS], const struct stats_waits *const *arms, uint32_t n_arms,
                   uint64_t draw, double *v) {
    size_t n = 0;
    for (uint32_t i = 0; i < arms[0]->n; i++) {
        uint32_t at = draw == 0 ? i : (uint32_t)(rand_at(draw, i) % arms[0]->n);
        for (uint32_t k = 0; k < n_arms; k++) {
            const struct stats_waits *w = arms[k];
            uint32_t own = w->at[at + 1] - w->at[at];
            memcpy(v + n, w->v + w->at[at], own * sizeof(*v));
            n += own;
        }
    }
    stats_of(out, v, n);
}

int stats_pooled(double out[STATS_KINDS], const struct stats_waits *const *arms, uint32_t n_arms) {
    double *v = mem_array(most(arms, n_arms) + 1, sizeof(*v));
    if (v == NULL)
        return -1;
    pooled(out, arms, n_arms, 0, v);
    mem_free(v);
    return 0;
}

static void interval(struct stats_ratio *r, double *samples) {
    stats_sort(samples, STATS_SAMPLES);
    r->low = stats_quantile(samples, STATS_SAMPLES, 0.025);
    r->high = stats_quantile(samples, STATS_SAMPLES, 0.975);
}

int stats_ratios(struct stats_ratio out[STATS_KINDS], const struct stats_waits *const *alone,
                 const struct stats_waits *const *mixed, uint32_t n_arms, uint64_t seed) {
    double a[STATS_KINDS], m[STATS_KINDS];
    size_t cap = most(alone, n_arms), other = most(mixed, n_arms);
    double *v = mem_array((cap > other ? cap : other) + 1, sizeof(*v));
    double *samples = mem_array((size_t)STATS_KINDS * STATS_SAMPLES, sizeof(*samples));
    for (uint32_t s = 0; v != NULL && samples != NULL && s <= STATS_SAMPLES; s++) {
        uint64_t draw = s == 0 ? 0 : rand_at(seed, s) | 1; /* s == 0: as it was */
        pooled(a, alone, n_arms, draw, v);
        pooled(m, mixed, n_arms, draw, v);
        for (int k = 0; k < STATS_KINDS; k++)
            if (s == 0)
                out[k] = (struct stats_ratio){.alone = a[k], .mixed = m[k], .ratio = m[k] / a[k]};
            else
                samples[k * STATS_SAMPLES + (int)s - 1] = m[k] / a[k];
    }
    for (int k = 0; v != NULL && samples != NULL && k < STATS_KINDS; k++)
        interval(&out[k], samples + k * STATS_SAMPLES);
    int rc = v != NULL && samples != NULL ? 0 : -1;
    mem_free(v);
    mem_free(samples);
    return rc;
}

/* Mean of n values drawn in blocks of neighbours, round the end. */
static double drawn_mean(const double *v, uint32_t n, uint32_t block, uint64_t draw) {
    double sum = 0;
    uint32_t at = 0;
    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < n; i++, at++) {
        if (i % block == 0)
            at = (uint32_t)(rand_at(draw, i) % n);
        sum += v[at % n];
    }
    return sum / n;
}

static double plain_mean(const double *v, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i];
    return n > 0 ? sum / n : 0;
}

void stats_mean_interval(struct stats_ratio *out, const double *v, uint32_t n, uint32_t block,
                         uint64_t seed) {
    double samples[STATS_SAMPLES];
    for (uint32_t s = 0; s < STATS_SAMPLES; s++)
        samples[s] = drawn_mean(v, n, block, rand_at(seed, s));
    *out = (struct stats_ratio){.ratio = plain_mean(v, n)};
    out->mixed = out->ratio;
    interval(out, samples);
}

void stats_means_ratio(struct stats_ratio *out, const double *x, uint32_t n_x, const double *y,
                       uint32_t n_y, uint32_t block, uint64_t seed) {
    double samples[STATS_SAMPLES];
    for (uint32_t s = 0; s < STATS_SAMPLES; s++)
        samples[s] = drawn_mean(x, n_x, block, rand_at(seed, 2 * (uint64_t)s)) /
                     drawn_mean(y, n_y, block, rand_at(seed, 2 * (uint64_t)s + 1));
    *out = (struct stats_ratio){.mixed = plain_mean(x, n_x), .alone = plain_mean(y, n_y)};
    out->ratio = out->mixed / out->alone;
    interval(out, samples);
}
