/* bench_overload.h - `sluice bench overload`: what is delivered when more comes than the server can do.
 *
 * Arms of real-time arrivals (Poisson; short prompts and answers) at 1, 1.5 and 3 times the knee, in the order
 * 1, 1.5, 3, 3, 1.5, 1 on one server. The knee: the highest of a few rates around what the server does with all seats
 * taken at which 98 % of the arrivals are answered within their objectives. A refused request is sent once more, at the
 * time that Retry-After gave; others are lost. Goodput: answers within both objectives (first token since it was sent
 * last, mean gap) a second, of those that ended while arrivals came, less the first seconds.
 *
 * With `floor`: real-time at 1.5 times the knee, without and with batch that is never empty (A B B A), the
 * class table giving batch a share of the device; how much of all tokens batch got, and what real-time kept.
 * Thread: one. Failure: -1 and `e`.
 */
#ifndef SLUICE_CLI_BENCH_OVERLOAD_H
#define SLUICE_CLI_BENCH_OVERLOAD_H

#include "cli/bench_mixed.h"

#define OVERLOAD_ARMS 6
#define OVERLOAD_TRIES 5

struct overload_arm {
    double factor, offered, goodput, attained; /* a second; attained: share of all arrivals */
    double ttft_p50_ms, ttft_p99_ms;
    double busy_away; /* busy share while somebody waited out a Retry-After; < 0 = nobody did */
    double batch_share; /* of all tokens */
    uint32_t arrivals, answered, refused, returned, admitted; /* refused: at first; returned: of these, came back */
    bool batch;
};

struct overload {
    struct mixed m; /* server, client, style, options */
    bool floor;
    double knee, knee_goodput;
    struct overload_arm tries[OVERLOAD_TRIES], arms[OVERLOAD_ARMS];
    uint32_t n_tries, n_arms;
    const char *classes; /* file, floor only */
};

int overload_measure(struct overload *v, struct err *e);
/* Mean goodput of the arms with this factor and with or without batch. */
double overload_goodput(const struct overload *v, double factor, bool batch);

#endif
