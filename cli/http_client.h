/* http_client.h - many HTTP calls at once in one thread, with the time at which each byte came.
 *
 * Made for measuring: while a call runs nothing of its reply is looked at; bytes are kept as they
 * come and each arrival is noted with the clock, so that what they say is read when the measurement
 * is over. A call owns its reply until http_call_deinit. Every call to an http:// server has a
 * connection of its own (so that a dead one belongs to one call, and nobody sends again behind our
 * back); https:// keeps connections. Order: create, send / turn in any order, destroy (calls still
 * running are dropped; deinit them all). Thread: one. Times: clock_ms(). Failure: create and send
 * -1 with `e`; a call that failed has complete == false and says why in `error`. Limit:
 * HTTP_REPLY_MAX bytes a reply. Built without libcurl, create always fails and says so.
 */
#ifndef SLUICE_CLI_HTTP_CLIENT_H
#define SLUICE_CLI_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define HTTP_REPLY_MAX (64u << 20)
#define HTTP_URL_MAX 512

struct http_client;

struct http_chunk { /* reply bytes from the chunk before up to `end` came at at_ms */
    size_t end;
    double at_ms;
};

struct http_call {
    /* set by the caller, zero the rest; texts are borrowed until the call is done */
    const char *path; /* behind the base URL's host: "/v1/completions" */
    const char *body; /* NULL = GET */
    size_t n_body;
    void (*done)(
        struct http_call *c); /* from http_client_turn; may send other calls; NULL = none */
    void *ctx;
    /* what came */
    double sent_ms, ended_ms;
    int status;             /* 0 = no head came */
    bool running, complete; /* complete: the reply ended in order */
    double retry_after_s;   /* < 0 = not said */
    struct buf reply;
    struct http_chunk *chunks;
    uint32_t n_chunks, cap_chunks;
    char error[96];
    void *easy;
};

/* `url`: "http://host:port" with or without "/v1" and what follows; `key` NULL or "" = none. */
int http_client_create(struct http_client **out, const char *url, const char *key, struct err *e);
void http_client_destroy(struct http_client **c);

int http_client_send(struct http_client *c, struct http_call *call, struct err *e);
/* Ends a running call: the connection is closed, done is not called; what came stays. */
void http_client_cancel(struct http_client *c, struct http_call *call);
/* Waits until something came or the clock shows until_ms, and performs it. Returns early on a
 * signal. */
void http_client_turn(struct http_client *c, double until_ms);
/* Sends and waits; 0 when the call is complete, whatever its status. Other calls go on meanwhile.
 */
int http_client_wait(struct http_client *c, struct http_call *call, double timeout_ms,
                     struct err *e);
void http_call_deinit(struct http_call *call);

#endif
