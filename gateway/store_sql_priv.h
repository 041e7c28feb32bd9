/* store_sql_priv.h - what store_sql.c (all SQL text) and store_ops.c (one function per op) share. */
#ifndef SLUICE_GATEWAY_STORE_SQL_PRIV_H
#define SLUICE_GATEWAY_STORE_SQL_PRIV_H

#include "gateway/store_sql.h"

#include <sqlite3.h>

/* Columns and members: T text array, I 64-bit number, B bool, S text on the heap. FIXED is set at creation,
 * FREE by updates, COUNTED by results alone. */
#define JOB_FIXED(T, I) T(id, id) T(tenant, tenant) T(submission_key, submission_key) I(created, created_s)
#define JOB_FREE(T, I, B, S)                                                                       \
    T(class, klass) T(endpoint, endpoint) T(status, status) T(input_file, input_file)             \
    T(output_file, output_file) T(error_file, error_file) I(window, window_s)                      \
    I(in_progress, in_progress_s) I(expires, expires_s) I(finalizing, finalizing_s)                \
    I(completed_at, completed_s) I(failed_at, failed_s) I(expired, expired_s)                      \
    I(cancelling, cancelling_s) I(cancelled, cancelled_s) I(total, total)                          \
    I(concurrency, concurrency) B(paused, paused) S(metadata, metadata) S(errors, errors)          \
    S(on_completion, on_completion)
#define JOB_COUNTED(I)                                                                             \
    I(done, completed) I(failed, failed) I(input, usage.input) I(cached, usage.cached)             \
    I(output, usage.output) I(wasted, usage.wasted)
#define JOB_ALL(T, I, B, S) JOB_FIXED(T, I) JOB_FREE(T, I, B, S) JOB_COUNTED(I)
#define FILE_ALL(T, I, B)                                                                          \
    T(id, id) T(tenant, tenant) T(purpose, purpose) T(filename, filename) T(hash, hash)            \
    I(bytes, bytes) I(created, created_s) I(expires, expires_s) B(hidden, hidden)

enum statement {
    ST_BEGIN, ST_BEGIN_WRITE, ST_COMMIT, ST_EPOCH, ST_TXN, ST_TXN_NEXT,
    ST_FILE_PUT, ST_FILE_GET, ST_FILE_DELETE, ST_FILE_DOWN, ST_FILE_UP, ST_USERS, ST_FILE_SEQ,
    ST_JOB_PUT, ST_JOB_GET, ST_JOB_BY_KEY, ST_JOB_SET, ST_JOB_DOWN, ST_JOB_UP, ST_JOB_SEQ, ST_JOB_COUNT,
    ST_RESULT_PUT, ST_RESULT_READ, ST_RESULT_DONE, ST_SUMS, ST_COUNT
};

struct store_sql {
    sqlite3 *db;
    sqlite3_stmt *st[ST_COUNT];
    int64_t epoch;
    bool stale;            /* another gateway holds a later epoch: this transaction writes nothing */
    bool corrupt;
    char reason[200];
};

/* Rewound, ready to bind; NULL = broken. */
sqlite3_stmt *sql_get(struct store_sql *q, enum statement i);
sqlite3_stmt *sql_get_by(struct store_sql *q, enum statement i, const char *a, const char *b);
int sql_run(struct store_sql *q, sqlite3_stmt *s);  /* a statement without rows; 1 = a constraint */
int sql_step(struct store_sql *q, sqlite3_stmt *s); /* 1 = a row, 0 = none, -1 = broken */
void sql_bind_text(sqlite3_stmt *s, int at, const char *v); /* NULL binds NULL */

#endif
