/* cpulist.c - see cpulist.h. */
#include "config/cpulist.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static void set_bit(struct cpulist *l, int cpu) {
    l->bits[cpu / 64] |= 1ull << (cpu % 64);
}

/* Reads a core's number at *p, which must lie before `end`; -1 when there is none in range. */
static int read_cpu(const char **p, const char *end) {
    int v = 0;
    const char *start = *p;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        v = v * 10 + (**p - '0');
        if (v >= CPULIST_MAX)
            return -1;
    }
    return *p == start ? -1 : v;
}

/* Adds one item, "N" or "N-M", of the text from p up to `end`. */
static int add_item(struct cpulist *l, const char *p, const char *end) {
    int first = read_cpu(&p, end), last = first;
    if (first >= 0 && p < end && *p == '-') {
        p++;
        last = read_cpu(&p, end);
    }
    if (first < 0 || last < first || p != end)
        return -1;
    for (int cpu = first; cpu <= last; cpu++)
        set_bit(l, cpu);
    return 0;
}

static int bad_list(struct err *e, const char *text) {
    return err_set(e, ERR_BAD_VALUE,
                   "'%.200s' is no list of cores, expected for example 0-3,8 (below %d)", text,
                   CPULIST_MAX);
}

int cpulist_parse(struct cpulist *l, const char *text, struct err *e) {
    memset(l, 0, sizeof(*l));
    for (const char *p = text;; p++) {
        const char *end = p + strcspn(p, ",");
        if (add_item(l, p, end) != 0)
            return bad_list(e, text);
        if (*end == '\0')
            return 0;
        p = end;
    }
}

int cpulist_parse_roles(struct cpulist *gateway, struct cpulist *worker, const char *text,
                        struct err *e) {
    struct cpulist *role = NULL;
    memset(gateway, 0, sizeof(*gateway));
    memset(worker, 0, sizeof(*worker));
    if (text[0] == '\0')
        return 0;
    for (const char *p = text;; p++) {
        const char *end = p + strcspn(p, ",");
        /* A comma stands between cores and between roles: an item that names a role starts it. */
        struct cpulist *named = strncmp(p, "gateway=", 8) == 0  ? gateway
                                : strncmp(p, "worker=", 7) == 0 ? worker
                                                                : NULL;
        if (named != NULL) {
            if (cpulist_count(named) > 0)
                return err_set(e, ERR_BAD_VALUE, "'%.200s' names a process twice", text);
            p += named == gateway ? 8 : 7;
            role = named;
        }
        if (role == NULL || add_item(role, p, end) != 0)
            return err_set(e, ERR_BAD_VALUE, "'%.200s' is not of the form gateway=LIST,worker=LIST",
                           text);
        if (*end == '\0')
            return 0;
        p = end;
    }
}

bool cpulist_has(const struct cpulist *l, int cpu) {
    return cpu >= 0 && cpu < CPULIST_MAX && (l->bits[cpu / 64] >> (cpu % 64) & 1) != 0;
}

int cpulist_count(const struct cpulist *l) {
    int n = 0;
    for (int i = 0; i < CPULIST_MAX / 64; i++)
        n += __builtin_popcountll(l->bits[i]);
    return n;
}

int cpulist_next(const struct cpulist *l, int from) {
    for (int cpu = from < 0 ? 0 : from; cpu < CPULIST_MAX; cpu++)
        if (cpulist_has(l, cpu))
            return cpu;
    return -1;
}

bool cpulist_overlap(const struct cpulist *a, const struct cpulist *b) {
    uint64_t both = 0;
    for (int i = 0; i < CPULIST_MAX / 64; i++)
        both |= a->bits[i] & b->bits[i];
    return both != 0;
}

int cpulist_format(const struct cpulist *l, char *out, size_t cap) {
    size_t n = 0;
    if (cap == 0)
        return -1;
    out[0] = '\0';
    for (int first = cpulist_next(l, 0); first >= 0;) {
        int last = first;
        while (cpulist_has(l, last + 1))
            last++;
        int w = snprintf(out + n, cap - n, last > first ? "%s%d-%d" : "%s%d", n > 0 ? "," : "",
                         first, last);
        if (w < 0 || (size_t)w >= cap - n)
            return -1;
        n += (size_t)w;
        first = cpulist_next(l, last + 1);
    }
    return 0;
}

void cpulist_allowed(struct cpulist *l) {
    cpu_set_t set;
    memset(l, 0, sizeof(*l));
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        for (int cpu = 0; cpu < CPULIST_MAX && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set))
                set_bit(l, cpu);
    if (cpulist_count(l) == 0) /* a machine with more cores than cpu_set_t holds */
        set_bit(l, 0);
}

int cpulist_quota_of(const char *cpu_max) {
    long long quota, period;
    if (sscanf(cpu_max, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return 0; /* "max 100000", or a file of another kind */
    long long cores = quota / period;
    return cores < 1 ? 1 : cores > CPULIST_MAX ? CPULIST_MAX : (int)cores;
}

/* First line of a small file; "" when it cannot be read. */
static void first_line(char *out, size_t cap, const char *path, const char *prefix) {
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f != NULL && !found && fgets(out, (int)cap, f) != NULL)
        found = strncmp(out, prefix, strlen(prefix)) == 0;
    if (f != NULL)
        fclose(f);
    if (!found)
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

int cpulist_quota(void) {
    char group[512], path[600], text[64];
    first_line(group, sizeof(group), "/proc/self/cgroup", "0::/");
    /* Inside a container the group's own files lie at the root of the mount. */
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group[0] != '\0' ? group + 3 : "");
    first_line(text, sizeof(text), path, "");
    if (text[0] == '\0')
        first_line(text, sizeof(text), "/sys/fs/cgroup/cpu.max", "");
    return cpulist_quota_of(text);
}

int cpulist_apply(const struct cpulist *l, struct err *e) {
    cpu_set_t set;
    char text[128];
    if (cpulist_count(l) == 0)
        return 0;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < CPULIST_MAX && cpu < CPU_SETSIZE; cpu++)
        if (cpulist_has(l, cpu))
            CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) == 0)
        return 0;
    int saved = errno;
    if (cpulist_format(l, text, sizeof(text)) != 0)
        snprintf(text, sizeof(text), "(many)");
    return err_set(e, ERR_BAD_VALUE, "cannot run on cores %s: %s", text, strerror(saved));
}
