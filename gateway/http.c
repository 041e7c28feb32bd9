#include "gateway/http_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/address.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SWEEP_MS 500
#define DESCRIPTORS_KEPT 64u        /* for the link, the RPC door, files */
#define CONNS_OVER 16u /* connections over the limit that are there only to be told so */
#define FLUSH_RUNS 8
#define SEND_BUFFER_BYTES                                                                          \
    (256 << 10) /* else the kernel keeps megabytes for each client that does not read */
#define HTTP_POOL_BYTES (96u << 10) /* per connection: headers, and the chunk that is being sent */

/* ---- the loop: MHD_run when its epoll is readable, when its time-out is due, after resumes */

static void rearm(struct http_server *h);

static void run(struct http_server *h)
{
    h->run_wanted = false;
    MHD_run(h->daemon);
    rearm(h);
}

static void on_timeout(uv_timer_t *t)
{
    run(t->data);
}

static void rearm(struct http_server *h)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES) uv_timer_start(&h->timeout, on_timeout, ms, 0);
    else uv_timer_stop(&h->timeout);
}

static void on_epoll(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    run(p->data);
}

static void on_check(uv_check_t *c)
{
    struct http_server *h = c->data;
    if (h->run_wanted) run(h);
}

/* Timers run before this point of a turn: what they resumed is served before the loop sleeps. */
static void on_prepare(uv_prepare_t *p)
{
    struct http_server *h = p->data;
    for (int i = 0; h->run_wanted && i < 4; i++) run(h);
    if (h->run_wanted) uv_timer_start(&h->timeout, on_timeout, 0, 0);
}

void http_run_soon(struct http_server *h)
{
    h->run_wanted = true;
}

/* ---- deadlines that MHD does not know: headers, body, a reader that reads nothing */

void http_cut(struct http_conn *c)
{
    if (!c->cut) shutdown(c->fd, SHUT_RDWR);
    c->cut = true;
}

/* libmicrohttpd takes no reply in the middle of headers or body; nothing else was sent on the
 * connection since its last whole reply, so it is written past it. */
static void time_out(struct http_call *c)
{
    struct err e;
    struct buf body = {0}, all = {0};
    err_set(&e, ERR_TIMEOUT, "The request was not sent in time.");
    error_json(&body, &e);
    buf_addf(
        &all,
        "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\nConnection: close\r\n");
    if (c->label[0]) buf_addf(&all, "X-Request-Id: %s\r\n", c->label);
    buf_addf(&all, "Content-Length: %zu\r\n\r\n%s", body.len, buf_str(&body));
    if (!all.bad && !body.bad && send(c->hc->fd, all.p, all.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        log_debug("http: 408 not sent");
    buf_deinit(&all);
    buf_deinit(&body);
    http_cut(c->hc);
}

/* MHD keeps a connection whose client closed in the middle of the headers. */
static bool peer_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1;
}

static bool past(uint64_t now, uint64_t since, double limit_s)
{
    return now > since && (double)(now - since) > limit_s * 1e9;
}

static void sweep_call(struct http_server *h, struct http_call *c, uint64_t now)
{
    const struct settings *s = h->g->settings;
    if (c->gone || c->hc == NULL || c->hc->cut) return;
    if (c->request == NULL && !c->replied) {
        if (!c->seen && peer_closed(c->hc->fd)) http_cut(c->hc);
        else if (past(now, c->since_ns, c->seen ? s->body_timeout_s : s->header_timeout_s))
            time_out(c);
    } else if (c->replied && !c->suspended && past(now, c->progress_ns, s->slow_reader_s)) {
        h->g->metrics.slow_readers_cut++;
        log_info("a reply was cut: its client read nothing for %g s", s->slow_reader_s);
        http_call_gone(c);
    }
}

static void on_sweep(uv_timer_t *t)
{
    struct http_server *h = t->data;
    uint64_t now = gateway_now_ns();
    struct list *at, *next;
    list_each(at, next, &h->calls) sweep_call(h, list_item(at, struct http_call, node), now);
    list_each(at, next, &h->conns) {
        struct http_conn *c = list_item(at, struct http_conn, node);
        double limit_s = c->served ? HTTP_KEEPALIVE_S : h->g->settings->header_timeout_s;
        if (c->in_call) continue;
        if (past(now, c->since_ns, limit_s) || (!c->served && peer_closed(c->fd))) http_cut(c);
    }
}

/* ---- MHD's own questions */

static void on_connection(void *cls, struct MHD_Connection *conn, void **ctx,
                          enum MHD_ConnectionNotificationCode why)
{
    struct http_server *h = cls;
    struct http_conn *c = *ctx;
    if (why == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (c == NULL) return;
        list_remove(&c->node);
        h->n_conns--;
        mem_free(c);
        *ctx = NULL;
        http_run_soon(h); /* at its limit MHD accepts again in the next run only */
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    c = mem_zalloc(sizeof *c);
    if (c == NULL || info == NULL) {
        mem_free(c);
        return;
    }
    c->fd = info->connect_fd;
    c->since_ns = gateway_now_ns();
    list_push_back(&h->conns, &c->node);
    h->n_conns++;
    *ctx = c;
}

/* Nothing is decoded by MHD: %00 would cut the URL short. Paths are decoded in http_route.c, after
 * the split. */
static size_t keep_escapes(void *cls, struct MHD_Connection *conn, char *s)
{
    (void)cls;
    (void)conn;
    return strlen(s);
}

static void on_mhd_log(void *cls, const char *fmt, va_list ap)
{
    char line[512];
    (void)cls;
    vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\r\n")] = '\0';
    log_debug("http: %s", line);
}

/* ---- life */

static int bind_first(const struct addrinfo *list)
{
    int fd = -1, saved = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        int one = 1;
        fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){SEND_BUFFER_BYTES},
                   sizeof(int)); /* accepted ones inherit it */
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 1024) == 0) break;
        saved = errno;
        close(fd);
        fd = -1;
    }
    errno = saved;
    return fd;
}

static int listen_on(struct http_server *h, const char *text, struct err *e)
{
    struct address a;
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE},
                    *list = NULL;
    char port[8];
    if (address_parse_host_port(&a, text, e) != 0) return -1;
    snprintf(port, sizeof port, "%u", a.port);
    int r = getaddrinfo(a.host, port, &hints, &list);
    if (r != 0) return err_set(e, ERR_IO, "cannot resolve %s: %s", text, gai_strerror(r));
    h->listen_fd = bind_first(list);
    int saved = errno;
    freeaddrinfo(list);
    if (h->listen_fd < 0) {
        return err_set(e, ERR_IO, "cannot listen on %s: %s%s", text, strerror(saved),
                       saved == EADDRINUSE ? "; choose another address with --http" : "");
    }
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    getsockname(h->listen_fd, (struct sockaddr *)&ss, &len);
    h->port = ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
                                             : ((struct sockaddr_in *)&ss)->sin_port);
    return 0;
}

/* Connections never take the last descriptors: an accept that fails for want of one would be tried
 * again and again, by us or by the link's own thread. Over max_conns a client gets 503, over the
 * sum it waits in the backlog. */
static void bound_connections(struct http_server *h)
{
    struct rlimit r;
    uint64_t want = (uint64_t)h->g->settings->max_connections;
    h->max_conns = (uint32_t)want;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return;
    if (r.rlim_cur < r.rlim_max) {
        rlim_t soft = r.rlim_cur;
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) != 0) r.rlim_cur = soft;
    }
    uint64_t room = r.rlim_cur > DESCRIPTORS_KEPT + CONNS_OVER + 1
                        ? r.rlim_cur - DESCRIPTORS_KEPT - CONNS_OVER
                        : 1;
    if (want <= room) return;
    h->max_conns = (uint32_t)room;
    log_warn("at most %u connections: the process may open %llu descriptors", h->max_conns,
             (unsigned long long)r.rlim_cur);
}

static int start_daemon(struct http_server *h, struct err *e)
{
    const struct settings *s = h->g->settings;
    bound_connections(h);
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        http_call_handle, h, MHD_OPTION_LISTEN_SOCKET, h->listen_fd, MHD_OPTION_EXTERNAL_LOGGER,
        on_mhd_log, NULL, MHD_OPTION_URI_LOG_CALLBACK, http_call_new, h,
        MHD_OPTION_NOTIFY_COMPLETED, http_call_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_POOL_BYTES + (size_t)s->max_header_bytes,
        MHD_OPTION_CONNECTION_LIMIT, h->max_conns + CONNS_OVER, MHD_OPTION_CONNECTION_TIMEOUT, 0u,
        MHD_OPTION_END);
    if (h->daemon == NULL) {
        close(h->listen_fd);
        return err_set(e, ERR_IO, "cannot start the HTTP server on %s", s->http);
    }
    return 0;
}

static int watch_daemon(struct http_server *h, struct err *e)
{
    uv_loop_t *loop = h->g->loop;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    h->epoll.data = h->timeout.data = h->sweep.data = h->prepare.data = h->check.data = h;
    if (info == NULL || uv_poll_init(loop, &h->epoll, info->epoll_fd) != 0) {
        MHD_stop_daemon(h->daemon);
        return err_set(e, ERR_IO, "cannot watch the HTTP server");
    }
    uv_timer_init(loop, &h->timeout);
    uv_timer_init(loop, &h->sweep);
    uv_prepare_init(loop, &h->prepare);
    uv_check_init(loop, &h->check);
    h->open_handles += 5;
    uv_poll_start(&h->epoll, UV_READABLE, on_epoll);
    uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    uv_prepare_start(&h->prepare, on_prepare);
    uv_check_start(&h->check, on_check);
    return 0;
}

int http_create(struct http_server **out, struct gateway *g, struct err *e)
{
    struct http_server *h = mem_zalloc(sizeof *h);
    if (h == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    h->g = g;
    list_init(&h->calls);
    list_init(&h->conns);
    if (listen_on(h, g->settings->http, e) != 0 || start_daemon(h, e) != 0 ||
        watch_daemon(h, e) != 0) {
        mem_free(h);
        return -1;
    }
    *out = h;
    return 0;
}

uint16_t http_port(const struct http_server *h)
{
    return h->port;
}

uint32_t http_connections(const struct http_server *h)
{
    return h ? h->n_conns : 0;
}

bool http_idle(const struct http_server *h)
{
    struct list *at, *next;
    list_each(at, next, &h->calls) {
        const struct http_call *c = list_item(at, struct http_call, node);
        if (c->request || c->replied) return false; /* half-sent requests are not waited for */
    }
    return true;
}

void http_quiesce(struct http_server *h)
{
    if (h->quiesced) return;
    h->quiesced = true;
    MHD_socket fd = MHD_quiesce_daemon(h->daemon);
    if (fd != MHD_INVALID_SOCKET) close(fd);
    rearm(h);
}

static void on_closed(uv_handle_t *w)
{
    ((struct http_server *)w->data)->open_handles--;
}

void http_destroy(struct http_server **ph)
{
    struct http_server *h = *ph;
    struct list *at, *next;
    *ph = NULL;
    if (h == NULL) return;
    http_quiesce(h);
    for (int i = 0; i < FLUSH_RUNS; i++) MHD_run(h->daemon); /* errors that were just woken */
    list_each(at, next, &h->calls) http_call_gone(list_item(at, struct http_call, node));
    MHD_run(h->daemon); /* suspended connections must be resumed and seen before the stop, or it
                           aborts */
    uv_close((uv_handle_t *)&h->epoll, on_closed);
    MHD_stop_daemon(h->daemon);
    uv_close((uv_handle_t *)&h->timeout, on_closed);
    uv_close((uv_handle_t *)&h->sweep, on_closed);
    uv_close((uv_handle_t *)&h->prepare, on_closed);
    uv_close((uv_handle_t *)&h->check, on_closed);
    while (h->open_handles > 0) uv_run(h->g->loop, UV_RUN_ONCE);
    mem_free(h);
}
