/* hash_wide.h - XXH3 compiled for wider vectors than the program is; hash.c chooses at run time. Internal to base/.
 *
 * Why: the system's xxhash is built for SSE2, and the checksum of the host tier would halve the copy path.
 * Same values as hash64(p, n, 0). Each file of these holds all its code itself (XXH_INLINE_ALL), so nothing
 * compiled for a wider CPU can be linked in elsewhere.
 */
#ifndef SLUICE_BASE_HASH_WIDE_H
#define SLUICE_BASE_HASH_WIDE_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash64_avx2(const void *p, size_t n);
uint64_t hash64_avx512(const void *p, size_t n);

#endif
