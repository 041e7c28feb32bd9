/* read_streams.h - READ_STREAMS_BODY: plain reads as fast as a register width of WIDE bytes allows
 * (ops.h read_xor), for a file that defines WIDE and is compiled with the flags that have it.
 *
 * Four places are read in turn, two lines at each, and each is asked for READ_AHEAD bytes before:
 * one stream alone leaves the hardware's prefetch waiting at every page (measured in the last-level
 * cache: 21 GB/s, with prefetch 28, four streams 29 to 30; more streams gain nothing).
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_READ_STREAMS_H
#define SLUICE_WORKER_ENGINE_CPU_READ_STREAMS_H

#include "worker/engine/cpu/ops_parts.h"
#include "worker/engine/cpu/unroll.h"

#include <assert.h>

#define READ_AHEAD 1280
#define READ_LINES 128 /* bytes of a stream a turn */

typedef uint64_t read_wide __attribute__((vector_size(WIDE)));

static inline __attribute__((always_inline)) uint64_t read_streams(const void *memory,
                                                                   size_t bytes) {
    enum { STREAMS = 4, SUMS = 2 }; /* eight sums fit every register file */
    assert(bytes % (STREAMS * READ_LINES) == 0);
    const size_t each = bytes / STREAMS;
    const uint8_t *p = memory, *end = p + each;
    read_wide sum[STREAMS][SUMS] = {0};
    uint64_t all = 0;
    for (; p < end; p += READ_LINES)
        UNROLL for (int s = 0; s < STREAMS; s++) {
            const uint8_t *at = p + (size_t)s * each;
            __builtin_prefetch(at + READ_AHEAD);
            __builtin_prefetch(at + READ_AHEAD + 64);
            UNROLL for (int i = 0; i < READ_LINES / WIDE; i++)
                sum[s][i % SUMS] ^= *(const read_wide *)(const void *)(at + i * WIDE);
        }
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < SUMS; i++)
            for (size_t k = 0; k < WIDE / sizeof all; k++)
                all ^= sum[s][i][k];
    return all;
}

#endif
