/* ledger.h - where a request's time went: every ns of it is booked to one cause.
 *
 * A request is in exactly one cause at each instant, so the parts sum to the wall by construction. The worker books
 * what happens there (durations travel with the finish, never clocks), the gateway what happens before and
 * after; what is between the two is the network.
 */
#ifndef SLUICE_SCHEDULER_LEDGER_H
#define SLUICE_SCHEDULER_LEDGER_H

#include <stdint.h>

/* X(NAME, name in JSON and headers, meaning, what may be done about it) */
#define LEDGER_LIST(X)                                                                             \
    X(TEXT, "text", "read, checked and tokenized", "shorter bodies, or a larger machine")          \
    X(BUDGET, "budget", "waited for its tenant's budget", "raise the tenant's limits, or ask for fewer tokens") \
    X(CLASS, "queued_class", "queued: more urgent classes had the workers", "add a worker, or give the class a floor") \
    X(TENANT, "queued_tenant", "queued: it was other tenants' turn", "raise the tenant's weight, or add a worker") \
    X(OWN, "queued_own", "queued behind its own tenant's requests", "add a worker, or send less at once") \
    X(CAP, "in_flight_cap", "its tenant had as many in flight as it may", "raise the tenant's max-in-flight") \
    X(NO_WORKER, "no_worker", "no worker could take it", "look at the workers: sluice doctor, their logs") \
    X(LOST, "worker_lost", "with a worker that was lost or gave it back", "look at why the worker ended") \
    X(LEFT, "at_worker", "with a worker that has not reported: it ended early", "it was cancelled, or its deadline passed") \
    X(SEAT, "worker_queue", "at a worker, for a seat or blocks", "more seats (--max-seqs), more KV (--kv-tokens), or a worker more") \
    X(BATCH, "waited_for_batch", "a batch step had the device", "lower --batch-interference")    \
    X(PREFILL, "prefill", "its prompt was computed", "shorter prompts, or prefixes that repeat")   \
    X(DECODE, "decode", "its ids were made", "shorter answers, or a faster device")                \
    X(STEP, "between_steps", "had a seat, and others' step ran", "fewer seats, or shorter prompts of others") \
    X(RECOMPUTE, "recompute", "computed again after it was preempted", "more KV (--kv-tokens, --host-kv-tokens)") \
    X(PARKED, "parked", "its step was parked for real-time work", "it is batch: nothing, or a worker more") \
    X(PREEMPTED, "preempted", "lost its seat to somebody more urgent", "more KV (--kv-tokens), or a worker more") \
    X(SWAP, "swapped", "its blocks came back from the host", "more KV on the device (--kv-tokens)") \
    X(NETWORK, "network", "between gateway and worker", "look at the link, and at the load of both processes") \
    X(READER, "slow_reader", "made, and not yet taken by the client", "the client, or the way to it, is slow") \
    X(OTHER, "other", "not booked", "this is a fault of the ledger")

enum ledger_cause {
#define LEDGER_ENUM(name, text, meaning, advice) LEDGER_##name,
    LEDGER_LIST(LEDGER_ENUM)
#undef LEDGER_ENUM
    LEDGER_CAUSES
};

#define LEDGER_WORKER LEDGER_SEAT                                 /* the worker's, from here on */
#define LEDGER_WORKER_N (LEDGER_NETWORK - LEDGER_SEAT)
#define LEDGER_QUEUE LEDGER_CLASS                                 /* the gateway's queue */
#define LEDGER_QUEUE_N (LEDGER_NO_WORKER + 1 - LEDGER_CLASS)

const char *ledger_name(enum ledger_cause c);
const char *ledger_meaning(enum ledger_cause c);
const char *ledger_advice(enum ledger_cause c);

#endif
