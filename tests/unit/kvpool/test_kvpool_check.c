/* Each invariant of kvpool.h can be seen broken: a healthy pool with everything in it is copied, one
 * word of the copy is spoilt by hand, and the auditor must name the invariant. */
#include "base/mem.h"
#include "kvpool/kvpool_impl.h"
#include "tests/common/test_run.h"

#include <stdlib.h>
#include <string.h>

enum { BT = 4 };
static struct kvpool *healthy, *pool;
static uint32_t running, away, cached_block, spare_block, flight;
static const struct hash128 root = {31, 32};
static const struct kvpool_config cfg = {.n_blocks = 24,
                                         .block_tokens = BT,
                                         .max_seqs = 6,
                                         .max_seq_blocks = 8,
                                         .max_holds = 4,
                                         .n_host = 6,
                                         .max_copies = 3,
                                         .max_accounts = 2,
                                         .prefix_cache = true};

static uint32_t computed(const int32_t *ids, uint32_t n)
{
    uint32_t seq = kvpool_seq_open(pool);
    ck_assert_int_eq(kvpool_reserve(pool, seq, n), 0);
    kvpool_commit(pool, seq, n);
    kvpool_publish(pool, seq, root, ids, 1);
    return seq;
}

/* One that runs (3 blocks, held), one away with a slot, two cached blocks, a checkpoint in flight. */
static void setup(void)
{
    int32_t ids[3][16];
    for (int i = 0; i < 48; i++) ids[i / 16][i % 16] = i;
    pool = kvpool_init(mem_zalloc(kvpool_bytes(&cfg)), &cfg);
    struct kv_copy k;
    away = computed(ids[0], 4);
    ck_assert(kvpool_checkpoint(pool, away, &k));
    ck_assert(kvpool_copy_end(pool, k.copy, true));
    ck_assert_uint_eq(kvpool_suspend(pool, away), 4);
    uint32_t gone = computed(ids[1], 4), n;
    cached_block = kvpool_table(pool, gone, &n)[0];
    kvpool_seq_close(pool, gone);
    running = computed(ids[2], 10);
    ck_assert_uint_ne(kvpool_hold(pool, running), KV_HOLD_NONE);
    ck_assert(kvpool_checkpoint(pool, running, &k));
    flight = k.copy;
    spare_block = pool->free_head;
    ck_assert_ptr_null(kvpool_check(pool));
    healthy = mem_memdup(pool, kvpool_bytes(&cfg));
}

static void teardown(void)
{
    mem_free(pool);
    mem_free(healthy);
}

/* The spoilt pool is called broken in the invariant's name; then it is whole again. */
static void broken(const char *invariant)
{
    const char *bad = kvpool_check(pool);
    ck_assert_msg(bad != NULL, "%s is not missed", invariant);
    ck_assert_msg(strncmp(bad, invariant, strlen(invariant)) == 0, "%s: %s", invariant, bad);
    memcpy(pool, healthy, kvpool_bytes(&cfg));
    ck_assert_ptr_null(kvpool_check(pool));
}

static struct kv_block *first_block(void)
{
    return &kv_blocks(pool)[kv_seq_table(pool, running)[0]];
}

START_TEST(test_i1_one_state)
{
    kv_blocks(pool)[pool->free_head].next = cached_block; /* cached and free at once */
    broken("I1");
    pool->used--;
    broken("I1");
    pool->held++;
    broken("I1");
    pool->lists[0].head = pool->lists[0].tail = KV_END; /* cached, on no list */
    broken("I1");
    kv_names(pool)[cached_block].urgent = 1; /* on the wrong one */
    broken("I1");
    kv_names(pool)[cached_block].cached = 0;
    broken("I1");
}
END_TEST

START_TEST(test_i2_counts)
{
    first_block()->refs++;
    broken("I2");
    first_block()->holds++;
    broken("I2");
    first_block()->holds = 0;
    broken("I2");
    uint32_t *ids = kv_hold_ids(pool, 0), was = ids[1]; /* equal sums, one high and one low */
    ids[1] = ids[0];
    ck_assert_uint_ne(was, ids[0]);
    broken("I2");
    kv_seq_table(pool, running)[1] = cfg.n_blocks;
    broken("I2");
}
END_TEST

START_TEST(test_i3_free_list)
{
    pool->free_count--;
    broken("I3");
    kv_blocks(pool)[spare_block].next = KV_END; /* the rest is lost */
    broken("I3");
    kv_blocks(pool)[spare_block].next = spare_block; /* a ring */
    broken("I3");
}
END_TEST

START_TEST(test_i4_tables)
{
    kv_seqs(pool)[running].reserved += BT;
    broken("I4");
    kv_seqs(pool)[running].committed = kv_seqs(pool)[running].reserved + 1;
    broken("I4");
    kv_seqs(pool)[running].open = 0;
    broken("I4");
}
END_TEST

START_TEST(test_i5_only_full_committed_blocks_are_shared)
{
    kv_seqs(pool)[running].committed = 5; /* its second block is published */
    broken("I5");
    kv_blocks(pool)[kv_seq_table(pool, running)[2]].refs = 2; /* its tail is shared */
    broken("I5");
    kv_tiers(pool)[kv_seq_table(pool, running)[2]].slot = 5; /* its tail is clean */
    broken("I5");
}
END_TEST

START_TEST(test_i6_trash_block)
{
    kv_seq_table(pool, running)[2] = 0;
    broken("I6");
    kv_hold_ids(pool, 0)[0] = 0;
    broken("I6");
    kv_copies(pool)[flight].block = 0;
    broken("I6");
    kv_blocks(pool)[0].refs = 1;
    broken("I6");
    kv_names(pool)[0].published = 1;
    broken("I6");
}
END_TEST

START_TEST(test_i7_index)
{
    uint32_t *index = kv_index(pool), at = 0;
    while (index[at] == 0) at++;
    uint32_t found = index[at];
    index[at] = 0;
    broken("I7");
    index[at] = spare_block;
    broken("I7");
    while (index[at] != 0) at = (at + 1) % pool->index_size;
    index[at] = found; /* twice */
    broken("I7");
    kv_names(pool)[cached_block].hash.hi++;
    broken("I7");
    kv_ids(pool)[(size_t)cached_block * BT]++;
    broken("I7");
    uint32_t twin = kv_seq_table(pool, running)[0]; /* one name twice */
    kv_names(pool)[cached_block].parent = kv_names(pool)[twin].parent;
    kv_names(pool)[cached_block].hash = kv_names(pool)[twin].hash;
    memcpy(&kv_ids(pool)[(size_t)cached_block * BT], &kv_ids(pool)[(size_t)twin * BT], BT * 4);
    broken("I7");
}
END_TEST

START_TEST(test_i8_slots)
{
    uint32_t kept = kv_kept_table(pool, away)[0];
    kv_slots(pool)[kept].refs++;
    broken("I8");
    kv_slots(pool)[kept].block = spare_block;
    broken("I8");
    pool->slot_free++;
    broken("I8");
    pool->slot_busy--;
    broken("I8");
    kv_slots(pool)[pool->free_slots.head].next = KV_END;
    broken("I8");
    kv_slots(pool)[kv_copies(pool)[flight].slot].copies = 0;
    broken("I8");
    kv_stays(pool)[away].n = 2;
    broken("I8");
    kv_kept_table(pool, away)[0] = pool->free_slots.head;
    broken("I8");
    kv_tiers(pool)[spare_block].slot = kept;
    broken("I8");
}
END_TEST

START_TEST(test_i9_accounts)
{
    kv_accounts(pool)[0]--;
    kv_accounts(pool)[1]++;
    broken("I9");
    kv_accounts(pool)[0]++;
    broken("I9");
    first_block()->account = 1;
    broken("I9");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool_check");
    TCase *tc = tcase_create("invariants");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_i1_one_state);
    tcase_add_test(tc, test_i2_counts);
    tcase_add_test(tc, test_i3_free_list);
    tcase_add_test(tc, test_i4_tables);
    tcase_add_test(tc, test_i5_only_full_committed_blocks_are_shared);
    tcase_add_test(tc, test_i6_trash_block);
    tcase_add_test(tc, test_i7_index);
    tcase_add_test(tc, test_i8_slots);
    tcase_add_test(tc, test_i9_accounts);
    suite_add_tcase(s, tc);
    return test_run(s);
}
