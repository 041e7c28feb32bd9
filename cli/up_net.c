/* up_net.c - see up_net.h. */
#include "cli/up_net.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define AGAIN_MS 100

/* The first address of host and port; free with freeaddrinfo. */
static struct addrinfo *resolve(const struct address *a, int flags) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
    char port[8];
    snprintf(port, sizeof(port), "%u", (unsigned)a->port);
    return getaddrinfo(a->host, port, &hints, &list) == 0 ? list : NULL;
}

static int open_socket(const struct addrinfo *at) {
    return socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
}

/* 0 = free, else an errno. As the listeners do, with SO_REUSEADDR. */
static int try_bind(const struct address *a) {
    int one = 1, rc = 0;
    struct addrinfo *list = resolve(a, AI_PASSIVE);
    if (list == NULL)
        return EADDRNOTAVAIL;
    int fd = open_socket(list);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, list->ai_addr, list->ai_addrlen) != 0 || listen(fd, 1) != 0)
        rc = errno;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(list);
    return rc;
}

static int check_port(const struct address *a, const char *flag, int patience_ms, struct err *e) {
    if (a->kind != ADDRESS_TCP || a->port == 0)
        return 0;
    int rc = try_bind(a);
    for (int waited = 0; rc == EADDRINUSE && waited < patience_ms; waited += AGAIN_MS) {
        poll(NULL, 0, AGAIN_MS);
        rc = try_bind(a);
    }
    if (rc == EADDRINUSE)
        return err_set_param(e, ERR_IO, flag, "port %u is taken; choose another with --%s",
                             (unsigned)a->port, flag);
    if (rc != 0)
        return err_set_param(e, ERR_IO, flag, "cannot listen on %s port %u: %s; choose another with "
                             "--%s", a->host, (unsigned)a->port, strerror(rc), flag);
    return 0;
}

int up_net_check_ports(const struct settings *s, int patience_ms, struct err *e) {
    static const char *const flags[3] = {"http", "rpc", "workers-endpoint"};
    struct address a[3];
    if (address_parse_host_port(&a[0], s->http, e) != 0 ||
        address_parse_endpoint(&a[1], s->rpc, e) != 0 ||
        address_parse_endpoint(&a[2], s->workers_endpoint, e) != 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < i; k++)
            if (a[i].kind == ADDRESS_TCP && a[k].kind == ADDRESS_TCP && a[i].port != 0 &&
                a[i].port == a[k].port)
                return err_set_param(e, ERR_BAD_VALUE, flags[i], "--%s and --%s both have port %u",
                                     flags[k], flags[i], (unsigned)a[i].port);
        if (check_port(&a[i], flags[i], patience_ms, e) != 0)
            return -1;
    }
    return 0;
}

int up_net_ready(const struct address *http) {
    static const char request[] = "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct timeval limit = {.tv_usec = 500000};
    char head[16] = "";
    int status = -1;
    struct addrinfo *list = resolve(http, 0);
    int fd = list != NULL ? open_socket(list) : -1;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0 &&
        connect(fd, list->ai_addr, list->ai_addrlen) == 0 &&
        send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(request) - 1 &&
        recv(fd, head, sizeof(head) - 1, MSG_WAITALL) == (ssize_t)sizeof(head) - 1 &&
        strncmp(head, "HTTP/1.1 ", 9) == 0)
        status = atoi(head + 9);
    if (fd >= 0)
        close(fd);
    if (list != NULL)
        freeaddrinfo(list);
    return status;
}
