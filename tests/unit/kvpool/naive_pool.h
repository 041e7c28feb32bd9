/* naive_pool.h - what kvpool.h promises, a second time and as simply as possible: plain arrays that are
 * scanned, no index, no lists, no hashes of blocks. Beside the bookkeeping it has the bytes, one number
 * per block and slot, so that a wrong block shows as wrong bytes and not only as a wrong count.
 *
 * Which free id a call takes is the pool's business: the model is told the answer and requires that
 * the rules allow it. What is evicted, found, kept, copied and counted it says by itself.
 * Order of use: pool's call, the model's call of the same name with its answer, naive_settle. */
#ifndef SLUICE_TESTS_NAIVE_POOL_H
#define SLUICE_TESTS_NAIVE_POOL_H

#include "kvpool/kvpool.h"

#include <check.h>

/* ck_assert writes to a pipe each time; millions of checks ask first. */
#define REQUIRE(cond)                                                       \
    do {                                                                    \
        if (!(cond)) ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #cond);  \
    } while (0)

enum {
    NAIVE_BLOCKS = 512,
    NAIVE_SEQS = 48,
    NAIVE_TABLE = 16,
    NAIVE_HOLDS = 16,
    NAIVE_SLOTS = 256,
    NAIVE_COPIES = 8,
    NAIVE_ACCOUNTS = 3,
    NAIVE_TOKENS = 4, /* in a block */
    NAIVE_NONE = -1,
};

struct naive_block {
    uint32_t generation, refs, holds, account;
    bool cached, published, hit, urgent;
    uint64_t name; /* says all ids up to its end, and the root */
    uint64_t used_at, order;
    int slot;
    uint64_t bytes;
};

struct naive_seq {
    bool open, resuming;
    uint32_t reserved, committed, n, account, quota;
    uint32_t looked; /* blocks that publish looked at */
    uint32_t table[NAIVE_TABLE];
    uint32_t n_kept, good, bad; /* bad: first block whose swap-in failed, NAIVE_TABLE = none */
    uint32_t tail;              /* positions in the last kept slot where it is no whole block, 0 */
    int kept[NAIVE_TABLE];      /* slots */
    bool begun[NAIVE_TABLE];
    /* what it is about, from the driver */
    struct hash128 root;
    uint64_t text;
    int32_t ids[NAIVE_TABLE * NAIVE_TOKENS + 1];
    uint64_t names[NAIVE_TABLE];
    uint8_t rank;
};

struct naive_hold {
    bool live;
    uint32_t n, ids[NAIVE_TABLE];
};

struct naive_slot {
    uint32_t refs, block; /* block 0 = none */
    uint64_t bytes, since; /* since: the call that made it free or loose */
    int status;
};

struct naive_copy {
    bool live, to_host;
    uint32_t block, slot, at;
    int seq;
};

enum naive_status { NAIVE_FREE, NAIVE_LOOSE, NAIVE_BUSY, NAIVE_KEPT };

struct naive {
    struct kvpool_config cfg;
    struct naive_block blocks[NAIVE_BLOCKS];
    struct naive_seq seqs[NAIVE_SEQS];
    struct naive_hold holds[NAIVE_HOLDS];
    struct naive_slot slots[NAIVE_SLOTS];
    struct naive_copy copies[NAIVE_COPIES];
    uint32_t cap;
    uint64_t clock, order, garbage, calls;
    uint64_t hits, misses, evictions, checkpoints, swap_ins, failures, dropped;
};

void naive_init(struct naive *m, const struct kvpool_config *cfg);
void naive_settle(struct naive *m);

void naive_open(struct naive *m, uint32_t seq);
bool naive_fits(const struct naive *m, uint32_t seq, uint32_t positions, uint32_t extra);
/* `table`: of the sequence after the call. */
void naive_reserve(struct naive *m, uint32_t seq, uint32_t positions, int rc, const uint32_t *table);
void naive_commit(struct naive *m, uint32_t seq, uint32_t positions);
void naive_forget(struct naive *m, uint32_t seq, uint32_t positions);
void naive_reset(struct naive *m, uint32_t seq);
void naive_close(struct naive *m, uint32_t seq);
void naive_hold(struct naive *m, uint32_t seq, uint32_t hold);
void naive_unhold(struct naive *m, uint32_t hold);
void naive_publish(struct naive *m, uint32_t seq);
uint32_t naive_match(const struct naive *m, uint32_t seq, uint32_t n_ids);
uint32_t naive_attach(struct naive *m, uint32_t seq, uint32_t n_ids);
void naive_shrink(struct naive *m, uint32_t n);

void naive_checkpoint(struct naive *m, uint32_t seq, bool begun, struct kv_copy k);
uint32_t naive_suspend(struct naive *m, uint32_t seq);
uint32_t naive_suspend_tail(struct naive *m, uint32_t seq, struct kv_copy k);
void naive_resume(struct naive *m, uint32_t seq, uint32_t positions, uint32_t n_ids, int rc,
                  const uint32_t *table);
void naive_swap_in(struct naive *m, uint32_t seq, bool begun, struct kv_copy k);
void naive_copy_end(struct naive *m, uint32_t copy, bool ok);

/* Everything the pool says about itself must be what the model says. */
void naive_compare(const struct naive *m, const struct kvpool *p);

/* For the model's own files. */
uint32_t naive_in_use(const struct naive *m, uint32_t *cached);
void naive_take(struct naive *m, uint32_t account, uint32_t block);
void naive_join(struct naive *m, uint32_t account, uint32_t block);
void naive_rest(struct naive *m, uint32_t block);
void naive_cut(struct naive *m, uint32_t seq, uint32_t n);
uint32_t naive_find(const struct naive *m, uint64_t name); /* 0 = none */
/* Positions that the first `blocks` kept entries stand for. */
uint32_t naive_positions(const struct naive_seq *s, uint32_t blocks);
/* The bytes of a block that is filled up to this position of the sequence. */
uint64_t naive_bytes(const struct naive_seq *s, uint32_t positions);
bool naive_clean(const struct naive *m, uint32_t block);
uint32_t naive_account_blocks(const struct naive *m, uint32_t account);

#endif
