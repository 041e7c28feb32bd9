/* Token budgets against a model that keeps every single event, and the promise under load: 200 calls
 * at once on 10,000 tokens a minute, waiting, with cancels and dying workers. */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/token_budget.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S 1000000000ull
#define MS 1000000ull

static uint64_t seed = 20260101, counter;

static uint64_t below(uint64_t n)
{
    return rand_at(seed, counter++) % n;
}

static struct budget_time at(uint64_t now_ns)
{
    return (struct budget_time){now_ns, (int64_t)(now_ns / S)};
}

/* ---- the model: every event, two true sums */

#define EVENTS_MAX 4000000u
struct event { uint64_t ns, n; };
static struct event *events;
static uint32_t n_events, old_60, old_601; /* first event inside each window */
static uint64_t sum_60, sum_601;

static void model_reset(void)
{
    n_events = old_60 = old_601 = 0;
    sum_60 = sum_601 = 0;
}

static void model_now(uint64_t now)
{
    /* closed windows: what is exactly 60 s old counts still */
    for (; old_60 < n_events && events[old_60].ns + 60 * S < now; old_60++)
        sum_60 -= events[old_60].n;
    for (; old_601 < n_events && events[old_601].ns + 60 * S + 100 * MS < now; old_601++)
        sum_601 -= events[old_601].n;
}

static void model_add(uint64_t now, uint64_t n)
{
    ck_assert_uint_lt(n_events, EVENTS_MAX);
    if (n == 0) return;
    events[n_events++] = (struct event){now, n};
    sum_60 += n;
    sum_601 += n;
    model_now(now);
}

/* ---- random events */

#define LEASES 64
static struct token_budget b;
static struct budget_lease leases[LEASES];
static struct budget_waiter waiters[LEASES];
static bool queued[LEASES];
static uint64_t now, model_reserved, model_waiting, taken[7];

static bool busy(uint32_t i)
{
    return leases[i].held || queued[i];
}

/* A verdict that says it is exact: one ns before it nothing goes, then it does. */
static void try_verdict(const struct budget_verdict *v, uint64_t prompt, uint64_t output)
{
    static struct token_budget copy;
    if (!v->exact || v->why == BUDGET_TOO_LARGE) return;
    for (uint64_t early = 0; early < 2; early++) {
        struct budget_lease l = {0};
        copy = b;
        list_init(&copy.waiters);
        copy.n_waiters = 0;
        uint64_t then = v->at_ns - early;
        /* those who waited before it are let in as if they came first */
        copy.reserved_prompt += copy.waiting;
        copy.waiting = 0;
        struct budget_verdict w = token_budget_reserve(&copy, at(then), prompt, output, &l);
        if (b.n_waiters > 0 && b.limits.requests_per_minute + b.limits.in_flight != 0) return;
        ck_assert_msg((w.why == BUDGET_OK) == (early == 0), "early %d: why %d", (int)early, w.why);
    }
    taken[6]++;
}

static void admitted(uint64_t tokens)
{
    model_reserved += tokens;
    model_now(now);
    ck_assert_uint_le(sum_60 + model_reserved, b.limits.tokens_per_minute);
    taken[0]++;
}

static void arrive(uint32_t i)
{
    uint64_t prompt = below(300), output = below(300);
    struct budget_verdict v = token_budget_reserve(&b, at(now), prompt, output, &leases[i]);
    model_now(now);
    if (v.why == BUDGET_OK) {
        ck_assert_uint_eq(model_waiting, 0);
        admitted(prompt + output);
        return;
    }
    if (v.why == BUDGET_TOKENS && model_waiting == 0) {
        ck_assert_uint_gt(sum_601 + model_reserved + prompt + output, b.limits.tokens_per_minute);
        try_verdict(&v, prompt, output);
    }
    if (v.why == BUDGET_TOO_LARGE || b.limits.wait_ns == 0) return;
    waiters[i] = (struct budget_waiter){.lease = &leases[i], .prompt = prompt, .output = output};
    token_budget_wait(&b, at(now), &waiters[i]);
    queued[i] = true;
    model_waiting += prompt + output;
    taken[1]++;
}

static void charge(uint32_t i)
{
    uint64_t p = below(4) == 0 ? leases[i].prompt : 0, o = below(leases[i].output / 4 + 1);
    token_budget_charge(&b, at(now), &leases[i], p, o);
    model_reserved -= p + o;
    model_add(now, p + o);
    taken[2]++;
}

static void end(uint32_t i)
{
    if (queued[i]) {
        token_budget_unwait(&b, &waiters[i]);
        queued[i] = false;
        model_waiting -= waiters[i].prompt + waiters[i].output;
        taken[3]++;
        return;
    }
    model_reserved -= leases[i].prompt + leases[i].output;
    token_budget_settle(&b, &leases[i]);
    token_budget_settle(&b, &leases[i]);
    taken[4]++;
}

static void admit_waiters(void)
{
    struct budget_verdict v;
    struct budget_waiter *w;
    while ((w = token_budget_next(&b, at(now), &v)) != NULL) {
        queued[w - waiters] = false;
        model_waiting -= w->prompt + w->output;
        ck_assert(w->lease->held == (v.why == BUDGET_OK));
        if (v.why == BUDGET_OK) admitted(w->prompt + w->output);
        else taken[5]++;
    }
    uint64_t next = token_budget_next_ns(&b, at(now));
    ck_assert((next == UINT64_MAX) == (b.n_waiters == 0));
    ck_assert_uint_gt(next, now);
}

static void new_limits(void)
{
    struct token_limits l = {.tokens_per_minute = (uint32_t)(2000 + below(3) * 4000),
                             .requests_per_minute = below(2) ? (uint32_t)(20 + below(200)) : 0,
                             .in_flight = below(2) ? (uint32_t)(1 + below(30)) : 0,
                             .wait_ns = below(3) * 20 * S};
    token_budget_limits(&b, &l);
}

static void one_event(void)
{
    uint32_t i = (uint32_t)below(LEASES);
    switch (below(8)) {
    case 0: now += below(50 * MS); break;
    case 1: now += below(100) == 0 ? below(70 * S) : 0; break;
    case 2:
    case 3:
        if (!busy(i)) arrive(i);
        else if (leases[i].held) charge(i);
        break;
    case 4:
    case 5:
        if (leases[i].held) charge(i);
        break;
    case 6:
        if (busy(i)) end(i);
        break;
    default: admit_waiters(); break;
    }
}

START_TEST(test_random_events)
{
    const struct token_limits first = {.tokens_per_minute = 6000, .wait_ns = 30 * S};
    model_reset();
    token_budget_init(&b, &first);
    now = 5 * S;
    for (uint32_t k = 0; k < 1000000; k++) {
        one_event();
        if (k % 5000 == 0) new_limits();
        model_now(now);
        ck_assert_uint_eq(b.reserved_prompt + b.reserved_output, model_reserved);
        ck_assert_uint_eq(b.waiting, model_waiting);
        uint64_t sum = minute_window_sum(&b.tokens, now);
        ck_assert_uint_ge(sum, sum_60);
        ck_assert_uint_le(sum, sum_601);
        ck_assert_uint_le(sum_60 + model_reserved, 10000); /* the highest of new_limits */
        if (k % 1000 == 0) ck_assert(minute_window_check(&b.tokens));
    }
    for (uint32_t i = 0; i < LEASES; i++)
        if (busy(i)) end(i);
    ck_assert_uint_eq(b.reserved_prompt + b.reserved_output + b.in_flight + b.n_waiters, 0);
    printf("admitted %llu, waited %llu, charges %llu, waits left %llu, ends %llu, waits over %llu, "
           "exact times %llu\n",
           (unsigned long long)taken[0], (unsigned long long)taken[1], (unsigned long long)taken[2],
           (unsigned long long)taken[3], (unsigned long long)taken[4], (unsigned long long)taken[5],
           (unsigned long long)taken[6]);
    for (int i = 0; i < 7; i++) ck_assert_uint_gt(taken[i], 500);
}
END_TEST

/* ---- one thing at a time */

static struct budget_verdict reserve(uint64_t prompt, uint64_t output, struct budget_lease *l)
{
    return token_budget_reserve(&b, at(now), prompt, output, l);
}

static void start_with(struct token_limits l)
{
    token_budget_init(&b, &l);
    now = 1000 * S;
}

/* Case B88: 100 tokens a minute, five calls at once of 175; then of 40. */
START_TEST(test_parallel_calls_cannot_all_pass)
{
    struct budget_lease l[5] = {0};
    start_with((struct token_limits){.tokens_per_minute = 100});
    for (int i = 0; i < 5; i++) ck_assert_int_eq(reserve(5, 175, &l[i]).why, BUDGET_TOO_LARGE);
    ck_assert_int_eq(reserve(10, 30, &l[0]).why, BUDGET_OK);
    ck_assert_int_eq(reserve(10, 30, &l[1]).why, BUDGET_OK);
    struct budget_verdict v = reserve(10, 30, &l[2]);
    ck_assert_int_eq(v.why, BUDGET_TOKENS);
    ck_assert(!v.exact && v.at_ns > now); /* leases stand in the way, no token does */
    token_budget_charge(&b, at(now), &l[0], 10, 30);
    token_budget_settle(&b, &l[0]);
    token_budget_settle(&b, &l[1]); /* its rest is free at once */
    ck_assert_int_eq(reserve(10, 30, &l[2]).why, BUDGET_OK);
    v = reserve(10, 31, &l[3]);
    ck_assert(v.why == BUDGET_TOKENS && v.exact);
    ck_assert_uint_ge(v.at_ns, now + 60 * S);
    ck_assert_uint_le(v.at_ns, now + 60 * S + 100 * MS);
    token_budget_settle(&b, &l[2]);
}
END_TEST

START_TEST(test_requests_and_in_flight)
{
    struct budget_lease l[4] = {0};
    start_with((struct token_limits){.requests_per_minute = 3, .in_flight = 2});
    ck_assert_int_eq(reserve(1, 1, &l[0]).why, BUDGET_OK);
    now += S;
    ck_assert_int_eq(reserve(1, 1, &l[1]).why, BUDGET_OK);
    struct budget_verdict v = reserve(1, 1, &l[2]);
    ck_assert(v.why == BUDGET_IN_FLIGHT && !v.exact);
    token_budget_settle(&b, &l[0]);
    ck_assert_int_eq(reserve(1, 1, &l[2]).why, BUDGET_OK);
    token_budget_settle(&b, &l[1]);
    v = reserve(1, 1, &l[3]); /* the first came one second ago */
    ck_assert(v.why == BUDGET_REQUESTS && v.exact);
    ck_assert_uint_eq(budget_retry_after_s(&v, now), 60);
    now = v.at_ns - 1;
    ck_assert_int_eq(reserve(1, 1, &l[3]).why, BUDGET_REQUESTS);
    now = v.at_ns;
    ck_assert_int_eq(reserve(1, 1, &l[3]).why, BUDGET_OK);
    /* one that is taken back leaves the others' as they were, and is harmless the second time */
    struct budget_verdict full = reserve(1, 1, &l[1]);
    ck_assert_int_eq(full.why, BUDGET_REQUESTS);
    token_budget_take_back(&b, &l[3]);
    token_budget_take_back(&b, &l[3]);
    ck_assert_int_eq(reserve(1, 1, &l[3]).why, BUDGET_OK);
    token_budget_settle(&b, &l[3]);
    v = reserve(1, 1, &l[1]);
    ck_assert(v.why == BUDGET_REQUESTS && v.at_ns == full.at_ns);
    ck_assert_ptr_null(token_budget_check(&b, at(now)));
}
END_TEST

/* 1.5 units a day at 2 and 6 units a million: 10^-12 of a unit counts. */
START_TEST(test_money)
{
    struct budget_lease l[3] = {0};
    start_with((struct token_limits){
        .money_per_day_micro = 1500000, .prompt_price = 2000000, .output_price = 6000000});
    ck_assert_int_eq(reserve(0, 250001, &l[0]).why, BUDGET_TOO_LARGE);
    ck_assert_int_eq(reserve(300000, 100000, &l[0]).why, BUDGET_OK); /* 0.6 + 0.6 */
    ck_assert_int_eq(reserve(150000, 1, &l[1]).why, BUDGET_MONEY);
    token_budget_charge(&b, at(now), &l[0], 300000, 50000);
    token_budget_settle(&b, &l[0]); /* 0.9 spent */
    ck_assert_int_eq(reserve(0, 100000, &l[1]).why, BUDGET_OK);
    struct budget_verdict v = reserve(1, 0, &l[2]);
    ck_assert(v.why == BUDGET_MONEY && v.exact);
    ck_assert_uint_eq(v.at_ns / S, 86400); /* midnight */
    now = v.at_ns;
    ck_assert_int_eq(reserve(1, 0, &l[2]).why, BUDGET_OK);
    token_budget_charge(&b, at(now), &l[1], 0, 100000); /* made today: 0.6 of today */
    ck_assert_uint_eq(b.spent, 600000000000);
    token_budget_spent(&b, at(now), 1, 1);
    ck_assert_uint_eq(b.spent, 600008000000);
    struct budget_time back = {now, 86399}; /* a clock set back opens no new day */
    ck_assert_int_eq(token_budget_reserve(&b, back, 0, 200000, &l[0]).why, BUDGET_MONEY);
}
END_TEST

START_TEST(test_waiters_in_order)
{
    struct budget_lease l[4] = {0};
    struct budget_verdict v;
    start_with((struct token_limits){.tokens_per_minute = 100, .wait_ns = 90 * S});
    ck_assert_int_eq(reserve(50, 50, &l[0]).why, BUDGET_OK);
    token_budget_charge(&b, at(now), &l[0], 50, 50);
    struct budget_waiter big = {.lease = &l[1], .prompt = 90}, small = {.lease = &l[2], .prompt = 5};
    token_budget_wait(&b, at(now), &big);
    now += S;
    v = reserve(1, 0, &l[3]); /* behind those who wait, though it would fit sooner */
    ck_assert_int_eq(v.why, BUDGET_TOKENS);
    token_budget_wait(&b, at(now), &small);
    ck_assert_ptr_null(token_budget_next(&b, at(now), &v));
    uint64_t next = token_budget_next_ns(&b, at(now));
    ck_assert_uint_ge(next, 1060 * S);
    now = next;
    ck_assert_ptr_eq(token_budget_next(&b, at(now), &v), &big);
    ck_assert(v.why == BUDGET_OK && l[1].held && !l[2].held);
    ck_assert_ptr_eq(token_budget_next(&b, at(now), &v), &small);
    ck_assert_ptr_null(token_budget_next(&b, at(now), &v));
    struct budget_waiter late = {.lease = &l[3], .prompt = 90};
    token_budget_wait(&b, at(now), &late);
    now += 90 * S - 1;
    ck_assert_ptr_null(token_budget_next(&b, at(now), &v)); /* leases never end: it waits in vain */
    now += 1;
    ck_assert_ptr_eq(token_budget_next(&b, at(now), &v), &late);
    ck_assert(v.why == BUDGET_TOKENS && !l[3].held);
    ck_assert_ptr_null(token_budget_check(&b, at(now)));
    token_budget_unwait(&b, &late);
}
END_TEST

START_TEST(test_restart_and_view)
{
    struct budget_lease l = {0};
    struct budget_view v;
    start_with((struct token_limits){.tokens_per_minute = 100, .requests_per_minute = 10});
    token_budget_restore(&b, at(now), 20 * S, 90, 4);
    ck_assert_int_eq(reserve(10, 1, &l).why, BUDGET_TOKENS);
    token_budget_view(&b, at(now), &v);
    ck_assert(v.limit_tokens == 100 && v.remaining_tokens == 10);
    ck_assert(v.limit_requests == 10 && v.remaining_requests == 6);
    ck_assert(v.reset_tokens_ns >= 40 * S && v.reset_tokens_ns <= 40 * S + 100 * MS);
    now += v.reset_tokens_ns;
    token_budget_view(&b, at(now), &v);
    ck_assert(v.remaining_tokens == 100 && v.reset_tokens_ns == 0 && v.remaining_requests == 10);
    token_budget_restore(&b, at(now), 61 * S, 90, 4); /* long ago */
    ck_assert_int_eq(reserve(50, 50, &l).why, BUDGET_OK);
    token_budget_view(&b, at(now), &v);
    ck_assert(v.remaining_tokens == 0 && v.remaining_requests == 9);
}
END_TEST

START_TEST(test_reset_text)
{
    const struct { uint64_t ns; const char *text; } rows[] = {
        {0, "0s"}, {1, "1ms"}, {12 * MS, "12ms"}, {999 * MS + 1, "1s"}, {S, "1s"},
        {S + 1, "2s"}, {59 * S + 1, "1m0s"}, {360 * S, "6m0s"}, {3600 * S, "1h0m0s"},
        {86399 * S, "23h59m59s"}, {UINT64_MAX, "5124095h34m34s"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[BUDGET_RESET_TEXT_MAX];
        budget_reset_text(text, rows[i].ns);
        ck_assert_str_eq(text, rows[i].text);
    }
    struct budget_verdict v = {BUDGET_TOKENS, true, 5 * S + 1};
    ck_assert_uint_eq(budget_retry_after_s(&v, 5 * S), 1);
    ck_assert_uint_eq(budget_retry_after_s(&v, 4 * S), 2);
    ck_assert_uint_eq(budget_retry_after_ms(&v, 4 * S), 1001);
    ck_assert_uint_eq(budget_retry_after_ms(&v, 6 * S), 1);
}
END_TEST

/* ---- 200 calls at once: the row of the table */

#define CALLS 200
#define SEATS 32
#define LIMIT 10000
enum call_state { CALL_WAITS, CALL_QUEUED, CALL_RUNS };
struct call {
    struct budget_lease lease;
    struct budget_waiter waiter;
    enum call_state state;
    uint32_t prompt, max_tokens, length; /* length: where it stops by itself */
    uint32_t made, charged;              /* output ids; charged: the most ever, each once */
    bool prompt_charged;
};
static struct call calls[CALLS];
static uint64_t finished, cancelled, kills, remade;

static void call_ask(struct call *c)
{
    *c = (struct call){.prompt = (uint32_t)(8 + below(40)), .max_tokens = (uint32_t)(16 + below(48))};
    c->length = below(2) ? c->max_tokens : (uint32_t)(1 + below(c->max_tokens));
    c->waiter = (struct budget_waiter){
        .lease = &c->lease, .prompt = c->prompt, .output = c->max_tokens};
    struct budget_verdict v =
        token_budget_reserve(&b, at(now), c->prompt, c->max_tokens, &c->lease);
    ck_assert_int_ne(v.why, BUDGET_TOO_LARGE);
    c->state = v.why == BUDGET_OK ? CALL_QUEUED : CALL_WAITS;
    if (c->state == CALL_WAITS) token_budget_wait(&b, at(now), &c->waiter);
}

static void call_end(struct call *c, bool again)
{
    token_budget_unwait(&b, &c->waiter);
    token_budget_settle(&b, &c->lease);
    if (again) call_ask(c);
}

static void call_step(struct call *c)
{
    uint64_t fresh = c->prompt_charged ? 0 : c->prompt, out = 0;
    c->prompt_charged = true;
    if (++c->made > c->charged) out = c->made - c->charged;
    else remade++;
    c->charged += (uint32_t)out;
    token_budget_charge(&b, at(now), &c->lease, fresh, out);
    model_add(now, fresh + out);
    if (c->made < c->length) return;
    finished++;
    call_end(c, true);
}

/* A worker dies: half of its sequences go on elsewhere, the others begin again from the prompt. */
static void kill_worker(void)
{
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].state != CALL_RUNS || below(4) != 0) continue;
        calls[i].state = CALL_QUEUED;
        if (below(2)) calls[i].made = 0;
    }
    kills++;
}

static void turn(uint64_t turn_no)
{
    struct budget_verdict v;
    struct budget_waiter *w;
    uint32_t running = 0;
    while ((w = token_budget_next(&b, at(now), &v)) != NULL) {
        ck_assert_int_eq(v.why, BUDGET_OK);
        ((struct call *)list_item(w, struct call, waiter))->state = CALL_QUEUED;
    }
    for (int i = 0; i < CALLS; i++) running += calls[i].state == CALL_RUNS;
    for (int i = 0; i < CALLS; i++) {
        struct call *c = &calls[(turn_no + (uint64_t)i) % CALLS];
        if (c->state == CALL_QUEUED && running < SEATS) {
            c->state = CALL_RUNS;
            running++;
        }
        if (below(4000) == 0) {
            cancelled++;
            call_end(c, true);
        } else if (c->state == CALL_RUNS) {
            call_step(c);
        }
    }
    if (below(500) == 0) kill_worker();
}

START_TEST(test_200_calls)
{
    const uint64_t begin = 3600 * S, length = 1200 * S, step = 10 * MS;
    uint64_t made = 0, most = 0, k = 0;
    start_with((struct token_limits){.tokens_per_minute = LIMIT, .wait_ns = 3600 * S});
    model_reset();
    now = begin;
    for (int i = 0; i < CALLS; i++) call_ask(&calls[i]);
    for (; now < begin + length; now += step) {
        turn(k++);
        model_now(now);
        uint64_t held = b.reserved_prompt + b.reserved_output;
        ck_assert_uint_le(sum_60 + held, LIMIT);
        if (sum_60 > most) most = sum_60;
        ck_assert_ptr_null(token_budget_check(&b, at(now)));
    }
    for (uint32_t i = 0; i < n_events; i++) made += events[i].n;
    double use = (double)made / ((double)LIMIT * ((double)length / (60.0 * (double)S)));
    for (int i = 0; i < CALLS; i++) call_end(&calls[i], false);
    printf("made %llu, use %.2f %%, most in 60 s %llu of %d; %llu finished, %llu cancelled, "
           "%llu kills, %llu made again\n",
           (unsigned long long)made, use * 100, (unsigned long long)most, LIMIT,
           (unsigned long long)finished, (unsigned long long)cancelled, (unsigned long long)kills,
           (unsigned long long)remade);
    ck_assert_double_ge(use, 0.97);
    ck_assert(finished > 1000 && cancelled > 500 && kills > 100 && remade > 100);
    ck_assert_uint_eq(b.reserved_prompt + b.reserved_output, 0);
    ck_assert_uint_eq(b.in_flight + b.n_waiters + b.waiting, 0);
}
END_TEST

int main(void)
{
    const char *env = getenv("SLUICE_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    events = mem_array(EVENTS_MAX, sizeof *events);
    Suite *s = suite_create("token_budget");
    TCase *tc = tcase_create("budget");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, test_parallel_calls_cannot_all_pass);
    tcase_add_test(tc, test_requests_and_in_flight);
    tcase_add_test(tc, test_money);
    tcase_add_test(tc, test_waiters_in_order);
    tcase_add_test(tc, test_restart_and_view);
    tcase_add_test(tc, test_reset_text);
    tcase_add_test(tc, test_random_events);
    tcase_add_test(tc, test_200_calls);
    suite_add_tcase(s, tc);
    int rc = test_run(s);
    mem_free(events);
    return rc;
}
