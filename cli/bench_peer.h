/* bench_peer.h - the same cases by another engine: llama.cpp's `llama-bench`, and
 * `llama-batched-bench`
 * when it lies beside it.
 *
 * Prefill: `-p N`. One sequence: `-n 24 -d CONTEXT`. Several: the batched program at the same
 * context,
 * or, without it, a prompt of as many tokens as there are sequences (one step of the same width;
 * named
 * "pp" in the result). Only the smallest context is compared: the peer computes each context again.
 * Each call starts the programs once for each number of threads and adds a sample to each case.
 * Thread: one; blocks until the programs end.
 */
#ifndef SLUICE_CLI_BENCH_PEER_H
#define SLUICE_CLI_BENCH_PEER_H

#include "base/buf.h"
#include "cli/bench_engine.h"

int bench_peer_run(struct bench_engine *b, struct err *e);

/* For tests: what the programs print, for the cases of one number of threads. Returns how many
 * cases
 * took a sample, -1 when the text is not theirs. */
int bench_peer_take_json(struct bench_engine *b, uint32_t threads, const char *p, size_t n,
                         struct err *e);
int bench_peer_take_table(struct bench_engine *b, uint32_t threads, const char *text);
/* argv[0] with its arguments, NULL last; what it writes to stdout. -1: not started, or it failed.
 * */
int bench_peer_capture(char *const argv[], struct buf *out, struct err *e);

#endif
