/* http_reply.c - what a call answers: errors, whole bodies, streams of events. */
#include "gateway/http_priv.h"

#include "base/mem.h"
#include "gateway/explain.h"

#include <string.h>

#define BLOCK_BYTES (32u << 10)  /* most that is handed to the socket at a time */
#define COPY_MAX (64u << 10)     /* larger bodies are sent out of the request's own memory */

/* ---- replies */

static void common_headers(struct http_call *c, struct MHD_Response *r, const char *type)
{
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "X-Request-Id", c->label);
    http_limit_headers(c, r);
    if (c->request == NULL) return;
    char text[640]; /* of a stream: what is known when its first token came */
    uint64_t ns[LEDGER_CAUSES];
    (void)request_ledger(c->request, ns);
    explain_server_timing(text, sizeof text, ns);
    if (text[0] != '\0') MHD_add_response_header(r, "Server-Timing", text);
}

static enum MHD_Result queue(struct http_call *c, unsigned status, struct MHD_Response *r)
{
    c->h->g->metrics.http_requests[status / 100 < 6 ? status / 100 : 5]++;
    c->replied = true;
    c->progress_ns = gateway_now_ns();
    enum MHD_Result ok = MHD_queue_response(c->conn, status, r);
    MHD_destroy_response(r);
    return ok;
}

enum MHD_Result http_reply(struct http_call *c, unsigned status, const char *type, const char *p,
                           size_t n, const char *allow, uint32_t retry_after_s)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)p, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) return MHD_NO;
    common_headers(c, r, type);
    if (allow) MHD_add_response_header(r, "Allow", allow);
    if (status == 401) MHD_add_response_header(r, "WWW-Authenticate", "Bearer realm=\"sluice\"");
    if (retry_after_s) {
        char text[16];
        snprintf(text, sizeof text, "%u", retry_after_s);
        MHD_add_response_header(r, "Retry-After", text);
    }
    return queue(c, status, r);
}

/* Takes the buffer. One that could not be filled becomes an error that needs no memory to write. */
enum MHD_Result http_reply_buf(struct http_call *c, unsigned status, const char *type,
                               struct buf *b, const char *allow, uint32_t retry_after_s)
{
    static const char none[] =
        "{\"error\":{\"message\":\"The server is out of memory; try again.\","
        "\"type\":\"server_error\",\"param\":null,\"code\":\"out_of_memory\"}}";
    enum MHD_Result r = b->bad
                            ? http_reply(c, 503, "application/json", none, sizeof none - 1, NULL, 1)
                            : http_reply(c, status, type, b->p, b->len, allow, retry_after_s);
    buf_deinit(b);
    return r;
}

enum MHD_Result http_reply_error(struct http_call *c, const struct err *e, const char *allow,
                                 uint32_t retry_after_s)
{
    struct buf b = {0};
    error_json(&b, e);
    if (c->request == NULL) c->h->g->metrics.errors[e->code]++; /* a request counts its own */
    return http_reply_buf(c, (unsigned)err_http_status(e->code), "application/json", &b, allow,
                          retry_after_s);
}

enum MHD_Result http_reply_now(struct http_call *c, enum err_code code, const char *param,
                               const char *text, const char *allow)
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

/* Whole events until the block is full: one event a write when the socket keeps up, several when it
 * is behind. */
static void fill(struct http_call *c, size_t max)
{
    struct buf json = {0};
    while (!c->stream_end && c->out.len - c->out_at < max) {
        buf_clear(&json);
        enum pull kind = request_pull(c->request, &json);
        if (json.bad) c->out.bad = true;
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
        if (c->out.bad)
            return MHD_CONTENT_READER_END_WITH_ERROR; /* no memory: better broken off than
                                                         incomplete */
    }
    size_t n = c->out.len - c->out_at;
    c->progress_ns =
        gateway_now_ns(); /* it is asked for more only when the socket took what it had */
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
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_read, c, NULL);
    if (r == NULL) return MHD_NO;
    common_headers(c, r, "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    c->streaming = true;
    return queue(c, 200, r);
}

static ssize_t on_read_body(void *cls, uint64_t pos, char *p, size_t max)
{
    struct http_call *c = cls;
    size_t n;
    if (c->gone) return MHD_CONTENT_READER_END_WITH_ERROR;
    const char *body = request_body(c->request, &n);
    if (pos >= n) return MHD_CONTENT_READER_END_OF_STREAM;
    if (max > n - pos) max = n - (size_t)pos;
    memcpy(p, body + pos, max);
    c->progress_ns = gateway_now_ns();
    return (ssize_t)max;
}

static enum MHD_Result reply_large(struct http_call *c, size_t n)
{
    struct MHD_Response *r =
        MHD_create_response_from_callback(n, BLOCK_BYTES, on_read_body, c, NULL);
    if (r == NULL) return MHD_NO;
    common_headers(c, r, "application/json");
    return queue(c, 200, r);
}

/* ---- what the request has to say */

enum MHD_Result http_answer(struct http_call *c)
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
        if (n > COPY_MAX) return reply_large(c, n);
        return http_reply(c, 200, "application/json", p, n, NULL, 0);
    }
    }
    return MHD_NO;
}

