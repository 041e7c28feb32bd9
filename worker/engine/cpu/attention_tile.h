/* attention_tile.h - what the AVX2 and the AVX-512 attention share: a tile of query rows, and how K
 * and V of a few blocks are handed to the kernels.
 *
 * A tile is up to ATTENTION_ROWS query rows (position, head of the group) over one KV head, rows in
 * rising position. It walks the splits; in a split first all scores, then the weights, then all
 * values. K and V are taken ATTENTION_RUN blocks at a time, a "run". Few rows (decode) let the
 * kernels read the store itself, each number widened in a register and a later run fetched
 * meanwhile; many rows share one widened copy of a run. The chain of a value is the same either way
 * (ops_attention.c). attention_body.h is the walk, the kernels are in the files that include it.
 *
 * Stack: one tile, about 340 KiB whatever the head dimension.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_ATTENTION_TILE_H
#define SLUICE_WORKER_ENGINE_CPU_ATTENTION_TILE_H

#include "worker/engine/cpu/ops_parts.h"

#define ATTENTION_ROWS 96  /* 32 positions of 3 heads; with half of it widening K and V costs 5 % */
#define ATTENTION_RUN 4    /* blocks of a run: 64 positions */
/* Pieces (K or V of a block) before its use a piece is brought into L2, and into L1: a load that has
 * to wait for L2 keeps fetches from being sent out (at 8k, kernels alone: 4 % over L2 only). */
#define FAR_AHEAD 12
#define NEAR_AHEAD 4
#define ATTENTION_DIRECT 6 /* rows up to which the kernels read the store itself */
#define SPLIT_BLOCKS (ATTENTION_SPLIT / KV_BLOCK_TOKENS)
#define RUN_TOKENS (ATTENTION_RUN * KV_BLOCK_TOKENS)
/* Floats from one row to the next, of scores and of queries: constants, so that the kernels reach
 * all rows from one pointer; 256 alone would put all rows into a few cache sets. */
#define SCORES (ATTENTION_SPLIT + 16)
#define QUERY (KV_HEAD_DIM_MAX + 16)
#define ROW_FLOATS (ATTENTION_ROWS * KV_HEAD_DIM_MAX / 2) /* wide heads take half the rows */

enum run_form { RUN_F32, RUN_F16, RUN_INT8 };

/* K or V of the blocks of a run. K: [head_dim][16] a block; V: [16][head_dim] a block. */
struct run {
    const uint8_t *const *at; /* in the store FAR_AHEAD more are behind the last: fetched meanwhile */
    uint32_t begin, n;        /* first position inside the split, number of positions */
};

struct tile {
    const struct attention_args *a;
    uint32_t head_dim, n_rows;
    const uint8_t *head; /* the tile's (layer, KV head) in block 0 */
    size_t half;         /* bytes of K of a block; V is behind it */
    enum run_form form, stored;             /* what the kernels read; what the store holds */
    uint32_t n_keys[ATTENTION_ROWS];        /* positions a row sees; never falls from row to row */
    /* The pieces of the present split in the order of reading: K, V, then K of the next one. */
    const uint8_t *pieces[2 * SPLIT_BLOCKS + FAR_AHEAD];
    float *out[ATTENTION_ROWS];
    float max[ATTENTION_ROWS], sum[ATTENTION_ROWS]; /* over the splits so far */
    float part_max[ATTENTION_ROWS], part_sum[ATTENTION_ROWS]; /* of the present split */
    /* From here on whole cache lines: a load across two of them costs double. */
    _Alignas(64) float key_scale[ATTENTION_SPLIT]; /* what a score's chain is multiplied with */
    float value_scale[ATTENTION_SPLIT];            /* INT8: what a weight is multiplied with */
    float scores[ATTENTION_ROWS * SCORES];         /* of the split; later the weights */
    float q[ATTENTION_ROWS * QUERY];
    float all[ROW_FLOATS], part[ROW_FLOATS]; /* [row][head_dim] */
    float wide[RUN_TOKENS * KV_HEAD_DIM_MAX / 2]; /* a run as floats; wide heads: two blocks */
};

#endif
