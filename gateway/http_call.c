#include "gateway/http_priv.h"

#include "base/mem.h"
#include "gateway/tenants.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define DISCARD_MAX                                                                                \
    (64u                                                                                           \
     << 20) /* bytes of a refused body that are read, so that the reply is not lost in a reset */

/* ---- labels and life */

static bool label_ok(const char *s)
{
    size_t n = s ? strlen(s) : 0;
    if (n == 0 || n > 128) return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") == n;
}

static void make_label(struct http_call *c)
{
    const char *given = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "X-Request-Id");
    uint64_t r[2] = {0};
    if (label_ok(given)) {
        snprintf(c->label, sizeof c->label, "%s", given);
        return;
    }
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r) r[0] = gateway_now_ns();
    snprintf(c->label, sizeof c->label, "req_%016llx%016llx", (unsigned long long)r[0],
             (unsigned long long)r[1]);
}

/* MHD asks for this before it parses headers: the raw URI is ours, its own decoding is not used. */
void *http_call_new(void *cls, const char *uri, struct MHD_Connection *conn)
{
    struct http_server *h = cls;
    struct http_call *c = mem_zalloc(sizeof *c);
    if (c == NULL) return NULL;
    size_t n = strcspn(uri, "?#");
    c->h = h;
    c->conn = conn;
    c->uri_long = n >= sizeof c->uri;
    if (c->uri_long) n = sizeof c->uri - 1;
    memcpy(c->uri, uri, n);
    buf_init(&c->body, (size_t)h->g->settings->max_body_bytes + 1);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    c->hc = info ? info->socket_context : NULL;
    /* the header deadline of a connection's first request runs from its accept */
    c->since_ns = c->hc && !c->hc->served ? c->hc->since_ns : gateway_now_ns();
    if (c->hc) c->hc->in_call = true;
    list_push_back(&h->calls, &c->node);
    h->n_calls++;
    return c;
}

static void on_watch_closed(uv_handle_t *w)
{
    struct http_call *c = w->data;
    c->h->open_handles--;
    mem_free(c);
}

void http_call_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode why)
{
    struct http_call *c = *con_cls;
    (void)cls;
    (void)conn;
    (void)why;
    if (c == NULL) return;
    *con_cls = NULL;
    request_close(&c->request);
    if (c->who.tenant) tenant_release(c->h->g->tenants, &c->who.tenant);
    gateway_uncharge(c->h->g, c->charged);
    buf_deinit(&c->body);
    buf_deinit(&c->out);
    list_remove(&c->node);
    c->h->n_calls--;
    if (c->hc) {
        c->hc->in_call = false;
        c->hc->served = true;
        c->hc->since_ns = gateway_now_ns();
    }
    if (c->watching) uv_close((uv_handle_t *)&c->watch, on_watch_closed);
    else mem_free(c);
}

void http_call_resume(struct http_call *c)
{
    if (!c->suspended) return;
    c->suspended = false;
    c->progress_ns = gateway_now_ns(); /* before that there was nothing to take */
    MHD_resume_connection(c->conn);
    http_run_soon(c->h);
}

/* The client went away, or is cut: nothing of it may run on. MHD closes the connection when the
 * call is resumed; one that waits for more of a body does not close by itself when the other side
 * has. */
void http_call_gone(struct http_call *c)
{
    if (c->gone) return;
    c->gone = true;
    request_close(&c->request);
    if (c->suspended) http_call_resume(c);
    else if (c->hc) http_cut(c->hc);
}

static void on_watch(uv_poll_t *w, int status, int events)
{
    struct http_call *c = w->data;
    if (status < 0 || (events & UV_DISCONNECT)) { /* a reset shows as a negative status */
        uv_poll_stop(w);
        if (!c->replied || c->streaming)
            http_call_gone(c); /* else the reply is complete: it may still be read */
    }
}

static void watch(struct http_call *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL || uv_poll_init(c->h->g->loop, &c->watch, info->connect_fd) != 0) return;
    c->watch.data = c;
    c->watching = true;
    c->h->open_handles++;
    uv_poll_start(&c->watch, UV_DISCONNECT, on_watch);
}

/* ---- one call */

static void on_wake(void *door)
{
    http_call_resume(door);
}

#define DEADLINE_MS_MAX (7ull * 86400 * 1000)

/* X-Sluice-Deadline-Ms: how long the client has use for the answer. -1: it is no such number. */
static int deadline_of(struct http_call *c, uint64_t *ms)
{
    const char *text = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "X-Sluice-Deadline-Ms");
    *ms = 0;
    if (text == NULL) return 0;
    size_t n = strlen(text);
    if (n == 0 || n > 12 || strspn(text, "0123456789") != n) return -1;
    *ms = strtoull(text, NULL, 10);
    return *ms >= 1 && *ms <= DEADLINE_MS_MAX ? 0 : -1;
}

static enum MHD_Result submit(struct http_call *c)
{
    const char *cls = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "X-Sluice-Class");
    struct request_in in = {
        .endpoint = c->route->endpoint, .who = c->who, .wake = on_wake, .door = c};
    if (cls && strlen(cls) >= sizeof in.cls)
        return http_reply_now(c, ERR_BAD_VALUE, "X-Sluice-Class", "There is no such class.", NULL);
    if (deadline_of(c, &in.deadline_ms) != 0)
        return http_reply_now(c, ERR_BAD_VALUE, "X-Sluice-Deadline-Ms",
                              "The deadline is a whole number of milliseconds, 1 to 604800000.", NULL);
    snprintf(in.cls, sizeof in.cls, "%s", cls ? cls : "");
    memcpy(in.label, c->label, sizeof in.label);
    gateway_uncharge(c->h->g, c->charged); /* the request takes them on */
    c->charged = 0;
    in.body = buf_take(&c->body, &in.n_body);
    if (in.body == NULL)
        return http_reply_now(c, ERR_NO_MEMORY, "", "The server is out of memory; try again.",
                              NULL);
    c->request = request_submit(c->h->g, &in);
    if (c->request == NULL)
        return http_reply_now(c, ERR_NO_MEMORY, "", "The server is out of memory; try again.",
                              NULL);
    return http_answer(c);
}

static void read_method(struct http_call *c, const char *method)
{
    c->method = strcmp(method, "GET") == 0    ? HTTP_GET
                : strcmp(method, "POST") == 0 ? HTTP_POST
                : strcmp(method, "HEAD") == 0 ? HTTP_HEAD
                                              : HTTP_OTHER;
}

static bool method_ok(const struct http_call *c)
{
    return (c->route->get && (c->method == HTTP_GET || c->method == HTTP_HEAD)) ||
           (c->route->post && c->method == HTTP_POST);
}

static enum MHD_Result refuse_route(struct http_call *c)
{
    char text[160];
    if (c->route == NULL) {
        snprintf(text, sizeof text, "Invalid URL: there is no path '%.80s' here.", c->uri);
        return http_reply_now(c, ERR_NOT_FOUND, "", text, NULL);
    }
    snprintf(text, sizeof text, "This path takes %s.", c->route->allow);
    return http_reply_now(c, ERR_METHOD, "", text, c->route->allow);
}

static enum MHD_Result refuse_size(struct http_call *c)
{
    return http_reply_now(c, ERR_TOO_LARGE, "", "The request body is too large.", NULL);
}

/* What the headers alone decide. A refusal before the body closes the connection, so it is given
 * only to those who wait for it (Expect), or whose body is too much even to throw away; the others
 * get it after their body. */
static enum MHD_Result begin_body(struct http_call *c)
{
    const char *length = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Content-Length");
    bool waits = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Expect") != NULL;
    uint64_t n = length == NULL ? 0 : strlen(length) > 18 ? UINT64_MAX : strtoull(length, NULL, 10);
    uint64_t max = (uint64_t)c->h->g->settings->max_body_bytes;
    c->too_large = n > max;
    if (c->too_large && !(c->denied && waits) && (waits || n > max + DISCARD_MAX)) return refuse_size(c);
    if (waits && c->denied) return http_deny(c);
    if (waits && (c->route == NULL || !method_ok(c))) return refuse_route(c);
    return MHD_YES;
}

/* First callback: headers are known, no body yet. */
static enum MHD_Result begin(struct http_call *c, const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    c->seen = true;
    c->since_ns = gateway_now_ns();
    make_label(c);
    read_method(c, method);
    c->route = c->uri_long ? NULL : http_route_find(c->uri, &c->id);
    if (c->route && c->route->is_call) watch(c);
    http_auth(c);
    if (c->h->n_conns > c->h->max_conns) {
        return http_reply_now(c, ERR_QUEUE_FULL, "", "Too many connections; try again later.",
                              NULL);
    }
    if (info && info->header_size > (size_t)c->h->g->settings->max_header_bytes) {
        return http_reply_now(c, ERR_HEADERS, "", "The request line and headers are too large.",
                              NULL);
    }
    return begin_body(c);
}

static enum MHD_Result take_body(struct http_call *c, const char *p, size_t n)
{
    uint64_t max = (uint64_t)c->h->g->settings->max_body_bytes;
    c->taken += n;
    if (c->taken > max) c->too_large = true; /* read on and throw away */
    if (c->taken > max + DISCARD_MAX) return MHD_NO;
    if (c->too_large || c->no_room || c->denied || c->route == NULL || !c->route->is_call) return MHD_YES;
    if (gateway_charge(c->h->g, n) != 0) {
        c->no_room = true;
        return MHD_YES;
    }
    c->charged += n;
    buf_add(&c->body, p, n);
    return MHD_YES;
}

static enum MHD_Result whole(struct http_call *c)
{
    if (c->denied) return http_deny(c);
    if (c->too_large) return refuse_size(c);
    if (c->no_room) {
        return http_reply_now(c, ERR_QUEUE_FULL, "",
                              "The requests here fill their memory; try again later.", NULL);
    }
    if (c->body.bad)
        return http_reply_now(c, ERR_NO_MEMORY, "", "The server is out of memory; try again.",
                              NULL);
    if (c->route == NULL || !method_ok(c)) return refuse_route(c);
    return c->route->is_call ? submit(c) : http_route_reply(c);
}

enum MHD_Result http_call_handle(void *cls, struct MHD_Connection *conn, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_size, void **con_cls)
{
    struct http_call *c = *con_cls;
    (void)cls;
    (void)conn;
    (void)url;
    (void)version;
    if (c == NULL || c->gone) return MHD_NO;
    if (!c->seen) return begin(c, method);
    if (*upload_size > 0) {
        size_t n = *upload_size;
        *upload_size = 0;
        return take_body(c, upload, n);
    }
    if (c->replied) return MHD_YES;
    return c->request ? http_answer(c) : whole(c);
}
