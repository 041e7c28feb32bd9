/* world.h - one real gateway_core, real worker_cores in virtual workers, and the links between them
 * with everything that may go wrong. The random simulation picks choices by chance; the protocol
 * model (tests/model) tries all of them, with smaller WORLD_ and VW_ sizes.
 *
 * A connection is a pair of queues. When it breaks, all that is queued is lost, what either side
 * still sends into it vanishes, and each side hears of it later, apart from the other. A new one
 * has a new session index at the gateway. `bad` is set by the first broken rule:
 *   - every index reaches the client once, in order, from the right request and one numerics id
 *   - one end per request, with the right finish; a failure only where a rule allows it
 *   - a worker gets a request again only after its older submission there was cancelled (unless the
 *     CANCEL itself was lost)
 */
#ifndef SLUICE_TESTS_WORLD_H
#define SLUICE_TESTS_WORLD_H

#include "scheduler/gateway_core.h"
#include "tests/unit/scheduler/vworker.h"

#ifndef WORLD_CHAN
#define WORLD_CHAN 512
#define WORLD_SLOTS 64
#define WORLD_SYNC VW_SLOTS
#endif
#define WORLD_WORKERS 2

enum world_kind {
    WM_HELLO,
    WM_SYNC,
    WM_TOKENS,
    WM_STATUS,
    WM_HELLO_REPLY,
    WM_SUBMIT,
    WM_CANCEL,
    WM_GAP,
    WM_ACK
};

struct world_msg {
    enum world_kind kind;
    struct sub_id sub;
    uint64_t key, numerics, number; /* TOKENS; TOKENS and HELLO; STATUS */
    uint32_t from, n;
    enum finish finish;
    struct vw_submit submit;
    uint32_t window[2], n_sync;
    struct gateway_sync sync[WORLD_SYNC];
};

struct world_chan {
    uint32_t n;
    struct world_msg at[WORLD_CHAN];
};

struct world_conn {
    uint32_t session;
    uint8_t alive;              /* the wire between the two */
    uint8_t phase;              /* worker: 0 closed, 1 HELLO sent, 2 up */
    uint8_t gw_down_pending[2]; /* the gateway will hear of the end of its session index */
    uint8_t w_down_pending;
    uint64_t incarnation, status_number, numerics;
    struct world_chan to_gw, to_w;
};

struct world_request {
    uint8_t live, cls, durable, cancelled, done; /* done: finish delivered */
    uint64_t key, numerics;
    uint32_t n_prompt, from, next, max_total, stop_at;
    struct sub_id sub; /* the last one, for a mutation */
    uint64_t shared_key, scope;
    uint32_t n_shared, account, quota;
};

enum world_choice_kind {
    WC_DELIVER_GW,
    WC_DELIVER_W,
    WC_STEP,
    WC_GW_DOWN,
    WC_W_DOWN,
    WC_OPEN,
    WC_SETTLE, /* durable or release */
    WC_STATUS,
    WC_TICK_GW,
    WC_TICK_W,
    WC_BREAK,
    WC_KILL,
    WC_LOSE_GW,
    WC_LOSE_W,
    WC_FULL,
    WC_CANCEL,
    WC_CLIENT /* faults, from WC_BREAK on */
};
struct world_choice {
    enum world_choice_kind kind;
    uint32_t who;
};

/* Rules taken out on purpose: each must be found by the model. */
enum world_mutation {
    MUT_NONE,
    MUT_SUBMIT_BEFORE_SYNC,
    MUT_ACCEPT_OLD_IDS,
    MUT_NO_CANCEL_OF_UNKNOWN,
    MUT_FINISH_ONCE,
    MUT_OLD_QUEUE_TO_NEW_SESSION,
    MUT_NO_GAP,
    MUT_SILENT_DROP,
    MUT_COUNT
};

struct world {
    struct gateway_core *g;
    struct vworker w[WORLD_WORKERS];
    struct buf *trace[WORLD_WORKERS];
    const char *bad;
    uint64_t now;
    struct world_conn conn[WORLD_WORKERS];
    struct world_request req[WORLD_SLOTS];
    uint32_t n_slots, g_tenants;
    enum world_mutation mutation;
    uint8_t full_next, cancel_lost;
    uint64_t finished, failed, cancelled, delivered, restarts, submits; /* counted */
};

/* Regions are the caller's; sizes from gcfg and wcfg. */
void world_init(struct world *x, void *gateway_region, const struct gateway_core_config *gcfg,
                void *const *worker_regions, const struct worker_core_config *wcfg,
                uint32_t n_segments);
void world_request(struct world *x, uint32_t slot, const struct world_request *r, uint64_t tag,
                   uint64_t deadline_ns);
/* Everything that may happen now without a fault; ticks only when nothing else can. Returns the
 * number. */
uint32_t world_choices(struct world *x, struct world_choice *out, uint32_t cap);
void world_apply(struct world *x, struct world_choice c);
bool world_can(struct world *x, struct world_choice c); /* is this fault possible now? */
/* Wipes worker i's process: fresh core in the same region, new incarnation. */
void world_restart_worker(struct world *x, uint32_t i, const struct worker_core_config *cfg);
/* NULL, or what still is in use although nothing can happen any more. */
const char *world_leak(struct world *x);
const char *world_check(struct world *x);

#endif
