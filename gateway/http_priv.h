/* http_priv.h - the inside of the HTTP door: http.c (daemon, loop, sweeps), http_call.c (one call,
 * up to its request), http_auth.c (keys), http_reply.c (answers), http_route.c (paths).
 *
 * A call is one HTTP request on a connection. libmicrohttpd runs only inside MHD_run on the loop
 * thread, called when its epoll descriptor is readable, when its time-out is due, and once per loop
 * turn after calls were resumed. A suspended connection has left MHD's epoll, so the call watches
 * the socket itself (UV_DISCONNECT): a client that goes away frees its sequences at once, whatever
 * state the call is in.
 */
#ifndef SLUICE_GATEWAY_HTTP_PRIV_H
#define SLUICE_GATEWAY_HTTP_PRIV_H

#include "base/list.h"
#include "gateway/http.h"
#include "gateway/request.h"

#include <microhttpd.h>

#define HTTP_KEEPALIVE_S 75
#define HTTP_PATH_MAX 2048

struct http_conn {                 /* one TCP connection, from accept to close */
    struct list node;
    int fd;
    uint64_t since_ns;             /* accepted, or last reply done: header deadline */
    bool in_call, cut;
    bool served;                   /* a reply went out before: idle times count as keep-alive */
};

enum http_method { HTTP_GET, HTTP_POST, HTTP_HEAD, HTTP_OTHER };

struct http_route {
    const char *path;              /* ending in '/': prefix, the rest is the id */
    const char *allow;             /* value of Allow */
    bool get, post;
    bool is_call;                  /* runs as a request: body goes to request_submit */
    enum endpoint endpoint;
    bool open;                     /* needs no key */
};

struct http_call {
    struct list node;
    struct http_server *h;
    struct MHD_Connection *conn;
    struct http_conn *hc;
    char uri[HTTP_PATH_MAX];       /* raw, as sent, query cut off */
    bool uri_long;
    enum http_method method;
    const struct http_route *route;
    const char *id;                /* behind a prefix route */
    char label[129];
    struct key_grant who;          /* whose key it showed; its tenant is held */
    bool denied;                   /* it showed none that is known: 401, whatever else is wrong */
    bool seen, too_large, no_room, suspended, gone, replied, streaming, watching;
    struct buf body;
    uint64_t taken, charged;       /* bytes of body: received, and held against max-queue-bytes */
    struct request *request;
    struct buf out; size_t out_at; /* framed events not yet taken by the socket */
    bool stream_end;
    uint64_t since_ns;             /* header deadline, then body deadline */
    uint64_t progress_ns;          /* the socket took something, or the call was suspended */
    uv_poll_t watch;
};

struct http_server {
    struct gateway *g;
    struct MHD_Daemon *daemon;
    int listen_fd;
    uint16_t port;
    uv_poll_t epoll;
    uv_timer_t timeout, sweep;
    uv_prepare_t prepare;
    uv_check_t check;
    bool run_wanted, quiesced;
    int open_handles;
    struct list calls, conns;
    uint32_t n_conns, n_calls;
    uint32_t max_conns;            /* over it: 503 */
};

/* http.c */
void http_run_soon(struct http_server *h);
void http_cut(struct http_conn *c);  /* MHD notices and closes */

/* http_route.c */
const struct http_route *http_route_find(const char *path, const char **id);
/* Replies of routes without a request: models, health, metrics, version. */
enum MHD_Result http_route_reply(struct http_call *c);

/* http_call.c */
void http_call_resume(struct http_call *c);
void *http_call_new(void *cls, const char *uri, struct MHD_Connection *conn);
enum MHD_Result http_call_handle(void *cls, struct MHD_Connection *conn, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_size, void **con_cls);
void http_call_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode why);
void http_call_gone(struct http_call *c);

/* http_auth.c */
void http_auth(struct http_call *c); /* fills who and denied from the headers */
enum MHD_Result http_deny(struct http_call *c);
/* x-ratelimit-*, Retry-After-Ms, x-should-retry of a call that became a request. */
void http_limit_headers(struct http_call *c, struct MHD_Response *r);

/* http_reply.c */
/* What the request has to say now, or suspend. */
enum MHD_Result http_answer(struct http_call *c);
enum MHD_Result http_reply_now(struct http_call *c, enum err_code code, const char *param,
                               const char *text, const char *allow);
enum MHD_Result http_reply(struct http_call *c, unsigned status, const char *type, const char *p,
                           size_t n, const char *allow, uint32_t retry_after_s);
enum MHD_Result http_reply_buf(struct http_call *c, unsigned status, const char *type,
                               struct buf *b, const char *allow, uint32_t retry_after_s);
enum MHD_Result http_reply_error(struct http_call *c, const struct err *e, const char *allow,
                                 uint32_t retry_after_s);

#endif
