/* The RPC client against a server in the test: many requests at once, pings, a lost and a silent server. */
#include "proto/rpc.h"

#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/unit/proto/pump.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Answers each REQUEST with two DELTAs and DONE, PING with PONG, and leaves on CANCEL of id 99. With `nonsense`
 * set, REQUEST with bytes that are no message. */
struct server {
    struct transport *t;
    pthread_t thread;
    char endpoint[64];
    bool nonsense;
    _Atomic unsigned pings; /* relaxed is enough: only compared with 0 while both run */
};

static void say(struct server *s, uint32_t peer, struct buf *b)
{
    pump_send(s->t, peer, b->p, b->len);
    buf_clear(b);
}

static void answer(struct server *s, uint32_t peer, const struct rpc_msg *m)
{
    struct buf b = {0}, body = {0};
    value_put_map(&body, 1);
    value_put_str(&body, "n", 1);
    value_put_uint(&body, m->id);
    if (m->kind == RPC_PING) {
        atomic_fetch_add_explicit(&s->pings, 1, memory_order_relaxed);
        rpc_put_ping(&b, m->id, true);
        say(s, peer, &b);
    } else if (m->kind == RPC_REQUEST && s->nonsense) {
        buf_add(&b, "\xc1", 1);
        say(s, peer, &b);
    } else if (m->kind == RPC_REQUEST) {
        rpc_put_delta(&b, m->id, &body);
        say(s, peer, &b);
        rpc_put_delta(&b, m->id, &body);
        say(s, peer, &b);
        rpc_put_done(&b, m->id, NULL);
        say(s, peer, &b);
    }
    buf_deinit(&b);
    buf_deinit(&body);
}

static void *serve(void *arg)
{
    struct server *s = arg;
    for (bool leave = false; !leave;) {
        struct transport_msg got;
        struct rpc_msg m;
        if (pump_recv(s->t, &got) != TRANSPORT_OK)
            break;
        if (rpc_decode(&m, got.p, got.n, NULL) == 0) {
            leave = m.kind == RPC_CANCEL && m.id == 99;
            answer(s, got.peer, &m);
            rpc_msg_deinit(&m);
        }
        transport_msg_free(&got);
    }
    transport_close(&s->t);
    return NULL;
}

static struct rpc_client *start(struct server *s)
{
    struct rpc_client *c;
    struct err e = {0};
    ck_assert_int_eq(transport_listen(&s->t, "tcp://127.0.0.1:0", NULL, RPC_BYTES_MAX, &e), 0);
    snprintf(s->endpoint, sizeof s->endpoint, "%s", transport_endpoint(s->t));
    ck_assert_int_eq(pthread_create(&s->thread, NULL, serve, s), 0);
    ck_assert_msg(rpc_client_open(&c, s->endpoint, &e) == 0, "%s", e.msg);
    return c;
}

static void send_cancel(struct rpc_client *c, uint64_t id)
{
    struct buf b = {0};
    rpc_put_cancel(&b, id);
    ck_assert_int_eq(rpc_client_send(c, &b), 0);
    buf_deinit(&b);
}

static void send_request(struct rpc_client *c, uint64_t id)
{
    struct buf b = {0}, body = {0};
    value_put_map(&body, 0);
    rpc_put_request(&b, id, "/v1/completions", NULL, &body);
    ck_assert_int_eq(rpc_client_send(c, &b), 0);
    buf_deinit(&b);
    buf_deinit(&body);
}

START_TEST(requests_at_once_each_get_their_answer)
{
    size_t before = mem_used();
    struct server s = {0};
    struct rpc_client *c = start(&s);
    struct rpc_msg m;
    struct err e;
    unsigned deltas[20] = {0}, done = 0;
    ck_assert_int_eq(rpc_client_recv(c, &m, 0, &e), 0);
    ck_assert_int_eq(rpc_client_recv(c, &m, 1, &e), 0);
    for (uint64_t id = 0; id < 20; id++)
        send_request(c, id);
    while (done < 20) {
        ck_assert_int_eq(rpc_client_recv(c, &m, PUMP_MS, &e), 1);
        ck_assert_uint_lt(m.id, 20);
        if (m.kind == RPC_DELTA) {
            ck_assert_uint_eq(value_get(m.body, "n")->as.u, m.id);
            deltas[m.id]++;
        } else {
            ck_assert_int_eq(m.kind, RPC_DONE);
            ck_assert_uint_eq(deltas[m.id], 2);
            done++;
        }
        rpc_msg_deinit(&m);
    }
    send_cancel(c, 99);
    ck_assert_int_eq(rpc_client_recv(c, &m, PUMP_MS, &e), -1); /* the server left */
    ck_assert_int_eq(e.code, ERR_IO);
    ck_assert_int_eq(rpc_client_recv(c, &m, 0, &e), -1);
    struct buf b = {0};
    rpc_put_cancel(&b, 1);
    ck_assert_int_eq(rpc_client_send(c, &b), TRANSPORT_DOWN);
    buf_deinit(&b);
    pthread_join(s.thread, NULL);
    rpc_client_close(&c);
    ck_assert_ptr_null(c);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

/* An owner with its own loop: the one descriptor is enough to have pings sent and pongs eaten. */
START_TEST(pings_go_out_through_the_one_descriptor)
{
    struct server s = {0};
    struct rpc_client *c = start(&s);
    struct rpc_msg m;
    struct err e;
    struct pollfd p = {rpc_client_fd(c), POLLIN, 0};
    while (atomic_load_explicit(&s.pings, memory_order_relaxed) == 0) {
        ck_assert_int_gt(poll(&p, 1, PUMP_MS), 0);
        ck_assert_int_eq(rpc_client_recv(c, &m, 0, &e), 0);
    }
    send_cancel(c, 99);
    ck_assert_int_eq(rpc_client_recv(c, &m, PUMP_MS, &e), -1);
    pthread_join(s.thread, NULL);
    rpc_client_close(&c);
}
END_TEST

START_TEST(nonsense_from_the_server_ends_the_connection)
{
    struct server s = {.nonsense = true};
    struct rpc_client *c = start(&s);
    struct rpc_msg m;
    struct err e;
    send_request(c, 1);
    ck_assert_int_eq(rpc_client_recv(c, &m, PUMP_MS, &e), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
    struct buf b = {0};
    rpc_put_cancel(&b, 99);
    ck_assert_int_eq(rpc_client_send(c, &b), TRANSPORT_DOWN);
    buf_deinit(&b);
    rpc_client_close(&c);
    /* A second client tells the server to leave. */
    ck_assert_int_eq(rpc_client_open(&c, s.endpoint, &e), 0);
    send_cancel(c, 99);
    pthread_join(s.thread, NULL);
    rpc_client_close(&c);
}
END_TEST

START_TEST(nobody_there_is_told_at_once)
{
    struct rpc_client *c;
    struct transport *t;
    struct err e;
    char endpoint[64];
    ck_assert_int_eq(transport_listen(&t, "tcp://127.0.0.1:0", NULL, RPC_BYTES_MAX, &e), 0);
    snprintf(endpoint, sizeof endpoint, "%s", transport_endpoint(t));
    transport_close(&t);
    ck_assert_int_eq(rpc_client_open(&c, endpoint, &e), -1);
    ck_assert_ptr_null(c);
    ck_assert_ptr_nonnull(strstr(e.msg, "nobody answers"));
    ck_assert_int_eq(rpc_client_open(&c, "nonsense", &e), -1);
    rpc_client_close(&c);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rpc_client");
    TCase *tc = tcase_create("rpc_client");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, requests_at_once_each_get_their_answer);
    tcase_add_test(tc, pings_go_out_through_the_one_descriptor);
    tcase_add_test(tc, nonsense_from_the_server_ends_the_connection);
    tcase_add_test(tc, nobody_there_is_told_at_once);
    suite_add_tcase(s, tc);
    return test_run(s);
}
