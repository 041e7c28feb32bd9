/* Random calls of everything kvpool.h has, against the naive model: no difference is allowed in any
 * answer, count, table, generation, choice of what is evicted, or in the bytes behind the tables.
 * Sequences draw their ids from a few texts that they leave at random places, so prefixes are shared.
 * `quick` or `full`; TEST_SEED and TEST_OPS (percent of the calls) repeat or lengthen a run. */
#include "base/hash.h"
#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/unit/kvpool/naive_pool.h"

#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 4, N_KINDS = 16 };

static const char *const kind_names[N_KINDS] = {
    "reserve", "commit", "publish",  "attach",   "hold",  "unhold", "forget", "checkpoint",
    "suspend", "resume", "swap in", "copy end", "reset", "close",  "shrink", "open"};

struct run {
    struct naive m;
    struct kvpool *p;
    uint64_t seed, counter, unique, tails;
    uint64_t done[N_KINDS], refused[N_KINDS];
};

static bool full_run;

static uint32_t pick(struct run *r, uint32_t below)
{
    return (uint32_t)(rand_at(r->seed, r->counter++) % below);
}

/* What the sequence is about; its names are its own text up to each block's end, hashed in one piece. */
static void draw_text(struct run *r, uint32_t seq)
{
    struct naive_seq *s = &r->m.seqs[seq];
    uint32_t text = pick(r, N_TEXTS), n = NAIVE_TABLE * NAIVE_TOKENS + 1;
    uint32_t leaves = pick(r, 3) ? pick(r, n + 1) : n;
    int32_t own = (int32_t)(1000000 + r->unique++ % 1000000);
    s->rank = (uint8_t)pick(r, 2);
    s->root = prefix_root(&text, 1, text & 1u);
    s->text = text;
    for (uint32_t i = 0; i < n; i++)
        s->ids[i] = i < leaves ? (int32_t)((text / 2) * 1000 + i) : own + (int32_t)i;
    for (uint32_t k = 0; k < NAIVE_TABLE; k++)
        s->names[k] = naive_bytes(s, (k + 1) * NAIVE_TOKENS);
}

static bool is_bare(const struct naive_seq *s)
{
    return s->n == 0 && s->n_kept == 0;
}

static bool is_here(const struct naive_seq *s)
{
    return s->n_kept == 0 || s->resuming;
}

static uint32_t draw_positions(struct run *r)
{
    return pick(r, (r->m.cfg.max_seq_blocks + 1) * NAIVE_TOKENS);
}

static bool op_open(struct run *r)
{
    uint32_t got = kvpool_seq_open(r->p), account = pick(r, NAIVE_ACCOUNTS);
    naive_open(&r->m, got);
    if (got == KV_SEQ_NONE) return false;
    uint32_t quota = pick(r, 3) ? 0 : 1 + pick(r, r->m.cfg.n_blocks);
    kvpool_seq_account(r->p, got, account, quota);
    r->m.seqs[got].account = account;
    r->m.seqs[got].quota = quota;
    draw_text(r, got);
    return true;
}

static bool op_reserve(struct run *r, uint32_t seq)
{
    struct naive_seq *s = &r->m.seqs[seq];
    uint32_t want = pick(r, 2) ? draw_positions(r) : s->reserved + pick(r, 2 * NAIVE_TOKENS), n;
    uint32_t extra = pick(r, 4);
    if (!is_here(s)) return false;
    REQUIRE(kvpool_fits(r->p, seq, want, extra) == naive_fits(&r->m, seq, want, extra));
    int rc = kvpool_reserve(r->p, seq, want);
    naive_reserve(&r->m, seq, want, rc, kvpool_table(r->p, seq, &n));
    return rc == 0;
}

static bool op_commit(struct run *r, uint32_t seq)
{
    struct naive_seq *s = &r->m.seqs[seq];
    if (s->resuming || s->reserved == s->committed) return false;
    uint32_t at = s->committed + 1 + pick(r, s->reserved - s->committed);
    kvpool_commit(r->p, seq, at);
    naive_commit(&r->m, seq, at);
    return true;
}

static bool op_publish(struct run *r, uint32_t seq)
{
    struct naive_seq *s = &r->m.seqs[seq];
    kvpool_publish(r->p, seq, s->root, s->ids, s->rank);
    naive_publish(&r->m, seq);
    return true;
}

static bool op_attach(struct run *r, uint32_t seq)
{
    struct naive_seq *s = &r->m.seqs[seq];
    uint32_t n_ids = pick(r, r->m.cfg.max_seq_blocks * NAIVE_TOKENS + 2);
    REQUIRE(kvpool_match(r->p, s->root, s->ids, n_ids) == naive_match(&r->m, seq, n_ids));
    if (!is_bare(s)) return false;
    uint32_t got = kvpool_attach(r->p, seq, s->root, s->ids, n_ids);
    REQUIRE(got == naive_attach(&r->m, seq, n_ids));
    return got > 0;
}

static bool op_hold(struct run *r, uint32_t seq)
{
    uint32_t hold = kvpool_hold(r->p, seq);
    naive_hold(&r->m, seq, hold);
    return hold != KV_HOLD_NONE;
}

static bool op_unhold(struct run *r)
{
    uint32_t hold = pick(r, r->m.cfg.max_holds);
    if (!r->m.holds[hold].live) return false;
    REQUIRE(kvpool_hold_valid(r->p, hold));
    kvpool_unhold(r->p, hold);
    naive_unhold(&r->m, hold);
    return true;
}

static bool op_forget(struct run *r, uint32_t seq)
{
    struct naive_seq *s = &r->m.seqs[seq];
    uint32_t floor = s->resuming ? naive_positions(s, s->good) : s->committed;
    if (s->reserved <= floor) return false;
    uint32_t at = floor + pick(r, s->reserved - floor + 1);
    kvpool_forget(r->p, seq, at);
    naive_forget(&r->m, seq, at);
    return true;
}

static bool op_checkpoint(struct run *r, uint32_t seq)
{
    struct kv_copy k = {0};
    bool begun = kvpool_checkpoint(r->p, seq, &k);
    naive_checkpoint(&r->m, seq, begun, k);
    return begun;
}

static bool op_suspend(struct run *r, uint32_t seq)
{
    struct kv_copy k;
    uint32_t kept;
    if (pick(r, 2) == 0) {
        kept = kvpool_suspend(r->p, seq);
        REQUIRE(kept == naive_suspend(&r->m, seq));
    } else {
        kept = kvpool_suspend_tail(r->p, seq, &k);
        REQUIRE(kept == naive_suspend_tail(&r->m, seq, k));
        r->tails += k.copy != KV_COPY_NONE;
    }
    return kept > 0;
}

static bool op_resume(struct run *r, uint32_t seq)
{
    struct naive_seq *s = &r->m.seqs[seq];
    uint32_t most = r->m.cfg.max_seq_blocks * NAIVE_TOKENS, kept = naive_positions(s, s->n_kept), n;
    if (r->m.cfg.n_host == 0 || s->n > 0 || s->resuming) return false;
    uint32_t positions = kept + pick(r, most - kept + 1), n_ids = pick(r, most + 2);
    bool named = pick(r, 3) != 0;
    int rc = kvpool_resume(r->p, seq, positions, s->root, named ? s->ids : NULL, n_ids);
    const uint32_t *table = kvpool_table(r->p, seq, &n);
    naive_resume(&r->m, seq, positions, named ? n_ids : 0, rc, table);
    return rc == 0 && kept > 0;
}

static bool op_swap_in(struct run *r, uint32_t seq)
{
    struct kv_copy k = {0};
    bool begun = kvpool_swap_in(r->p, seq, &k);
    naive_swap_in(&r->m, seq, begun, k);
    return begun;
}

static bool op_copy_end(struct run *r)
{
    if (r->m.cfg.max_copies == 0) return false;
    uint32_t copy = pick(r, r->m.cfg.max_copies);
    if (!r->m.copies[copy].live) return false;
    bool ok = pick(r, 8) != 0;
    REQUIRE(kvpool_copy_end(r->p, copy, ok));
    naive_copy_end(&r->m, copy, ok);
    return true;
}

static bool op_leave(struct run *r, uint32_t seq, bool close)
{
    (close ? kvpool_seq_close : kvpool_reset)(r->p, seq);
    (close ? naive_close : naive_reset)(&r->m, seq);
    if (!close) draw_text(r, seq);
    return true;
}

static bool op_shrink(struct run *r)
{
    uint32_t n = pick(r, 6) ? 0 : pick(r, r->m.cfg.n_blocks);
    kvpool_shrink(r->p, n);
    naive_shrink(&r->m, n);
    return true;
}

static bool one_kind(struct run *r, uint32_t kind, uint32_t seq)
{
    switch (kind) {
    case 0: return op_reserve(r, seq);
    case 1: return op_commit(r, seq);
    case 2: return op_publish(r, seq);
    case 3: return op_attach(r, seq);
    case 4: return op_hold(r, seq);
    case 5: return op_unhold(r);
    case 6: return op_forget(r, seq);
    case 7: return op_checkpoint(r, seq);
    case 8: return op_suspend(r, seq);
    case 9: return op_resume(r, seq);
    case 10: return op_swap_in(r, seq);
    case 11: return op_copy_end(r);
    case 12: return op_leave(r, seq, false);
    case 13: return op_leave(r, seq, true);
    case 14: return op_shrink(r);
    default: return op_open(r);
    }
}

static void one_call(struct run *r)
{
    static const uint8_t weights[N_KINDS] = {24, 24, 14, 16, 8, 12, 4, 22, 6, 10, 10, 26, 1, 2, 1, 6};
    uint32_t seq = pick(r, r->m.cfg.max_seqs), at = pick(r, 186), kind = 0;
    for (; kind < N_KINDS - 1 && at >= weights[kind]; kind++) at -= weights[kind];
    /* Those away and coming back have less to do, and more should come of it. */
    if (!is_here(&r->m.seqs[seq]) && pick(r, 3) == 0) kind = 9;
    if (r->m.seqs[seq].resuming && pick(r, 2) == 0) kind = 10;
    if (!r->m.seqs[seq].open && kind != 5 && kind != 11 && kind != 14) kind = 15;
    bool done = one_kind(r, kind, seq);
    r->done[kind] += done;
    r->refused[kind] += !done;
    naive_settle(&r->m);
}

static void print_done(const struct run *r)
{
    for (int k = 0; k < N_KINDS; k++)
        printf("%s %llu (%llu)%s", kind_names[k], (unsigned long long)r->done[k],
               (unsigned long long)r->refused[k], k == N_KINDS - 1 ? "\n" : ", ");
    printf("hits %llu misses %llu evictions %llu checkpoints %llu swap-ins %llu failures %llu "
           "dropped %llu tails %llu\n",
           (unsigned long long)r->m.hits, (unsigned long long)r->m.misses,
           (unsigned long long)r->m.evictions, (unsigned long long)r->m.checkpoints,
           (unsigned long long)r->m.swap_ins, (unsigned long long)r->m.failures,
           (unsigned long long)r->m.dropped, (unsigned long long)r->tails);
}

/* `every`: calls per run of the auditor and the comparison. */
static void run_pool(const struct kvpool_config *cfg, uint64_t calls, uint32_t every)
{
    const char *env = getenv("TEST_SEED"), *ops = getenv("TEST_OPS");
    struct run *r = mem_zalloc(sizeof *r);
    size_t bytes = kvpool_bytes(cfg);
    r->seed = env ? strtoull(env, NULL, 10) : 20261201;
    calls = calls * (ops ? strtoull(ops, NULL, 10) : 100) / 100;
    printf("%u blocks, %u slots, prefix %d: seed %llu, %llu calls\n", cfg->n_blocks, cfg->n_host,
           cfg->prefix_cache, (unsigned long long)r->seed, (unsigned long long)calls);
    r->p = kvpool_init(mem_zalloc(bytes), cfg);
    naive_init(&r->m, cfg);
    for (uint64_t i = 0; i < calls; i++) {
        one_call(r);
        if (i % every != 0) continue;
        const char *bad = kvpool_check(r->p);
        if (bad != NULL) ck_abort_msg("call %llu: %s", (unsigned long long)i, bad);
        naive_compare(&r->m, r->p);
    }
    print_done(r);
    for (int k = 0; k < N_KINDS; k++) { /* every kind was really tried */
        bool host = k >= 7 && k <= 11, can = !(host && cfg->n_host == 0);
        if (k == 3) can = cfg->prefix_cache;
        if (can) ck_assert_msg(r->done[k] > calls / 2000, "%s", kind_names[k]);
    }
    mem_free(r->p);
    mem_free(r);
}

static struct kvpool_config config(uint32_t n_blocks, uint32_t n_seqs, bool prefix, bool host)
{
    return (struct kvpool_config){.n_blocks = n_blocks,
                                  .block_tokens = NAIVE_TOKENS,
                                  .max_seqs = n_seqs,
                                  .max_seq_blocks = NAIVE_TABLE,
                                  .max_holds = 6,
                                  .n_host = host ? n_blocks / 2 : 0,
                                  .max_copies = host ? NAIVE_COPIES : 0,
                                  .max_accounts = NAIVE_ACCOUNTS,
                                  .prefix_cache = prefix};
}

static uint64_t share(uint64_t calls)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    calls /= 4; /* each call is slow there */
#endif
    return full_run ? calls : calls / 8;
}

START_TEST(test_64_blocks_all_features)
{
    struct kvpool_config c = config(64, 10, true, true);
    run_pool(&c, share(400000), 1);
}
END_TEST

START_TEST(test_64_blocks_few_slots)
{
    struct kvpool_config c = config(64, 10, true, true);
    c.n_host = 7; /* fewer than the pool wants: slots are dropped, checkpoints refused */
    run_pool(&c, share(160000), 1);
}
END_TEST

START_TEST(test_64_blocks_prefix_only)
{
    struct kvpool_config c = config(64, 10, true, false);
    run_pool(&c, share(160000), 1);
}
END_TEST

START_TEST(test_64_blocks_host_only)
{
    struct kvpool_config c = config(64, 10, false, true);
    run_pool(&c, share(160000), 1);
}
END_TEST

START_TEST(test_64_blocks_neither)
{
    struct kvpool_config c = config(64, 10, false, false);
    run_pool(&c, share(80000), 1);
}
END_TEST

START_TEST(test_512_blocks_all_features)
{
    struct kvpool_config c = config(512, 48, true, true);
    run_pool(&c, share(120000), 1);
}
END_TEST

int main(int argc, char **argv)
{
    full_run = argc > 1 && strcmp(argv[1], "full") == 0;
    Suite *s = suite_create("kvpool_naive");
    TCase *tc = tcase_create("random");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, test_64_blocks_all_features);
    tcase_add_test(tc, test_64_blocks_few_slots);
    tcase_add_test(tc, test_64_blocks_prefix_only);
    tcase_add_test(tc, test_64_blocks_host_only);
    tcase_add_test(tc, test_64_blocks_neither);
    tcase_add_test(tc, test_512_blocks_all_features);
    suite_add_tcase(s, tc);
    return test_run(s);
}
