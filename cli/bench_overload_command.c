/* bench_overload_command.c - `sluice bench overload`: flags, table, JSON. */
#include "base/mem.h"
#include "cli/bench_commands.h"
#include "cli/bench_flags.h"
#include "cli/bench_machine.h"
#include "cli/bench_overload.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/json_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 32
#define CHECKS 4

static struct mixed_options o;
static struct overload v;

static struct {
    int64_t seats, threads, vocab, seed;
    bool json, floor;
} w;

static const struct flag flags[] = {
    {"model", FLAG_TEXT, &o.model, 0, 0, "FILE", "start a server for this GGUF file"},
    {"url", FLAG_TEXT, &o.url, 0, 0, "URL", "or measure this OpenAI-compatible server"},
    {"key", FLAG_TEXT, &o.key, 0, 0, "KEY", "its API key"},
    {"name", FLAG_TEXT, &o.name, 0, 0, "NAME", "its model's name (default: the first it lists)"},
    {"floor", FLAG_BOOL, &w.floor, 0, 0, "", "instead: does batch keep its share under real-time that saturates?"},
    {"rate", FLAG_REAL, &o.rate, 0.1, 1e6, "1/s", "the knee (default: found)"},
    {"seconds", FLAG_REAL, &o.seconds, 5, 3600, "s", "of arrivals in an arm (default 20)"},
    {"seats", FLAG_INT, &w.seats, 1, 256, "N", "of an own server (default 16)"},
    {"slo-ttft-ms", FLAG_REAL, &o.slo_ttft_ms, 1, 1e6, "ms", "objective of the first token (default 1000)"},
    {"slo-gap-ms", FLAG_REAL, &o.slo_gap_ms, 0.1, 1e6, "ms", "objective of the mean gap (default 100)"},
    {"engine", FLAG_TEXT, &o.engine, 0, 0, "NAME", "cpu, or null: made-up costs (default cpu)"},
    {"threads", FLAG_INT, &w.threads, 1, 64, "N", "compute threads of the worker (default 1)"},
    {"vocab", FLAG_INT, &w.vocab, 16, 1 << 20, "N", "prompt ids below this (default: the model's)"},
    {"seed", FLAG_INT, &w.seed, 0, 1e15, "N", "of arrivals and prompts (default 1)"},
    {"json", FLAG_BOOL, &w.json, 0, 0, "", "one JSON object on stdout instead of the table"},
    {"quiet", FLAG_BOOL, &o.quiet, 0, 0, "", "no progress on stderr"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

struct check {
    const char *name;
    double value, bar;
    bool known;
};

static void help(FILE *f) {
    fprintf(f,
            "Usage: sluice bench overload --model FILE [FLAGS] [-- FLAGS of `sluice up`]\n"
            "       sluice bench overload --url URL [--key KEY] [FLAGS]\n\n"
            "Finds the rate of short real-time requests that is just answered in time, then offers 1, 1.5 "
            "and 3 times that\n(order 1, 1.5, 3, 3, 1.5, 1). What is refused with Retry-After comes back once, then. "
            "Shown: answers within\nboth objectives a second, how many of the first returns were taken, how busy the "
            "worker was while somebody\nwaited one out. About 4 minutes.\n\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nExamples:\n  sluice bench overload --model m.gguf\n"
               "  sluice bench overload --model m.gguf --engine null --floor --json\n"
               "\nExit codes: 0 all promises held; 1 usage; 2 not measured; 3 no server; 4 a promise missed; 130 "
               "interrupted.\n");
}

static uint32_t checks(struct check c[CHECKS]) {
    double bar = strcmp(o.engine, "null") == 0 ? 0.98 : 0.95, busy = 0;
    uint32_t returned = 0, admitted = 0, n_busy = 0;
    if (v.floor) {
        double share = (v.arms[1].batch_share + v.arms[2].batch_share) / 2, alone = overload_goodput(&v, 1.5, false);
        c[0] = (struct check){"batch's share of all tokens", share, 0.05, true};
        c[1] = (struct check){"real-time goodput beside batch / without", overload_goodput(&v, 1.5, true) / alone,
                              0.9, alone > 0};
        return 2;
    }
    for (uint32_t i = 0; i < v.n_arms; i++) {
        returned += v.arms[i].returned;
        admitted += v.arms[i].admitted;
        if (v.arms[i].factor < 3 || v.arms[i].busy_away < 0)
            continue;
        busy += v.arms[i].busy_away;
        n_busy++;
    }
    double knee = overload_goodput(&v, 1, false);
    c[0] = (struct check){"goodput at 3x / at the knee", overload_goodput(&v, 3, false) / knee, bar, knee > 0};
    c[1] = (struct check){"goodput at 1.5x / at the knee", overload_goodput(&v, 1.5, false) / knee, bar, knee > 0};
    c[2] = (struct check){"first returns that were taken", (double)admitted / (returned > 0 ? returned : 1), 0.95,
                          returned >= 500};
    c[3] = (struct check){"worker busy while somebody waits one out", n_busy > 0 ? busy / n_busy : 0, 0.95, n_busy > 0};
    return CHECKS;
}

static bool held(const struct check *c, uint32_t n) {
    bool all = true;
    for (uint32_t i = 0; i < n; i++)
        all &= c[i].known && c[i].value >= c[i].bar;
    return all;
}

static void table(FILE *f, const struct check *c, uint32_t n) {
    char date[16], cpu[128];
    bench_date(date);
    bench_cpu_name(cpu, sizeof(cpu));
    fprintf(f, "%s, %s, %d cores; %s; 16 to 32 tokens in, 4 to 12 out; knee %.1f requests/s\n\n", date, cpu,
            bench_cores(), v.m.model, v.knee);
    fprintf(f, "%8s %9s %9s %9s %9s %9s %9s %9s %7s %7s\n", "x knee", "offered/s", "goodput/s", "TTFT p50", "p99 ms",
            "refused", "returned", "taken", "busy", "batch");
    for (uint32_t i = 0; i < v.n_arms; i++) {
        const struct overload_arm *a = &v.arms[i];
        fprintf(f, "%8.1f %9.1f %9.2f %9.1f %9.1f %9u %9u %9u ", a->factor, a->offered, a->goodput, a->ttft_p50_ms,
                a->ttft_p99_ms, a->refused, a->returned, a->admitted);
        if (a->busy_away < 0)
            fprintf(f, "%7s", "-");
        else
            fprintf(f, "%6.1f%%", 100 * a->busy_away);
        fprintf(f, " %6.1f%%\n", 100 * a->batch_share);
    }
    fprintf(f, "\n");
    for (uint32_t i = 0; i < n; i++)
        fprintf(f, "%-42s %8.3f  >= %.2f  %s\n", c[i].name, c[i].value, c[i].bar,
                !c[i].known ? "not enough of them" : c[i].value >= c[i].bar ? "held" : "MISSED");
}

static int json_print(const struct check *c, uint32_t n) {
    char date[16], cpu[128];
    json_t *arms = json_array(), *list = json_array();
    bench_date(date);
    bench_cpu_name(cpu, sizeof(cpu));
    for (uint32_t i = 0; i < v.n_arms; i++) {
        const struct overload_arm *a = &v.arms[i];
        json_array_append_new(
            arms, json_pack("{s:f,s:f,s:f,s:f,s:i,s:i,s:i,s:i,s:i,s:f,s:f}", "factor", a->factor, "offered_s", a->offered,
                            "goodput_s", a->goodput, "attained", a->attained, "arrivals", (int)a->arrivals, "answered",
                            (int)a->answered, "refused", (int)a->refused, "returned", (int)a->returned, "taken",
                            (int)a->admitted, "busy_while_away", a->busy_away, "batch_share", a->batch_share));
    }
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s,s:f,s:f,s:b}", "name", c[i].name, "value", c[i].value, "bar",
                                              c[i].bar, "held", c[i].known && c[i].value >= c[i].bar));
    return json_value_print(json_pack("{s:s,s:s,s:i,s:s,s:f,s:o,s:o}", "date", date, "cpu", cpu, "cores",
                                      bench_cores(), "model", v.m.model, "knee_s", v.knee, "arms", arms, "checks", list));
}

/* Batch gets a twentieth of the device; the rest of the table is as it is without a file. */
static int write_classes(char *path, struct err *e) {
    static const char text[] =
        "classes:\n"
        "  - {name: realtime, rank: 0, order: 1, preemptible: false, ttft-ms: 1000, tpot-ms: 100}\n"
        "  - {name: batch, rank: 1, order: 2, preemptible: true, floor: 5}\n";
    int fd = mkstemps(path, 5);
    if (fd < 0 || write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1) {
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_IO, "cannot write a class table to %s", path);
    }
    close(fd);
    return 0;
}

static int open_target(struct err *e) {
    v.m.kv_tokens = o.seats * 320;
    if (o.url == NULL) {
        if (mixed_server_start(&v.m, false, e) != 0)
            return -1;
        snprintf(v.m.model, sizeof(v.m.model), "%s", v.m.server.model);
    } else if (http_client_create(&v.m.client, o.url, o.key, e) != 0) {
        return -1;
    } else if (o.name != NULL) {
        snprintf(v.m.model, sizeof(v.m.model), "%s", o.name);
    } else if (bench_server_model(v.m.client, v.m.model, sizeof(v.m.model), e) != 0) {
        return -1;
    }
    v.m.style = (struct ask_style){
        .model = v.m.model, .id_low = o.id_low, .id_high = o.id_high, .batch_tier = "flex"};
    return 0;
}

static int measure(void) {
    struct check c[CHECKS];
    struct err e;
    int code;
    v.m.o = o;
    v.floor = w.floor;
    v.m.began_ms = clock_ms();
    bench_flags_signals();
    if (open_target(&e) != 0 || overload_measure(&v, &e) != 0) {
        command_usage("bench overload", "%s", e.msg);
        code = e.code == ERR_CANCELLED             ? CLI_INTERRUPTED
               : e.code == ERR_IO && o.url != NULL ? CLI_NO_SERVER
                                                   : CLI_FAILED;
    } else {
        uint32_t n = checks(c);
        code = held(c, n) ? CLI_OK : BENCH_PROMISE_MISSED;
        if (!w.json)
            table(stdout, c, n);
        else if (json_print(c, n) != 0)
            code = CLI_FAILED;
    }
    mixed_server_stop(&v.m);
    return code;
}

static void defaults(void) {
    memset(&o, 0, sizeof(o));
    memset(&v, 0, sizeof(v));
    memset(&w, 0, sizeof(w));
    o.engine = "cpu";
    o.seconds = 20;
    o.slo_ttft_ms = 1000;
    o.slo_gap_ms = 100;
    o.batch_in = o.batch_out = 160;
    w.seats = 16;
    w.threads = w.seed = 1;
}

int bench_overload_command(int argc, char **argv) {
    static const char *words[WORDS + 1];
    static char classes[] = "/tmp/sluice-classes-XXXXXX.yaml", flag[64];
    struct flags f = {flags, FLAGS, words, 0, WORDS, false};
    struct err e;
    defaults();
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("bench overload", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    o.up_flags = words;
    o.n_up_flags = (uint32_t)f.n_words;
    o.stop = bench_flags_stop();
    o.seats = (uint32_t)w.seats;
    o.keep = 4 * o.seats;
    o.threads = (uint32_t)w.threads;
    o.id_high = (uint32_t)w.vocab;
    o.seed = (uint64_t)w.seed;
    int code = bench_flags_target("bench overload", &o);
    if (code != CLI_OK)
        return code;
    if (bench_flags_vocab(&o, &e) != 0 || (w.floor && o.url == NULL && write_classes(classes, &e) != 0))
        return command_usage("bench overload", "%s", e.msg);
    if (w.floor && o.url == NULL) {
        snprintf(flag, sizeof(flag), "--classes=%s", classes);
        words[o.n_up_flags++] = flag;
    }
    code = measure();
    if (w.floor && o.url == NULL)
        unlink(classes);
    return code;
}
