/* worker_core.h - the whole decision state of a worker: events in, actions out, time as argument.
 *
 * Why: the same object runs in the worker (step_loop performs its actions), in the simulator, in the
 * exhaustive protocol model, and in a replay of a recorded event log, which must give the same actions byte for
 * byte. So: no I/O, clock, thread, randomness, allocation or pointers in its state; one region from
 * worker_core_bytes, clonable by memcpy; every decision follows from the events alone.
 *
 * What it does not hold: texts, sampling parameters, and, without a prefix cache, token ids. The shell keeps them
 * by slot (worker/seq_store) and tells the core counts, and for each sampled token whether it ends the sequence.
 *
 * Use: for each event worker_core_handle(core, &ev, now_ns, out) -> number of actions, at most
 * worker_core_actions_max; perform them in order before the next event. Pointers inside an action are
 * valid until the next event. `now_ns` is monotonic and never falls.
 *
 * Sequence states (slot):
 *   WAITING   submitted, unstarted or preempted: ids only, no blocks
 *             (with a host tier a preempted one may keep host slots)
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
 * Policy. Seats; order = class order, then preempted before never started (of the same tenant; between tenants the start
 * tag), then start tag, then submission; decode first and chunked prefill; one rank a step; a rank-0 arrival parks a
 * running rank-1 step; rank 0 takes blocks and seats from rank-1 sequences (victim: lowest class, then least lost work
 * per block freed, where what is clean on the host is not lost); the sequence admitted first in the highest class present
 * is never a victim; a parked step whose blocks are needed, or that finished no segment for park_max, loses spans,
 * youngest first, never the oldest for age; a sequence preempted is not preempted again before it made min_run tokens unless a
 * higher rank needs it; a sequence starts only when its known tokens plus one block fit; growth that does not fit
 * preempts, at last itself.
 *
 * Step size (scheduler/step_cost.h): a live model of step time, one for each rank of plan. A rank-0 step's prefill is cut so
 * that the step stays within the tightest TPOT objective of the streams in it. A rank-1 step is cut so that its segments
 * last at most a tenth of the median real-time TTFT (an arrival waits half a segment on average), and so that what it
 * delays a real-time arrival stays below interference_permille of that TTFT.
 *
 * Floor share: device time of a class with work to do is owed floor_permille of all of it; while more is owed than one
 * step of it costs, its steps go before rank 0's and are not parked. Owed time is kept within 1 s.
 *
 * Prefix cache (cfg.pool.prefix_cache): the core keeps the ids of each slot. At its start a sequence attaches what the index
 * has; full blocks are published as they are committed. Single-flight: when an ACTIVE sequence of the same or a more
 * urgent rank is computing the block that a newcomer would compute next, the newcomer waits without seat or blocks (and
 * does not block those behind it) until that block is published or its leader is gone. When the computing one is of a
 * lower rank the roles change: it is preempted (its published blocks stay), the higher one computes on from the last committed block
 * and the lower one waits for it. A zero root takes no hits and publishes nothing (prompt log-probabilities).
 *
 * Host tier (cfg.pool.n_host > 0): full committed blocks of ACTIVE sequences are checkpointed while few copies are in
 * flight: those of preemptible classes below real-time always; of others, which only equals push out, when nothing else is to be
 * copied, one at a time, and when three quarters of the pool (or of their tenant's quota) are theirs and they might not fit
 * to their ends. Preempting forgets clean blocks; where all full ones are clean, the partly filled last one is copied out
 * too, once its span is gone and behind everything else, if that is cheaper than computing it again; what is not clean is
 * recomputed. A preempted sequence resumes by
 * swap-in when the measured copy time of its kept blocks is below the model's time to compute them (below real-time a share of
 * it: others' steps go on beside), else it starts over from what the prefix index has. Beside a running step, a real-time one
 * too, lower sequences that resume by swap-in get seat, blocks and copies ahead, where real-time is left a block for each of
 * its own; beside real-time at most two copies at a time, of the low priority. Real-time takes it all back as it likes:
 * what has not run since is on the host as before. A resuming sequence has seat and blocks but is in no step until its last
 * copy ended. A copy that failed its checksum cuts the sequence there. Recompute is always legal: nobody waits for host room.
 *
 * References (cfg.max_refs > 0): behind a running step the next decode step of the same rank may be launched, each span's
 * input being the id that a span of the running step is about to sample; only when nobody else waits for a step and every
 * sequence that goes on may. It is queued: parking the running step holds it, dropping a span of that one drops its
 * successor (SPAN_DROPPED for both, unasked for the second where the first one's step failed). A span with a reference
 * that a WA_SPAN_DROP names brings nothing any more, even when the drop comes too late: its worker_token has made = false,
 * its position is waste. So a stop learned late costs one position.
 *
 * Trust: a step's tokens are taken only when every hold is still valid (kvpool_hold_valid); a span with an invalid one is
 * thrown away like a dropped one and its sequence computed again from the prompt; counted in stats.faults.
 */
#ifndef SLUICE_SCHEDULER_WORKER_CORE_H
#define SLUICE_SCHEDULER_WORKER_CORE_H

#include "base/submission.h"
#include "kvpool/kvpool.h"
#include "scheduler/class_table.h"
#include "scheduler/ledger.h"
#include "scheduler/step_cost.h"

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
    struct kvpool_config pool;     /* max_seqs and max_holds are set by the core, and max_copies where it is 0 */
    struct class_table classes;
    uint32_t min_run;              /* tokens, 16 */
    uint64_t park_max_ns;          /* 2 s */
    uint64_t lost_realtime_ns, lost_batch_ns; /* 2 s, 30 s */
    uint64_t finish_repeat_ns;     /* 1 s */
    uint32_t debug_resume;         /* how a sequence kept on the host resumes: 0 = what is cheaper, 1 swap, 2 recompute */
    uint32_t debug_preempt_every, debug_park_every, debug_drop_every; /* 0 = off; counted in steps */
    uint32_t interference_permille; /* of the median real-time TTFT that a batch segment may cost an arrival; 50 */
    uint32_t out_weight;           /* of an output id in the account, prompt positions = 1; for start tags, 2 */
    struct step_cost cost;         /* cold-start table of the backend, learned on from there; all 0 = no planner */
    uint32_t n_segments;           /* of a full step (engine limit); 0 = unknown: batch steps are not cut for them */
    uint64_t copy_ns;              /* cold start: time of copying one block */
    uint32_t max_refs;             /* engine limit: > 0: a decode step may be launched behind the running one */
    uint32_t debug_pool_blocks;    /* at most so many blocks in use (kvpool_shrink); 0 = all */
    bool fixed_cost;               /* `cost` is the truth (a simulated device): nothing is learned */
};

enum worker_event_kind {
    WE_SESSION_UP, WE_SESSION_DOWN, WE_SUBMIT, WE_CANCEL, WE_GAP, WE_ACK,
    WE_STEP_END, WE_STEP_PARKED, WE_SPAN_DROPPED, WE_COPY_END, WE_DRAIN, WE_TICK
};

/* What one span of an ended step brought: the shell sampled nothing for spans without a wanted last row. */
struct worker_token {
    uint32_t slot;
    bool made;                     /* a new id was sampled and appended by the shell */
    int32_t id;                    /* that id */
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
        const int32_t *ids;        /* n_tokens, until the event is handled; NULL = not wanted (no prefix cache) */
        struct hash128 root;       /* of its prefixes; zero = no hits, nothing published */
        uint32_t account;          /* KV account of the tenant, < cfg.pool.max_accounts */
        uint32_t quota;            /* blocks that account may use; 0 = none */
        uint32_t ttft_ms, tpot_ms; /* objectives; 0 = the class row's */
        bool refused;              /* the shell found ids or parameters invalid: finish REFUSED */
        bool host_choice;          /* what its next id is drawn with depends on the last one: not launched ahead */
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
    struct { uint64_t id; bool ok; uint64_t device_ns; } copy; /* COPY_END */
};

struct worker_span {
    uint32_t slot, pos, n;         /* input positions pos .. pos + n - 1 */
    const uint32_t *blocks; uint32_t n_blocks;
    uint32_t score_from, score_to; /* indexes whose known ids are to be scored in this span, [from, to), may be empty */
    bool sample;                   /* the span's last row is sampled: index pos + n */
    uint64_t ref_step; uint32_t ref_span; /* ref_step != 0: its last input is what that step's span samples */
};

struct worker_plan { uint64_t step; uint8_t rank; const struct worker_span *spans; uint32_t n_spans; };

enum worker_action_kind {
    WA_STEP_SUBMIT, WA_STEP_PARK, WA_STEP_CONTINUE, WA_SPAN_DROP, WA_STEP_RELEASE,
    WA_COPY,                       /* engine_copy_submit; it cannot be full (the core keeps fewer in flight) */
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
    uint32_t cached;               /* TOKENS: prompt positions that its first start took from the prefix cache */
    uint32_t preemptions;          /* TOKENS: of this submission so far */
    uint64_t booked_ns[LEDGER_WORKER_N]; /* TOKENS with a finish: where its time here went, from SUBMIT to the finish */
    enum finish finish;
    uint64_t step; uint32_t span;
    struct worker_plan plan;
    struct { uint64_t id; bool to_host; uint32_t block, host; uint8_t priority; uint64_t after_step; } copy;
};

struct worker_sync { struct sub_id sub; uint32_t have; bool finished; }; /* have = ids it holds, as index */

/* Counters since start, per class; in every TOKENS (accounts) and in STATUS. */
struct worker_account {
    uint64_t prompt_first;         /* prompt positions computed for the first time */
    uint64_t output;               /* ids made */
    uint64_t recomputed, dropped;  /* waste: positions computed again, positions thrown away */
};
/* What one KV account (a tenant, to the shell) had of a class; only rises; 0 of an account that does not exist. A prompt counts whole with the first id
 * after it, or what was computed of it when its sequence ends before: so it never shows before the gateway has heard. */
struct worker_tenant_account { uint64_t prompt_first, output; };
struct worker_stats {
    uint32_t waiting[CLASSES_MAX], active[CLASSES_MAX], finished;
    uint32_t window[CLASSES_MAX];  /* unstarted sequences of the class this worker would still take */
    struct worker_account account[CLASSES_MAX];
    uint64_t steps[2], preemptions, parks, drops, step_device_ns;
    uint64_t positions[2];         /* computed, waste included, by rank */
    uint64_t resumed_swap, resumed_recompute, swap_in_positions;
    uint64_t realtime_swaps;       /* of resumed_swap, those of rank 0 */
    uint64_t ahead, given_back;    /* seats given back beside real-time steps; of these, taken away unused */
    uint64_t followers, role_changes, faults;
    uint64_t class_ns[CLASSES_MAX], owed_ns[CLASSES_MAX];
    struct step_cost cost[2];
    uint64_t copy_ns;              /* live: of one block */
    struct kvpool_stats pool;
    uint64_t started_tag[CLASSES_MAX]; /* start tag of the one that was started last, 0 = none yet */
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

/* Runs, for a shell whose time is virtual: how often the step in flight may end, each time followed by the same step one
 * position on, before anything is decided; 0 = not at all. Then the shell may tell k <= that many ends at once, instead
 * of k WE_STEP_ENDs (each span `made`, no finish: of ends by an id that the shell knows, it counts off). What follows is
 * the same, action by action. end_ns: of the last of them. */
struct worker_run {
    uint32_t n;
    const uint64_t *device_ns;     /* n: of each step */
    const int32_t *ids;            /* n for each span, in span order; NULL without a prefix cache */
    bool sent;                     /* the shell has sent them; else the next WA_TOKENS brings them, too */
};
uint32_t worker_core_run_limit(const struct worker_core *c);
uint64_t worker_core_run(struct worker_core *c, const struct worker_run *r, uint64_t end_ns); /* the step in flight now */

uint32_t worker_core_sync(const struct worker_core *c, uint32_t gw, struct worker_sync *out, uint32_t cap);
uint64_t worker_core_next_tick_ns(const struct worker_core *c, uint64_t now_ns); /* when WE_TICK is due; UINT64_MAX = never */
void worker_core_stats(const struct worker_core *c, struct worker_stats *out);
void worker_core_tenant_account(const struct worker_core *c, uint32_t account, uint8_t cls,
                                struct worker_tenant_account *out);
const struct kvpool *worker_core_pool(const struct worker_core *c);
/* Auditor: NULL, or what is broken in words (slots, seats, step spans, holds, pool). */
const char *worker_core_check(const struct worker_core *c);

#endif
