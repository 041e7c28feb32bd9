/* heap.c - see heap.h. Slots are 0-based, the children of i are 2i + 1 and 2i + 2. */
#include "base/heap.h"

#include "base/mem.h"

#include <assert.h>
#include <stddef.h>

int heap_init(struct heap *h, uint32_t capacity, heap_less_fn less, void *ctx) {
    assert(less != NULL && capacity < UINT32_MAX / 2);
    *h = (struct heap){.capacity = capacity, .less = less, .ctx = ctx};
    h->slots = mem_array(capacity > 0 ? capacity : 1, sizeof(*h->slots));
    return h->slots != NULL ? 0 : -1;
}

void heap_deinit(struct heap *h) {
    mem_free(h->slots);
    *h = (struct heap){0};
}

void heap_node_init(struct heap_node *n) {
    n->place = 0;
}

bool heap_linked(const struct heap_node *n) {
    return n->place != 0;
}

static void put(struct heap *h, uint32_t i, struct heap_node *n) {
    h->slots[i] = n;
    n->place = i + 1;
}

static uint32_t sift_up(struct heap *h, uint32_t i) {
    struct heap_node *n = h->slots[i];
    while (i > 0) {
        uint32_t parent = (i - 1) / 2;
        if (!h->less(n, h->slots[parent], h->ctx))
            break;
        put(h, i, h->slots[parent]);
        i = parent;
    }
    put(h, i, n);
    return i;
}

static void sift_down(struct heap *h, uint32_t i) {
    struct heap_node *n = h->slots[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= h->count)
            break;
        if (child + 1 < h->count && h->less(h->slots[child + 1], h->slots[child], h->ctx))
            child++;
        if (!h->less(h->slots[child], n, h->ctx))
            break;
        put(h, i, h->slots[child]);
        i = child;
    }
    put(h, i, n);
}

int heap_push(struct heap *h, struct heap_node *n) {
    assert(n->place == 0);
    if (h->count == h->capacity)
        return -1;
    put(h, h->count++, n);
    sift_up(h, h->count - 1);
    return 0;
}

struct heap_node *heap_top(const struct heap *h) {
    return h->count > 0 ? h->slots[0] : NULL;
}

struct heap_node *heap_pop(struct heap *h) {
    struct heap_node *n = heap_top(h);
    if (n != NULL)
        heap_remove(h, n);
    return n;
}

void heap_remove(struct heap *h, struct heap_node *n) {
    assert(n->place >= 1 && n->place <= h->count && h->slots[n->place - 1] == n);
    uint32_t i = n->place - 1;
    struct heap_node *last = h->slots[--h->count];
    n->place = 0;
    if (last == n)
        return;
    put(h, i, last);
    heap_moved(h, last);
}

void heap_moved(struct heap *h, struct heap_node *n) {
    assert(n->place >= 1 && n->place <= h->count && h->slots[n->place - 1] == n);
    uint32_t i = n->place - 1;
    if (sift_up(h, i) == i)
        sift_down(h, i);
}

bool heap_check(const struct heap *h) {
    if (h->count > h->capacity)
        return false;
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->slots[i]->place != i + 1)
            return false;
        if (i > 0 && h->less(h->slots[i], h->slots[(i - 1) / 2], h->ctx))
            return false;
    }
    return true;
}
