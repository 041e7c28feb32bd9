/* engine.h - a loaded model on one backend, run as asynchronous steps that can be suspended.
 *
 * Two nouns. The engine (long-lived) owns weights, the bytes of the KV pool and a workspace fixed at
 * open. A step (short-lived) is one forward pass over a set of spans, cut into segments (one layer, or
 * one slice of the output head) between which it can be parked or lose spans. The engine knows no
 * request, tenant or policy; the caller (worker/step_loop) knows no tensor.
 *
 * Order of calls: engine_open; then any number of engine_step_submit / park / continue / drop_span /
 * copy_submit, with engine_poll whenever the descriptor of engine_fd is readable; engine_close.
 * A step's life:  submit -> RUNNING -> (park -> PARKED -> continue -> RUNNING)* -> STEP_END, then
 * engine_step_release gives its slot back. park and drop are requests: they take effect at the next
 * segment boundary and are confirmed by a completion; a park that comes after the last segment started is answered
 * by STEP_END alone. At most one step RUNNING and one PARKED (ENGINE_STEPS_MAX slots, one more for a step launched
 * behind a reference).
 *
 * Ownership: everything reached from engine_step is copied at submit (ids, block tables, rows,
 * parameters, lists, masks); results belong to the engine until engine_step_release.
 * Thread: one owner thread makes all calls, the backend computes on its own threads.
 * Blocks: a step reads and writes only the blocks in its spans' tables. Positions it writes count as
 * uncommitted until STEP_END; those of a dropped span are garbage. Its blocks must be held by the caller until
 * STEP_END or the DROPPED completion. Block id 0 is the trash block (padded rows write there).
 * Failure: submit returns -1 only for what can be known at once (over a limit: a programmer's mistake
 * in debug builds; no slot). STEP_END carries ENGINE_STEP_FAILED for a step that failed while
 * the engine lives on; DEVICE_LOST means the process should exit.
 * Exactness: DESIGN rules E1 to E10; results never depend on which spans share a step, on chunking, parking or threads.
 * Cost: submit copies the plan, O(tokens + blocks); poll is O(completions); no call blocks or allocates.
 */
#ifndef SLUICE_WORKER_ENGINE_ENGINE_H
#define SLUICE_WORKER_ENGINE_ENGINE_H

#include "base/err.h"
#include "base/hash.h"
#include "model/model.h"
#include "worker/engine/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_STEPS_MAX 3
#define ENGINE_SPANS_MAX 256
#define ENGINE_CPUS_MAX 64

enum engine_kernel {
    ENGINE_KERNEL_AUTO,
    ENGINE_KERNEL_SCALAR,
    ENGINE_KERNEL_AVX2,
    ENGINE_KERNEL_AVX512
};

/* How K and V are stored: INT8 halves them, with a scale per position and head. Part of the numerics id. */
enum engine_kv_type { ENGINE_KV_F16, ENGINE_KV_INT8 };

struct engine_config {
    const char *backend;           /* "cpu", "null" */
    const struct model *model;     /* open until engine_close */
    enum engine_kernel kernel;
    enum engine_kv_type kv_type;
    bool precise;                  /* `cpu`: 16-bit inputs where 8 bits cost most (docs/ENGINE.md); a family of its own */
    uint32_t n_threads;            /* compute threads, >= 1 */
    uint32_t cpus[ENGINE_CPUS_MAX], n_cpus; /* pin compute threads round robin; n_cpus 0 = do not */
    uint32_t n_blocks;             /* KV blocks, the trash block included */
    uint32_t max_spans, max_tokens, max_rows; /* a step's limits */
    uint32_t host_slots;           /* blocks of the host tier, 0 = none; host_slots x block_stride bytes, touched as used */
    double copy_gb_s;              /* throttle of the copy path, 0 = none: a GPU's copy-to-compute ratio can be imitated */
    bool copy_no_checksum;         /* benchmarks only: what the checksums cost */
    uint64_t null_copy_ns;         /* `null`: cost of copying a block */
    uint64_t chaos_seed;           /* 0 = off; else completions are delayed and reordered (debug) */
    uint64_t debug_late_seed;      /* 0 = off; else parks and drops of a step wait for a segment drawn by (seed, step) */
    uint64_t null_token_ns, null_step_ns; /* `null`: cost of a token and of a step, spread over its segments */
    uint32_t null_segments;        /* `null`: segments of a step; 0 = layers + head slices of the model */
};

struct engine_limits {
    uint32_t block_tokens;         /* positions in a block (16 on CPU) */
    uint32_t n_blocks;
    uint64_t block_bytes;          /* one block's K and V over all layers, contiguous */
    uint64_t block_stride;         /* distance of two blocks, a multiple of 4096 */
    uint32_t max_spans, max_tokens, max_rows, n_ctx, n_vocab;
    uint32_t n_segments;           /* of a full step: layers + head slices (each <= 1/32 of the model's bytes) */
    uint32_t max_refs;             /* how many steps ahead a token reference may point; 0 = none (cpu) */
    uint32_t host_slots;           /* as asked, 0 = no host tier */
    bool copies;                   /* engine_copy_submit is available: host_slots > 0 */
    struct hash128 numerics_id;    /* E10: hash(tensors, KV type, family) */
    char family[32];               /* e.g. "cpu-q8a-1": raised whenever any output byte changes */
};

enum engine_row_kind {
    ENGINE_ROW_SAMPLE,             /* draw the next id with `params` */
    ENGINE_ROW_SCORE,              /* log-probability of the known id `target` (prompt logprobs) */
    ENGINE_ROW_LOGITS,             /* raw logits, engine_step_row_data: n_vocab floats (tests, eval) */
    ENGINE_ROW_HIDDEN,             /* the final norm's output, n_embd floats (embeddings) */
};

/* One wanted output. Any number may name the same (span, index): forks sample one row with many params. */
struct engine_row {
    uint32_t span;                 /* index in the step's spans */
    uint32_t index;                /* 0 .. span n - 1: the row computed for input position pos + index */
    enum engine_row_kind kind;
    bool logprob;                  /* fill result.logprob */
    uint8_t n_top;                 /* alternatives, 0 .. SAMPLE_TOP_MAX */
    int32_t target;                /* SCORE */
    struct sample_params params;   /* SAMPLE */
};

struct engine_span {
    uint64_t seq;                  /* caller's name of the sequence, echoed, not interpreted (null: not hashed either) */
    const int32_t *ids;            /* n input ids at positions pos .. pos + n - 1 */
    uint32_t n, pos;
    const uint32_t *blocks;        /* block ids covering positions 0 .. pos + n - 1 */
    uint32_t n_blocks;
    uint64_t ref_step;             /* != 0: the last input is what row `ref_row` of that step samples */
    uint32_t ref_row;
};

struct engine_step {
    uint64_t id;                   /* > 0, unique among live steps */
    uint8_t rank;                  /* 0 = real-time, 1 = below; for the record, the backend does not choose by it */
    const struct engine_span *spans; uint32_t n_spans;
    const struct engine_row *rows; uint32_t n_rows;
};

enum engine_completion_kind {
    ENGINE_STEP_END, ENGINE_STEP_PARKED, ENGINE_SPAN_DROPPED, ENGINE_COPY_END, ENGINE_DEVICE_LOST
};
enum engine_step_status {
    ENGINE_STEP_OK,
    ENGINE_STEP_FAILED,
    ENGINE_COPY_CORRUPT            /* COPY_END: the slot's bytes do not have the checksum they were stored with; the block
                                      was written and must not be used */
};

struct engine_completion {
    enum engine_completion_kind kind;
    uint64_t id;                   /* step, or copy */
    uint32_t span;                 /* DROPPED */
    enum engine_step_status status;
    uint32_t segments_done;        /* finished so far in this step */
    uint32_t segment_at_request;   /* PARKED, DROPPED: the segment that ran when the request was made; so
                                      segments_done <= segment_at_request + 1 proves "at most the running one" */
    uint64_t device_ns;            /* computing time so far, parked time excluded */
};

/* Copies. Two priorities, one block at a time each, in the order submitted; nothing of priority 1 starts while
 * something of priority 0 that could start waits. Priority 1 is done by a thread at base/priority.h's
 * PRIORITY_COPY. Priority 0 has a thread at normal priority of its own, and only that one: begun at a low priority beside a
 * busy compute thread of the same core, a copy that somebody waits for would take several times as long. `after_step`: not before that step ended (a step that is not live any more has
 * ended); what waits behind a fence lets others pass. The checksum of a block is stored with its slot on the way out and
 * compared on the way in. A copy reads its source between fence and COPY_END; the caller keeps both ends untouched until
 * it has polled COPY_END. submit returns -1 for what can be known: no host tier, ENGINE_COPIES_MAX live, a wrong id or
 * end (block 0 too), an end that a live copy writes, a target that a live copy reads, a source that a live step writes
 * without a fence behind that step and without DROPPED of the span that writes it. A step that reads what a live copy writes, or writes what it reads, is refused too.
 * COPY_END's device_ns is the copy's own time: CPU time, or what throttle and null_copy_ns make of it; waiting for the
 * fence, the queue and a core is not in it. block_stride bytes are copied. */
#define ENGINE_COPIES_MAX 64
struct engine_copy {
    uint64_t id;                   /* > 0, unique among live copies; copies and steps are counted apart */
    enum { ENGINE_COPY_BLOCK_TO_HOST, ENGINE_COPY_HOST_TO_BLOCK, ENGINE_COPY_BLOCK_TO_BLOCK } kind;
    uint32_t from, to;             /* block ids or host slots (0 .. host_slots - 1) */
    uint8_t priority;              /* 0 = somebody waits for it, 1 = checkpoints, and copies back ahead of their time */
    uint64_t after_step;           /* fence; 0 = none */
};

struct engine;

int engine_open(struct engine **out, const struct engine_config *cfg, struct err *e);
void engine_close(struct engine **eng);                       /* waits for the running segment, drops the rest */
const struct engine_limits *engine_limits(const struct engine *eng);
int engine_fd(const struct engine *eng);                      /* eventfd, readable while completions wait */

int engine_step_submit(struct engine *eng, const struct engine_step *step);
int engine_step_park(struct engine *eng, uint64_t step);      /* 0 = requested; -1 = no such running step */
int engine_step_continue(struct engine *eng, uint64_t step);  /* 0, of one that ended meanwhile too; -1 = not parked, or
                                                                 another one runs */
int engine_step_drop_span(struct engine *eng, uint64_t step, uint32_t span); /* running or parked */
int engine_copy_submit(struct engine *eng, const struct engine_copy *c);     /* -1: no host tier, full, out of range */

/* Up to `max` completions; resets the descriptor when none is left. */
int engine_poll(struct engine *eng, struct engine_completion *out, int max);
/* After STEP_END: result of row r (rows of dropped spans are meaningless). */
const struct sample_result *engine_step_result(const struct engine *eng, uint64_t step, uint32_t row);
const float *engine_step_row_data(const struct engine *eng, uint64_t step, uint32_t row); /* LOGITS, HIDDEN */
void engine_step_release(struct engine *eng, uint64_t step);

/* Debug, tests: bytes of a block (null and cpu backends); positions computed so far, waste included. */
const void *engine_block_bytes(const struct engine *eng, uint32_t block);
void *engine_host_bytes(const struct engine *eng, uint32_t slot); /* tests flip bits in it; NULL = no such slot */
uint64_t engine_positions_computed(const struct engine *eng);

/* What bounds a backend on this machine, measured now (about half a second): for benchmarks, beside their figures.
 * Only backend, kernel, n_threads, cpus and model (NULL is legal) of `cfg` count; no engine should be running meanwhile. */
struct engine_rates {
    double read_gb_s;              /* read bandwidth of n_threads threads past every cache */
    double weights_gb_s;           /* the same over as many bytes as the model's tensors, again and again: a cache's
                                    * where they fit one. Without a model, or a large one: read_gb_s */
    double int8_gmac_s;            /* multiply-adds of the product kernel when all it touches is in its caches */
};
int engine_measure(const struct engine_config *cfg, struct engine_rates *out, struct err *e);

#endif
