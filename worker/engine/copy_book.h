/* copy_book.h - which blocks and host slots live copies hold, as the owner sees it.
 *
 * A copy is live from submit until the owner polled its COPY_END. Until then nobody may write its
 * source, nor read or write its target. engine.c refuses steps and copies that would: a block given
 * away too early is caught where it happens, not when an answer comes out wrong.
 * Thread: the owner's. Cost: O(1) a block, O(ENGINE_COPIES_MAX) a copy. No allocation after init.
 */
#ifndef SLUICE_WORKER_ENGINE_COPY_BOOK_H
#define SLUICE_WORKER_ENGINE_COPY_BOOK_H

#include "worker/engine/engine.h"

struct copy_book {
    struct engine_copy live[ENGINE_COPIES_MAX];
    uint32_t n_live;
    uint8_t *reads;  /* [block] live copies that read it, <= ENGINE_COPIES_MAX */
    uint8_t *writes; /* [block] 1 = a live copy writes it */
};

int copy_book_init(struct copy_book *b, uint32_t n_blocks, struct err *e);
void copy_book_deinit(struct copy_book *b); /* of a zeroed one too */

/* False: the book is full, the id is live, or the ends meet those of a live copy. */
bool copy_book_may(const struct copy_book *b, const struct engine_copy *c);
void copy_book_add(struct copy_book *b, const struct engine_copy *c);
/* The copy that ended, out of the book; .id 0 = there is none. */
struct engine_copy copy_book_end(struct copy_book *b, uint64_t id);

#endif
