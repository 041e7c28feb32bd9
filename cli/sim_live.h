/* sim_live.h - what a live run showed beside the step model: how steps scatter, and what the path to the
 * client adds. Part of a hardware file that a bench writes ("noise", "path").
 *
 * Noise: measured / modelled time of real steps, by kind, in order of time. A kind: rank; decode or not (tokens up to
 * COST_KNEE); how many steps of its rank went before it without a pause or another rank's step, up to 3; and which of
 * the two it was: behind a change the first steps find cold caches and a slow clock, which no linear model knows. A simulated step takes a
 * ratio of its kind; SIM_LIVE_BLOCK of a kind take neighbours, then the seed draws another place: a machine that is
 * slow for a while (neighbours, interrupts) is slow for several steps, and drawing each by itself would
 * understate p99. Path: quantiles of (client's wait - worker's own), of the first token and of the end; a
 * request draws one rank of both. Pure functions of (seed, counter). Thread: any. Failure: none.
 */
#ifndef SLUICE_CLI_SIM_LIVE_H
#define SLUICE_CLI_SIM_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_LIVE_KINDS 32
#define SIM_LIVE_RATIOS 1024 /* of a kind */
#define SIM_LIVE_BLOCK 8
#define SIM_LIVE_PATH 65 /* quantiles 0, 1/64 .. 1 */

struct sim_live {
    uint32_t n_ratios[SIM_LIVE_KINDS]; /* all 0 = steps do not scatter */
    float ratios[SIM_LIVE_KINDS][SIM_LIVE_RATIOS];
    bool has_path;
    uint64_t path_ns[2][SIM_LIVE_PATH]; /* first token, end */
};

struct sim_live_place { /* where in time a step is; zero it */
    uint64_t end_ns;    /* when the last one ended */
    uint32_t rank, run; /* of the last one; steps of its rank before it */
    bool idle;          /* before those: a pause, not the other rank */
};
/* The kind of a step that begins now; moves on. */
uint32_t sim_live_kind(struct sim_live_place *p, uint32_t rank, uint32_t tokens, uint64_t now_ns);
/* A parked step goes on: what comes behind it does not begin anew, but the caches are its own again. */
static inline void sim_live_continue(struct sim_live_place *p, uint32_t rank) {
    p->rank = rank;
    p->run = 0;
}
/* Of the n-th step of this kind; a kind that the file has none of takes its nearest. 1 without noise. */
double sim_live_ratio(const struct sim_live *l, uint64_t seed, uint32_t kind, uint64_t n);
bool sim_live_scatters(const struct sim_live *l);
/* What request i waits beyond `known_ns`, which the simulation counts anyway. end: 0 first token, 1 end. */
uint64_t sim_live_path_ns(const struct sim_live *l, uint64_t seed, uint32_t i, uint32_t end,
                          uint64_t known_ns);

#endif
