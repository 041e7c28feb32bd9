/* request.h - one client call, from the bytes of its body to its last byte out, whatever the door.
 *
 * A request holds 1..n choices (n, lists of prompts), each its own sequence in the dispatcher. The
 * door (HTTP, RPC) owns the connection and the pace; the request owns ids, text state and the
 * reply. The door *pulls*: text is rendered from the cursor on when the socket takes it, so a slow
 * reader costs memory for ids only.
 *
 * Order: request_submit -> wake() any number of times, each meaning "look again at request_state
 * and pull"
 * -> request_close, exactly once, at the end or when the client went away (cancels what runs, frees
 * everything; no wake() after it). Thread: the loop. request_submit never calls wake() before it
 * returns. Failure: every refusal (bad JSON, unknown model, queue full, ...) arrives as
 * REQUEST_FAILED, never as NULL from submit except for no memory.
 */
#ifndef SLUICE_GATEWAY_REQUEST_H
#define SLUICE_GATEWAY_REQUEST_H

#include "base/buf.h"
#include "base/err.h"
#include "gateway/gateway.h"
#include "gateway/key_index.h"
#include "scheduler/ledger.h"

enum endpoint { ENDPOINT_CHAT, ENDPOINT_COMPLETION, ENDPOINT_TOKENIZE, ENDPOINT_DETOKENIZE };

enum request_state {
    REQUEST_PENDING,   /* nothing to send yet: no headers either (pitfall 13 of the API notes) */
    REQUEST_STREAMING, /* 200 and events: pull them */
    REQUEST_REPLY,     /* 200 and one JSON body: request_body */
    REQUEST_FAILED,    /* before the first byte: request_error, an error reply */
    REQUEST_ENDED      /* everything was pulled */
};

enum pull {
    PULL_NONE,  /* nothing now: wait for wake() */
    PULL_EVENT, /* one JSON object was appended: `data: ` event or RPC delta */
    PULL_ERROR, /* one error JSON object was appended: `event: error`, then close; RPC error */
    PULL_DONE   /* the stream's end: `data: [DONE]`, RPC done */
};

struct request;

struct request_in {
    enum endpoint endpoint;
    struct key_grant who;          /* from auth_key; the request holds the tenant by itself */
    char *body; size_t n_body;     /* ownership passes (mem_free) */
    char cls[24];                  /* X-Sluice-Class or the RPC field; "" = none */
    char label[129];               /* x-request-id: a label only, never a key */
    uint64_t deadline_ms;          /* from now; 0 = none: over it the request ends with ERR_DEADLINE */
    void (*wake)(void *door);
    void *door;
};

struct request *request_submit(struct gateway *g,
                               const struct request_in *in); /* NULL = no memory, body freed */
enum request_state request_state(const struct request *r);
/* Append the next event of a stream to `out` (JSON only, no framing). */
enum pull request_pull(struct request *r, struct buf *out);
const char *request_body(struct request *r, size_t *n);               /* REPLY: valid until close */
/* FAILED: the error and seconds for Retry-After (0 = none); the JSON object by error_json(). */
const struct err *request_error(const struct request *r, uint32_t *retry_after_s);
/* FAILED: the same in ms, rounded up (of ERR_OVERLOADED: when the same request will be taken); *never: trying again
 * is of no use (x-should-retry: false). */
uint32_t request_retry_ms(const struct request *r, bool *never);
struct tenant *request_tenant(const struct request *r); /* for x-ratelimit-*; may be NULL */
bool request_streams(const struct request *r); /* the body asked for stream */
void request_close(struct request **r);
/* Where its time went so far, ns by cause (scheduler/ledger.h): of the choice that ended last, or goes on. Returns the
 * sum, which is the time since request_submit. */
uint64_t request_ledger(const struct request *r, uint64_t out[LEDGER_CAUSES]);

/* {"error":{"message","type","param","code"}}: all four keys, code string or null. */
void error_json(struct buf *out, const struct err *e);

#endif
