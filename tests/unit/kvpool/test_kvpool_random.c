/* Random calls against a model that knows only sets: which block ids each table and each hold
 * lists. After every call the auditor recounts the pool and the model's numbers must be the pool's.
 * TEST_SEED and TEST_OPS repeat or lengthen a run. */
#include "base/hash.h"
#include "base/mem.h"
#include "kvpool/kvpool.h"
#include "tests/common/test_run.h"

#include <stdlib.h>
#include <string.h>

/* ck_assert writes to a pipe each time; millions of checks ask first. */
#define REQUIRE(cond)                                              \
    do {                                                           \
        if (!(cond)) ck_abort_msg("line %d: %s", __LINE__, #cond); \
    } while (0)

enum { N_BLOCKS = 40, BLOCK_TOKENS = 4, N_SEQS = 8, SEQ_BLOCKS = 12, N_HOLDS = 6 };

struct model_seq {
    bool open;
    uint32_t reserved, committed;
};
struct model_hold {
    bool live;
    uint32_t n, ids[SEQ_BLOCKS];
};
struct model {
    struct model_seq seqs[N_SEQS];
    struct model_hold holds[N_HOLDS];
    uint32_t cap;
    uint64_t seed, counter;
    uint64_t done[10]; /* calls that had an effect, by kind */
    struct kv_ref freed[N_BLOCKS];
};

static const struct kvpool_config cfg = {.n_blocks = N_BLOCKS,
                                         .block_tokens = BLOCK_TOKENS,
                                         .max_seqs = N_SEQS,
                                         .max_seq_blocks = SEQ_BLOCKS,
                                         .max_holds = N_HOLDS};

static uint32_t pick(struct model *m, uint32_t below)
{
    return (uint32_t)(rand_at(m->seed, m->counter++) % below);
}

static uint32_t ceil_blocks(uint32_t positions)
{
    return (positions + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

/* Recounts blocks in tables and blocks only in holds from the pool's tables and the model's holds.
 */
static void compare(const struct kvpool *p, const struct model *m)
{
    uint8_t used[N_BLOCKS] = {0}, held[N_BLOCKS] = {0};
    uint32_t n_used = 0, n_held = 0, n_seqs = 0, n_holds = 0, n;
    for (uint32_t i = 0; i < N_SEQS; i++) {
        if (!m->seqs[i].open) continue;
        n_seqs++;
        REQUIRE(kvpool_reserved(p, i) == m->seqs[i].reserved);
        REQUIRE(kvpool_committed(p, i) == m->seqs[i].committed);
        const uint32_t *t = kvpool_table(p, i, &n);
        REQUIRE(n == ceil_blocks(m->seqs[i].reserved));
        for (uint32_t k = 0; k < n; k++) {
            REQUIRE(t[k] > 0 && t[k] < N_BLOCKS && !used[t[k]]);
            used[t[k]] = 1;
        }
        n_used += n;
    }
    for (uint32_t i = 0; i < N_HOLDS; i++) {
        n_holds += m->holds[i].live;
        for (uint32_t k = 0; m->holds[i].live && k < m->holds[i].n; k++)
            held[m->holds[i].ids[k]] = 1;
    }
    for (uint32_t b = 1; b < N_BLOCKS; b++) n_held += held[b] && !used[b];
    struct kvpool_stats st = kvpool_stats(p);
    uint32_t in_use = n_used + n_held, all = N_BLOCKS - 1;
    uint32_t room = m->cap > in_use ? m->cap - in_use : 0;
    REQUIRE(st.used == n_used);
    REQUIRE(st.held == n_held);
    REQUIRE(st.free == (room < all - in_use ? room : all - in_use));
    REQUIRE(st.seqs == n_seqs);
    REQUIRE(st.holds == n_holds);
}

static void op_reserve(struct kvpool *p, struct model *m, uint32_t seq)
{
    struct model_seq *s = &m->seqs[seq];
    uint32_t want = pick(m, (SEQ_BLOCKS + 1) * BLOCK_TOKENS), n;
    (void)kvpool_table(p, seq, &n);
    uint32_t blocks = ceil_blocks(want), more = blocks > n ? blocks - n : 0;
    bool fits = want <= s->reserved || (blocks <= SEQ_BLOCKS && more <= kvpool_stats(p).free);
    if (want > s->reserved) REQUIRE(kvpool_fits(p, seq, want, 0) == fits);
    REQUIRE(kvpool_reserve(p, seq, want) == (fits ? 0 : -1));
    if (fits && want > s->reserved) s->reserved = want;
    m->done[fits ? 0 : 1]++;
}

static void op_hold(struct kvpool *p, struct model *m, uint32_t seq)
{
    uint32_t h = kvpool_hold(p, seq), n;
    if (h == KV_HOLD_NONE) {
        REQUIRE(kvpool_stats(p).holds == N_HOLDS);
        return;
    }
    REQUIRE(h < N_HOLDS && !m->holds[h].live);
    const uint32_t *t = kvpool_table(p, seq, &n);
    m->holds[h].live = true;
    m->holds[h].n = n;
    memcpy(m->holds[h].ids, t, n * sizeof *t);
    m->done[2]++;
}

static void op_unhold(struct kvpool *p, struct model *m)
{
    uint32_t h = pick(m, N_HOLDS);
    if (!m->holds[h].live) return;
    kvpool_unhold(p, h);
    m->holds[h].live = false;
    m->done[3]++;
}

/* Every reference into a table that goes away must be invalid after, unless a hold keeps the block.
 */
static void op_give_back(struct kvpool *p, struct model *m, uint32_t seq, bool close)
{
    struct kv_ref refs[SEQ_BLOCKS];
    uint32_t n;
    const uint32_t *t = kvpool_table(p, seq, &n);
    for (uint32_t k = 0; k < n; k++) refs[k] = kvpool_ref(p, t[k]);
    if (close) {
        kvpool_seq_close(p, seq);
        m->seqs[seq] = (struct model_seq){0};
    } else {
        kvpool_reset(p, seq);
        m->seqs[seq].reserved = m->seqs[seq].committed = 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        bool held = false;
        for (uint32_t h = 0; h < N_HOLDS; h++) {
            for (uint32_t j = 0; m->holds[h].live && j < m->holds[h].n; j++)
                held |= m->holds[h].ids[j] == refs[k].id;
        }
        REQUIRE(kvpool_ref_valid(p, refs[k]) == held);
    }
    m->done[close ? 4 : 5]++;
}

static void op_commit_or_forget(struct kvpool *p, struct model *m, uint32_t seq)
{
    struct model_seq *s = &m->seqs[seq];
    if (s->reserved == s->committed) return;
    uint32_t at = s->committed + pick(m, s->reserved - s->committed + 1);
    if (pick(m, 3) != 0) {
        kvpool_commit(p, seq, at);
        s->committed = at;
        m->done[6]++;
    } else {
        kvpool_forget(p, seq, at);
        s->reserved = at;
        m->done[7]++;
    }
}

static void one_op(struct kvpool *p, struct model *m)
{
    uint32_t kind = pick(m, 100), seq = pick(m, N_SEQS);
    if (kind < 2) {
        uint32_t n = pick(m, N_BLOCKS);
        kvpool_shrink(p, n);
        m->cap = n == 0 ? N_BLOCKS - 1 : n;
    } else if (!m->seqs[seq].open) {
        uint32_t got = kvpool_seq_open(p);
        REQUIRE(got < N_SEQS && !m->seqs[got].open);
        m->seqs[got].open = true;
    } else if (kind < 40) {
        op_reserve(p, m, seq);
    } else if (kind < 55) {
        op_hold(p, m, seq);
    } else if (kind < 72) {
        op_unhold(p, m);
    } else if (kind < 92) {
        op_commit_or_forget(p, m, seq);
    } else {
        op_give_back(p, m, seq, kind < 96);
    }
}

START_TEST(test_random_calls)
{
    const char *env = getenv("TEST_SEED"), *ops = getenv("TEST_OPS");
    struct model m = {.cap = N_BLOCKS - 1, .seed = env ? strtoull(env, NULL, 10) : 20240731};
    uint64_t n = ops ? strtoull(ops, NULL, 10) : 500000;
    printf("seed %llu, %llu calls\n", (unsigned long long)m.seed, (unsigned long long)n);
    struct kvpool *p = kvpool_init(mem_zalloc(kvpool_bytes(&cfg)), &cfg);
    for (uint64_t i = 0; i < n; i++) {
        one_op(p, &m);
        const char *bad = kvpool_check(p);
        if (bad != NULL) ck_abort_msg("call %llu: %s", (unsigned long long)i, bad);
        compare(p, &m);
    }
    printf("reserved %llu refused %llu held %llu unheld %llu closed %llu reset %llu committed %llu "
           "forgot %llu\n",
           (unsigned long long)m.done[0], (unsigned long long)m.done[1],
           (unsigned long long)m.done[2], (unsigned long long)m.done[3],
           (unsigned long long)m.done[4], (unsigned long long)m.done[5],
           (unsigned long long)m.done[6], (unsigned long long)m.done[7]);
    for (int k = 0; k < 8; k++)
        ck_assert_uint_gt(m.done[k], n / 1000); /* every kind was really tried */
    mem_free(p);
}
END_TEST

/* Replay of an event log needs the ids that were given when it was written: a pool without prefix
 * cache and host tier gives those of the first version for ever. */
START_TEST(test_the_same_calls_give_the_ids_they_always_gave)
{
    struct model m = {.cap = N_BLOCKS - 1, .seed = 7};
    struct kvpool *p = kvpool_init(mem_zalloc(kvpool_bytes(&cfg)), &cfg);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t n;
        one_op(p, &m);
        for (uint32_t k = 0; k < N_SEQS; k++) {
            if (!m.seqs[k].open) continue;
            const uint32_t *t = kvpool_table(p, k, &n);
            seen = hash64(t, n * sizeof *t, seen + k);
        }
    }
    ck_assert_uint_eq(seen, 396729990456966240u);
    mem_free(p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kvpool_random");
    TCase *tc = tcase_create("random");
    tcase_add_test(tc, test_random_calls);
    tcase_add_test(tc, test_the_same_calls_give_the_ids_they_always_gave);
    suite_add_tcase(s, tc);
    return test_run(s);
}
