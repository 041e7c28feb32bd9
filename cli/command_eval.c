/* command_eval.c - `sluice eval`: is this file, or this KV type, good enough for my texts? */
#include "base/mem.h"
#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/eval_plot.h"
#include "cli/eval_report.h"
#include "cli/flags.h"
#include "cli/json_value.h"
#include "cli/terminal.h"
#include "config/config.h"

#include <errno.h>
#include <string.h>

#define TEXT_BYTES_MAX (64u << 20)

static struct eval_run r; /* the one run of this process */

static struct {
    const char *model, *against, *kv_type, *against_kv, *kernel, *plot;
    int64_t ctx, self, threads;
    bool json, chat, past_end, precise, against_precise;
} o;

static const struct flag flags[] = {
    {"model", FLAG_TEXT, &o.model, 0, 0, "FILE", "A: the GGUF file to judge"},
    {"against", FLAG_TEXT, &o.against, 0, 0, "FILE", "B: the reference, with the same vocabulary"},
    {"kv-type", FLAG_TEXT, &o.kv_type, 0, 0, "NAME", "A's K and V: f16 or int8 (default f16)"},
    {"against-kv-type", FLAG_TEXT, &o.against_kv, 0, 0, "NAME",
     "B's; without --against B is A's file"},
    {"precise", FLAG_BOOL, &o.precise, 0, 0, "", "A with 16-bit inputs where 8 bits cost most"},
    {"against-precise", FLAG_BOOL, &o.against_precise, 0, 0, "",
     "B so; without --against B is A's file"},
    {"ctx", FLAG_INT, &o.ctx, 2, HPARAMS_CONTEXT_MAX, "N",
     "positions of a window (default 2048, or less)"},
    {"self", FLAG_INT, &o.self, 1, HPARAMS_CONTEXT_MAX, "N",
     "A writes N tokens after the text; those are judged"},
    {"past-end", FLAG_BOOL, &o.past_end, 0, 0, "", "with --self: an end token does not end it"},
    {"chat", FLAG_BOOL, &o.chat, 0, 0, "", "the text is a user's message (chat template)"},
    {"threads", FLAG_INT, &o.threads, 1, 64, "N", "compute threads (default: all cores)"},
    {"kernel", FLAG_TEXT, &o.kernel, 0, 0, "NAME", "auto, scalar, avx2 or avx512 (default auto)"},
    {"plot", FLAG_TEXT, &o.plot, 0, 0, "OUT.svg", "drift over the position, drawn"},
    {"json", FLAG_BOOL, &o.json, 0, 0, "", "one JSON object on stdout instead of the table"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(f,
            "Usage: sluice eval --model A [--against B] TEXT-FILE [FLAGS]\n\n"
            "Reads a text of your own with A, and with B when given, and says how well A predicts "
            "it (perplexity),\nhow far it is from B (KL, top-1 agreement) and whether the two "
            "drift apart as the text grows, in a\ntable, a line and a plot. Use it before "
            "deploying a "
            "quantisation or INT8 K and V. With --self A writes\non by itself and B is forced "
            "along: would it have written the same?\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nExamples:\n"
               "  sluice eval --model q4.gguf --against f16.gguf prompts.txt --plot drift.svg\n"
               "  sluice eval --model m.gguf --kv-type int8 --against-kv-type f16 long.txt\n"
               "  sluice eval --model q4.gguf --against f16.gguf --self 1024 --chat ask.txt\n");
    fprintf(f, "\nExit codes: 0 measured (good or bad); 1 usage, a file or a flag is wrong; 2 a "
               "step failed, or the plot\ncould not be written.\n");
}

static int read_file(const char *path, struct buf *out, struct err *e) {
    char part[65536];
    size_t n;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return err_set(e, ERR_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    while ((n = fread(part, 1, sizeof(part), f)) > 0)
        buf_add(out, part, n);
    bool bad = ferror(f) != 0;
    fclose(f);
    if (bad)
        return err_set(e, ERR_IO, "cannot read %s", path);
    if (out->bad)
        return err_set(e, ERR_TOO_LARGE, "%s is longer than %u MiB", path, TEXT_BYTES_MAX >> 20);
    return 0;
}

static int chat_ids(struct tokenizer_scratch *s, const struct buf *text, struct id_list *ids,
                    struct err *e) {
    json_t *messages = json_pack("[{s:s,s:s%}]", "role", "user", "content",
                                 text->p != NULL ? text->p : "", text->len);
    if (messages == NULL)
        return err_set(e, ERR_BAD_VALUE, "the text is not UTF-8");
    int rc = model_chat_ids(&r.a.model, s, messages, true, 0, ids, e);
    json_decref(messages);
    return rc;
}

static int tokens_of(const struct buf *text, struct id_list *ids, struct err *e) {
    const struct model *m = &r.a.model;
    struct tokenizer_scratch *s = tokenizer_scratch_create(m->tok);
    int32_t bos = vocab_bos(m->vocab);
    int rc = -1;
    if (s == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the tokenizer");
    if (o.chat)
        rc = chat_ids(s, text, ids, e);
    else if (vocab_add_bos(m->vocab) && bos >= 0 && id_list_add(ids, &bos, 1) != 0)
        err_set(e, ERR_NO_MEMORY, "no memory for the tokens");
    else
        rc = tokenizer_encode(m->tok, s, text->p, text->len, false, 0, ids, e);
    tokenizer_scratch_destroy(&s);
    return rc;
}

static int write_plot(struct err *e) {
    char a[192], b[192], title[512];
    struct buf svg = {0};
    eval_report_side(&r.a, a, sizeof(a));
    eval_report_side(&r.b, b, sizeof(b));
    snprintf(title, sizeof(title), "%s%s%s", a, r.b.path != NULL ? " against " : "",
             r.b.path != NULL ? b : "");
    eval_plot_svg(&svg, &r.stats, title);
    FILE *f = fopen(o.plot, "we");
    bool ok = f != NULL && !svg.bad && fwrite(svg.p, 1, svg.len, f) == svg.len;
    ok = f != NULL && fclose(f) == 0 && ok;
    buf_deinit(&svg);
    return ok ? 0 : err_set(e, ERR_IO, "cannot write %s: %s", o.plot, strerror(errno));
}

static int print_json(void) {
    json_t *j = eval_report_json(&r, o.self > 0);
    return json_value_print(j);
}

static int judge(struct id_list *ids) {
    struct err e;
    int rc = o.self > 0 ? eval_self(&r, ids, (uint32_t)o.self, o.past_end, &e)
                        : eval_text(&r, ids->ids, ids->n, &e);
    if (rc != 0) {
        command_usage("eval", "%s", e.msg);
        return e.code == ERR_BAD_VALUE ? CLI_USAGE : CLI_FAILED;
    }
    if (!o.json)
        eval_report_table(&r, o.self > 0, stdout);
    else if (print_json() != 0)
        return CLI_FAILED;
    if (o.plot != NULL && write_plot(&e) != 0) {
        command_usage("eval", "%s", e.msg);
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int open_and_judge(const char *path) {
    struct err e;
    struct buf text;
    struct id_list ids = {0};
    int code = CLI_USAGE;
    buf_init(&text, TEXT_BYTES_MAX);
    if (read_file(path, &text, &e) != 0 || eval_open(&r, &e) != 0 ||
        tokens_of(&text, &ids, &e) != 0)
        command_usage("eval", "%s", e.msg);
    else
        code = judge(&ids);
    eval_close(&r);
    id_list_deinit(&ids);
    buf_deinit(&text);
    return code;
}

static uint32_t all_cores(void) {
    struct settings s;
    settings_defaults(&s);
    return (uint32_t)settings_threads(&s, false);
}

static int take(struct err *e) {
    if (engine_flags_kernel(&r.kernel, o.kernel, e) != 0 ||
        engine_flags_kv_type(&r.a.kv_type, "kv-type", o.kv_type, e) != 0 ||
        engine_flags_kv_type(&r.b.kv_type, "against-kv-type", o.against_kv, e) != 0)
        return -1;
    if (o.past_end && o.self == 0)
        return err_set(e, ERR_BAD_VALUE, "--past-end belongs to --self");
    r.a.path = o.model;
    r.a.precise = o.precise;
    r.b.precise = o.against_precise;
    bool own = o.against_kv != NULL || o.against_precise; /* B is A's file, run otherwise */
    r.b.path = o.against != NULL ? o.against : own ? o.model : NULL;
    r.ctx = (uint32_t)o.ctx;
    r.threads = o.threads > 0 ? (uint32_t)o.threads : all_cores();
    return 0;
}

static int run(int argc, char **argv) {
    const char *words[1];
    struct flags f = {flags, FLAGS, words, 0, 1, false};
    struct err e;
    memset(&o, 0, sizeof(o));
    memset(&r, 0, sizeof(r));
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("eval", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (o.model == NULL)
        return command_usage("eval", "--model FILE is missing");
    if (f.n_words == 0)
        return command_usage("eval", "a TEXT-FILE is missing: the text to judge with");
    if (take(&e) != 0)
        return command_usage("eval", "%s", e.msg);
    return open_and_judge(words[0]);
}

const struct command command_eval = {"eval", "judge a model file or KV type on your own texts", run,
                                     help};
