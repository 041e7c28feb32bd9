/* bench_answer.c - see bench_answer.h. */
#include "cli/bench_answer.h"
#include "base/mem.h"
#include "cli/sse.h"

#include <jansson.h>
#include <string.h>

struct reading {
    struct answer *a;
    double now_ms;
    bool done, no_memory;
};

static void add_piece(struct reading *r, const char *text, size_t n) {
    struct answer *a = r->a;
    if (a->n_pieces == a->cap) {
        uint32_t cap = a->cap == 0 ? 16 : a->cap * 2;
        struct answer_piece *p = mem_realloc(a->pieces, cap * sizeof(*p));
        if (p == NULL) {
            r->no_memory = true;
            return;
        }
        a->pieces = p;
        a->cap = cap;
    }
    a->n_pieces++;
    a->pieces[a->n_pieces - 1] = (struct answer_piece){r->now_ms, a->n_pieces};
    buf_add(&a->text, text, n);
}

static void take_choice(struct reading *r, const json_t *choice) {
    const json_t *text = json_object_get(choice, "text");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (text == NULL)
        text = json_object_get(json_object_get(choice, "delta"), "content");
    if (json_string_length(text) > 0)
        add_piece(r, json_string_value(text), json_string_length(text));
    if (finish != NULL) {
        snprintf(r->a->finish, sizeof(r->a->finish), "%s", finish);
        r->a->finish_ms = r->now_ms;
    }
}

static void take_usage(struct answer *a, const json_t *usage, bool piece) {
    json_int_t made = json_integer_value(json_object_get(usage, "completion_tokens"));
    json_int_t in = json_integer_value(json_object_get(usage, "prompt_tokens"));
    if (made > 0)
        a->tokens = (uint32_t)made;
    if (in > 0)
        a->prompt_tokens = (uint32_t)in;
    if (made > 0 && piece)
        a->pieces[a->n_pieces - 1].tokens = (uint32_t)made;
}

static void on_event(void *ctx, const char *name, const char *data, size_t n) {
    struct reading *r = ctx;
    struct answer *a = r->a;
    uint32_t before = a->n_pieces;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        r->done = true;
        return;
    }
    json_t *j = json_loadb(data, n, JSON_ALLOW_NUL, NULL);
    if (j == NULL)
        snprintf(a->bad, sizeof(a->bad), "an event is no JSON: %.40s", data);
    if (strcmp(name, "error") == 0 || json_object_get(j, "error") != NULL) {
        const char *text =
            json_string_value(json_object_get(json_object_get(j, "error"), "message"));
        snprintf(a->bad, sizeof(a->bad), "%s", text != NULL ? text : "an error without a message");
        a->error = true;
    }
    const json_t *choices = json_object_get(j, "choices");
    if (json_array_size(choices) > 0)
        take_choice(r, json_array_get(choices, 0));
    take_usage(a, json_object_get(j, "usage"), a->n_pieces > before);
    json_decref(j);
}

int answer_read(struct answer *a, const struct http_call *call) {
    struct reading r = {.a = a};
    struct sse s;
    size_t at = 0;
    int rc = 0;
    memset(a, 0, sizeof(*a));
    sse_init(&s, on_event, &r);
    for (uint32_t i = 0; rc == 0 && call->status == 200 && i < call->n_chunks; i++) {
        r.now_ms = call->chunks[i].at_ms;
        rc = sse_push(&s, call->reply.p + at, call->chunks[i].end - at);
        at = call->chunks[i].end;
    }
    sse_deinit(&s);
    if (a->tokens == 0)
        a->tokens = a->n_pieces;
    a->whole = r.done && !a->error && a->finish[0] != '\0' && call->complete && a->bad[0] == '\0';
    return rc != 0 || r.no_memory || a->text.bad ? -1 : 0;
}

void answer_deinit(struct answer *a) {
    mem_free(a->pieces);
    a->pieces = NULL;
    a->n_pieces = a->cap = 0;
    buf_deinit(&a->text);
}

bool answer_same(const struct answer *a, const struct answer *b) {
    return a->whole && b->whole && a->tokens == b->tokens && a->text.len == b->text.len &&
           strcmp(a->finish, b->finish) == 0 &&
           (a->text.len == 0 || memcmp(a->text.p, b->text.p, a->text.len) == 0);
}

double answer_first_ms(const struct answer *a) {
    if (a->n_pieces > 0)
        return a->pieces[0].at_ms;
    return a->finish[0] != '\0' ? a->finish_ms : -1;
}

double answer_last_ms(const struct answer *a) {
    if (a->finish[0] != '\0')
        return a->finish_ms;
    return a->n_pieces > 0 ? a->pieces[a->n_pieces - 1].at_ms : -1;
}
