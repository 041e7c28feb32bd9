/* bench_mixed_command.c - `sluice bench mixed`: flags in, measurement, reports out. */
#include "base/mem.h"
#include "cli/bench_commands.h"
#include "cli/bench_flags.h"
#include "cli/bench_mixed_report.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/json_value.h"
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define WORDS 32

static struct mixed_options o;

static struct {
    int64_t requests, seats, keep, batch_in, batch_out, threads, verify, runs, vocab, seed,
        worker_pid;
    const char *prompt;
    bool json;
} w;

static const struct flag flags[] = {
    {"model", FLAG_TEXT, &o.model, 0, 0, "FILE", "start a server for this GGUF file"},
    {"url", FLAG_TEXT, &o.url, 0, 0, "URL",
     "or measure this OpenAI-compatible server (http://host:port/v1)"},
    {"key", FLAG_TEXT, &o.key, 0, 0, "KEY", "its API key"},
    {"name", FLAG_TEXT, &o.name, 0, 0, "NAME", "its model's name (default: the first it lists)"},
    {"worker-pid", FLAG_INT, &w.worker_pid, 0, 1 << 30, "PID",
     "its worker's process, for U by CPU time"},
    {"requests", FLAG_INT, &w.requests, 4, LOAD_ROWS_MAX, "N",
     "real-time arrivals an arm (default 500: about 10 minutes; 2000 for the claim)"},
    {"trace", FLAG_TEXT, &o.trace, 0, 0, "FILE",
     "arrivals of this trace (CSV) instead of drawn ones"},
    {"as-recorded", FLAG_BOOL, &o.as_recorded, 0, 0, "", "at the trace's own times, not stretched"},
    {"save-trace", FLAG_TEXT, &o.save_trace, 0, 0, "FILE", "write the mixed arm as it was sent, batch too"},
    {"simulate", FLAG_BOOL, &o.simulate, 0, 0, "",
     "then replay the arms in the simulator, with a step model of\n"
     "                            this worker, and print both"},
    {"save-hardware", FLAG_TEXT, &o.save_hardware, 0, 0, "FILE",
     "write that model for `sluice sim --from-worker`"},
    {"rate", FLAG_REAL, &o.rate, 0.001, 10000, "1/s",
     "arrivals a second (default: calibrated for --busy)"},
    {"busy", FLAG_REAL, &o.target, 0.05, 0.9, "SHARE",
     "U aimed at by the calibration (default 0.4)"},
    {"seconds", FLAG_REAL, &o.seconds, 1, 3600, "s", "length of a batch-alone arm (default 40)"},
    {"warm", FLAG_REAL, &o.warm_s, 0, 600, "s", "batch alone before an arm begins (default 6)"},
    {"seats", FLAG_INT, &w.seats, 1, 256, "N",
     "sequences that run at a time on the server (default 16)"},
    {"keep", FLAG_INT, &w.keep, 1, 4096, "N",
     "batch requests out at a time (default 4 x seats + 16)"},
    {"batch-in", FLAG_INT, &w.batch_in, 1, 100000, "tokens",
     "mean prompt of a batch request (default 160)"},
    {"batch-out", FLAG_INT, &w.batch_out, 1, 100000, "tokens", "mean answer (default 160)"},
    {"batch-tier", FLAG_TEXT, &o.batch_tier, 0, 0, "NAME",
     "service_tier of batch requests (default flex)"},
    {"engine", FLAG_TEXT, &o.engine, 0, 0, "NAME", "cpu, or null: made-up costs (default cpu)"},
    {"threads", FLAG_INT, &w.threads, 1, 64, "N", "compute threads of the worker (default 1)"},
    {"prompt", FLAG_TEXT, &w.prompt, 0, 0, "KIND", "prompts are ids, or words (default ids)"},
    {"vocab", FLAG_INT, &w.vocab, 16, 1 << 20, "N",
     "ids below this (default: the model's, 32000 for a URL)"},
    {"kill", FLAG_BOOL, &o.kill, 0, 0, "", "then kill -9 worker and gateway once each under load"},
    {"verify", FLAG_INT, &w.verify, 0, 1000000, "N",
     "batch answers of a run compared with the same alone (default 60;\n"
     "                            real-time: all; 0 = compare nothing)"},
    {"slo-ttft-ms", FLAG_REAL, &o.slo_ttft_ms, 0.1, 1e6, "ms",
     "objective of the first token (default 200)"},
    {"slo-gap-ms", FLAG_REAL, &o.slo_gap_ms, 0.1, 1e6, "ms",
     "objective of the mean gap (default 50)"},
    {"runs", FLAG_INT, &w.runs, 1, MIXED_RUNS_MAX, "N",
     "whole runs, all reported (default 1, at most 3)"},
    {"seed", FLAG_INT, &w.seed, 0, 1e15, "N", "of list, prompts and samples (default 1)"},
    {"html", FLAG_TEXT, &o.html, 0, 0, "FILE", "also write a page with plots"},
    {"json", FLAG_BOOL, &w.json, 0, 0, "", "one JSON object on stdout instead of the table"},
    {"quiet", FLAG_BOOL, &o.quiet, 0, 0, "", "no progress on stderr"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(
        f,
        "Usage: sluice bench mixed --model FILE [FLAGS] [-- FLAGS of `sluice up`]\n"
        "       sluice bench mixed --url URL [--key KEY] [FLAGS]\n\n"
        "Does batch work disturb chat, and how much of the spare capacity does it use? Arms B A M "
        "M A "
        "B on one\nserver (B batch alone, A real-time alone, M both); every A and M arm replays "
        "one "
        "list of arrivals with\nfresh prompts, at a rate that keeps the worker busy 0.30 to 0.50 "
        "of "
        "the time. Latencies are taken at the\nsocket of each stream; a refusal or an error is an "
        "infinite one. Then every real-time answer of the mixed\narms (and --verify batch answers) "
        "is "
        "compared with the same request alone. Worker on the first core,\ngateway and this program "
        "on the second. The table goes to stdout, progress to stderr.\n");
    flags_help(f, flags, FLAGS);
    fprintf(f,
            "\nExamples:\n"
            "  sluice bench mixed --model m.gguf --kill --html mixed.html\n"
            "  sluice bench mixed --model m.gguf --requests 2000 --verify 1000000 --kill --json\n"
            "  sluice bench mixed --model m.gguf --engine null --requests 300\n"
            "  sluice bench mixed --model m.gguf -- --batch-interference 2\n"
            "  sluice bench mixed --url http://127.0.0.1:8080/v1 --seats 16\n");
    fprintf(
        f,
        "\nExit codes: 0 measured, every promise held and every condition met; 1 usage; 2 not "
        "measured; 3 no\nserver; 4 measured, a promise missed; 5 measured, a condition missed: the "
        "run proves nothing; 130\ninterrupted.\n");
}

static void defaults(void) {
    memset(&o, 0, sizeof(o));
    memset(&w, 0, sizeof(w));
    o.engine = "cpu";
    o.batch_tier = "flex";
    o.target = 0.4;
    o.seconds = 40;
    o.warm_s = 6;
    o.slo_ttft_ms = 200;
    o.slo_gap_ms = 50;
    w.requests = 500;
    w.seats = 16;
    w.batch_in = w.batch_out = 160;
    w.threads = w.runs = w.seed = 1;
    w.verify = 60;
    w.prompt = "ids";
}

static int take(void) {
    o.requests = (uint32_t)w.requests;
    o.seats = (uint32_t)w.seats;
    o.keep = w.keep > 0 ? (uint32_t)w.keep : 4 * o.seats + 16;
    o.batch_in = (uint32_t)w.batch_in;
    o.batch_out = (uint32_t)w.batch_out;
    o.threads = (uint32_t)w.threads;
    o.verify = (uint32_t)w.verify;
    o.runs = (uint32_t)w.runs;
    o.id_high = (uint32_t)w.vocab;
    o.seed = (uint64_t)w.seed;
    o.worker_pid = (pid_t)w.worker_pid;
    o.words = strcmp(w.prompt, "words") == 0;
    o.stop = bench_flags_stop();
    if (!o.words && strcmp(w.prompt, "ids") != 0)
        return command_usage("bench mixed", "--prompt is ids or words, not '%.40s'", w.prompt);
    if (o.kill && o.url != NULL)
        return command_usage("bench mixed", "--kill needs a server of its own: no --url");
    if ((o.simulate || o.save_hardware != NULL) && (o.url != NULL || o.kill))
        return command_usage("bench mixed", "--simulate and --save-hardware need a server of their own, without --kill");
    if (o.as_recorded && o.trace == NULL)
        return command_usage("bench mixed", "--as-recorded belongs to --trace");
    return bench_flags_target("bench mixed", &o);
}

static int write_html(const struct mixed *m) {
    struct buf page = {0};
    int fd = -1, rc = mixed_report_html(&page, m);
    if (rc == 0)
        fd = open(o.html, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (rc != 0 || fd < 0 || terminal_write(fd, page.p, page.len) != 0) {
        fprintf(stderr, "sluice bench mixed: cannot write %s: %s\n", o.html, strerror(errno));
        rc = -1;
    }
    if (fd >= 0)
        close(fd);
    buf_deinit(&page);
    return rc;
}

static int print(const struct mixed *m) {
    if (!w.json) {
        mixed_report_table(m, stdout);
        return fflush(stdout);
    }
    json_t *j = mixed_report_json(m);
    return json_value_print(j);
}

/* The worst of all runs: a missed promise of a valid run, else a run that proves nothing. */
static int verdict(const struct mixed *m) {
    int code = CLI_OK;
    for (uint32_t i = 0; i < m->n_runs; i++) {
        if (m->runs[i].valid && !m->runs[i].held)
            return BENCH_PROMISE_MISSED;
        if (!m->runs[i].valid)
            code = BENCH_VOID;
    }
    return code;
}

static int failed(const struct err *e) {
    command_usage("bench mixed", "%s", e->msg);
    if (e->code == ERR_CANCELLED)
        return CLI_INTERRUPTED;
    return e->code == ERR_IO && o.url != NULL ? CLI_NO_SERVER : CLI_FAILED;
}

static int measure(void) {
    struct err e;
    struct mixed *m = mem_zalloc(sizeof(*m));
    if (m == NULL)
        return command_usage("bench mixed", "no memory");
    int code;
    m->o = o;
    bench_flags_signals();
    if (mixed_measure(m, &e) != 0)
        code = failed(&e);
    else if (print(m) != 0 || (o.html != NULL && write_html(m) != 0))
        code = CLI_FAILED;
    else
        code = verdict(m);
    mixed_deinit(m);
    mem_free(m);
    return code;
}

int bench_mixed_command(int argc, char **argv) {
    static const char *words[WORDS];
    struct flags f = {flags, FLAGS, words, 0, WORDS, false};
    struct err e;
    defaults();
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("bench mixed", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (f.n_words > 0 && words[0][0] != '-')
        return command_usage("bench mixed",
                             "unexpected argument '%.60s'; flags of `sluice up` stand "
                             "behind --",
                             words[0]);
    o.up_flags = words;
    o.n_up_flags = (uint32_t)f.n_words;
    int code = take();
    if (code != CLI_OK)
        return code;
    if (!o.words && bench_flags_vocab(&o, &e) != 0)
        return command_usage("bench mixed", "%s", e.msg);
    return measure();
}
