/* step_slot.h - what a CPU step keeps while it is parked, and what all steps share while one runs.
 *
 * slot_work belongs to one step slot: residual rows, final-norm rows, logits so far. scratch is one
 * set of buffers whose content dies at the end of a segment, so a parked step does not hold it. All
 * sizes follow from the limits at open; pages nobody touches cost nothing.
 *
 * Live rows: the token rows of spans not dropped, packed without gaps. When a span is dropped its
 * rows leave at the next segment (slot_work_compact); the other rows move, their values do not
 * change. Logits: one row of n_vocab floats per output. Memory for max_rows of them per slot, so a
 * caller that scores a long prompt cuts it into chunks of at most max_rows positions.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_STEP_SLOT_H
#define SLUICE_WORKER_ENGINE_CPU_STEP_SLOT_H

#include "worker/engine/cpu/ops.h"
#include "worker/engine/step/runner.h"

struct work_caps {
    uint32_t max_tokens, max_rows, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_vocab, n_threads;
    uint32_t n_ctx;
    bool precise; /* rest and rest_ff are there */
};

struct slot_work {
    float *x;                     /* [live row][n_embd] residual */
    uint32_t *row_token;          /* [live row] token row of the plan */
    uint32_t *row_span;           /* [live row] */
    uint32_t n_rows, n_live_seen; /* live rows; spans alive when they were packed */
    float *hidden;                /* [output][n_embd] after the final norm */
    struct act_block *head_act;   /* [output][ACT_BLOCKS(n_embd)] */
    float *logits;                /* [output][n_vocab] */
    void *map;
    size_t map_bytes;
};

struct scratch {
    struct act_block *act;  /* [live row] quantised input of the next product */
    float *q, *k, *v, *att; /* [live row][heads * head_dim] */
    struct act_block *act_ff; /* [live row] quantised inner row, input of the down product */
    struct act_block *rest, *rest_ff; /* precise: what rounding left of act and act_ff; else NULL */
    float *gate, *up;         /* [thread][n_inner] of the tile that runs */
    size_t n_inner;           /* >= max_tokens * 2 row groups */
    float *norm;            /* [thread][n_embd] */
    struct piece *pieces;   /* of the attention */
    uint32_t n_pieces, piece_rows;
    struct attention_part *parts, *joins; /* [max_parts], see forward_attention.h */
    float *partials;                      /* of the parts, n_partials floats */
    uint32_t max_parts;
    size_t n_partials;
    void *map;
    size_t map_bytes;
};

/* A run of query rows of one span, small enough to be a good tile. */
struct piece {
    uint32_t span, row, n, pos;
};
#define PIECE_ROWS 16

/* Some splits of the context of one piece and KV head; partials NULL: all, without partial sums. */
struct attention_part {
    uint32_t of, begin, end;
    float *partials;
};
#define PARTS_PER_THREAD 16
#define SPLITS_MIN 2               /* of a part: claiming one costs little beside it */
#define PARTIALS_MAX (1u << 18)    /* floats a thread; what does not fit is not divided */

int slot_work_init(struct slot_work *w, const struct work_caps *c, struct err *e);
void slot_work_deinit(struct slot_work *w);
void slot_work_begin(struct slot_work *w, const struct step_slot *s); /* first segment */
void slot_work_compact(struct slot_work *w, const struct step_slot *s, uint32_t n_embd);

int scratch_init(struct scratch *sc, const struct work_caps *c, struct err *e);
void scratch_deinit(struct scratch *sc);
/* The pieces of the slot's live rows, longest context last. */
void scratch_cut(struct scratch *sc, const struct slot_work *w, const struct plan *p);

#endif
