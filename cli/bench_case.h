/* bench_case.h - what `sluice bench engine` measures: its cases, their samples and their bounds.
 *
 * A case is one figure for one number of threads: a prompt of `tokens` whose last position is at
 * `context`, or `seqs` sequences decoding, each with `context` positions before it. Samples are
 * tokens
 * per second, in the order they were taken; what is reported is the median and the spread.
 * Thread: any, plain storage.
 */
#ifndef SLUICE_CLI_BENCH_CASE_H
#define SLUICE_CLI_BENCH_CASE_H

#include "base/err.h"
#include "model/model.h"
#include "worker/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_SAMPLES_MAX 64
#define BENCH_LIST_MAX 8
#define BENCH_DECODE_STEPS 24 /* of a sample, at most */
#define BENCH_CASES_MAX (BENCH_LIST_MAX * (BENCH_LIST_MAX * BENCH_LIST_MAX + BENCH_LIST_MAX + 1))

struct bench_samples {
    double v[BENCH_SAMPLES_MAX];
    int n;
};

enum bench_kind { BENCH_PREFILL, BENCH_DECODE };

struct bench_case {
    enum bench_kind kind;
    uint32_t threads, seqs, tokens, context; /* tokens: of a step */
    bool skipped;
    uint64_t kv_bytes;                       /* what it needs */
    struct bench_samples ours, peer, precise; /* precise: ours with that setting, if asked for */
    const char *peer_name;                   /* how the peer did the same, "" = it cannot */
    double bound;                            /* tokens/s that the measured rates allow */
};

struct bench_list {
    uint32_t v[BENCH_LIST_MAX];
    uint32_t n;
};

/* "1,4,16": ascending, each within [min, max]. -1 names `flag`. */
int bench_list_parse(struct bench_list *l, const char *flag, const char *text, uint32_t min,
                     uint32_t max, struct err *e);
uint32_t bench_list_last(const struct bench_list *l);

void bench_samples_add(struct bench_samples *s, double v);
double bench_samples_median(const struct bench_samples *s); /* NAN when empty */
double bench_samples_min(const struct bench_samples *s);
double bench_samples_max(const struct bench_samples *s);

/* What a step of this model costs at least. */
struct bench_work {
    double weight_bytes;  /* read by a step that wants logits; of the file's types */
    double macs_token;    /* of the matrices a position goes through */
    double macs_logits;   /* of a row of logits */
    double kv_bytes;      /* read per position of context */
};
void bench_work_of(struct bench_work *w, const struct model *m, uint64_t block_bytes,
                   uint32_t block_tokens);
/* Tokens/s when weights come at weights_gb_s and every multiply-add at int8_gmac_s, whichever takes
 * longer for the matrices, and attention reads K and V besides: at weights_gb_s too while they are
 * fewer bytes than the weights (a cache that holds the one holds the other), else at read_gb_s. */
double bench_bound(const struct bench_case *c, const struct bench_work *w,
                   const struct engine_rates *r);

/* "prefill 512 at 8192", "decode 16 at 128". */
void bench_case_name(const struct bench_case *c, char *out, size_t cap);

#endif
