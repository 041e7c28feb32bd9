/* sim_hist.c - see sim_hist.h. */
#include "cli/sim_hist.h"

#include <math.h>

/* Below 128 ns each ns has its own; above, the 6 bits behind the leading one choose. */
uint32_t sim_hist_bucket(uint64_t ns) {
    if (ns < 2 * SIM_HIST_SUB)
        return (uint32_t)ns;
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(ns); /* >= 7 */
    uint32_t sub = (uint32_t)(ns >> (octave - 6)) & (SIM_HIST_SUB - 1);
    uint32_t b = (octave - 5) * SIM_HIST_SUB + sub;
    return b < SIM_HIST_BUCKETS ? b : SIM_HIST_BUCKETS - 1;
}

/* Its lower bound; the bucket reaches to the next one's. */
static double bound_ns(uint32_t b) {
    if (b < 2 * SIM_HIST_SUB)
        return b;
    uint32_t octave = b / SIM_HIST_SUB + 5, sub = b % SIM_HIST_SUB;
    return ldexp(1.0 + (double)sub / SIM_HIST_SUB, (int)octave);
}

void sim_hist_add(struct sim_hist *h, uint64_t ns) {
    sim_hist_put(h, sim_hist_bucket(ns), ns);
}

void sim_hist_endless(struct sim_hist *h) {
    h->count++;
    h->endless++;
}

double sim_hist_quantile(const struct sim_hist *h, double q) {
    if (h->count == 0)
        return 0;
    uint64_t rank = (uint64_t)((double)(h->count - 1) * q), seen = 0;
    for (uint32_t b = 0; b < SIM_HIST_BUCKETS; b++) {
        if (h->buckets[b] == 0 || (seen += h->buckets[b]) <= rank)
            continue;
        /* Spread evenly over the bucket. */
        double part = (double)(rank - (seen - h->buckets[b])) + 0.5;
        double at = bound_ns(b), ns = at;
        ns += (bound_ns(b + 1) - at) * part / (double)h->buckets[b];
        return ns < (double)h->max_ns ? ns : (double)h->max_ns;
    }
    return INFINITY;
}

double sim_hist_mean(const struct sim_hist *h) {
    uint64_t came = h->count - h->endless;
    return came == 0 ? 0 : (double)h->sum_ns / (double)came;
}
