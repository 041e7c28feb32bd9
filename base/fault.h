/* fault.h - faults that can be switched on, so that the exactness suite can show that it would notice them.
 *
 * Each is one mistake that a system of this kind has made or could make: a bookkeeping step left out or off by one, at the
 * place where it would be made. `--debug-fault NAME` (loopback only) sets one; off, a fault costs a load and a
 * compare of a word that never changes. tests/exact runs each of them and expects a failure.
 * Thread: fault_set once, before any other thread runs; fault_on from any.
 */
#ifndef SLUICE_BASE_FAULT_H
#define SLUICE_BASE_FAULT_H

#include <stdbool.h>

/* X(NAME, word, what goes wrong). */
#define FAULT_LIST(X)                                                                               \
    X(BOUNDARY, "boundary-off-by-one", "the prompt/output boundary is one further for penalties and min_tokens") \
    X(SEED, "seed-not-carried", "after losing its seat a sequence draws with another seed")             \
    X(ROPE_ZERO, "rope-from-zero", "the rotary positions of a chunk count from its own start")          \
    X(COMMIT_AHEAD, "commit-ahead", "a step commits one position that it did not compute")              \
    X(COMMIT_DROPPED, "commit-dropped", "the positions of a dropped span are committed")                \
    X(PARK_ROWS, "park-loses-rows", "a parked step resumes with another step's residual rows")          \
    X(PARK_SEGMENT, "park-skips-segment", "a parked step resumes one segment too late")                 \
    X(DROP_NEIGHBOUR, "drop-takes-neighbour", "dropping a span drops the one beside it, too, unheard")  \
    X(STALE_TABLE, "stale-table", "a sequence that lost its seat reads the table of another one")       \
    X(FREE_EARLY, "free-early", "a block is given away while a step uses it")                           \
    X(HASH_UNCOMMITTED, "hash-uncommitted", "a block is published before its step ended")               \
    X(HIT_NO_IDS, "hit-without-ids", "a cache hit compares the newest block's ids alone")               \
    X(HIT_WHOLE, "hit-whole-prompt", "a hit leaves no position to compute")                             \
    X(COPY_UNFENCED, "copy-not-fenced", "a swapped-in block is used before its copy ended")             \
    X(COPY_UNFILLED, "checkpoint-unfilled", "a block is checkpointed before it is full")                \
    X(COPY_SLOT, "copy-wrong-slot", "a swap-in reads the slot beside its own")                          \
    X(SLOT_REUSED, "slot-reused", "a kept host slot is given to another block")                         \
    X(DRAW_SHIFT, "draw-shifted", "after losing its seat a sequence draws one position further")        \
    X(HISTORY_LOST, "history-lost", "penalties forget the output before an interruption")               \
    X(STOP_LOST, "stop-lost", "a stop string's beginning is forgotten when a sequence loses its seat")  \
    X(COPY_SHORT, "copy-short", "a copy leaves out the second half of a block")

enum fault {
    FAULT_NONE,
#define FAULT_ENUM(name, word, what) FAULT_##name,
    FAULT_LIST(FAULT_ENUM)
#undef FAULT_ENUM
    FAULT_COUNT
};

extern enum fault fault_current; /* read through fault_on */

static inline bool fault_on(enum fault f)
{
    return __builtin_expect(fault_current == f, 0);
}

int fault_parse(const char *word);        /* enum fault; "" and "none" are FAULT_NONE; -1 unknown */
const char *fault_word(enum fault f);     /* "none" */
const char *fault_what(enum fault f);
void fault_set(enum fault f);

#endif
