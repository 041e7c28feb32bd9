#include "scheduler/token_budget.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400
#define NS_PER_S 1000000000ull
#define PICO_PER_MICRO 1000000u
/* Nobody knows when a running request ends; a refused one asks again after this. */
#define IN_FLIGHT_RETRY_NS NS_PER_S

__extension__ typedef unsigned __int128 money; /* tokens x price may pass 64 bits; 10^-12 units */

void token_budget_init(struct token_budget *b, const struct token_limits *limits)
{
    memset(b, 0, sizeof *b);
    minute_window_init(&b->tokens);
    minute_window_init(&b->requests);
    list_init(&b->waiters);
    b->day = INT64_MIN;
    token_budget_limits(b, limits);
}

void token_budget_limits(struct token_budget *b, const struct token_limits *limits)
{
    assert(limits->money_per_day_micro <= BUDGET_MONEY_MAX_MICRO);
    b->limits = *limits;
}

static int64_t day_of(int64_t wall_s)
{
    return wall_s >= 0 ? wall_s / DAY_S : -((DAY_S - 1 - wall_s) / DAY_S);
}

static void turn_day(struct token_budget *b, struct budget_time t)
{
    if (day_of(t.wall_s) <= b->day) return;
    b->day = day_of(t.wall_s);
    b->spent = 0;
}

static money cost_of(const struct token_budget *b, uint64_t prompt, uint64_t output)
{
    return (money)prompt * b->limits.prompt_price + (money)output * b->limits.output_price;
}

static void spend(struct token_budget *b, uint64_t prompt, uint64_t output)
{
    money sum = b->spent + cost_of(b, prompt, output);
    b->spent = sum < UINT64_MAX ? (uint64_t)sum : UINT64_MAX;
}

static uint64_t reserved(const struct token_budget *b)
{
    return b->reserved_prompt + b->reserved_output;
}

/* ---- verdicts */

static void hold(struct budget_verdict *v, enum budget_why why, bool exact, uint64_t at_ns)
{
    v->exact = v->exact && exact;
    if (v->why != BUDGET_OK && at_ns <= v->at_ns) return;
    v->why = why;
    v->at_ns = at_ns;
}

/* `need` more must leave the window. What is more than it holds belongs to leases and waiters: as if
 * it were made now, a whole limit a minute. */
static void hold_for_window(struct budget_verdict *v, enum budget_why why, struct minute_window *w,
                            uint64_t now_ns, uint64_t need, uint64_t limit)
{
    uint64_t sum = minute_window_sum(w, now_ns);
    if (need <= sum) {
        hold(v, why, true, minute_window_frees_ns(w, now_ns, need));
        return;
    }
    uint64_t minutes = 1 + (need - sum - 1) / limit;
    hold(v, why, false, now_ns + MINUTE_WINDOW_CELL_NS + minutes * MINUTE_WINDOW_NS);
}

/* `ahead`: tokens and requests of waiters that come first. */
static void hold_for_minute(struct token_budget *b, uint64_t now_ns, uint64_t ask, uint64_t ahead,
                            uint32_t n_ahead, struct budget_verdict *v)
{
    const struct token_limits *l = &b->limits;
    uint64_t tokens = minute_window_sum(&b->tokens, now_ns) + reserved(b) + ahead + ask;
    uint64_t requests = minute_window_sum(&b->requests, now_ns) + n_ahead + 1;
    if (l->tokens_per_minute != 0 && tokens > l->tokens_per_minute)
        hold_for_window(v, BUDGET_TOKENS, &b->tokens, now_ns, tokens - l->tokens_per_minute,
                        l->tokens_per_minute);
    if (l->requests_per_minute != 0 && requests > l->requests_per_minute)
        hold_for_window(v, BUDGET_REQUESTS, &b->requests, now_ns, requests - l->requests_per_minute,
                        l->requests_per_minute);
    if (l->in_flight != 0 && (uint64_t)b->in_flight + n_ahead >= l->in_flight)
        hold(v, BUDGET_IN_FLIGHT, false, now_ns + IN_FLIGHT_RETRY_NS);
}

/* At midnight only what is still reserved counts. */
static void hold_for_day(const struct token_budget *b, struct budget_time t, money cost,
                         struct budget_verdict *v)
{
    money limit = (money)b->limits.money_per_day_micro * PICO_PER_MICRO;
    money held = cost_of(b, b->reserved_prompt, b->reserved_output) + cost;
    if (limit == 0 || b->spent + held <= limit) return;
    uint64_t left_s = (uint64_t)((b->day + 1) * DAY_S - t.wall_s);
    hold(v, BUDGET_MONEY, held <= limit, t.now_ns + left_s * NS_PER_S);
}

static bool too_large(const struct token_budget *b, uint64_t prompt, uint64_t output)
{
    const struct token_limits *l = &b->limits;
    money day = (money)l->money_per_day_micro * PICO_PER_MICRO;
    return (l->tokens_per_minute != 0 && prompt + output > l->tokens_per_minute) ||
           (day != 0 && cost_of(b, prompt, output) > day);
}

static struct budget_verdict judge(struct token_budget *b, struct budget_time t, uint64_t prompt,
                                   uint64_t output, uint64_t ahead, uint32_t n_ahead)
{
    struct budget_verdict v = {BUDGET_OK, true, t.now_ns};
    turn_day(b, t);
    if (too_large(b, prompt, output))
        return (struct budget_verdict){BUDGET_TOO_LARGE, true, UINT64_MAX};
    hold_for_minute(b, t.now_ns, prompt + output, ahead, n_ahead, &v);
    hold_for_day(b, t, cost_of(b, prompt, output), &v);
    return v;
}

/* ---- leases */

static void take(struct token_budget *b, struct budget_time t, uint64_t prompt, uint64_t output,
                 struct budget_lease *lease)
{
    assert(!lease->held);
    *lease = (struct budget_lease){prompt, output, true};
    b->reserved_prompt += prompt;
    b->reserved_output += output;
    b->in_flight++;
    minute_window_add(&b->requests, t.now_ns, 1);
}

struct budget_verdict token_budget_reserve(struct token_budget *b, struct budget_time t,
                                           uint64_t prompt, uint64_t output,
                                           struct budget_lease *lease)
{
    struct budget_verdict v = judge(b, t, prompt, output, b->waiting, b->n_waiters);
    if (v.why == BUDGET_OK && b->n_waiters > 0) /* the first of them goes at the next tick */
        v = (struct budget_verdict){BUDGET_TOKENS, false, t.now_ns};
    if (v.why == BUDGET_OK) take(b, t, prompt, output, lease);
    return v;
}

void token_budget_charge(struct token_budget *b, struct budget_time t, struct budget_lease *lease,
                         uint64_t prompt, uint64_t output)
{
    assert(lease->held && prompt <= lease->prompt && output <= lease->output);
    turn_day(b, t);
    lease->prompt -= prompt;
    lease->output -= output;
    b->reserved_prompt -= prompt;
    b->reserved_output -= output;
    minute_window_add(&b->tokens, t.now_ns, prompt + output);
    spend(b, prompt, output);
}

void token_budget_settle(struct token_budget *b, struct budget_lease *lease)
{
    if (!lease->held) return;
    assert(b->in_flight > 0 && lease->prompt <= b->reserved_prompt &&
           lease->output <= b->reserved_output);
    b->reserved_prompt -= lease->prompt;
    b->reserved_output -= lease->output;
    b->in_flight--;
    *lease = (struct budget_lease){0};
}

void token_budget_take_back(struct token_budget *b, struct budget_lease *lease)
{
    if (!lease->held) return;
    token_budget_settle(b, lease);
    minute_window_take_back(&b->requests, 1);
}

/* ---- waiters */

void token_budget_wait(struct token_budget *b, struct budget_time t, struct budget_waiter *w)
{
    w->since_ns = t.now_ns;
    list_init(&w->link);
    list_push_back(&b->waiters, &w->link);
    b->n_waiters++;
    b->waiting += w->prompt + w->output;
}

void token_budget_unwait(struct token_budget *b, struct budget_waiter *w)
{
    if (w->link.next == NULL || !list_linked(&w->link)) return;
    list_remove(&w->link);
    b->n_waiters--;
    b->waiting -= w->prompt + w->output;
}

static struct budget_waiter *first_waiter(const struct token_budget *b)
{
    struct list *l = list_first(&b->waiters);
    return l != NULL ? list_item(l, struct budget_waiter, link) : NULL;
}

/* Waited long enough, or for what its wait cannot reach: it must not stand before the others. */
static bool gives_up(const struct token_budget *b, const struct budget_waiter *w, uint64_t now_ns,
                     const struct budget_verdict *v)
{
    uint64_t end_ns = w->since_ns + b->limits.wait_ns;
    return now_ns >= end_ns ||
           ((v->why == BUDGET_MONEY || v->why == BUDGET_TOO_LARGE) && v->at_ns > end_ns);
}

struct budget_waiter *token_budget_next(struct token_budget *b, struct budget_time t,
                                        struct budget_verdict *v)
{
    struct budget_waiter *w = first_waiter(b);
    if (w == NULL) return NULL;
    *v = judge(b, t, w->prompt, w->output, 0, 0);
    if (v->why != BUDGET_OK && !gives_up(b, w, t.now_ns, v)) return NULL;
    token_budget_unwait(b, w);
    if (v->why == BUDGET_OK) take(b, t, w->prompt, w->output, w->lease);
    return w;
}

uint64_t token_budget_next_ns(struct token_budget *b, struct budget_time t)
{
    struct budget_waiter *w = first_waiter(b);
    if (w == NULL) return UINT64_MAX;
    struct budget_verdict v = judge(b, t, w->prompt, w->output, 0, 0);
    uint64_t end_ns = w->since_ns + b->limits.wait_ns;
    if (v.why == BUDGET_OK || gives_up(b, w, t.now_ns, &v)) return t.now_ns;
    return v.exact && v.at_ns < end_ns ? v.at_ns : end_ns;
}

/* ---- after a restart */

void token_budget_restore(struct token_budget *b, struct budget_time t, uint64_t age_ns,
                          uint64_t tokens, uint64_t requests)
{
    minute_window_add_past(&b->tokens, t.now_ns, age_ns, tokens);
    minute_window_add_past(&b->requests, t.now_ns, age_ns, requests);
}

void token_budget_spent(struct token_budget *b, struct budget_time t, uint64_t prompt,
                        uint64_t output)
{
    turn_day(b, t);
    spend(b, prompt, output);
}

/* ---- what a client is told */

static uint64_t left_of(uint64_t limit, uint64_t taken)
{
    return limit > taken ? limit - taken : 0;
}

void token_budget_view(struct token_budget *b, struct budget_time t, struct budget_view *v)
{
    uint64_t now = t.now_ns;
    v->limit_tokens = b->limits.tokens_per_minute;
    v->limit_requests = b->limits.requests_per_minute;
    uint64_t tokens = minute_window_sum(&b->tokens, now) + reserved(b) + b->waiting;
    v->remaining_tokens = left_of(v->limit_tokens, tokens);
    v->remaining_requests =
        left_of(v->limit_requests, minute_window_sum(&b->requests, now) + b->n_waiters);
    v->reset_tokens_ns = minute_window_empty_ns(&b->tokens, now) - now;
    v->reset_requests_ns = minute_window_empty_ns(&b->requests, now) - now;
}

void budget_reset_text(char out[BUDGET_RESET_TEXT_MAX], uint64_t ns)
{
    uint64_t ms = ns / 1000000 + (ns % 1000000 != 0), s = ns / NS_PER_S + (ns % NS_PER_S != 0);
    if (ns == 0) {
        snprintf(out, BUDGET_RESET_TEXT_MAX, "0s");
    } else if (ms < 1000) {
        snprintf(out, BUDGET_RESET_TEXT_MAX, "%" PRIu64 "ms", ms);
    } else if (s < 60) {
        snprintf(out, BUDGET_RESET_TEXT_MAX, "%" PRIu64 "s", s);
    } else if (s < 3600) {
        snprintf(out, BUDGET_RESET_TEXT_MAX, "%" PRIu64 "m%" PRIu64 "s", s / 60, s % 60);
    } else {
        snprintf(out, BUDGET_RESET_TEXT_MAX, "%" PRIu64 "h%" PRIu64 "m%" PRIu64 "s", s / 3600,
                 s / 60 % 60, s % 60);
    }
}

static uint64_t retry_in(const struct budget_verdict *v, uint64_t now_ns, uint64_t unit_ns)
{
    uint64_t ns = v->at_ns > now_ns ? v->at_ns - now_ns : 0;
    uint64_t n = ns / unit_ns + (ns % unit_ns != 0);
    return n > 0 ? n : 1;
}

uint64_t budget_retry_after_s(const struct budget_verdict *v, uint64_t now_ns)
{
    return retry_in(v, now_ns, NS_PER_S);
}

uint64_t budget_retry_after_ms(const struct budget_verdict *v, uint64_t now_ns)
{
    return retry_in(v, now_ns, 1000000);
}

/* ---- auditor */

const char *token_budget_check(struct token_budget *b, struct budget_time t)
{
    const struct token_limits *l = &b->limits;
    struct list *at, *after;
    uint64_t n = 0, tokens = 0;
    if (!minute_window_check(&b->tokens) || !minute_window_check(&b->requests))
        return "a window's sum is not that of its cells";
    list_each(at, after, &b->waiters) {
        const struct budget_waiter *w = list_item(at, struct budget_waiter, link);
        n++;
        tokens += w->prompt + w->output;
    }
    if (n != b->n_waiters || tokens != b->waiting) return "waiters are counted wrongly";
    if (b->in_flight == 0 && reserved(b) != 0) return "tokens are reserved for nobody";
    if (l->tokens_per_minute != 0 &&
        minute_window_sum(&b->tokens, t.now_ns) + reserved(b) > l->tokens_per_minute)
        return "more tokens than the limit";
    if (l->requests_per_minute != 0 &&
        minute_window_sum(&b->requests, t.now_ns) > l->requests_per_minute)
        return "more requests than the limit";
    if (l->in_flight != 0 && b->in_flight > l->in_flight) return "more in flight than the limit";
    return NULL;
}
