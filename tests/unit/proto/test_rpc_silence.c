/* A server that is connected and says nothing is given up after RPC_SILENCE_S (which this test waits for). */
#include "proto/rpc.h"

#include "base/mem.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <string.h>

START_TEST(a_silent_server_is_given_up)
{
    struct transport *t;
    struct rpc_client *c;
    struct rpc_msg m;
    struct err e;
    size_t before = mem_used();
    ck_assert_int_eq(transport_listen(&t, "tcp://127.0.0.1:0", NULL, RPC_BYTES_MAX, &e), 0);
    ck_assert_int_eq(rpc_client_open(&c, transport_endpoint(t), &e), 0);
    ck_assert_int_eq(rpc_client_recv(c, &m, -1, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "silent"));
    struct transport_msg got;
    unsigned pings = 0;
    while (transport_recv(t, &got) == TRANSPORT_OK) {
        pings++;
        transport_msg_free(&got);
    }
    ck_assert_uint_eq(pings, RPC_SILENCE_S / RPC_PING_S);
    rpc_client_close(&c);
    transport_close(&t);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rpc_silence");
    TCase *tc = tcase_create("rpc_silence");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, a_silent_server_is_given_up);
    suite_add_tcase(s, tc);
    return test_run(s);
}
