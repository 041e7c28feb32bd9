/* server.h - the server a command talks to over the RPC door, with Ctrl-C as one more event.
 *
 * Order: server_init (blocks SIGINT and SIGTERM and takes them as events from then on), server_open,
 * send and next in any order, server_close, open again after a loss, server_deinit.
 * Thread: main only. Limits: proto/rpc.h. Failure: -1 and `e`; ERR_IO = nobody answers there.
 */
#ifndef SLUICE_CLI_SERVER_H
#define SLUICE_CLI_SERVER_H

#include "proto/rpc.h"

#define SERVER_MODEL_MAX 256

struct server {
    const char *endpoint; /* borrowed */
    struct rpc_client *rpc;
    int signal_fd;
    uint64_t last_id;
};

enum server_event {
    SERVER_MESSAGE,   /* *m is filled: rpc_msg_deinit it */
    SERVER_TIMEOUT,
    SERVER_INTERRUPT, /* Ctrl-C or SIGTERM; taken off the queue */
    SERVER_LOST,      /* closed; `e` says why */
};

/* `endpoint` NULL or "" = the default of `sluice up`. */
int server_init(struct server *s, const char *endpoint, struct err *e);
void server_deinit(struct server *s);

/* At once ERR_IO when the port is closed; else waits up to RPC_CONNECT_S. */
int server_open(struct server *s, struct err *e);
void server_close(struct server *s);

uint64_t server_new_id(struct server *s);
/* A request with the key of the environment's SLUICE_API_KEY, if any: on the command line others would see it. */
void server_put_request(struct buf *out, uint64_t id, const char *path, const char *cls,
                        const struct buf *body);
/* 0 = taken; TRANSPORT_FULL = read messages first; TRANSPORT_DOWN = lost (server_next tells why). */
int server_send(struct server *s, const struct buf *encoded);
/* The same, waiting while FULL; for a connection that has no other request. -1 = lost. */
int server_send_wait(struct server *s, const struct buf *encoded, struct err *e);
/* Waits up to timeout_ms (-1 = for ever). */
enum server_event server_next(struct server *s, struct rpc_msg *m, int timeout_ms, struct err *e);

/* The first model the server names, for requests that give none. */
enum server_event server_model(struct server *s, char out[SERVER_MODEL_MAX], struct err *e);
/* The sentence of an ERROR message, on one line. */
void server_error_text(const struct rpc_msg *m, char *out, size_t cap);

#endif
