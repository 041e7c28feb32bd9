/* supervisor.h - the loop of `sluice up`: gateway first, then worker, READY, restarts, drain.
 *
 *   gateway started -> gateway.json read (the real addresses) -> worker started -> GET /ready is 200 -> READY
 *   a child ends    -> not ready; started again after its pause; READY again
 *   first signal    -> gateway drains, then the worker; drain-timeout and UP_GRACE_S later both are killed
 *   second signal   -> both are killed at once
 *
 * Before the first READY a child that ends by itself with a code is a failure to start: `up` ends with that code,
 * the reason stands in the child's own last line. Later a restarted gateway gets the addresses of the first one,
 * so that port 0 stays what clients know.
 * Thread: main only.
 */
#ifndef SLUICE_CLI_SUPERVISOR_H
#define SLUICE_CLI_SUPERVISOR_H

#include "cli/child.h"
#include "cli/up_state.h"
#include "config/address.h"

#define UP_GRACE_S 3

enum supervisor_phase { SUPERVISOR_SERVING, SUPERVISOR_DRAINING, SUPERVISOR_ENDED };

struct supervisor {
    struct settings settings; /* as the children get them; addresses become the real ones */
    struct up_state state;
    struct child gateway, worker;
    struct address http;      /* where /ready is asked */
    int signal_fd, pipe_fd;   /* pipe_fd: the write end that only we have */
    enum supervisor_phase phase;
    int code;                 /* exit code once ENDED */
    bool known;               /* the running gateway's addresses are known */
    bool ready, was_ready;
    double down_ms, trust_ms, kill_ms; /* not ready since; /ready is believed from then on; killed then */
};

/* Locks the state directory, checks ports and programs, takes the signals. Nothing runs after -1. */
int supervisor_init(struct supervisor *v, const struct settings *s, struct err *e);
int supervisor_run(struct supervisor *v); /* the exit code */
void supervisor_deinit(struct supervisor *v);

#endif
