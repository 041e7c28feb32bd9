/* command_bench.c - `sluice bench`: its words, and `engine`: tokens/s of the engine alone. */
#include "base/buf.h"
#include "cli/bench_commands.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/flags.h"
#include "cli/json_value.h"
#include "cli/terminal.h"

#include <string.h>
#include <unistd.h>

static struct bench_engine b; /* the one run of this process: too big for a stack */

static struct {
    const char *model, *threads, *seqs, *contexts, *peer, *peer_model, *kernel, *kv_type;
    int64_t prefill, rounds;
    bool json, precise;
} o;

static const struct flag flags[] = {
    {"model", FLAG_TEXT, &o.model, 0, 0, "FILE", "the GGUF file"},
    {"threads", FLAG_TEXT, &o.threads, 0, 0, "LIST", "compute threads (default 1,2)"},
    {"seqs", FLAG_TEXT, &o.seqs, 0, 0, "LIST", "sequences decoding (default 1,4,16,64)"},
    {"context", FLAG_TEXT, &o.contexts, 0, 0, "LIST",
     "positions before what is measured (default 128,2048,8192)"},
    {"prefill", FLAG_INT, &o.prefill, 16, 8192, "N", "tokens of a prompt (default 512)"},
    {"rounds", FLAG_INT, &o.rounds, 1, 31, "N", "samples of each figure (default 5)"},
    {"kernel", FLAG_TEXT, &o.kernel, 0, 0, "NAME", "auto, scalar, avx2 or avx512 (default auto)"},
    {"kv-type", FLAG_TEXT, &o.kv_type, 0, 0, "NAME", "f16 or int8 (default f16)"},
    {"precise", FLAG_BOOL, &o.precise, 0, 0, "",
     "every figure also with the precise setting, in turn"},
    {"peer", FLAG_TEXT, &o.peer, 0, 0, "PATH", "a llama-bench to compare with, interleaved"},
    {"peer-model", FLAG_TEXT, &o.peer_model, 0, 0, "FILE", "its file (default: --model)"},
    {"json", FLAG_BOOL, &o.json, 0, 0, "", "one JSON object on stdout instead of the table"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void engine_help(FILE *f) {
    fprintf(f,
            "Usage: sluice bench engine --model FILE [FLAGS]\n\n"
            "Measures the engine alone, without a server: prefill, decoding by several sequences "
            "at several\ncontexts and numbers of threads, and beside it, in the same run, the "
            "memory's read bandwidth and the\ninner loop's own int8 rate. Medians and spread of "
            "interleaved rounds. On a machine that does other\nwork the figures are its, not the "
            "engine's.\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nExamples:\n"
               "  sluice bench engine --model m.gguf\n"
               "  sluice bench engine --model m.gguf --threads 8 --seqs 1,32 --context 512 --json\n"
               "  sluice bench engine --model m.gguf --peer ./llama-bench\n");
    fprintf(f, "\nExit codes: 0 measured; 1 usage, a file or a flag is wrong; 2 a step or the peer "
               "failed.\n");
}

static int take_lists(struct err *e) {
    if (bench_list_parse(&b.threads, "threads", o.threads, 1, 64, e) != 0 ||
        bench_list_parse(&b.seqs, "seqs", o.seqs, 1, ENGINE_SPANS_MAX, e) != 0 ||
        bench_list_parse(&b.contexts, "context", o.contexts, 1, HPARAMS_CONTEXT_MAX, e) != 0 ||
        engine_flags_kernel(&b.kernel, o.kernel, e) != 0 ||
        engine_flags_kv_type(&b.kv_type, "kv-type", o.kv_type, e) != 0)
        return -1;
    if (o.peer != NULL && access(o.peer, X_OK) != 0)
        return err_set(e, ERR_NOT_FOUND, "--peer %s is no program that can be run", o.peer);
    b.precise = o.precise;
    b.model_path = o.model;
    b.peer = o.peer;
    b.peer_model = o.peer_model != NULL ? o.peer_model : o.model;
    b.prefill = (uint32_t)o.prefill;
    b.rounds = (uint32_t)o.rounds;
    return 0;
}

static int print(void) {
    if (!o.json) {
        bench_report_table(&b, stdout);
        return CLI_OK;
    }
    json_t *j = bench_report_json(&b);
    return json_value_print(j) == 0 ? CLI_OK : CLI_FAILED;
}

static int measure(void) {
    struct err e;
    int code = CLI_OK;
    if (bench_engine_open(&b, &e) != 0) {
        code = command_usage("bench engine", "%s", e.msg);
    } else if (bench_engine_run(&b, &e) != 0) {
        command_usage("bench engine", "%s", e.msg);
        code = CLI_FAILED;
    } else {
        code = print();
    }
    bench_engine_close(&b);
    return code;
}

static int engine(int argc, char **argv) {
    struct flags f = {flags, FLAGS, NULL, 0, 0, false};
    struct err e;
    memset(&o, 0, sizeof(o));
    o.threads = "1,2";
    o.seqs = "1,4,16,64";
    o.contexts = "128,2048,8192";
    o.prefill = 512;
    o.rounds = 5;
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("bench engine", "%s", e.msg);
    if (f.help) {
        engine_help(stdout);
        return CLI_OK;
    }
    if (o.model == NULL)
        return command_usage("bench engine", "--model FILE is missing");
    if (take_lists(&e) != 0)
        return command_usage("bench engine", "%s", e.msg);
    return measure();
}

static void help(FILE *f) {
    fprintf(f, "Usage: sluice bench WORD [FLAGS]\n\n"
               "  engine    tokens/s of the engine alone, beside what bounds it\n"
               "  mixed     chat beside a full batch: isolation, harvest, identical answers, kill -9\n"
               "  knee      throughput against latency at rising concurrency, and the batch size to take\n"
               "  overload  what is delivered at 1, 1.5 and 3 times the capacity, and whether refusals keep their word\n\n"
               "`sluice bench WORD --help` says more. On a machine that does other work the figures are its, not "
               "ours.\n");
    command_exit_codes(f);
}

static int run(int argc, char **argv) {
    static const struct {
        const char *word;
        int (*run)(int argc, char **argv);
    } words[] = {{"engine", engine}, {"mixed", bench_mixed_command}, {"knee", bench_knee_command},
                 {"overload", bench_overload_command}};
    for (size_t i = 0; argc > 1 && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(argv[1], words[i].word) == 0)
            return words[i].run(argc - 1, argv + 1);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        help(stdout);
        return CLI_OK;
    }
    return command_usage("bench", "say what to measure: sluice bench engine, mixed, knee or overload, then --help");
}

const struct command command_bench = {"bench", "speed: the engine, chat beside batch, the knee, overload", run,
                                      help};
