/* fair_queue against a naive model: after every one of a million random operations the same head, and
 * the auditor now and then. Then the longest wait and its bounds. TEST_SEED repeats a run. */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/fair_queue.h"
#include "tests/common/test_run.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 96, FLOWS = 9, CLASSES = 3, OPS = 1000000 };
#define LONGEST 3000u

struct model_flow { uint64_t tag, picked, promoted; bool held; };
struct model {
    bool in[ENTRIES];
    struct fair_entry key[ENTRIES];
    struct model_flow flow[CLASSES][FLOWS];
    bool promoted_last[CLASSES];
    uint64_t picks;
};

static struct fair_queue *q;
static struct model m;
static uint64_t seed = 77, draws, arrivals, now;

static uint32_t pick(uint32_t below)
{
    return (uint32_t)(rand_at(seed, draws++) % below);
}

static void start(uint64_t longest)
{
    struct fair_queue_config cfg = {.max_entries = ENTRIES, .max_flows = FLOWS, .n_classes = CLASSES};
    cfg.longest_ns[1] = longest;
    q = fair_queue_init(mem_zalloc(fair_queue_bytes(&cfg)), &cfg);
    memset(&m, 0, sizeof m);
    arrivals = now = 1;
}

static bool key_before(const struct fair_entry *a, const struct fair_entry *b)
{
    if (a->due != b->due) return a->due < b->due;
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->order != b->order) return a->order < b->order;
    return a->arrival < b->arrival;
}

/* First of a flow by key, or the oldest by arrival. */
static uint32_t model_first(uint8_t cls, uint32_t flow, bool oldest)
{
    uint32_t best = FAIR_NONE;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        const struct fair_entry *e = &m.key[i];
        if (!m.in[i] || e->cls != cls || e->flow != flow) continue;
        if (best == FAIR_NONE || (oldest ? e->arrival < m.key[best].arrival
                                         : key_before(e, &m.key[best])))
            best = i;
    }
    return best;
}

static uint32_t model_turn(uint8_t cls)
{
    uint32_t best = FAIR_NONE;
    for (uint32_t f = 0; f < FLOWS; f++) {
        if (m.flow[cls][f].held || model_first(cls, f, false) == FAIR_NONE) continue;
        const struct model_flow *x = &m.flow[cls][f], *y = &m.flow[cls][best % FLOWS];
        if (best == FAIR_NONE || x->tag < y->tag || (x->tag == y->tag && x->picked < y->picked)) best = f;
    }
    return best == FAIR_NONE ? FAIR_NONE : model_first(cls, best, false);
}

static uint32_t model_head(uint8_t cls, uint64_t longest)
{
    uint32_t best = FAIR_NONE;
    uint64_t best_aged = 0;
    for (uint32_t f = 0; longest != 0 && !m.promoted_last[cls] && f < FLOWS; f++) {
        const struct model_flow *x = &m.flow[cls][f];
        uint32_t e = x->held ? FAIR_NONE : model_first(cls, f, true);
        if (e == FAIR_NONE) continue;
        uint64_t aged = m.key[e].arrived_ns > x->promoted ? m.key[e].arrived_ns : x->promoted;
        const struct model_flow *y = best == FAIR_NONE ? x : &m.flow[cls][m.key[best].flow];
        if (best == FAIR_NONE || aged < best_aged ||
            (aged == best_aged &&
             (x->tag < y->tag || (x->tag == y->tag && x->picked < y->picked)))) {
            best = e;
            best_aged = aged;
        }
    }
    return best != FAIR_NONE && now - best_aged >= longest ? best : model_turn(cls);
}

static void model_push(uint32_t i)
{
    struct fair_entry *e = fair_queue_entry(q, i);
    int8_t priority = (int8_t)(pick(3) - 1);
    *e = (struct fair_entry){.order = pick(3),
                             .arrival = arrivals++,
                             .arrived_ns = now,
                             .flow = pick(FLOWS),
                             .cls = (uint8_t)pick(CLASSES),
                             .priority = priority};
    e->due = fair_queue_due(now, pick(4) == 0 ? now + pick(20000) : 0, priority, pick(2) ? 500 : 2000);
    m.key[i] = *e;
    m.in[i] = true;
    fair_queue_push(q, i);
}

static void model_pick(uint8_t cls, uint64_t longest)
{
    uint32_t want = model_head(cls, longest), got = fair_queue_head(q, cls, now);
    if (got != want)
        ck_abort_msg("seed %llu, draw %llu: head %u, not %u", (unsigned long long)seed,
                     (unsigned long long)draws, got, want);
    if (got == FAIR_NONE || pick(2)) return;
    struct model_flow *f = &m.flow[cls][m.key[got].flow];
    bool promoted = model_turn(cls) != got;
    ck_assert(fair_queue_pick(q, got, now) == promoted);
    if (promoted) f->promoted = now;
    m.promoted_last[cls] = promoted;
    f->picked = ++m.picks;
    m.in[got] = false;
}

static void model_op(uint64_t longest)
{
    uint32_t what = pick(100), i = pick(ENTRIES), flow = pick(FLOWS);
    uint8_t cls = (uint8_t)pick(CLASSES);
    now += pick(40);
    if (what < 45 && !m.in[i]) {
        model_push(i);
    } else if (what < 60 && m.in[i]) {
        fair_queue_remove(q, i);
        m.in[i] = false;
    } else if (what < 75) {
        m.flow[cls][flow].tag = pick(2) ? m.flow[cls][flow].tag + pick(50) : pick(3000);
        fair_queue_tag(q, cls, flow, m.flow[cls][flow].tag);
    } else if (what < 78) {
        m.flow[cls][flow].held = pick(3) == 0;
        fair_queue_hold(q, cls, flow, m.flow[cls][flow].held);
    } else {
        model_pick(cls, cls == 1 ? longest : 0);
    }
}

START_TEST(test_against_a_naive_model)
{
    uint32_t promoted = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    start(LONGEST);
    for (uint32_t i = 0; i < OPS; i++) {
        model_op(LONGEST);
        promoted += m.promoted_last[1];
        if (i % 64 != 0) continue;
        const char *bad = fair_queue_check(q);
        if (bad != NULL) ck_abort_msg("operation %u: %s", i, bad);
    }
    ck_assert_uint_gt(promoted, 100);
    mem_free(q);
}
END_TEST

static void push(uint32_t i, uint32_t flow, uint64_t arrived)
{
    *fair_queue_entry(q, i) = (struct fair_entry){.due = arrived,
                                                  .arrival = arrivals++,
                                                  .arrived_ns = arrived,
                                                  .flow = flow,
                                                  .cls = 1};
    fair_queue_push(q, i);
}

/* A flood of old entries of one flow: one of them a longest wait goes before its turn. */
START_TEST(test_longest_wait_is_bounded)
{
    start(100);
    for (uint32_t i = 0; i < 40; i++) push(i, 0, 1);
    for (uint32_t i = 40; i < 80; i++) push(i, 1, 1000);
    fair_queue_tag(q, 1, 0, 1000000); /* far behind by tag */
    uint32_t flood = 0;
    for (now = 1000; now < 1020; now++) {
        uint32_t e = fair_queue_head(q, 1, now);
        flood += fair_queue_entry(q, e)->flow == 0;
        ck_assert(fair_queue_pick(q, e, now) == (fair_queue_entry(q, e)->flow == 0));
    }
    ck_assert_uint_eq(flood, 1);
    now = 1101;
    ck_assert_uint_eq(fair_queue_entry(q, fair_queue_head(q, 1, now))->flow, 1); /* as old by now */
    ck_assert(fair_queue_check(q) == NULL);
    mem_free(q);
}
END_TEST

START_TEST(test_priority_is_worth_waiting_time)
{
    uint64_t normal = fair_queue_due(1000, 0, 0, 10), high = fair_queue_due(1005, 0, 1, 10);
    ck_assert(high < normal); /* came 5 later, is worth 10 */
    ck_assert(fair_queue_due(1011, 0, 1, 10) > normal);
    ck_assert(fair_queue_due(1, 500, -8, 10) == 500);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fair_queue");
    TCase *tc = tcase_create("queue");
    const char *env = getenv("TEST_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, test_against_a_naive_model);
    tcase_add_test(tc, test_longest_wait_is_bounded);
    tcase_add_test(tc, test_priority_is_worth_waiting_time);
    suite_add_tcase(s, tc);
    return test_run(s);
}
