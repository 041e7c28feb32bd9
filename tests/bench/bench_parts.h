/* bench_parts.h - the measurements of bench_engine, one file each. Each opens its own engines,
 * prints a table (or one JSON object) to stdout and returns 0. Thread: one.
 */
#ifndef SLUICE_TESTS_BENCH_PARTS_H
#define SLUICE_TESTS_BENCH_PARTS_H

#include "tests/bench/bench_rig.h"

#include <stdbool.h>

struct bench_options {
    struct model model;
    enum engine_kernel kernel;
    int rounds;
    bool json;
    uint32_t pause_us; /* --competing: rest before each step */
};

#define BENCH_ROUNDS_MAX 64

int bench_speed(const struct bench_options *o);     /* tokens/s, with read bandwidth beside it */
int bench_context(const struct bench_options *o);   /* steps at 8k against the arithmetic model */
int bench_competing(const struct bench_options *o); /* beside one busy process per core */

#endif
