/* golden_vectors.h - reference vectors, one JSON object a line: ids, nll of the next id at each
 * position, and the likeliest ids with their log-probabilities at some positions ("top":
 * {"position": [[id, logprob], ...]}).
 *
 * A chat line has prompt_ids and greedy_ids instead of ids; they are joined and n_prompt says where
 * they meet. Order: golden_load, use, golden_free. Failure: -1 with one line on stderr.
 */
#ifndef SLUICE_TESTS_GOLDEN_VECTORS_H
#define SLUICE_TESTS_GOLDEN_VECTORS_H

#include "tests/tiny/tiny_reference.h"

#include <stdint.h>

#define GOLDEN_TOP 10
#define GOLDEN_LINES 64

struct golden_top {
    uint32_t n;
    int32_t id[GOLDEN_TOP];
    double logprob[GOLDEN_TOP];
};

struct golden_line {
    char name[64];
    int32_t *ids;
    uint32_t n_ids, n_prompt;
    double *nll;            /* [n_ids - 1] */
    struct golden_top *top; /* [n_ids]; n = 0 where none is kept */
};

struct golden {
    struct golden_line lines[GOLDEN_LINES];
    uint32_t n;
};

int golden_load(struct golden *g, const char *path);
void golden_free(struct golden *g);

/* Writes a line for these ids as the float reference sees them (top at every 8th position). */
void golden_print_reference(const char *name, const int32_t *ids, uint32_t n,
                            struct tiny_reference *ref);

#endif
