/* tiny_reference.h - what a llama-family file means: a plain forward pass in float, sums in double.
 *
 * Every weight is dequantised, K and V are kept unrounded, and nothing is shared with the engine,
 * which is compared with this (within a bound, never byte for byte). One token at a time; any file
 * hparams_read takes. Order: create, then reset and steps as often as wanted. Thread: one. Cost:
 * all weights as floats.
 */
#ifndef SLUICE_TESTS_TINY_TINY_REFERENCE_H
#define SLUICE_TESTS_TINY_TINY_REFERENCE_H

#include "model/hparams.h"

struct tiny_reference;

/* Room for `positions` tokens. -1 = no memory, or not a file hparams_read takes. The gguf may be
 * closed after. */
int tiny_reference_create(struct tiny_reference **out, const struct gguf *g, uint32_t positions,
                          struct err *e);
void tiny_reference_destroy(struct tiny_reference **r);
void tiny_reference_reset(struct tiny_reference *r);
/* Feeds one id at the next position. Log-probabilities (nats) of what follows, n_vocab of them,
 * valid until the next call; NULL when the positions are used up or the id is out of range. */
const double *tiny_reference_step(struct tiny_reference *r, int32_t id);
/* The largest entry; of equal ones the smallest id. */
int32_t tiny_reference_argmax(const struct tiny_reference *r);
const struct hparams *tiny_reference_hparams(const struct tiny_reference *r);

#endif
