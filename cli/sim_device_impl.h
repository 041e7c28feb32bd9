/* sim_device_impl.h - the virtual device's state, shared by sim_device.c (steps) and sim_copy.c
 * (copies). */
#ifndef SLUICE_CLI_SIM_DEVICE_IMPL_H
#define SLUICE_CLI_SIM_DEVICE_IMPL_H

#include "base/hash.h"
#include "cli/sim_device.h"

#define SIM_STEPS 3
#define SIM_NO_SEGMENT UINT32_MAX

enum sim_step_state { SIM_FREE, SIM_RUNNING, SIM_PARKED, SIM_ENDED };

struct sim_step_span {
    uint32_t slot, pos, n, n_blocks;
    const uint32_t *blocks;
    const int32_t *ids;
    uint64_t seed;
    uint32_t drop_at,
        drop_segment; /* boundary at which the drop takes effect; the segment that ran when asked */
    bool sample, dropped;
};

struct sim_step {
    enum sim_step_state state;
    uint64_t id;
    uint8_t rank;
    uint32_t n_spans, n_live, n_results, positions;
    uint32_t done;     /* segments finished when the leg began */
    uint32_t leg_from; /* the same, kept beside leg_ns for boundaries */
    uint32_t park_at;
    uint64_t
        leg_ns; /* since when it runs without a change; of a parked one: of its last drop request */
    bool cold;
    double noise;        /* measured / modelled, of this step */
    uint64_t cost;       /* of the whole step with the spans live now */
    uint64_t first_cost; /* as submitted */
    uint64_t device_ns;
    struct sim_step_span *spans;
    struct sim_result *results;
    uint32_t *tables; /* max_seq_blocks a span */
};

struct sim_copy {
    uint64_t id, after_step, end_ns;
    uint32_t block, host;
    bool to_host;
};

struct sim_copy_queue { /* ring */
    struct sim_copy list[SIM_COPIES_MAX];
    uint32_t head, n;
};

struct sim_device {
    struct sim_device_config cfg;
    struct sim_step steps[SIM_STEPS];
    uint64_t *content, *host; /* block_tokens words a block; 0 = nothing there */
    struct sim_copy_queue queues[2];
    struct sim_copy copy; /* the one on its way */
    bool copying;
    uint64_t swap_ins, last_end_ns, n_steps[SIM_LIVE_KINDS];
    struct sim_live_place place;
    struct sim_device_stats stats;
    const char *bad;
};

static inline uint64_t sim_chain_step(uint64_t h, int32_t id, uint32_t pos)
{
    return rand_at(h ^ (uint64_t)(uint32_t)id * 0x9E3779B97F4A7C15ull, pos) | 1u;
}
static inline uint64_t sim_chain_fold(uint64_t fold, uint64_t word)
{
    return (fold ^ word) * 0xD6E8FEB86659FD93ull + (fold >> 29);
}

void sim_device_blame(struct sim_device *d, const char *what);
struct sim_step *sim_step_find(const struct sim_device *d, uint64_t id);

/* sim_copy.c */
uint64_t sim_copy_next_ns(const struct sim_device *d);
void sim_copy_event(struct sim_device *d, struct sim_event *out);
void sim_copy_kick(struct sim_device *d, uint64_t now_ns); /* starts the next one that may start */

#endif
