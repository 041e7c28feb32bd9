/* clock.h - monotonic nanoseconds, for device time and bounded spinning. */
#ifndef SLUICE_WORKER_ENGINE_STEP_CLOCK_H
#define SLUICE_WORKER_ENGINE_STEP_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
