/* Random runs of a gateway and two workers: arrivals, cancels, deadlines, broken connections,
 * killed workers, lost messages, full sockets, any order of everything else. The auditors run after
 * each event; at the end everything must drain and nothing may be left. TEST_SEED repeats one run,
 * TEST_RUNS lengthens.
 *
 * Every worker's events and actions are recorded; replayed on a fresh core, and from the middle on
 * a memcpy of the core's region, they must give the same actions byte for byte. */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/worker_core_impl.h"
#include "tests/common/test_run.h"
#include "tests/unit/scheduler/world.h"

#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define TOTALS 21

struct sim {
    struct world *x;
    struct gateway_core_config gcfg;
    struct worker_core_config wcfg;
    void *gregion, *wregions[WORLD_WORKERS];
    struct buf trace[WORLD_WORKERS];
    void *clone; /* of worker 0's region, in mid-run */
    size_t clone_at;
    uint64_t seed, counter;
    uint32_t arrived, faults;
    uint64_t realtime_waits; /* lower steps submitted while a real-time sequence waited */
};

static uint32_t pick(struct sim *s, uint32_t below)
{
    return (uint32_t)(rand_at(s->seed, s->counter++) % below);
}

static void configs(struct sim *s)
{
    s->gcfg = (struct gateway_core_config){.max_slots = 60,
                                           .max_workers = 4,
                                           .max_tenants = 3,
                                           .incarnation = 3,
                                           .no_worker_ns = 5 * SECOND,
                                           .lost_ns = 5 * SECOND};
    class_table_default(&s->gcfg.classes);
    s->wcfg = (struct worker_core_config){
        .max_slots = 8 + pick(s, 40),
        .max_seqs = 1 + pick(s, 12),
        .max_spans = 16,
        .max_tokens = 8 + pick(s, 60),
        .max_rows = 4 + pick(s, 30),
        .prefill_chunk = 1 + pick(s, 32),
        .n_ctx = 128,
        .min_run = pick(s, 2) ? 16 : 3,
        .park_max_ns = 2 * SECOND,
        .lost_realtime_ns = 2 * SECOND,
        .lost_batch_ns = 30 * SECOND,
        .finish_repeat_ns = SECOND,
        .max_refs = pick(s, 3) != 0,
        .pool = {.n_blocks = 20 + pick(s, 100), .block_tokens = VW_BT, .max_seq_blocks = 32}};
    class_table_default(&s->wcfg.classes);
    if (pick(s, 3) == 0) s->wcfg.debug_preempt_every = 2 + pick(s, 9);
    if (pick(s, 3) == 0) s->wcfg.debug_park_every = 1 + pick(s, 9);
    if (pick(s, 3) == 0) s->wcfg.debug_drop_every = 2 + pick(s, 9);
    if (pick(s, 4) != 0) s->wcfg.pool.prefix_cache = true;
    s->wcfg.pool.max_accounts = 1 + pick(s, 3);
    if (pick(s, 4) != 0) {
        s->wcfg.pool.n_host = 1 + pick(s, VW_HOST - 1);
        s->wcfg.pool.max_copies = pick(s, 2) ? 0 : 3 + pick(s, 6);
    }
    if (pick(s, 2) != 0) {
        double start[COST_FEATURES] = {[COST_ONE] = 1e6, [COST_FIRST] = 1e5, [COST_SPILL] = 1e5, [COST_READS] = 1e5};
        step_cost_init(&s->wcfg.cost, start);
        s->wcfg.n_segments = 8;
        s->wcfg.interference_permille = 50;
        s->wcfg.copy_ns = pick(s, 2) ? 20000 : 600000;
    }
    if (pick(s, 4) == 0) s->wcfg.classes.rows[CLASS_BATCH].floor_permille = 100 + pick(s, 400);
}

static void sim_times(struct sim *s, uint32_t i)
{
    s->x->w[i].step_ns = 1100000;
    s->x->w[i].token_ns = 90000;
    s->x->w[i].copy_ns = s->wcfg.copy_ns;
}

static void sim_start(struct sim *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    configs(s);
    s->x = mem_zalloc(sizeof *s->x);
    s->gregion = mem_zalloc(gateway_core_bytes(&s->gcfg));
    for (int i = 0; i < WORLD_WORKERS; i++) {
        s->wregions[i] = mem_zalloc(worker_core_bytes(&s->wcfg));
        buf_init(&s->trace[i], 0);
    }
    world_init(s->x, s->gregion, &s->gcfg, s->wregions, &s->wcfg, 2 + pick(s, 6));
    for (int i = 0; i < WORLD_WORKERS; i++) s->x->trace[i] = &s->trace[i];
    for (int i = 0; i < WORLD_WORKERS; i++) sim_times(s, (uint32_t)i);
    if (pick(s, 3) == 0) s->x->conn[1].numerics = 2;
}

static void sim_stop(struct sim *s)
{
    for (int i = 0; i < WORLD_WORKERS; i++) {
        mem_free(s->wregions[i]);
        buf_deinit(&s->trace[i]);
    }
    mem_free(s->gregion);
    mem_free(s->clone);
    mem_free(s->x);
}

static void sim_arrive(struct sim *s)
{
    uint32_t slot = 0;
    while (slot < s->x->n_slots && s->x->req[slot].live) slot++;
    if (slot == s->x->n_slots) return;
    uint32_t capacity = (s->wcfg.pool.n_blocks - 1) * VW_BT;
    if (capacity > 120) capacity = 120;
    struct world_request r = {.cls = pick(s, 3) == 0 ? CLASS_REALTIME : CLASS_BATCH,
                              .key = rand_at(s->seed, 1u << 30 | s->arrived)};
    r.n_prompt = 1 + pick(s, capacity / 2);
    uint32_t max_tokens = 1 + pick(s, capacity - r.n_prompt);
    r.from = r.n_prompt;
    if (pick(s, 6) == 0) { /* prompt scores, at times nothing else */
        r.from = 1;
        if (pick(s, 2) == 0) max_tokens = 0;
    }
    r.max_total = r.n_prompt + max_tokens;
    if (max_tokens > 0 && pick(s, 2)) r.stop_at = r.n_prompt + pick(s, max_tokens);
    r.durable = r.cls == CLASS_BATCH && pick(s, 2);
    r.account = pick(s, 3);
    r.scope = pick(s, 5) == 0 ? 0 : 1 + r.account;
    r.quota = pick(s, 3) == 0 ? 31 + pick(s, 40) : 0;
    if (pick(s, 2)) { /* a few prompts begin alike, or are the same */
        r.shared_key = 1 + pick(s, 3);
        r.n_shared = pick(s, 2) ? r.n_prompt : pick(s, r.n_prompt + 1);
    }
    s->arrived++;
    world_request(s->x, slot, &r, s->arrived,
                  pick(s, 20) == 0 ? s->x->now + pick(s, 20) * SECOND / 2 : 0);
}

static void sim_fault(struct sim *s)
{
    static const enum world_choice_kind kinds[] = {WC_BREAK,  WC_KILL,    WC_LOSE_GW,
                                                   WC_LOSE_W, WC_FULL,    WC_CANCEL,
                                                   WC_CANCEL, WC_TICK_GW, WC_TICK_W};
    struct world_choice c = {kinds[pick(s, 9)], 0};
    c.who = pick(s, c.kind == WC_CANCEL ? s->x->n_slots : WORLD_WORKERS);
    if (!world_can(s->x, c)) return;
    if (c.kind == WC_TICK_W && s->x->conn[c.who].to_gw.n > 200)
        return; /* repeats would fill the queue for ever */
    s->faults++;
    if (c.kind == WC_KILL) {
        world_restart_worker(s->x, c.who, &s->wcfg);
        sim_times(s, c.who);
        buf_clear(&s->trace[c.who]);
        if (c.who == 0) s->clone_at = SIZE_MAX; /* of a process that is gone */
    } else {
        world_apply(s->x, c);
    }
}

/* "After a real-time arrival no lower step is submitted before the real-time one": whenever a
 * worker holds a real-time sequence that could run, the step submitted now must not be a new lower
 * one. */
static void watch_realtime(struct sim *s, const uint64_t before[WORLD_WORKERS],
                           const uint32_t urgent[WORLD_WORKERS])
{
    for (int i = 0; i < WORLD_WORKERS; i++) {
        if (s->wcfg.classes.rows[CLASS_BATCH].floor_permille > 0) continue; /* it has its turns */
        if (s->x->w[i].submitted[1] > before[i] && urgent[i] > 0) s->realtime_waits++;
    }
}

/* Real-time sequences with a seat whose blocks are there; one that resumes waits for its copies. */
static uint32_t could_run(const struct worker_core *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_active; i++) {
        const struct wc_slot *s = &wc_slots(c)[wc_active(c)[i]];
        n += s->rank == 0 && !s->resuming;
    }
    return n;
}

static void sim_event(struct sim *s)
{
    struct world_choice list[256];
    uint64_t before[WORLD_WORKERS];
    uint32_t urgent[WORLD_WORKERS], n = world_choices(s->x, list, 256);
    if (n == 0) return;
    for (int i = 0; i < WORLD_WORKERS; i++) {
        before[i] = s->x->w[i].submitted[1];
        urgent[i] = could_run(s->x->w[i].core);
    }
    struct world_choice c = list[pick(s, n)];
    for (uint32_t i = 0; i < WORLD_WORKERS;
         i++) { /* a step makes many messages, a delivery takes one */
        if (s->x->conn[i].alive && s->x->conn[i].to_gw.n > 60 + pick(s, 60))
            c = (struct world_choice){WC_DELIVER_GW, i};
    }
    if (c.kind == WC_STEP && pick(s, 1500) == 0) s->x->w[c.who].fail_next_copy = true;
    world_apply(s->x, c);
    if (c.kind == WC_STEP) return; /* it may have ended the last real-time sequence */
    watch_realtime(s, before, urgent);
    s->x->now += pick(s, 3000000);
    if (pick(s, 40) == 0) {
        struct world_choice st = {WC_STATUS, pick(s, WORLD_WORKERS)};
        if (s->x->conn[st.who].phase == 2 && s->x->conn[st.who].to_gw.n < 200)
            world_apply(s->x, st);
    }
}

static void sim_check(struct sim *s, uint32_t event)
{
    const char *bad = world_check(s->x);
    if (bad != NULL)
        ck_abort_msg("seed %llu, event %u: %s", (unsigned long long)s->seed, event, bad);
}

static void sim_replay(struct sim *s)
{
    for (int i = 0; i < WORLD_WORKERS; i++) {
        uint32_t events;
        void *region = mem_zalloc(worker_core_bytes(&s->wcfg));
        struct worker_core *core = worker_core_init(region, &s->wcfg);
        if (!vw_replay(core, &s->trace[i], 0, &events))
            ck_abort_msg("seed %llu: replay differs at event %u", (unsigned long long)s->seed,
                         events);
        size_t n = worker_core_state_bytes(&s->wcfg);
        if (memcmp(region, s->wregions[i], n) != 0)
            ck_abort_msg("seed %llu: states differ after replay", (unsigned long long)s->seed);
        mem_free(region);
    }
    if (s->clone == NULL || s->clone_at == SIZE_MAX) return;
    uint32_t events;
    if (!vw_replay(s->clone, &s->trace[0], s->clone_at, &events))
        ck_abort_msg("seed %llu: a clone behaves differently", (unsigned long long)s->seed);
    if (memcmp(s->clone, s->wregions[0], worker_core_state_bytes(&s->wcfg)) != 0)
        ck_abort_msg("seed %llu: a clone ends differently", (unsigned long long)s->seed);
}

static void sim_totals(const struct sim *s, uint64_t totals[TOTALS])
{
    totals[0] += s->x->finished;
    totals[1] += s->x->failed;
    totals[2] += s->x->cancelled;
    totals[3] += s->x->restarts;
    totals[4] += s->faults;
    totals[5] += s->x->delivered;
    for (int i = 0; i < WORLD_WORKERS; i++) {
        struct worker_stats st;
        worker_core_stats(s->x->w[i].core, &st);
        totals[6] += st.preemptions;
        totals[7] += st.parks;
        totals[8] += st.drops;
        totals[9] += st.steps[0] + st.steps[1];
        totals[10] += s->x->w[i].late_drops;
        totals[12] += st.pool.hits;
        totals[13] += st.followers;
        totals[14] += st.role_changes;
        totals[15] += st.resumed_swap;
        totals[16] += st.resumed_recompute;
        totals[17] += st.pool.copy_failures;
        totals[18] += st.realtime_swaps;
        totals[19] += st.ahead;
        totals[20] += st.given_back;
        ck_assert_uint_eq(st.faults, 0);
    }
    totals[11] += s->x->submits;
}

static void sim_run(uint64_t seed, uint32_t n_requests, bool faults, uint64_t totals[TOTALS])
{
    struct sim s;
    struct world_choice list[256];
    sim_start(&s, seed);
    uint32_t event = 0;
    while (s.arrived < n_requests) {
        uint32_t what = pick(&s, 100);
        if (what < 6)
            sim_arrive(&s);
        else if (what < 8 && faults)
            sim_fault(&s);
        else
            sim_event(&s);
        sim_check(&s, event++);
        if (s.clone == NULL && s.arrived == n_requests / 2) {
            s.clone = mem_memdup(s.wregions[0], worker_core_bytes(&s.wcfg));
            s.clone_at = s.trace[0].len;
        }
    }
    for (uint32_t left = 0; world_choices(s.x, list, 256) > 0; left++) { /* it drains */
        sim_event(&s);
        sim_check(&s, event++);
        if (left == 400000) ck_abort_msg("seed %llu: it does not drain", (unsigned long long)seed);
    }
    const char *leak = world_leak(s.x);
    if (leak != NULL) ck_abort_msg("seed %llu: %s", (unsigned long long)seed, leak);
    ck_assert_uint_eq(s.x->finished + s.x->failed + s.x->cancelled, s.arrived);
    ck_assert_uint_eq(s.realtime_waits, 0);
    if (!faults) ck_assert_uint_eq(s.x->failed - s.x->failed + s.x->cancelled, 0);
    sim_replay(&s);
    sim_totals(&s, totals);
    sim_stop(&s);
}

static void sim_many(uint64_t first, uint32_t runs, bool faults)
{
    uint64_t totals[TOTALS] = {0};
    const char *env = getenv("TEST_SEED"), *n = getenv("TEST_RUNS");
    if (env != NULL) first = strtoull(env, NULL, 10);
    if (n != NULL) runs = (uint32_t)strtoul(n, NULL, 10);
    printf("seeds from %llu, %u runs\n", (unsigned long long)first, runs);
    for (uint32_t k = 0; k < runs; k++) sim_run(first + k, 60, faults, totals);
    printf("finished %llu failed %llu cancelled %llu restarts %llu faults %llu tokens %llu "
           "preemptions %llu parks %llu drops %llu "
           "steps %llu late drops %llu submits %llu\n",
           (unsigned long long)totals[0], (unsigned long long)totals[1],
           (unsigned long long)totals[2], (unsigned long long)totals[3],
           (unsigned long long)totals[4], (unsigned long long)totals[5],
           (unsigned long long)totals[6], (unsigned long long)totals[7],
           (unsigned long long)totals[8], (unsigned long long)totals[9],
           (unsigned long long)totals[10], (unsigned long long)totals[11]);
    printf("hits %llu followers %llu role changes %llu swaps %llu recomputes %llu bad copies %llu\n",
           (unsigned long long)totals[12], (unsigned long long)totals[13],
           (unsigned long long)totals[14], (unsigned long long)totals[15],
           (unsigned long long)totals[16], (unsigned long long)totals[17]);
    printf("swaps of real-time %llu, brought ahead %llu, given back %llu\n", (unsigned long long)totals[18],
           (unsigned long long)totals[19], (unsigned long long)totals[20]);
    if (n != NULL || env != NULL) return;
    for (int k = 12; k < TOTALS; k++) ck_assert_uint_gt(totals[k], 0); /* each mechanism ran */
}

START_TEST(test_without_faults)
{
    sim_many(1000, 60, false);
}
END_TEST

START_TEST(test_with_faults)
{
    sim_many(5000, 150, true);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sched_sim");
    TCase *tc = tcase_create("sim");
    tcase_set_timeout(tc, 110);
    tcase_add_test(tc, test_without_faults);
    tcase_add_test(tc, test_with_faults);
    suite_add_tcase(s, tc);
    return test_run(s);
}
