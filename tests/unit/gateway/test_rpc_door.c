/* The RPC door with the real client library over a loopback socket, the worker a script: replies,
 * streams, errors, cancels, duplicates, nonsense, clients that leave.
 */
#include "gateway/json_value.h"
#include "gateway/rpc_door.h"
#include "proto/rpc.h"
#include "tests/unit/gateway/gateway_rig.h"

#include <string.h>

static struct rig r;
static struct rpc_client *client;

static void any_port(struct settings *s)
{
    snprintf(s->rpc, sizeof s->rpc, "tcp://127.0.0.1:0");
}

static void setup(void)
{
    struct err e;
    rig_open(&r, any_port);
    rig_join(&r, 512);
    ck_assert_msg(rpc_door_create(&r.g.rpc, &r.g, &e) == 0, "%s", e.msg);
    ck_assert_msg(rpc_client_open(&client, rpc_door_endpoint(r.g.rpc), &e) == 0, "%s", e.msg);
}

static void teardown(void)
{
    rpc_client_close(&client);
    rpc_door_destroy(&r.g.rpc);
    rig_idle(&r);
    rig_close(&r);
}

static void put(const struct buf *b)
{
    while (rpc_client_send(client, b) != 0) rig_turn(&r);
}

static void request(uint64_t id, const char *path, const char *cls, const char *json)
{
    struct buf body = {0}, out = {0};
    ck_assert_int_eq(json_to_value(json, strlen(json), &body), 0);
    rpc_put_request(&out, id, path, cls, &body);
    put(&out);
    buf_deinit(&body);
    buf_deinit(&out);
}

/* The next message of the client; its body as JSON in *body (json_decref it), NULL when it has
 * none. */
static enum rpc_kind answer(uint64_t id, uint32_t *status, json_t **body)
{
    struct rpc_msg m;
    struct err e;
    struct buf text = {0};
    uint64_t end = gateway_now_ns() + 10000000000ull;
    int got;
    while ((got = rpc_client_recv(client, &m, 0, &e)) == 0) {
        ck_assert_msg(gateway_now_ns() < end, "no answer at the RPC door");
        rig_turn(&r);
    }
    ck_assert_int_eq(got, 1);
    ck_assert_uint_eq(m.id, id);
    *status = m.status;
    *body = NULL;
    if (m.body) {
        ck_assert_int_eq(value_to_json(m.body, &text), 0);
        *body = json_loadb(text.p, text.len, JSON_ALLOW_NUL, NULL);
        ck_assert_ptr_nonnull(*body);
    }
    enum rpc_kind kind = m.kind;
    buf_deinit(&text);
    rpc_msg_deinit(&m);
    return kind;
}

static void expect_error(uint64_t id, uint32_t want, const char *code)
{
    uint32_t status;
    json_t *body;
    ck_assert_int_eq(answer(id, &status, &body), RPC_ERROR);
    ck_assert_uint_eq(status, want);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(body, "error"), "code")),
                     code);
    json_decref(body);
}

#define BODY "{\"model\":\"tiny\",\"prompt\":\"abcd\",\"max_tokens\":8"
#define PATH "/v1/completions"

static void text_of(const json_t *body, const char *want)
{
    const json_t *c = json_array_get(json_object_get(body, "choices"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(c, "text")), want);
}

START_TEST(whole_reply)
{
    struct msg keep;
    uint32_t status;
    json_t *body;
    request(7, PATH, "batch", BODY "}");
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert_int_eq(s.rank, 1);
    rig_answer(&r, &s, "xyz", FINISH_EOS);
    ck_assert_int_eq(answer(7, &status, &body), RPC_DONE);
    text_of(body, "xyz");
    json_decref(body);
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
}
END_TEST

START_TEST(stream)
{
    struct msg keep;
    uint32_t status;
    json_t *body;
    request(8, PATH, NULL, BODY ",\"stream\":true}");
    struct msg_submit s = rig_submitted(&r, &keep);
    rig_answer(&r, &s, "ab", FINISH_LENGTH);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(answer(8, &status, &body), RPC_DELTA);
        text_of(body, i ? "b" : "a");
        json_decref(body);
    }
    ck_assert_int_eq(answer(8, &status, &body), RPC_DONE);
    ck_assert_ptr_null(body);
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
}
END_TEST

START_TEST(errors)
{
    uint32_t status;
    json_t *body;
    request(1, PATH, NULL, "{\"model\":\"other\",\"prompt\":\"x\"}");
    expect_error(1, 404, "model_not_found");
    request(1, "/v1/nothing", NULL, BODY "}"); /* the id is free again */
    expect_error(1, 404, "not_found");
    request(2, PATH, "gold", BODY "}");
    expect_error(2, 400, "invalid_value");
    request(3, PATH, NULL, "{\"model\":\"tiny\",\"prompt\":[300]}");
    expect_error(3, 400, "invalid_value");
    request(4, "/v1/models", NULL, "{}");
    ck_assert_int_eq(answer(4, &status, &body), RPC_DONE);
    ck_assert_uint_eq(json_array_size(json_object_get(body, "data")), 1);
    json_decref(body);
}
END_TEST

static void cancel(uint64_t id)
{
    struct buf b = {0};
    rpc_put_cancel(&b, id);
    put(&b);
    buf_deinit(&b);
}

/* A cancelled request ends once, its sequence is freed; an unknown id is nothing; the id may be
 * used again. */
START_TEST(cancels)
{
    struct msg keep;
    cancel(99);
    for (int i = 0; i < 2; i++) {
        request(5, PATH, NULL, BODY "}");
        struct msg_submit s = rig_submitted(&r, &keep);
        cancel(5);
        expect_error(5, 499, "cancelled");
        rig_expect(&r, MSG_CANCEL, s.sub);
        msg_deinit(&keep);
    }
}
END_TEST

/* A live id twice: the second is refused, the first goes on (B33). */
START_TEST(duplicate)
{
    struct msg keep;
    uint32_t status;
    json_t *body;
    request(6, PATH, NULL, BODY "}");
    struct msg_submit s = rig_submitted(&r, &keep);
    request(6, PATH, NULL, BODY "}");
    expect_error(6, 400, "invalid_value");
    rig_answer(&r, &s, "ok", FINISH_EOS);
    ck_assert_int_eq(answer(6, &status, &body), RPC_DONE);
    text_of(body, "ok");
    json_decref(body);
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
}
END_TEST

/* Bytes that are no message get an error each, and a valid request right after is served (B77,
 * B78). */
START_TEST(nonsense)
{
    static const struct { const char *p; size_t n; } rows[] = {
        {"\xdd\xff\xff\xff\xff", 5}, {"\xdf\xff\xff\xff\xff", 5}, {"\xc6\xff\xff\xff\xff", 5},
        {"\xdb\xff\xff\xff\xff\x41", 6}, {"\x93\x01\x02\x03", 4}, {"\xc1", 1}, {"\x80", 1},
        {"\x81\xa1t\xa7request", 11}, {"\x82\xa1t\xa3" "foo\xa2id\x01", 11},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b = {0};
        struct rpc_msg m;
        struct err e;
        buf_add(&b, rows[i].p, rows[i].n);
        put(&b);
        int got;
        while ((got = rpc_client_recv(client, &m, 0, &e)) == 0) rig_turn(&r);
        ck_assert_msg(got == 1 && m.kind == RPC_ERROR && m.status == 400, "row %zu", i);
        rpc_msg_deinit(&m);
        buf_deinit(&b);
    }
    request(1, PATH, NULL, "{\"model\":\"other\",\"prompt\":\"x\"}");
    expect_error(1, 404, "model_not_found");
}
END_TEST

/* A client that leaves frees its requests, streamed or not, without waiting for its silence. */
START_TEST(client_gone)
{
    struct msg keep[2];
    struct err e;
    request(1, PATH, NULL, BODY "}");
    request(2, PATH, NULL, BODY ",\"stream\":true}");
    for (int i = 0; i < 2; i++) rig_submitted(&r, &keep[i]);
    rpc_client_close(&client);
    for (int i = 0; i < 2; i++) {
        struct msg m;
        rig_recv(&r, &m);
        ck_assert_int_eq(m.kind, MSG_CANCEL);
        msg_deinit(&m);
        msg_deinit(&keep[i]);
    }
    rig_idle(&r);
    ck_assert_int_eq(rpc_client_open(&client, rpc_door_endpoint(r.g.rpc), &e), 0);
    request(1, PATH, NULL, "{}"); /* a new connection has ids of its own */
    expect_error(1, 400, "missing_required_parameter");
}
END_TEST

START_TEST(draining)
{
    r.g.draining = true;
    request(1, PATH, NULL, BODY "}");
    expect_error(1, 503, "draining");
    r.g.draining = false;
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rpc_door");
    TCase *t = tcase_create("rpc");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, whole_reply);
    tcase_add_test(t, stream);
    tcase_add_test(t, errors);
    tcase_add_test(t, cancels);
    tcase_add_test(t, duplicate);
    tcase_add_test(t, nonsense);
    tcase_add_test(t, client_gone);
    tcase_add_test(t, draining);
    suite_add_tcase(s, t);
    return test_run(s);
}
