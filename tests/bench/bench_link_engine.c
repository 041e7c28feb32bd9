/* bench_link_engine.c - the engine alone: `sluice bench engine` on the worker's core. */
#include "tests/bench/bench_link.h"

#include <stdlib.h>
#include <string.h>

/* The median behind the case whose name begins so; 0 = not there. */
static double rate_of(const char *json, const char *name) {
    char key[80];
    snprintf(key, sizeof(key), "\"name\":\"%s ", name);
    const char *at = strstr(json, key);
    at = at != NULL ? strstr(at, "\"median\":") : NULL;
    return at != NULL ? strtod(at + 9, NULL) : 0;
}

int bench_engine_rates(const struct bench_options *o, uint32_t n_in, uint32_t context,
                       const uint32_t *widths, uint32_t n, double *prefill, double *decode) {
    char command[9000], name[40], list[200] = "", part[4096];
    struct buf json = {0};
    size_t got;
    for (uint32_t i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%u", i > 0 ? "," : "",
                 widths[i]);
    snprintf(command, sizeof(command),
             "taskset -c %d '%s' bench engine --model '%s' --threads 1 --seqs %s --context %u "
             "--prefill %u --rounds 5 --json 2>/dev/null",
             o->worker_core < 0 ? 0 : o->worker_core, o->sluice, o->model, list, context, n_in);
    FILE *f = popen(command, "r");
    while (f != NULL && (got = fread(part, 1, sizeof(part), f)) > 0)
        buf_add(&json, part, got);
    int rc = f != NULL && pclose(f) == 0 ? 0 : -1;
    snprintf(name, sizeof(name), "prefill %u at", n_in);
    *prefill = rate_of(buf_str(&json), name);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "decode %u at", widths[i]);
        decode[i] = rate_of(buf_str(&json), name);
        rc = decode[i] > 0 ? rc : -1;
    }
    buf_deinit(&json);
    return *prefill > 0 ? rc : -1;
}
