/* command_sim.c - `sluice sim TRACE`: the gateway's and the workers' decisions on a recorded hour, in seconds. */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/json_value.h"
#include "cli/sim_report.h"
#include "cli/sim_what_if.h"
#include "cli/terminal.h"

#include <string.h>

struct run { /* one simulated run, and what it showed */
    struct sim_plan plan;
    struct sim_meter meter;
    struct sim_totals totals;
    struct sim_report report;
    char title[160];
};

static struct {
    const char *hardware, *worker, *set, *what_if, *unknown, *only;
    double scale, speed, duration, net;
    int64_t workers, limit, seed, queue;
    bool json, steps, check, by_load;
} o;

static const struct flag flags[] = {
    {"workers", FLAG_INT, &o.workers, 1, SIM_WORKERS_MAX, "N", "workers (default 1)"},
    {"hardware", FLAG_TEXT, &o.hardware, 0, 0, "FILE", "a worker's data sheet, see docs/SIM.md"},
    {"from-worker", FLAG_TEXT, &o.worker, 0, 0, "FILE",
     "a measured worker: what `sluice bench mixed --save-hardware` or `sluice\n"
     "                            bench engine --json` wrote, or its cost coefficients"},
    {"scale", FLAG_REAL, &o.scale, 0.0001, 10000, "F", "so many times the requests, same duration"},
    {"speed", FLAG_REAL, &o.speed, 0.0001, 10000, "F", "the same requests, so many times as fast"},
    {"limit", FLAG_INT, &o.limit, 1, 20000000, "N", "only the first N requests"},
    {"duration", FLAG_REAL, &o.duration, 0.001, 31536000, "S", "only the first S seconds"},
    {"seed", FLAG_INT, &o.seed, 0, 4294967295.0, "N", "of --scale's copies (default 1)"},
    {"class", FLAG_TEXT, &o.unknown, 0, 0, "NAME", "of rows that name none (default realtime)"},
    {"only", FLAG_TEXT, &o.only, 0, 0, "CLASS", "leave the other classes' requests out"},
    {"queue", FLAG_INT, &o.queue, 1, 4000000, "N", "requests a gateway holds (default 65536)"},
    {"net-ms", FLAG_REAL, &o.net, 0.001, 100, "MS", "from gateway to worker (default 0.2)"},
    {"by-load", FLAG_BOOL, &o.by_load, 0, 0, "", "send to whom has most room, whatever is cached where"},
    {"set", FLAG_TEXT, &o.set, 0, 0, "CHANGE", "floors, weights, objectives, as --what-if has them"},
    {"what-if", FLAG_TEXT, &o.what_if, 0, 0, "CHANGES", "run again with this changed, and compare"},
    {"steps", FLAG_BOOL, &o.steps, 0, 0, "", "every step by itself; slower, the same report"},
    {"check", FLAG_BOOL, &o.check, 0, 0, "", "with the auditors; much slower"},
    {"json", FLAG_BOOL, &o.json, 0, 0, "", "one JSON object on stdout instead of tables"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(f, "Usage: sluice sim TRACE [FLAGS]\n\n"
               "Runs a recorded trace (CSV: arrival_ms,input_tokens,output_tokens,class,tenant,...) through the\n"
               "gateway's and the workers' own decisions, on a virtual clock: what its users would have seen on\n"
               "so many workers of such a kind. Same input, same bytes of report.\n\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nCHANGE: words with commas between them; CHANGES: several, with semicolons. Words:\n"
               "  workers=+1  workers=8  weight:TENANT=2  floor:CLASS=5%%  deadline:CLASS=900\n"
               "  ttft:CLASS=500  tpot:CLASS=50\n"
               "\nExamples:\n"
               "  sluice sim chat.csv --workers 8 --hardware card.yaml\n"
               "  sluice sim mix.csv --from-worker bench.json --what-if workers=+1\n"
               "  sluice sim mix.csv --workers 4 --what-if weight:B=2\n"
               "  sluice sim mix.csv --set deadline:batch=1800 --what-if 'floor:batch=2%%;floor:batch=5%%'\n"
               "\nExit codes: 0 simulated; 1 usage, a file or a flag is wrong; 2 the run failed.\n");
}

static int read_trace(struct sim_trace *t, const char *path, const struct class_table *classes,
                      struct err *e) {
    struct sim_trace_options opt = {.classes = classes, .limit = (uint32_t)o.limit};
    opt.duration_ns = (uint64_t)(o.duration * 1e9);
    int k = class_table_find(classes, o.unknown);
    if (k < 0)
        return err_set(e, ERR_INVALID, "--class %.40s: no such class", o.unknown);
    opt.unknown = (uint8_t)k;
    int only = o.only != NULL ? class_table_find(classes, o.only) : -1;
    if (o.only != NULL && only < 0)
        return err_set(e, ERR_INVALID, "--only %.40s: no such class", o.only);
    if (sim_trace_read(t, path, &opt, e) != 0)
        return -1;
    if (o.only != NULL && sim_trace_keep(t, (uint8_t)only) == 0)
        return err_set(e, ERR_INVALID, "--only %.40s: the trace has none of them", o.only);
    if (o.scale > 0 && sim_trace_scale(t, o.scale, (uint64_t)o.seed, e) != 0)
        return -1;
    if (o.speed > 0)
        sim_trace_speed(t, o.speed);
    return 0;
}

static int read_hardware(struct sim_hardware *h, struct err *e) {
    if (o.hardware != NULL && o.worker != NULL)
        return err_set(e, ERR_INVALID, "--hardware and --from-worker are two answers to one question");
    if (o.hardware != NULL)
        return sim_hardware_read(h, o.hardware, e);
    if (o.worker != NULL)
        return sim_hardware_from_worker(h, o.worker, e);
    sim_hardware_default(h);
    return 0;
}

static void base_plan(struct sim_plan *p, const struct sim_hardware *h) {
    p->hardware = h;
    class_table_default(&p->classes);
    p->workers = (uint32_t)o.workers;
    p->queue = (uint32_t)o.queue;
    p->net_ns = (uint64_t)(o.net * 1e6);
    p->seed = (uint32_t)o.seed;
    p->runs = !o.steps;
    p->check = o.check;
    p->by_load = o.by_load;
}

static int one_run(struct run *r, const struct sim_trace *t, struct err *e) {
    double began = clock_ms();
    if (sim_meter_init(&r->meter, t, &r->plan.classes) != 0)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    if (sim_cluster_run(&r->plan, t, &r->meter, &r->totals, e) != 0)
        return -1;
    double wall = (clock_ms() - began) * 1e-3, virt = (double)r->totals.end_ns * 1e-9;
    fprintf(stderr, "%s: %.1f s simulated in %.2f s, %.0f x real time (%llu events, %llu steps in %llu runs)\n",
            r->title, virt, wall, virt / (wall > 1e-9 ? wall : 1e-9),
            (unsigned long long)r->totals.events, (unsigned long long)r->totals.run_steps,
            (unsigned long long)r->totals.runs);
    r->report = (struct sim_report){r->title, &r->plan, t, &r->meter, &r->totals};
    return 0;
}

static int print(struct run *const *runs, uint32_t n) {
    const struct sim_report *list[SIM_WHAT_IF_MAX + 1];
    struct buf out = {0};
    int rc = 0;
    for (uint32_t i = 0; i < n; i++)
        list[i] = &runs[i]->report;
    if (o.json) {
        json_t *all = json_array(), *j;
        for (uint32_t i = 0; i < n; i++)
            json_array_append_new(all, sim_report_json(list[i]));
        j = json_pack("{s:o}", "runs", all);
        rc = j != NULL ? json_value_text(&out, j) : -1;
        json_decref(j);
        buf_addc(&out, '\n');
    } else {
        for (uint32_t i = 0; i < n && rc == 0; i++) {
            buf_adds(&out, i > 0 ? "\n" : "");
            rc = sim_report_table(&out, list[i]);
        }
        if (rc == 0)
            rc = sim_report_compare(&out, list, n);
    }
    if (rc == 0)
        rc = terminal_write(1, out.p, out.len);
    buf_deinit(&out);
    return rc == 0 ? CLI_OK : CLI_FAILED;
}

/* The plan as given, and one for each change. -1: a word is wrong. */
static int make_plans(struct run **runs, uint32_t *n, const struct sim_trace *t,
                      const struct sim_hardware *h, struct err *e) {
    char change[160];
    const char *left = o.what_if;
    do {
        if (*n > SIM_WHAT_IF_MAX)
            return err_set(e, ERR_INVALID, "--what-if has more than %d changes", SIM_WHAT_IF_MAX);
        struct run *r = runs[*n] = mem_zalloc(sizeof(*r));
        if (r == NULL)
            return err_set(e, ERR_NO_MEMORY, "out of memory");
        base_plan(&r->plan, h);
        (void)snprintf(r->title, sizeof(r->title), "%s", *n == 0 ? "as given" : change);
        if (o.set != NULL && sim_what_if_apply(&r->plan, t, o.set, e) != 0)
            return -1;
        if (*n > 0 && sim_what_if_apply(&r->plan, t, change, e) != 0)
            return -1;
        (*n)++;
        left = sim_what_if_next(left, change, sizeof(change));
    } while (left != NULL);
    return 0;
}

static int simulate(const char *path) {
    static struct run *runs[SIM_WHAT_IF_MAX + 2];
    struct sim_hardware h;
    struct sim_trace t = {0};
    struct class_table classes;
    struct err e;
    uint32_t n = 0;
    int code = CLI_OK;
    memset(runs, 0, sizeof(runs));
    class_table_default(&classes);
    if (read_hardware(&h, &e) != 0 || read_trace(&t, path, &classes, &e) != 0 ||
        make_plans(runs, &n, &t, &h, &e) != 0)
        code = command_usage("sim", "%s", e.msg);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++) {
        if (one_run(runs[i], &t, &e) == 0)
            continue;
        command_usage("sim", "%s", e.msg);
        code = CLI_FAILED;
    }
    if (code == CLI_OK)
        code = print(runs, n);
    for (uint32_t i = 0; i < SIM_WHAT_IF_MAX + 2; i++) {
        if (runs[i] != NULL)
            sim_meter_deinit(&runs[i]->meter);
        mem_free(runs[i]);
    }
    sim_trace_free(&t);
    return code;
}

static int run(int argc, char **argv) {
    const char *words[1];
    struct flags f = {flags, FLAGS, words, 0, 1, false};
    struct err e;
    memset(&o, 0, sizeof(o));
    o.workers = 1;
    o.seed = 1;
    o.queue = 65536;
    o.net = 0.2;
    o.unknown = "realtime";
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("sim", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (f.n_words != 1)
        return command_usage("sim", "say which trace: sluice sim TRACE");
    return simulate(words[0]);
}

const struct command command_sim = {"sim", "a recorded trace on a pool that is not there yet", run, help};
