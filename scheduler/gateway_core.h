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
#include "scheduler/class_table.h"

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
};

enum gateway_event_kind {
    GE_ARRIVED, GE_CANCEL, GE_DURABLE, GE_RELEASE,                  /* from doors and jobs */
    GE_HELLO, GE_SYNC, GE_TOKENS, GE_STATUS, GE_DOWN, GE_SEND_FULL, /* from the link */
    GE_DRAIN, GE_TICK
};

struct gateway_sync { struct sub_id sub; uint32_t have; bool finished; };

struct gateway_event {
    enum gateway_event_kind kind;
    uint32_t slot;                 /* ARRIVED (free, chosen by the shell), CANCEL, DURABLE, RELEASE */
    uint32_t worker;               /* session index, link events; the shell maps peers to indexes */
    struct sub_id sub;             /* TOKENS, SEND_FULL */
    struct {
        uint8_t cls;
        uint64_t tag;              /* start tag: arrival number for now */
        uint32_t n_prompt, n_ids;  /* n_ids > n_prompt only for journaled resumes */
        uint32_t from;             /* next index wanted: n_ids, or 1 when prompt scores are wanted */
        uint32_t max_total;
        uint64_t deadline_ns;      /* 0 = none; FAIL(ERR_DEADLINE) */
        bool durable;              /* ACK only after GE_DURABLE */
    } arrived;
    struct {
        uint64_t name;             /* hash of the worker's configured name */
        uint64_t incarnation;
        uint32_t version_min, version_max;
        struct hash128 model, vocab, numerics; /* compared with expect_*; zero = not checked */
        uint32_t n_ctx, block_tokens, n_blocks, max_seqs, max_slots;
    } hello;
    const struct gateway_sync *sync; uint32_t n_sync;
    struct { uint32_t index, n; enum finish finish; } tokens;
    struct { uint64_t number; uint32_t window[CLASSES_MAX]; uint32_t free_blocks; bool draining; } status;
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
    uint32_t skip, n;              /* DELIVER */
    enum finish finish;            /* DELIVER */
    enum err_code code;            /* FAIL; HELLO_REPLY: ERR_OK or the refusal */
    const char *reason;            /* HELLO_REPLY: static text */
    uint32_t version;              /* HELLO_REPLY: the agreed one */
};

struct gateway_stats {
    uint32_t queued[CLASSES_MAX], sent[CLASSES_MAX], done;
    uint32_t workers_live;
    uint64_t oldest_queued_ns[CLASSES_MAX]; /* arrival time of the oldest, 0 = none */
    uint64_t resubmits, gaps, cancels, unknown_tokens;
    bool draining;
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
/* Capacity of the largest live worker: longest sequence it can hold, in positions; 0 = none live. */
uint32_t gateway_core_capacity(const struct gateway_core *c);
const char *gateway_core_check(const struct gateway_core *c); /* auditor */

#endif
