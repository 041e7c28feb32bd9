/* ZeroMQ over loopback: sessions end, strangers are refused, nothing old is delivered, nothing blocks. */
#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"
#include "tests/unit/proto/pump.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <zmq.h>

#define MAX_BYTES (1u << 20)

static char dir[TEST_PATH_MAX], path[TEST_PATH_MAX + 16];
static struct transport_keys gateway_keys, worker_keys;

static struct transport *listen_on(const char *endpoint, const struct transport_keys *k)
{
    struct transport *l;
    struct err e = {0};
    ck_assert_msg(transport_listen(&l, endpoint, k, MAX_BYTES, &e) == 0, "%s", e.msg);
    return l;
}

static struct transport *dial(const char *endpoint, const struct transport_keys *k)
{
    struct transport *d;
    struct err e = {0};
    ck_assert_msg(transport_dial(&d, endpoint, k, MAX_BYTES, &e) == 0, "%s", e.msg);
    return d;
}

static void echo_once(struct transport *l, struct transport *d)
{
    ck_assert_int_eq(pump_send(d, 0, "ping", 4), 0);
    uint32_t peer = pump_expect(l, "ping");
    ck_assert_int_eq(pump_send(l, peer, "pong", 4), 0);
    ck_assert_uint_eq(pump_expect(d, "pong"), 0);
}

static void echo_at(const char *endpoint)
{
    struct transport *l = listen_on(endpoint, NULL), *d = dial(transport_endpoint(l), NULL);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    echo_once(l, d);
    transport_close(&d);
    transport_close(&l);
    ck_assert_ptr_null(l);
}

START_TEST(plain_echo_over_tcp_and_ipc)
{
    char ipc[TEST_PATH_MAX + 32];
    size_t before = mem_used();
    echo_at("tcp://127.0.0.1:0");
    echo_at("tcp://127.0.0.1:*");
    snprintf(ipc, sizeof ipc, "ipc://%s/s", dir);
    struct transport *l = listen_on(ipc, NULL);
    struct stat st;
    ck_assert_int_eq(stat(ipc + 6, &st), 0);
    ck_assert_int_eq(st.st_mode & 077, 0);
    transport_close(&l);
    echo_at(ipc);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

START_TEST(bad_endpoints_and_taken_ports_are_told)
{
    static const char *const bad[] = {"", "tcp://", "http://127.0.0.1:1", "inproc://x",
                                      "tcp://127.0.0.1", "tcp://127.0.0.1:99999"};
    struct transport *t;
    struct err e;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(transport_listen(&t, bad[i], NULL, MAX_BYTES, &e) == -1, "%s", bad[i]);
        ck_assert_ptr_null(t);
        ck_assert_msg(transport_dial(&t, bad[i], NULL, MAX_BYTES, &e) == -1, "%s", bad[i]);
        ck_assert(e.msg[0]);
    }
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    ck_assert_int_eq(transport_listen(&t, transport_endpoint(l), NULL, MAX_BYTES, &e), -1);
    ck_assert_int_eq(e.code, ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.msg, "another"));
    transport_close(&l);
}
END_TEST

START_TEST(a_right_key_works)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", &gateway_keys);
    struct transport *d = dial(transport_endpoint(l), &worker_keys);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    echo_once(l, d);
    transport_close(&d);
    transport_close(&l);
}
END_TEST

/* No key, an own key with the right server key, and a wrong server key: none gets a message in, and
 * each is told that it is down; the listener goes on serving the one with the key. */
START_TEST(strangers_are_refused)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", &gateway_keys);
    struct transport_keys own, wrong = worker_keys;
    struct err e;
    char other[TEST_PATH_MAX + 32];
    snprintf(other, sizeof other, "%s/other.keys", dir);
    ck_assert_int_eq(transport_keys_make(other, &e), 0);
    ck_assert_int_eq(transport_keys_load(&own, other, false, &e), 0);
    memcpy(wrong.server_public, own.server_public, TRANSPORT_KEY_BYTES);
    memcpy(own.server_public, worker_keys.server_public, TRANSPORT_KEY_BYTES);
    const struct transport_keys *const tries[] = {NULL, &own, &wrong};
    for (unsigned i = 0; i < 3; i++) {
        struct transport *d = dial(transport_endpoint(l), tries[i]);
        ck_assert_int_eq(transport_send(d, 0, "register", 8), TRANSPORT_FULL);
        ck_assert_msg(pump_ready(d) == TRANSPORT_DOWN, "stranger %u got in", i);
        ck_assert_int_eq(transport_send(d, 0, "register", 8), TRANSPORT_GONE);
        transport_close(&d);
    }
    struct transport *d = dial(transport_endpoint(l), &worker_keys);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    echo_once(l, d); /* the first message the listener ever sees */
    transport_close(&d);
    transport_close(&l);
}
END_TEST

/* Two listeners of one process do not share their lists of admitted keys. */
START_TEST(each_listener_has_its_own_list)
{
    struct transport_keys nobody = gateway_keys;
    nobody.n_allowed = 0;
    struct transport *open = listen_on("tcp://127.0.0.1:0", &gateway_keys);
    struct transport *shut = listen_on("tcp://127.0.0.1:0", &nobody);
    struct transport *a = dial(transport_endpoint(open), &worker_keys);
    struct transport *b = dial(transport_endpoint(shut), &worker_keys);
    ck_assert_int_eq(pump_ready(b), TRANSPORT_DOWN);
    ck_assert_int_eq(pump_ready(a), TRANSPORT_OK);
    transport_close(&a);
    transport_close(&b);
    transport_close(&open);
    transport_close(&shut);
}
END_TEST

START_TEST(nobody_there_is_down_at_once)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "%s", transport_endpoint(l));
    transport_close(&l);
    struct transport *d = dial(endpoint, NULL);
    ck_assert_int_eq(transport_send(d, 0, "x", 1), TRANSPORT_FULL);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_DOWN);
    transport_close(&d);
}
END_TEST

START_TEST(the_dialer_sees_the_end_and_never_comes_back_by_itself)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "%s", transport_endpoint(l));
    struct transport *d = dial(endpoint, NULL);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    echo_once(l, d);
    transport_close(&l);
    struct transport_msg m;
    ck_assert_int_eq(pump_recv(d, &m), TRANSPORT_DOWN);
    ck_assert_int_eq(transport_send(d, 0, "old", 3), TRANSPORT_GONE);
    l = listen_on(endpoint, NULL); /* the same port again */
    struct transport *fresh = dial(endpoint, NULL);
    ck_assert_int_eq(pump_ready(fresh), TRANSPORT_OK);
    ck_assert_int_eq(pump_send(fresh, 0, "new", 3), 0);
    pump_expect(l, "new");
    ck_assert_int_eq(transport_recv(d, &m), TRANSPORT_DOWN);
    transport_close(&d);
    transport_close(&fresh);
    transport_close(&l);
}
END_TEST

/* A full session is given up, then a new one opened: the new peer gets a new number, and
 * nothing that was queued in the old one reaches either side of it. */
START_TEST(nothing_of_an_old_session_reaches_a_new_one)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    struct transport *d = dial(transport_endpoint(l), NULL);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    ck_assert_int_eq(pump_send(d, 0, "hello", 5), 0);
    uint32_t old = pump_expect(l, "hello");
    static char big[65536];
    unsigned queued = 0;
    while (transport_send(l, old, big, sizeof big) == TRANSPORT_OK)
        queued++;
    ck_assert_uint_gt(queued, 64);
    transport_close(&d);
    d = dial(transport_endpoint(l), NULL);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    ck_assert_int_eq(pump_send(d, 0, "again", 5), 0);
    uint32_t now = pump_expect(l, "again");
    ck_assert_uint_ne(now, old);
    ck_assert_int_eq(pump_send(l, now, "welcome", 7), 0);
    ck_assert_uint_eq(pump_expect(d, "welcome"), 0); /* the first thing it hears */
    int rc = TRANSPORT_FULL;
    while (rc == TRANSPORT_FULL || rc == TRANSPORT_OK) { /* until the I/O thread has seen the end */
        rc = transport_send(l, old, "x", 1);
        struct transport_msg m;
        ck_assert_int_eq(transport_recv(l, &m), TRANSPORT_EMPTY);
    }
    ck_assert_int_eq(rc, TRANSPORT_GONE);
    transport_close(&d);
    transport_close(&l);
}
END_TEST

/* A peer that never reads: FULL after a bounded number, at once; another peer is served; reading ends it. */
START_TEST(full_does_not_block_and_ends)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    struct transport *deaf = dial(transport_endpoint(l), NULL);
    struct transport *other = dial(transport_endpoint(l), NULL);
    ck_assert_int_eq(pump_ready(deaf), TRANSPORT_OK);
    ck_assert_int_eq(pump_ready(other), TRANSPORT_OK);
    ck_assert_int_eq(pump_send(deaf, 0, "deaf", 4), 0);
    uint32_t peer = pump_expect(l, "deaf");
    static char big[65536];
    unsigned sent = 0, read = 0;
    int rc;
    for (unsigned i = 0; i < 100000; i++) {
        memcpy(big, &sent, sizeof sent);
        rc = transport_send(l, peer, big, sizeof big);
        if (rc != TRANSPORT_OK)
            break;
        sent++;
    }
    ck_assert_int_eq(rc, TRANSPORT_FULL);
    echo_once(l, other);
    while (read < sent) { /* nothing was lost, all in order */
        struct transport_msg m;
        ck_assert_int_eq(pump_recv(deaf, &m), TRANSPORT_OK);
        ck_assert_int_eq(memcmp(m.p, &read, sizeof read), 0);
        transport_msg_free(&m);
        read++;
    }
    ck_assert_int_eq(pump_send(l, peer, "more", 4), 0);
    pump_expect(deaf, "more");
    transport_close(&deaf);
    transport_close(&other);
    transport_close(&l);
}
END_TEST

/* A raw ZeroMQ peer that sends what no peer of ours does. */
static void send_frames(void *s, unsigned n, const char *text)
{
    for (unsigned i = 0; i < n; i++) {
        int more = i + 1 < n ? ZMQ_SNDMORE : 0;
        ck_assert_int_ge(zmq_send(s, text, strlen(text), more), 0);
    }
}

START_TEST(odd_envelopes_are_dropped_and_the_next_message_served)
{
    static const unsigned frames[] = {2, 3, 7, 1000};
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    void *ctx = zmq_ctx_new(), *s = zmq_socket(ctx, ZMQ_DEALER);
    int linger = 0;
    ck_assert_int_eq(zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger), 0);
    ck_assert_int_eq(zmq_setsockopt(s, ZMQ_ROUTING_ID, "chosen", 6), 0);
    ck_assert_int_eq(zmq_connect(s, transport_endpoint(l)), 0);
    uint64_t bad = 0;
    for (unsigned i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        send_frames(s, frames[i], "odd");
        send_frames(s, frames[i], ""); /* empty ones, a delimiter and nothing behind it */
        send_frames(s, 1, "valid");
        uint32_t peer = pump_expect(l, "valid");
        bad += 2;
        ck_assert_uint_eq(transport_bad_envelopes(l), bad);
        ck_assert_int_eq(pump_send(l, peer, "yes", 3), 0);
        char got[8];
        ck_assert_int_eq(zmq_recv(s, got, sizeof got, 0), 3);
    }
    send_frames(s, 1, ""); /* one frame of nothing is a message; its reader refuses it */
    pump_expect(l, "");
    zmq_close(s);
    zmq_ctx_term(ctx);
    transport_close(&l);
}
END_TEST

/* A second peer that claims a routing id in use is ignored; the first one keeps its messages. */
START_TEST(a_claimed_routing_id_takes_nothing_over)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    void *ctx = zmq_ctx_new(), *s[2];
    char got[8];
    for (unsigned i = 0; i < 2; i++) {
        int linger = 0;
        s[i] = zmq_socket(ctx, ZMQ_DEALER);
        zmq_setsockopt(s[i], ZMQ_LINGER, &linger, sizeof linger);
        ck_assert_int_eq(zmq_setsockopt(s[i], ZMQ_ROUTING_ID, "same", 4), 0);
        ck_assert_int_eq(zmq_connect(s[i], transport_endpoint(l)), 0);
        send_frames(s[i], 1, i == 0 ? "first" : "second");
        if (i == 0)
            pump_expect(l, "first");
    }
    send_frames(s[0], 1, "still");
    uint32_t peer = pump_expect(l, "still"); /* "second" never came */
    ck_assert_int_eq(pump_send(l, peer, "yes", 3), 0);
    ck_assert_int_eq(zmq_recv(s[0], got, sizeof got, 0), 3);
    zmq_close(s[0]);
    zmq_close(s[1]);
    zmq_ctx_term(ctx);
    transport_close(&l);
}
END_TEST

START_TEST(a_message_over_the_limit_ends_its_senders_connection)
{
    struct transport *l = listen_on("tcp://127.0.0.1:0", NULL);
    struct transport *d = dial(transport_endpoint(l), NULL);
    struct transport_msg m;
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    echo_once(l, d);
    char *big = calloc(1, MAX_BYTES + 1);
    ck_assert_int_eq(pump_send(d, 0, big, MAX_BYTES + 1), 0);
    ck_assert_int_eq(pump_recv(d, &m), TRANSPORT_DOWN);
    transport_close(&d);
    d = dial(transport_endpoint(l), NULL);
    ck_assert_int_eq(pump_ready(d), TRANSPORT_OK);
    ck_assert_int_eq(pump_send(d, 0, big, MAX_BYTES), 0);
    ck_assert_int_eq(pump_recv(l, &m), TRANSPORT_OK);
    ck_assert_uint_eq(m.n, MAX_BYTES);
    transport_close(&d);
    transport_close(&l);
    ck_assert_int_eq(m.p[MAX_BYTES - 1], 0); /* outlives its transport */
    transport_msg_free(&m);
    free(big);
}
END_TEST

/* A failed allocation at any place of opening leaves nothing behind and is told. */
START_TEST(no_memory_at_any_place_of_opening)
{
    size_t before = mem_used();
    struct transport *t;
    struct err e;
    int rc = -1;
    for (uint64_t n = 1; rc != 0; n++) {
        ck_assert_uint_lt(n, 20);
        mem_fail_nth(n);
        rc = transport_listen(&t, "tcp://127.0.0.1:0", &gateway_keys, MAX_BYTES, &e);
        mem_fail_nth(0);
        if (rc != 0)
            ck_assert_int_eq(e.code, ERR_NO_MEMORY);
    }
    transport_close(&t);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

static void add_tests(TCase *tc)
{
    tcase_add_test(tc, plain_echo_over_tcp_and_ipc);
    tcase_add_test(tc, bad_endpoints_and_taken_ports_are_told);
    tcase_add_test(tc, a_right_key_works);
    tcase_add_test(tc, strangers_are_refused);
    tcase_add_test(tc, each_listener_has_its_own_list);
    tcase_add_test(tc, nobody_there_is_down_at_once);
    tcase_add_test(tc, the_dialer_sees_the_end_and_never_comes_back_by_itself);
    tcase_add_test(tc, nothing_of_an_old_session_reaches_a_new_one);
    tcase_add_test(tc, full_does_not_block_and_ends);
    tcase_add_test(tc, odd_envelopes_are_dropped_and_the_next_message_served);
    tcase_add_test(tc, a_claimed_routing_id_takes_nothing_over);
    tcase_add_test(tc, a_message_over_the_limit_ends_its_senders_connection);
    tcase_add_test(tc, no_memory_at_any_place_of_opening);
}

int main(void)
{
    struct err e = {0};
    if (test_tmpdir_make(dir, "zmq") != 0)
        return 1;
    snprintf(path, sizeof path, "%s/link.keys", dir);
    if (transport_keys_make(path, &e) != 0 ||
        transport_keys_load(&gateway_keys, path, true, &e) != 0 ||
        transport_keys_load(&worker_keys, path, false, &e) != 0) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    Suite *s = suite_create("transport_zmq");
    TCase *tc = tcase_create("transport_zmq");
    tcase_set_timeout(tc, 0);
    add_tests(tc);
    suite_add_tcase(s, tc);
    int rc = test_run(s);
    test_tmpdir_remove(dir);
    return rc;
}
