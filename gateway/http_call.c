#include "gateway/http_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define STREAM_BLOCK (32u << 10)

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
    snprintf(c->label, sizeof c->label, "req_%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
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
    c->since_ns = gateway_now_ns();
    buf_init(&c->body, (size_t)h->g->settings->max_body_bytes + 1);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    c->hc = info ? info->socket_context : NULL;
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

void http_call_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode why)
{
    struct http_call *c = *con_cls;
    (void)cls;
    (void)conn;
    (void)why;
    if (c == NULL) return;
    *con_cls = NULL;
    request_close(&c->request);
    buf_deinit(&c->body);
    buf_deinit(&c->out);
    list_remove(&c->node);
    c->h->n_calls--;
    if (c->hc) {
        c->hc->in_call = false;
        c->hc->since_ns = gateway_now_ns();
    }
    if (c->watching) uv_close((uv_handle_t *)&c->watch, on_watch_closed);
    else mem_free(c);
}

static void resume(struct http_call *c)
{
    if (!c->suspended) return;
    c->suspended = false;
    MHD_resume_connection(c->conn);
    http_run_soon(c->h);
}

/* The client went away, or is cut: nothing of it may run on. MHD closes the connection when the call is resumed. */
void http_call_gone(struct http_call *c)
{
    if (c->gone) return;
    c->gone = true;
    request_close(&c->request);
    resume(c);
}

static void on_watch(uv_poll_t *w, int status, int events)
{
    struct http_call *c = w->data;
    if (status < 0 || (events & UV_DISCONNECT)) { /* a reset shows as a negative status */
        uv_poll_stop(w);
        http_call_gone(c);
    }
}

static void watch(struct http_call *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL || uv_poll_init(c->h->g->loop, &c->watch, info->connect_fd) != 0) return;
    c->watch.data = c;
    c->watching = true;
    c->h->open_handles++;
    uv_poll_start(&c->watch, UV_DISCONNECT, on_watch);
}

/* ---- replies */

static void common_headers(struct http_call *c, struct MHD_Response *r, const char *type)
{
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "X-Request-Id", c->label);
}

static enum MHD_Result queue(struct http_call *c, unsigned status, struct MHD_Response *r)
{
    c->h->g->metrics.http_requests[status / 100 < 6 ? status / 100 : 5]++;
    c->replied = true;
    enum MHD_Result ok = MHD_queue_response(c->conn, status, r);
    MHD_destroy_response(r);
    return ok;
}

enum MHD_Result http_reply(struct http_call *c, unsigned status, const char *type, const char *p, size_t n, const char *allow,
                           uint32_t retry_after_s)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)p, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) return MHD_NO;
    common_headers(c, r, type);
    if (allow) MHD_add_response_header(r, "Allow", allow);
    if (retry_after_s) {
        char text[16];
        snprintf(text, sizeof text, "%u", retry_after_s);
        MHD_add_response_header(r, "Retry-After", text);
    }
    return queue(c, status, r);
}

enum MHD_Result http_reply_error(struct http_call *c, const struct err *e, const char *allow, uint32_t retry_after_s)
{
    struct buf b = {0};
    error_json(&b, e);
    enum MHD_Result ok = http_reply(c, (unsigned)err_http_status(e->code), "application/json", buf_str(&b), b.len, allow, retry_after_s);
    buf_deinit(&b);
    return ok;
}

static enum MHD_Result fail_now(struct http_call *c, enum err_code code, const char *param, const char *text, const char *allow)
{
    struct err e;
    err_set_param(&e, code, param, "%s", text);
    return http_reply_error(c, &e, allow, err_retryable(code) ? 1 : 0);
}

/* ---- streams */

static void frame(struct http_call *c, enum pull kind, const struct buf *json)
{
    switch (kind) {
    case PULL_EVENT:
        buf_adds(&c->out, "data: ");
        buf_add(&c->out, json->p, json->len);
        buf_adds(&c->out, "\n\n");
        break;
    case PULL_ERROR: /* a plain data: {"error"} counts as success for some clients */
        buf_adds(&c->out, "event: error\ndata: ");
        buf_add(&c->out, json->p, json->len);
        buf_adds(&c->out, "\n\n");
        c->stream_end = true;
        break;
    case PULL_DONE:
        buf_adds(&c->out, "data: [DONE]\n\n");
        c->stream_end = true;
        break;
    case PULL_NONE: break;
    }
}

/* Whole events until the block is full: one event a write when the socket keeps up, several when it is behind. */
static void fill(struct http_call *c, size_t max)
{
    struct buf json = {0};
    while (!c->stream_end && c->out.len - c->out_at < max) {
        buf_clear(&json);
        enum pull kind = request_pull(c->request, &json);
        if (kind == PULL_NONE || json.bad) break;
        frame(c, kind, &json);
    }
    buf_deinit(&json);
}

static ssize_t on_read(void *cls, uint64_t pos, char *p, size_t max)
{
    struct http_call *c = cls;
    (void)pos;
    if (c->gone || c->out.bad) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (c->out_at == c->out.len) {
        buf_clear(&c->out);
        c->out_at = 0;
        fill(c, max);
    }
    size_t n = c->out.len - c->out_at;
    c->progress_ns = gateway_now_ns();
    c->waiting_reader = false;
    if (n == 0) {
        if (c->stream_end) return MHD_CONTENT_READER_END_OF_STREAM;
        c->suspended = true;
        MHD_suspend_connection(c->conn);
        return 0;
    }
    if (n > max) n = max;
    memcpy(p, c->out.p + c->out_at, n);
    c->out_at += n;
    return (ssize_t)n;
}

static enum MHD_Result reply_stream(struct http_call *c)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_read, c, NULL);
    if (r == NULL) return MHD_NO;
    common_headers(c, r, "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    c->streaming = true;
    c->progress_ns = gateway_now_ns();
    return queue(c, 200, r);
}

/* ---- one call */

static void on_wake(void *door)
{
    struct http_call *c = door;
    c->waiting_reader = true;
    resume(c);
}

static enum MHD_Result answer(struct http_call *c)
{
    uint32_t retry = 0;
    size_t n;
    switch (request_state(c->request)) {
    case REQUEST_PENDING:
        c->suspended = true;
        MHD_suspend_connection(c->conn);
        return MHD_YES;
    case REQUEST_STREAMING:
    case REQUEST_ENDED: return reply_stream(c);
    case REQUEST_FAILED: {
        const struct err *e = request_error(c->request, &retry);
        return http_reply_error(c, e, NULL, retry);
    }
    case REQUEST_REPLY: {
        const char *p = request_body(c->request, &n);
        return http_reply(c, 200, "application/json", p, n, NULL, 0);
    }
    }
    return MHD_NO;
}

static enum MHD_Result submit(struct http_call *c)
{
    const char *cls = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "X-Sluice-Class");
    struct request_in in = {.endpoint = c->route->endpoint, .wake = on_wake, .door = c};
    if (cls && strlen(cls) >= sizeof in.cls) return fail_now(c, ERR_BAD_VALUE, "X-Sluice-Class", "There is no such class.", NULL);
    snprintf(in.cls, sizeof in.cls, "%s", cls ? cls : "");
    memcpy(in.label, c->label, sizeof in.label);
    in.body = buf_take(&c->body, &in.n_body);
    if (in.body == NULL) return fail_now(c, ERR_NO_MEMORY, "", "The server is out of memory; try again.", NULL);
    c->request = request_submit(c->h->g, &in);
    if (c->request == NULL) return fail_now(c, ERR_NO_MEMORY, "", "The server is out of memory; try again.", NULL);
    return answer(c);
}

static void read_method(struct http_call *c, const char *method)
{
    c->method = strcmp(method, "GET") == 0    ? HTTP_GET
                : strcmp(method, "POST") == 0 ? HTTP_POST
                : strcmp(method, "HEAD") == 0 ? HTTP_HEAD
                                              : HTTP_OTHER;
}

/* First callback: headers are known, no body yet. A body that will be refused for its size is refused before it is sent. */
static enum MHD_Result begin(struct http_call *c, const char *method)
{
    c->seen = true;
    make_label(c);
    read_method(c, method);
    watch(c);
    c->route = c->uri_long ? NULL : http_route_find(c->uri, &c->id);
    if (c->h->n_conns > (uint64_t)c->h->g->settings->max_connections) {
        return fail_now(c, ERR_QUEUE_FULL, "", "Too many connections; try again later.", NULL);
    }
    const char *n = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Content-Length");
    if (n && (strlen(n) > 18 || strtoull(n, NULL, 10) > (uint64_t)c->h->g->settings->max_body_bytes)) {
        return fail_now(c, ERR_TOO_LARGE, "", "The request body is too large.", NULL);
    }
    return MHD_YES;
}

static enum MHD_Result take_body(struct http_call *c, const char *p, size_t n)
{
    if (c->body.len + n > (uint64_t)c->h->g->settings->max_body_bytes) {
        c->too_large = true; /* read on and throw away, so that the reply is not lost in a reset */
        buf_clear(&c->body);
    }
    if (!c->too_large && c->route && c->route->is_call) buf_add(&c->body, p, n);
    return MHD_YES;
}

static enum MHD_Result whole(struct http_call *c)
{
    char text[160];
    if (c->too_large) return fail_now(c, ERR_TOO_LARGE, "", "The request body is too large.", NULL);
    if (c->body.bad) return fail_now(c, ERR_NO_MEMORY, "", "The server is out of memory; try again.", NULL);
    if (c->route == NULL) {
        snprintf(text, sizeof text, "Invalid URL: there is no path '%.80s' here.", c->uri);
        return fail_now(c, ERR_NOT_FOUND, "", text, NULL);
    }
    bool ok = (c->route->get && (c->method == HTTP_GET || c->method == HTTP_HEAD)) || (c->route->post && c->method == HTTP_POST);
    if (!ok) {
        snprintf(text, sizeof text, "This path takes %s.", c->route->allow);
        return fail_now(c, ERR_METHOD, "", text, c->route->allow);
    }
    return c->route->is_call ? submit(c) : http_route_reply(c);
}

enum MHD_Result http_call_handle(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                 const char *version, const char *upload, size_t *upload_size, void **con_cls)
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
    return c->request ? answer(c) : whole(c);
}
