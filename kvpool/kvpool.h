/* kvpool.h - who holds which KV block: ids, tables, holds and generations. The bytes are the engine's.
 *
 * Pure bookkeeping: no I/O, thread, clock or allocation. The whole pool lives in one region handed to
 * kvpool_init and holds no pointers, only offsets and indexes: memcpy of the region clones it (the
 * exhaustive protocol model and the simulator do). Thread: one owner.
 *
 * Block: a fixed number of token positions of K and V over all layers, one contiguous run of bytes,
 * stride a multiple of 4 KiB (engine_limits). Ids are 1 .. n_blocks-1; id 0 is the trash block, never given out.
 * A reference is (32-bit id, 32-bit generation); a block's generation rises each time it is freed, so a stale
 * reference is caught, not read.
 *
 * Sequence: an index from kvpool_seq_open; owns a table of blocks covering positions [0, reserved),
 * of which [0, committed) are committed. **Uncommitted positions** are being written by a step in flight: they are
 * not hashed, shared, checkpointed or swapped, and kvpool_forget throws them away.
 *
 * Hold: a step in flight holds every block it may touch (kvpool_hold at submit, kvpool_unhold when the engine
 * confirmed STEP_END or DROPPED). Releasing a held block does not free it: it becomes HELD until its last hold goes.
 *
 * Invariants, in the words kvpool_check uses (it recounts everything from scratch):
 *  I1 every block 1..n-1 is in exactly one state: FREE (on the free list, no table, no hold), USED (in
 *     refs >= 1 tables), HELD (in no table, holds >= 1). Later states, place kept: CACHED (hashed, in no table).
 *  I2 a block's refs = number of tables it appears in; its holds = number of live holds that list it.
 *  I3 free count = length of the free list; free + used + held = n - 1.
 *  I4 a table has exactly ceil(reserved / block_tokens) entries; committed <= reserved.
 *  I5 an uncommitted block is in one table only; only full committed blocks are shared.
 *  I6 block 0 is in no table, list or hold.
 *
 * Failure: reserve is all or nothing, a failed call leaves no trace. Misuse (unknown sequence, forget below
 * committed, double unhold) asserts. Cost: O(blocks touched).
 * Kept open for the worker half: prefix index (publish / match by chained hash and ids), tiers, quotas per tenant,
 * copy-on-write forks (refs > 1 exists for them).
 */
#ifndef SLUICE_KVPOOL_KVPOOL_H
#define SLUICE_KVPOOL_KVPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_SEQ_NONE UINT32_MAX
#define KV_HOLD_NONE UINT32_MAX

struct kvpool_config {
    uint32_t n_blocks;       /* trash block included, >= 2 */
    uint32_t block_tokens;   /* positions in a block */
    uint32_t max_seqs;       /* open sequences */
    uint32_t max_seq_blocks; /* longest table */
    uint32_t max_holds;      /* spans of all steps in flight */
};

struct kv_ref { uint32_t id, generation; };

struct kvpool;

size_t kvpool_bytes(const struct kvpool_config *cfg);          /* size of the region; 0 = absurd config */
struct kvpool *kvpool_init(void *region, const struct kvpool_config *cfg); /* region: zeroed, 8-aligned */

uint32_t kvpool_seq_open(struct kvpool *p);                    /* KV_SEQ_NONE when none is left */
void kvpool_seq_close(struct kvpool *p, uint32_t seq);         /* gives back its blocks (held ones become HELD) */

/* Make the table cover positions [0, positions). 0, or -1: not enough free blocks, nothing changed. */
int kvpool_reserve(struct kvpool *p, uint32_t seq, uint32_t positions);
/* Would it succeed, with `extra` free blocks left over? */
bool kvpool_fits(const struct kvpool *p, uint32_t seq, uint32_t positions, uint32_t extra);
void kvpool_commit(struct kvpool *p, uint32_t seq, uint32_t positions);  /* committed := positions, only upwards */
void kvpool_forget(struct kvpool *p, uint32_t seq, uint32_t positions);  /* keep [0, positions) >= committed */
void kvpool_reset(struct kvpool *p, uint32_t seq);             /* preempted: no blocks, committed 0, still open */

uint32_t kvpool_committed(const struct kvpool *p, uint32_t seq);
uint32_t kvpool_reserved(const struct kvpool *p, uint32_t seq);
const uint32_t *kvpool_table(const struct kvpool *p, uint32_t seq, uint32_t *n); /* until the next change */

/* Hold all blocks now in the table of `seq`; KV_HOLD_NONE when max_holds are live. */
uint32_t kvpool_hold(struct kvpool *p, uint32_t seq);
void kvpool_unhold(struct kvpool *p, uint32_t hold);

struct kv_ref kvpool_ref(const struct kvpool *p, uint32_t block);
bool kvpool_ref_valid(const struct kvpool *p, struct kv_ref r);

struct kvpool_stats { uint32_t total, free, used, held, seqs, holds; };
struct kvpool_stats kvpool_stats(const struct kvpool *p);
uint32_t kvpool_blocks_for(const struct kvpool *p, uint32_t positions);  /* ceil */
/* Debug switch: at most n blocks (trash excluded) may be in use; 0 = all. */
void kvpool_shrink(struct kvpool *p, uint32_t n);

/* The auditor: NULL when all invariants hold, else the broken one in words. O(pool). */
const char *kvpool_check(const struct kvpool *p);

#endif
