/* vworker.h - a worker around a real worker_core: the shell's records and a virtual engine with
 * real blocks and segments, so that tests see whether tokens, blocks and steps stay right.
 *
 * The engine writes garbage into a span's blocks at submit and the right content (request key,
 * position) at the end of the step; a step that reads a position it does not write must find the
 * right content there. So a block given out too early, an uncommitted position used, or a wrong
 * table is caught where it happens. Ids are a function of (key, index), in the shared part of a prompt
 * of (shared key, index), and so is what is stored: blocks of a prefix that two requests have in
 * common may be given to both, and any other would be caught. Copies are made when they end, so a
 * source that changes meanwhile or a target that is used too early is caught, too.
 *
 * Plain data but for `core`: copy the struct and the core's region, and set `core`, to clone it.
 * What the worker sends lies in out[0 .. n_out) until the test takes it. A broken rule sets `bad`.
 */
#ifndef SLUICE_TESTS_VWORKER_H
#define SLUICE_TESTS_VWORKER_H

#include "base/buf.h"
#include "scheduler/worker_core.h"

#ifndef VW_SLOTS
#define VW_SLOTS 80
#define VW_SPANS 16
#define VW_TABLE 32
#define VW_BLOCKS 129
#define VW_OUT 4096
#define VW_HOST 96
#define VW_COPIES 16
#endif
#define VW_BT 4

enum vw_msg_kind { VW_TOKENS, VW_SYNC };
struct vw_msg {
    enum vw_msg_kind kind;
    uint32_t gw;
    struct sub_id sub;
    uint64_t key;
    uint32_t from, n; /* TOKENS */
    enum finish finish;
};

struct vw_seq {
    bool used;
    struct sub_id sub;
    uint64_t key;
    uint32_t n_tokens, made, max_total;
    uint32_t stop_at;      /* index whose id is the end of generation, 0 = none */
    uint32_t high, redone; /* positions computed; how often it was started over */
    uint64_t shared_key;   /* of ids [0, n_shared) */
    uint32_t n_shared;
    bool host_choice;
};

struct vw_copy {
    uint64_t id; /* 0 = none */
    uint32_t block, host;
    uint8_t to_host, priority;
};

struct vw_span {
    uint32_t slot, pos, n, score_from, score_to, n_blocks, blocks[VW_TABLE];
    uint8_t sample, drop, gone, ref;
    uint32_t ref_span;
    uint64_t key, shared_key;
    uint32_t n_shared;
};

struct vw_step {
    uint64_t id;
    uint32_t n_spans, segments;
    uint8_t rank, parked, park_asked;
    uint64_t behind; /* the step whose ids it waits for, 0 = none */
    struct vw_span spans[VW_SPANS];
};

struct vw_submit {
    uint64_t key;
    uint32_t n_prompt, n_tokens, from, max_total, stop_at;
    uint8_t cls;
    uint64_t tag;
    bool refused;
    uint64_t shared_key; /* ids [0, n_shared) of the prompt are of this key */
    uint32_t n_shared;
    uint64_t scope; /* root of its prefixes; 0 = no ids are told */
    uint32_t account, quota, tpot_ms;
    bool host_choice;
};

struct vworker {
    struct worker_core *core;
    const char *bad;
    uint32_t max_slots, n_segments, max_tokens, max_rows;
    struct vw_seq seqs[VW_SLOTS];
    struct vw_step steps[3];
    uint64_t content[VW_BLOCKS][VW_BT];
    struct vw_msg out[VW_OUT];
    uint32_t n_out;
    struct vw_copy copies[VW_COPIES]; /* in the order submitted */
    uint64_t host[VW_HOST][VW_BT];
    uint32_t n_copies, n_host, copy_turn;
    bool exited, fail_next_step, fail_next_copy, hold_copies; /* hold: none ends */
    uint64_t step_ns, token_ns, copy_ns;                     /* device times told; 0 = none */
    /* counted since start */
    uint64_t submitted[2], parks, drops, late_drops, continues, copied[2];
    uint64_t computed; /* positions of ended spans */
    uint64_t launched, surplus; /* steps behind a running one; their spans that were ignored */
    uint32_t last_positions, last_spans; /* of the step submitted last */
    uint32_t last_submit_rank;
};

uint64_t vw_token(uint64_t key, uint32_t index);
void vw_init(struct vworker *w, struct worker_core *core, const struct worker_core_config *cfg,
             uint32_t n_segments);
/* Performs the actions of one event. `trace` (NULL = off) gets event and actions as bytes without
 * pointers. */
void vw_event(struct vworker *w, const struct worker_event *ev, uint64_t now_ns, struct buf *trace);
void vw_submit(struct vworker *w, uint32_t gw, struct sub_id sub, const struct vw_submit *s,
               uint64_t now_ns, struct buf *trace);
void vw_link(struct vworker *w, enum worker_event_kind kind, uint32_t gw, struct sub_id sub,
             uint32_t from, uint64_t now_ns,
             struct buf *trace); /* CANCEL, GAP, ACK, SESSION_DOWN, DRAIN, TICK */
void vw_up(struct vworker *w, uint32_t gw, uint64_t gateway, uint64_t now_ns, struct buf *trace);
/* The engine finishes a segment of the running step, or confirms drops of a parked one, or ends a
 * copy. False: nothing to do. */
bool vw_advance(struct vworker *w, uint64_t now_ns, struct buf *trace);
bool vw_busy(const struct vworker *w);
/* Feeds a trace from byte `from` on to another core; false: an action differs. `events`: how many
 * were fed. */
bool vw_replay(struct worker_core *core, const struct buf *trace, size_t from, uint32_t *events);
const char *vw_check(const struct vworker *w);
bool vw_end_copy(struct vworker *w, uint64_t now_ns, struct buf *trace); /* false: none */
uint32_t vw_used(const struct vworker *w); /* slots in use by the shell */

#endif
