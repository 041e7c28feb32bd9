/* hist.c - fixed-bucket histogram. A bucket holds values <= its bound, as in Prometheus' "le". */
#include "base/hist.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void hist_init(struct hist *h, const double *bounds, int n_bounds) {
    assert(n_bounds >= 0 && n_bounds <= HIST_BOUNDS_MAX);
    for (int i = 1; i < n_bounds; i++)
        assert(bounds[i - 1] < bounds[i]);
    memset(h, 0, sizeof(*h));
    h->bounds = bounds;
    h->n_bounds = n_bounds;
}

void hist_add(struct hist *h, double v) {
    if (!(v > 0)) /* a NaN too: it would poison the sum for good */
        v = 0;
    int lo = 0, hi = h->n_bounds;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (v <= h->bounds[mid])
            hi = mid;
        else
            lo = mid + 1;
    }
    h->counts[lo]++;
    h->count++;
    h->sum += v;
}

double hist_quantile(const struct hist *h, double q) {
    if (h->count == 0)
        return 0;
    double rank = ceil((q < 0 ? 0 : q > 1 ? 1 : q) * (double)h->count);
    uint64_t want = rank < 1 ? 1 : (uint64_t)rank, seen = 0;
    for (int i = 0; i < h->n_bounds; i++) {
        seen += h->counts[i];
        if (seen >= want)
            return h->bounds[i];
    }
    return INFINITY;
}
