/* batch.c - `sluice batch run IN OUT`: the command round batch_run.h. */
#include "cli/batch_run.h"
#include "cli/clock.h"
#include "cli/flags.h"
#include "cli/json_value.h"
#include "cli/nearest.h"
#include "cli/terminal.h"

#include <string.h>
#include <unistd.h>

struct batch_args {
    const char *rpc, *cls;
    int64_t concurrency;
    double patience_s;
    bool json, quiet;
};

static struct batch_args args = {.cls = "batch", .concurrency = 64, .patience_s = 120};

static const struct flag flags[] = {
    {"rpc", FLAG_TEXT, &args.rpc, 0, 0, "ENDPOINT", "the server (default tcp://127.0.0.1:5570)"},
    {"class", FLAG_TEXT, &args.cls, 0, 0, "NAME", "class of service (default batch)"},
    {"concurrency", FLAG_INT, &args.concurrency, 1, BATCH_CONCURRENCY_MAX, "N",
     "lines at the server at once (default 64)"},
    {"patience-s", FLAG_REAL, &args.patience_s, 0, 1e6, "SECONDS",
     "how long to wait for a server that went away (default 120 s)"},
    {"json", FLAG_BOOL, &args.json, 0, 0, "", "one JSON object with the sums on stdout at the end"},
    {"quiet", FLAG_BOOL, &args.quiet, 0, 0, "", "no progress"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(f,
            "Usage: sluice batch run IN.jsonl OUT.jsonl [FLAGS]\n\n"
            "Runs a file of requests in OpenAI's batch form, one a line (up to 10 MB each):\n"
            "  {\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{...}}\n"
            "url may be /v1/completions too. A file with a broken line is not run at all. Results "
            "are appended\nto OUT in order of completion:\n"
            "  {\"id\":\"...\",\"custom_id\":\"a\",\"response\":{\"status_code\":200,\"request_id\":\"...\","
            "\"body\":{...}},\"error\":null}\n"
            "OUT is the journal: the same command again runs what has no final result there (2xx or "
            "a 4xx\nbut 408, 429 and 499). Errors of the moment (503, lost worker, lost connection) "
            "are tried again.\nOn the disk at the latest after 1 s.\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nExamples:\n"
               "  sluice batch run in.jsonl out.jsonl\n"
               "  sluice batch run in.jsonl out.jsonl --concurrency 200 --json --quiet\n");
    command_exit_codes(f);
}

static void print_json(const struct batch_run *r, double seconds, enum cli_exit code) {
    const struct batch_progress *p = &r->progress;
    json_t *j = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:{s:I,s:I},s:f,s:b}", "total",
                          (json_int_t)p->total, "done", (json_int_t)p->done, "failed",
                          (json_int_t)p->failed, "skipped", (json_int_t)p->before, "given_up",
                          (json_int_t)r->given_up, "retries", (json_int_t)p->retries, "tokens",
                          "prompt", (json_int_t)p->prompt_tokens, "completion",
                          (json_int_t)p->tokens, "seconds", seconds, "interrupted",
                          code == CLI_INTERRUPTED);
    (void)json_value_print(j);
}

static void print_end(struct batch_run *r, double seconds, enum cli_exit code) {
    const struct batch_progress *p = &r->progress;
    fprintf(stderr,
            "sluice batch: %llu of %llu done (%llu failed, %llu from before), %llu tokens in %.1f "
            "s, %.1f tokens/s\n",
            (unsigned long long)p->done, (unsigned long long)p->total,
            (unsigned long long)p->failed, (unsigned long long)p->before,
            (unsigned long long)p->tokens, seconds, seconds > 0 ? (double)p->tokens / seconds : 0);
    if (code == CLI_NO_SERVER)
        fprintf(stderr, "sluice batch: no server at %s for %g s\n", r->server->endpoint,
                r->patience_s);
    if (p->done < p->total)
        fprintf(stderr, "sluice batch: %s is whole; the same command again goes on from here\n",
                r->journal->path);
}

static int run_open(struct batch_input *in, struct batch_journal *journal, struct server *server) {
    struct batch_run r = {.in = in, .journal = journal, .server = server, .cls = args.cls,
                          .patience_s = args.patience_s};
    struct err e;
    if (batch_run_init(&r, (uint32_t)args.concurrency) != 0)
        return command_usage("batch", "out of memory");
    double start_ms = clock_ms();
    r.progress.total = in->n_lines;
    r.progress.before = r.progress.done = journal->done + journal->failed;
    r.progress.failed = journal->failed;
    batch_progress_start(&r.progress, args.quiet ? NULL : stderr, isatty(2), start_ms);
    bool all_done = r.progress.done == r.progress.total; /* then there may be no server */
    enum cli_exit code = all_done ? CLI_OK : batch_run_all(&r);
    if (batch_journal_sync(journal, &e) != 0) {
        fprintf(stderr, "sluice batch: %s\n", e.msg);
        code = CLI_FAILED;
    }
    if (code == CLI_OK && (r.progress.failed > 0 || r.given_up > 0))
        code = CLI_FAILED;
    double seconds = (clock_ms() - start_ms) / 1e3;
    if (!args.quiet || code != CLI_OK)
        print_end(&r, seconds, code);
    if (args.json)
        print_json(&r, seconds, code);
    batch_run_deinit(&r);
    return code;
}

static void tell_before(const struct batch_journal *j) {
    if (j->torn_bytes > 0)
        fprintf(stderr, "sluice batch: cut %llu bytes of an unfinished last line off %s\n",
                (unsigned long long)j->torn_bytes, j->path);
    if (j->foreign > 0)
        fprintf(stderr, "sluice batch: %llu results in %s belong to no line of the input\n",
                (unsigned long long)j->foreign, j->path);
    if (j->done + j->failed > 0 && !args.quiet)
        fprintf(stderr, "sluice batch: %llu results are there already and are skipped\n",
                (unsigned long long)(j->done + j->failed));
}

static int connect_and_run(struct batch_input *in, struct batch_journal *j) {
    struct server server;
    struct err e;
    int code;
    if (server_init(&server, args.rpc, &e) != 0)
        return command_usage("batch", "--rpc: %s", e.msg);
    bool all_done = j->done + j->failed == in->n_lines;
    if (!all_done && server_open(&server, &e) != 0) {
        fprintf(stderr,
                "sluice batch: no server at %s (%s); start one with `sluice up --model FILE`\n",
                server.endpoint, e.msg);
        code = CLI_NO_SERVER;
    } else {
        code = run_open(in, j, &server);
    }
    server_deinit(&server);
    return code;
}

static int run_files(const char *in_path, const char *out_path) {
    struct batch_input in;
    struct batch_journal journal;
    struct err e;
    if (batch_input_open(&in, in_path, &e) != 0)
        return command_usage("batch", "%s", e.msg);
    int code = CLI_USAGE;
    if (batch_input_check(&in, stderr, &e) != 0 ||
        batch_journal_open(&journal, out_path, in.fd, &in.ids, &e) != 0) {
        command_usage("batch", "%s", e.msg);
    } else {
        tell_before(&journal);
        code = connect_and_run(&in, &journal);
        batch_journal_close(&journal, &e);
    }
    batch_input_close(&in);
    return code;
}

static int run(int argc, char **argv) {
    const char *words[3], *const subs[] = {"run"};
    struct flags f = {flags, FLAGS, words, 0, 3, false};
    struct err e;
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("batch", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (f.n_words > 0 && strcmp(words[0], "run") != 0) {
        const char *near = nearest_word(words[0], subs, 1);
        return command_usage("batch", "unknown command '%.60s'%s", words[0],
                             near != NULL ? ", did you mean 'run'?" : "; there is 'run'");
    }
    if (f.n_words != 3)
        return command_usage("batch", "usage: sluice batch run IN.jsonl OUT.jsonl [FLAGS]");
    return run_files(words[1], words[2]);
}

const struct command command_batch = {"batch", "run a file of requests, results to a file", run,
                                      help};
