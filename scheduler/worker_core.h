/* worker_core.h - the whole decision state of a worker: events in, actions out, time as argument.
 *
 * Why: the same object runs in the worker (step_loop performs its actions), in the simulator, in the
 * exhaustive protocol model, and in a replay of a recorded event log, which must give the same actions byte for
 * byte. So: no I/O, clock, thread, randomness, allocation or pointers in its state; one region from
 * worker_core_bytes, clonable by memcpy; every decision follows from the events alone.
 *
 * What it does not hold: token ids, texts, sampling parameters. The shell keeps them by slot
 * (worker/seq_store) and tells the core counts, and for each sampled token whether it ends the sequence.
 *
 * Use: for each event worker_core_handle(core, &ev, now_ns, out) -> number of actions, at most
 * worker_core_actions_max; perform them in order before the next event. Pointers inside an action are
 * valid until the next event. `now_ns` is monotonic and never falls.
 *
 * Sequence states (slot):
 *   WAITING   submitted, unstarted or preempted: ids only, no blocks
 *   ACTIVE    has a seat and blocks; between steps, or in a step in flight or parked
 *   DROPPING  leaves (cancel, loss, preempt) but a step in flight still holds its blocks; waits for the confirmation
 *   FINISHED  finish decided; repeated every second until ACK (or CANCEL, or its session's loss timeout)
 *   FREE
 * Unexpected events: SUBMIT with a submission already held = ignored; CANCEL of an unknown one = WA_FINISH
 * UNKNOWN without slot; GAP of an unknown one likewise; ACK of an unknown one = ignored; completion of an unknown
 * step or span = assert (the engine is ours).
 * A SUBMIT's slot that the core does not take (held already, no session) is given back by WA_FREE in the same event.
 * One refused at the door (refused, too large, draining) takes its slot as FINISHED, so that the finish is repeated
 * until ACK; only without a slot it is a WA_FINISH, which the shell must keep until it was really sent.
 * CANCEL of a held one: WA_FINISH CANCELLED once, WA_FREE at once or after the span's confirmation.
 * A drop request that the engine answers by STEP_END alone: that span has its worker_token like the others.
 * WA_SYNC is repeated each second while submissions of an UP session are detached.
 *
 * Session of a gateway (by index): DOWN, UP. UP emits WA_SYNC; each held submission of that gateway is DETACHED
 * until GAP (attached, sends from there) or CANCEL. SUBMIT attaches. DOWN: detaches all; rank 1 is not
 * stepped from then on (a step in flight ends, its tokens are kept); rank 0 freed after 2 s, rank 1 after 30 s
 * of DOWN; UP ends the count (SYNC is repeated until each is answered, so nothing that a gateway waits for is freed).
 *
 * Policy (simple now, shape final): seats; order = class order, then preempted before never started, then start
 * tag, then submission; token budget per step with decode first and chunked prefill; one rank a step; a rank-0
 * arrival parks a running rank-1 step; rank 0 takes blocks and seats from rank-1 sequences (victim: lowest class,
 * then least lost work per block freed; recompute); the sequence admitted first in the highest class present is
 * never a victim; a parked step whose blocks are needed loses spans, youngest first; a sequence
 * preempted is not preempted again before it made min_run tokens unless a higher rank needs it; a sequence starts only
 * when its known tokens plus one block fit; growth that does not fit preempts, at last itself.
 */
#ifndef SLUICE_SCHEDULER_WORKER_CORE_H
#define SLUICE_SCHEDULER_WORKER_CORE_H

#include "base/submission.h"
#include "kvpool/kvpool.h"
#include "scheduler/class_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORKER_GATEWAYS_MAX 8
#define WORKER_SLOT_NONE UINT32_MAX

struct worker_core_config {
    uint32_t max_slots;            /* sequences known, waiting ones included */
    uint32_t max_seqs;             /* seats: ACTIVE at once */
    uint32_t max_spans;            /* in one step (engine limit) */
    uint32_t max_tokens;           /* in one step (engine limit) */
    uint32_t max_rows;             /* in one step (engine limit) */
    uint32_t prefill_chunk;        /* most positions of one sequence in one step */
    uint32_t n_ctx;
    struct kvpool_config pool;     /* max_seqs and max_holds are set by the core */
    struct class_table classes;
    uint32_t min_run;              /* tokens, 16 */
    uint64_t park_max_ns;          /* 2 s */
    uint64_t lost_realtime_ns, lost_batch_ns; /* 2 s, 30 s */
    uint64_t finish_repeat_ns;     /* 1 s */
    uint32_t debug_preempt_every, debug_park_every, debug_drop_every; /* 0 = off; counted in steps */
    uint32_t debug_pool_blocks;    /* at most so many blocks in use (kvpool_shrink); 0 = all */
};

enum worker_event_kind {
    WE_SESSION_UP, WE_SESSION_DOWN, WE_SUBMIT, WE_CANCEL, WE_GAP, WE_ACK,
    WE_STEP_END, WE_STEP_PARKED, WE_SPAN_DROPPED, WE_COPY_END, WE_DRAIN, WE_TICK
};

/* What one span of an ended step brought: the shell sampled nothing for spans without a wanted last row. */
struct worker_token {
    uint32_t slot;
    bool made;                     /* a new id was sampled and appended by the shell */
    enum finish finish;            /* NONE, or decided now: EOS, STOP_ID, STOP_STRING, LENGTH, FAILED */
};

struct worker_event {
    enum worker_event_kind kind;
    uint32_t gw;                   /* session index, link events */
    struct sub_id sub;             /* SUBMIT, CANCEL, GAP, ACK */
    uint64_t gateway;              /* SESSION_UP: hash of the gateway's name; held submissions belong to it */
    struct {
        uint32_t slot;             /* chosen by the shell among free ones; WORKER_SLOT_NONE = none free: handed back */
        uint32_t n_prompt;         /* E7 boundary */
        uint32_t n_tokens;         /* ids known: prompt + output so far; >= 1 */
        uint32_t from;             /* first index wanted: n_tokens, or smaller when prompt scores are wanted */
        uint32_t max_total;        /* n_prompt + max_tokens, clipped to the context */
        uint8_t cls;
        uint64_t tag;              /* start tag */
        bool refused;              /* the shell found ids or parameters invalid: finish REFUSED */
    } submit;
    uint32_t from;                 /* GAP */
    struct {
        uint64_t step;
        bool failed;
        const struct worker_token *tokens; uint32_t n_tokens; /* one per span not dropped, in span order */
        uint64_t device_ns;
        uint32_t segments_done, segment_at_request;           /* PARKED */
        uint32_t span;                                        /* SPAN_DROPPED */
    } step;
};

struct worker_span {
    uint32_t slot, pos, n;         /* input positions pos .. pos + n - 1 */
    const uint32_t *blocks; uint32_t n_blocks;
    uint32_t score_from, score_to; /* indexes whose known ids are to be scored in this span, [from, to), may be empty */
    bool sample;                   /* the span's last row is sampled: index pos + n */
};

struct worker_plan { uint64_t step; uint8_t rank; const struct worker_span *spans; uint32_t n_spans; };

enum worker_action_kind {
    WA_STEP_SUBMIT, WA_STEP_PARK, WA_STEP_CONTINUE, WA_SPAN_DROP, WA_STEP_RELEASE,
    WA_TOKENS,                     /* send records [from, to) of slot, with the finish if `finish` != NONE */
    WA_FINISH,                     /* send a finish without slot (unknown or handed back at the door) */
    WA_SYNC,                       /* send SYNC to gw: the shell asks worker_core_sync for the entries */
    WA_FREE,                       /* slot is free: drop ids, parameters, records */
    WA_EXIT                        /* drained */
};

struct worker_action {
    enum worker_action_kind kind;
    uint32_t gw;
    struct sub_id sub;
    uint32_t slot, from, to;
    enum finish finish;
    uint64_t step; uint32_t span;
    struct worker_plan plan;
};

struct worker_sync { struct sub_id sub; uint32_t have; bool finished; }; /* have = ids it holds, as index */

/* Counters since start, per class; in every TOKENS (accounts) and in STATUS. */
struct worker_account {
    uint64_t prompt_first;         /* prompt positions computed for the first time */
    uint64_t output;               /* ids made */
    uint64_t recomputed, dropped;  /* waste: positions computed again, positions thrown away */
};
struct worker_stats {
    uint32_t waiting[CLASSES_MAX], active[CLASSES_MAX], finished;
    uint32_t window[CLASSES_MAX];  /* unstarted sequences of the class this worker would still take */
    struct worker_account account[CLASSES_MAX];
    uint64_t steps[2], preemptions, parks, drops, step_device_ns;
    struct kvpool_stats pool;
    bool draining, running, parked;
};

struct worker_core;

size_t worker_core_bytes(const struct worker_core_config *cfg);
/* The first so many bytes are the state (no pointers: hash, compare); the rest is scratch for plans. A clone copies all. */
size_t worker_core_state_bytes(const struct worker_core_config *cfg);
struct worker_core *worker_core_init(void *region, const struct worker_core_config *cfg); /* zeroed, 64-aligned */
uint32_t worker_core_actions_max(const struct worker_core_config *cfg);
uint32_t worker_core_handle(struct worker_core *c, const struct worker_event *ev, uint64_t now_ns,
                            struct worker_action *out);
uint32_t worker_core_sync(const struct worker_core *c, uint32_t gw, struct worker_sync *out, uint32_t cap);
uint64_t worker_core_next_tick_ns(const struct worker_core *c, uint64_t now_ns); /* when WE_TICK is due; UINT64_MAX = never */
void worker_core_stats(const struct worker_core *c, struct worker_stats *out);
const struct kvpool *worker_core_pool(const struct worker_core *c);
/* Auditor: NULL, or what is broken in words (slots, seats, step spans, holds, pool). */
const char *worker_core_check(const struct worker_core *c);

#endif
