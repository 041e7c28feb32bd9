/* ring.h - bounded queue of pointers between exactly one producer and one consumer thread.
 *
 * Never blocks, never allocates after ring_init. Full: push returns -1 and the caller keeps the item.
 * Ownership of what the pointer names passes with it. Memory order: the producer's release store of
 * `head` publishes the slot, the consumer's acquire load of it makes the slot's bytes visible; `tail`
 * the other way round. Waking the consumer (eventfd, uv_async) is the caller's business.
 */
#ifndef SLUICE_BASE_RING_H
#define SLUICE_BASE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
    void **slots;
    uint32_t mask;
    _Alignas(64) _Atomic uint32_t head; /* written by the producer */
    _Alignas(64) _Atomic uint32_t tail; /* written by the consumer */
};

int ring_init(struct ring *r, uint32_t capacity); /* rounded up to a power of two; -1 = no memory */
void ring_deinit(struct ring *r);                 /* must be empty, or its items are the caller's to find */
int ring_push(struct ring *r, void *item);        /* producer; item != NULL; -1 = full */
void *ring_pop(struct ring *r);                   /* consumer; NULL = empty */
uint32_t ring_count(const struct ring *r);        /* either side; a snapshot */

#endif
