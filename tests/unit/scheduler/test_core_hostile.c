/* Both cores against peers that say anything: random ids, indexes, counts, finishes, session
 * flapping, three gateways on one worker. Nothing may assert or break an auditor; what is delivered
 * stays in order; when the peers are gone everything is freed. */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/gateway_core.h"
#include "tests/unit/scheduler/wfix.h"

#include <stdlib.h>

static uint64_t seed = 424242, counter;

static uint32_t pick(uint32_t below)
{
    return (uint32_t)(rand_at(seed, counter++) % below);
}

/* Mostly small, at times absurd. */
static uint32_t wild(uint32_t usual)
{
    static const uint32_t odd[] = {0, 1, UINT32_MAX, UINT32_MAX - 1, 1u << 31, 4096, 129, 128};
    return pick(12) == 0 ? odd[pick(8)] : pick(usual);
}

static void hostile_submit(uint32_t gw)
{
    struct sub_id sub = {9, 1 + pick(60)};
    struct worker_event ev = {.kind = WE_SUBMIT, .gw = gw, .sub = sub};
    ev.submit.slot = WORKER_SLOT_NONE;
    for (uint32_t i = 0; i < w->max_slots && ev.submit.slot == WORKER_SLOT_NONE; i++) {
        if (!w->seqs[i].used) ev.submit.slot = i;
    }
    ev.submit.n_prompt = wild(40);
    ev.submit.n_tokens = ev.submit.n_prompt + wild(10);
    ev.submit.from = pick(3) ? ev.submit.n_tokens : wild(40);
    ev.submit.max_total = ev.submit.n_tokens + wild(60);
    ev.submit.cls = (uint8_t)(pick(20) == 0 ? 7 : pick(2));
    ev.submit.tag = pick(100);
    ev.submit.refused = pick(20) == 0;
    uint32_t n_total = ev.submit.max_total < cfg.n_ctx ? ev.submit.max_total : cfg.n_ctx;
    if (n_total < ev.submit.n_tokens) n_total = ev.submit.n_tokens;
    if (ev.submit.slot != WORKER_SLOT_NONE)
        w->seqs[ev.submit.slot] = (struct vw_seq){.used = true,
                                                  .sub = sub,
                                                  .key = rand_at(seed, counter++),
                                                  .n_tokens = ev.submit.n_tokens,
                                                  .made = ev.submit.from,
                                                  .max_total = n_total};
    vw_event(w, &ev, now, NULL);
}

static void hostile_link(uint32_t gw)
{
    struct sub_id sub = {9 + (pick(20) == 0), 1 + pick(60)};
    static const enum worker_event_kind kinds[] = {WE_CANCEL, WE_GAP, WE_ACK};
    vw_link(w, kinds[pick(3)], gw, sub, wild(60), now, NULL);
}

static void hostile_event(void)
{
    uint32_t gw = pick(3), what = pick(100);
    now += pick(20000000);
    if (what < 12)
        hostile_submit(gw);
    else if (what < 24)
        hostile_link(gw);
    else if (what < 27)
        vw_up(w, gw, 70 + pick(3), now, NULL); /* names move between sessions, too */
    else if (what < 29)
        vw_link(w, WE_SESSION_DOWN, gw, (struct sub_id){0, 0}, 0, now, NULL);
    else if (what < 34)
        vw_link(w, WE_TICK, 0, (struct sub_id){0, 0}, 0, now, NULL);
    else
        (void)vw_advance(w, now, NULL);
    w->n_out = 0;
    if (vw_check(w) != NULL)
        ck_abort_msg("after %llu draws: %s", (unsigned long long)counter, vw_check(w));
}

START_TEST(test_hostile_gateways)
{
    printf("seed %llu\n", (unsigned long long)seed);
    wfix_config();
    cfg.pool.n_blocks = 60;
    wfix_start();
    uint64_t steps = 0;
    for (uint32_t i = 0; i < 150000; i++) hostile_event();
    steps = w->submitted[0] + w->submitted[1];
    for (uint32_t gw = 0; gw < WORKER_GATEWAYS_MAX; gw++)
        vw_link(w, WE_SESSION_DOWN, gw, (struct sub_id){0, 0}, 0, now, NULL);
    while (vw_advance(w, now, NULL)) w->n_out = 0;
    now += 31 * SECOND;
    vw_link(w, WE_TICK, 0, (struct sub_id){0, 0}, 0, now, NULL);
    while (vw_advance(w, now, NULL)) w->n_out = 0;
    printf("%llu steps, %llu preemptions\n", (unsigned long long)steps,
           (unsigned long long)wfix_stats().preemptions);
    ck_assert_uint_gt(steps, 10000);
    ck_assert_uint_eq(vw_used(w), 0);
    ck_assert_uint_eq(wfix_stats().pool.free, 59);
    ck_assert_uint_eq(worker_core_next_tick_ns(w->core, now), UINT64_MAX);
    wfix_stop();
}
END_TEST

enum { G_SLOTS = 12, G_WORKERS = 3, G_SUBS = 64 };

struct peer_test {
    struct gateway_core *g;
    struct gateway_core_config cfg;
    struct gateway_action *acts;
    bool live[G_SLOTS], done[G_SLOTS];
    uint32_t next[G_SLOTS], at[G_SLOTS];
    struct sub_id current[G_SLOTS];
    struct sub_id subs[G_SUBS]; /* the last submissions, current or not */
    uint32_t n_subs;
    uint64_t deliveries, fails, submits;
};

static void peer_perform(struct peer_test *t, const struct gateway_action *a,
                         const struct gateway_event *ev)
{
    if (a->kind == GA_SUBMIT) {
        t->submits++;
        t->subs[t->n_subs++ % G_SUBS] = t->current[a->slot] = a->sub;
        t->at[a->slot] = a->worker;
        if (!t->live[a->slot] || t->done[a->slot] || a->from != t->next[a->slot])
            ck_abort_msg("a wrong SUBMIT");
    } else if (a->kind == GA_DELIVER) {
        t->deliveries++;
        if (!t->live[a->slot] || t->done[a->slot]) ck_abort_msg("a delivery to nobody");
        if (a->n > 0 && (ev->kind != GE_TOKENS || ev->tokens.index + a->skip != t->next[a->slot]))
            ck_abort_msg("a delivery out of order");
        if (a->skip + a->n > ev->tokens.n) ck_abort_msg("more delivered than came");
        t->next[a->slot] += a->n;
        t->done[a->slot] = a->finish != FINISH_NONE;
    } else if (a->kind == GA_FAIL) {
        t->fails++;
        if (!t->live[a->slot] || t->done[a->slot]) ck_abort_msg("a failure of nobody");
        t->live[a->slot] = false;
    } else if (a->kind == GA_RESTART) {
        t->next[a->slot] = 4;
    }
}

static void peer_give(struct peer_test *t, const struct gateway_event *ev)
{
    uint32_t n = gateway_core_handle(t->g, ev, now, t->acts);
    for (uint32_t i = 0; i < n; i++) peer_perform(t, &t->acts[i], ev);
    const char *bad = gateway_core_check(t->g);
    if (bad != NULL) ck_abort_msg("after %llu draws: %s", (unsigned long long)counter, bad);
}

static struct sub_id peer_sub(const struct peer_test *t)
{
    struct sub_id s = t->subs[pick(G_SUBS)];
    if (pick(10) == 0) s.counter += pick(5);
    if (pick(30) == 0) s.incarnation++;
    return s;
}

static void peer_worker(struct peer_test *t, struct gateway_event *ev)
{
    uint32_t what = pick(100);
    uint32_t good = pick(G_SLOTS); /* at times a worker does its work */
    ev->worker = pick(G_WORKERS);
    ev->sub = peer_sub(t);
    if (what < 40 && t->live[good]) {
        ev->kind = GE_TOKENS;
        ev->sub = t->current[good];
        ev->worker = t->at[good];
        ev->tokens.index = t->next[good];
        ev->tokens.n = pick(3);
        ev->tokens.finish = pick(5) ? FINISH_NONE : FINISH_EOS;
    } else if (what < 60) {
        ev->kind = GE_TOKENS;
        ev->tokens.index = wild(12);
        ev->tokens.n = wild(5);
        ev->tokens.finish = pick(4) ? FINISH_NONE : (enum finish)pick(FINISH_COUNT);
    } else if (what < 75) {
        ev->kind = GE_STATUS;
        ev->status.number = pick(1000);
        for (int k = 0; k < CLASSES_MAX; k++) ev->status.window[k] = wild(5);
        ev->status.draining = pick(10) == 0;
    } else if (what < 82) {
        ev->kind = GE_DOWN;
    } else if (what < 92) {
        ev->kind = GE_HELLO;
        ev->hello.name = pick(3);
        ev->hello.incarnation = pick(3);
        ev->hello.version_max = 1 + pick(2);
        ev->hello.version_min = pick(9) ? 1 : pick(3);
        ev->hello.numerics = (struct hash128){pick(2), 1};
        ev->hello.n_ctx = 5 + wild(100);
        ev->hello.block_tokens = 1 + wild(8);
        ev->hello.n_blocks = 4 + wild(100);
        ev->hello.max_seqs = 1 + wild(4);
        ev->hello.max_slots = 1 + wild(9);
    } else {
        ev->kind = pick(3) ? GE_TICK : GE_SEND_FULL;
    }
}

static void peer_client(struct peer_test *t, struct gateway_event *ev)
{
    uint32_t slot = ev->slot = pick(G_SLOTS);
    if (!t->live[slot]) {
        ev->kind = GE_ARRIVED;
        ev->arrived.cls = (uint8_t)pick(2);
        ev->arrived.n_prompt = ev->arrived.n_ids = ev->arrived.from = 4;
        ev->arrived.max_total = 4 + pick(6);
        ev->arrived.deadline_ns = pick(10) ? 0 : now + pick(3) * SECOND;
        ev->arrived.durable = pick(2);
        t->next[slot] = 4;
        t->live[slot] = true;
        t->done[slot] = false;
        return;
    }
    if (t->done[slot]) {
        ev->kind = pick(2) ? GE_RELEASE : GE_DURABLE;
        t->live[slot] = t->done[slot] = false;
        return;
    }
    ev->kind = pick(8) ? GE_TICK : GE_CANCEL;
}

START_TEST(test_hostile_workers)
{
    struct peer_test t = {.cfg = {.max_slots = G_SLOTS,
                                  .max_workers = G_WORKERS,
                                  .incarnation = 5,
                                  .no_worker_ns = 5 * SECOND,
                                  .lost_ns = 5 * SECOND}};
    class_table_default(&t.cfg.classes);
    t.g = gateway_core_init(mem_zalloc(gateway_core_bytes(&t.cfg)), &t.cfg);
    t.acts = mem_array(gateway_core_actions_max(&t.cfg), sizeof *t.acts);
    now = SECOND;
    for (uint32_t i = 0; i < 400000; i++) {
        struct gateway_event ev = {.kind = GE_TICK};
        struct gateway_sync list[4];
        now += pick(100000000);
        if (pick(5) == 0) {
            peer_client(&t, &ev);
        } else if (pick(8) == 0) {
            ev.kind = GE_SYNC;
            ev.worker = pick(G_WORKERS);
            ev.sync = list;
            ev.n_sync = pick(5);
            for (uint32_t k = 0; k < ev.n_sync; k++)
                list[k] = (struct gateway_sync){peer_sub(&t), wild(9), pick(2)};
        } else {
            peer_worker(&t, &ev);
        }
        peer_give(&t, &ev);
    }
    printf("%llu submits, %llu deliveries, %llu failures\n", (unsigned long long)t.submits,
           (unsigned long long)t.deliveries, (unsigned long long)t.fails);
    ck_assert_uint_gt(t.deliveries, 1000);
    ck_assert_uint_gt(t.submits, 10000);
    mem_free(t.g);
    mem_free(t.acts);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("hostile");
    const char *env = getenv("TEST_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, test_hostile_gateways);
    tcase_add_test(tc, test_hostile_workers);
    return wfix_main("core_hostile", tc);
}
