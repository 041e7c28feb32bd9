/* pretok.h - cuts text into the pieces that merging must not cross (pre-tokenizer `smollm`).
 *
 * Rule: every single digit (\p{N}) is a piece; what lies between goes through the GPT-2 expression.
 * Both are one expression here. White space is written as [\x09-\x0d\x85\p{Z}]: PCRE2's \s also
 * holds U+180E. Bytes that are no well-formed UTF-8 are pieces of one byte each. Order:
 * pretok_create once per model (read-only, any thread); a pretok_iter and a match area per thread.
 * Cost: linear; PCRE2's own limits are set, and hitting one is an error, never a hang.
 */
#ifndef SLUICE_MODEL_PRETOK_H
#define SLUICE_MODEL_PRETOK_H

#include "model/gguf.h"

struct pretok;
struct pretok_match; /* PCRE2 match data of one thread */

/* Refuses, by name, a file with another pre-tokenizer. */
int pretok_create(struct pretok **out, const struct gguf *g, struct err *e);
void pretok_destroy(struct pretok **t);
struct pretok_match *pretok_match_create(const struct pretok *t); /* NULL = no memory */
void pretok_match_destroy(struct pretok_match **m);

struct pretok_iter {
    const uint8_t *p;
    size_t n, at, valid_from, valid_to;
};
void pretok_begin(struct pretok_iter *it, const void *text, size_t n);
/* The next piece is p[*from .. it->at). 1, 0 at the end, -1 on a limit of the library. */
int pretok_next(const struct pretok *t, struct pretok_match *m, struct pretok_iter *it,
                size_t *from);

#endif
