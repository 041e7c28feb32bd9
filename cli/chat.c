/* chat.c - `sluice chat`: one question over the RPC door, the answer streamed to stdout. */
#include "base/mem.h"
#include "cli/chat_stats.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/json_value.h"
#include "cli/server.h"
#include "cli/terminal.h"
#include "proto/scan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_BYTES_MAX (16u << 20)
#define CANCEL_WAIT_MS 1000

struct chat {
    const char *rpc, *system, *cls, *model;
    int64_t max_tokens, seed;
    double temperature;
    bool stats_line, json, raw;
    bool clean;        /* stdout is a terminal: control characters are not for it */
    struct server server;
    uint64_t id;
    struct buf prompt, text;
    char model_name[SERVER_MODEL_MAX], finish[32];
    struct chat_stats stats;
    int write_errno;
};

static struct chat c; /* the one question of this process */

static const struct flag flags[] = {
    {"rpc", FLAG_TEXT, &c.rpc, 0, 0, "ENDPOINT", "the server (default tcp://127.0.0.1:5570)"},
    {"system", FLAG_TEXT, &c.system, 0, 0, "TEXT", "a system message before the question"},
    {"max-tokens", FLAG_INT, &c.max_tokens, 1, 1e9, "N", "most tokens of the answer"},
    {"temperature", FLAG_REAL, &c.temperature, 0, 100, "X", "0 = always the likeliest token"},
    {"seed", FLAG_INT, &c.seed, 0, 9e15, "N", "the same seed gives the same answer"},
    {"class", FLAG_TEXT, &c.cls, 0, 0, "NAME", "class of service: realtime or batch"},
    {"model", FLAG_TEXT, &c.model, 0, 0, "NAME", "the model (default: the server's first)"},
    {"stats", FLAG_BOOL, &c.stats_line, 0, 0, "", "times in ms and tokens on stderr at the end"},
    {"json", FLAG_BOOL, &c.json, 0, 0, "", "one JSON object at the end instead of a stream"},
    {"raw", FLAG_BOOL, &c.raw, 0, 0, "", "the answer's bytes alone: no newline added, none cleaned"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(f, "Usage: sluice chat \"TEXT\" [FLAGS]\n\n"
               "Asks one question and streams the answer to stdout. TEXT of - or none: stdin.\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nExamples:\n"
               "  sluice chat \"Why is the sky blue?\" --max-tokens 100 --stats\n"
               "  git diff | sluice chat --system \"Write a commit message for this change.\"\n"
               "  sluice chat \"Say hi\" --temperature 0 --json\n");
    command_exit_codes(f);
}

static int read_stdin(struct err *e) {
    char part[16384];
    ssize_t n;
    if (isatty(0))
        fprintf(stderr, "sluice chat: reading the question from the terminal, Ctrl-D ends it\n");
    while ((n = read(0, part, sizeof(part))) != 0) {
        if (n < 0 && errno != EINTR)
            return err_set(e, ERR_IO, "cannot read stdin: %s", strerror(errno));
        if (n > 0)
            buf_add(&c.prompt, part, (size_t)n);
        if (c.prompt.bad)
            return err_set(e, ERR_TOO_LARGE, "the text is longer than %u MiB",
                           PROMPT_BYTES_MAX >> 20);
    }
    if (c.prompt.len > 0 && c.prompt.p[c.prompt.len - 1] == '\n')
        c.prompt.len--; /* the newline of `echo` is not part of the question */
    return 0;
}

static int read_prompt(const struct flags *f, struct err *e) {
    buf_init(&c.prompt, PROMPT_BYTES_MAX);
    if (f->n_words == 0 || strcmp(f->words[0], "-") == 0) {
        if (read_stdin(e) != 0)
            return -1;
    } else {
        buf_adds(&c.prompt, f->words[0]);
    }
    if (c.prompt.bad || !scan_utf8(c.prompt.p, c.prompt.len))
        return err_set(e, ERR_BAD_VALUE, "the text is not UTF-8, or too long");
    if (c.system != NULL && !scan_utf8(c.system, strlen(c.system)))
        return err_set(e, ERR_BAD_VALUE, "--system is not UTF-8");
    return c.prompt.len > 0 ? 0 : err_set(e, ERR_MISSING, "no text; say what to ask");
}

static void put_key(struct buf *b, const char *key) {
    value_put_str(b, key, strlen(key));
}

static void put_message(struct buf *b, const char *role, const char *text, size_t n) {
    value_put_map(b, 2);
    put_key(b, "role");
    put_key(b, role);
    put_key(b, "content");
    value_put_str(b, text, n);
}

static void put_body(struct buf *b) {
    uint32_t extra = (c.max_tokens > 0) + (c.seed >= 0) + (c.temperature >= 0);
    value_put_map(b, 4 + extra);
    put_key(b, "model");
    put_key(b, c.model_name);
    put_key(b, "messages");
    value_put_array(b, c.system != NULL ? 2 : 1);
    if (c.system != NULL)
        put_message(b, "system", c.system, strlen(c.system));
    put_message(b, "user", c.prompt.p, c.prompt.len);
    put_key(b, "stream");
    value_put_bool(b, true);
    put_key(b, "stream_options");
    value_put_map(b, 2);
    put_key(b, "include_usage");
    value_put_bool(b, true);
    put_key(b, "continuous_usage_stats");
    value_put_bool(b, true);
    if (c.max_tokens > 0) {
        put_key(b, "max_tokens");
        value_put_int(b, c.max_tokens);
    }
    if (c.seed >= 0) {
        put_key(b, "seed");
        value_put_int(b, c.seed);
    }
    if (c.temperature >= 0) {
        put_key(b, "temperature");
        value_put_float(b, c.temperature);
    }
}

/* Prints a piece of the answer; a failure is kept for the loop. */
static void show(const char *p, size_t n) {
    struct buf clean = {0};
    buf_add(&c.text, p, n);
    if (c.json)
        return;
    if (c.clean) {
        terminal_clean(&clean, p, n);
        p = clean.p;
        n = clean.len;
    }
    if (terminal_write(1, p, n) != 0)
        c.write_errno = errno;
    buf_deinit(&clean);
}

static uint64_t number(const struct value *map, const char *key) {
    const struct value *v = value_get(map, key);
    return v != NULL && v->kind == VALUE_UINT ? v->as.u : 0;
}

static void take_usage(const struct value *body) {
    const struct value *usage = value_get(body, "usage");
    if (usage == NULL || usage->kind != VALUE_MAP)
        return;
    c.stats.tokens = number(usage, "completion_tokens");
    c.stats.prompt_tokens = number(usage, "prompt_tokens");
}

static void take_delta(const struct value *body) {
    const struct value *choices = value_get(body, "choices");
    take_usage(body);
    if (choices == NULL || choices->kind != VALUE_ARRAY || choices->n == 0)
        return;
    const struct value *choice = &choices->as.items[0];
    const struct value *text = value_get(value_get(choice, "delta"), "content");
    const struct value *finish = value_get(choice, "finish_reason");
    if (text != NULL && text->kind == VALUE_STR && text->n_bytes > 0) {
        chat_stats_event(&c.stats, clock_ms(), c.stats.tokens);
        show(text->as.s, text->n_bytes);
    }
    if (finish != NULL && finish->kind == VALUE_STR)
        snprintf(c.finish, sizeof(c.finish), "%.*s",
                 (int)(finish->n_bytes < sizeof(c.finish) ? finish->n_bytes : 31), finish->as.s);
}

static int no_server(const struct err *e) {
    fprintf(stderr, "sluice chat: no server at %s (%s); start one with `sluice up --model FILE`\n",
            c.server.endpoint, e->msg);
    return CLI_NO_SERVER;
}

/* Tells the server to stop, and waits a moment for its word that it did. */
static void cancel(void) {
    struct buf frame = {0};
    struct rpc_msg m;
    struct err e;
    bool ended = false;
    rpc_put_cancel(&frame, c.id);
    double deadline = clock_ms() + CANCEL_WAIT_MS;
    bool sent = server_send_wait(&c.server, &frame, &e) == 0;
    while (sent && !ended && clock_ms() < deadline) {
        enum server_event event = server_next(&c.server, &m, CANCEL_WAIT_MS, &e);
        if (event == SERVER_MESSAGE) {
            ended = m.id == c.id && (m.kind == RPC_DONE || m.kind == RPC_ERROR);
            rpc_msg_deinit(&m);
        }
        ended = ended || event == SERVER_LOST || event == SERVER_INTERRUPT;
    }
    buf_deinit(&frame);
}

static int failed(const struct rpc_msg *m) {
    char text[ERR_MSG_MAX];
    server_error_text(m, text, sizeof(text));
    fprintf(stderr, "%ssluice chat: %s (%u)\n", c.text.len > 0 && !c.json ? "\n" : "", text,
            m->status);
    return CLI_FAILED;
}

/* One message of ours; -1 = goes on, else the exit code. */
static int take(const struct rpc_msg *m) {
    if (m->id != c.id)
        return -1;
    if (m->kind == RPC_ERROR)
        return failed(m);
    if (m->kind == RPC_DELTA)
        take_delta(m->body);
    return m->kind == RPC_DONE ? CLI_OK : -1;
}

/* Until the answer's end. */
static int follow(void) {
    struct err e;
    int code = -1;
    while (code < 0) {
        struct rpc_msg m;
        enum server_event event = server_next(&c.server, &m, -1, &e);
        if (event == SERVER_INTERRUPT) {
            cancel();
            return CLI_INTERRUPTED;
        }
        if (event == SERVER_LOST) {
            fprintf(stderr, "\nsluice chat: the connection was lost (%s)\n", e.msg);
            return CLI_NO_SERVER;
        }
        if (event != SERVER_MESSAGE)
            continue;
        code = take(&m);
        rpc_msg_deinit(&m);
        if (c.write_errno != 0) {
            cancel();
            if (c.write_errno == EPIPE) /* `| head -1`: the reader has what it wanted */
                return CLI_OK;
            fprintf(stderr, "sluice chat: cannot write: %s\n", strerror(c.write_errno));
            return CLI_FAILED;
        }
    }
    chat_stats_end(&c.stats, clock_ms());
    return code;
}

static void print_json(void) {
    json_t *j = json_pack(
        "{s:s%,s:s,s:s,s:{s:I,s:I},s:{s:f,s:f,s:f,s:f}}", "text", c.text.p != NULL ? c.text.p : "",
        c.text.len, "finish_reason", c.finish, "model", c.model_name, "usage", "prompt_tokens",
        (json_int_t)c.stats.prompt_tokens, "completion_tokens", (json_int_t)c.stats.tokens, "stats",
        "ttft_ms", chat_stats_ttft_ms(&c.stats), "token_p50_ms", chat_stats_gap_ms(&c.stats, 0.5),
        "token_max_ms", chat_stats_gap_ms(&c.stats, 1), "total_ms",
        c.stats.end_ms - c.stats.sent_ms);
    (void)json_value_print(j);
}

static int ask(void) {
    struct buf body = {0}, frame = {0};
    struct err e;
    c.id = server_new_id(&c.server);
    put_body(&body);
    server_put_request(&frame, c.id, "/v1/chat/completions", c.cls, &body);
    chat_stats_start(&c.stats, clock_ms());
    int rc = server_send_wait(&c.server, &frame, &e);
    buf_deinit(&frame);
    buf_deinit(&body);
    if (rc != 0)
        return no_server(&e);
    int code = follow();
    if (code == CLI_OK && c.write_errno == 0) {
        if (c.json)
            print_json();
        else if (!c.raw && (c.text.len == 0 || c.text.p[c.text.len - 1] != '\n'))
            terminal_write(1, "\n", 1);
    }
    if (code == CLI_OK && c.stats_line)
        chat_stats_print(&c.stats, stderr);
    return code;
}

static int connect_and_ask(void) {
    struct err e;
    if (server_init(&c.server, c.rpc, &e) != 0)
        return command_usage("chat", "--rpc: %s", e.msg);
    if (server_open(&c.server, &e) != 0)
        return no_server(&e);
    if (c.model != NULL) {
        if (strlen(c.model) >= sizeof(c.model_name) || !scan_utf8(c.model, strlen(c.model)))
            return command_usage("chat", "--model is too long, or not UTF-8");
        strcpy(c.model_name, c.model);
        return ask();
    }
    enum server_event event = server_model(&c.server, c.model_name, &e);
    if (event == SERVER_INTERRUPT)
        return CLI_INTERRUPTED;
    if (event == SERVER_LOST)
        return no_server(&e);
    if (event == SERVER_MESSAGE)
        return ask();
    fprintf(stderr, "sluice chat: %s\n", e.msg);
    return CLI_FAILED;
}

static int run(int argc, char **argv) {
    const char *words[1];
    struct flags f = {flags, FLAGS, words, 0, 1, false};
    struct err e;
    c.max_tokens = c.seed = -1;
    c.temperature = -1;
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("chat", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (read_prompt(&f, &e) != 0)
        return command_usage("chat", "%s", e.msg);
    c.clean = !c.raw && isatty(1);
    int code = connect_and_ask();
    server_deinit(&c.server);
    chat_stats_deinit(&c.stats);
    buf_deinit(&c.prompt);
    buf_deinit(&c.text);
    return code;
}

const struct command command_chat = {"chat", "ask one question, the answer streams", run, help};
