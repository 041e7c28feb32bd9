/* command.h - the commands of `sluice`: one row each, exit codes, and which word was meant.
 *
 * A command gets argv with its own name at argv[0] and returns the process's exit code. What it prints
 * for people goes to stderr, what a script reads goes to stdout.
 * Thread: main only.
 */
#ifndef SLUICE_CLI_COMMAND_H
#define SLUICE_CLI_COMMAND_H

#include <stddef.h>
#include <stdio.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_USAGE = 1,         /* the command line, a file or the settings are wrong; nothing was done */
    CLI_FAILED = 2,        /* the request, or some lines, failed */
    CLI_NO_SERVER = 3,     /* no server there, or it went away and did not come back */
    CLI_INTERRUPTED = 130, /* Ctrl-C or SIGTERM */
};

struct command {
    const char *name, *line; /* the line of `sluice help` */
    int (*run)(int argc, char **argv);
    void (*help)(FILE *f);
};

extern const struct command command_up, command_chat, command_batch, command_bench,
    command_eval, command_usage_report, command_sim,
    command_keys, command_store, command_explain;

void command_help(FILE *f);          /* all commands and the exit codes */
void command_exit_codes(FILE *f);    /* the part about exit codes, for each --help */
/* Finds the command in argv[1] and runs it. */
int command_main(int argc, char **argv);
/* "sluice CMD: text" on stderr; returns CLI_USAGE so that `return command_usage(...)` reads well. */
int command_usage(const char *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
