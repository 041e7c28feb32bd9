/* hash.c - the only file that knows xxhash. */
#define XXH_STATIC_LINKING_ONLY /* the streaming state as plain storage of ours, not malloc'ed */
#include "base/hash.h"

#include "base/hash_wide.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define GOLDEN 0x9E3779B97F4A7C15ull
#define ONE_SHOT_IDS 64 /* covers every block size in use; longer ones are streamed, same value */

static struct hash128 from_xxh(XXH128_hash_t h) {
    return (struct hash128){h.low64, h.high64};
}

uint64_t hash64(const void *p, size_t n, uint64_t seed) {
    return XXH3_64bits_withSeed(p, n, seed);
}

uint64_t hash64_bulk(const void *p, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return hash64_avx512(p, n);
    if (__builtin_cpu_supports("avx2"))
        return hash64_avx2(p, n);
#endif
    return hash64(p, n, 0);
}

struct hash128 hash128(const void *p, size_t n, uint64_t seed) {
    return from_xxh(XXH3_128bits_withSeed(p, n, seed));
}

bool hash128_equal(struct hash128 a, struct hash128 b) {
    return a.lo == b.lo && a.hi == b.hi;
}

void hash128_hex(struct hash128 h, char out[33]) {
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

struct hash128 prefix_root(const void *scope, size_t n, uint64_t key) {
    return hash128(scope, n, key);
}

struct hash128 prefix_hash(struct hash128 parent, const int32_t *ids, size_t n) {
    struct {
        struct hash128 parent;
        int32_t ids[ONE_SHOT_IDS];
    } in;
    if (n <= ONE_SHOT_IDS) {
        in.parent = parent;
        if (n > 0)
            memcpy(in.ids, ids, n * sizeof(*ids));
        return hash128(&in, sizeof(parent) + n * sizeof(*ids), 0);
    }
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, &parent, sizeof(parent));
    XXH3_128bits_update(&state, ids, n * sizeof(*ids));
    return from_xxh(XXH3_128bits_digest(&state));
}

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* The seed is mixed on its own first: with a plain sum, seed + 1 at one counter would often be a
 * shifted copy of seed's stream, and clients choose seeds 0, 1, 2, ... */
uint64_t rand_at(uint64_t seed, uint64_t counter) {
    return mix(mix(seed + GOLDEN) + (counter + 1) * GOLDEN);
}

float rand_unit(uint64_t seed, uint64_t counter) {
    return (float)(rand_at(seed, counter) >> 40) * 0x1p-24f;
}
