/* clock.h - the monotonic clock of the commands, in milliseconds. Thread: any. */
#ifndef SLUICE_CLI_CLOCK_H
#define SLUICE_CLI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline double clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

#endif
