/* route.h - which worker: where a prompt's prefix probably is, and how the load lies.
 *
 * Prefixes. A request is known by keys: hashes of its first 32, 128, 256, ... ids under a root (tenant and
 * salt, as the workers' caches are rooted). The index says for each key which workers were sent a prompt that
 * begins so, the least used of four goes when a fifth comes (a set-associative cache of fixed size). It is a guess: what a
 * worker evicts is not seen; who comes for that finds less, it is computed again there, and the guess is right again. A
 * worker that is lost is taken out of all keys.
 *
 * Load of a worker: ns of its time that what was sent there needs, fading over ROUTE_FADE_NS.
 *
 * Choice: the least of
 *   prefill that the worker still has to do + waiting for a seat there + what its load is over ROUTE_SLACK x the mean
 * so a request stays with its prefix until that worker has clearly more than its share (no flapping for small
 * gains), and a prefix that is hot comes to be on several workers. Equal ones: the less loaded.
 *
 * Pure: no clock, no allocation; one region, indexes only, clonable. Cost: O(keys) a worker. Thread: one owner.
 */
#ifndef SLUICE_SCHEDULER_ROUTE_H
#define SLUICE_SCHEDULER_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUTE_KEYS 6
#define ROUTE_WORKERS_MAX 64
#define ROUTE_FADE_NS 30e9
#define ROUTE_SLACK 1.1

struct route_keys {
    uint64_t key[ROUTE_KEYS]; /* of the first route_length(i) ids */
    uint32_t n, pad;
};

uint32_t route_length(uint32_t i);
void route_keys_make(struct route_keys *out, uint64_t root, const int32_t *ids, uint32_t n_ids);

struct route_config { uint32_t entries, max_workers; }; /* entries: of the index, rounded up to a power of two */

struct route;

size_t route_bytes(const struct route_config *cfg); /* 0 = out of range */
struct route *route_init(void *region, const struct route_config *cfg); /* zeroed, 64-aligned */

/* Ids of the prompt that this worker probably has. */
uint32_t route_match(const struct route *r, const struct route_keys *k, uint32_t worker);
/* Sent there; `work_ns` of its time. */
void route_sent(struct route *r, const struct route_keys *k, uint32_t worker, double work_ns, uint64_t now_ns);
void route_gone(struct route *r, uint32_t worker); /* its cache is lost */

struct route_offer { /* a worker that could take it now */
    uint32_t worker, match;
    double prefill_ns, wait_ns; /* what is not matched; until a seat is free */
};
/* The best of them (index into offers). `live`: bit per worker that shares the load. */
uint32_t route_choose(struct route *r, const struct route_offer *offers, uint32_t n, uint64_t live, uint64_t now_ns);
double route_load(const struct route *r, uint32_t worker, uint64_t now_ns);

#endif
