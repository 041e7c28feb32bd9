/* bench_engine - what the CPU engine alone does on this machine, with what bounds it beside it:
 *
 *   bench_engine [--json] [--rounds N] [--kernel auto|scalar|avx2|avx512] [MODEL.gguf]
 *       tokens/s of a 512-token prompt and of 1, 4 and 16 sequences at 128, with 1 and 2 threads,
 *       and how decode of one compares with read bandwidth measured beside it
 *   bench_engine --context8k ...    the step's time at 8,192 positions against the model of
 *                                   docs/ENGINE.md on top of a step at 128 measured beside it
 *   bench_engine --competing [--pause-us N] ...
 *                                   2 threads alone and beside one busy process per core; with a
 *                                   pause before each step of both
 *
 * The rounds of all cases are interleaved, so that a slow minute of the machine hits all alike.
 * Without a model: the one tests use, or exit 77. Figures mean something only with machine and date
 * beside.
 */
#include "cli/engine_flags.h"
#include "tests/bench/bench_parts.h"
#include "tests/common/testpaths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int part_fn(const struct bench_options *o);

static int fail(const struct err *e)
{
    fprintf(stderr, "bench_engine: %s\n", e->msg);
    return 2;
}

int main(int argc, char **argv)
{
    struct bench_options o = {.rounds = 5};
    const char *path = test_model_path(), *kernel = NULL;
    part_fn *part = bench_speed;
    struct err e;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            o.json = true;
        else if (strcmp(argv[i], "--context8k") == 0)
            part = bench_context;
        else if (strcmp(argv[i], "--competing") == 0)
            part = bench_competing;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            o.rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--pause-us") == 0 && i + 1 < argc)
            o.pause_us = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--kernel") == 0 && i + 1 < argc)
            kernel = argv[++i];
        else
            path = argv[i];
    }
    o.rounds = o.rounds < 1 ? 1 : o.rounds > BENCH_ROUNDS_MAX ? BENCH_ROUNDS_MAX : o.rounds;
    if (engine_flags_kernel(&o.kernel, kernel, &e) != 0)
        return fail(&e);
    if (path == NULL)
        return test_skip("no model to measure");
    if (model_open(&o.model, path, NULL, &e) != 0)
        return fail(&e);
    int rc = part(&o);
    model_close(&o.model);
    return rc;
}
