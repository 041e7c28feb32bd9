/* bench_virtual - the worker half's promises counted in virtual time: bench_virtual [ROW ...]
 * [--json] [--seed N]
 * [--scale X] [--no-host] [--trace FILE]. Rows: collapse (with the preemption tax), isolation,
 * yield, prefix, ahead, replay; none = all. Exit code 0: every bar held. */
#include "tests/bench/virtual/vrows.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct row {
    const char *name;
    void (*run)(struct vreport *r, const struct voptions *o);
} rows[] = {
    {"collapse", vrow_collapse}, {"isolation", vrow_isolation}, {"yield", vrow_yield},
    {"prefix", vrow_prefix},     {"ahead", vrow_ahead},         {"replay", vrow_replay},
};
#define ROWS (sizeof rows / sizeof *rows)

static const char *verdict(const struct vreport *r)
{
    if (r->error != NULL) return "ERROR";
    if (r->failed > 0) return "MISSED";
    return r->void_because != NULL ? "VOID" : "HELD";
}

static void print_text(const struct vreport *r, double seconds)
{
    printf("%s: %s%s%s (%.1f s)\n", r->row, verdict(r), r->error || r->void_because ? ": " : "",
           r->error          ? r->error
           : r->void_because ? r->void_because
                             : "",
           seconds);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct vline *l = &r->lines[i];
        printf("  %-52s %12.5g", l->name, l->value);
        if (l->kind != VBAR_NONE)
            printf("  %s %-6g %s", l->kind == VBAR_MOST ? "<=" : ">=", l->bar,
                   vreport_missed(l) ? "MISSED" : "held");
        printf("\n");
    }
}

static void print_number(double v)
{
    if (isfinite(v))
        printf("%.8g", v);
    else
        printf("null");
}

static void print_json(const struct vreport *r, uint64_t seed)
{
    printf("{\"row\":\"%s\",\"seed\":%" PRIu64 ",\"verdict\":\"%s\",\"figures\":[", r->row, seed,
           verdict(r));
    for (uint32_t i = 0; i < r->n; i++) {
        const struct vline *l = &r->lines[i];
        printf("%s{\"name\":\"%s\",\"value\":", i > 0 ? "," : "", l->name);
        print_number(l->value);
        if (l->kind != VBAR_NONE) {
            printf(",\"%s\":", l->kind == VBAR_MOST ? "most" : "least");
            print_number(l->bar);
        }
        printf("}");
    }
    printf("]}\n");
}

static int usage(void)
{
    fprintf(stderr,
            "bench_virtual [collapse|isolation|yield|prefix|ahead|replay ...] [--json] [--seed N] "
            "[--scale X] [--no-host] [--trace FILE]\n");
    return 2;
}

static const struct row *find(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static bool run(const struct row *row, const struct voptions *o, bool json)
{
    static struct vreport r;
    memset(&r, 0, sizeof r);
    clock_t from = clock();
    row->run(&r, o);
    if (json)
        print_json(&r, o->seed);
    else
        print_text(&r, (double)(clock() - from) / CLOCKS_PER_SEC);
    fflush(stdout);
    return r.error == NULL && r.failed == 0 && r.void_because == NULL;
}

int main(int argc, char **argv)
{
    struct voptions o = {.seed = 1, .scale = 1, .host = true};
    const struct row *want[ROWS];
    size_t n = 0;
    bool json = false, held = true;
    for (int i = 1; i < argc; i++) {
        const struct row *row = find(argv[i]);
        if (row != NULL && n < ROWS)
            want[n++] = row;
        else if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--no-host") == 0)
            o.host = false;
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            o.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--scale") == 0 && i + 1 < argc)
            o.scale = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--trace") == 0 && i + 1 < argc)
            o.trace = argv[++i];
        else
            return usage();
    }
    if (!(o.scale > 0 && o.scale <= 10)) return usage();
    if (!json) printf("seed %" PRIu64 "\n", o.seed);
    for (size_t i = 0; i < (n == 0 ? ROWS : n); i++)
        held = run(n == 0 ? &rows[i] : want[i], &o, json) && held;
    return held ? 0 : 1;
}
