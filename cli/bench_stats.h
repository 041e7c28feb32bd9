/* bench_stats.h - quantiles of waits, and mixed / alone of paired arms with a bootstrap interval.
 *
 * Arms that are compared replay one list of arrivals, so arrival i of the alone arms and of the
 * mixed arms belong together: a bootstrap sample draws arrivals with replacement and takes all
 * waits of each from all arms. INFINITY is a wait like others (a request without an answer). Pure:
 * draws are a function of the seed. Failure: -1 = no memory.
 */
#ifndef SLUICE_CLI_BENCH_STATS_H
#define SLUICE_CLI_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

#define STATS_SAMPLES 400

enum stats_kind { STATS_P50, STATS_P90, STATS_P99, STATS_MEAN, STATS_KINDS };

/* The waits of one arm: those of arrival i are v[at[i]] to v[at[i + 1] - 1]. */
struct stats_waits {
    double *v;
    uint32_t *at; /* n + 1 of them */
    uint32_t n, cap;
};
int stats_waits_init(struct stats_waits *w, uint32_t n_arrivals, uint32_t cap);
void stats_waits_deinit(struct stats_waits *w);
/* Arrivals are added in order: every wait of arrival `i` before those of i + 1. */
void stats_waits_add(struct stats_waits *w, uint32_t arrival, double wait);

void stats_sort(double *v, size_t n);
double stats_quantile(const double *sorted, size_t n,
                      double q); /* between neighbours; 0 when empty */
/* All kinds at once; sorts v. */
void stats_of(double out[STATS_KINDS], double *v, size_t n);
/* Of several arms' waits taken together. -1 = no memory. */
int stats_pooled(double out[STATS_KINDS], const struct stats_waits *const *arms, uint32_t n_arms);

struct stats_ratio {
    double alone, mixed, ratio, low, high; /* low, high: 2.5 and 97.5 % of the samples' ratios */
};
/* alone and mixed: n_arms each, all with the same arrivals. */
int stats_ratios(struct stats_ratio out[STATS_KINDS], const struct stats_waits *const *alone,
                 const struct stats_waits *const *mixed, uint32_t n_arms, uint64_t seed);
/* Mean of v with its interval; drawn in blocks of `block` neighbours (1 = independent values). */
void stats_mean_interval(struct stats_ratio *out, const double *v, uint32_t n, uint32_t block,
                         uint64_t seed);
/* mean(x) / mean(y), each drawn for itself in blocks. */
void stats_means_ratio(struct stats_ratio *out, const double *x, uint32_t n_x, const double *y,
                       uint32_t n_y, uint32_t block, uint64_t seed);

#endif
