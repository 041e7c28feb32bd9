/* address.c - see address.h. */
#include "config/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool host_byte(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_';
}

static int parse_port(const char *text, uint16_t *out) {
    unsigned v = 0;
    size_t n = 0;
    if (strcmp(text, "*") == 0) {
        *out = 0;
        return 0;
    }
    for (; text[n] >= '0' && text[n] <= '9' && n < 6; n++)
        v = v * 10 + (unsigned)(text[n] - '0');
    if (n == 0 || text[n] != '\0' || v > 65535)
        return -1;
    *out = (uint16_t)v;
    return 0;
}

static int bad(struct err *e, const char *text, const char *why) {
    return err_set(e, ERR_BAD_VALUE, "'%.200s' %s", text, why);
}

/* `text` is HOST:PORT; `whole` is what the user wrote, for the error. */
static int parse_tcp(struct address *a, const char *text, const char *whole, struct err *e) {
    *a = (struct address){.kind = ADDRESS_TCP};
    const char *colon = strrchr(text, ':');
    if (colon == NULL || parse_port(colon + 1, &a->port) != 0)
        return bad(e, whole, "has no port from 0 to 65535, expected HOST:PORT");
    const char *host = text;
    size_t len = (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        a->is_ipv6 = true;
        host++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof(a->host))
        return bad(e, whole, "has no host, expected HOST:PORT");
    memcpy(a->host, host, len);
    if (a->is_ipv6) {
        struct in6_addr in6;
        if (inet_pton(AF_INET6, a->host, &in6) != 1)
            return bad(e, whole, "holds no IPv6 address between its brackets");
        return 0;
    }
    if (strcmp(a->host, "*") == 0)
        return 0;
    for (size_t i = 0; i < len; i++)
        if (!host_byte(host[i]))
            return bad(e, whole, "is no host name or address (IPv6 needs brackets: [::1]:PORT)");
    return 0;
}

int address_parse_host_port(struct address *a, const char *text, struct err *e) {
    return parse_tcp(a, text, text, e);
}

int address_parse_endpoint(struct address *a, const char *text, struct err *e) {
    if (strncmp(text, "tcp://", 6) == 0)
        return parse_tcp(a, text + 6, text, e);
    if (strncmp(text, "ipc://", 6) != 0)
        return bad(e, text, "is no endpoint, expected tcp://HOST:PORT or ipc://PATH");
    *a = (struct address){.kind = ADDRESS_IPC};
    if (text[6] != '/')
        return bad(e, text, "needs an absolute path: ipc:///run/NAME");
    if (strlen(text + 6) >= sizeof(a->path))
        return bad(e, text, "has a path longer than a socket may have (103 bytes)");
    memcpy(a->path, text + 6, strlen(text + 6) + 1);
    return 0;
}

bool address_is_loopback(const struct address *a) {
    struct in_addr in4;
    struct in6_addr in6;
    if (a->kind == ADDRESS_IPC || strcasecmp(a->host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, a->host, &in4) == 1)
        return (ntohl(in4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, a->host, &in6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&in6) || (IN6_IS_ADDR_V4MAPPED(&in6) && in6.s6_addr[12] == 127);
}

int address_format(const struct address *a, char *out, size_t cap) {
    int n;
    if (a->kind == ADDRESS_IPC)
        n = snprintf(out, cap, "ipc://%s", a->path);
    else
        n = snprintf(out, cap, a->is_ipv6 ? "[%s]:%u" : "%s:%u", a->host, (unsigned)a->port);
    return n >= 0 && (size_t)n < cap ? 0 : -1;
}
