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

int bench_engine_rate(const struct bench_options *o, uint32_t n_in, uint32_t context,
                      uint32_t seqs, double *prefill, double *decode) {
    char command[9000], name[40];
    struct buf json = {0};
    char part[4096];
    size_t n;
    snprintf(command, sizeof(command),
             "taskset -c %d '%s' bench engine --model '%s' --threads 1 --seqs %u --context %u "
             "--prefill %u --rounds 3 --json 2>/dev/null",
             o->worker_core < 0 ? 0 : o->worker_core, o->sluice, o->model, seqs, context, n_in);
    FILE *f = popen(command, "r");
    while (f != NULL && (n = fread(part, 1, sizeof(part), f)) > 0)
        buf_add(&json, part, n);
    int rc = f != NULL ? pclose(f) : -1;
    snprintf(name, sizeof(name), "prefill %u at", n_in);
    *prefill = rate_of(buf_str(&json), name);
    snprintf(name, sizeof(name), "decode %u at", seqs);
    *decode = rate_of(buf_str(&json), name);
    buf_deinit(&json);
    return rc == 0 && *prefill > 0 && *decode > 0 ? 0 : -1;
}
