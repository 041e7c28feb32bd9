/* bench_machine.c - see bench_machine.h. */
#include "cli/bench_machine.h"
#include "config/cpulist.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void bench_date(char out[16]) {
    struct tm t;
    time_t now = time(NULL);
    gmtime_r(&now, &t);
    strftime(out, 16, "%Y-%m-%d", &t);
}

void bench_cpu_name(char *out, size_t cap) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    out[0] = '\0';
    while (f != NULL && out[0] == '\0' && fgets(line, sizeof(line), f) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL)
            snprintf(out, cap, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (f != NULL)
        fclose(f);
}

int bench_cores(void) {
    struct cpulist all;
    cpulist_allowed(&all);
    return cpulist_count(&all);
}
