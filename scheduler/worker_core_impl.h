/* worker_core_impl.h - worker_core's state as its own files see it. Internal to the scheduler room
 * (and to the protocol model, which hashes it).
 *
 *   worker_core.c     region, the switch over events, SUBMIT, actions
 *   worker_session.c  sessions, SYNC, GAP, CANCEL, ACK, finishes, drain
 *   worker_step.c     what the engine reports: end, park, drop
 *   worker_plan.c     which step runs next: admission, growth, spans
 *   worker_preempt.c  victims, and how blocks leave a sequence
 *   worker_stats.c    counters, next tick, the auditor
 *
 * Region: struct | slots | step spans (2 steps) | pool || scratch (spans of the plan at hand,
 * order). Everything before || is the state: indexes and numbers, no pointers. Scratch carries
 * nothing from one event to the next.
 */
#ifndef SLUICE_SCHEDULER_WORKER_CORE_IMPL_H
#define SLUICE_SCHEDULER_WORKER_CORE_IMPL_H

#include "scheduler/worker_core.h"

#define WC_NONE UINT32_MAX
#define WC_STEPS 2 /* one running, one parked */

enum wc_state { WC_FREE, WC_WAITING, WC_ACTIVE, WC_DROPPING, WC_FINISHED };

struct wc_slot {
    uint8_t state; /* enum wc_state */
    uint8_t cls, rank;
    uint8_t attached;  /* its gateway asked for it in the session that is up */
    uint8_t preempted; /* WAITING, but was ACTIVE before */
    uint8_t in_step;   /* 1 + index of the step in flight that has a live span of it; 0 = none */
    uint8_t finish;    /* enum finish, FINISHED only */
    uint8_t pad;
    uint32_t span;    /* its span there */
    uint32_t gw;      /* session index, WC_NONE while the gateway is away */
    uint64_t gateway; /* hash of the gateway's name: the owner */
    struct sub_id sub;
    uint32_t n_prompt, n_tokens, max_total;
    uint32_t from;     /* first index wanted: records start here */
    uint32_t made;     /* records exist for [from, made) */
    uint32_t sent;     /* next index to send while attached */
    uint32_t seq;      /* kvpool sequence, ACTIVE only */
    uint32_t high;     /* positions computed at least once: what comes again below it is waste */
    uint32_t ran_from; /* n_tokens when it last got its seat: min_run counts from there */
    uint32_t pad2;
    uint64_t tag;
    uint64_t arrival;      /* number of its SUBMIT */
    uint64_t admitted;     /* number of its first admission, 0 = never; survives preemption */
    uint64_t lost_at_ns;   /* when its session went down; valid while lost */
    uint64_t finish_at_ns; /* next repeat of the finish */
    uint8_t lost, pad3[7];
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
    uint8_t pad[2];
};

struct wc_step {
    uint64_t id;        /* 0 = none */
    uint64_t parked_ns; /* since when */
    uint32_t n_spans;
    uint8_t rank, parked, park_asked, pad;
};

struct worker_core {
    struct worker_core_config cfg;
    struct wc_session sessions[WORKER_GATEWAYS_MAX];
    struct wc_step steps[WC_STEPS];
    struct worker_account account[CLASSES_MAX];
    uint64_t n_steps[2], n_preemptions, n_parks, n_drops, step_device_ns;
    uint64_t next_step, next_arrival, next_admitted;
    uint64_t now_ns;
    uint32_t seats; /* min of max_seqs and the step limits: every ACTIVE one fits one decode step */
    uint32_t n_active;
    uint32_t debug_turn; /* round robin of the debug switches */
    uint8_t draining, exited, pad[2];
    uint64_t slots_at, spans_at, pool_at, state_bytes, plan_at, order_at; /* byte offsets */
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

/* worker_core.c */
struct worker_action *wc_emit(struct wc_out *o, enum worker_action_kind kind);

/* worker_session.c */
void wc_session_up(struct worker_core *c, uint32_t gw, uint64_t gateway, struct wc_out *o);
void wc_session_down(struct worker_core *c, uint32_t gw);
void wc_cancel(struct worker_core *c, uint32_t gw, struct sub_id sub, struct wc_out *o);
void wc_gap(struct worker_core *c, uint32_t gw, struct sub_id sub, uint32_t from, struct wc_out *o);
void wc_ack(struct worker_core *c, uint32_t gw, struct sub_id sub, struct wc_out *o);
void wc_drain(struct worker_core *c, struct wc_out *o);
void wc_tick(struct worker_core *c, struct wc_out *o);
uint32_t wc_find(const struct worker_core *c, uint64_t gateway,
                 struct sub_id sub); /* WC_NONE: not held */
/* Sends what was made and not sent yet, with the finish if there is one. */
void wc_send(struct worker_core *c, uint32_t slot, struct wc_out *o);
/* Decides the finish: seat and blocks are free at once, the slot when it is acknowledged. */
void wc_finish(struct worker_core *c, uint32_t slot, enum finish f, struct wc_out *o);
void wc_slot_free(struct worker_core *c, uint32_t slot, struct wc_out *o);

/* worker_step.c */
void wc_step_end(struct worker_core *c, const struct worker_event *ev, struct wc_out *o);
void wc_step_parked(struct worker_core *c, const struct worker_event *ev);
void wc_span_dropped(struct worker_core *c, uint64_t step, uint32_t span, struct wc_out *o);
uint32_t wc_running(const struct worker_core *c); /* index into steps, WC_NONE */
uint32_t wc_parked(const struct worker_core *c);

/* worker_preempt.c */
/* Seat and blocks back; a span in flight is dropped, its blocks stay held until confirmed. */
void wc_leave_seat(struct worker_core *c, uint32_t slot, struct wc_out *o);
void wc_preempt(struct worker_core *c, uint32_t slot, struct wc_out *o);
/* The sequence to preempt so that `for_slot` gets on; WC_NONE = nobody. */
uint32_t wc_victim(const struct worker_core *c, uint32_t for_slot);
void wc_drop_span(struct worker_core *c, uint32_t step, uint32_t span, struct wc_out *o);
void wc_drop_youngest(struct worker_core *c, uint32_t step,
                      struct wc_out *o); /* never the last one */

/* worker_plan.c */
void wc_schedule(struct worker_core *c, struct wc_out *o);
uint32_t wc_blocks_to_start(const struct worker_core *c, const struct wc_slot *s);
uint32_t wc_blocks_to_end(const struct worker_core *c, const struct wc_slot *s);

#endif
