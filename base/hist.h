/* hist.h - fixed-bucket histogram in Prometheus' sense (cumulative on output).
 *
 * Bounds are given at init (ascending, seconds or counts, borrowed for the histogram's life). Cost:
 * one binary search an observation. Thread: one owner.
 */
#ifndef SLUICE_BASE_HIST_H
#define SLUICE_BASE_HIST_H

#include <stdint.h>

#define HIST_BOUNDS_MAX 40

struct hist {
    const double *bounds;
    int n_bounds;
    uint64_t counts[HIST_BOUNDS_MAX + 1]; /* the last one is +Inf */
    uint64_t count;
    double sum;
};

void hist_init(struct hist *h, const double *bounds, int n_bounds);
void hist_add(struct hist *h, double v);                 /* negative values count as 0 (clock faults) */
double hist_quantile(const struct hist *h, double q);    /* upper bound of the bucket; 0 when empty */

#endif
