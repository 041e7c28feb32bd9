/* sim_queue.h - messages on their way in a simulated pool: to the gateways in order of time, to the workers first in
 * first out (all take as long, and leave in order).
 *
 * Equals of one time to the gateways: by phase (what a worker did by itself, then what it answered), worker, and the
 * order in which they were put. Growing arrays. Failure: `bad` stays set. Thread: one owner.
 */
#ifndef SLUICE_CLI_SIM_QUEUE_H
#define SLUICE_CLI_SIM_QUEUE_H

#include "cli/sim_gateway.h"

struct sim_mail { /* to a gateway */
    uint64_t at_ns, order;
    struct sub_id sub;
    uint32_t node, from, to, cached;
    uint8_t finish, is_status, phase, pad;
};

struct sim_mail_heap {
    struct sim_mail *list;
    uint32_t n, cap;
    uint64_t next;
    bool bad;
};

void sim_mail_put(struct sim_mail_heap *h, const struct sim_mail *m); /* order is set here */
bool sim_mail_take(struct sim_mail_heap *h, struct sim_mail *out);
static inline uint64_t sim_mail_next_ns(const struct sim_mail_heap *h) {
    return h->n > 0 ? h->list[0].at_ns : SIM_NEVER;
}
void sim_mail_free(struct sim_mail_heap *h);

struct sim_wire_ring {
    struct sim_wire *list;
    uint64_t *at_ns;
    uint32_t head, n, cap;
    bool bad;
};

void sim_wire_put(struct sim_wire_ring *r, const struct sim_wire *w, uint64_t at_ns);
bool sim_wire_take(struct sim_wire_ring *r, struct sim_wire *out);
static inline uint64_t sim_wire_next_ns(const struct sim_wire_ring *r) {
    return r->n > 0 ? r->at_ns[r->head] : SIM_NEVER;
}
void sim_wire_free(struct sim_wire_ring *r);

#endif
