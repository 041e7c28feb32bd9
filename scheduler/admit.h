/* admit.h - may this request come in now, or when: predicted waits, and promises that are kept.
 *
 * A request whose class has an objective for its first token is refused at once when it would miss it, instead of
 * waiting for nothing. The refusal names a time at which the same request will be taken, and it is: refused
 * ones queue here by their promise, not in memory, and whoever comes anew stands behind all of them.
 *
 * Work is counted in ns of one worker's time: P for a prompt position, D for an id in a full step (from the workers'
 * step models, scheduler/step_cost.h). Ahead of a newcomer is what classes as urgent as its own or more have here and
 * at workers:
 *   B = P x positions not yet computed + D x ids still expected x (N - S) / N     N sequences, S seats, N > S
 * (with a free seat only prompts stand before it: a first token waits for a seat, not for the end of all).
 * The pool does C = workers x ratio of it in a ns; `ratio` is what was really done over windows of 0.5 s in which no
 * seat was free, so a wrong model puts itself right. A newcomer is taken when
 *   B <= L,  L = C x (share of the objective, less its own prefill, of which half the objective at most)
 * or when its tenant has less than its share of the seats: nobody's flood gets another one refused. Else it is promised
 * a whole number of seconds from now, since that is what Retry-After can say: the first one not before the pool has
 * drained to L, at which the work promised to return in that quarter of a second is still below what the pool does in it.
 * (Rounded up afterwards, promises would come back in bursts: all that were refused in one half second together,
 * then nobody.) Promised work returns no faster than the pool drains, so B stays at L while promises are out, and
 * newcomers get what is left over. A virtual queue: the refused ones' places are kept, as call centres do.
 *
 * Ticket: a promise, found again by the request's key (a hash of all that it asks for). Early: told the time
 * that is left; but equal requests that come within ADMIT_EQUAL_NS of each other are several, and get one each. From ADMIT_EARLY_NS before due on it is taken, whatever waits. ADMIT_LATE_NS after due it counts as
 * promised no more, `grace_ns` after due it is forgotten. None is given beyond `horizon_ns`, nor to a tenant that holds half of
 * them while others hold some: then no time is told, since none can be promised.
 *
 * Without a model (no worker has sent one), or without objective: always taken. Pure: no clock, no allocation; one
 * region, indexes only, clonable. Cost: O(1), once in ADMIT_SWEEP_NS O(tickets). Thread: one owner.
 */
#ifndef SLUICE_SCHEDULER_ADMIT_H
#define SLUICE_SCHEDULER_ADMIT_H

#include "base/hash.h"
#include "base/submission.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADMIT_EARLY_NS 50000000u    /* clocks and sleeps of clients are not exact */
#define ADMIT_LATE_NS 500000000u    /* on its way */
#define ADMIT_EQUAL_NS 500000000u
#define ADMIT_SLOT_NS 250000000u
#define ADMIT_SLOTS 512             /* a horizon of 127 s at most */
#define ADMIT_SWEEP_NS 50000000u

struct admit_config {
    uint32_t max_tickets, max_tenants;
    uint64_t horizon_ns, grace_ns; /* 0 = 60 s, 5 s */
    uint32_t share_permille;       /* of the objective that may be waited; 0 = 450: the rest is for error */
    uint8_t urgent;                /* bit k: class k is of rank 0; `ratio` is learned while those take all seats */
};

struct admit_pool { uint32_t workers, seats; double prompt_ns, out_ns; }; /* live ones; a worker's time; 0 = not known */

struct admit_ask {
    struct hash128 key;            /* zero: no ticket */
    uint32_t tenant, tenant_seqs, fair_seqs; /* it has here; its share of the seats */
    uint32_t n_seqs, n_prompt, n_out; /* of all its sequences together; ids expected */
    uint8_t ahead;                 /* bit k: work of class k stands before it */
    uint64_t objective_ns;         /* 0 = none */
};

struct admit_verdict {
    bool taken;
    uint64_t wait_ns;              /* predicted, until its first token */
    uint64_t retry_ns;             /* refused: when it will be taken; 0 = no promise */
};

struct admit;

size_t admit_bytes(const struct admit_config *cfg); /* 0 = out of range */
struct admit *admit_init(void *region, const struct admit_config *cfg); /* zeroed, 64-aligned */
void admit_set_pool(struct admit *a, const struct admit_pool *p, uint64_t now_ns);

/* Sequences of a class that are here or at a worker, and what is left of them to do. */
void admit_enter(struct admit *a, uint8_t cls, uint32_t n_prompt, uint32_t n_out);
/* So much of it was done; `expected_out` of the ids were among those expected. */
void admit_work(struct admit *a, uint8_t cls, uint32_t n_prompt, uint32_t n_out, uint32_t expected_out,
                uint64_t now_ns);
void admit_leave(struct admit *a, uint8_t cls, uint32_t n_prompt, uint32_t n_out);

void admit_decide(struct admit *a, const struct admit_ask *ask, uint64_t now_ns, struct admit_verdict *v);
/* Predicted time until the first token of such a request, were it taken now; 0 = not known. */
uint64_t admit_predict(const struct admit *a, const struct admit_ask *ask);

struct admit_stats { uint32_t tickets; uint64_t promised_ns, taken, refused, promises, kept, lapsed;
                     double ratio, backlog_ns; /* backlog: B of the urgent classes, over C */ };
void admit_stats(const struct admit *a, struct admit_stats *out);
const char *admit_check(const struct admit *a); /* auditor */

#endif
