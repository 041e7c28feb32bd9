/* bench_server.h - the server under measurement: one started here with `sluice up`, or one that is
 * there already.
 *
 * An own server runs on free ports with a state directory of its own that is removed at the end;
 * its processes are found below `up`, which starts them again when they die. Its log goes to a file
 * in that directory. Order: start (or attach), read, stop. Thread: main only (`up` dies with the
 * thread that started it). Failure: -1 and `e`. CPU times: seconds of the process so far, by its
 * own clock (nanoseconds).
 */
#ifndef SLUICE_CLI_BENCH_SERVER_H
#define SLUICE_CLI_BENCH_SERVER_H

#include "cli/http_client.h"

#include <stdbool.h>
#include <sys/types.h>

#define BENCH_SERVER_FLAGS_MAX 64

struct bench_server {
    char url[HTTP_URL_MAX], model[256];
    pid_t up, gateway, worker; /* 0 = not known (a server elsewhere) */
    char dir[64];              /* state directory; "" = not ours */
    int out_fd; /* its stdout: open as long as it lives, it says READY again and again */
};

/* Counters of GET /metrics; those a server does not have stay 0. */
struct bench_counters {
    bool known; /* the server has our names */
    double running, waiting, parks, drops, preemptions, swap_ins, recomputes, steps, busy_s,
        resubmits, cache_hits, errors, aborted, ledger_s, ledger_batch_s; /* ledger: real-time's, all and waited for batch */
};

/* `flags`: of `sluice up`, NULL at the end; address and state flags are added here. */
int bench_server_start(struct bench_server *s, const char *const *flags, double timeout_ms,
                       struct err *e);
void bench_server_stop(struct bench_server *s);
/* Finds gateway and worker again; -1 when one of them does not run now. */
int bench_server_find(struct bench_server *s);
/* CPU seconds of a process so far; < 0 = it is gone. */
double bench_cpu_s(pid_t pid);

int bench_counters_get(struct bench_counters *m, struct http_client *c, struct err *e);
void bench_counters_parse(struct bench_counters *m, const char *text);
/* Waits until nothing runs or waits there; a server without such metrics is given a second. */
int bench_server_quiet(struct http_client *c, double timeout_ms, struct err *e);
/* The first model that GET /v1/models names. */
int bench_server_model(struct http_client *c, char *out, size_t cap, struct err *e);

#endif
