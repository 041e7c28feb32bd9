/* bench_commands.h - the words behind `sluice bench`: each takes argv with its own word at argv[0].
 */
#ifndef SLUICE_CLI_BENCH_COMMANDS_H
#define SLUICE_CLI_BENCH_COMMANDS_H

#include <stdio.h>

/* Exit codes beside those of command.h: measured, but a promise was not kept, or a condition was
 * missed. */
enum bench_exit { BENCH_PROMISE_MISSED = 4, BENCH_VOID = 5 };

int bench_mixed_command(int argc, char **argv);
int bench_knee_command(int argc, char **argv);
int bench_overload_command(int argc, char **argv);

#endif
