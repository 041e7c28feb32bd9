/* bench_knee.c - see bench_knee.h. */
#include "cli/bench_knee.h"

#include <math.h>

static double scaled(double v, double low, double high) {
    return high > low ? (v - low) / (high - low) : 0;
}

void knee_find(struct knee *k) {
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY}, best = -INFINITY;
    k->knee = k->recommended = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        const double v[2] = {k->levels[i].e2e_p99_ms, k->levels[i].tokens_s};
        for (int d = 0; d < 2 && isfinite(v[0]); d++) {
            low[d] = fmin(low[d], v[d]);
            high[d] = fmax(high[d], v[d]);
        }
    }
    for (uint32_t i = 0; i < k->n; i++) {
        double above = scaled(k->levels[i].tokens_s, low[1], high[1]) -
                       scaled(k->levels[i].e2e_p99_ms, low[0], high[0]);
        if (isfinite(k->levels[i].e2e_p99_ms) && above > best) {
            best = above;
            k->knee = i;
        }
    }
    k->recommended = k->knee > 0 ? k->knee - 1 : 0;
}
