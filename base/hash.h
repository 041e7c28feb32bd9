/* hash.h - xxhash behind the project's own names, and the chained prefix hash of KV blocks.
 *
 * Source: XXH3 (xxHash 0.8). Not cryptographic: the prefix root is keyed and a hit compares ids too.
 */
#ifndef SLUICE_BASE_HASH_H
#define SLUICE_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash128 { uint64_t lo, hi; };

uint64_t hash64(const void *p, size_t n, uint64_t seed);
/* The same value as hash64(p, n, 0), by the widest vectors this CPU has: for bulk, checksums of KV blocks. */
uint64_t hash64_bulk(const void *p, size_t n);
struct hash128 hash128(const void *p, size_t n, uint64_t seed);
bool hash128_equal(struct hash128 a, struct hash128 b);
void hash128_hex(struct hash128 h, char out[33]);

/* Chain: hash of block i = prefix_hash(hash of block i-1 (the root for i = 0), its ids). */
struct hash128 prefix_root(const void *scope, size_t n, uint64_t key);
struct hash128 prefix_hash(struct hash128 parent, const int32_t *ids, size_t n);

/* Counter-based generator (splitmix64 finaliser over (seed, counter)): random draws are a function of
 * (seed, position), rule E5. rand_unit is in [0, 1), 24 bits, exact in float. */
uint64_t rand_at(uint64_t seed, uint64_t counter);
float rand_unit(uint64_t seed, uint64_t counter);

#endif
