/* gateway_core_impl.h - gateway_core's state as its own files see it. Internal to the scheduler
 * room (and to the protocol model, which hashes it).
 *
 *   gateway_core.c     region, the switch over events, arrival, cancel, release, tick
 *   gateway_queue.c    into the queue and out of it, the stuck ones, who is sent where
 *   gateway_due.c      when a slot's time runs out; who could take it at all
 *   gateway_tenant.c   tenants: caps, room, charges, tags
 *   gateway_admit.c    work here and how fast it goes, for admit.h
 *   gateway_ledger.c   why the queued ones wait
 *   gateway_session.c  HELLO, SYNC, STATUS, ACCOUNT, DOWN, SEND_FULL
 *   gateway_tokens.c   TOKENS: gaps, repeats, finishes
 *   gateway_stats.c    counters, capacity, the auditor
 *
 * Region: struct | workers | slots | due heap | tenants | fair_queue | tenant_account | admit | route. Indexes and
 * numbers only.
 */
#ifndef SLUICE_SCHEDULER_GATEWAY_CORE_IMPL_H
#define SLUICE_SCHEDULER_GATEWAY_CORE_IMPL_H

#include "scheduler/fair_queue.h"
#include "scheduler/gateway_core.h"

#define GC_NONE UINT32_MAX
/* Entries answered in one SYNC; the worker repeats those left over. */
#define GC_SYNC_MAX 4096
/* A worker whose socket was full is left alone so long: no spin, and a queue drains in less. */
#define GC_FULL_NS 20000000u
/* Actions of one event beside a SYNC's answers: with a million slots the list must not grow along. */
#define GC_ACTIONS_MAX 16384
#define GC_ACTIONS_SPARE 16 /* what a single slot may still add */
/* So many stuck ones are tried again when room comes, and so many may become stuck, in one event:
 * an event's time is bounded, the rest has its turn at the next. */
#define GC_UNSTICK_MAX 256
#define GC_TICK_MAX 4096
/* What a class can be owed, in thousandths of a token: it cannot save up for more than a burst. */
#define GC_OWED_MAX ((int64_t)65536 * 1000)

enum gc_state { GC_FREE, GC_QUEUED, GC_SENT, GC_DONE };

/* Why a QUEUED slot is out of its queue: it must not block those behind it. */
enum gc_stuck { GC_NOT_STUCK, GC_STUCK_ROOM, GC_STUCK_NOBODY };

/* Why the head of a class cannot go, and how long that was so altogether. */
enum gc_why { GC_WHY_CLASS, GC_WHY_OWN, GC_WHY_NO_WORKER, GC_WHYS };

/* Its place in the queue and what decides it: fair_queue_entry(slot). */
struct gc_slot {
    uint8_t state, cls, rank, stuck; /* enum gc_state, enum gc_stuck */
    uint8_t durable, acked;
    uint8_t has_sub;          /* `sub` is (SENT, DONE) or was (QUEUED after a loss) on a worker */
    uint8_t failures;         /* FAILED or CANCELLED finishes so far */
    uint8_t alone;            /* no worker could take it, since alone_ns */
    uint8_t was_sent;         /* some worker was large enough once */
    uint8_t prompt_paid, pad; /* its prompt is in the account */
    uint32_t tenant;
    uint32_t older, newer;    /* 1 + slot: list of its worker (SENT, DONE), or of the stuck */
    uint32_t due_place;       /* 1 + index in the due heap, 0 = not in it */
    uint32_t worker;          /* session of `sub`, GC_NONE */
    uint32_t n_prompt, n_ids; /* ids the shell has: prompt and accepted output */
    uint32_t from;            /* first index ever wanted */
    uint32_t next;            /* next index wanted */
    uint32_t max_total;
    uint32_t hint_out;
    uint32_t left;            /* SENT: of its expected charge, tokens still in flight */
    uint32_t paid_to;         /* output below this index is in the account */
    struct route_keys route;
    uint64_t queued_ns;       /* when it came into the queue, and the sums of then: */
    uint64_t was_ns[GC_WHYS], was_held_ns;
    uint32_t was_picks, was_own_picks;
    uint32_t due_prompt, due_out; /* in admit: positions not computed, ids expected; while QUEUED or SENT */
    struct sub_id sub;
    uint64_t sub_process;     /* incarnation of the worker that has `sub` */
    struct hash128 numerics;  /* under which output was accepted; zero = none */
    uint64_t refused_by;      /* bit w: session w handed it back in event refused_at at the latest; */
    uint64_t refused_at;      /* holds until w's refusals_from passes it: gc_refused */
    uint64_t tag, deadline_ns;
    uint64_t alone_ns;
    uint64_t due_ns;          /* in the due heap under this */
};

enum gc_worker_state { GC_DOWN, GC_SYNCING, GC_LIVE };

struct gc_list {
    uint32_t oldest, newest; /* 1 + slot */
    uint32_t n;
};

struct gc_worker {
    uint8_t state, draining, has_status, pad; /* enum gc_worker_state */
    uint32_t n_sent, n_urgent;                /* slots SENT to it; of rank 0 */
    uint64_t name, incarnation, status_number, full_until_ns;
    uint64_t refusals_from; /* refusals up to this event are void */
    struct hash128 numerics;
    uint32_t n_ctx, block_tokens, n_blocks, max_seqs, max_slots;
    uint32_t window[CLASSES_MAX], sent_since[CLASSES_MAX];
    double prompt_ns, out_ns; /* of a position, of an id in a full step; 0 = not known */
    struct gc_list list; /* SENT to it, and DONE there */
};

struct gc_tenant {
    uint32_t weight_permille, max_in_flight, max_queued;
    uint32_t in_use, in_flight; /* slots */
    uint8_t held, known, pad[2];
    uint32_t queued[CLASSES_MAX], sent[CLASSES_MAX], picks[CLASSES_MAX];
    uint64_t refused;
    uint64_t held_ns, held_at_ns; /* at its cap: how long, since when */
};

struct gateway_core {
    struct gateway_core_config cfg;
    struct hash128 model, vocab;
    uint64_t now_ns, events, next_arrival, next_counter;
    uint64_t resubmits, gaps, cancels, unknown_tokens, promoted;
    int64_t owed[CLASSES_MAX]; /* 1/1000 token */
    uint32_t in_use, n_alone, n_due, active_tenants, known_tenants;
    uint32_t queued[CLASSES_MAX], sent[CLASSES_MAX], done;
    struct gc_list stuck[3];    /* by enum gc_stuck */
    uint64_t why_ns[CLASSES_MAX][GC_WHYS], why_at_ns;
    uint32_t picks[CLASSES_MAX];
    uint8_t why[CLASSES_MAX];   /* enum gc_why, GC_WHYS = nobody waits */
    uint32_t workers_end;       /* 1 + the last session that is not down */
    uint8_t order[CLASSES_MAX]; /* classes, most urgent first */
    uint8_t draining, drained, more, pad; /* more: the list was full, work is left */
    uint64_t workers_at, slots_at, dues_at, tenants_at, queue_at, account_at, admit_at, route_at; /* byte offsets */
};

struct gc_out {
    struct gateway_action *list;
    uint32_t n, max;
};

static inline void *gc_at(const struct gateway_core *c, uint64_t offset)
{
    return (char *)(uintptr_t)c + offset;
}
static inline struct gc_worker *gc_workers(const struct gateway_core *c)
{
    return gc_at(c, c->workers_at);
}
static inline struct gc_slot *gc_slots(const struct gateway_core *c)
{
    return gc_at(c, c->slots_at);
}
static inline uint32_t *gc_dues(const struct gateway_core *c)
{
    return gc_at(c, c->dues_at);
}
static inline struct gc_tenant *gc_tenants(const struct gateway_core *c)
{
    return gc_at(c, c->tenants_at);
}
static inline struct fair_queue *gc_fair(const struct gateway_core *c)
{
    return gc_at(c, c->queue_at);
}
static inline struct tenant_account *gc_account(const struct gateway_core *c)
{
    return gc_at(c, c->account_at);
}
/* NULL: nobody is refused for waits. */
static inline struct admit *gc_admit(const struct gateway_core *c)
{
    return c->cfg.max_tickets != 0 ? gc_at(c, c->admit_at) : NULL;
}
static inline struct route *gc_route(const struct gateway_core *c) /* NULL: off */
{
    return c->cfg.route_entries != 0 ? gc_at(c, c->route_at) : NULL;
}
static inline bool gc_full(const struct gc_out *o)
{
    return o->n + GC_ACTIONS_SPARE > o->max;
}

/* gateway_core.c */
struct gateway_action *gc_emit(struct gc_out *o, enum gateway_action_kind kind);
void gc_fail(struct gateway_core *c, uint32_t slot, enum err_code code,
             struct gc_out *o); /* CANCELs what is SENT */
void gc_free(struct gateway_core *c, uint32_t slot);
void gc_link(struct gc_out *o, enum gateway_action_kind kind, uint32_t worker, uint32_t slot,
             struct sub_id sub);
/* The slot under this submission id if it is its current one, else GC_NONE. */
uint32_t gc_current(const struct gateway_core *c, struct sub_id sub);

/* gateway_queue.c */
void gc_list_add(struct gateway_core *c, struct gc_list *l, uint32_t slot);
void gc_list_remove(struct gateway_core *c, struct gc_list *l, uint32_t slot);
void gc_queue(struct gateway_core *c, uint32_t slot); /* any state but QUEUED -> QUEUED */
void gc_unqueue(struct gateway_core *c,
                uint32_t slot); /* out of the queue or the stuck; state is the caller's */
void gc_unstick(struct gateway_core *c, enum gc_stuck kind, uint32_t most);
void gc_to_worker(struct gateway_core *c, uint32_t slot, uint32_t worker); /* out of the queue -> SENT */
/* SENT no more, `worker` is GC_NONE: the worker has room again. */
void gc_left_worker(struct gateway_core *c, uint32_t slot);
/* One ended on its worker, so an unstarted one starts there: its window is one larger until the
 * next STATUS says exactly. Without this a worker of short answers runs dry between two of them. */
void gc_seat_freed(struct gateway_core *c, const struct gc_slot *s);
void gc_dispatch(struct gateway_core *c, struct gc_out *o);
/* Has worker w handed it back since its last STATUS? */
bool gc_refused(const struct gateway_core *c, const struct gc_slot *s, uint32_t worker);
void gc_refuse(struct gateway_core *c, struct gc_slot *s, uint32_t worker);

/* gateway_due.c */
/* Could worker w take it, room and refusals aside? */
bool gc_could(const struct gateway_core *c, const struct gc_slot *s, const struct gc_worker *w,
              bool any_numerics);
/* Workers live, and none of them will ever hold it as it is? */
bool gc_too_large(const struct gateway_core *c, const struct gc_slot *s);
void gc_update_alone(struct gateway_core *c, uint32_t slot);
void gc_not_alone(struct gateway_core *c, struct gc_slot *s);
/* `gone`: a copy of the worker that can take no more; NULL: one came, or takes again. */
void gc_workers_changed(struct gateway_core *c, const struct gc_worker *gone);
uint64_t gc_due(const struct gateway_core *c, const struct gc_slot *s);
void gc_set_due(struct gateway_core *c, uint32_t slot); /* after anything gc_due looks at changed */
const char *gc_due_check(const struct gateway_core *c);

/* gateway_tenant.c */
void gc_tenant(struct gateway_core *c, const struct gateway_event *ev);
void gc_retag(struct gateway_core *c, uint32_t tenant, uint8_t cls);
void gc_tenant_took(struct gateway_core *c, uint32_t tenant, bool taken); /* a slot, or gave it back */
void gc_tenant_wakes(struct gateway_core *c, const struct gc_slot *s);    /* before it is pushed */
void gc_tenant_sent(struct gateway_core *c, uint32_t slot);
void gc_tenant_left(struct gateway_core *c, uint32_t slot);
/* `n` more indexes were accepted, s->next is past them. */
void gc_tenant_pays(struct gateway_core *c, uint32_t slot, uint32_t cached);
/* A sequence with a worker ends by its client's will before anything came: its prompt counts. Else
 * who cancels in time would compute for nothing. */
void gc_tenant_pays_prompt(struct gateway_core *c, uint32_t slot);
const char *gc_tenant_check(const struct gateway_core *c);

/* gateway_ledger.c */
void gc_ledger_pass(struct gateway_core *c, uint64_t now_ns); /* time passes, before an event */
void gc_ledger_look(struct gateway_core *c);                  /* after it: why do they wait? */
void gc_ledger_queued(struct gateway_core *c, uint32_t slot);
void gc_ledger_picked(struct gateway_core *c, uint32_t slot, uint64_t out[LEDGER_QUEUE_N]);

/* gateway_admit.c */
bool gc_admit_config(const struct gateway_core_config *cfg, struct admit_config *a); /* false: off */
/* Ids it will probably make, of those left. */
uint32_t gc_out_of(const struct gateway_core *c, const struct gc_slot *s);
void gc_admit_enter(struct gateway_core *c, uint32_t slot);
void gc_admit_leave(struct gateway_core *c, uint32_t slot); /* DONE, or freed */
void gc_admit_work(struct gateway_core *c, uint32_t slot, uint32_t n_out); /* ids came; the prompt with the first */
void gc_admit_cost(struct gc_worker *w, const float *cost, uint32_t n);
void gc_admit_pool(struct gateway_core *c); /* workers came, went, or know more of themselves */
/* Not even its prompt could be computed in time, whoever took it. */
bool gc_admit_too_late(const struct gateway_core *c, const struct gc_slot *s);

/* gateway_session.c */
void gc_hello(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o);
void gc_sync(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o);
void gc_down(struct gateway_core *c, uint32_t worker);
void gc_status(struct gateway_core *c, const struct gateway_event *ev);
void gc_account_event(struct gateway_core *c, const struct gateway_event *ev);
void gc_send_full(struct gateway_core *c, const struct gateway_event *ev);
void gc_attach(struct gateway_core *c, uint32_t slot, uint32_t worker); /* DONE, known there */

/* gateway_tokens.c */
void gc_tokens(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o);

#endif
