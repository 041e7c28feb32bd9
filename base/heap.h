/* heap.h - binary heap of fixed capacity whose items know their place, so that any of them can be
 * removed or moved after its key changed, in O(log n).
 *
 * The item embeds a `struct heap_node` (list_item of list.h turns it back into its item). Order is
 * the caller's strict `less(a, b, ctx)`; where the order of equals matters the caller breaks ties
 * (arrival number), the heap keeps none. heap_node_init before an item's first use. The heap owns no
 * item. Nothing is allocated after heap_init. Thread: one owner.
 */
#ifndef SLUICE_BASE_HEAP_H
#define SLUICE_BASE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct heap_node {
    uint32_t place; /* 1 + index in the heap; 0 = in none */
};

typedef bool (*heap_less_fn)(const struct heap_node *a, const struct heap_node *b, void *ctx);

struct heap {
    struct heap_node **slots;
    uint32_t count, capacity;
    heap_less_fn less;
    void *ctx;
};

int heap_init(struct heap *h, uint32_t capacity, heap_less_fn less, void *ctx); /* -1 = no memory */
void heap_deinit(struct heap *h);

void heap_node_init(struct heap_node *n);
bool heap_linked(const struct heap_node *n);

int heap_push(struct heap *h, struct heap_node *n);    /* n in no heap; -1 = full */
struct heap_node *heap_top(const struct heap *h);      /* the smallest; NULL when empty */
struct heap_node *heap_pop(struct heap *h);            /* removes and returns it; NULL when empty */
void heap_remove(struct heap *h, struct heap_node *n); /* must be in this heap */
void heap_moved(struct heap *h, struct heap_node *n);  /* its key changed, up or down */
bool heap_check(const struct heap *h);                 /* auditor: order and places agree */

#endif
