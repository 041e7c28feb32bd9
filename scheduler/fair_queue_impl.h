/* fair_queue_impl.h - fair_queue's state as its own files see it.
 *
 *   fair_queue.c       region, keys, push, pick, remove, the auditor
 *   fair_queue_flow.c  flows in order: by tag, and by the age of their oldest entry
 *   fair_queue_tree.c  the entries of one flow, a treap, and their list by arrival
 *
 * Region: struct | classes | flows[classes][flows] | heaps[classes][2][flows] | entries. All is 0 at
 * start and 0 again when it is empty, so links and places count from 1.
 */
#ifndef SLUICE_SCHEDULER_FAIR_QUEUE_IMPL_H
#define SLUICE_SCHEDULER_FAIR_QUEUE_IMPL_H

#include "scheduler/fair_queue.h"

enum fair_order { FAIR_BY_TAG, FAIR_BY_AGE };

struct fair_flow {
    uint64_t tag;
    uint64_t picked;      /* number of its last pick */
    uint64_t promoted_ns; /* when an entry of it last went before its turn */
    uint64_t aged_ns;     /* since when its oldest entry has waited, or promoted_ns if that is later */
    uint32_t root, first, last; /* 1 + entry */
    uint32_t oldest, newest;    /* 1 + entry */
    uint32_t n;
    uint32_t place[2]; /* 1 + index in the heap, by enum fair_order; 0 = not in it */
    uint8_t held, pad[7];
};

struct fair_class {
    uint32_t n;          /* entries */
    uint32_t heap_n[2];
    uint8_t promoted_last, pad[3];
};

struct fair_queue {
    struct fair_queue_config cfg;
    uint64_t picks;
    struct fair_class classes[CLASSES_MAX];
    uint64_t flows_at, heaps_at, entries_at; /* byte offsets */
};

static inline struct fair_flow *fair_flows(const struct fair_queue *q, uint8_t cls)
{
    return (struct fair_flow *)((char *)(uintptr_t)q + q->flows_at) +
           (size_t)cls * q->cfg.max_flows;
}
static inline uint32_t *fair_heap(const struct fair_queue *q, uint8_t cls, enum fair_order by)
{
    return (uint32_t *)((char *)(uintptr_t)q + q->heaps_at) +
           ((size_t)cls * 2 + by) * q->cfg.max_flows;
}
static inline struct fair_entry *fair_entries(const struct fair_queue *q)
{
    return (struct fair_entry *)((char *)(uintptr_t)q + q->entries_at);
}
static inline struct fair_entry *fair_at(const struct fair_queue *q, uint32_t link)
{
    return &fair_entries(q)[link - 1];
}

/* fair_queue_flow.c */
/* The flow got or lost entries, its oldest one changed, or it is held or free: into the heaps it
 * belongs in, at its place. */
void fair_flow_changed(struct fair_queue *q, uint8_t cls, uint32_t flow);
/* Its tag or pick number changed. */
void fair_flow_moved(struct fair_queue *q, uint8_t cls, uint32_t flow);
const char *fair_flow_check(const struct fair_queue *q, uint8_t cls);

/* fair_queue_tree.c */
void fair_tree_add(struct fair_queue *q, struct fair_flow *f, uint32_t link);
void fair_tree_remove(struct fair_queue *q, struct fair_flow *f, uint32_t link);
uint32_t fair_tree_next(const struct fair_queue *q, uint32_t link); /* 0 = it is the last */
void fair_list_add(struct fair_queue *q, struct fair_flow *f, uint32_t link);
void fair_list_remove(struct fair_queue *q, struct fair_flow *f, uint32_t link);
const char *fair_tree_check(const struct fair_queue *q, const struct fair_flow *f);

#endif
