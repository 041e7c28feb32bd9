/* gateway_core.h - the whole decision state of a gateway about its sequences and workers: events in,
 * actions out, time as argument.
 *
 * The same object runs in the gateway (dispatch performs its actions), in the simulator and in the
 * exhaustive protocol model. No I/O, clock, thread, randomness, allocation or pointers in its state;
 * one region from gateway_core_bytes, clonable by memcpy. It holds no ids and no text: the shell keeps
 * **all ids of a live sequence** by slot; the core counts them.
 *
 * Use: gateway_core_handle(core, &ev, now_ns, out) -> number of actions, at most gateway_core_actions_max;
 * perform them in order. Sends never block and may fail: a SUBMIT that could not be sent is told by
 * GE_SEND_FULL and goes back to its queue; a lost HELLO_REPLY, CANCEL, GAP or ACK needs nothing, its cause repeats.
 *
 * Slot (one sequence = one choice of a request):
 *   FREE -> QUEUED (arrived, or came back) -> SENT (one current submission on one worker)
 *        -> DONE (finish delivered; a batch line waits for GE_DURABLE before its ACK) -> FREE
 * Worker session (index):  DOWN -> SYNCING (HELLO accepted) -> LIVE (SYNC answered) -> DOWN.
 * **No SUBMIT goes to a session before its SYNC was answered.** SYNC entries: a current submission of a slot in
 * SENT on that worker (same incarnation) -> GAP(from = its next index); anything else -> CANCEL; a slot SENT on
 * that worker's session before and absent from SYNC -> QUEUED.
 *
 * TOKENS(sub, index, n, finish): unknown or no longer current sub -> CANCEL. index > next -> GAP(next).
 * All of it below next and no finish -> ignored. Otherwise DELIVER of what is new; the finish counts when
 * index + n == next after it. A finish is delivered once: repeats are ACKed again (DONE, or forgotten slots: CANCEL).
 * Finish HANDED_BACK or UNKNOWN -> QUEUED again, not to the same worker before a newer STATUS than the refusal. CANCELLED (not asked
 * for) and FAILED -> once more from the queue, the second time FAIL. TOO_LARGE, REFUSED -> FAIL.
 *
 * GE_CANCEL of a QUEUED or SENT slot: GA_CANCEL to its worker and GA_FAIL(ERR_CANCELLED), the one door out; of a DONE
 * slot: the same as GE_RELEASE; of a free one: nothing. GE_RELEASE frees a DONE slot (and ACKs what was not).
 * After GE_DRAIN arrivals get GA_FAIL(ERR_DRAINING); GA_DRAINED once no slot is in use.
 * A lost session's slots keep their last submission: if the same worker process lists it in its next SYNC before
 * it was sent elsewhere, it is taken up again (GAP), nothing is computed twice.
 *
 * Who is next (fair_queue.h, tenant_account.h): classes by the table's order, but one below its floor share
 * goes first until what it is owed is spent (counted in tokens sent while several classes have somebody to send; at
 * most one request ahead). Inside a class the tenant with the smallest virtual time, inside a tenant deadline,
 * priority with ageing, tag, arrival. The core stamps the start tag: GA_SUBMIT carries it, the message takes
 * it over, a request that is sent again keeps it. A tenant at its in-flight cap is passed over.
 * Tenants are indexes below max_tenants; the shell maps names and tells of each with GE_TENANT (weight 1, no caps, no
 * room of its own until then). Room in slots: gateway_core_room. With one tenant all is as if there were none.
 *
 * A queued one whose own prompt cannot be computed before its deadline any more (by the workers' step models, with
 * room for error) ends with ERR_DEADLINE instead of being sent.
 *
 * Where it is sent: route.h, among the workers that may take it now.
 *
 * Cost: what changed, not what is queued: arrival, pick, cancel, a due time O(log n); STATUS and an end O(those
 * that were stuck, at most GC_UNSTICK_MAX at a time). Only the pool's last worker of a kind going, or the first
 * one coming, looks at all slots. What does not fit in the action list is left for the next event, and
 * gateway_core_next_tick_ns says "now".
 *
 * Worker lost (GE_DOWN, or a HELLO with another incarnation): its SENT slots are QUEUED with the ids they have.
 * They resume only under an equal numerics id if an id beyond the prompt was accepted; rank 1 may start again from the prompt
 * (GA_RESTART: the shell forgets the output ids) when none is there for lost_ns. Rank 0 without an eligible
 * worker for no_worker_ns -> FAIL(ERR_NO_WORKER, or ERR_WORKER_LOST when tokens had been delivered). Rank 1 waits.
 * Workers live, but none is large enough (it arrived before they came, or came back with less): of either rank, at
 * once if it was never sent, else after no_worker_ns: max_total is shortened to the largest; FAIL(ERR_POOL_TOO_SMALL)
 * where that holds no id to make, ERR_WORKER_LOST where ids were made under the longer one.
 */
#ifndef SLUICE_SCHEDULER_GATEWAY_CORE_H
#define SLUICE_SCHEDULER_GATEWAY_CORE_H

#include "base/err.h"
#include "base/hash.h"
#include "base/submission.h"
#include "scheduler/admit.h"
#include "scheduler/class_table.h"
#include "scheduler/ledger.h"
#include "scheduler/route.h"
#include "scheduler/step_cost.h"
#include "scheduler/tenant_account.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATEWAY_WORKERS_MAX 64

struct gateway_core_config {
    uint32_t max_slots;            /* live sequences, queued ones included */
    uint32_t max_workers;          /* <= GATEWAY_WORKERS_MAX sessions */
    struct class_table classes;
    uint64_t incarnation;          /* of this gateway process: part of each submission id */
    uint64_t no_worker_ns;         /* 5 s */
    uint64_t lost_ns;              /* 5 s */
    uint32_t version_min, version_max; /* protocol versions this gateway speaks; 0 = only version 1 */
    uint32_t max_tenants;          /* 0 = 1 */
    uint32_t out_weight;           /* an id made against a prompt position, in accounts; 0 = 1 */
    uint32_t max_tickets;          /* promises to refused ones (admit.h); 0 = nobody is refused for waits */
    uint64_t horizon_ns;           /* no promise beyond; 0 = 60 s */
    uint32_t route_entries;        /* of the index of prefixes (route.h); 0 = the worker with most room, whatever it has */
};

enum gateway_event_kind {
    GE_ARRIVED, GE_CANCEL, GE_DURABLE, GE_RELEASE,                  /* from doors and jobs */
    GE_HELLO, GE_SYNC, GE_TOKENS, GE_STATUS, GE_ACCOUNT, GE_DOWN, GE_SEND_FULL, /* from the link */
    GE_DRAIN, GE_TICK,
    GE_TENANT                                                       /* from the tenant file */
};

struct gateway_sync { struct sub_id sub; uint32_t have; bool finished; };

struct gateway_event {
    enum gateway_event_kind kind;
    uint32_t slot;                 /* ARRIVED (free, chosen by the shell), CANCEL, DURABLE, RELEASE */
    uint32_t worker;               /* session index, link events; the shell maps peers to indexes */
    struct sub_id sub;             /* TOKENS, SEND_FULL */
    struct {
        uint8_t cls;
        uint64_t tag;              /* order among equals of its tenant: smaller first, then arrival */
        uint32_t tenant;
        int8_t priority;           /* -8 .. 7, larger first; 0 usually */
        uint32_t hint_out;         /* ids it will probably make; 0 = as its tenant's usually do */
        uint32_t n_prompt, n_ids;  /* n_ids > n_prompt only for journaled resumes */
        uint32_t from;             /* next index wanted: n_ids, or 1 when prompt scores are wanted */
        uint32_t max_total;
        uint64_t deadline_ns;      /* 0 = none; FAIL(ERR_DEADLINE) */
        bool durable;              /* ACK only after GE_DURABLE */
        struct route_keys route;   /* of its prompt; none: it goes by load alone */
    } arrived;
    struct {
        uint64_t name;             /* hash of the worker's configured name */
        uint64_t incarnation;
        uint32_t version_min, version_max;
        struct hash128 model, vocab, numerics; /* compared with expect_*; zero = not checked */
        uint32_t n_ctx, block_tokens, n_blocks, max_seqs, max_slots;
    } hello;
    const struct gateway_sync *sync; uint32_t n_sync;
    struct { uint32_t index, n; enum finish finish; uint32_t cached; } tokens; /* cached: of the prompt, not charged */
    struct { uint64_t number; uint32_t window[CLASSES_MAX]; uint32_t free_blocks; bool draining;
             uint64_t started_tag[CLASSES_MAX]; /* tag it started last, 0 = not shown */
             const float *cost; uint32_t n_cost; /* its step model (step_cost.h), rank 0 first; 0 = not known */ } status;
    /* A worker's counters for one tenant and class, before the entries of the same message. */
    struct { uint32_t tenant; uint8_t cls; uint64_t prompt_first, output;
             bool all; /* no tenant: with those before it this worker has shown everybody */ } account;
    struct {
        uint32_t index;
        uint32_t weight_permille;  /* 1000 = 1; 0 = this tenant is gone: as if never told of */
        uint32_t max_in_flight;    /* sequences with workers at one time; 0 = no cap */
        uint32_t max_queued;       /* sequences waiting here; 0 = no cap of its own */
    } tenant;
};

enum gateway_action_kind {
    GA_HELLO_REPLY,                /* accepted, or `reason` */
    GA_SUBMIT,                     /* slot under `sub` to worker, all ids the shell has, from = next index */
    GA_CANCEL, GA_GAP, GA_ACK,
    GA_DELIVER,                    /* slot: records [skip, skip + n) of the message are new; then the finish, if any */
    GA_RESTART,                    /* slot: forget output ids and records, it starts again from the prompt */
    GA_FAIL,                       /* slot ends with `code`; the core has already freed it */
    GA_DRAINED                     /* draining and nothing is left */
};
/* After a DELIVER with finish the slot is DONE until GE_RELEASE (or GE_DURABLE for durable ones) frees it. */

struct gateway_action {
    enum gateway_action_kind kind;
    uint32_t worker, slot;
    struct sub_id sub;
    uint32_t from;                 /* SUBMIT, GAP */
    uint32_t max_total;            /* SUBMIT: as arrived, or shortened to the largest worker */
    uint64_t tag;                  /* SUBMIT: start tag, for the message */
    uint32_t skip, n;              /* DELIVER */
    enum finish finish;            /* DELIVER */
    enum err_code code;            /* FAIL; HELLO_REPLY: ERR_OK or the refusal */
    const char *reason;            /* HELLO_REPLY: static text */
    uint32_t version;              /* HELLO_REPLY: the agreed one */
    uint64_t queued_ns[LEDGER_QUEUE_N]; /* SUBMIT, FAIL of a queued one: by cause, since it came into the queue (this time) */
};

struct gateway_stats {
    uint32_t queued[CLASSES_MAX], sent[CLASSES_MAX], done;
    uint32_t workers_live;
    uint64_t oldest_queued_ns[CLASSES_MAX]; /* arrival time of the oldest, 0 = none */
    uint64_t resubmits, gaps, cancels, unknown_tokens;
    uint64_t promoted;             /* sent before their turn, for their age */
    uint64_t owed[CLASSES_MAX];    /* tokens a class is below its floor share */
    struct admit_stats admit;
    uint64_t pool_rate;            /* charged tokens/s in the best second of about the last minute, 0 = not known */
    bool draining;
};

struct gateway_tenant_stats {
    uint32_t weight_permille, in_use; /* slots */
    uint32_t queued[CLASSES_MAX], sent[CLASSES_MAX];
    struct tenant_usage usage[CLASSES_MAX];
    uint64_t refused;              /* arrivals for which gateway_core_room said no when they came */
    bool held;                     /* at its in-flight cap */
};

struct gateway_core;

size_t gateway_core_bytes(const struct gateway_core_config *cfg);
struct gateway_core *gateway_core_init(void *region, const struct gateway_core_config *cfg); /* zeroed, 64-aligned */
/* What a worker must match to be accepted (zero hash = anything). */
void gateway_core_expect(struct gateway_core *c, struct hash128 model, struct hash128 vocab);
uint32_t gateway_core_actions_max(const struct gateway_core_config *cfg);
uint32_t gateway_core_handle(struct gateway_core *c, const struct gateway_event *ev, uint64_t now_ns,
                             struct gateway_action *out);
uint64_t gateway_core_next_tick_ns(const struct gateway_core *c, uint64_t now_ns);
void gateway_core_stats(const struct gateway_core *c, struct gateway_stats *out);
void gateway_core_tenant_stats(const struct gateway_core *c, uint32_t tenant, struct gateway_tenant_stats *out);
/* May a sequence of this tenant take a slot? Asked before GE_ARRIVED (which answers FAIL(ERR_QUEUE_FULL) otherwise).
 * While less than two tenants are known (GE_TENANT)
 * all slots are anybody's. Else: with A tenants that have slots each may always have max_slots / 2A, as far as others' older ones leave
 * room; beyond that it may hold as many as stay free (so one alone half of all, two a third each), and a
 * tenant that has none gets its first: min(known tenants without any, max_slots / 8) are kept for those. So who floods
 * is refused, and nobody else. */
bool gateway_core_room(const struct gateway_core *c, uint32_t tenant);
/* Where a queued slot's time went so far, by cause (ledger.h); false: it isn't queued. For who leaves before it is
 * picked: ask before GE_CANCEL. */
bool gateway_core_waited(const struct gateway_core *c, uint32_t slot, uint64_t now_ns, uint64_t out[LEDGER_QUEUE_N]);
/* May this request, all its sequences together, come in (admit.h)? Asked once a request, after the tenant's own
 * limits and before GE_ARRIVED. ERR_OK; ERR_OVERLOADED: the first token would miss the class's objective, v->retry_ns
 * says when it will be taken (0 = that cannot be promised); ERR_DEADLINE: it would not start before its deadline. */
struct gateway_ask { struct hash128 key; uint32_t tenant, n_seqs, n_prompt, max_out, hint_out; uint8_t cls; uint64_t deadline_ns; };
enum err_code gateway_core_admit(struct gateway_core *c, const struct gateway_ask *ask, uint64_t now_ns,
                                 struct admit_verdict *v);
/* Capacity of the largest live worker: longest sequence it can hold, in positions; 0 = none live. */
uint32_t gateway_core_capacity(const struct gateway_core *c);
const char *gateway_core_check(const struct gateway_core *c); /* auditor */

#endif
