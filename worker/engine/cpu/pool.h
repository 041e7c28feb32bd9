/* pool.h - compute threads that claim tiles of one phase at a time from a shared counter.
 *
 * Why tiles and not a fixed part each: a thread that loses its core costs one tile, not its part of
 * every phase. The thread that calls pool_run is compute thread 0; the others wait for the next
 * phase, spinning POOL_SPIN_NS at most and then asleep, so an idle pool uses no CPU.
 *
 * Order: pool_create; pool_run any number of times, always from one thread; pool_destroy.
 * `fn(ctx, tile, thread)` runs once for each tile in 0 .. n_tiles - 1, `thread` < n_threads names a
 * scratch area no other running tile uses. Everything written before pool_run is seen by the tiles,
 * and all they wrote is seen after it. Which thread runs a tile, and in which order, is not
 * defined: results must not depend on it. Floating point: pool_fp_env fixes rounding (nearest even)
 * and no flush to zero; the pool's own threads call it, the caller's thread must (rule E10).
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_POOL_H
#define SLUICE_WORKER_ENGINE_CPU_POOL_H

#include "base/err.h"

#include <stdint.h>

#define POOL_THREADS_MAX 64
#define POOL_TILES_MAX ((1u << 18) - 1)
#define POOL_SPIN_NS 20000 /* longer costs a neighbour its core, shorter costs a wake-up a phase \
                            */

struct pool;
typedef void pool_fn(void *ctx, uint32_t tile, uint32_t thread);

/* cpus: thread i is pinned to cpus[i % n_cpus]; the calling thread is not (pool_pin does it);
 * n_cpus 0 = none, threads then keep off each other's cores by themselves, within the caller's
 * affinity. */
int pool_create(struct pool **out, uint32_t n_threads, const uint32_t *cpus, uint32_t n_cpus,
                struct err *e);
void pool_destroy(struct pool **p);
uint32_t pool_threads(const struct pool *p);
void pool_run(struct pool *p, pool_fn *fn, void *ctx, uint32_t n_tiles);

void pool_fp_env(void);      /* of the calling thread */
void pool_pin(uint32_t cpu); /* the calling thread; a CPU it may not use is ignored */

#endif
