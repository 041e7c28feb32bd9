/* command_explain.c - `sluice explain ID`: where a request's time went. */
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/http_client.h"
#include "cli/json_value.h"
#include "cli/terminal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 10e3
#define BAR 40

static struct {
    const char *url, *key;
    bool json;
} o;

static const struct flag flags[] = {
    {"url", FLAG_TEXT, &o.url, 0, 0, "URL", "of the server (default http://127.0.0.1:8000)"},
    {"key", FLAG_TEXT, &o.key, 0, 0, "KEY", "API key (default: SLUICE_API_KEY); only its tenant's requests are found"},
    {"json", FLAG_BOOL, &o.json, 0, 0, "", "what the server says, as it is"},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void help(FILE *f) {
    fprintf(f, "Usage: sluice explain ID [FLAGS]\n\n"
               "Shows where the time of a request that ended went, cause by cause: queues, its tenant's limits, waiting "
               "for\nbatch, prefill, decode, preemption, network, a slow reader. ID: of the answer (chatcmpl-..., "
               "cmpl-...), or the\nx-request-id. The server keeps the last ones (--explain-kept).\n\n");
    flags_help(f, flags, FLAGS);
    fprintf(f, "\nExample:\n  sluice explain chatcmpl-5f0c2a9be1d04c7788aa1122\n");
    command_exit_codes(f);
}

static const char *text_of(const json_t *j, const char *name) {
    const char *s = json_string_value(json_object_get(j, name));
    return s != NULL ? s : "";
}

static double number_of(const json_t *j, const char *name) {
    return json_number_value(json_object_get(j, name));
}

static int by_ms(const void *a, const void *b) {
    double x = number_of(*(json_t *const *)a, "ms"), y = number_of(*(json_t *const *)b, "ms");
    return x < y ? 1 : x > y ? -1 : 0;
}

static void print_parts(const json_t *parts) {
    const json_t *list[64];
    size_t n = json_array_size(parts);
    n = n < 64 ? n : 64;
    for (size_t i = 0; i < n; i++)
        list[i] = json_array_get(parts, i);
    qsort(list, n, sizeof(*list), by_ms);
    for (size_t i = 0; i < n; i++) {
        double share = number_of(list[i], "share");
        int width = (int)(share * BAR + 0.5);
        printf("  %-17s %10.1f ms %5.1f %%  %.*s%*s  %s\n", text_of(list[i], "cause"), number_of(list[i], "ms"),
               100 * share, width, "########################################", BAR - width, "",
               text_of(list[i], "meaning"));
    }
}

static void print(const json_t *j) {
    printf("%s  class %s, worker %s, finish %s\n", text_of(j, "id"), text_of(j, "class"), text_of(j, "worker"),
           text_of(j, "finish"));
    printf("%.1f ms in all, first token after %.1f ms; %.0f tokens in (%.0f cached), %.0f out; preempted %.0f times\n\n",
           number_of(j, "wall_ms"), number_of(j, "ttft_ms"), number_of(j, "prompt_tokens"),
           number_of(j, "cached_tokens"), number_of(j, "output_tokens"), number_of(j, "preemptions"));
    print_parts(json_object_get(j, "parts"));
    printf("\nmost of it: %s. To shorten it: %s.\n", text_of(j, "top"), text_of(j, "advice"));
}

static int show(const struct http_call *call) {
    json_error_t why;
    json_t *j = json_loadb(call->reply.p, call->reply.len, 0, &why);
    int code = CLI_OK;
    if (j == NULL) {
        command_usage("explain", "the server's reply is no JSON: %s", why.text);
        return CLI_FAILED;
    }
    if (call->status != 200) {
        command_usage("explain", "%s", text_of(json_object_get(j, "error"), "message"));
        code = CLI_FAILED;
    } else if (o.json) {
        code = json_value_print(json_incref(j)) == 0 ? CLI_OK : CLI_FAILED;
    } else {
        print(j);
    }
    json_decref(j);
    return code;
}

static int ask(const char *id) {
    struct http_client *c;
    struct err e;
    char path[400];
    snprintf(path, sizeof(path), "/v1/requests/%.300s/explain", id);
    struct http_call call = {.path = path};
    if (http_client_create(&c, o.url, o.key, &e) != 0)
        return command_usage("explain", "%s", e.msg);
    int code = CLI_NO_SERVER;
    if (http_client_wait(c, &call, TIMEOUT_MS, &e) != 0)
        command_usage("explain", "%s; is a server at %s?", e.msg, o.url);
    else
        code = show(&call);
    http_client_destroy(&c);
    http_call_deinit(&call);
    return code;
}

static int run(int argc, char **argv) {
    const char *words[2];
    struct flags f = {flags, FLAGS, words, 0, 1, false};
    struct err e;
    memset(&o, 0, sizeof(o));
    o.url = "http://127.0.0.1:8000";
    o.key = getenv("SLUICE_API_KEY");
    if (flags_parse(&f, argc, argv, &e) != 0)
        return command_usage("explain", "%s", e.msg);
    if (f.help) {
        help(stdout);
        return CLI_OK;
    }
    if (f.n_words != 1)
        return command_usage("explain", "say which request: sluice explain ID");
    return ask(words[0]);
}

const struct command command_explain = {"explain", "where a request's time went", run, help};
