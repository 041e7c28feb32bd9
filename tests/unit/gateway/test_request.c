/* Requests from body to last byte over a scripted worker: shapes of replies and streams, usage,
 * scores, ends. */
#include "base/mem.h"
#include "tests/unit/gateway/gateway_rig.h"

#include <string.h>

static struct rig r;

static void setup(void)
{
    rig_open(&r, NULL);
    rig_join(&r, 512);
}

static void teardown(void)
{
    rig_idle(&r);
    rig_close(&r);
}

static const json_t *at(const json_t *j, const char *path)
{
    char part[32];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        j = part[0] >= '0' && part[0] <= '9' ? json_array_get(j, strtoul(part, NULL, 10))
                                             : json_object_get(j, part);
        ck_assert_msg(j != NULL, "no %s", path);
        path += n + (path[n] == '.');
    }
    return j;
}

static const char *text_at(const json_t *j, const char *path)
{
    return json_string_value(at(j, path));
}

static long long int_at(const json_t *j, const char *path)
{
    ck_assert(json_is_integer(at(j, path)));
    return json_integer_value(at(j, path));
}

/* The ACK of a finish comes by itself. */
static void acked(const struct msg_submit *s)
{
    rig_expect(&r, MSG_ACK, s->sub);
}

#define CHAT                                                                                       \
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":20"

START_TEST(chat_whole)
{
    struct rig_door d;
    struct msg keep;
    rig_post(&r, &d, ENDPOINT_CHAT, "", CHAT "}");
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert_uint_eq(s.n_ids, s.n_prompt);
    ck_assert_uint_eq(s.max_total, s.n_prompt + 20);
    ck_assert_int_eq(s.rank, 0);
    rig_answer(&r, &s, "hello", FINISH_LENGTH);
    json_t *j = rig_body(&r, &d);
    ck_assert_str_eq(text_at(j, "object"), "chat.completion");
    ck_assert_int_eq(strncmp(text_at(j, "id"), "chatcmpl-", 9), 0);
    ck_assert_str_eq(text_at(j, "model"), "tiny");
    ck_assert_str_eq(text_at(j, "choices.0.message.content"), "hello");
    ck_assert_str_eq(text_at(j, "choices.0.message.role"), "assistant");
    ck_assert(json_is_null(at(j, "choices.0.message.refusal")) &&
              json_is_null(at(j, "choices.0.logprobs")));
    ck_assert_str_eq(text_at(j, "choices.0.finish_reason"), "length");
    ck_assert_int_eq(int_at(j, "usage.prompt_tokens"), s.n_prompt);
    ck_assert_int_eq(int_at(j, "usage.completion_tokens"), 5);
    ck_assert_int_eq(int_at(j, "usage.total_tokens"), s.n_prompt + 5);
    ck_assert_ptr_null(json_object_get(j, "service_tier"));
    json_decref(j);
    acked(&s);
    msg_deinit(&keep);
    rig_drop(&d);
}
END_TEST

/* Joins delta.content of choice `index`; asserts the rules every stream keeps. */
static void join(const json_t *events, long long index, struct buf *out, const char *finish)
{
    size_t i, finishes = 0, roles = 0;
    const json_t *e;
    json_array_foreach(events, i, e) {
        ck_assert(json_is_array(at(e, "choices")));
        if (json_array_size(at(e, "choices")) == 0 || int_at(e, "choices.0.index") != index)
            continue;
        const json_t *delta = at(e, "choices.0.delta"), *text = json_object_get(delta, "content");
        if (json_object_get(delta, "role")) {
            ck_assert_uint_eq(out->len, 0);
            roles++;
        }
        if (text) buf_add(out, json_string_value(text), json_string_length(text));
        const json_t *f = at(e, "choices.0.finish_reason");
        if (json_is_null(f)) continue;
        ck_assert_str_eq(json_string_value(f), finish);
        finishes++;
    }
    ck_assert_uint_eq(finishes, 1);
    ck_assert_uint_eq(roles, 1);
}

static void check_join(const struct rig_door *d, long long index, const char *want,
                       const char *finish)
{
    struct buf text = {0};
    join(d->events, index, &text, finish);
    ck_assert_str_eq(buf_str(&text), want);
    buf_deinit(&text);
}

START_TEST(chat_stream)
{
    static const char *const options[] = {
        "", ",\"stream_options\":{\"include_usage\":true}",
        ",\"stream_options\":{\"include_usage\":false}",
        ",\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}"};
    for (size_t k = 0; k < 4; k++) {
        struct rig_door d;
        struct msg keep;
        char body[400];
        snprintf(body, sizeof body, CHAT ",\"stream\":true%s}", options[k]);
        rig_post(&r, &d, ENDPOINT_CHAT, "", body);
        struct msg_submit s = rig_submitted(&r, &keep);
        ck_assert_int_eq(request_state(d.request),
                         REQUEST_PENDING); /* no head before the first token */
        int32_t ids[] = {TINY_BYTE('o'), TINY_BYTE(0xe2), TINY_BYTE(0x82), TINY_BYTE(0xac),
                         TINY_BYTE('k')};
        rig_tokens(&r, s.sub, s.n_ids, ids, 2, NULL, FINISH_NONE, 0);
        ck_assert_int_eq(rig_settle(&r, &d), REQUEST_STREAMING);
        ck_assert_int_eq(rig_pull(&d), PULL_NONE);
        ck_assert_uint_eq(json_array_size(d.events), 1);
        rig_tokens(&r, s.sub, s.n_ids + 2, ids + 2, 3, NULL, FINISH_STOP_ID, 5);
        rig_pull_to_end(&r, &d);
        ck_assert_int_eq(d.last, PULL_DONE);
        check_join(&d, 0, "o\xe2\x82\xack", "stop");
        size_t n = json_array_size(d.events);
        const json_t *last = json_array_get(d.events, n - 1), *first = json_array_get(d.events, 0);
        bool usage = k == 1 || k == 3;
        ck_assert_uint_eq(json_array_size(at(last, "choices")), usage ? 0 : 1);
        if (usage) ck_assert_int_eq(int_at(last, "usage.completion_tokens"), 5);
        else ck_assert_ptr_null(json_object_get(last, "usage"));
        if (k == 1) ck_assert(json_is_null(at(first, "usage")));
        if (k == 3) ck_assert_int_eq(int_at(first, "usage.completion_tokens"), 1);
        acked(&s);
        msg_deinit(&keep);
        rig_drop(&d);
    }
}
END_TEST

/* A list of prompts and n: index = prompt * n + k; the prompts are counted once each; seeds differ.
 */
START_TEST(many_choices)
{
    struct rig_door d;
    struct msg keep[4];
    struct msg_submit s[4];
    static const char *const answers[] = {"aa", "bbb", "c", "dddd"};
    rig_post(&r, &d, ENDPOINT_COMPLETION, "",
             "{\"model\":\"tiny\",\"prompt\":[\"x\",\"yy\"],\"n\":2,\"seed\":5}");
    for (int i = 0; i < 4; i++) s[i] = rig_submitted(&r, &keep[i]);
    for (int i = 3; i >= 0; i--) {
        rig_answer(&r, &s[i], answers[i], FINISH_EOS); /* done in any order */
        if (i > 0) acked(&s[i]);
    }
    json_t *j = rig_body(&r, &d);
    ck_assert_uint_eq(json_array_size(at(j, "choices")), 4);
    for (int i = 0; i < 4; i++) {
        const json_t *c = json_array_get(at(j, "choices"), (size_t)i);
        ck_assert_int_eq(int_at(c, "index"), i);
        ck_assert_str_eq(text_at(c, "text"), answers[i]);
        ck_assert_str_eq(text_at(c, "finish_reason"), "stop");
        ck_assert_uint_eq(s[i].n_prompt, i < 2 ? 1 : 2);
    }
    ck_assert(s[0].seed != s[1].seed && s[0].seed == s[2].seed && s[1].seed == s[3].seed);
    ck_assert_int_eq(int_at(j, "usage.prompt_tokens"), 3);
    ck_assert_int_eq(int_at(j, "usage.completion_tokens"), 10);
    ck_assert_int_eq(strncmp(text_at(j, "id"), "cmpl-", 5), 0);
    json_decref(j);
    acked(&s[0]);
    for (int i = 0; i < 4; i++) msg_deinit(&keep[i]);
    rig_drop(&d);
}
END_TEST

static void fill_records(struct msg_record *records, struct msg_top *tops, const int32_t *ids,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tops[2 * i] = (struct msg_top){ids[i], -0.5f};
        tops[2 * i + 1] = (struct msg_top){TINY_BYTE('z'), MSG_LOGPROB_MIN};
        records[i] = (struct msg_record){ids[i], -0.5f - (float)i, 2, &tops[2 * i]};
    }
}

/* echo + logprobs: the prompt's own scores, null for its first token, offsets in characters. */
START_TEST(echo_scores)
{
    for (int zero = 0; zero < 2; zero++) {
        struct rig_door d;
        struct msg keep;
        struct msg_record records[4];
        struct msg_top tops[8];
        int32_t ids[4] = {TINY_BYTE('b'), TINY_BYTE('c'), TINY_BYTE('d'), TINY_BYTE(0xff)};
        char body[200];
        snprintf(body, sizeof body,
                 "{\"model\":\"tiny\",\"prompt\":\"abc\",\"echo\":true,\"logprobs\":2,\"max_"
                 "tokens\":%d}",
                 zero ? 0 : 2);
        rig_post(&r, &d, ENDPOINT_COMPLETION, "", body);
        struct msg_submit s = rig_submitted(&r, &keep);
        ck_assert_uint_eq(s.from, 1);
        ck_assert_uint_eq(s.max_total, zero ? 3 : 5);
        fill_records(records, tops, ids, 4);
        rig_tokens(&r, s.sub, 1, NULL, zero ? 2 : 4, records, FINISH_LENGTH, zero ? 0 : 2);
        json_t *j = rig_body(&r, &d);
        const json_t *l = at(j, "choices.0.logprobs");
        ck_assert_str_eq(text_at(j, "choices.0.text"), zero ? "abc" : "abcd\xef\xbf\xbd");
        ck_assert_uint_eq(json_array_size(at(l, "tokens")), zero ? 3 : 5);
        ck_assert_str_eq(text_at(l, "tokens.0"), "a");
        ck_assert(json_is_null(at(l, "token_logprobs.0")) && json_is_null(at(l, "top_logprobs.0")));
        ck_assert_double_eq_tol(json_number_value(at(l, "token_logprobs.1")), -0.5, 1e-9);
        ck_assert_double_eq_tol(json_number_value(at(l, "top_logprobs.1.b")), -0.5, 1e-9);
        for (int i = 0; i < (zero ? 3 : 5); i++) {
            char path[32];
            snprintf(path, sizeof path, "text_offset.%d", i);
            ck_assert_int_eq(int_at(l, path), i);
        }
        if (!zero) ck_assert_str_eq(text_at(l, "tokens.4"), "bytes:\\xff");
        ck_assert_int_eq(int_at(j, "usage.completion_tokens"), zero ? 0 : 2);
        json_decref(j);
        acked(&s);
        msg_deinit(&keep);
        rig_drop(&d);
    }
}
END_TEST

START_TEST(chat_scores)
{
    struct rig_door d;
    struct msg keep;
    struct msg_record records[3];
    struct msg_top tops[6];
    int32_t ids[3] = {TINY_BYTE('h'), TINY_BYTE(0xe2), TINY_BYTE(0x82)};
    rig_post(&r, &d, ENDPOINT_CHAT, "", CHAT ",\"logprobs\":true,\"top_logprobs\":2}");
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert(s.logprobs && s.n_top == 2 && s.from == s.n_prompt);
    fill_records(records, tops, ids, 3);
    rig_tokens(&r, s.sub, s.n_ids, NULL, 3, records, FINISH_LENGTH, 3);
    json_t *j = rig_body(&r, &d);
    const json_t *content = at(j, "choices.0.logprobs.content");
    ck_assert_uint_eq(json_array_size(content), 3);
    ck_assert_str_eq(text_at(content, "0.token"), "h");
    ck_assert_int_eq(int_at(content, "1.bytes.0"), 0xe2); /* raw bytes even of a split character */
    ck_assert_uint_eq(json_array_size(at(content, "0.top_logprobs")), 2);
    ck_assert(json_number_value(at(content, "0.top_logprobs.1.logprob")) < -9000);
    ck_assert(json_is_null(at(j, "choices.0.logprobs.refusal")));
    json_decref(j);
    acked(&s);
    msg_deinit(&keep);
    rig_drop(&d);
}
END_TEST

static void refused(const char *cls, const char *body, enum err_code code)
{
    struct rig_door d;
    uint32_t retry;
    rig_post(&r, &d, ENDPOINT_CHAT, cls, body);
    json_t *j = rig_body(&r, &d);
    ck_assert_int_eq(request_state(d.request), REQUEST_FAILED);
    ck_assert_int_eq(request_error(d.request, &retry)->code, code);
    ck_assert_int_eq(retry > 0, err_retryable(code));
    json_decref(j);
    rig_drop(&d);
}

START_TEST(refusals)
{
    refused("", "{", ERR_BAD_JSON);
    refused("", "{\"model\":\"tiny\"}", ERR_MISSING);
    refused("", "{\"model\":\"other\",\"messages\":[]}", ERR_MODEL_NOT_FOUND);
    refused("gold", CHAT "}", ERR_BAD_VALUE);
    r.settings.max_queue_bytes = 50; /* bodies are counted before they are read */
    refused("", CHAT "}", ERR_QUEUE_FULL);
    r.settings.max_queue_bytes = 1 << 20;
    r.g.draining = true;
    refused("", CHAT "}", ERR_DRAINING);
    r.g.draining = false;
    ck_assert_uint_eq(r.g.metrics.errors[ERR_QUEUE_FULL], 1);
}
END_TEST

/* Memory is held for ids while a request lives, and given back (max-queue-bytes). */
START_TEST(memory_is_counted)
{
    struct rig_door d, e;
    struct msg keep;
    rig_post(&r, &d, ENDPOINT_CHAT, "", CHAT "0,\"stream\":true}"); /* 200 tokens */
    struct msg_submit s = rig_submitted(&r, &keep);
    uint64_t before = r.g.queue_bytes;
    ck_assert_uint_gt(before, s.n_prompt * 4);
    int32_t ids[100];
    for (int i = 0; i < 100; i++) ids[i] = TINY_BYTE('x');
    rig_tokens(&r, s.sub, s.n_ids, ids, 100, NULL, FINISH_NONE, 0);
    rig_settle(&r, &d);
    ck_assert_uint_eq(r.g.queue_bytes, before + 400);
    r.settings.max_queue_bytes = (int64_t)r.g.queue_bytes;
    rig_post(&r, &e, ENDPOINT_CHAT, "", CHAT "}");
    ck_assert_int_eq(rig_settle(&r, &e),
                     REQUEST_FAILED); /* the running one goes on, a new one is refused */
    rig_drop(&e);
    rig_tokens(&r, s.sub, s.n_ids + 100, NULL, 0, NULL, FINISH_LENGTH, 100);
    rig_pull_to_end(&r, &d);
    ck_assert_int_eq(d.last, PULL_DONE);
    acked(&s);
    msg_deinit(&keep);
    rig_drop(&d);
    ck_assert_uint_eq(r.g.queue_bytes, 0);
}
END_TEST

/* A client that goes away: on a lane, at the worker, in the middle of a stream (B29, B31). */
START_TEST(client_gone)
{
    struct rig_door d;
    struct msg keep;
    rig_post(&r, &d, ENDPOINT_CHAT, "", CHAT "}");
    rig_drop(&d); /* the lane may have it still */
    rig_idle(&r);
    struct msg none;
    ck_assert(!rig_try_recv(&r, &none));
    for (int stream = 0; stream < 2; stream++) {
        rig_post(&r, &d, ENDPOINT_CHAT, "", stream ? CHAT ",\"stream\":true}" : CHAT ",\"n\":1}");
        struct msg_submit s = rig_submitted(&r, &keep);
        if (stream) {
            rig_tokens(&r, s.sub, s.n_ids, (int32_t[]){TINY_BYTE('a')}, 1, NULL, FINISH_NONE, 0);
            rig_settle(&r, &d);
            rig_pull(&d);
        }
        rig_drop(&d);
        rig_expect(&r, MSG_CANCEL, s.sub);
        rig_idle(&r);
        msg_deinit(&keep);
    }
    ck_assert_uint_eq(r.g.metrics.cls[CLASS_REALTIME].aborted, 2);
}
END_TEST

/* The worker's process dies in the middle of a stream: the next one gets all ids, the text goes on
 * without a repeat. */
START_TEST(worker_lost)
{
    struct rig_door d;
    struct msg keep, again;
    rig_post(&r, &d, ENDPOINT_CHAT, "", CHAT ",\"stream\":true}");
    struct msg_submit s = rig_submitted(&r, &keep);
    rig_tokens(&r, s.sub, s.n_ids, (int32_t[]){TINY_BYTE('a'), TINY_BYTE(0xe2)}, 2, NULL,
               FINISH_NONE, 0);
    rig_settle(&r, &d);
    rig_pull(&d);
    rig_redial(&r, false);
    struct msg sync = {.kind = MSG_SYNC};
    rig_send(&r, &sync);
    struct msg_submit t = rig_submitted(&r, &again);
    ck_assert(!sub_id_equal(s.sub, t.sub)); /* every SUBMIT is a fresh one */
    ck_assert_uint_eq(t.n_ids, s.n_ids + 2);
    ck_assert_uint_eq(t.n_prompt, s.n_prompt);
    ck_assert_uint_eq(t.from, s.n_ids + 2);
    ck_assert(t.seed == s.seed);
    rig_tokens(&r, t.sub, t.n_ids, (int32_t[]){TINY_BYTE(0x82), TINY_BYTE(0xac)}, 2, NULL,
               FINISH_LENGTH, 4);
    rig_pull_to_end(&r, &d);
    check_join(&d, 0, "a\xe2\x82\xac", "length");
    acked(&t);
    msg_deinit(&keep);
    msg_deinit(&again);
    rig_drop(&d);
}
END_TEST

/* Only the connection is lost: the same process lists the submission, the gateway asks for what it
 * missed. */
START_TEST(link_lost)
{
    struct rig_door d;
    struct msg keep;
    rig_post(&r, &d, ENDPOINT_CHAT, "", CHAT "}");
    struct msg_submit s = rig_submitted(&r, &keep);
    rig_redial(&r, true);
    struct msg_sync_entry entry = {.sub = s.sub, .have = s.n_ids + 3};
    struct msg sync = {.kind = MSG_SYNC, .u.sync = {&entry, 1}};
    rig_send(&r, &sync);
    rig_expect(&r, MSG_GAP, s.sub);
    rig_answer(&r, &s, "abc", FINISH_EOS);
    json_t *j = rig_body(&r, &d);
    ck_assert_str_eq(text_at(j, "choices.0.message.content"), "abc");
    json_decref(j);
    acked(&s);
    msg_deinit(&keep);
    rig_drop(&d);
}
END_TEST

static void short_waits(struct settings *s)
{
    s->no_worker_timeout_s = 0.05;
}

/* No worker in time: a stream ends with one error after all that was made; a request not begun with
 * 503. */
START_TEST(no_worker)
{
    struct rig_door d, e;
    struct msg keep;
    rig_close(&r);
    rig_open(&r, short_waits);
    rig_post(&r, &e, ENDPOINT_CHAT, "", CHAT "}");
    json_t *j = rig_body(&r, &e);
    ck_assert_str_eq(text_at(j, "error.code"), "no_worker");
    json_decref(j);
    rig_drop(&e);
    rig_join(&r, 512);
    rig_post(&r, &d, ENDPOINT_CHAT, "", CHAT ",\"stream\":true}");
    struct msg_submit s = rig_submitted(&r, &keep);
    rig_tokens(&r, s.sub, s.n_ids, (int32_t[]){TINY_BYTE('a'), TINY_BYTE('b')}, 2, NULL,
               FINISH_NONE, 0);
    rig_settle(&r, &d);
    rig_pull(&d);
    rig_send(&r, &(struct msg){.kind = MSG_BYE});
    rig_pull_to_end(&r, &d);
    ck_assert_int_eq(d.last, PULL_ERROR);
    size_t n = json_array_size(d.events);
    ck_assert_str_eq(text_at(json_array_get(d.events, n - 1), "error.code"), "worker_lost");
    ck_assert_str_eq(text_at(json_array_get(d.events, n - 2), "choices.0.delta.content"), "b");
    msg_deinit(&keep);
    rig_drop(&d);
}
END_TEST

/* A batch answer whose equal worker is gone begins again, unless something was sent; held bytes are
 * forgotten. */
START_TEST(batch_restart)
{
    struct rig_door d;
    struct msg keep, again;
    rig_close(&r);
    rig_open(&r, short_waits);
    rig_join(&r, 512);
    rig_post(&r, &d, ENDPOINT_CHAT, "batch", CHAT ",\"stream\":true}");
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert_int_eq(s.rank, 1);
    rig_tokens(&r, s.sub, s.n_ids, (int32_t[]){TINY_BYTE(0xe2), TINY_BYTE(0x82)}, 2, NULL,
               FINISH_NONE, 0);
    rig_settle(&r, &d);
    ck_assert_int_eq(rig_pull(&d), PULL_NONE); /* held back: nothing was said */
    rig_send(&r, &(struct msg){.kind = MSG_BYE});
    transport_close(&r.dialer);
    r.incarnation++;
    r.numerics++; /* other arithmetic: it cannot go on, after lost_ns it starts again from its
                     prompt */
    rig_join(&r, 512);
    struct msg_submit t = rig_submitted(&r, &again);
    ck_assert_uint_eq(t.n_ids, t.n_prompt);
    rig_answer(&r, &t, "new", FINISH_EOS);
    rig_pull_to_end(&r, &d);
    check_join(&d, 0, "new", "stop");
    acked(&t);
    msg_deinit(&keep);
    msg_deinit(&again);
    rig_drop(&d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("request");
    TCase *t = tcase_create("request");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, chat_whole);
    tcase_add_test(t, chat_stream);
    tcase_add_test(t, many_choices);
    tcase_add_test(t, echo_scores);
    tcase_add_test(t, chat_scores);
    tcase_add_test(t, refusals);
    tcase_add_test(t, memory_is_counted);
    tcase_add_test(t, client_gone);
    tcase_add_test(t, worker_lost);
    tcase_add_test(t, link_lost);
    tcase_add_test(t, no_worker);
    tcase_add_test(t, batch_restart);
    suite_add_tcase(s, t);
    return test_run(s);
}
