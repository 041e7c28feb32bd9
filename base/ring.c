/* ring.c - single producer, single consumer. head and tail run freely and wrap at 2^32; their
 * difference is the count, so no slot is wasted to tell full from empty.
 */
#include "base/ring.h"

#include "base/mem.h"

#include <assert.h>

#define CAPACITY_MAX (1u << 30)

int ring_init(struct ring *r, uint32_t capacity) {
    assert(capacity >= 1 && capacity <= CAPACITY_MAX);
    uint32_t size = 1;
    while (size < capacity)
        size *= 2;
    r->slots = mem_array(size, sizeof(*r->slots));
    r->mask = size - 1;
    atomic_init(&r->head, 0);
    atomic_init(&r->tail, 0);
    return r->slots != NULL ? 0 : -1;
}

void ring_deinit(struct ring *r) {
    mem_free(r->slots);
    r->slots = NULL;
}

int ring_push(struct ring *r, void *item) {
    assert(item != NULL);
    /* Own index: nobody else writes it, relaxed is enough. The other's: acquire, so that the
     * consumer's read of the slot is over before it is written again. */
    uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    if (head - tail > r->mask)
        return -1;
    r->slots[head & r->mask] = item;
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    return 0;
}

void *ring_pop(struct ring *r) {
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    if (head == tail)
        return NULL;
    void *item = r->slots[tail & r->mask];
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
    return item;
}

/* tail first: read the other way round, pops in between could make tail overtake the head read. */
uint32_t ring_count(const struct ring *r) {
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    uint32_t n = head - tail;
    return n > r->mask + 1 ? r->mask + 1 : n;
}
