/* cpulist.h - sets of cores as users write them ("0-3,8"), and pinning of the calling thread.
 *
 * Thread: any. Ownership: plain storage. Limit: cores 0 to CPULIST_MAX - 1.
 */
#ifndef SLUICE_CONFIG_CPULIST_H
#define SLUICE_CONFIG_CPULIST_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPULIST_MAX 1024

struct cpulist {
    uint64_t bits[CPULIST_MAX / 64];
};

/* "0-3,8,10-11": ascending or not, overlaps allowed, never empty, no white space. */
int cpulist_parse(struct cpulist *l, const char *text, struct err *e);
/* "gateway=LIST,worker=LIST" in any order, either may be left out: its set is then empty (= not
 * pinned). "" leaves both empty. */
int cpulist_parse_roles(struct cpulist *gateway, struct cpulist *worker, const char *text,
                        struct err *e);

bool cpulist_has(const struct cpulist *l, int cpu);
int cpulist_count(const struct cpulist *l);
int cpulist_next(const struct cpulist *l, int from); /* first core >= from in the set; -1 = none */
bool cpulist_overlap(const struct cpulist *a, const struct cpulist *b);
/* Shortest form, ascending; -1 when cap is too small. */
int cpulist_format(const struct cpulist *l, char *out, size_t cap);

/* Cores the calling thread may run on (affinity mask; 1 core when it cannot be read). */
void cpulist_allowed(struct cpulist *l);
/* Cores' worth of time that the control group allows, rounded down, at least 1; 0 = no limit known.
 * A container with `--cpus 2` on a big machine has a wide affinity mask and this limit. */
int cpulist_quota(void);
int cpulist_quota_of(const char *cpu_max); /* the same from the text of a cpu.max file */
/* Pins the calling thread, and the threads it starts from then on; an empty set pins nothing. */
int cpulist_apply(const struct cpulist *l, struct err *e);

#endif
