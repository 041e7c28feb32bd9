/* sim_live.c - see sim_live.h. */
#include "cli/sim_live.h"

#include "base/hash.h"
#include "scheduler/step_cost.h"

#define RUN_MOST 3
#define PAUSE_NS 5000000u /* as step_cost.h: a step after a longer one is cold */

uint32_t sim_live_kind(struct sim_live_place *p, uint32_t rank, uint32_t tokens, uint64_t now_ns) {
    bool pause = now_ns - p->end_ns > PAUSE_NS, on = !pause && p->rank == rank;
    p->idle = on ? p->idle : pause;
    p->run = !on ? 0 : p->run < RUN_MOST ? p->run + 1 : RUN_MOST;
    p->rank = rank;
    return ((rank * 2 + (tokens <= COST_KNEE)) * 2 + p->idle) * (RUN_MOST + 1) + p->run;
}

bool sim_live_scatters(const struct sim_live *l) {
    for (int i = 0; i < SIM_LIVE_KINDS; i++)
        if (l->n_ratios[i] > 0)
            return true;
    return false;
}

double sim_live_ratio(const struct sim_live *l, uint64_t seed, uint32_t kind, uint64_t n) {
    uint32_t from = kind;
    for (uint32_t i = 1; l->n_ratios[from] == 0; i++) { /* by rank and form first */
        if (i == SIM_LIVE_KINDS)
            return 1;
        from = kind ^ i;
    }
    uint32_t have = l->n_ratios[from];
    uint32_t block = have < SIM_LIVE_BLOCK ? have : SIM_LIVE_BLOCK, places = have - block + 1;
    uint64_t at = rand_at(seed ^ (0x5ca77e2u + kind), n / block) % places;
    return (double)l->ratios[from][at + n % block];
}

uint64_t sim_live_path_ns(const struct sim_live *l, uint64_t seed, uint32_t i, uint32_t end,
                          uint64_t known_ns) {
    if (!l->has_path)
        return 0;
    uint64_t r = rand_at(seed ^ 0x9a7b11u, i) >> 32; /* a rank, in 2^-32 */
    uint64_t at = r * (SIM_LIVE_PATH - 1), k = at >> 32, part = (at & 0xffffffffu) >> 12;
    const uint64_t *q = l->path_ns[end];
    uint64_t ns = q[k] + (((q[k + 1] - q[k]) * part) >> 20);
    return ns > known_ns ? ns - known_ns : 0;
}
