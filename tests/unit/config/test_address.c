/* Addresses: what parses, what is loopback, and back to text. */
#include "config/address.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <string.h>

START_TEST(good_ones) {
    static const struct {
        const char *text, *host;
        unsigned port;
        bool loopback;
    } cases[] = {
        {"127.0.0.1:8000", "127.0.0.1", 8000, true},
        {"127.255.0.9:1", "127.255.0.9", 1, true},
        {"LocalHost:0", "LocalHost", 0, true},
        {"[::1]:65535", "::1", 65535, true},
        {"[0:0:0:0:0:0:0:1]:1", "0:0:0:0:0:0:0:1", 1, true},
        {"[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1", 1, true},
        {"[::ffff:8.8.8.8]:1", "::ffff:8.8.8.8", 1, false},
        {"[::]:1", "::", 1, false},
        {"0.0.0.0:1", "0.0.0.0", 1, false},
        {"*:1", "*", 1, false},
        {"127.0.0.1:*", "127.0.0.1", 0, true},
        {"127.1:1", "127.1", 1, false},
        {"localhost.evil.org:1", "localhost.evil.org", 1, false},
        {"127.0.0.1.evil.org:1", "127.0.0.1.evil.org", 1, false},
        {"128.0.0.1:1", "128.0.0.1", 1, false},
        {"0127.0.0.1:1", "0127.0.0.1", 1, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct address a, b;
        struct err e;
        char endpoint[300], text[300];
        ck_assert_msg(address_parse_host_port(&a, cases[i].text, &e) == 0, "%s", e.msg);
        ck_assert_str_eq(a.host, cases[i].host);
        ck_assert_uint_eq(a.port, cases[i].port);
        ck_assert_msg(address_is_loopback(&a) == cases[i].loopback, "%s", cases[i].text);
        snprintf(endpoint, sizeof(endpoint), "tcp://%s", cases[i].text);
        ck_assert_int_eq(address_parse_endpoint(&b, endpoint, &e), 0);
        ck_assert_mem_eq(&a, &b, sizeof(a));
        ck_assert_int_eq(address_format(&a, text, sizeof(text)), 0);
        ck_assert_int_eq(address_parse_host_port(&b, text, &e), 0);
        ck_assert_mem_eq(&a, &b, sizeof(a));
        ck_assert_int_eq(address_format(&a, text, 3), -1);
    }
}
END_TEST

START_TEST(bad_ones) {
    static const char *const bad[] = {
        "",        ":8000",     "host",       "host:",    "host:x",  "h:65536",  "h:-1",
        "h:1 ",    "h:000001x", "::1:80",     "[::1]",    "[::1:80", "[]:80",    "[1.2.3.4]:1",
        "[::g]:1", "a b:1",     "http://h:1", "user@h:1", "h/x:1",   "h:1234567"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct address a;
        struct err e;
        ck_assert_msg(address_parse_host_port(&a, bad[i], &e) == -1, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(e.msg, bad[i]));
    }
    char longest[400];
    memset(longest, 'h', sizeof(longest));
    strcpy(longest + ADDRESS_HOST_MAX, ":1");
    struct address a;
    ck_assert_int_eq(address_parse_host_port(&a, longest, NULL), -1);
}
END_TEST

START_TEST(ipc_endpoints) {
    struct address a;
    struct err e;
    char text[128];
    ck_assert_int_eq(address_parse_endpoint(&a, "ipc:///run/s.sock", &e), 0);
    ck_assert_int_eq(a.kind, ADDRESS_IPC);
    ck_assert_str_eq(a.path, "/run/s.sock");
    ck_assert(address_is_loopback(&a));
    ck_assert_int_eq(address_format(&a, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "ipc:///run/s.sock");
    ck_assert_int_eq(address_parse_endpoint(&a, "ipc://relative", &e), -1);
    ck_assert_int_eq(address_parse_endpoint(&a, "ipc://", &e), -1);
    ck_assert_int_eq(address_parse_endpoint(&a, "inproc://x", &e), -1);
    ck_assert_int_eq(address_parse_endpoint(&a, "127.0.0.1:1", &e), -1);
    memset(text, 'p', sizeof(text));
    memcpy(text, "ipc:///", 7);
    text[6 + ADDRESS_PATH_MAX] = '\0';
    ck_assert_int_eq(address_parse_endpoint(&a, text, &e), -1);
    text[5 + ADDRESS_PATH_MAX] = '\0';
    ck_assert_int_eq(address_parse_endpoint(&a, text, &e), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("address");
    TCase *tc = tcase_create("address");
    tcase_add_test(tc, good_ones);
    tcase_add_test(tc, bad_ones);
    tcase_add_test(tc, ipc_endpoints);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
