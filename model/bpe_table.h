/* bpe_table.h - the two look-ups of merging: bytes to id (while building), pair of ids to merge.
 *
 * Open addressing, at most half full, fixed after building. Thread: read-only then.
 */
#ifndef SLUICE_MODEL_BPE_TABLE_H
#define SLUICE_MODEL_BPE_TABLE_H

#include "model/vocab.h"

struct pair_slot {
    int32_t left, right, rank, merged;
}; /* left < 0 = empty */
struct pair_table {
    struct pair_slot *slots;
    uint32_t mask;
};

int pair_table_init(struct pair_table *t, uint32_t count); /* -1 = no memory */
void pair_table_deinit(struct pair_table *t);
/* The first rank given for a pair stays. */
void pair_table_put(struct pair_table *t, int32_t left, int32_t right, int32_t rank,
                    int32_t merged);
const struct pair_slot *pair_table_find(const struct pair_table *t, int32_t left, int32_t right);

struct byte_index {
    int32_t *slots;
    uint32_t mask;
    const struct vocab *v;
};
int byte_index_init(struct byte_index *x,
                    const struct vocab *v); /* plain tokens only; -1 = no memory */
void byte_index_deinit(struct byte_index *x);
int32_t byte_index_find(const struct byte_index *x, const uint8_t *p, size_t n); /* -1 = none */

#endif
