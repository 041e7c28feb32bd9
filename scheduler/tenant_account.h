/* tenant_account.h - what each tenant has used of each class, and the virtual time that follows.
 *
 * Account (DESIGN, section 1) = prompt positions computed for the first time x 1 + ids accepted x
 * out_weight; cached positions x 0; work recomputed, dropped or surplus is in no account. In tokens.
 *   virtual time = account / weight
 *   tag          = virtual time + what this gateway has in flight / weight
 * A request in flight counts with what it is expected to cost (prompt and the usual length of this
 * tenant's answers, or the caller's hint) until it is known: the part delivered moves from in flight
 * to the account, the rest is given back when it ends.
 *
 * System virtual time of a class (the paper's v(t)): the tag that was picked last, or less where a
 * tenant's tag has since come out lower. A tenant that becomes active starts there (its own, if that is
 * later): sleeping earns nothing. Between active tenants lead and lag are held within clamp_ns of the
 * pool's rate, or four of the largest requests, whichever is more: a long prompt on a slow pool is
 * no debt to be forgiven. The pool's rate is the best second of about the last minute.
 *
 * Several gateways, one pool. The worker counts, per incarnation, what it did for each tenant and class,
 * whichever gateway asked, and shows it with each TOKENS (prompt_first, output). Then
 *   tenant_account_seen(worker, incarnation, tenant, cls, prompt_first, output)
 * charges the difference to what was last seen; a new incarnation counts from what it first shows (a
 * gateway that joins late owes nobody the past), and once it has shown everybody (tenant_account_all_seen) who
 * appears later had nothing before. From its first one on that worker `counts` for this tenant: what it delivers
 * is not charged by tenant_account_serve as well. Handle a message's counters before its entries: for
 * that moment a charge stands twice, never not at all. So every gateway holds the same accounts, but for what
 * others have in flight. Frames: a gateway that started later has smaller virtual times. So the
 * worker also shows, per class, the tag it started last, and tenant_account_started() moves this gateway's
 * whole frame up to it (never down; distances between its tenants stay). No unstarted sequence of an older
 * gateway can be behind that tag, or the worker would have started it instead.
 *
 * Units: tokens; weights in thousandths, 1 .. TENANT_WEIGHT_MAX; tags in 1/65536 token of weight 1000. No overflow
 * before 2^48 tokens at weight 1000. One region, indexes only, clonable by memcpy; no clock, no allocation. Thread: one owner.
 */
#ifndef SLUICE_SCHEDULER_TENANT_ACCOUNT_H
#define SLUICE_SCHEDULER_TENANT_ACCOUNT_H

#include "base/submission.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENANT_TAG_SCALE 65536000u /* over a weight: of one token */
#define TENANT_WEIGHT_MAX 1000000u

struct tenant_account_config {
    uint32_t max_tenants, n_classes, max_workers;
    uint32_t out_weight; /* of an id made against a prompt position; 0 = 1 */
    uint64_t clamp_ns;   /* 0 = 10 s */
};

struct tenant_usage {
    uint64_t prompt_first, output; /* charged so far, positions and ids */
    uint64_t in_flight;            /* expected charge of what is with workers, tokens */
    uint64_t virtual_time, tag;
};

struct tenant_account;

size_t tenant_account_bytes(const struct tenant_account_config *cfg); /* 0 = out of range */
struct tenant_account *tenant_account_init(void *region, const struct tenant_account_config *cfg); /* zeroed, 64-aligned */

void tenant_account_weight(struct tenant_account *a, uint32_t tenant, uint32_t weight_permille); /* 0 = 1000 */
/* It had nothing queued: `idle` nothing with a worker either. `least` = the smallest tag of the class's
 * queue, UINT64_MAX = empty. The system's time at most, and never earlier than its own. */
void tenant_account_wake(struct tenant_account *a, uint32_t tenant, uint8_t cls, bool idle, uint64_t least);

/* What a request will cost, in tokens: n_prompt positions, and of at most max_out ids the hint (0 = as
 * many as this tenant's answers usually have). */
uint32_t tenant_account_expect(const struct tenant_account *a, uint32_t tenant, uint8_t cls,
                               uint32_t n_prompt, uint32_t max_out, uint32_t hint_out);
/* Sent to a worker: returns the start tag for the wire, never smaller than this flow's last one. `least`: the
 * smallest tag left in the queue of the class (UINT64_MAX = none). */
uint64_t tenant_account_send(struct tenant_account *a, uint32_t tenant, uint8_t cls, uint32_t expected,
                             uint64_t least);
/* No longer in flight: delivered, or given back. */
void tenant_account_land(struct tenant_account *a, uint32_t tenant, uint8_t cls, uint32_t tokens);
/* Used, by what this gateway saw. `counted`: the worker shows counters, only statistics change. */
void tenant_account_serve(struct tenant_account *a, uint32_t tenant, uint8_t cls, uint32_t prompt_first,
                          uint32_t output, uint64_t now_ns, bool counted);
/* An answer ended in order with so many ids: what the next ones are expected to have. */
void tenant_account_learn(struct tenant_account *a, uint32_t tenant, uint8_t cls, uint32_t n_out);

/* See above. Counters that fall within one incarnation are ignored. */
void tenant_account_seen(struct tenant_account *a, uint32_t worker, uint64_t incarnation, uint32_t tenant,
                         uint8_t cls, uint64_t prompt_first, uint64_t output, uint64_t now_ns);
void tenant_account_started(struct tenant_account *a, uint8_t cls, uint64_t tag);
void tenant_account_all_seen(struct tenant_account *a, uint32_t worker, uint64_t incarnation);
bool tenant_account_counts(const struct tenant_account *a, uint32_t worker, uint64_t incarnation, uint32_t tenant,
                           uint8_t cls);

uint64_t tenant_account_tag(const struct tenant_account *a, uint32_t tenant, uint8_t cls); /* for fair_queue_tag */
uint32_t tenant_account_out_weight(const struct tenant_account *a);
uint64_t tenant_account_rate(const struct tenant_account *a); /* tokens/s of the pool, 0 = not known */
void tenant_account_usage(const struct tenant_account *a, uint32_t tenant, uint8_t cls, struct tenant_usage *out);
const char *tenant_account_check(const struct tenant_account *a); /* auditor */

#endif
