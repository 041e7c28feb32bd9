/* err.h - the one list of errors that processes, doors and clients agree on.
 *
 * Two kinds of mistakes: a programmer's asserts; the world's returns. Inside a module 0 / -1 is
 * enough; where a person or client must read why, the function takes a `struct err *` as its last
 * argument and fills it before it returns -1 (NULL for pointer results). `struct err` is plain
 * storage of the caller, never allocated, safe to copy; messages are cut at ERR_MSG_MAX, never torn
 * inside a UTF-8 character. Thread: any, one struct belongs to one thread at a time.
 */
#ifndef SLUICE_BASE_ERR_H
#define SLUICE_BASE_ERR_H

#include <stdbool.h>

#define ERR_MSG_MAX 512
#define ERR_PARAM_MAX 64

/* X(NAME, code shown to clients or NULL, OpenAI error type, HTTP status, retryable)
 * Retryable: the same request may succeed later without being changed. */
#define ERR_LIST(X)                                                                                \
    X(OK, NULL, "", 200, false)                                                                    \
    X(INVALID, NULL, "invalid_request_error", 400, false)                                          \
    X(BAD_JSON, "invalid_json", "invalid_request_error", 400, false)                               \
    X(BAD_VALUE, "invalid_value", "invalid_request_error", 400, false)                             \
    X(BAD_TYPE, "invalid_type", "invalid_request_error", 400, false)                               \
    X(MISSING, "missing_required_parameter", "invalid_request_error", 400, false)                  \
    X(UNSUPPORTED, "unsupported_parameter", "invalid_request_error", 400, false)                   \
    X(CONTEXT_LENGTH, "context_length_exceeded", "invalid_request_error", 400, false)              \
    X(POOL_TOO_SMALL, "kv_pool_exceeded", "invalid_request_error", 400, false)                     \
    X(MODEL_NOT_FOUND, "model_not_found", "invalid_request_error", 404, false)                     \
    X(NOT_FOUND, "not_found", "invalid_request_error", 404, false)                                 \
    X(UNAUTHORIZED, "invalid_api_key", "invalid_request_error", 401, false)                        \
    X(FORBIDDEN, "insufficient_permissions", "insufficient_permissions", 403, false)               \
    X(METHOD, "method_not_allowed", "invalid_request_error", 405, false)                           \
    X(TIMEOUT, "request_timeout", "timeout", 408, true)                                            \
    X(TOO_LARGE, "request_too_large", "invalid_request_error", 413, false)                         \
    X(RATE_REQUESTS, "rate_limit_exceeded", "requests", 429, true)                                 \
    X(RATE_TOKENS, "rate_limit_exceeded", "tokens", 429, true)                                     \
    X(QUOTA, "insufficient_quota", "insufficient_quota", 429, false)                               \
    X(HEADERS, "headers_too_large", "invalid_request_error", 431, false)                           \
    X(QUEUE_FULL, "queue_full", "server_error", 503, true)                                         \
    X(OVERLOADED, "overloaded", "server_error", 503, true)                                         \
    X(NO_WORKER, "no_worker", "server_error", 503, true)                                           \
    X(WORKER_LOST, "worker_lost", "server_error", 503, true)                                       \
    X(DRAINING, "draining", "server_error", 503, true)                                             \
    X(NO_MEMORY, "out_of_memory", "server_error", 503, true)                                       \
    X(DEADLINE, "deadline_exceeded", "timeout", 504, true)                                         \
    X(CANCELLED, "cancelled", "server_error", 499, true)                                           \
    X(INTERNAL, "internal_error", "server_error", 500, true)                                       \
    X(PROTOCOL, "protocol_error", "server_error", 502, true)                                       \
    X(IO, "io_error", "server_error", 500, true)                                                   \
    X(BAD_FILE, "bad_file", "invalid_request_error", 400, false)

enum err_code {
#define ERR_ENUM(name, code, type, http, retry) ERR_##name,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
    ERR_COUNT
};

struct err {
    enum err_code code;
    char msg[ERR_MSG_MAX];     /* one sentence: what is wrong, and where known what to do next */
    char param[ERR_PARAM_MAX]; /* the client's field at fault, "" when none */
};

/* Fill `e` (which may be NULL) and return -1, so that `return err_set(...)` reads well. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with the name of the field at fault. */
int err_set_param(struct err *e, enum err_code code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void err_clear(struct err *e);

/* Columns of the list. err_name: "CONTEXT_LENGTH"; err_code_text: may be NULL. */
const char *err_name(enum err_code code);
const char *err_code_text(enum err_code code);
const char *err_type(enum err_code code);
int err_http_status(enum err_code code);
bool err_retryable(enum err_code code);
/* By name ("CONTEXT_LENGTH"), as sent between processes; ERR_INTERNAL when unknown. */
enum err_code err_by_name(const char *name);

#endif
