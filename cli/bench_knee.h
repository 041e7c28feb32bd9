/* bench_knee.h - where more requests at a time stop to pay: throughput against latency, level by
 * level.
 *
 * The knee is the level farthest above the straight line from the first to the last one, in the
 * plane of p99 latency and tokens/s, both scaled to their range: left of it a bit more latency buys
 * much throughput, right of it the other way round. Recommended is the level left of it. Pure.
 */
#ifndef SLUICE_CLI_BENCH_KNEE_H
#define SLUICE_CLI_BENCH_KNEE_H

#include <stdint.h>

#define KNEE_LEVELS_MAX 16

struct knee_level {
    uint32_t concurrency, done, failed;
    double tokens_s; /* prompt and output */
    double out_tokens_s;
    double ttft_p50_ms, ttft_p99_ms, e2e_p50_ms, e2e_p99_ms, gap_p99_ms;
};

struct knee {
    struct knee_level levels[KNEE_LEVELS_MAX];
    uint32_t n, knee, recommended; /* indexes */
};

/* Fills knee and recommended from e2e_p99_ms and tokens_s. */
void knee_find(struct knee *k);

#endif
