/* rpc.h - the RPC door's messages and its client library (chat backends, `sluice chat`, `sluice batch run`).
 *
 * Each message is one frame holding a msgpack map:
 *   REQUEST  c  {"t":"request","id":uint,"path":"/v1/chat/completions","class":"batch"|nil,"key":"sk-..."|nil,"body":{an OpenAI body}}
 *   DELTA    s  {"t":"delta","id":uint,"body":{the same object as one SSE event}}      body.stream = true only
 *   DONE     s  {"t":"done","id":uint,"body":{the whole reply}|nil}                    not streamed: the reply
 *   ERROR    s  {"t":"error","id":uint,"status":uint,"retry_after_ms":uint,"body":{"error":{...}}}
 *   CANCEL   c  {"t":"cancel","id":uint}
 *   PING     c  {"t":"ping","id":uint}  -> PONG s {"t":"pong","id":uint}
 * `key` is the API key, needed with each REQUEST where the gateway has tenants, so that a revoked one ends at once.
 * `id` is the client's label, unique among its live requests on this connection (a live duplicate gets
 * ERROR 400); internal ids are the gateway's own. A request ends with exactly one DONE or ERROR.
 * A connection that is lost, or silent for RPC_SILENCE_S, cancels its requests; clients ping every 2 s.
 */
#ifndef SLUICE_PROTO_RPC_H
#define SLUICE_PROTO_RPC_H

#include "proto/transport.h"
#include "proto/value.h"

#define RPC_SILENCE_S 10
#define RPC_PING_S 2
#define RPC_BYTES_MAX (33u << 20)
#define RPC_PATH_MAX 256
#define RPC_CLASS_MAX 64
#define RPC_KEY_MAX 256

enum rpc_kind { RPC_REQUEST, RPC_DELTA, RPC_DONE, RPC_ERROR, RPC_CANCEL, RPC_PING, RPC_PONG };

struct rpc_msg {
    enum rpc_kind kind;
    uint64_t id;
    const struct value *body;      /* NULL = none */
    const char *path; size_t n_path;
    const char *cls; size_t n_cls; /* class; NULL = none */
    const char *key; size_t n_key; /* API key; NULL = none */
    uint32_t status, retry_after_ms;
    struct value_tree tree;        /* owner of what the pointers name */
};
/* 0, or -1 with ERR_PROTOCOL (or ERR_NO_MEMORY) and nothing to free. After -1 m->id is the message's id where
 * that much could be read, else 0, so that a server can answer ERROR to it. Checked here: the bytes (value.h), the
 * known kind, id, path (1 to RPC_PATH_MAX bytes of UTF-8), class (up to RPC_CLASS_MAX), key (up to RPC_KEY_MAX), body a map where the
 * kind needs one. What is inside the body is the gateway's matter. Unknown keys are ignored. */
int rpc_decode(struct rpc_msg *m, const void *p, size_t n, struct err *e);
void rpc_msg_deinit(struct rpc_msg *m);

/* Encoders; `body` is msgpack bytes already written with value_put_*, or NULL for nil. */
void rpc_put_request(struct buf *out, uint64_t id, const char *path, const char *cls, const struct buf *body);
void rpc_put_request_as(struct buf *out, uint64_t id, const char *path, const char *cls, const char *key,
                        const struct buf *body); /* with an API key; NULL = none */
void rpc_put_delta(struct buf *out, uint64_t id, const struct buf *body);
void rpc_put_done(struct buf *out, uint64_t id, const struct buf *body);
void rpc_put_error(struct buf *out, uint64_t id, uint32_t status, uint32_t retry_after_ms, const struct buf *body);
void rpc_put_cancel(struct buf *out, uint64_t id);
void rpc_put_ping(struct buf *out, uint64_t id, bool pong);

/* Client: one connection, any number of requests at once; single-threaded, poll-driven.
 * open waits for the connection, at most RPC_CONNECT_S (ERR_IO when nobody answers).
 * PINGs are sent and PONGs eaten inside rpc_client_recv: an owner that waits elsewhere watches rpc_client_fd
 * (readable for messages, loss of the connection and pings that are due) and then calls
 * rpc_client_recv(c, &m, 0, e) until it returns 0. After every send too: the socket below is edge-triggered. */
#define RPC_CONNECT_S 5
struct rpc_client;
int rpc_client_open(struct rpc_client **out, const char *endpoint, struct err *e);
void rpc_client_close(struct rpc_client **c);
int rpc_client_fd(const struct rpc_client *c);
/* 0 = taken, TRANSPORT_FULL = not now (call rpc_client_recv, try again), TRANSPORT_DOWN = lost. */
int rpc_client_send(struct rpc_client *c, const struct buf *encoded);
/* Wait up to timeout_ms (-1 = for ever) for one message. 1 = got (rpc_msg_deinit it), 0 = time out, -1 =
 * connection lost, or the server silent for RPC_SILENCE_S, or it sent nonsense: reopen. */
int rpc_client_recv(struct rpc_client *c, struct rpc_msg *m, int timeout_ms, struct err *e);

#endif
