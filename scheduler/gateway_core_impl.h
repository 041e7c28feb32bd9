/* gateway_core_impl.h - gateway_core's state as its own files see it. Internal to the scheduler
 * room (and to the protocol model, which hashes it).
 *
 *   gateway_core.c     region, the switch over events, arrival, cancel, release, tick
 *   gateway_queue.c    the queues (one heap per class), and who is sent where
 *   gateway_session.c  HELLO, SYNC, STATUS, DOWN, SEND_FULL
 *   gateway_tokens.c   TOKENS: gaps, repeats, finishes
 *   gateway_stats.c    counters, capacity, the auditor
 *
 * Region: struct | workers | slots | heaps[classes][max_slots]. Indexes and numbers only.
 */
#ifndef SLUICE_SCHEDULER_GATEWAY_CORE_IMPL_H
#define SLUICE_SCHEDULER_GATEWAY_CORE_IMPL_H

#include "scheduler/gateway_core.h"

#define GC_NONE UINT32_MAX
/* Entries answered in one SYNC; the worker repeats those left over. */
#define GC_SYNC_MAX 4096
/* A worker whose socket was full is left alone so long: no spin, and a queue drains in less. */
#define GC_FULL_NS 20000000u

enum gc_state { GC_FREE, GC_QUEUED, GC_SENT, GC_DONE };

/* Why a QUEUED slot is out of its heap: it must not block those behind it. */
enum gc_stuck { GC_NOT_STUCK, GC_STUCK_ROOM, GC_STUCK_NOBODY };

struct gc_slot {
    uint8_t state, cls, rank, stuck; /* enum gc_state, enum gc_stuck */
    uint8_t durable, acked;
    uint8_t has_sub;          /* `sub` is (SENT, DONE) or was (QUEUED after a loss) on a worker */
    uint8_t failures;         /* FAILED or CANCELLED finishes so far */
    uint32_t place;           /* 1 + index in its heap, 0 = not in it */
    uint32_t worker;          /* session of `sub`, GC_NONE */
    uint32_t n_prompt, n_ids; /* ids the shell has: prompt and accepted output */
    uint32_t from;            /* first index ever wanted */
    uint32_t next;            /* next index wanted */
    uint32_t max_total, pad;
    struct sub_id sub;
    uint64_t sub_process;    /* incarnation of the worker that has `sub` */
    struct hash128 numerics; /* under which output was accepted; zero = none */
    uint64_t refused_by;     /* bit w: session w handed it back, not again before its next STATUS */
    uint64_t tag, arrival, arrived_ns, deadline_ns;
    uint64_t alone_ns; /* since when no worker could take it; valid while `alone` */
    uint8_t alone;
    uint8_t was_sent; /* some worker was large enough once */
    uint8_t pad2[6];
};

enum gc_worker_state { GC_DOWN, GC_SYNCING, GC_LIVE };

struct gc_worker {
    uint8_t state, draining, has_status, pad; /* enum gc_worker_state */
    uint32_t n_sent;                          /* slots SENT to it */
    uint64_t name, incarnation, status_number, full_until_ns;
    struct hash128 numerics;
    uint32_t n_ctx, block_tokens, n_blocks, max_seqs, max_slots;
    uint32_t window[CLASSES_MAX], sent_since[CLASSES_MAX];
    uint32_t pad2;
};

struct gateway_core {
    struct gateway_core_config cfg;
    struct hash128 model, vocab;
    uint64_t now_ns, next_arrival, next_counter;
    uint64_t due_ns; /* no slot's time runs out before; exact after a tick */
    uint64_t resubmits, gaps, cancels, unknown_tokens;
    uint32_t in_use, n_stuck[3]; /* by enum gc_stuck */
    uint32_t heap_n[CLASSES_MAX];
    uint8_t order[CLASSES_MAX]; /* classes, most urgent first */
    uint8_t draining, drained, pad[6];
    uint64_t workers_at, slots_at, heaps_at; /* byte offsets */
};

struct gc_out {
    struct gateway_action *list;
    uint32_t n, max;
};

static inline struct gc_worker *gc_workers(const struct gateway_core *c)
{
    return (struct gc_worker *)((char *)(uintptr_t)c + c->workers_at);
}
static inline struct gc_slot *gc_slots(const struct gateway_core *c)
{
    return (struct gc_slot *)((char *)(uintptr_t)c + c->slots_at);
}
static inline uint32_t *gc_heap(const struct gateway_core *c, uint8_t cls)
{
    return (uint32_t *)((char *)(uintptr_t)c + c->heaps_at) + (size_t)cls * c->cfg.max_slots;
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
void gc_queue(struct gateway_core *c, uint32_t slot); /* any state but QUEUED -> QUEUED */
void gc_unqueue(struct gateway_core *c,
                uint32_t slot); /* out of heap or stuck set; state is the caller's */
void gc_unstick(struct gateway_core *c, enum gc_stuck upto);
void gc_left_worker(struct gateway_core *c,
                    uint32_t slot); /* SENT no more: its worker has room again */
/* One ended on its worker, so an unstarted one starts there: its window is one larger until the
 * next STATUS says exactly. Without this a worker of short answers runs dry between two of them. */
void gc_seat_freed(struct gateway_core *c, const struct gc_slot *s);
void gc_dispatch(struct gateway_core *c, struct gc_out *o);
/* Could worker w take it, room and refusals aside? */
bool gc_could(const struct gateway_core *c, const struct gc_slot *s, const struct gc_worker *w,
              bool any_numerics);
/* Workers live, and none of them will ever hold it as it is? */
bool gc_too_large(const struct gateway_core *c, const struct gc_slot *s);
void gc_update_alone(struct gateway_core *c, uint32_t slot);
void gc_workers_changed(struct gateway_core *c);
uint64_t gc_due(const struct gateway_core *c, const struct gc_slot *s);
bool gc_heap_check(const struct gateway_core *c, uint8_t cls);

/* gateway_session.c */
void gc_hello(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o);
void gc_sync(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o);
void gc_down(struct gateway_core *c, uint32_t worker);
void gc_status(struct gateway_core *c, const struct gateway_event *ev);
void gc_send_full(struct gateway_core *c, const struct gateway_event *ev);

/* gateway_tokens.c */
void gc_tokens(struct gateway_core *c, const struct gateway_event *ev, struct gc_out *o);

#endif
