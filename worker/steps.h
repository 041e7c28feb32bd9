/* steps.h - the steps in flight: worker_core's plans as engine steps, and engine results as tokens.
 *
 * The core plans by slot and position and the engine computes by ids and blocks; this is the table
 * between them. It remembers, for each live step, which span is whose and which rows were asked
 * for, until the core releases the step. Rows: one SAMPLE row for a span that samples, one SCORE
 * row for each index to be scored when its sequence wants log-probabilities (who does not want them
 * gets the ids alone). Thread: the step loop. Nothing is allocated after init. Pointers are valid
 * until the next call.
 */
#ifndef SLUICE_WORKER_STEPS_H
#define SLUICE_WORKER_STEPS_H

#include "scheduler/worker_core.h"
#include "worker/engine/engine.h"
#include "worker/seq_store.h"

struct steps_span {
    uint32_t slot, pos, n;
    uint32_t score_from, score_to; /* rows first_row .. are their scores */
    uint32_t first_row;
    bool sample, dropped; /* the SAMPLE row is the one behind the scores */
    bool ref, surplus;    /* its input was another step's row; a drop was asked since: it brings nothing */
};

struct steps_live {
    uint64_t id; /* 0 = free */
    uint32_t n_spans;
    struct steps_span *spans;
};

struct steps {
    struct engine *engine;
    struct seq_store *store;
    const struct vocab *vocab;
    uint32_t max_spans, max_rows;
    struct steps_live live[ENGINE_STEPS_MAX];
    struct engine_span *spans; /* of the plan being built */
    struct engine_row *rows;
    struct worker_token *tokens; /* of the step that ended */
};

int steps_init(struct steps *s, struct engine *engine, struct seq_store *store,
               const struct vocab *vocab);
void steps_deinit(struct steps *s);

/* -1: the engine does not take the step, which is a mistake of ours. */
int steps_submit(struct steps *s, const struct worker_plan *plan);
void steps_span_dropped(struct steps *s, uint64_t id, uint32_t span);
/* Asks the engine. One with a reference brings nothing from now on, though the drop be too late. */
void steps_drop_span(struct steps *s, uint64_t id, uint32_t span);
/* After STEP_END: appends what was made to the sequences. One token for each span not dropped, in
 * order. */
const struct worker_token *steps_collect(struct steps *s, uint64_t id, bool failed, uint32_t *n);
void steps_release(struct steps *s, uint64_t id);

#endif
