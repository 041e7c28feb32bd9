/* null_math.h - the arithmetic of the virtual engine: what a position stores, and what a row says.
 *
 * The purpose is an oracle: a token depends, through the bytes of the blocks themselves, on every
 * id at every position before it. So a stale block, a wrong table entry, a wrong position, a
 * skipped or repeated segment changes the tokens, and "equal tokens" proves the bookkeeping above.
 *
 * A position stores NULL_WORDS words ("layers"), word g computed in group g of a step's segments:
 *     x      = hash(id, position)
 *     word g = x = hash(g, x, word g of the position before, read from its block)   g < NULL_WORDS
 * - 1 the last group also folds in word 0 of the last position of every full block before the
 * position and x after the last group is the row's state h. All functions are pure.
 */
#ifndef SLUICE_WORKER_ENGINE_NULL_NULL_MATH_H
#define SLUICE_WORKER_ENGINE_NULL_NULL_MATH_H

#include "model/vocab.h"
#include "worker/engine/sample.h"

#include <stdbool.h>
#include <stdint.h>

#define NULL_WORDS 4
#define NULL_BLOCK_TOKENS 16

struct null_position {
    uint64_t word[NULL_WORDS];
};

uint64_t null_start(int32_t id, uint64_t position);
uint64_t null_word(uint32_t group, uint64_t x, uint64_t before, uint64_t fold);
uint64_t null_fold(uint64_t fold, uint64_t word);

struct null_vocab {
    uint32_t n_vocab;
    const int32_t *eog;
    uint32_t n_eog;
};

/* The id drawn at state h. Greedy ignores the seed; penalties mix in the history; bans and the mask
 * are kept. End-of-generation ids come up once in NULL_EOG_ONE_IN draws only. */
#define NULL_EOG_ONE_IN 64
int32_t null_draw(uint64_t h, const struct sample_params *p, const struct null_vocab *v);

/* Invented, but finite, negative and a function of (h, id) alone; the greedy id has the largest. */
float null_logprob(uint64_t h, int32_t id, const struct null_vocab *v);
void null_tops(uint64_t h, uint32_t n_top, const struct null_vocab *v, struct sample_result *out);
float null_value(uint64_t h, uint32_t i); /* value i of a LOGITS or HIDDEN row, in [0, 1) */

#endif
