/* dispatch.h - performs gateway_core's actions: the worker link, the table of sequences, ticks.
 *
 * The listener for workers (CURVE) and gateway_core live here; sequences are the choices of
 * requests. A choice gives its `struct sequence` (storage inside the choice) and gets callbacks on
 * the loop thread.
 */
#ifndef SLUICE_GATEWAY_DISPATCH_H
#define SLUICE_GATEWAY_DISPATCH_H

#include "gateway/gateway.h"
#include "proto/message.h"
#include "proto/transport.h"
#include "scheduler/gateway_core.h"

struct sequence;

struct sequence_ops {
    /* `n` new records beginning at absolute index `index`; then the finish, when not NONE (then
     * visible_bytes counts). */
    void (*deliver)(struct sequence *s, uint32_t index, const struct msg_record *records,
                    uint32_t n, bool logprobs, enum finish finish, uint32_t visible_bytes);
    void (*restart)(struct sequence *s); /* n_out is 0 again: forget records and text */
    void (*fail)(struct sequence *s,
                 enum err_code code); /* the sequence is already out of the dispatcher */
};

#define DISPATCH_TENANTS_MAX 2048

struct sequence {
    const struct sequence_ops *ops;
    /* The SUBMIT template: everything but sub, ids, n_ids, from, deadline_in_ns, which dispatch
     * fills. Lists borrowed. */
    struct msg_submit submit;
    const int32_t *prompt; uint32_t n_prompt;    /* shared between choices of one prompt */
    int32_t *out;
    uint32_t n_out, cap_out; /* output ids: dispatch appends before it calls deliver(); the owner
                                frees (mem_free) after dispatch_leave or the end */
    uint32_t from;           /* first index wanted: n_prompt, or 1 with prompt scores */
    uint64_t deadline_ns;                        /* monotonic, 0 = none */
    uint32_t tenant;         /* index, < DISPATCH_TENANTS_MAX: whose account, caps and room */
    int8_t priority;         /* among its tenant's own: -8 .. 7, larger first */
    uint32_t hint_out;       /* ids it will probably make; 0 = as its tenant's usually do */
    uint64_t arrived_ns, sent_ns;                /* filled by dispatch: first sent */
    uint64_t last_sent_ns, finished_ns;
    uint64_t ledger[LEDGER_CAUSES];              /* from arrival to the finish, ns */
    uint64_t worker;                             /* hash of the last one's name */
    uint32_t slot;                               /* dispatch's; UINT32_MAX = not in */
    uint32_t preemptions;
    uint32_t cached;         /* prompt ids that were found in a worker's prefix cache; valid after the
                                first deliver() */
};

/* At most max_total. min_total is kept within it: the link refuses a SUBMIT that asks for more than
 * it may make. */
static inline void sequence_shorten(struct sequence *s, uint32_t max_total)
{
    if (s->submit.max_total > max_total) s->submit.max_total = max_total;
    if (s->submit.min_total > s->submit.max_total) s->submit.min_total = s->submit.max_total;
}

/* `listener`: where workers come in, taken over; NULL = opened from the settings. 0, or -1 and
 * nothing is left. */
int dispatch_create(struct dispatch **out, struct gateway *g, struct transport *listener,
                    struct err *e);
void dispatch_destroy(struct dispatch **d);
/* 0, or -1 with ERR_QUEUE_FULL / DRAINING / POOL_TOO_SMALL (sizes named); callbacks may come any
 * time after. */
int dispatch_arrive(struct dispatch *d, struct sequence *s, struct err *e);
/* All sequences of one request, before they arrive: 0, or -1 with ERR_OVERLOADED, or ERR_DEADLINE, and the ms after
 * which it will be taken (0 = that cannot be promised). */
int dispatch_admit(struct dispatch *d, struct sequence *const *seqs, uint32_t n, uint32_t *retry_ms,
                   struct err *e);
/* A tenant is there, or has other limits; weight_permille 0: it is gone. Never told of any: one tenant, 0. */
void dispatch_tenant(struct dispatch *d, uint32_t tenant, uint32_t weight_permille, uint32_t max_in_flight,
                     uint32_t max_queued);
void dispatch_tenant_stats(const struct dispatch *d, uint32_t tenant, struct gateway_tenant_stats *out);
/* Give the sequence back: cancels it when it still runs; no callback afterwards. */
void dispatch_leave(struct dispatch *d, struct sequence *s);
/* -1: sets ERR_POOL_TOO_SMALL, with sizes. */
int dispatch_too_large(const struct dispatch *d, const struct sequence *s, struct err *e);
/* The name behind sequence.worker, "" when it is gone; MSG_NAME_MAX bytes. */
void dispatch_worker_name(const struct dispatch *d, uint64_t worker, char *out);
bool dispatch_ready(const struct dispatch *d);             /* a live worker */
const char *dispatch_endpoint(
    const struct dispatch *d); /* where workers meet us, the port filled in */
/* Take nothing new; what no worker has seen yet fails with ERR_DRAINING, the rest goes on. */
void dispatch_drain(struct dispatch *d);
void dispatch_fail_all(struct dispatch *d, enum err_code code); /* the end of the drain time */
bool dispatch_idle(const struct dispatch *d);
void dispatch_stats(const struct dispatch *d, struct gateway_stats *out);
/* Sums over live workers, for /metrics. */
struct dispatch_workers {
    uint32_t live;
    uint64_t blocks_total, blocks_free, blocks_cached, preemptions, parks, drops, steps, busy_ns;
    uint64_t cache_hits, cache_misses, swap_ins, recomputes, evictions; /* hits, misses, evictions in blocks */
    uint32_t active, waiting, block_tokens; char family[32];
};
void dispatch_workers(const struct dispatch *d, struct dispatch_workers *out);
/* The gateway's rows of the table of pools (base/mem.h), as they are now. */
void dispatch_pools(const struct dispatch *d);

#endif
