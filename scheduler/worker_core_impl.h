/* worker_core_impl.h - worker_core's state as its own files see it. Internal to the scheduler room
 * (and to the protocol model, which hashes it).
 *
 *   worker_core.c     region, the switch over events, actions
 *   worker_door.c     SUBMIT: the finish at the door, or a slot that waits
 *   worker_slots.c    a slot's state, and the lists that follow from it: queues, seats, timers, names
 *   worker_session.c  sessions, SYNC, GAP, CANCEL, ACK, finishes, drain
 *   worker_step.c     what the engine reports of steps: end, park, drop
 *   worker_plan.c     which step runs next
 *   worker_admit.c    who gets a seat, room for it, resume by swap-in or recompute
 *   worker_follow.c   single-flight: who waits for whose prefix
 *   worker_fill.c     growth, and the spans of a step
 *   worker_ahead.c    the step launched behind a running one
 *   worker_cost.c     the learned times: step sizes, shares, the median TTFT
 *   worker_tier.c     copies: checkpoints, swap-ins
 *   worker_preempt.c  victims, and how blocks leave a sequence
 *   worker_stats.c    counters, next tick
 *   worker_check.c    the auditor
 *
 * Region: struct | slots | lists | step spans (3 steps) | copies | ids (prefix cache) | pool ||
 * scratch (spans of the plan at hand and of the one behind it, order). Everything before || is the state: indexes and
 * numbers, no pointers. Scratch carries nothing from one event to the next.
 */
#ifndef SLUICE_SCHEDULER_WORKER_CORE_IMPL_H
#define SLUICE_SCHEDULER_WORKER_CORE_IMPL_H

#include "scheduler/worker_core.h"

#define WC_NONE UINT32_MAX
#define WC_STEPS 3 /* one running, one parked, one queued behind either */

#define WC_TTFTS 64          /* window of the median */
#define WC_CHECKPOINTS 2     /* in flight at once: the path is to be idle when a swap-in comes */
#define WC_GENTLE 2          /* copies in flight, all together, when one beside real-time begins */
#define WC_OWED_MAX 1000000000ull
#define WC_PAUSE_NS 5000000u /* after a longer one a step is cold */

enum wc_state { WC_FREE, WC_WAITING, WC_ACTIVE, WC_DROPPING, WC_FINISHED, WC_STATES };

struct wc_slot {
    uint8_t state; /* enum wc_state */
    uint8_t cls, rank;
    uint8_t attached;  /* its gateway asked for it in the session that is up */
    uint8_t preempted; /* WAITING, but was ACTIVE before */
    uint8_t in_step;   /* 1 + index of the step in flight that has a live span of it; 0 = none */
    uint8_t finish;    /* enum finish, FINISHED only */
    uint8_t lost;
    uint32_t span;    /* its span there */
    uint32_t gw;      /* session index, WC_NONE while the gateway is away */
    uint64_t gateway; /* hash of the gateway's name: the owner */
    struct sub_id sub;
    uint32_t n_prompt, n_tokens, max_total;
    uint32_t from;     /* first index wanted: records start here */
    uint32_t made;     /* records exist for [from, made) */
    uint32_t sent;     /* next index to send while attached */
    uint32_t seq;      /* kvpool sequence: ACTIVE, or WAITING with blocks kept on the host */
    uint32_t high;     /* positions computed at least once: what comes again below it is waste */
    uint32_t ran_from; /* n_tokens when it last got its seat: min_run counts from there */
    uint32_t timer;    /* 1 + its place in the list of timers, 0 = not there */
    uint64_t tag;
    uint64_t order_tag;    /* tag, or less: a preempted one comes before its tenant's others */
    uint64_t arrival;      /* number of its SUBMIT */
    uint64_t admitted;     /* number of its first admission, 0 = never; survives preemption */
    uint64_t lost_at_ns;   /* when its session went down; valid while lost */
    uint64_t finish_at_ns; /* next repeat of the finish */
    uint64_t submitted_ns;
    uint64_t stepped;     /* last step it was in */
    struct hash128 root;  /* of its prefixes; zero = no hits, nothing published */
    uint32_t account, quota, tpot_ms;
    uint32_t follows;     /* 1 + slot of the one whose prefix it waits for; 0 = nobody */
    uint64_t follow_no;   /* that one's arrival */
    uint32_t follow_goal; /* until so many positions of it are committed */
    uint32_t checked;     /* 1 + full blocks when a checkpoint last found nothing to do */
    uint32_t next_span;   /* its span in the queued step */
    uint8_t fresh;        /* real-time, its first token is to come: a TTFT is measured */
    uint8_t resuming;     /* ACTIVE, copies to the device are left */
    uint8_t counted;      /* counted as a follower */
    uint8_t in_next;      /* 1 + index of the queued step that has a span of it, too; 0 = none */
    uint8_t host_choice;  /* takes no reference */
    uint8_t ahead;        /* got its seat back beside real-time, and was in no step since */
    uint8_t cause;        /* where its time goes now, LEDGER_CAUSES = nowhere any more */
    uint8_t pad[1];
    uint64_t cause_ns;    /* since */
    uint64_t booked_ns[LEDGER_WORKER_N];
    uint32_t cached;      /* prompt positions its first start took from the index */
    uint32_t unpaid;      /* prompt positions computed, not yet in its tenant's account */
    uint32_t preemptions; /* of this submission */
};

/* A copy in flight. `slot` may be somebody else's by now: the arrival says. */
struct wc_copy {
    uint64_t id; /* 0 = none */
    uint64_t arrival;
    uint32_t slot, copy; /* copy: kvpool's name */
    uint32_t block, host;
    uint8_t to_host, left; /* left: its sequence gave up its seat, the block is held by the copy */
    uint8_t tail, waits;   /* a partly filled block; waits: until no step has its sequence */
    uint8_t pad[4];
};

struct wc_session {
    uint64_t gateway;
    uint64_t sync_at_ns; /* next repeat of SYNC while something is detached */
    uint8_t up, pad[7];
};

enum wc_span_state { WC_SPAN_LIVE, WC_SPAN_DROP_ASKED, WC_SPAN_GONE };

struct wc_span {
    uint32_t slot, pos, n, score_from, score_to, hold;
    uint8_t sample, state; /* enum wc_span_state */
    uint8_t ref;           /* its input was not known at submit */
    uint8_t pad[1];
};

struct wc_step {
    uint64_t id;          /* 0 = none */
    uint64_t progress_ns; /* when it last finished a segment, as far as is known; submit at first */
    struct step_shape shape;
    uint32_t n_spans, segments;
    uint8_t rank, parked, park_asked;
    uint8_t disturbed; /* lost a span: its time teaches nothing (parked time does not count) */
    uint8_t floor;     /* spends what a class is owed: not parked */
    uint8_t behind;    /* queued: 1 + index of the step that it refers to, 0 = not queued */
    uint8_t pad[6];
};

struct worker_core {
    struct worker_core_config cfg;
    struct wc_session sessions[WORKER_GATEWAYS_MAX];
    struct wc_step steps[WC_STEPS];
    struct worker_account account[CLASSES_MAX];
    uint64_t started_tag[CLASSES_MAX];
    uint64_t n_steps[2], n_preemptions, n_parks, n_drops, step_device_ns;
    uint64_t positions[2], class_ns[CLASSES_MAX], owed_ns[CLASSES_MAX];
    uint64_t resumed_swap, resumed_recompute, swap_in_positions, followers, role_changes, faults;
    uint64_t n_realtime_swaps, n_ahead, n_given_back;
    uint64_t next_step, next_arrival, next_admitted, next_copy;
    uint64_t now_ns, last_end_ns, last_step_ns[2];
    struct step_cost cost[2];
    uint64_t copy_ns, ttft_ns; /* learned: of one block; median of the window, 0 = none yet */
    uint32_t ttft_us[WC_TTFTS];
    uint32_t n_ttfts; /* ever */
    uint32_t seats;   /* min of max_seqs and the step limits: every ACTIVE one fits one decode step */
    uint32_t n_active, n_resuming, n_timers, n_queued[2];
    uint32_t count[CLASSES_MAX][WC_STATES], unstarted[CLASSES_MAX];
    uint32_t n_used; /* slots that are not free */
    uint32_t n_copies;
    uint32_t floor_cls;  /* class that has the upper rank now, WC_NONE; set by wc_schedule */
    uint32_t debug_turn; /* round robin of the debug switches */
    uint32_t tier_turn;  /* round robin of checkpoints */
    uint8_t draining, exited, planned, cold;
    uint8_t growing; /* bit r: one of rank r with a seat waits for blocks that are coming */
    uint8_t pad[7];
    uint64_t slots_at, queue_at, active_at, timers_at, names_at, spans_at, copies_at, ids_at, tenants_at;
    uint64_t pool_at, state_bytes, plan_at, order_at; /* byte offsets */
};

/* Actions of the event at hand. */
struct wc_out {
    struct worker_action *list;
    uint32_t n, max;
};

static inline struct wc_slot *wc_slots(const struct worker_core *c)
{
    return (struct wc_slot *)((char *)(uintptr_t)c + c->slots_at);
}
static inline uint32_t *wc_queue(const struct worker_core *c, uint32_t rank)
{
    return (uint32_t *)((char *)(uintptr_t)c + c->queue_at) + (size_t)rank * c->cfg.max_slots;
}
/* ACTIVE slots, most urgent class first, in it the one admitted first. */
static inline uint32_t *wc_active(const struct worker_core *c)
{
    return (uint32_t *)((char *)(uintptr_t)c + c->active_at);
}
/* Slots that time may concern: finished, lost or detached. */
static inline uint32_t *wc_timers(const struct worker_core *c)
{
    return (uint32_t *)((char *)(uintptr_t)c + c->timers_at);
}
/* A short hash of each held submission's name, so that finding one reads 4 bytes a slot. */
static inline uint32_t *wc_names(const struct worker_core *c)
{
    return (uint32_t *)((char *)(uintptr_t)c + c->names_at);
}
static inline struct wc_copy *wc_copies(const struct worker_core *c)
{
    return (struct wc_copy *)((char *)(uintptr_t)c + c->copies_at);
}
/* Of an account and class. */
static inline struct worker_tenant_account *wc_tenant(const struct worker_core *c, uint32_t account,
                                                      uint8_t cls)
{
    return (struct worker_tenant_account *)((char *)(uintptr_t)c + c->tenants_at) +
           (size_t)account * c->cfg.classes.n + cls;
}
/* What was computed of a prompt goes into its tenant's account. */
static inline void wc_pay(const struct worker_core *c, struct wc_slot *s)
{
    wc_tenant(c, s->account, s->cls)->prompt_first += s->unpaid;
    s->unpaid = 0;
}
/* NULL without a prefix cache. */
static inline int32_t *wc_ids(const struct worker_core *c, uint32_t slot)
{
    if (!c->cfg.pool.prefix_cache) return NULL;
    return (int32_t *)((char *)(uintptr_t)c + c->ids_at) + (size_t)slot * c->cfg.n_ctx;
}
static inline struct wc_span *wc_spans(const struct worker_core *c, uint32_t step)
{
    return (struct wc_span *)((char *)(uintptr_t)c + c->spans_at) + (size_t)step * c->cfg.max_spans;
}
static inline struct kvpool *wc_pool(const struct worker_core *c)
{
    return (struct kvpool *)((char *)(uintptr_t)c + c->pool_at);
}
static inline struct worker_span *wc_plan(const struct worker_core *c)
{
    return (struct worker_span *)((char *)(uintptr_t)c + c->plan_at);
}
static inline uint32_t *wc_order(const struct worker_core *c)
{
    return (uint32_t *)((char *)(uintptr_t)c + c->order_at);
}

/* Input positions still to be computed end here: the last known id is an input only if one may
 * follow it. */
static inline uint32_t wc_target(const struct wc_slot *s)
{
    return s->n_tokens < s->max_total ? s->n_tokens : s->n_tokens - 1;
}
/* May it be computed? Batch of a gateway that is away, or has not asked for it yet, is not. */
static inline bool wc_steppable(const struct wc_slot *s)
{
    return s->attached || s->rank == 0;
}
static inline bool wc_startable(const struct wc_slot *s)
{
    return s->state == WC_WAITING && s->in_step == 0 && wc_steppable(s);
}
static inline uint8_t wc_class_order(const struct worker_core *c, const struct wc_slot *s)
{
    return c->cfg.classes.rows[s->cls].order;
}
static inline bool wc_has_root(const struct wc_slot *s)
{
    return (s->root.lo | s->root.hi) != 0;
}
/* Ids whose blocks it may take from the index: a position that is to be scored is computed. */
static inline uint32_t wc_hit_ids(const struct wc_slot *s)
{
    return s->made < s->n_tokens ? s->made : s->n_tokens;
}

/* worker_core.c */
struct worker_action *wc_emit(struct wc_out *o, enum worker_action_kind kind);

/* worker_door.c */
void wc_submit(struct worker_core *c, const struct worker_event *ev, struct wc_out *o);

/* worker_slots.c */
/* The one door for a slot's state: keeps queues, seats and counters with it. `preempted` and what
 * orders the slot are set before it enters WAITING and do not change there. */
void wc_set_state(struct worker_core *c, uint32_t slot, enum wc_state state);
void wc_set_timer(struct worker_core *c, uint32_t slot); /* after finish, loss, attach, detach */
void wc_set_name(struct worker_core *c, uint32_t slot);
uint32_t wc_find(const struct worker_core *c, uint64_t gateway,
                 struct sub_id sub); /* WC_NONE: not held */

/* worker_session.c */
void wc_session_up(struct worker_core *c, uint32_t gw, uint64_t gateway, struct wc_out *o);
void wc_session_down(struct worker_core *c, uint32_t gw);
void wc_cancel(struct worker_core *c, uint32_t gw, struct sub_id sub, struct wc_out *o);
void wc_gap(struct worker_core *c, uint32_t gw, struct sub_id sub, uint32_t from, struct wc_out *o);
void wc_ack(struct worker_core *c, uint32_t gw, struct sub_id sub, struct wc_out *o);
void wc_drain(struct worker_core *c, struct wc_out *o);
void wc_tick(struct worker_core *c, struct wc_out *o);
/* Sends what was made and not sent yet, with the finish if there is one. */
void wc_send(struct worker_core *c, uint32_t slot, struct wc_out *o);
/* Decides the finish: seat and blocks are free at once, the slot when it is acknowledged. */
void wc_finish(struct worker_core *c, uint32_t slot, enum finish f, struct wc_out *o);
void wc_slot_free(struct worker_core *c, uint32_t slot, struct wc_out *o);

/* worker_step.c */
void wc_step_end(struct worker_core *c, const struct worker_event *ev, struct wc_out *o);
void wc_step_parked(struct worker_core *c, const struct worker_event *ev);
void wc_span_dropped(struct worker_core *c, uint64_t step, uint32_t span, struct wc_out *o);
uint32_t wc_running(const struct worker_core *c); /* index into steps, WC_NONE; not a queued one */
uint32_t wc_parked(const struct worker_core *c);

/* worker_preempt.c */
/* Seat and blocks back; a span in flight is dropped, its blocks stay held until confirmed. `keep`:
 * what is clean on the host stays the sequence's. The slot is WAITING afterwards. */
void wc_leave_seat(struct worker_core *c, uint32_t slot, bool keep, struct wc_out *o);
void wc_preempt(struct worker_core *c, uint32_t slot, struct wc_out *o);
void wc_close_seq(struct worker_core *c, uint32_t slot); /* if it has one */
/* The sequence to preempt so that `for_slot` gets on; WC_NONE = nobody. `own`: its own account's
 * only, because a quota and not the pool is in the way. */
uint32_t wc_victim(const struct worker_core *c, uint32_t for_slot, bool own);
bool wc_may_take(const struct worker_core *c, const struct wc_slot *v, const struct wc_slot *s);
void wc_drop_span(struct worker_core *c, uint32_t step, uint32_t span, struct wc_out *o);
void wc_drop_youngest(struct worker_core *c, uint32_t step,
                      struct wc_out *o); /* never the last one */

/* worker_admit.c */
enum wc_start { WC_START_NOBODY, WC_STARTED, WC_START_PENDING, WC_START_BLOCKED, WC_START_SKIPPED };
/* Seats for those who wait, in order. `cls`: of this class only, WC_NONE = any; `prefetch`: only
 * those whose blocks come back by copies meanwhile; beside real-time that leaves it its next blocks. */
enum wc_start wc_admit(struct worker_core *c, uint8_t rank, uint32_t cls, bool prefetch,
                       struct wc_out *o);
bool wc_realtime_here(const struct worker_core *c); /* one of rank 0 has a seat */
uint32_t wc_blocks_to_start(const struct worker_core *c, const struct wc_slot *s);
uint32_t wc_blocks_to_end(const struct worker_core *c, const struct wc_slot *s);
/* Blocks that come without anybody's help: of spans being dropped, not of copies. */
uint32_t wc_coming(const struct worker_core *c, const struct kvpool_stats *st);
/* Blocks more that the account may take; UINT32_MAX = no quota. */
uint32_t wc_quota_left(const struct worker_core *c, const struct wc_slot *s);

/* worker_follow.c */
/* Does it wait for the prefix that another one is computing? A lower one that does is preempted. */
bool wc_follows(struct worker_core *c, uint32_t slot, struct wc_out *o);

/* worker_fill.c */
bool wc_grow(struct worker_core *c, uint8_t rank, struct wc_out *o); /* true: blocks are coming */
/* Fills step `step` (index) with spans of a rank (and class); how many. */
uint32_t wc_fill(struct worker_core *c, uint8_t rank, uint32_t cls, uint32_t step);
void wc_plan_span(struct worker_core *c, struct worker_span *w, const struct wc_span *sp);
bool wc_runnable(const struct wc_slot *s, uint8_t rank);

/* worker_ahead.c */
/* Launches the step behind the running one, if it may be. */
void wc_launch_ahead(struct worker_core *c, struct wc_out *o);
/* The step that is queued behind `step`, WC_NONE. */
uint32_t wc_queued(const struct worker_core *c, uint32_t step);

/* worker_plan.c */
void wc_schedule(struct worker_core *c, struct wc_out *o);
bool wc_has_runnable(const struct worker_core *c, uint8_t rank);
uint32_t wc_step_free(const struct worker_core *c); /* index of a free step */
/* Gives the step its number and submits it. */
void wc_begin_step(struct worker_core *c, uint32_t step, uint8_t rank,
                   const struct worker_span *plan, struct wc_out *o);
void wc_debug_disturb(struct worker_core *c, uint32_t step, struct wc_out *o);

/* worker_cost.c */
void wc_cost_init(struct worker_core *c);
void wc_cost_step_end(struct worker_core *c, uint32_t step, const struct worker_event *ev);
void wc_cost_first_token(struct worker_core *c, struct wc_slot *s);
/* The longest a step of this rank may take; 0 = no limit. */
uint64_t wc_cost_limit(const struct worker_core *c, uint8_t rank, uint32_t cls);
/* The class that goes before real-time until it has got what it is owed; WC_NONE. */
uint32_t wc_cost_floor(const struct worker_core *c);
/* Is copying the partly filled last block out and back cheaper than computing it again? */
bool wc_cost_tail_pays(const struct worker_core *c, uint32_t slot);
/* Is copying back what the host has cheaper than computing it? */
bool wc_cost_swap_pays(const struct worker_core *c, uint32_t slot);

/* worker_ledger.c */
void wc_ledger_begin(const struct worker_core *c, struct wc_slot *s);
void wc_ledger_end(const struct worker_core *c, struct wc_slot *s);
void wc_ledger_waits(const struct worker_core *c, struct wc_slot *s); /* it waits (again) */
void wc_ledger(struct worker_core *c); /* after each event */
const char *wc_ledger_check(const struct worker_core *c, const struct wc_slot *s);

/* worker_tier.c */
void wc_swap_in(struct worker_core *c, uint32_t slot, struct wc_out *o); /* as many as may go */
void wc_swap_ins(struct worker_core *c, struct wc_out *o);               /* of all who resume */
void wc_checkpoint(struct worker_core *c, struct wc_out *o);
/* Gives up the blocks and keeps what is on the host, the tail with it where that pays; false: nothing is kept. */
bool wc_suspend(struct worker_core *c, uint32_t slot, struct wc_out *o);
void wc_tail_go(struct worker_core *c, uint32_t slot, struct wc_out *o); /* no step has it any more */
void wc_copy_end(struct worker_core *c, const struct worker_event *ev, struct wc_out *o);
void wc_copies_left(struct worker_core *c, uint32_t slot); /* its sequence gave up its seat */
void wc_publish(struct worker_core *c, uint32_t slot);

/* worker_stats.c */
uint32_t wc_copies_max(const struct worker_core_config *cfg);

#endif
