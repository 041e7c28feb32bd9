/* token_budget.h - one tenant's limits a minute, in flight and a day, kept at every instant.
 *
 * What holds, always: tokens made in the last 60 s + tokens reserved <= tokens_per_minute; requests
 * admitted in the last 60 s <= requests_per_minute; admitted and not settled <= in_flight; money spent
 * today + money reserved <= money_per_day. Checked and booked in one step, so parallel calls cannot all pass
 * one check. Not here: who a tenant is, queue room, fairness.
 *
 * A request takes a *lease* of all it may use: prompt + max_tokens (of all its prompts and choices; a
 * prompt once for each entry of the body's list, not for each choice). As tokens are made they move from the lease to
 * the window of the last minute: the sum stays. At the end the lease is settled: what was not made is
 * free at once. A lease belongs to the request, not to a submission: when a worker dies and the request
 * is submitted again, or starts again from its prompt, nothing is reserved or charged a second time
 * (each position is charged once; the caller keeps the highest one it charged).
 *
 * Order of calls, all by the owner of the budgets (in the gateway: the loop thread):
 *   arrival     token_budget_reserve; BUDGET_OK: goes on to the queue. Else refuse (limits.wait_ns 0; 429, or
 *               insufficient_quota for BUDGET_MONEY) or token_budget_wait, if the tenant's queue has room.
 *   tick        while ((w = token_budget_next(b, now, &v)) != NULL): v.why BUDGET_OK: w's lease is taken, on
 *               to the queue; else its wait is over: refuse with v. Call it after each settle, and at
 *               token_budget_next_ns, which any call may change (a tick of 100 ms that asks every budget
 *               with waiters is enough: the window's own grain).
 *   tokens      token_budget_charge, with what was not charged before
 *   end         token_budget_settle: finish, error, cancel, disconnect, deadline, refusal further on: the
 *               one door. Twice is harmless. A waiter that leaves: token_budget_unwait.
 * token_budget_reserve never overtakes a waiter: first come, first served inside a tenant's budget.
 *
 * Times: now_ns is monotonic, wall_s unix time and only says which UTC day money belongs to (a wall clock
 * that goes back opens no new day). A verdict's at_ns is exact, "assuming nothing else ends or is admitted",
 * when `exact`; where leases of running requests stand in the way nobody can know it: then it assumes that all
 * they hold is made now.
 *
 * Money: the price of a token is in millionths of the currency's unit per million tokens, so sums are
 * whole numbers of 10^-12 and nothing is rounded. The budget is in millionths, at most
 * BUDGET_MONEY_MAX_MICRO. Prices may change while leases are out: what is reserved then costs the new one.
 * Memory: 5 KB a tenant, nothing allocated. Cost: O(1), verdicts that refuse O(601). Pure. A lease and a
 * waiter are the caller's, zeroed before their first use.
 */
#ifndef SLUICE_SCHEDULER_TOKEN_BUDGET_H
#define SLUICE_SCHEDULER_TOKEN_BUDGET_H

#include "base/list.h"
#include "scheduler/minute_window.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUDGET_MONEY_MAX_MICRO 10000000000000ull

/* 0 = no limit of this kind; wait_ns 0 = refuse at once. */
struct token_limits {
    uint32_t tokens_per_minute, requests_per_minute, in_flight;
    uint64_t wait_ns;              /* budget_wait */
    uint64_t money_per_day_micro;  /* millionths of the unit */
    uint32_t prompt_price, output_price; /* millionths of the unit per million tokens */
};

struct budget_time { uint64_t now_ns; int64_t wall_s; };

struct budget_lease { uint64_t prompt, output; bool held; }; /* reserved and not made yet */

enum budget_why {
    BUDGET_OK,
    BUDGET_TOKENS, BUDGET_REQUESTS, BUDGET_IN_FLIGHT, /* 429 rate_limit_exceeded, Retry-After from at_ns */
    BUDGET_MONEY,                  /* 429 insufficient_quota, x-should-retry: false; at_ns = midnight UTC */
    BUDGET_TOO_LARGE               /* more than a whole minute's (or day's) budget: never; 429, no retry */
};

struct budget_verdict {
    enum budget_why why;           /* what it waits for longest */
    bool exact;
    uint64_t at_ns;                /* OK: now; TOO_LARGE: UINT64_MAX */
};

struct budget_waiter {
    struct list link;              /* the budget's */
    struct budget_lease *lease;    /* taken when its turn comes */
    uint64_t prompt, output, since_ns;
};

struct token_budget {
    struct token_limits limits;
    struct minute_window tokens, requests;
    uint64_t reserved_prompt, reserved_output; /* of all leases */
    uint32_t in_flight;
    int64_t day;                   /* days since 1970, UTC */
    uint64_t spent;                /* on that day, 10^-12 of the unit */
    struct list waiters;
    uint32_t n_waiters;
    uint64_t waiting;              /* tokens the waiters ask for */
};

void token_budget_init(struct token_budget *b, const struct token_limits *limits);
/* New limits while it runs (the tenants' file was read again). What was admitted stays admitted; under a
 * lower limit nothing is admitted until the sum is below it. */
void token_budget_limits(struct token_budget *b, const struct token_limits *limits);

struct budget_verdict token_budget_reserve(struct token_budget *b, struct budget_time t,
                                           uint64_t prompt, uint64_t output,
                                           struct budget_lease *lease);
/* Of what the lease still holds. */
void token_budget_charge(struct token_budget *b, struct budget_time t, struct budget_lease *lease,
                         uint64_t prompt, uint64_t output);
void token_budget_settle(struct token_budget *b, struct budget_lease *lease);

/* Settled, and it does not count as a request either: refused, in the same turn, for a reason that is not its tenant's. */
void token_budget_take_back(struct token_budget *b, struct budget_lease *lease);

/* w->lease, prompt and output filled in by the caller; owned by it until next or unwait gave it back. */
void token_budget_wait(struct token_budget *b, struct budget_time t, struct budget_waiter *w);
void token_budget_unwait(struct token_budget *b, struct budget_waiter *w); /* harmless when in no queue */
/* The first waiter, when it may go or has waited long enough; it is out of the queue then. Else NULL. */
struct budget_waiter *token_budget_next(struct token_budget *b, struct budget_time t,
                                        struct budget_verdict *v);
uint64_t token_budget_next_ns(struct token_budget *b, struct budget_time t); /* UINT64_MAX = no waiter */

/* What the process before this one had used or reserved when it died, `age_ns` before now (0 when not
 * known: the safe side): counts as used from then on for 60 s. Requests likewise. Before any reserve. */
void token_budget_restore(struct token_budget *b, struct budget_time t, uint64_t age_ns,
                          uint64_t tokens, uint64_t requests);
/* Tokens already paid for on the day of t: usage_find() of this tenant and day, at start. */
void token_budget_spent(struct token_budget *b, struct budget_time t, uint64_t prompt, uint64_t output);

/* For x-ratelimit-*; a group is sent only when its limit is not 0. Remaining: what a request could ask
 * for now, leases taken off. Reset: until the whole limit is there again if all that runs ended now. */
struct budget_view {
    uint64_t limit_tokens, remaining_tokens, reset_tokens_ns;
    uint64_t limit_requests, remaining_requests, reset_requests_ns;
};
void token_budget_view(struct token_budget *b, struct budget_time t, struct budget_view *v);

/* "0s", "12ms", "1s", "6m0s", "1h0m0s": rounded up (below 1 s to ms, else to s); for x-ratelimit-reset-*. */
#define BUDGET_RESET_TEXT_MAX 32
void budget_reset_text(char out[BUDGET_RESET_TEXT_MAX], uint64_t ns);
/* Whole seconds for Retry-After, at least 1; ms for Retry-After-Ms, at least 1. Rounded up: at that time it
 * is true. */
uint64_t budget_retry_after_s(const struct budget_verdict *v, uint64_t now_ns);
uint64_t budget_retry_after_ms(const struct budget_verdict *v, uint64_t now_ns);

/* Auditor: sums agree and no limit is passed (the latter only when limits were never lowered). NULL = good. */
const char *token_budget_check(struct token_budget *b, struct budget_time t);

#endif
