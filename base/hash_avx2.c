/* hash_avx2.c - see hash_wide.h. Compiled with its own target flags. */
#include "base/hash_wide.h"

#if defined(__x86_64__)

#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>

uint64_t hash64_avx2(const void *p, size_t n) {
    return XXH3_64bits(p, n);
}

#else

#include "base/hash.h"

uint64_t hash64_avx2(const void *p, size_t n) {
    return hash64(p, n, 0);
}

#endif
