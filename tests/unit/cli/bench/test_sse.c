/* Server-sent events: whole, cut at every byte, every line end, fields, comments, what is no event.
 */
#include "base/buf.h"
#include "cli/bench_answer.h"
#include "cli/sse.h"
#include "tests/common/test_run.h"

#include <string.h>

static struct buf seen;

static void note(void *ctx, const char *name, const char *data, size_t n) {
    (void)ctx;
    buf_addf(&seen, "<%s|%.*s>", name, (int)n, data);
}

/* All events of `text`, pushed in two parts cut at `cut`, or byte by byte (cut SIZE_MAX). */
static const char *events(const char *text, size_t cut) {
    struct sse s;
    size_t n = strlen(text);
    buf_clear(&seen);
    sse_init(&s, note, NULL);
    if (cut == SIZE_MAX) {
        for (size_t i = 0; i < n; i++)
            ck_assert_int_eq(sse_push(&s, text + i, 1), 0);
    } else {
        ck_assert_int_eq(sse_push(&s, text, cut), 0);
        ck_assert_int_eq(sse_push(&s, text + cut, n - cut), 0);
    }
    sse_deinit(&s);
    return buf_str(&seen);
}

static const struct {
    const char *text, *events;
} cases[] = {
    {"data: a\n\n", "<|a>"},
    {"data:a\n\ndata:  b\n\n", "<|a><| b>"},
    {"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", "<|a><|b><|c>"},
    {"data: one\ndata: two\n\n", "<|one\ntwo>"},
    {"event: error\ndata: {\"x\":1}\n\ndata: y\n\n", "<error|{\"x\":1}><|y>"},
    {": comment\n\ndata: a\n: another\n\n", "<|a>"},
    {"\xef\xbb\xbf"
     "data: a\n\n",
     "<|a>"},
    {"event: x\n\ndata: a\n\n", "<|a>"}, /* a name alone is no event and is forgotten */
    {"data\n\n", "<|>"},                 /* a field without a value */
    {"datax: a\nid: 3\nretry: 5\n\n", ""},
    {"data: a\n\ndata: cut off", "<|a>"},
    {"data: a\n\ndata: cut off\n", "<|a>"},
    {"", ""},
};

START_TEST(events_come_whole_however_they_are_cut) {
    const char *text = cases[_i].text;
    for (size_t cut = 0; cut <= strlen(text); cut++)
        ck_assert_str_eq(events(text, cut), cases[_i].events);
    ck_assert_str_eq(events(text, SIZE_MAX), cases[_i].events);
    buf_deinit(&seen);
}
END_TEST

static const char reply[] =
    "data: {\"choices\":[{\"index\":0,\"text\":\"He\",\"finish_reason\":null}],"
    "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n"
    "data: {\"choices\":[{\"index\":0,\"text\":\"l\\u00f6\",\"finish_reason\":null}],"
    "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":3}}\n\n"
    "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}],"
    "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n"
    "data: [DONE]\n\n";

/* The reply in two parts that came at 10 and 20 ms. */
static void read_cut(struct answer *a, const char *text, size_t cut, bool complete) {
    struct http_chunk chunks[2] = {{cut, 10}, {strlen(text), 20}};
    struct http_call call = {.status = 200, .complete = complete, .chunks = chunks, .n_chunks = 2};
    buf_adds(&call.reply, text);
    ck_assert_int_eq(answer_read(a, &call), 0);
    buf_deinit(&call.reply);
}

START_TEST(an_answer_says_what_came_and_when) {
    size_t second =
        (size_t)(strstr(reply, "data: {\"choices\":[{\"index\":0,\"text\":\"l") - reply);
    for (size_t cut = 0; cut <= strlen(reply); cut++) {
        struct answer a;
        read_cut(&a, reply, cut, true);
        ck_assert(a.whole);
        ck_assert_uint_eq(a.n_pieces, 2);
        ck_assert_str_eq(buf_str(&a.text), "Hel\xc3\xb6");
        ck_assert_uint_eq(a.tokens, 4);
        ck_assert_uint_eq(a.prompt_tokens, 3);
        ck_assert_uint_eq(a.pieces[1].tokens, 3);
        ck_assert_str_eq(a.finish, "length");
        /* An event came when its last byte, the blank line, did. */
        ck_assert_double_eq(answer_first_ms(&a), cut >= second ? 10 : 20);
        ck_assert_double_eq(answer_last_ms(&a),
                            cut >= strlen(reply) - 100 ? answer_last_ms(&a) : 20);
        answer_deinit(&a);
    }
}
END_TEST

START_TEST(what_is_cut_off_or_an_error_is_not_whole) {
    struct answer a, b;
    read_cut(&a, reply, 5, false);
    ck_assert(!a.whole);
    ck_assert_uint_eq(a.n_pieces, 2);
    read_cut(&b, reply, 5, true);
    ck_assert(answer_same(&b, &b));
    ck_assert(!answer_same(&a, &b));
    answer_deinit(&a);
    read_cut(&a,
             "data: {\"choices\":[{\"text\":\"x\"}]}\n\n"
             "event: error\ndata: {\"error\":{\"message\":\"gone\"}}\n\n",
             3, true);
    ck_assert(!a.whole && a.error);
    ck_assert_str_eq(a.bad, "gone");
    answer_deinit(&a);
    answer_deinit(&b);
    read_cut(&a, "", 0, true);
    ck_assert(!a.whole);
    ck_assert_double_lt(answer_first_ms(&a), 0);
    answer_deinit(&a);
}
END_TEST

START_TEST(chat_streams_and_servers_without_usage) {
    struct answer a;
    read_cut(&a,
             "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
             "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
             "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n"
             "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
             7, true);
    ck_assert(a.whole);
    ck_assert_uint_eq(a.n_pieces, 2);
    ck_assert_uint_eq(a.tokens, 2);
    ck_assert_str_eq(a.finish, "stop");
    answer_deinit(&a);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sse");
    TCase *t = tcase_create("sse");
    tcase_add_loop_test(t, events_come_whole_however_they_are_cut, 0,
                        (int)(sizeof(cases) / sizeof(cases[0])));
    tcase_add_test(t, an_answer_says_what_came_and_when);
    tcase_add_test(t, what_is_cut_off_or_an_error_is_not_whole);
    tcase_add_test(t, chat_streams_and_servers_without_usage);
    suite_add_tcase(s, t);
    return test_run(s);
}
