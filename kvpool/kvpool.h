/* kvpool.h - who holds which KV block: ids, tables, prefixes, tiers, holds, generations. The bytes are the engine's.
 *
 * Pure bookkeeping: no I/O, thread, clock or allocation. The whole pool lives in one region handed to
 * kvpool_init and holds no pointers, only offsets and indexes: memcpy of the region clones it (the
 * exhaustive protocol model and the simulator do). Thread: one owner.
 *
 * Block: a fixed number of token positions of K and V over all layers, one contiguous run of bytes,
 * stride a multiple of 4 KiB (engine_limits). Ids are 1 .. n_blocks-1; id 0 is the trash block, never given out.
 * A reference is (32-bit id, 32-bit generation); a block's generation rises each time its bytes are given up
 * (freed, or evicted from the cache), so a stale reference is caught, not read.
 *
 * Sequence: an index from kvpool_seq_open; owns a table of blocks covering positions [0, reserved),
 * of which [0, committed) are committed. **Uncommitted positions** are being written by a step in flight: they are
 * not hashed, shared, checkpointed or swapped, and kvpool_forget throws them away.
 *
 * Prefix cache. A full committed block is immutable. kvpool_publish names it by the chained hash of its ids
 * (base/hash.h; the root is the caller's, keyed by tenant, model, adapter and KV type) and puts it into the index;
 * a later sequence with the same root and ids takes it by kvpool_attach. A hit compares root, parent and ids too, so a
 * collision of the hash is a miss, never a wrong block. No partly filled block is ever shared, so a fork (n > 1) is two
 * sequences that attach the same full blocks and compute their own tails: nothing has to be copied on write.
 * A published block that nobody uses stays as CACHED until its place is needed.
 * Eviction weighs class and reuse: the block with the smallest (clock of its last use + bonus) goes first; the clock
 * counts blocks given out; bonus = n_blocks if it was hit since it was published, + n_blocks if published by rank 0.
 * Of one sequence the deepest goes first: a chain without its head is of no use. Idea: greedy-dual (Cao, Irani 1997).
 *
 * Host tier. n_host slots, each holds the bytes of one block. A **clean** block has a slot with its bytes. The copies
 * are the engine's; the pool says which and is told when they ended, in this order for each copy:
 *   kvpool_checkpoint -> (engine copies block to host) -> kvpool_copy_end
 *   kvpool_swap_in    -> (engine copies host to block) -> kvpool_copy_end
 * The block of a copy in flight is held by it, the slot is busy. A slot belongs to its block while that is on the device,
 * and to the suspended sequences that list it. One that only a block in no table keeps is dropped, oldest first, when a
 * checkpoint needs a slot and none is free; those of blocks in use stay (dropping one clean block for another gains nothing).
 * kvpool_suspend gives up a sequence's seat: its clean blocks [0, k) are kept as host slots, the rest is forgotten.
 * kvpool_suspend_tail, where all full ones are clean, keeps the partly filled last one too: it begins its copy, whose hold
 * keeps the block until it ended. No swap-in of the tail is given out before; when the copy fails, the tail is not kept.
 * kvpool_resume reserves device blocks for the whole sequence again, all or nothing; those that the index still has are
 * attached, each other one below k is a swap-in; when the last one ended the sequence is ready and committed says how far.
 * A copy that failed (checksum) cuts the sequence's table and committed before that block, once no swap-in of it is in
 * flight any more (those not begun are given up): the caller computes on from there. A suspended sequence with blocks kept
 * must not reserve or attach: resume or reset first. While resuming, commit asserts and forget keeps what will be committed.
 *
 * Hold: a step in flight holds every block it may touch (kvpool_hold at submit, kvpool_unhold when the engine
 * confirmed STEP_END or DROPPED). Releasing a held block does not free it: it becomes HELD until its last hold goes.
 *
 * Quota: each sequence names an account; a block is counted to the account that first took it, once, while any
 * sequence uses it; CACHED blocks count to nobody. reserve and resume fail where `quota` (0 = none) would be passed.
 *
 * Invariants, in the words kvpool_check uses (it recounts everything from scratch):
 *  I1 every block 1..n-1 is in exactly one state: FREE (on the free list, no table, no hold, no name), USED (in
 *     refs >= 1 tables), HELD (in no table, holds >= 1), CACHED (in the index, no table, no hold).
 *  I2 a block's refs = number of tables it appears in; its holds = number of live holds and copies that list it.
 *  I3 free count = length of the free list; free + used + held + cached = n - 1.
 *  I4 a table has exactly ceil(reserved / block_tokens) entries; committed <= reserved.
 *  I5 an uncommitted block is in one table only; only full committed blocks are shared, published or clean.
 *  I6 block 0 is in no table, list, index, copy or hold.
 *  I7 the index holds exactly the published blocks, each found by its own name; no name twice.
 *  I8 every host slot is in exactly one state: free, busy, kept; a kept slot's refs = suspended or resuming sequences
 *     that list it, + 1 while a block on the device is its; free + busy + kept = n_host.
 *  I9 an account's blocks = USED blocks counted to it.
 *
 * Failure: reserve, attach, suspend and resume are all or nothing, a failed call leaves no trace (evictions excepted).
 * Misuse (unknown sequence, forget below committed, double unhold) asserts. Cost: O(blocks touched), < 2 us a call on
 * 100,000 blocks.
 */
#ifndef SLUICE_KVPOOL_KVPOOL_H
#define SLUICE_KVPOOL_KVPOOL_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_SEQ_NONE UINT32_MAX
#define KV_HOLD_NONE UINT32_MAX
#define KV_COPY_NONE UINT32_MAX

struct kvpool_config {
    uint32_t n_blocks;       /* trash block included, >= 2 */
    uint32_t block_tokens;   /* positions in a block */
    uint32_t max_seqs;       /* open sequences, suspended ones included */
    uint32_t max_seq_blocks; /* longest table */
    uint32_t max_holds;      /* spans of all steps in flight */
    uint32_t n_host;         /* host slots, 0 = no host tier */
    uint32_t max_copies;     /* in flight at once; 0 with n_host 0 */
    uint32_t max_accounts;   /* 0 = 1 */
    bool prefix_cache;       /* false: publish does nothing, attach finds nothing, no memory for ids */
};

struct kv_ref { uint32_t id, generation; };

struct kvpool;

size_t kvpool_bytes(const struct kvpool_config *cfg);          /* size of the region; 0 = absurd config */
struct kvpool *kvpool_init(void *region, const struct kvpool_config *cfg); /* region: zeroed, 8-aligned */

/* KV_SEQ_NONE when none is left. Account 0 when there is no other; quota in blocks. */
uint32_t kvpool_seq_open(struct kvpool *p);
void kvpool_seq_account(struct kvpool *p, uint32_t seq, uint32_t account, uint32_t quota); /* while it has no block */
void kvpool_seq_close(struct kvpool *p, uint32_t seq);         /* gives back blocks and slots (held ones become HELD) */

/* Make the table cover positions [0, positions), evicting cached blocks where none is free. 0, or -1: not enough. */
int kvpool_reserve(struct kvpool *p, uint32_t seq, uint32_t positions);
/* Would it succeed, with `extra` blocks left over? (cached blocks count as room; quota looked at) */
bool kvpool_fits(const struct kvpool *p, uint32_t seq, uint32_t positions, uint32_t extra);
void kvpool_commit(struct kvpool *p, uint32_t seq, uint32_t positions);  /* committed := positions, only upwards */
void kvpool_forget(struct kvpool *p, uint32_t seq, uint32_t positions);  /* keep [0, positions) >= committed */
void kvpool_reset(struct kvpool *p, uint32_t seq);             /* no blocks, no slots, committed 0, still open */

uint32_t kvpool_committed(const struct kvpool *p, uint32_t seq);
uint32_t kvpool_reserved(const struct kvpool *p, uint32_t seq);
const uint32_t *kvpool_table(const struct kvpool *p, uint32_t seq, uint32_t *n); /* until the next change */

/* Hold all blocks now in the table of `seq`; KV_HOLD_NONE when max_holds are live. */
uint32_t kvpool_hold(struct kvpool *p, uint32_t seq);
void kvpool_unhold(struct kvpool *p, uint32_t hold);
/* Every block of the hold still has the generation it was held with. False = somebody gave a held block away: what the
 * step computed from it is not to be believed. Asked before a step's tokens are taken; O(blocks). */
bool kvpool_hold_valid(const struct kvpool *p, uint32_t hold);

/* ---- prefix cache ---- */

/* Names the full committed blocks of `seq` that have none yet; ids are the sequence's own from position 0, at least
 * committed of them. A block whose name the index has already stays unnamed (private). rank: of the sequence.
 * Each block is looked at once, again after a resume: a private one does not take a name that becomes free later. */
void kvpool_publish(struct kvpool *p, uint32_t seq, struct hash128 root, const int32_t *ids, uint8_t rank);
/* Positions of ids[0, n_ids) that attach would find, at most n_ids - 1 (one input must be left to compute). */
uint32_t kvpool_match(const struct kvpool *p, struct hash128 root, const int32_t *ids, uint32_t n_ids);
/* The same, taken: `seq` has no blocks yet; afterwards committed = reserved = what is returned. Less than match said
 * where the next block would pass the quota. */
uint32_t kvpool_attach(struct kvpool *p, uint32_t seq, struct hash128 root, const int32_t *ids, uint32_t n_ids);

/* ---- host tier ---- */

struct kv_copy { uint32_t copy, block, slot; };

/* Begins the checkpoint of the first full committed block of `seq` that is neither clean nor on its way. false: none,
 * or no slot or copy is free. `generation` of the block is held by the copy. */
bool kvpool_checkpoint(struct kvpool *p, uint32_t seq, struct kv_copy *out);
/* Full committed blocks of seq that are not clean. */
uint32_t kvpool_unclean(const struct kvpool *p, uint32_t seq);
/* Seat given up; returns positions kept on the host. The sequence stays open, without blocks. */
uint32_t kvpool_suspend(struct kvpool *p, uint32_t seq);
/* The same, with the tail: out->copy is KV_COPY_NONE when there is none to copy, or no slot or copy is free. No step in
 * flight may still write that block when the engine copies it: who has it in a step waits for the step's end, or drop. */
uint32_t kvpool_suspend_tail(struct kvpool *p, uint32_t seq, struct kv_copy *out);
uint32_t kvpool_kept(const struct kvpool *p, uint32_t seq);     /* positions on the host of a suspended one */
/* Device blocks for [0, positions), positions >= kept; -1: not enough. Blocks that the index has are attached (those
 * directly behind the kept ones too); kvpool_swap_in gives the copies to be made, until false. With nothing to copy it is
 * ready at once. Zero root or ids NULL: the index is not asked. */
int kvpool_resume(struct kvpool *p, uint32_t seq, uint32_t positions, struct hash128 root, const int32_t *ids,
                  uint32_t n_ids);
bool kvpool_swap_in(struct kvpool *p, uint32_t seq, struct kv_copy *out); /* false: none left, or no copy is free */
bool kvpool_resuming(const struct kvpool *p, uint32_t seq);     /* swap-ins are left or in flight */
/* The copy ended; ok false: its bytes cannot be trusted. Legal after its sequence closed, reset or was suspended. False =
 * block or slot are not what they were when it began (a late copy): its bytes went where they did not belong. */
bool kvpool_copy_end(struct kvpool *p, uint32_t copy, bool ok);

/* ---- looking ---- */

struct kv_ref kvpool_ref(const struct kvpool *p, uint32_t block);
bool kvpool_ref_valid(const struct kvpool *p, struct kv_ref r);

struct kvpool_stats {
    uint32_t total, free, used, held, seqs, holds;
    uint32_t cached;                       /* room, after the free ones */
    uint32_t host_total, host_free, host_busy, copies;
    uint64_t hits, misses, evictions;      /* blocks attached, blocks that attach looked for and did not find */
    uint64_t checkpoints, swap_ins, copy_failures, host_dropped;
};
struct kvpool_stats kvpool_stats(const struct kvpool *p);
uint32_t kvpool_account_blocks(const struct kvpool *p, uint32_t account);
uint32_t kvpool_blocks_for(const struct kvpool *p, uint32_t positions);  /* ceil */
/* Blocks that would really become free or cached if `seq` left: those in no other table. */
uint32_t kvpool_own_blocks(const struct kvpool *p, uint32_t seq);
/* Debug switch: at most n blocks (trash excluded) may be in use; 0 = all. Cached blocks above it are evicted. */
void kvpool_shrink(struct kvpool *p, uint32_t n);

/* Fault injection, for tests of the checks alone: gives a block away in spite of refs and holds, so that its generation
 * rises while somebody still uses it. The pool is not to be used for anything but looking afterwards. */
void kvpool_debug_free_early(struct kvpool *p, uint32_t block);

/* The auditor: NULL when all invariants hold, else the broken one in words. O(pool). */
const char *kvpool_check(const struct kvpool *p);

#endif
