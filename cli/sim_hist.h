/* sim_hist.h - times counted in buckets of 1/64 of an octave: quantiles within 0.8 %, sums exact.
 *
 * Why: a simulated hour makes millions of gaps between tokens; the same counts come out in whatever
 * order they are added, so a report is the same bytes however the simulator went through time.
 * Memory: 22 KiB each. Thread: one owner, plain storage (zeroed = empty).
 */
#ifndef SLUICE_CLI_SIM_HIST_H
#define SLUICE_CLI_SIM_HIST_H

#include <stdint.h>

#define SIM_HIST_SUB 64
#define SIM_HIST_BUCKETS (44 * SIM_HIST_SUB) /* up to 2^49 ns, six days */

struct sim_hist {
    uint64_t count, sum_ns, max_ns;
    uint64_t endless; /* of count: never came; every quantile above them is infinite */
    uint64_t buckets[SIM_HIST_BUCKETS];
};

uint32_t sim_hist_bucket(uint64_t ns);
static inline void sim_hist_put(struct sim_hist *h, uint32_t bucket, uint64_t ns) {
    h->count++;
    h->sum_ns += ns;
    if (ns > h->max_ns)
        h->max_ns = ns;
    h->buckets[bucket]++;
}
void sim_hist_add(struct sim_hist *h, uint64_t ns);
void sim_hist_endless(struct sim_hist *h);
/* In ns; 0 when empty, INFINITY where the quantile falls into what never came. */
double sim_hist_quantile(const struct sim_hist *h, double q);
double sim_hist_mean(const struct sim_hist *h); /* of what came */

#endif
