/* bench_link_log.h - reads a worker's event log (worker/event_log.h) for what happened when a
 * real-time submission came while a lower step ran, and adds up what happened in spans of time.
 *
 * Fields are found by name, so additional ones do no harm. Times are the log's: CLOCK_MONOTONIC ns.
 */
#ifndef SLUICE_TESTS_BENCH_LINK_LOG_H
#define SLUICE_TESTS_BENCH_LINK_LOG_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct log_step {
    uint8_t rank;
    uint32_t tokens, spans, shortest; /* shortest: least position before a span */
    uint32_t segments, parks;
    uint64_t submit_ns, end_ns, device_ns; /* end_ns 0 = not in the log */
};

struct log_arrival {
    uint64_t incarnation, counter, submit_ns; /* worker_core heard of it */
    uint64_t beside;                          /* lower step that ran then; 0 = none */
    uint64_t step;                            /* first step with a span of it; 0 = none */
};

#define LOG_WIDTHS 16

/* A span of the log's time. latency_s: request-seconds of real-time sequences from the worker's
 * hearing of them to their last token; behind_s: those of them in which a lower step held the
 * device (until its park or its end was heard). A step counts where it ended. */
struct log_window {
    uint64_t from_ns, to_ns; /* the caller's */
    double latency_s, behind_s, rank_s[2]; /* rank_s: device time of steps, upper and lower rank */
    uint32_t requests, decode_steps[LOG_WIDTHS + 1]; /* of the upper rank, by sequences */
    uint64_t prefill_tokens; /* positions of upper steps with a chunk in them */
    uint64_t holds, held_blocks, copies; /* spans submitted, blocks of their tables; host copies */
};

struct link_log {
    struct log_step *steps; /* by id */
    uint64_t n_steps;
    struct log_arrival *arrivals; /* of class 0, in order */
    uint32_t n_arrivals;
    uint64_t dropped; /* records that the log lost: then it proves nothing */
};

/* windows: in order of time, not overlapping; NULL with 0 = none. */
int link_log_read(struct link_log *l, const char *path, struct log_window *windows, uint32_t n,
                  struct err *e);
void link_log_free(struct link_log *l);

#endif
