/* child.h - one process that `sluice up` starts, watches and starts again.
 *
 * The child gets: a process group of its own (Ctrl-C reaches `up` alone, which then drains it), no stdin, stdout
 * on our stderr, SIGKILL when `up` dies, and the read end of a pipe whose other end only `up` has
 * (--supervisor-fd). It dies with `up` in both ways.
 * Back-off: the pause before a restart doubles at each crash and falls back when child_proved is called.
 * Thread: main only (PR_SET_PDEATHSIG is about the thread that forked). Times in ms, the caller's clock.
 */
#ifndef SLUICE_CLI_CHILD_H
#define SLUICE_CLI_CHILD_H

#include "config/config.h"

#include <stdbool.h>
#include <sys/types.h>

struct child {
    const char *name;      /* "gateway" */
    char path[4096];       /* its program */
    pid_t pid;             /* 0 = not running */
    int status;            /* of the last end, as waitpid gives it */
    double pause_ms, pause_first_ms, pause_max_ms, due_ms; /* due_ms 0 = no start is planned */
    uint32_t crashes;      /* in a row */
};

/* `program` beside the running executable. -1 = not there, or not executable. */
int child_init(struct child *c, const char *name, const char *program, const struct settings *s,
               struct err *e);
/* Starts it with the settings of its program. */
int child_start(struct child *c, enum settings_program program, const struct settings *s,
                struct err *e);
/* Whether it has ended since the last call; then pid is 0 and status tells how. */
bool child_ended(struct child *c);
/* Plans the next start after a crash. */
void child_plan(struct child *c, double now_ms);
void child_proved(struct child *c); /* it worked: the next pause is the first one again */
void child_signal(const struct child *c, int signal_number);
/* "killed by signal 9", "exit code 2" */
void child_describe(const struct child *c, char *out, size_t cap);

#endif
