/* server.c - see server.h. */
#include "cli/server.h"
#include "cli/clock.h"
#include "config/address.h"
#include "config/config.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

static char default_endpoint[SETTINGS_TEXT_MAX];

int server_init(struct server *s, const char *endpoint, struct err *e) {
    struct address a;
    sigset_t set;
    memset(s, 0, sizeof(*s));
    s->signal_fd = -1;
    if (endpoint == NULL || endpoint[0] == '\0') {
        struct settings defaults;
        settings_defaults(&defaults);
        snprintf(default_endpoint, sizeof(default_endpoint), "%s", defaults.rpc);
        endpoint = default_endpoint;
    }
    s->endpoint = endpoint;
    if (address_parse_endpoint(&a, endpoint, e) != 0)
        return -1;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    /* Before libzmq starts its threads, so that they inherit the mask. */
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return err_set(e, ERR_IO, "cannot block signals: %s", strerror(errno));
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0)
        return err_set(e, ERR_IO, "cannot make a signal descriptor: %s", strerror(errno));
    return 0;
}

void server_deinit(struct server *s) {
    server_close(s);
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    s->signal_fd = -1;
}

/* Is the port closed? libzmq would keep trying for seconds; a plain connect knows at once. */
static int probe(const struct address *a, struct err *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[8];
    int last = ECONNREFUSED;
    if (a->kind != ADDRESS_TCP)
        return 0;
    snprintf(port, sizeof(port), "%u", (unsigned)a->port);
    int rc = getaddrinfo(a->host, port, &hints, &list);
    if (rc != 0)
        return err_set(e, ERR_IO, "no address of %s: %s", a->host, gai_strerror(rc));
    for (struct addrinfo *at = list; at != NULL && last != 0; at = at->ai_next) {
        int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        last = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    return last == 0 ? 0 : err_set(e, ERR_IO, "%s", strerror(last));
}

int server_open(struct server *s, struct err *e) {
    struct address a;
    if (address_parse_endpoint(&a, s->endpoint, e) != 0 || probe(&a, e) != 0)
        return -1;
    return rpc_client_open(&s->rpc, s->endpoint, e);
}

void server_close(struct server *s) {
    rpc_client_close(&s->rpc);
}

uint64_t server_new_id(struct server *s) {
    return ++s->last_id;
}

void server_put_request(struct buf *out, uint64_t id, const char *path, const char *cls,
                        const struct buf *body) {
    const char *key = getenv("SLUICE_API_KEY");
    rpc_put_request_as(out, id, path, cls, key != NULL && key[0] != '\0' ? key : NULL, body);
}

int server_send(struct server *s, const struct buf *encoded) {
    return s->rpc != NULL ? rpc_client_send(s->rpc, encoded) : TRANSPORT_DOWN;
}

int server_send_wait(struct server *s, const struct buf *encoded, struct err *e) {
    double deadline = clock_ms() + RPC_SILENCE_S * 1e3;
    for (;;) {
        struct rpc_msg m;
        int rc = server_send(s, encoded);
        if (rc == 0)
            return 0;
        if (rc != TRANSPORT_FULL || clock_ms() > deadline) {
            server_close(s);
            return err_set(e, ERR_IO, "the connection was lost");
        }
        enum server_event event = server_next(s, &m, 20, e);
        if (event == SERVER_LOST)
            return -1;
        if (event == SERVER_MESSAGE)
            rpc_msg_deinit(&m);
    }
}

static bool interrupted(const struct server *s) {
    struct signalfd_siginfo info;
    return read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

enum server_event server_next(struct server *s, struct rpc_msg *m, int timeout_ms, struct err *e) {
    double deadline = clock_ms() + timeout_ms;
    for (;;) {
        if (interrupted(s))
            return SERVER_INTERRUPT;
        if (s->rpc != NULL) {
            int rc = rpc_client_recv(s->rpc, m, 0, e);
            if (rc == 1)
                return SERVER_MESSAGE;
            if (rc < 0) {
                server_close(s);
                return SERVER_LOST;
            }
        }
        double left = timeout_ms < 0 ? 1e9 : deadline - clock_ms();
        if (left <= 0)
            return SERVER_TIMEOUT;
        struct pollfd fds[2] = {{.fd = s->signal_fd, .events = POLLIN}, {.events = POLLIN}};
        fds[1].fd = s->rpc != NULL ? rpc_client_fd(s->rpc) : -1;
        poll(fds, 2, (int)(left < 1000 ? left + 1 : 1000));
    }
}

static bool first_model(const struct value *body, char out[SERVER_MODEL_MAX]) {
    const struct value *data = value_get(body, "data");
    if (data == NULL || data->kind != VALUE_ARRAY || data->n == 0)
        return false;
    const struct value *id = value_get(&data->as.items[0], "id");
    if (id == NULL || id->kind != VALUE_STR || id->n_bytes >= SERVER_MODEL_MAX)
        return false;
    memcpy(out, id->as.s, id->n_bytes);
    out[id->n_bytes] = '\0';
    return true;
}

enum server_event server_model(struct server *s, char out[SERVER_MODEL_MAX], struct err *e) {
    struct buf frame = {0}, body = {0};
    struct rpc_msg m;
    bool found = false, refused = false;
    value_put_map(&body, 0);
    server_put_request(&frame, server_new_id(s), "/v1/models", NULL, &body);
    int rc = server_send_wait(s, &frame, e);
    buf_deinit(&body);
    buf_deinit(&frame);
    if (rc != 0)
        return SERVER_LOST;
    enum server_event event = server_next(s, &m, RPC_SILENCE_S * 1000, e);
    if (event == SERVER_TIMEOUT)
        err_set(e, ERR_IO, "the server did not name its models within %d s", RPC_SILENCE_S);
    if (event != SERVER_MESSAGE)
        return event;
    if (m.kind == RPC_DONE && m.body != NULL)
        found = first_model(m.body, out);
    if (m.kind == RPC_ERROR) {
        char text[256];
        server_error_text(&m, text, sizeof(text));
        err_set(e, ERR_UNAUTHORIZED, "%s (the environment's SLUICE_API_KEY is sent)", text);
        refused = true;
    }
    rpc_msg_deinit(&m);
    if (found)
        return SERVER_MESSAGE;
    if (refused) /* 401: the one error that this request can get */
        return SERVER_TIMEOUT;
    err_set(e, ERR_PROTOCOL, "the server names no model; give one with --model");
    return SERVER_TIMEOUT;
}

void server_error_text(const struct rpc_msg *m, char *out, size_t cap) {
    const struct value *text = value_get(value_get(m->body, "error"), "message");
    if (text == NULL || text->kind != VALUE_STR)
        snprintf(out, cap, "error %u without a message", m->status);
    else
        snprintf(out, cap, "%.*s", (int)(text->n_bytes < cap ? text->n_bytes : cap - 1), text->as.s);
    for (char *p = out; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
}
