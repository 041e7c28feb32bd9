/* bench_flags.h - what the benches of a server share on the command line. Thread: main only. */
#ifndef SLUICE_CLI_BENCH_FLAGS_H
#define SLUICE_CLI_BENCH_FLAGS_H

#include "cli/bench_mixed.h"

/* Ids for random prompts: of the model's own vocabulary, or between 1,000 and 32,000 where there is
 * no file. */
int bench_flags_vocab(struct mixed_options *o, struct err *e);
/* From now on Ctrl-C and SIGTERM set *bench_flags_stop() instead of ending the process; SIGPIPE is
 * ignored. */
void bench_flags_signals(void);
const bool *bench_flags_stop(void);
/* 0, or CLI_USAGE after saying what is wrong: one of --model FILE and --url URL, --engine a known
 * one. */
int bench_flags_target(const char *command, const struct mixed_options *o);

#endif
