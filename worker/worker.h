/* worker.h - the parts of a worker put together: engine, core, mail, link, step loop, event log.
 *
 * Order: worker_open (loads the engine, sizes everything), worker_run (on the calling thread, until
 * it is drained, stopped or failed), worker_close. worker_settings.h fills the configuration from
 * flags; tests fill it by hand, with the fake transport and the null engine. Ownership: the model
 * stays the caller's and must outlive the worker. Thread: one caller; worker_drain and worker_stop
 * from any thread.
 */
#ifndef SLUICE_WORKER_WORKER_H
#define SLUICE_WORKER_WORKER_H

#include "worker/link.h"
#include "worker/step_loop.h"

struct worker_config {
    const struct model *model;
    struct engine_config
        engine; /* backend, kernel, threads, cpus, chaos, null costs; the rest is filled here */
    uint32_t max_seqs, prefill_chunk;
    uint32_t kv_tokens; /* positions in the pool, the trash block on top */
    bool prefix_cache;
    uint64_t cache_secret;          /* random, of this process: keys the roots of prefixes */
    uint32_t min_run;               /* tokens between two preemptions of a sequence by its equals */
    uint32_t interference_permille; /* of the median real-time TTFT that a batch step may cost */
    struct class_table classes;
    char name[MSG_NAME_MAX];
    uint64_t incarnation; /* random, of this process */
    session_dial_fn dial;
    void *dial_ctx;
    uint32_t n_gateways;
    uint64_t heartbeat_ns, silence_ns, drain_timeout_ns;
    const char *event_log;        /* path; NULL or "" = none */
    int signal_fd, supervisor_fd; /* -1 = none */
    uint32_t debug_pool_blocks, debug_preempt_every, debug_park_every, debug_drop_every;
    uint32_t debug_resume; /* of worker_core: 0 = what is cheaper, 1 swap, 2 recompute */
    uint64_t debug_stall_ns;
    bool audit;
};

/* Durations and sizes as DESIGN states them; model, dial and name are left to the caller. */
void worker_config_default(struct worker_config *cfg);

struct worker;

int worker_open(struct worker **out, const struct worker_config *cfg, struct err *e);
enum step_loop_end worker_run(struct worker *w,
                              struct err *e); /* LOOP_FAILED with `e` when the link cannot start */
void worker_close(struct worker **w);
void worker_drain(struct worker *w);
void worker_stop(struct worker *w);
void worker_stats(const struct worker *w,
                  struct worker_stats *out); /* not while it runs on another thread */
void worker_print_pools(const struct worker *w, FILE *f); /* likewise; worker/pools.h */
const struct engine_limits *worker_limits(const struct worker *w);

#endif
