/* bench_engine.h - runs the cases of `sluice bench engine`: an engine for each number of threads,
 * the
 * rounds of all cases and of the peer interleaved A-B-B-A, the machine's rates beside them.
 *
 * Order: fill in the settings, bench_engine_open, bench_engine_run, read cases and setups,
 * bench_engine_close (legal after a failed open). The KV pool is filled with the bytes of a
 * computed
 * prompt, copied: what a step costs does not depend on what K and V say.
 * Thread: one; nothing else should run meanwhile. Cases whose K and V do not fit into half of the
 * free
 * memory, or past the model's context, are skipped and say so.
 */
#ifndef SLUICE_CLI_BENCH_ENGINE_H
#define SLUICE_CLI_BENCH_ENGINE_H

#include "cli/bench_case.h"
#include "cli/engine_drive.h"

struct bench_setup { /* one number of threads */
    uint32_t threads;
    struct drive drive, precise;
    struct bench_samples read_gb_s, weights_gb_s, int8_gmac_s;
};

struct bench_engine {
    /* settings */
    const char *model_path, *peer, *peer_model; /* peer NULL = none */
    struct bench_list threads, seqs, contexts;
    uint32_t prefill, rounds;
    enum engine_kernel kernel;
    enum engine_kv_type kv_type;
    bool precise;                               /* every sample with that setting as well, in turn */
    bool quiet;                                 /* no progress on stderr */
    /* state and results */
    struct model model;
    struct bench_setup setups[BENCH_LIST_MAX];
    struct bench_case cases[BENCH_CASES_MAX];
    uint32_t n_cases;
    struct bench_work work;
    double open_s;                              /* of the first engine: packing included */
    int32_t *ids;
};

int bench_engine_open(struct bench_engine *b, struct err *e);
int bench_engine_run(struct bench_engine *b, struct err *e);
void bench_engine_close(struct bench_engine *b);

/* Bytes the system would give now (MemAvailable); 4 GiB when it does not say. */
uint64_t bench_free_bytes(void);

#endif
