/* bench_mixed_plan.h - what the load of a measurement asks: one list of arrivals, and the body of
 * each request.
 *
 * The list (times and lengths) is the same in every phase; ids and seeds are fresh in each arm. A
 * list made from a seed has Poisson times, 16 to 32 tokens in, 4 to 12 out. A file is one of the
 * traces' schema: CSV with a header that names arrival_ms, input_tokens, output_tokens, class, ...;
 * its realtime rows (and rows without a class) count. Times are kept as shares of the list:
 * load_plan_set_rate stretches them. Thread: any. Failure: -1 and `e`. Limits: LOAD_ROWS_MAX rows.
 */
#ifndef SLUICE_CLI_BENCH_MIXED_PLAN_H
#define SLUICE_CLI_BENCH_MIXED_PLAN_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define LOAD_ROWS_MAX 100000

struct load_row {
    double at_s; /* after the phase's start */
    uint32_t n_in, n_out;
};

struct load_plan {
    struct load_row *rows;
    uint32_t n;
    double rate; /* arrivals a second */
};

int load_plan_make(struct load_plan *p, uint64_t seed, uint32_t n, double rate, struct err *e);
/* The first `max` real-time rows. */
int load_plan_read(struct load_plan *p, const char *path, uint32_t max, struct err *e);
void load_plan_deinit(struct load_plan *p);
void load_plan_set_rate(struct load_plan *p, double rate);
double load_plan_length_s(const struct load_plan *p); /* the last arrival's time */
double load_plan_mean_in(const struct load_plan *p);
double load_plan_mean_out(const struct load_plan *p);
/* In the same schema, so that --trace replays it. */
int load_plan_write(const struct load_plan *p, const char *path, struct err *e);

/* How requests are put to this server. */
struct ask_style {
    const char *model;
    uint32_t id_low, id_high; /* token ids of prompts, high not included */
    bool words;               /* prompts are texts of as many common words */
    const char *batch_tier;   /* service_tier of batch requests */
};

/* One request: what it asks is a function of these fields alone. Odd `index` samples at temperature
 * 1 with a seed of its own, even takes the likeliest token. */
struct ask {
    bool batch;
    uint64_t seed, index;
    uint32_t n_in, n_out;
};

/* Length around a mean: half to one and a half times. */
uint32_t ask_length(uint64_t seed, uint64_t i, uint32_t mean);
/* Appends the JSON body of POST /v1/completions, streamed. -1 = no memory. */
int ask_body(struct buf *out, const struct ask_style *style, const struct ask *a);

#endif
