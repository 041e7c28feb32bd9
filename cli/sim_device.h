/* sim_device.h - a device in virtual time: what an engine does with steps, blocks and copies,
 * without arithmetic.
 *
 * Why: policy is judged by counted quantities that are the same on every machine. The device is an
 * event machine: no thread, no clock; the owner calls it with the time, asks when something happens
 * next and takes what is due.
 *
 * Steps. A step costs step_ns + token_ns x positions + row_ns x sampled rows + read_ns x (context
 * read, once per SIM_TILE positions of a span) + pair_ns x (query x key pairs), spread evenly over
 * n_segments. Park and drop are requests that take effect at the end of the segment that runs
 * then, as engine.h says; one that comes while the last segment runs is answered by STEP_END alone.
 * A dropped span costs nothing from its boundary on. At most one step runs, one is parked.
 *
 * Blocks are real: each holds a chained hash of its positions' ids, written when a step ends (zero
 * while it is being computed) and moved by copies. A sampled id depends on the last position and on
 * the end of every full block before it, so a stale, foreign or uncommitted block changes the
 * answer: compare with sim_chain, the same answer without blocks.
 *
 * Copies: one at a time, those of priority 0 first, each in order; `after_step` holds its queue
 * back while that step lives. The source is read when the copy ends, the latest moment at which its
 * bytes may be needed.
 *
 * Hollow (cfg.model != NULL): for whole clusters. Steps cost what the model says, blocks have no
 * bytes, inputs are not looked at (`in` may be NULL), an id is a hash of (slot's seed, index); parks, drops, copies
 * and fences are the same. Steps scatter with cfg.live, and then there are no runs. Only there: sim_device_run takes the ends of the same decode step at once.
 *
 * Thread: one owner. Memory: all at create. Misuse (an action the engine would refuse) sets
 * sim_device_bad.
 */
#ifndef SLUICE_CLI_SIM_DEVICE_H
#define SLUICE_CLI_SIM_DEVICE_H

#include "cli/sim_live.h"
#include "cli/sim_model.h"
#include "scheduler/worker_core.h"

#include <stdbool.h>
#include <stdint.h>

#define SIM_VOCAB 49152
#define SIM_COPIES_MAX 64
#define SIM_TILE 32
#define SIM_NEVER UINT64_MAX

struct sim_cost {
    uint64_t step_ns, token_ns, row_ns;
    uint64_t read_ns, pair_ns; /* per 1,000 positions read, per 1,000 pairs */
    uint64_t copy_ns;          /* a block, either way */
};

struct sim_device_config {
    struct sim_cost cost;
    uint32_t n_segments;
    uint32_t n_blocks, block_tokens, n_host; /* trash block included, as the pool's */
    uint32_t max_spans, max_seq_blocks;
    uint32_t corrupt_every; /* debug: every n-th swap-in fails its checksum; 0 = off */
    const struct sim_model *model; /* hollow; outlives the device */
    const struct sim_live *live;   /* hollow: how steps scatter; NULL = not; outlives the device */
    uint64_t seed;                 /* of that */
};

/* The answer of a request by its ids alone: h of the last position, fold over the ends of full
 * blocks. */
struct sim_chain {
    uint64_t h, fold;
    uint32_t n;
};
void sim_chain_add(struct sim_chain *c, int32_t id, uint32_t block_tokens);
int32_t sim_chain_next(const struct sim_chain *c, uint64_t seed);

struct sim_input {      /* of one span; ids stay until the step is released or the span dropped */
    const int32_t *ids; /* of the sequence, from position 0 */
    uint64_t seed;
};

struct sim_result {
    uint32_t slot, pos, n;
    bool sampled;
    int32_t id;
};

enum sim_event_kind { SIM_STEP_END, SIM_STEP_PARKED, SIM_SPAN_DROPPED, SIM_COPY_END };

struct sim_event {
    enum sim_event_kind kind;
    uint64_t at_ns;
    uint64_t id; /* step or copy */
    uint32_t span;
    uint32_t segments_done, segment_at_request;
    uint64_t device_ns;
    bool ok;                          /* COPY_END */
    const struct sim_result *results; /* STEP_END: spans not dropped, until the release */
    uint32_t n_results;
};

struct sim_device;

struct sim_device *sim_device_create(const struct sim_device_config *cfg); /* NULL: no memory */
void sim_device_destroy(struct sim_device **d);

void sim_device_submit(struct sim_device *d, uint64_t now_ns, const struct worker_plan *plan,
                       const struct sim_input *in);
void sim_device_park(struct sim_device *d, uint64_t now_ns, uint64_t step);
void sim_device_continue(struct sim_device *d, uint64_t now_ns, uint64_t step);
void sim_device_drop(struct sim_device *d, uint64_t now_ns, uint64_t step, uint32_t span);
void sim_device_release(struct sim_device *d, uint64_t step);
void sim_device_copy(struct sim_device *d, uint64_t now_ns, const struct worker_action *copy);

/* When the next event is due, SIM_NEVER = none; and that event, if it is due by now_ns. */
uint64_t sim_device_next_ns(const struct sim_device *d);
bool sim_device_take(struct sim_device *d, uint64_t now_ns, struct sim_event *out);

/* What the worker's core hears of it; the tokens of a step are the caller's. */
struct worker_event sim_event_told(const struct sim_event *e);

/* The step that runs: its whole cost, as it was submitted; 0 = none runs. */
uint64_t sim_device_running_ns(const struct sim_device *d, uint32_t *positions, uint8_t *rank);
uint32_t sim_device_segments(const struct sim_device *d);

/* Hollow: the running step as a run may begin it: nothing was asked of it, it was never parked, every span decodes one
 * position. False: it is not. *end_ns: of the running step, *shape: its shape. */
bool sim_device_run_begin(const struct sim_device *d, struct sim_shape *shape, uint64_t *end_ns);
/* n of its ends were taken, the last at end_ns, all together ns; it is `step` now, which costs what `shape` says. */
void sim_device_run(struct sim_device *d, uint32_t n, uint64_t ns, uint64_t end_ns, uint64_t step,
                    const struct sim_shape *shape);

struct sim_device_stats {
    uint64_t steps, parks, drops, copies, copy_ns;
    uint64_t positions;   /* computed, dropped spans that had begun included */
    uint64_t rank_ns[2];  /* computing time by rank */
    uint64_t stale_reads; /* positions read that were not there */
};
void sim_device_stats(const struct sim_device *d, struct sim_device_stats *out);
const char *sim_device_bad(const struct sim_device *d); /* NULL, or the first broken rule */

#endif
