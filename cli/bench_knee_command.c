/* bench_knee_command.c - `sluice bench knee`: rising concurrency at fixed lengths. */
#include "base/mem.h"
#include "cli/bench_case.h"
#include "cli/bench_commands.h"
#include "cli/bench_flags.h"
#include "cli/bench_knee.h"
#include "cli/bench_machine.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/json_value.h"
#include "cli/terminal.h"

#include <math.h>
#include <string.h>

#define WORDS 32
#define CONCURRENCY_MAX 256

static struct mixed_options o;
static struct mixed m; /* its server, client and style */
static struct knee k;

static struct {
    const char *levels;
    int64_t in, out, threads, vocab, seed;
    bool json;
} w;

static const struct flag flags[] = {
    {"model", FLAG_TEXT, &o.model, 0, 0, "FILE", "start a server for this GGUF file"},
    {"url", FLAG_TEXT, &o.url, 0, 0, "URL", "or measure this OpenAI-compatible server"},
    {"key", FLAG_TEXT, &o.key, 0, 0, "KEY", "its API key"},
    {"name", FLAG_TEXT, &o.name, 0, 0, "NAME", "its model's name (default: the first it lists)"},
    {"levels", FLAG_TEXT, &w.levels, 0, 0, "LIST",
     "requests at a time, ascending (default 1,2,4,8,16,32)"},
    {"in", FLAG_INT, &w.in, 1, 100000, "tokens", "prompt of each request (default 128)"},
    {"out", FLAG_INT, &w.out, 1, 100000, "tokens", "answer of each request (default 64)"},
    {"seconds", FLAG_REAL, &o.seconds, 0.5, 3600, "s", "length of a level (default 15)"},
    {"warm", FLAG_REAL, &o.warm_s, 0, 600, "s", "before it is measured (default 3)"},
    {"engine", FLAG_TEXT, &o.engine, 0, 0, "NAME", "cpu, or null: made-up costs (default cpu)"},
    {"threads", FLAG_INT, &w.threads, 1, 64, "N", "compute threads of the worker (default 1)"},
    {"vocab", FLAG_INT, &w.vocab, 16, 1 << 20, "N", "prompt ids below this (default: the model's)"},
    {"seed", FLAG_INT, &w.seed, 0, 1e15, "N", "of the prompts (default 1)"},
    {"json", FLAG_BOOL, &w.json, 0, 0, "", "one JSON object on stdout instead of the table"},
    {"quiet", FLAG_BOOL, &o.quiet, 0, 0, "", "no progress on stderr"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(
        f,
        "Usage: sluice bench knee --model FILE [FLAGS] [-- FLAGS of `sluice up`]\n"
        "       sluice bench knee --url URL [--key KEY] [FLAGS]\n\n"
        "Keeps 1, 2, 4, ... requests of fixed lengths out at a time and shows tokens/s against "
        "latency. The knee is\nthe level farthest above the line from the first to the last in "
        "that plane; recommended is the batch\nsize left of it. An own server gets as many seats "
        "as the last level.\n");
    flags_help(f, flags, FLAGS);
    fprintf(f,
            "\nExamples:\n  sluice bench knee --model m.gguf\n"
            "  sluice bench knee --url http://127.0.0.1:8000/v1 --levels 1,4,16,64 --in 512 --out "
            "128 --json\n");
    fprintf(f,
            "\nExit codes: 0 measured; 1 usage; 2 not measured; 3 no server; 130 interrupted.\n");
}

static int open_target(struct err *e) {
    if (o.url == NULL) {
        m.kv_tokens = o.seats * (o.batch_in + o.batch_out + 32);
        if (mixed_server_start(&m, false, e) != 0)
            return -1;
        snprintf(m.model, sizeof(m.model), "%s", m.server.model);
    } else if (http_client_create(&m.client, o.url, o.key, e) != 0) {
        return -1;
    } else if (o.name != NULL) {
        snprintf(m.model, sizeof(m.model), "%s", o.name);
    } else if (bench_server_model(m.client, m.model, sizeof(m.model), e) != 0) {
        return -1;
    }
    m.style = (struct ask_style){.model = m.model, .id_low = o.id_low, .id_high = o.id_high};
    return 0;
}

/* Of the answers that came while the level was measured. */
static int figures(struct knee_level *l, const struct arm *a) {
    double *v = mem_array(3 * (size_t)a->n_batch + 1, sizeof(*v)), s[STATS_KINDS];
    if (v == NULL)
        return -1;
    double *ttft = v, *e2e = v + a->n_batch, *gap = e2e + a->n_batch;
    uint32_t gaps = 0;
    for (uint32_t i = 0; i < a->n_batch; i++) {
        const struct arm_request *r = a->batch[i];
        double last = answer_last_ms(&r->answer);
        l->failed += r->refused + r->broken;
        if (!r->answer.whole || last < a->from_ms || last > a->to_ms)
            continue;
        ttft[l->done] = answer_first_ms(&r->answer) - r->first_sent_ms;
        if (r->answer.n_pieces > 1)
            gap[gaps++] = (last - answer_first_ms(&r->answer)) / (r->answer.n_pieces - 1);
        e2e[l->done++] = last - r->first_sent_ms;
    }
    stats_of(s, ttft, l->done);
    l->ttft_p50_ms = l->done > 0 ? s[STATS_P50] : INFINITY;
    l->ttft_p99_ms = l->done > 0 ? s[STATS_P99] : INFINITY;
    stats_of(s, e2e, l->done);
    l->e2e_p50_ms = l->done > 0 ? s[STATS_P50] : INFINITY;
    l->e2e_p99_ms = l->done > 0 ? s[STATS_P99] : INFINITY;
    stats_of(s, gap, gaps);
    l->gap_p99_ms = gaps > 0 ? s[STATS_P99] : INFINITY;
    l->tokens_s = arm_batch_tokens(a, a->from_ms, a->to_ms, true) / arm_wall_s(a);
    l->out_tokens_s = arm_batch_tokens(a, a->from_ms, a->to_ms, false) / arm_wall_s(a);
    mem_free(v);
    return 0;
}

static int level(struct knee_level *l, uint32_t n, struct err *e) {
    struct arm a = {.client = m.client,
                    .style = &m.style,
                    .keep = n,
                    .batch_in = o.batch_in,
                    .batch_out = o.batch_out,
                    .fixed = true,
                    .warm_s = o.warm_s,
                    .seconds = o.seconds,
                    .seed = o.seed + n,
                    .stop = o.stop};
    *l = (struct knee_level){.concurrency = n};
    int rc = arm_run(&a, e);
    if (rc == 0 && figures(l, &a) != 0)
        rc = err_set(e, ERR_NO_MEMORY, "no memory for the figures");
    if (rc == 0)
        mixed_progress(&m, "%u at a time: %.1f tokens/s, p99 %.1f ms", n, l->tokens_s,
                       l->e2e_p99_ms);
    arm_deinit(&a);
    return rc;
}

static void table(FILE *f) {
    char date[16], cpu[128];
    bench_date(date);
    bench_cpu_name(cpu, sizeof(cpu));
    fprintf(f, "%s, %s, %d cores; %s; %u tokens in, %u out\n\n", date, cpu, bench_cores(), m.model,
            o.batch_in, o.batch_out);
    fprintf(f, "%8s %9s %9s %9s %9s %9s %9s %8s %6s %6s\n", "at once", "tokens/s", "output/s",
            "TTFT p50", "p99 ms", "E2E p50", "p99 ms", "gap p99", "done", "failed");
    for (uint32_t i = 0; i < k.n; i++) {
        const struct knee_level *l = &k.levels[i];
        fprintf(f, "%8u %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %8.2f %6u %6u%s%s\n", l->concurrency,
                l->tokens_s, l->out_tokens_s, l->ttft_p50_ms, l->ttft_p99_ms, l->e2e_p50_ms,
                l->e2e_p99_ms, l->gap_p99_ms, l->done, l->failed, i == k.knee ? "  <- knee" : "",
                i == k.recommended ? "  <- recommended" : "");
    }
    fprintf(f,
            "\nrecommended batch size: %u (%.0f %% of the knee's tokens/s at %.0f %% of its p99)\n",
            k.levels[k.recommended].concurrency,
            100 * k.levels[k.recommended].tokens_s / k.levels[k.knee].tokens_s,
            100 * k.levels[k.recommended].e2e_p99_ms / k.levels[k.knee].e2e_p99_ms);
}

static json_t *number(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static int json_print(void) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < k.n; i++) {
        const struct knee_level *l = &k.levels[i];
        json_array_append_new(
            list,
            json_pack("{s:i,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "concurrency",
                      (int)l->concurrency, "done", (int)l->done, "failed", (int)l->failed,
                      "tokens_s", number(l->tokens_s), "output_tokens_s", number(l->out_tokens_s),
                      "ttft_p50_ms", number(l->ttft_p50_ms), "ttft_p99_ms", number(l->ttft_p99_ms),
                      "e2e_p50_ms", number(l->e2e_p50_ms), "e2e_p99_ms", number(l->e2e_p99_ms),
                      "gap_p99_ms", number(l->gap_p99_ms)));
    }
    json_t *j =
        json_pack("{s:s,s:i,s:i,s:o,s:i,s:i}", "model", m.model, "in", (int)o.batch_in, "out",
                  (int)o.batch_out, "levels", list, "knee", (int)k.levels[k.knee].concurrency,
                  "recommended", (int)k.levels[k.recommended].concurrency);
    return json_value_print(j);
}

static int measure(const struct bench_list *levels) {
    struct err e;
    int rc, code = CLI_OK;
    m.o = o;
    m.began_ms = clock_ms();
    bench_flags_signals();
    rc = open_target(&e);
    for (uint32_t i = 0; rc == 0 && i < levels->n; i++) {
        rc = level(&k.levels[i], levels->v[i], &e);
        k.n = i + 1;
    }
    if (rc != 0) {
        command_usage("bench knee", "%s", e.msg);
        code = e.code == ERR_CANCELLED             ? CLI_INTERRUPTED
               : e.code == ERR_IO && o.url != NULL ? CLI_NO_SERVER
                                                   : CLI_FAILED;
    } else {
        knee_find(&k);
        if (!w.json)
            table(stdout);
        else if (json_print() != 0)
            code = CLI_FAILED;
    }
    mixed_server_stop(&m);
    return code;
}

static void defaults(void) {
    memset(&o, 0, sizeof(o));
    memset(&m, 0, sizeof(m));
    memset(&k, 0, sizeof(k));
    memset(&w, 0, sizeof(w));
    o.engine = "cpu";
    o.seconds = 15;
    o.warm_s = 3;
    w.levels = "1,2,4,8,16,32";
    w.in = 128;
    w.out = 64;
    w.threads = w.seed = 1;
}

int bench_knee_command(int argc, char **argv) {
    static const char *words[WORDS];
    struct flags f = {flags, FLAGS, words, 0, WORDS, false};
    struct bench_list levels;
    struct err e;
    defaults();
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("bench knee", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    o.up_flags = words;
    o.n_up_flags = (uint32_t)f.n_words;
    o.stop = bench_flags_stop();
    if (bench_list_parse(&levels, "levels", w.levels, 1, CONCURRENCY_MAX, &e) != 0)
        return command_usage("bench knee", "%s", e.msg);
    o.seats = levels.v[levels.n - 1];
    o.batch_in = (uint32_t)w.in;
    o.batch_out = (uint32_t)w.out;
    o.threads = (uint32_t)w.threads;
    o.id_high = (uint32_t)w.vocab;
    o.seed = (uint64_t)w.seed;
    int code = bench_flags_target("bench knee", &o);
    if (code != CLI_OK)
        return code;
    if (bench_flags_vocab(&o, &e) != 0)
        return command_usage("bench knee", "%s", e.msg);
    return measure(&levels);
}
