/* up_cores.h - which cores gateway and worker of `sluice up` run on, and how many compute threads.
 *
 * Rule: the gateway gets the last core allowed, the worker the others, one compute thread each. Not pinned:
 * a machine with one core; one where --threads asks for more than the others (pinned they would queue on
 * fewer cores than they are); a share of a bigger machine (quota below the cores), whose cores
 * belong to others too. --cpus wins over all of it. Pure: no system call.
 */
#ifndef SLUICE_CLI_UP_CORES_H
#define SLUICE_CLI_UP_CORES_H

#include "config/config.h"
#include "config/cpulist.h"

struct up_cores {
    char cpus[SETTINGS_TEXT_MAX]; /* value of --cpus for both children; "" = not pinned */
    int threads;                  /* value of --threads for the worker */
};

/* `threads` 0 = auto; `quota` as of cpulist_quota (0 = none). -1 = --cpus is malformed. */
int up_cores_decide(struct up_cores *out, const char *cpus, int64_t threads,
                    const struct cpulist *allowed, int quota, struct err *e);

#endif
