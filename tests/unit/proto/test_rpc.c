/* The RPC door's messages: each as it is written and read, and what is refused with which id. */
#include "proto/rpc.h"

#include "base/mem.h"
#include "tests/common/test_run.h"

#include <stdlib.h>
#include <string.h>

static int decode(struct rpc_msg *m, const struct buf *b, struct err *e)
{
    char *copy = malloc(b->len);
    memcpy(copy, b->p, b->len);
    int rc = rpc_decode(m, copy, b->len, e);
    free(copy);
    return rc;
}

/* Reads what is in `b` and empties it. */
static struct rpc_msg expect(struct buf *b, enum rpc_kind kind, uint64_t id)
{
    struct rpc_msg m;
    struct err e = {0};
    ck_assert(!b->bad);
    ck_assert_msg(decode(&m, b, &e) == 0, "%s", e.msg);
    ck_assert_int_eq(m.kind, kind);
    ck_assert_uint_eq(m.id, id);
    buf_clear(b);
    return m;
}

static void put_body(struct buf *body)
{
    *body = (struct buf){0};
    value_put_map(body, 2);
    value_put_str(body, "model", 5);
    value_put_str(body, "m", 1);
    value_put_str(body, "stream", 6);
    value_put_bool(body, true);
}

START_TEST(every_message_survives_the_round_trip)
{
    size_t before = mem_used();
    struct buf b = {0}, body;
    put_body(&body);
    rpc_put_request(&b, UINT64_MAX, "/v1/completions", "batch", &body);
    struct rpc_msg m = expect(&b, RPC_REQUEST, UINT64_MAX), copy = m;
    ck_assert_uint_eq(m.n_path, 15);
    ck_assert_mem_eq(m.path, "/v1/completions", 15);
    ck_assert_mem_eq(m.cls, "batch", m.n_cls);
    ck_assert(value_str_is(value_get(copy.body, "model"), "m")); /* a copy reads the same */
    rpc_msg_deinit(&m);
    rpc_put_request(&b, 0, "/v1/chat/completions", NULL, &body);
    m = expect(&b, RPC_REQUEST, 0);
    ck_assert_ptr_null(m.cls);
    rpc_msg_deinit(&m);
    rpc_put_delta(&b, 3, &body);
    m = expect(&b, RPC_DELTA, 3);
    ck_assert(value_get(m.body, "stream")->as.b);
    rpc_msg_deinit(&m);
    rpc_put_done(&b, 4, NULL);
    m = expect(&b, RPC_DONE, 4);
    ck_assert_ptr_null(m.body);
    rpc_msg_deinit(&m);
    rpc_put_error(&b, 5, 503, 1200, &body);
    m = expect(&b, RPC_ERROR, 5);
    ck_assert(m.status == 503 && m.retry_after_ms == 1200 && m.body != NULL);
    rpc_msg_deinit(&m);
    rpc_put_cancel(&b, 6);
    m = expect(&b, RPC_CANCEL, 6);
    rpc_msg_deinit(&m);
    rpc_put_ping(&b, 7, false);
    m = expect(&b, RPC_PING, 7);
    rpc_msg_deinit(&m);
    rpc_put_ping(&b, 8, true);
    m = expect(&b, RPC_PONG, 8);
    rpc_msg_deinit(&m);
    buf_deinit(&b);
    buf_deinit(&body);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

/* Bytes, and the id that the refusal must still tell. */
START_TEST(what_is_refused_and_with_which_id)
{
    static const struct { const char *p; size_t n; uint64_t id; } cases[] = {
        {"\xc0", 1, 0},
        {"\x80", 1, 0},
        {"\x90", 1, 0},
        {"\x81\xa2id\x05", 5, 5},                                   /* no t */
        {"\x82\xa2id\x05\xa1t\xa3" "foo", 11, 5},
        {"\x82\xa2id\x05\xa1t\x01", 8, 5},
        {"\x82\xa2id\xff\xa1t\xa4ping", 12, 0},                     /* id below zero */
        {"\x82\xa2id\xa1" "5\xa1t\xa4ping", 13, 0},                 /* id a string */
        {"\x82\xa2id\x05\xa1t\xa7request", 15, 5},                  /* no path */
        {"\x83\xa2id\x05\xa1t\xa7request\xa4path\xa1/", 22, 5},     /* no body */
        {"\x84\xa2id\x05\xa1t\xa7request\xa4path\xa1/\xa4" "body\x01", 28, 5},
        {"\x84\xa2id\x05\xa1t\xa7request\xa4path\xa1\xff\xa4" "body\x80", 28, 5},
        {"\x84\xa2id\x05\xa1t\xa7request\xa4path\xa0\xa4" "body\x80", 27, 5},
        {"\x83\xa2id\x05\xa1t\xa4" "done\xa4" "body\x01", 18, 5},
        {"\x83\xa2id\x05\xa1t\xa5" "error\xa6status\xff", 21, 5},
        {"\x83\xa2id\x05\xa1t\xa4ping\xa1t\xa4ping", 19, 0},        /* a key twice */
    };
    size_t before = mem_used();
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rpc_msg m;
        struct err e = {0};
        ck_assert_msg(rpc_decode(&m, cases[i].p, cases[i].n, &e) == -1, "case %u is taken", i);
        ck_assert_msg(m.id == cases[i].id, "case %u: id %llu", i, (unsigned long long)m.id);
        ck_assert_int_eq(e.code, ERR_PROTOCOL);
    }
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

START_TEST(unknown_keys_are_ignored_and_long_text_refused)
{
    struct buf b = {0}, body;
    struct rpc_msg m;
    char path[RPC_PATH_MAX + 2];
    put_body(&body);
    value_put_map(&b, 3);
    value_put_str(&b, "later", 5);
    value_put_array(&b, 0);
    value_put_str(&b, "id", 2);
    value_put_uint(&b, 1);
    value_put_str(&b, "t", 1);
    value_put_str(&b, "cancel", 6);
    m = expect(&b, RPC_CANCEL, 1);
    rpc_msg_deinit(&m);
    memset(path, '/', sizeof path);
    path[RPC_PATH_MAX + 1] = '\0';
    rpc_put_request(&b, 1, path, NULL, &body);
    ck_assert_int_eq(decode(&m, &b, NULL), -1);
    buf_clear(&b);
    path[RPC_PATH_MAX] = '\0';
    rpc_put_request(&b, 1, path, NULL, &body);
    m = expect(&b, RPC_REQUEST, 1);
    rpc_msg_deinit(&m);
    /* A body that ran out of memory while it was built is never sent as half a message. */
    body.bad = true;
    rpc_put_delta(&b, 1, &body);
    ck_assert(b.bad);
    buf_deinit(&b);
    buf_deinit(&body);
}
END_TEST

START_TEST(every_cut_is_refused)
{
    struct buf b = {0}, body;
    put_body(&body);
    rpc_put_request(&b, 300, "/v1/completions", "batch", &body);
    for (size_t n = 0; n < b.len; n++) {
        struct rpc_msg m;
        char *copy = malloc(n ? n : 1);
        memcpy(copy, b.p, n);
        ck_assert_int_eq(rpc_decode(&m, copy, n, NULL), -1);
        free(copy);
    }
    buf_deinit(&b);
    buf_deinit(&body);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rpc");
    TCase *tc = tcase_create("rpc");
    tcase_add_test(tc, every_message_survives_the_round_trip);
    tcase_add_test(tc, what_is_refused_and_with_which_id);
    tcase_add_test(tc, unknown_keys_are_ignored_and_long_text_refused);
    tcase_add_test(tc, every_cut_is_refused);
    suite_add_tcase(s, tc);
    return test_run(s);
}
