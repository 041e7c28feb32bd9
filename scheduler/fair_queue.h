/* fair_queue.h - who is next: per class a queue of flows (tenants), in each flow its own requests.
 *
 * Between flows: the flow with the smallest tag, its owner's virtual time (start-time fair queueing:
 * Goyal, Vin, Cheng 1996; with counters in place of known lengths: Sheng et al. 2024, "Fairness in
 * Serving Large Language Models"). Of equal tags the flow that was picked longest ago. The queue does
 * not know what virtual time is: whoever charges a tenant tells the new tag (fair_queue_tag).
 *
 * Inside a flow: `due`, then priority (larger first), then `order`, then arrival, which is unique.
 * due = the request's deadline, or without one arrival + one `age_ns` for each step that its priority lies
 * below FAIR_PRIORITY_END. So a step of priority is worth age_ns of waiting and no entry waits for
 * ever behind newer ones of its tenant: ageing without moving anything. Ageing never leaves the
 * class, classes have queues of their own.
 *
 * Longest wait (longest_ns of the class, 0 = none): the oldest entry of a flow goes before other
 * flows once it is older than that. Held within bounds so that a flood gains nothing: one entry of a
 * flow per longest_ns, and at most every second pick of the class; it is charged like any other.
 *
 * A flow may be held (its owner is at a cap): it keeps its entries and is not picked.
 *
 * Use: fair_queue_entry(q, i) gives entry i's key to fill; push; head -> pick or remove. An entry's key is
 * the caller's as long as the entry is in no flow, and stays: an entry may be pushed again with it.
 * Cost: push, pick, remove O(log n) expected, O(1) for what arrives in order; tag, hold O(log flows).
 * Memory: sizeof(struct fair_entry) an entry, about 100 B a flow and class. One region, indexes only,
 * clonable by memcpy; no clock, no allocation. Thread: one owner. Mistakes of the caller assert.
 */
#ifndef SLUICE_SCHEDULER_FAIR_QUEUE_H
#define SLUICE_SCHEDULER_FAIR_QUEUE_H

#include "base/submission.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAIR_NONE UINT32_MAX
#define FAIR_PRIORITY_END 8 /* priorities are -8 .. 7, larger goes first */

struct fair_queue_config {
    uint32_t max_entries, max_flows, n_classes;
    uint64_t longest_ns[CLASSES_MAX]; /* 0 = no entry goes before its turn */
};

/* One entry, 64 bytes. The caller fills the upper part. */
struct fair_entry {
    uint64_t due;        /* ns: fair_queue_due */
    uint64_t order;      /* among equals of one flow: a job's line number */
    uint64_t arrival;    /* unique, rising */
    uint64_t arrived_ns; /* for the longest wait */
    uint32_t flow;
    uint8_t cls;
    int8_t priority;
    uint8_t linked, pad; /* the queue's, from here on */
    uint32_t left, right, parent; /* 1 + entry, 0 = none: a treap, hash of the entry number as its heap key */
    uint32_t older, newer;        /* 1 + entry: the flow's entries in order of arrival */
    uint32_t pad2;
};

struct fair_queue;

size_t fair_queue_bytes(const struct fair_queue_config *cfg); /* 0 = out of range */
struct fair_queue *fair_queue_init(void *region, const struct fair_queue_config *cfg); /* zeroed, 64-aligned */
uint64_t fair_queue_due(uint64_t arrived_ns, uint64_t deadline_ns, int8_t priority, uint64_t age_ns);
struct fair_entry *fair_queue_entry(const struct fair_queue *q, uint32_t entry);

void fair_queue_push(struct fair_queue *q, uint32_t entry);
void fair_queue_remove(struct fair_queue *q, uint32_t entry); /* any one, without being picked */
/* The entry that goes next, FAIR_NONE: nothing, or all flows are held. */
uint32_t fair_queue_head(const struct fair_queue *q, uint8_t cls, uint64_t now_ns);
/* Takes what fair_queue_head(now_ns) just said. true: before its turn, for its age. */
bool fair_queue_pick(struct fair_queue *q, uint32_t entry, uint64_t now_ns);

void fair_queue_tag(struct fair_queue *q, uint8_t cls, uint32_t flow, uint64_t tag);
void fair_queue_hold(struct fair_queue *q, uint8_t cls, uint32_t flow, bool held);
/* The smallest tag of the flows that could be picked. false: none. */
bool fair_queue_min_tag(const struct fair_queue *q, uint8_t cls, uint64_t *tag);
uint32_t fair_queue_count(const struct fair_queue *q, uint8_t cls);      /* entries, held ones too */
uint32_t fair_queue_flow_count(const struct fair_queue *q, uint8_t cls, uint32_t flow);
/* Arrival time of the oldest entry, 0 = none. O(flows). What came back counts as the newest but keeps
 * its time: at worst the oldest of those that came back is overlooked until the latest is gone. */
uint64_t fair_queue_oldest_ns(const struct fair_queue *q, uint8_t cls);
const char *fair_queue_check(const struct fair_queue *q); /* auditor: NULL, or what is wrong */

#endif
