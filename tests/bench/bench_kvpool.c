/* bench_kvpool - what one call of the block bookkeeping costs on 100,000 blocks, without the auditor.
 *
 *   bench_kvpool [--turns N] [--seed N]
 *
 * 1,000 sequences of 256 to 4,096 positions over 64 shared texts run, are checkpointed, suspended,
 * resumed and closed at random on a pool that is full, so that blocks are evicted all the time. Each
 * call is timed by itself; the row "nothing" is the clock alone, and is part of each other row.
 * "reserve 0" needed no block; those of "reserve n" were evicted first, nearly all of them.
 * Calls that go over a sequence's blocks are divided by these for the second pair of columns: the
 * bar (2 us) is for a call that touches one block, and for each block of the others.
 */
#include "base/hash.h"
#include "base/mem.h"
#include "kvpool/kvpool.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BT = 16, N_SEQS = 1000, TABLE = 257, N_TEXTS = 64, N_IDS = TABLE * BT, SAMPLES = 1 << 20 };

enum kind { NOTHING, RESERVE, TAKE, COMMIT, PUBLISH, HOLD, VALID, UNHOLD, MATCH, ATTACH, CHECKPOINT, COPY_END,
            UNCLEAN, SUSPEND, RESUME, SWAP_IN, CLOSE, N_KINDS };
static const char *const names[N_KINDS] = {
    "nothing", "reserve 0", "reserve n", "commit", "publish", "hold", "hold_valid", "unhold", "match", "attach",
    "checkpoint", "copy_end", "unclean", "suspend", "resume", "swap_in", "seq_close"};

struct samples {
    uint32_t n;
    float ns[SAMPLES], per_block[SAMPLES];
};

struct life {
    uint32_t seq, text, shared, end, own;
    uint32_t looked; /* blocks that publish has seen since the sequence came (back) */
    bool away, open;
};

static struct samples *all;
static struct kvpool *pool;
static struct life lives[N_SEQS];
static int32_t texts[N_TEXTS][N_IDS], ids[N_IDS];
static uint64_t seed = 1, counter, unique;

static uint32_t pick(uint32_t below)
{
    return (uint32_t)(rand_at(seed, counter++) % below);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void took(enum kind k, double from, uint32_t blocks)
{
    double ns = now_ns() - from;
    struct samples *s = &all[k];
    if (s->n == SAMPLES) return;
    s->ns[s->n] = (float)ns;
    s->per_block[s->n++] = (float)(ns / (blocks > 1 ? blocks : 1));
}

/* The sequence's ids: a text's up to where it leaves it, then its own. */
static void load_ids(const struct life *l)
{
    memcpy(ids, texts[l->text], l->shared * sizeof *ids);
    for (uint32_t i = l->shared; i < N_IDS; i++) ids[i] = (int32_t)(l->own + i);
}

static struct hash128 root_of(const struct life *l)
{
    return (struct hash128){77, l->text & 3u};
}

static uint32_t n_blocks(const struct life *l)
{
    uint32_t n;
    (void)kvpool_table(pool, l->seq, &n);
    return n;
}

static void close_life(struct life *l)
{
    uint32_t n = n_blocks(l);
    double from = now_ns();
    kvpool_seq_close(pool, l->seq);
    took(CLOSE, from, n);
    l->open = l->away = false;
}

static void open_life(struct life *l)
{
    uint32_t text = pick(N_TEXTS), end = 256 + pick(N_IDS - 256);
    *l = (struct life){.seq = kvpool_seq_open(pool), .text = text, .end = end, .open = true};
    l->shared = pick(end);
    l->own = 1000000 + (uint32_t)(unique += N_IDS) % 1000000000;
    load_ids(l);
    double from = now_ns();
    uint32_t found = kvpool_match(pool, root_of(l), ids, end);
    took(MATCH, from, found / BT);
    from = now_ns();
    found = kvpool_attach(pool, l->seq, root_of(l), ids, end);
    took(ATTACH, from, found / BT);
    l->looked = found / BT;
}

/* A step: a chunk of the prompt or one position, in the order of the scheduler's calls. */
static void step_life(struct life *l)
{
    uint32_t at = kvpool_committed(pool, l->seq), more = pick(4) ? 1 : 1 + pick(256), before = n_blocks(l);
    uint32_t to = at + more < l->end ? at + more : l->end;
    double from = now_ns();
    int rc = kvpool_reserve(pool, l->seq, to);
    uint32_t taken = n_blocks(l) - before;
    took(taken > 0 ? TAKE : RESERVE, from, taken);
    if (rc != 0 || to == l->end) {
        close_life(l);
        return;
    }
    from = now_ns();
    uint32_t hold = kvpool_hold(pool, l->seq), n = n_blocks(l);
    took(HOLD, from, n);
    load_ids(l);
    from = now_ns();
    bool valid = kvpool_hold_valid(pool, hold);
    took(VALID, from, n);
    assert(valid);
    from = now_ns();
    kvpool_commit(pool, l->seq, to);
    took(COMMIT, from, 1);
    from = now_ns();
    kvpool_publish(pool, l->seq, root_of(l), ids, (uint8_t)(l->text & 1u));
    took(PUBLISH, from, to / BT - l->looked);
    l->looked = to / BT;
    from = now_ns();
    kvpool_unhold(pool, hold);
    took(UNHOLD, from, n);
}

static void end_copy(uint32_t copy)
{
    double from = now_ns();
    (void)kvpool_copy_end(pool, copy, true);
    took(COPY_END, from, 1);
}

static void save_life(struct life *l)
{
    struct kv_copy k[8];
    uint32_t n = 0;
    for (bool more = true; more && n < 8;) {
        double from = now_ns();
        more = kvpool_checkpoint(pool, l->seq, &k[n]);
        took(CHECKPOINT, from, 1);
        n += more;
    }
    double from = now_ns();
    (void)kvpool_unclean(pool, l->seq);
    took(UNCLEAN, from, n_blocks(l));
    while (n > 0) end_copy(k[--n].copy);
}

static void suspend_life(struct life *l)
{
    uint32_t n = n_blocks(l);
    double from = now_ns();
    l->away = kvpool_suspend(pool, l->seq) > 0;
    took(SUSPEND, from, n);
    if (!l->away) close_life(l);
}

static void resume_life(struct life *l)
{
    uint32_t kept = kvpool_kept(pool, l->seq);
    struct kv_copy k;
    load_ids(l);
    double from = now_ns();
    int rc = kvpool_resume(pool, l->seq, kept, root_of(l), ids, kept + 1);
    took(RESUME, from, kept / BT);
    if (rc != 0) {
        close_life(l);
        return;
    }
    l->away = false;
    l->looked = kvpool_committed(pool, l->seq) / BT;
    for (bool more = true; more;) {
        from = now_ns();
        more = kvpool_swap_in(pool, l->seq, &k);
        took(SWAP_IN, from, 1);
        if (more) end_copy(k.copy);
    }
}

static void one_turn(void)
{
    struct life *l = &lives[pick(N_SEQS)];
    uint32_t what = pick(100);
    took(NOTHING, now_ns(), 1);
    if (!l->open)
        open_life(l);
    else if (l->away)
        resume_life(l);
    else if (what < 75)
        step_life(l);
    else if (what < 95)
        save_life(l);
    else if (what < 99)
        suspend_life(l);
    else
        close_life(l);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_all(void)
{
    printf("%-11s %9s %10s %10s %12s %12s\n", "call", "calls", "p50 ns", "p99 ns", "p50 ns/block",
           "p99 ns/block");
    for (int k = 0; k < N_KINDS; k++) {
        struct samples *s = &all[k];
        if (s->n == 0) continue;
        qsort(s->ns, s->n, sizeof s->ns[0], by_size);
        qsort(s->per_block, s->n, sizeof s->per_block[0], by_size);
        uint32_t mid = s->n / 2, p99 = (uint32_t)((uint64_t)s->n * 99 / 100);
        printf("%-11s %9u %10.0f %10.0f %12.0f %12.0f\n", names[k], s->n, (double)s->ns[mid],
               (double)s->ns[p99], (double)s->per_block[mid], (double)s->per_block[p99]);
    }
}

int main(int argc, char **argv)
{
    uint64_t turns = 400000;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--turns") == 0) turns = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
    }
    struct kvpool_config cfg = {.n_blocks = 100000, .block_tokens = BT, .max_seqs = N_SEQS,
                                .max_seq_blocks = TABLE, .max_holds = 64, .n_host = 60000,
                                .max_copies = 16, .max_accounts = 4, .prefix_cache = true};
    size_t bytes = kvpool_bytes(&cfg);
    void *region = mem_zalloc(bytes);
    memset(region, 0, bytes); /* no page is touched for the first time by a timed call */
    pool = kvpool_init(region, &cfg);
    all = mem_zalloc(sizeof *all * N_KINDS);
    for (uint32_t i = 0; i < N_TEXTS * N_IDS; i++) texts[i / N_IDS][i % N_IDS] = (int32_t)i;
    for (uint64_t i = 0; i < 4 * turns; i++) {
        if (i == 3 * turns) memset(all, 0, sizeof *all * N_KINDS); /* the pool is full by now */
        one_turn();
    }
    struct kvpool_stats st = kvpool_stats(pool);
    printf("%u blocks (%zu bytes of region each), %u used, %u cached, %llu evictions, %llu hits, "
           "%llu swap-ins, %llu slots dropped\n", st.total, bytes / st.total, st.used, st.cached,
           (unsigned long long)st.evictions, (unsigned long long)st.hits,
           (unsigned long long)st.swap_ins, (unsigned long long)st.host_dropped);
    print_all();
    mem_free(all);
    mem_free(region);
    return 0;
}
