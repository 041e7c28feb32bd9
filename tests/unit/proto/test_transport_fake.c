/* The memory pair: order, limits, loss, and two threads at full speed (TSan runs this one). */
#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/unit/proto/pump.h"

#include <pthread.h>
#include <sched.h>

#define ROUNDS 3000

static void pair(struct transport **l, struct transport **d)
{
    ck_assert_int_eq(transport_fake_listen(l, NULL), 0);
    ck_assert_int_eq(transport_fake_dial(d, *l, NULL), 0);
}

START_TEST(messages_come_whole_and_in_order)
{
    size_t before = mem_used();
    struct transport *l, *a, *b;
    struct transport_msg m;
    pair(&l, &a);
    ck_assert_int_eq(transport_fake_dial(&b, l, NULL), 0);
    ck_assert(transport_ready(a));
    ck_assert_int_eq(transport_recv(l, &m), TRANSPORT_EMPTY);
    ck_assert_int_eq(transport_send(a, 0, "a1", 2), 0);
    ck_assert_int_eq(transport_send(a, 0, "", 0), 0);
    ck_assert_int_eq(transport_send(b, 0, "b1", 2), 0);
    uint32_t from_a = pump_expect(l, "a1");
    uint32_t from_b = pump_expect(l, "b1"); /* in turn, so a loud peer hides nobody */
    ck_assert_uint_eq(pump_expect(l, ""), from_a);
    ck_assert_uint_ne(from_a, from_b);
    ck_assert_int_eq(transport_send(l, from_b, "to b", 4), 0);
    ck_assert_int_eq(transport_send(l, 999, "nobody", 6), TRANSPORT_GONE);
    ck_assert_uint_eq(pump_expect(b, "to b"), 0);
    transport_peer_drop(l, from_a);
    ck_assert_int_eq(transport_send(l, from_a, "x", 1), TRANSPORT_GONE);
    ck_assert_int_eq(transport_send(a, 0, "a2", 2), 0);
    ck_assert_uint_ne(pump_expect(l, "a2"), from_a);
    transport_close(&a);
    transport_close(&l);
    ck_assert_int_eq(transport_recv(b, &m), TRANSPORT_DOWN);
    ck_assert_int_eq(transport_send(b, 0, "x", 1), TRANSPORT_GONE);
    transport_close(&b);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

START_TEST(full_is_told_and_ends_with_an_event)
{
    struct transport *l, *d;
    struct transport_msg m;
    pair(&l, &d);
    transport_fake_limit(l, 2);
    ck_assert_int_eq(transport_send(d, 0, "1", 1), 0);
    ck_assert_int_eq(transport_send(d, 0, "2", 1), 0);
    ck_assert_int_eq(transport_send(d, 0, "3", 1), TRANSPORT_FULL);
    uint32_t peer = pump_expect(l, "1");
    ck_assert(pump_wait(d)); /* room was made */
    ck_assert_int_eq(transport_recv(d, &m), TRANSPORT_EMPTY);
    ck_assert_int_eq(transport_send(d, 0, "3", 1), 0);
    ck_assert_int_eq(transport_send(l, peer, "x", 1), 0);
    ck_assert_int_eq(transport_send(l, peer, "y", 1), 0);
    ck_assert_int_eq(transport_send(l, peer, "z", 1), TRANSPORT_FULL);
    transport_close(&l); /* with messages both ways: nothing leaks */
    transport_close(&d);
}
END_TEST

START_TEST(a_cut_drops_what_was_queued)
{
    struct transport *l, *d, *d2;
    struct transport_msg m;
    pair(&l, &d);
    ck_assert_int_eq(transport_send(d, 0, "hello", 5), 0);
    uint32_t peer = pump_expect(l, "hello");
    ck_assert_int_eq(transport_send(d, 0, "old", 3), 0);
    ck_assert_int_eq(transport_send(l, peer, "old", 3), 0);
    transport_fake_cut(d);
    ck_assert_int_eq(transport_recv(d, &m), TRANSPORT_DOWN);
    ck_assert_int_eq(transport_recv(d, &m), TRANSPORT_DOWN);
    ck_assert(!transport_ready(d));
    ck_assert_int_eq(transport_send(l, peer, "x", 1), TRANSPORT_GONE);
    ck_assert_int_eq(transport_recv(l, &m), TRANSPORT_EMPTY);
    transport_close(&d);
    ck_assert_int_eq(transport_fake_dial(&d2, l, NULL), 0);
    ck_assert_int_eq(transport_send(d2, 0, "new", 3), 0);
    ck_assert_uint_ne(pump_expect(l, "new"), peer);
    ck_assert_int_eq(transport_recv(d2, &m), TRANSPORT_EMPTY);
    transport_close(&d2);
    transport_close(&l);
}
END_TEST

/* The dialer's thread: sends numbers, hears each one back, in order. */
static void *echo_client(void *arg)
{
    struct transport *d = arg;
    uint32_t sent = 0, heard = 0;
    while (heard < ROUNDS) {
        while (sent < ROUNDS && transport_send(d, 0, &sent, sizeof sent) == TRANSPORT_OK)
            sent++;
        struct transport_msg m;
        int rc;
        while ((rc = transport_recv(d, &m)) == TRANSPORT_OK) {
            uint32_t number;
            memcpy(&number, m.p, sizeof number);
            transport_msg_free(&m);
            if (number != heard++)
                return "wrong order";
        }
        if (rc == TRANSPORT_DOWN)
            return "down";
        if (heard < ROUNDS && !pump_wait(d))
            return "silence";
    }
    return NULL;
}

START_TEST(two_threads_echo_through_small_queues)
{
    struct transport *l, *d;
    pthread_t thread;
    void *said;
    pair(&l, &d);
    transport_fake_limit(l, 8);
    ck_assert_int_eq(pthread_create(&thread, NULL, echo_client, d), 0);
    for (uint32_t n = 0; n < ROUNDS; n++) {
        struct transport_msg m;
        ck_assert_int_eq(pump_recv(l, &m), TRANSPORT_OK);
        int rc;
        while ((rc = transport_send(l, m.peer, m.p, m.n)) == TRANSPORT_FULL) {
            /* Reading one more would be a message over: so wait with the others unread. */
            ck_assert(pump_wait(l));
            sched_yield();
        }
        ck_assert_int_eq(rc, TRANSPORT_OK);
        transport_msg_free(&m);
    }
    ck_assert_int_eq(pthread_join(thread, &said), 0);
    ck_assert_msg(said == NULL, "%s", (char *)said);
    transport_close(&l);
    transport_close(&d);
}
END_TEST

static void *cutter(void *arg)
{
    transport_fake_cut(arg);
    return NULL;
}

/* A loss from another thread is told exactly once as DOWN, whenever it comes. */
START_TEST(a_cut_from_another_thread_is_seen)
{
    for (unsigned i = 0; i < 200; i++) {
        struct transport *l, *d;
        struct transport_msg m;
        pthread_t thread;
        pair(&l, &d);
        ck_assert_int_eq(pthread_create(&thread, NULL, cutter, d), 0);
        while (transport_send(d, 0, "x", 1) != TRANSPORT_GONE) {
            if (transport_recv(l, &m) == TRANSPORT_OK)
                transport_msg_free(&m);
        }
        ck_assert_int_eq(pump_recv(d, &m), TRANSPORT_DOWN);
        pthread_join(thread, NULL);
        transport_close(&d);
        transport_close(&l);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("transport_fake");
    TCase *tc = tcase_create("transport_fake");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, messages_come_whole_and_in_order);
    tcase_add_test(tc, full_is_told_and_ends_with_an_event);
    tcase_add_test(tc, a_cut_drops_what_was_queued);
    tcase_add_test(tc, two_threads_echo_through_small_queues);
    tcase_add_test(tc, a_cut_from_another_thread_is_seen);
    suite_add_tcase(s, tc);
    return test_run(s);
}
