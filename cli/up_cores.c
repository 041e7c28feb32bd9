/* up_cores.c - see up_cores.h. */
#include "cli/up_cores.h"

#include <stdio.h>
#include <string.h>

#define THREADS_MAX 256

static int at_least_one(int n) {
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
}

/* The user pinned: as many threads as the worker has cores, unless told otherwise. */
static int as_asked(struct up_cores *out, const char *cpus, int64_t threads, int cores,
                    struct err *e) {
    struct cpulist gateway, worker;
    if (cpulist_parse_roles(&gateway, &worker, cpus, e) != 0)
        return -1;
    int own = cpulist_count(&worker);
    if (own == 0 || own > cores)
        own = own == 0 ? cores - 1 : cores;
    out->threads = threads > 0 ? (int)threads : at_least_one(own);
    snprintf(out->cpus, sizeof(out->cpus), "%s", cpus);
    return 0;
}

int up_cores_decide(struct up_cores *out, const char *cpus, int64_t threads,
                    const struct cpulist *allowed, int quota, struct err *e) {
    struct cpulist others = *allowed;
    char list[SETTINGS_TEXT_MAX - 64];
    int n = cpulist_count(allowed), last = -1;
    int cores = quota > 0 && quota < n ? quota : n;
    memset(out, 0, sizeof(*out));
    if (cpus[0] != '\0')
        return as_asked(out, cpus, threads, cores, e);
    out->threads = threads > 0 ? (int)threads : at_least_one(cores - 1);
    if (n < 2 || cores < n || out->threads > n - 1)
        return 0;
    for (int cpu = cpulist_next(allowed, 0); cpu >= 0; cpu = cpulist_next(allowed, cpu + 1))
        last = cpu;
    others.bits[last / 64] &= ~(1ull << (last % 64));
    if (cpulist_format(&others, list, sizeof(list)) == 0)
        snprintf(out->cpus, sizeof(out->cpus), "gateway=%d,worker=%s", last, list);
    return 0;
}
