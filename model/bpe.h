/* bpe.h - byte-pair merging: the table of merges, and one piece of text to ids in O(n log n).
 *
 * Order: bpe_create once per model (read-only afterwards, any thread); bpe_encode with a work area
 * of the calling thread. The pair with the lowest rank is merged first, of equal ones the leftmost.
 * A byte the vocabulary has no token for takes no id, and its neighbours become neighbours, as in the
 * model's own tokenizer (never the file's "unknown" id: that is a control token, which text of a user
 * must not be able to make). Cost: about 40 bytes of work area per byte of the longest piece.
 */
#ifndef SLUICE_MODEL_BPE_H
#define SLUICE_MODEL_BPE_H

#include "model/tokenizer.h"

struct bpe;

struct bpe_symbol {
    int32_t id, prev, next, rank, merged;
};
struct bpe_work {
    struct bpe_symbol *symbols;
    uint64_t *heap; /* rank << 32 | position; stale entries are skipped when popped */
    size_t cap, n_heap;
};
void bpe_work_deinit(struct bpe_work *w);

int bpe_create(struct bpe **out, const struct gguf *g, const struct vocab *v, struct err *e);
void bpe_destroy(struct bpe **b);
/* Appends the ids of p[0..n). -1 = no memory. */
int bpe_encode(const struct bpe *b, struct bpe_work *w, const uint8_t *p, size_t n,
               struct id_list *out);

#endif
