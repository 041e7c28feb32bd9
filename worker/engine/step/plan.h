/* plan.h - a backend's own copy of a submitted step, in storage fixed at open.
 *
 * What engine_step points to belongs to the caller and may be gone after submit; a plan holds it
 * all: ids, block tables, rows, and the lists inside sampling parameters. On top of the copy it
 * knows the token rows (span after span) and the outputs: the distinct token rows that some wanted
 * row reads, so that forks which sample one row share its logits.
 *
 * Order: plan_init, then plan_copy any number of times (each replaces the last), plan_deinit.
 * Thread: written by the owner thread before the step is handed over, except `ids` of referenced
 * inputs. Failure: plan_copy returns -1 when the lists do not fit their arena (sized for max_rows
 * full histories, masks and biases, so only a caller over engine.h's own limits can see it).
 */
#ifndef SLUICE_WORKER_ENGINE_STEP_PLAN_H
#define SLUICE_WORKER_ENGINE_STEP_PLAN_H

#include "worker/engine/engine.h"

#define PLAN_NO_OUT UINT32_MAX

struct plan_caps {
    uint32_t max_spans, max_tokens, max_rows, n_ctx, n_vocab, block_tokens;
};

struct plan_out {                /* one distinct wanted token row */
    uint32_t span, index, token; /* token = row number in the step */
    bool logits, hidden;         /* what the rows on it need */
};

struct plan {
    struct plan_caps caps;
    uint64_t id;
    uint8_t rank;
    uint32_t n_spans, n_rows, n_tokens, n_outs;
    struct engine_span *spans; /* ids and blocks point into the copies below */
    uint32_t *first;           /* [span] its first token row */
    struct engine_row *rows;   /* parameter lists point into the arena */
    uint32_t *row_out;         /* [row] index in outs */
    struct plan_out *outs;
    uint32_t *token_out; /* [token row] index in outs, or PLAN_NO_OUT */
    int32_t *ids;        /* [token row] */
    uint32_t *blocks;
    uint8_t *arena;
    size_t arena_bytes, arena_used;
    void *map;
    size_t map_bytes;
};

int plan_init(struct plan *p, const struct plan_caps *caps, struct err *e);
void plan_deinit(struct plan *p);
int plan_copy(struct plan *p, const struct engine_step *step);
/* Whether any output needs the head. */
bool plan_wants_logits(const struct plan *p);

#endif
