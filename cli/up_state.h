/* up_state.h - the state directory of `sluice up`: its lock, the link's keys, what the gateway tells.
 *
 * One `up` a directory: flock on up.lock, held until the process ends, however it ends.
 * gateway.json is written by the gateway after it has bound its doors ({"http_port","rpc","workers","pid"}): so
 * that port 0 works, and a file of another pid is an old one.
 * Thread: main only. Failure: -1 and `e`.
 */
#ifndef SLUICE_CLI_UP_STATE_H
#define SLUICE_CLI_UP_STATE_H

#include "config/config.h"

#include <stdbool.h>
#include <sys/types.h>

#define UP_PATH_MAX (SETTINGS_TEXT_MAX + 32)

struct up_state {
    char dir[SETTINGS_TEXT_MAX], keys[SETTINGS_TEXT_MAX], gateway_file[UP_PATH_MAX];
    int lock_fd;
    bool was_unclean; /* a gateway.json lay there: the last `up` was killed; its ports may still be closing */
};

struct up_endpoints {
    unsigned http_port;
    char rpc[SETTINGS_TEXT_MAX], workers[SETTINGS_TEXT_MAX];
};

/* Makes the directory (0700) and its parents, locks it, makes a fresh pair of keys. */
int up_state_open(struct up_state *s, const char *dir, struct err *e);
void up_state_forget_gateway(struct up_state *s);
/* 1 = filled, 0 = not there yet (or of another process), -1 = nonsense. */
int up_state_read_gateway(const struct up_state *s, pid_t pid, struct up_endpoints *out,
                          struct err *e);
/* Removes keys and gateway.json, gives the lock back. */
void up_state_close(struct up_state *s);

#endif
