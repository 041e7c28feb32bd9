/* Interruptions of every kind, in every order: an answer depends on the request alone.
 *
 * Each round draws a worker (chunk, seats, pool, KV type, chaos, host tier, cache, how it resumes) and a crowd of lines
 * (lengths, sampling, classes, tenants, some equal prompts, pairs that differ in the seed alone as n = 2 does), runs them
 * together, parks, drops, preempts, cancels neighbours, kills the worker in the middle, and compares every line that
 * was not cancelled with what it gives alone, without any of that: ids, log-probabilities, finish, visible bytes. A
 * cancelled one is compared as far as it came.
 *
 *   test_storm                              a few thousand interruptions on the tiny model, for the suite
 *   test_storm MODEL EACH [SEED] [null]     until EACH of every kind happened; MODEL "tiny" or a file
 *   test_storm MODEL EACH SEED inject       memory faults on top: every one is noticed, no answer is another one
 * SLUICE_FAULT=word in the environment switches a built-in mistake (base/fault.h) on once the lines are known alone:
 * then it must fail. faults.py runs all of them.
 */
#include "base/fault.h"
#include "base/hash.h"
#include "base/mem.h"
#include "tests/common/testpaths.h"
#include "tests/exact/storm_worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES 24
#define CROWD 18 /* of a round; the others wait and are submitted as lines end */
#define ROUNDS_MAX 100000

struct run {
    struct model model;
    const char *backend;
    uint64_t seed, counter, each;
    uint32_t long_prompt, long_out, vocab;
    struct storm_line alone[2][LINES]; /* by KV type */
    struct storm sum;
    uint64_t compared, wrong;
    enum fault fault;
    bool inject;
};

static uint32_t draw(struct run *r, uint32_t below)
{
    return (uint32_t)(rand_at(r->seed, r->counter++) % below);
}

/* Line i is the same in every round. Lines 8k .. 8k+3 begin alike, so that prefixes are shared; 4 and 5 of each eight
 * differ in the seed alone. */
static void make_line(const struct run *r, uint32_t i, struct storm_line *l)
{
    uint64_t key = r->seed ^ 0x51ed2701;
    uint32_t family = i / 8, twin = i % 8 == 5 ? i - 1 : i;
    uint32_t shared = i % 8 < 4 ? 16 + (uint32_t)(rand_at(key, family) % r->long_prompt) : 0;
    uint32_t own = 1 + (uint32_t)(rand_at(key + 1, twin) % (i % 3 == 0 ? r->long_prompt : 40));
    if (i % 8 == 4 || i % 8 == 5) own = (own + 15) / 16 * 16; /* twins of whole blocks */
    *l = (struct storm_line){.slot = WORKER_SLOT_NONE};
    l->n = l->n_prompt = shared + own;
    for (uint32_t k = 0; k < l->n; k++)
        l->ids[k] = 4 + (int32_t)(rand_at(key + 2 + (k < shared ? 100 + family : 1000 + twin), k) % (r->vocab - 4));
    for (uint32_t k = 0; i % 8 == 3 && k < 16; k++) /* the same blocks as its family, but behind another first one */
        l->ids[k] = 4 + (int32_t)(rand_at(key + 5000 + i, k) % (r->vocab - 4));
    l->max_total = l->n + 2 + (uint32_t)(rand_at(key + 3, twin) % r->long_out);
    l->variant = (uint8_t)(i % 8 == 5 ? 1 : i % 8);
    l->cls = i % 6 == 5 ? CLASS_REALTIME : CLASS_BATCH;
    l->seed = 1000 + i;
    l->tenant = family % 2;
    if (l->variant == 2 && l->n > 3) l->from = l->n / 2; /* prompt scores */
}

static void base_config(const struct run *r, struct storm_config *c)
{
    *c = (struct storm_config){.model = &r->model, .max_seqs = 8, .chunk = 512, .kv_tokens = 8192, .audit = true};
    c->engine.backend = r->backend;
    c->engine.n_threads = 1;
    c->engine.null_segments = 12;
}

static void learn_alone(struct run *r, int int8)
{
    struct storm s = {0};
    struct storm_config c;
    base_config(r, &c);
    c.audit = false;
    c.no_refs = true; /* the plain way */
    c.engine.kv_type = int8 ? ENGINE_KV_INT8 : ENGINE_KV_F16;
    storm_open(&s, &c);
    for (uint32_t i = 0; i < LINES; i++) {
        struct storm_line *l = &r->alone[int8][i];
        make_line(r, i, l);
        storm_submit(&s, l);
        while (!l->done) storm_turn(&s);
    }
    storm_close(&s);
    for (int k = 0; k < STORM_KINDS; k++) STORM_REQUIRE((s.counts[k]) == (0), "");
}

static void draw_config(struct run *r, struct storm_config *c, int *int8)
{
    static const uint32_t chunks[] = {1, 3, 7, 16, 17, 64, 200, 512};
    uint32_t longest = r->long_prompt * 2 + 60 + r->long_out;
    base_config(r, c);
    *int8 = draw(r, 3) == 0;
    c->engine.kv_type = *int8 ? ENGINE_KV_INT8 : ENGINE_KV_F16;
    c->engine.chaos_seed = draw(r, 4) == 0 ? 1 + draw(r, 1u << 20) : 0;
    c->engine.n_threads = 1 + draw(r, 2);
    c->engine.debug_late_seed = 1 + draw(r, 1u << 20);
    c->engine.host_slots = draw(r, 5) == 0 ? 0 : draw(r, 3) == 0 ? 24 : 512;
    c->chunk = chunks[draw(r, 8)];
    c->max_seqs = 2 + draw(r, 9);
    c->cache = draw(r, 4) != 0;
    c->resume = draw(r, 5) == 0 ? 2 : draw(r, 2);
    c->kv_tokens = draw(r, 3) == 0 ? longest + 64 + draw(r, 600) : 8192;
    if (r->inject) {
        c->inject = 1 + draw(r, 1u << 20);
        c->engine.host_slots = 512;
        c->resume = 1;
    }
    c->park_every = 2 + draw(r, 3);
    c->drop_every = 3 + draw(r, 4);
    c->preempt_every = (c->chunk < 16 ? longest / c->chunk : 0) + 3 + draw(r, 6);
}

static void compare(struct run *r, const struct storm_line *want, const struct storm_line *got, uint32_t i)
{
    uint32_t n = got->cancelled ? got->n : want->n;
    bool same = got->cancelled ? got->n <= want->n
                               : got->n == want->n && got->finish == want->finish && got->visible == want->visible;
    uint32_t at = 0;
    while (at < n && at < got->n && got->ids[at] == want->ids[at] &&
           memcmp(&got->logprobs[at], &want->logprobs[at], sizeof(float)) == 0)
        at++;
    r->compared++;
    if (same && at == n) return;
    r->wrong++;
    if (r->wrong <= 5)
        printf("WRONG  seed %" PRIu64 ", line %u: %u ids (alone %u), finish %s (%s), first difference at %u of prompt %u\n",
               r->seed, i, got->n, want->n, finish_text(got->finish), finish_text(want->finish), at, got->n_prompt);
}

/* As kill -9: the worker is gone with all it had; lines go on from the ids they have, on a new one. */
static void kill_worker(struct run *r, struct storm *s, struct storm_line *lines)
{
    struct storm_config c = s->cfg;
    storm_close(s);
    storm_add(&r->sum, s);
    uint64_t counter = s->counter;
    *s = (struct storm){.counter = counter};
    c.engine.chaos_seed = c.engine.chaos_seed != 0 ? c.engine.chaos_seed + 1 : 0;
    storm_open(s, &c);
    for (uint32_t i = 0; i < LINES; i++) {
        if (lines[i].slot == WORKER_SLOT_NONE || lines[i].done) continue;
        s->counts[STORM_KILL]++;
        storm_submit(s, &lines[i]);
    }
}

static void disturb(struct run *r, struct storm *s, struct storm_line *lines, uint32_t *kills)
{
    for (uint32_t i = 0; i < LINES; i++) {
        struct storm_line *l = &lines[i];
        if (!l->done && l->slot != WORKER_SLOT_NONE && l->cancel_at != 0 && l->n >= l->n_prompt + l->cancel_at)
            storm_cancel(s, l);
    }
    if (*kills > 0 && draw(r, 60) == 0) {
        --*kills;
        kill_worker(r, s, lines);
    }
}

static void one_round(struct run *r)
{
    static struct storm_line lines[LINES];
    struct storm s = {0};
    struct storm_config c;
    int int8;
    uint32_t next = 0, order[LINES], kills = draw(r, 2) * draw(r, 7);
    draw_config(r, &c, &int8);
    storm_open(&s, &c);
    for (uint32_t i = 0; i < LINES; i++) {
        make_line(r, i, &lines[i]);
        lines[i].cancel_at = draw(r, 3) == 0 ? 1 + draw(r, r->long_out) : 0;
        uint32_t k = draw(r, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    while (next < LINES || s.n_live > 0) {
        while (next < LINES && s.n_live < CROWD && (s.n_live < 4 || draw(r, 3) == 0))
            storm_submit(&s, &lines[order[next++]]);
        if (s.n_live > 0) storm_turn(&s);
        disturb(r, &s, lines, &kills);
    }
    storm_close(&s);
    storm_add(&r->sum, &s);
    for (uint32_t i = 0; i < LINES; i++) compare(r, &r->alone[int8][i], &lines[i], i);
}

static uint64_t least(const struct run *r)
{
    uint64_t n = UINT64_MAX;
    for (int k = 0; k < STORM_KINDS; k++) n = r->sum.counts[k] < n ? r->sum.counts[k] : n;
    return n;
}

static void print_bins(const char *what, const uint64_t *bins)
{
    printf("%s, by segments done:", what);
    for (int i = 0; i < STORM_BINS; i++)
        if (bins[i] != 0) printf(" %d:%" PRIu64, i, bins[i]);
    printf("\n");
}

/* A copy that went wrong counts one failure; a late one counts as a fault of the worker, too. */
static bool all_noticed(const struct run *r)
{
    const struct storm_faults *f = &r->sum.faults;
    uint64_t copies = f->injected[STORM_FLIP] + f->injected[STORM_LATE_COPY] + f->injected[STORM_STALE_COPY];
    uint64_t late = f->injected[STORM_LATE_COPY] + f->injected[STORM_STALE_COPY];
    for (int i = 0; i < STORM_FAULTS; i++)
        printf("%s%" PRIu64 " %s", i == 0 ? "" : ", ", f->injected[i], storm_fault_names[i]);
    printf("\nnoticed: %" PRIu64 " by copies, %" PRIu64 " by the worker; %" PRIu64 " spans dropped unread, %" PRIu64 " copies in flight at a kill\n",
           f->copies_noticed, f->steps_noticed, f->unread, f->unread_copies);
    return f->copies_noticed + f->unread_copies >= copies &&
           f->steps_noticed + f->unread + f->unread_copies >= late + f->injected[STORM_FREE_STEP];
}

static void run_storm(struct run *r)
{
    uint64_t rounds = 0;
    printf("seed %" PRIu64 "\n", r->seed);
    learn_alone(r, 0);
    learn_alone(r, 1);
    fault_set(r->fault);
    while (least(r) < r->each && r->wrong == 0 && rounds++ < ROUNDS_MAX) one_round(r);
    for (int k = 0; k < STORM_KINDS; k++)
        printf("%s%" PRIu64 " %s", k == 0 ? "" : ", ", r->sum.counts[k], storm_kind_names[k]);
    printf("\n%" PRIu64 " rounds, %" PRIu64 " answers compared, %" PRIu64 " wrong\n", rounds, r->compared, r->wrong);
    print_bins("parked", r->sum.parked_at);
    print_bins("dropped", r->sum.dropped_at);
}

static int open_model(struct run *r, const char *path)
{
    struct err e = {0};
    if (model_open(&r->model, path, NULL, &e) != 0) {
        printf("%s\n", e.msg);
        return -1;
    }
    bool tiny = r->model.hp.n_vocab < 1000;
    r->vocab = (uint32_t)r->model.hp.n_vocab;
    r->long_prompt = tiny ? 220 : 120;
    r->long_out = tiny ? 60 : 24;
    return 0;
}

int main(int argc, char **argv)
{
    static struct run r;
    const char *path = argc > 1 ? argv[1] : "tiny", *fault = getenv("SLUICE_FAULT"), *seed = getenv("TEST_SEED");
    if (strcmp(path, "tiny") == 0) path = test_tiny_path();
    if (path == NULL) return test_skip("the tiny model was not built");
    r.each = argc > 2 ? strtoull(argv[2], NULL, 10) : 150;
    r.seed = argc > 3 ? strtoull(argv[3], NULL, 10) : seed != NULL ? strtoull(seed, NULL, 10) : 20261201;
    r.inject = argc > 4 && strcmp(argv[4], "inject") == 0;
    r.backend = argc > 4 && !r.inject ? argv[4] : "cpu";
    if (open_model(&r, path) != 0) return 2;
    int f = fault_parse(fault != NULL ? fault : "");
    if (f < 0) return 2;
    r.fault = (enum fault)f;
    run_storm(&r);
    model_close(&r.model);
    if (r.inject && !all_noticed(&r)) return 3;
    return r.wrong != 0 ? 3 : least(&r) < r.each ? 1 : 0;
}
