/* worker_core's prefix cache: hits, single-flight, roles, roots; and quotas by account. */
#include "tests/unit/scheduler/wfix.h"

static void setup(void)
{
    wfix_config();
    cfg.pool.prefix_cache = true;
    cfg.pool.max_accounts = 4;
    cfg.prefill_chunk = 8;
    cfg.max_slots = 72;
    wfix_start();
}

static void restart(void)
{
    wfix_stop();
    wfix_start();
}

/* The bar: K equal prompts at once compute one prompt and, each, what no full block covers. */
START_TEST(test_equal_prompts_compute_one)
{
    static const uint32_t lengths[] = {41, 44, 33, 5, 4, 3, 100};
    for (uint32_t k = 0; k < 7 * 6 * 2; k++) {
        uint32_t len = lengths[k % 7], n = 2u << (k / 7 % 6), cls = k / 42;
        struct sub_id s[64];
        restart();
        for (uint32_t i = 0; i < n; i++)
            s[i] = wfix_shared((uint8_t)cls, 100 + i, 7, len, len, 1, 1);
        wfix_run(20000);
        for (uint32_t i = 0; i < n; i++) wfix_expect_indexes(s[i], len, len + 1);
        ck_assert_msg(w->computed <= len + n * (1 + (len - 1) % VW_BT),
                      "%u prompts of %u: %llu computed", n, len, (unsigned long long)w->computed);
        struct worker_stats st = wfix_stats();
        ck_assert_uint_eq(st.account[cls].prompt_first + st.account[cls].recomputed, w->computed);
        if (len > 16) ck_assert_uint_gt(st.followers, 0); /* else one step is all */
        ck_assert_uint_eq(st.pool.free + st.pool.cached, st.pool.total);
    }
}
END_TEST

/* Only the beginning is shared: each computes its own rest, and the shared part once. */
START_TEST(test_common_system_prompt)
{
    struct sub_id s[12];
    for (uint32_t i = 0; i < 12; i++)
        s[i] = wfix_shared(CLASS_BATCH, 100 + i, 7, 60, 70 + i, 5, 1);
    wfix_run(20000);
    uint64_t own = 0;
    for (uint32_t i = 0; i < 12; i++) {
        wfix_expect_indexes(s[i], 70 + i, 75 + i);
        own += 10 + i + 4; /* its own rest, and four of its outputs */
    }
    ck_assert_uint_le(w->computed, 60 + own);
}
END_TEST

START_TEST(test_a_waiter_blocks_nobody)
{
    struct sub_id a = wfix_shared(CLASS_BATCH, 1, 7, 100, 100, 2, 1);
    struct sub_id b = wfix_shared(CLASS_BATCH, 2, 7, 100, 100, 2, 1);
    struct sub_id c = wfix_shared(CLASS_BATCH, 3, 0, 0, 9, 2, 1);
    wfix_run(14); /* two steps: b waits without a seat, c has one */
    ck_assert_uint_eq(wfix_stats().active[CLASS_BATCH], 2);
    ck_assert_uint_eq(wfix_stats().waiting[CLASS_BATCH], 1);
    wfix_run(20000);
    wfix_expect_indexes(a, 100, 102);
    wfix_expect_indexes(b, 100, 102);
    wfix_expect_indexes(c, 9, 11);
}
END_TEST

/* The leader ends before it is through: a waiter leads, from the last committed block on. */
START_TEST(test_the_waiter_leads_when_the_leader_is_gone)
{
    struct sub_id s[4];
    for (uint32_t i = 0; i < 4; i++) s[i] = wfix_shared(CLASS_BATCH, 10 + i, 7, 90, 90, 1, 1);
    wfix_run(32);
    wfix_link(WE_CANCEL, s[0], 0);
    wfix_run(20000);
    for (uint32_t i = 1; i < 4; i++) wfix_expect_indexes(s[i], 90, 91);
    ck_assert_uint_le(w->computed, 90 + 3 * 2 + 8); /* and the dropped chunk */
}
END_TEST

/* A lower leader gives way: the urgent one computes on from what is published, the lower waits. */
START_TEST(test_roles_change_for_a_higher_rank)
{
    struct sub_id b = wfix_shared(CLASS_BATCH, 1, 7, 100, 100, 3, 1);
    wfix_run(32);
    uint64_t had = w->computed;
    ck_assert_uint_gt(had, 0);
    struct sub_id r = wfix_shared(CLASS_REALTIME, 2, 7, 100, 100, 3, 1);
    wfix_run(1);
    ck_assert_uint_eq(wfix_stats().role_changes, 1);
    while (wfix_last(r) == NULL) ck_assert(wfix_segment());
    ck_assert_ptr_null(wfix_last(b));
    ck_assert_uint_le(w->computed, 100 + 8);
    wfix_run(20000);
    wfix_expect_indexes(b, 100, 103);
    wfix_expect_indexes(r, 100, 103);
    ck_assert_uint_le(w->computed, 100 + 8 + 2 * 3 + 4);
}
END_TEST

/* The other way round the lower one waits for the urgent one. */
START_TEST(test_a_lower_one_waits_for_a_higher)
{
    struct sub_id r = wfix_shared(CLASS_REALTIME, 1, 7, 100, 100, 3, 1);
    wfix_run(8);
    struct sub_id b = wfix_shared(CLASS_BATCH, 2, 7, 100, 100, 3, 1);
    wfix_run(20000);
    ck_assert_uint_eq(wfix_stats().role_changes, 0);
    ck_assert_uint_eq(wfix_stats().preemptions, 0);
    ck_assert_uint_le(w->computed, 100 + 4 + 2 * 2);
    wfix_expect_indexes(r, 100, 103);
    wfix_expect_indexes(b, 100, 103);
}
END_TEST

START_TEST(test_tenants_share_nothing)
{
    struct sub_id a = wfix_shared(CLASS_BATCH, 1, 7, 40, 40, 2, 1);
    struct sub_id b = wfix_shared(CLASS_BATCH, 2, 7, 40, 40, 2, 2);
    struct sub_id z = wfix_shared(CLASS_BATCH, 3, 7, 40, 40, 2, 0);
    wfix_run(20000);
    wfix_expect_indexes(a, 40, 42);
    wfix_expect_indexes(b, 40, 42);
    wfix_expect_indexes(z, 40, 42);
    ck_assert_uint_eq(wfix_stats().pool.hits, 0);
    ck_assert_uint_eq(wfix_stats().followers, 0);
}
END_TEST

/* Rows of the prompt are made by computing it. */
START_TEST(test_prompt_scores_take_no_hits)
{
    struct sub_id a = wfix_shared(CLASS_BATCH, 1, 7, 40, 40, 2, 1), sub = {9, next_counter++};
    wfix_run(20000);
    wfix_expect_indexes(a, 40, 42);
    struct vw_submit s = {.key = 2,
                          .n_prompt = 40,
                          .n_tokens = 40,
                          .from = 1,
                          .max_total = 42,
                          .cls = CLASS_BATCH,
                          .shared_key = 7,
                          .n_shared = 40,
                          .scope = 1};
    vw_submit(w, GW, sub, &s, now, NULL);
    wfix_run(20000);
    wfix_expect_indexes(sub, 1, 42);
    ck_assert_uint_eq(wfix_stats().pool.hits, 0);
}
END_TEST

/* An answer stays too: the next turn of a conversation computes only what was said since. */
START_TEST(test_the_answer_is_cache_for_the_next_turn)
{
    struct sub_id a = wfix_shared(CLASS_REALTIME, 5, 0, 0, 30, 31, 1);
    wfix_run(20000);
    wfix_expect_indexes(a, 30, 61);
    uint64_t before = w->computed;
    struct sub_id b = wfix_shared(CLASS_REALTIME, 6, 5, 61, 70, 1, 1);
    wfix_run(20000);
    wfix_expect_indexes(b, 70, 71);
    ck_assert_uint_eq(w->computed - before, 70 - 60);
}
END_TEST

/* Cached blocks are room: they go before anybody waits. */
START_TEST(test_cached_blocks_give_way)
{
    cfg.pool.n_blocks = 33;
    restart();
    for (uint64_t i = 0; i < 12; i++) {
        struct sub_id a = wfix_shared(CLASS_BATCH, 20 + i, 0, 0, 60, 10, 1);
        wfix_run(20000);
        wfix_expect_indexes(a, 60, 70);
    }
    ck_assert_uint_gt(wfix_stats().pool.evictions, 0);
    ck_assert_uint_eq(wfix_stats().preemptions, 0);
}
END_TEST

/* Computed again after a loss, from what is still there. */
START_TEST(test_preempted_hits_its_own_blocks)
{
    cfg.max_seqs = 1;
    restart();
    struct sub_id b = wfix_shared(CLASS_BATCH, 1, 0, 0, 60, 20, 1);
    wfix_run(100);
    struct sub_id r = wfix_submit(CLASS_REALTIME, 8, 3, 2);
    wfix_run(20000);
    ck_assert_int_eq(wfix_finish(r), FINISH_LENGTH);
    wfix_expect_indexes(b, 60, 80);
    ck_assert_uint_ge(wfix_stats().preemptions, 1);
    ck_assert_uint_lt(wfix_stats().account[CLASS_BATCH].recomputed, VW_BT + 8);
}
END_TEST

/* At its quota an account waits, and those behind it do not. */
START_TEST(test_a_full_account_blocks_nobody)
{
    struct sub_id a = wfix_account(CLASS_BATCH, 1, 30, 10, 1, 12, 1);
    struct sub_id b = wfix_account(CLASS_BATCH, 2, 30, 10, 1, 12, 2);
    struct sub_id c = wfix_account(CLASS_BATCH, 3, 30, 10, 2, 12, 3);
    wfix_run(8);
    ck_assert_uint_eq(wfix_stats().active[CLASS_BATCH], 2);
    ck_assert_uint_le(kvpool_account_blocks(worker_core_pool(w->core), 1), 12);
    wfix_run(20000);
    wfix_expect_indexes(a, 30, 40);
    wfix_expect_indexes(b, 30, 40);
    wfix_expect_indexes(c, 30, 40);
    struct sub_id d = wfix_account(CLASS_BATCH, 4, 30, 30, 1, 12, 4); /* 59 positions: 15 blocks */
    ck_assert_int_eq(wfix_finish(d), FINISH_TOO_LARGE);
}
END_TEST

/* An urgent one at its account's quota takes blocks of its own tenant, never another's. */
START_TEST(test_quota_preempts_own_only)
{
    struct sub_id a = wfix_account(CLASS_BATCH, 1, 40, 5, 1, 14, 1);
    struct sub_id c = wfix_account(CLASS_BATCH, 3, 40, 5, 2, 14, 2);
    wfix_run(14);
    struct sub_id r = wfix_account(CLASS_REALTIME, 4, 30, 5, 1, 14, 3);
    while (wfix_last(r) == NULL) ck_assert(wfix_segment());
    ck_assert_uint_eq(wfix_stats().preemptions, 1);
    ck_assert_uint_eq(kvpool_account_blocks(worker_core_pool(w->core), 2), 10);
    wfix_run(20000);
    wfix_expect_indexes(a, 40, 45);
    wfix_expect_indexes(c, 40, 45);
    wfix_expect_indexes(r, 30, 35);
}
END_TEST

/* Two of one account grow into its quota: one falls and comes back, both end. */
START_TEST(test_growth_within_a_quota)
{
    struct sub_id s[3];
    for (uint64_t i = 0; i < 3; i++) s[i] = wfix_account(CLASS_BATCH, 10 + i, 8, 60, 1, 20, i);
    wfix_run(40000);
    for (int i = 0; i < 3; i++) wfix_expect_indexes(s[i], 8, 68);
}
END_TEST

/* A preempted sequence comes before its tenant's others; another tenant's tag decides as ever. */
START_TEST(test_preempted_before_its_tenants_others)
{
    cfg.max_seqs = 1;
    restart();
    struct sub_id a = wfix_account(CLASS_BATCH, 1, 8, 20, 1, 0, 50);
    wfix_run(20);
    struct sub_id b = wfix_account(CLASS_BATCH, 2, 8, 2, 1, 0, 10);
    struct sub_id c = wfix_account(CLASS_BATCH, 3, 8, 2, 2, 0, 5);
    struct sub_id d = wfix_account(CLASS_BATCH, 4, 8, 2, 2, 0, 20);
    struct sub_id r = wfix_account(CLASS_REALTIME, 5, 8, 2, 0, 0, 0);
    wfix_run(20000);
    struct sub_id want[] = {r, c, a, b, d};
    uint32_t at = 0;
    for (uint32_t i = 0; i < w->n_out; i++) {
        if (w->out[i].kind == VW_TOKENS && w->out[i].finish == FINISH_LENGTH)
            ck_assert_msg(sub_id_equal(w->out[i].sub, want[at++]), "end %u", at - 1);
    }
    ck_assert_uint_eq(at, 5);
}
END_TEST

/* Somebody gives a block away under a running step: its token is not believed. */
START_TEST(test_a_block_given_away_is_seen)
{
    struct sub_id a = wfix_submit(CLASS_BATCH, 1, 9, 20);
    wfix_run(20);
    uint32_t sent = wfix_last(a)->from + wfix_last(a)->n, n;
    ck_assert(vw_busy(w));
    struct kvpool *pool = (struct kvpool *)(uintptr_t)worker_core_pool(w->core);
    uint32_t block = kvpool_table(pool, 0, &n)[0];
    kvpool_debug_free_early(pool, block);
    while (wfix_stats().faults == 0) { /* auditors are of no use any more */
        now += 1000000;
        ck_assert(vw_advance(w, now, NULL));
    }
    ck_assert_uint_eq(wfix_stats().faults, 1);
    ck_assert_uint_eq(wfix_last(a)->from + wfix_last(a)->n, sent);
    ck_assert_int_eq(wfix_finish(a), FINISH_NONE);
    mem_free(w->core);
    w->core = worker_core_init(mem_zalloc(worker_core_bytes(&cfg)), &cfg);
    w->bad = NULL;
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("cache");
    tcase_add_checked_fixture(tc, setup, wfix_stop);
    tcase_add_test(tc, test_equal_prompts_compute_one);
    tcase_add_test(tc, test_common_system_prompt);
    tcase_add_test(tc, test_a_waiter_blocks_nobody);
    tcase_add_test(tc, test_the_waiter_leads_when_the_leader_is_gone);
    tcase_add_test(tc, test_roles_change_for_a_higher_rank);
    tcase_add_test(tc, test_a_lower_one_waits_for_a_higher);
    tcase_add_test(tc, test_tenants_share_nothing);
    tcase_add_test(tc, test_prompt_scores_take_no_hits);
    tcase_add_test(tc, test_the_answer_is_cache_for_the_next_turn);
    tcase_add_test(tc, test_cached_blocks_give_way);
    tcase_add_test(tc, test_preempted_hits_its_own_blocks);
    tcase_add_test(tc, test_a_full_account_blocks_nobody);
    tcase_add_test(tc, test_quota_preempts_own_only);
    tcase_add_test(tc, test_growth_within_a_quota);
    tcase_add_test(tc, test_preempted_before_its_tenants_others);
    tcase_add_test(tc, test_a_block_given_away_is_seen);
    return wfix_main("worker_cache", tc);
}
