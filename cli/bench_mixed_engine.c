/* bench_mixed_engine.c - what the engine alone does: `sluice bench engine` on the worker's cores,
 * and what it would take for the requests of the alone arms. */
#include "base/buf.h"
#include "cli/bench_mixed.h"
#include "config/cpulist.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIDTHS "1,2,4,8"

static void become(const struct mixed *m, const char *const *argv, int out_fd) {
    struct cpulist all, first = {{0}};
    cpulist_allowed(&all);
    int cpu = cpulist_next(&all, 0);
    if (m->o.threads == 1 && cpu >= 0) {
        first.bits[cpu / 64] |= 1ull << (cpu % 64);
        cpulist_apply(&first, NULL);
    }
    int null = open("/dev/null", O_RDWR);
    if (null < 0)
        _exit(127);
    dup2(null, 0);
    dup2(out_fd, 1);
    dup2(null, 2);
    execv("/proc/self/exe", (char **)(uintptr_t)argv);
    _exit(127);
}

/* Its JSON object; NULL = it could not be run. */
static json_t *bench_engine(const struct mixed *m, const char *seqs, uint32_t context,
                            uint32_t prefill) {
    char threads[12], ctx[12], pre[12], part[4096];
    struct buf text = {0};
    int ends[2], status = -1;
    ssize_t got;
    snprintf(threads, sizeof(threads), "%u", m->o.threads);
    snprintf(ctx, sizeof(ctx), "%u", context);
    snprintf(pre, sizeof(pre), "%u", prefill < 16 ? 16 : prefill);
    const char *argv[] = {"sluice", "bench",    "engine", "--model",   m->o.model, "--threads",
                          threads,  "--seqs",   seqs,     "--context", ctx,        "--prefill",
                          pre,      "--rounds", "5",      "--json",    NULL};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    pid_t pid = fork();
    if (pid == 0)
        become(m, argv, ends[1]);
    close(ends[1]);
    while (pid > 0 &&
           ((got = read(ends[0], part, sizeof(part))) > 0 || (got < 0 && errno == EINTR)))
        buf_add(&text, part, got > 0 ? (size_t)got : 0);
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, &status, 0);
    json_t *j = status == 0 ? json_loadb(text.p, text.len, 0, NULL) : NULL;
    buf_deinit(&text);
    return j;
}

/* Median tokens/s of the case of this kind and number of tokens; 0 = not there. */
static double rate(const json_t *j, const char *kind, uint32_t tokens) {
    const json_t *cases = json_object_get(j, "cases"), *c;
    size_t i;
    json_array_foreach(cases, i, c) {
        const char *is = json_string_value(json_object_get(c, "kind"));
        if (is != NULL && strcmp(is, kind) == 0 &&
            json_integer_value(json_object_get(c, "tokens")) == (json_int_t)tokens)
            return json_number_value(json_object_get(json_object_get(c, "tokens_s"), "median"));
    }
    return 0;
}

static void measure(struct mixed *m, struct mixed_engine *g) {
    uint32_t in = (uint32_t)(load_plan_mean_in(&m->plan) + 0.5), in_least = in < 16 ? 16 : in;
    char width[12];
    snprintf(width, sizeof(width), "%u", g->batch_width);
    json_t *a = bench_engine(m, WIDTHS, in_least + (uint32_t)load_plan_mean_out(&m->plan) / 2, in);
    json_t *b = bench_engine(m, width, m->o.batch_in + m->o.batch_out / 2, m->o.batch_in);
    g->rt_prefill = rate(a, "prefill", in_least);
    for (int i = 0; i < 4; i++)
        g->rt_decode[i] = rate(a, "decode", 1u << i);
    g->batch_prefill = rate(b, "prefill", m->o.batch_in < 16 ? 16 : m->o.batch_in);
    g->batch_decode = rate(b, "decode", g->batch_width);
    json_decref(a);
    json_decref(b);
}

int mixed_engine_measure(struct mixed *m, struct mixed_run *r) {
    struct mixed_engine *g = &r->engine;
    double seats = (r->rows[MIXED_B1].streams + r->rows[MIXED_B2].streams) / 2;
    memset(g, 0, sizeof(*g));
    g->batch_width = seats > m->o.seats ? m->o.seats : seats < 1 ? 1 : (uint32_t)(seats + 0.5);
    if (m->busy_by != MIXED_BUSY_CPU || m->o.url != NULL) {
        snprintf(m->engine_note, sizeof(m->engine_note), "not checked: %s",
                 m->o.url != NULL ? "the server is not ours" : "the engine is virtual");
        return 0;
    }
    measure(m, g);
    if (g->rt_prefill > 0 && g->rt_decode[0] > 0 && g->batch_prefill > 0 && g->batch_decode > 0) {
        r->u_engine = mixed_engine_busy(r);
        return 0;
    }
    g->rt_prefill = g->batch_decode = 0;
    snprintf(m->engine_note, sizeof(m->engine_note),
             "not checked: `sluice bench engine` could not be run beside it");
    return -1;
}

/* Seconds of one decode step of `width` sequences: straight between the widths that were measured.
 */
static double step_s(const struct mixed_engine *g, double width) {
    int at = width < 2 ? 0 : width < 4 ? 1 : 2;
    double low = 1 << at, t0 = low / g->rt_decode[at], t1 = 2 * low / g->rt_decode[at + 1];
    return t0 + (t1 - t0) * (width - low) / low;
}

/* Of one arm's requests: prompts at the prefill rate (their first token comes with them), each
 * further token its share of a step as wide as there were streams between their first and last
 * piece at that moment. */
static double cost_s(const struct mixed_engine *g, const struct arm *a) {
    double cost = 0;
    for (uint32_t i = 0; i < a->plan->n; i++) {
        const struct answer *w = &a->rt[i].answer;
        cost += a->rt[i].ask.n_in / g->rt_prefill;
        for (uint32_t k = 1; k < w->n_pieces; k++) {
            double at = w->pieces[k].at_ms, width = 0;
            for (uint32_t j = 0; j < a->plan->n; j++) {
                const struct answer *o = &a->rt[j].answer;
                width += o->n_pieces > 0 && o->pieces[0].at_ms < at && answer_last_ms(o) >= at;
            }
            width = width < 1 ? 1 : width > 8 ? 8 : width;
            cost += (w->pieces[k].tokens - w->pieces[k - 1].tokens) * step_s(g, width) / width;
        }
    }
    return cost;
}

double mixed_engine_busy(const struct mixed_run *r) {
    const struct arm *a = &r->arms[MIXED_A1], *b = &r->arms[MIXED_A2];
    return (cost_s(&r->engine, a) + cost_s(&r->engine, b)) / (arm_wall_s(a) + arm_wall_s(b));
}
