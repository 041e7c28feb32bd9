#include "gateway/store_sql_priv.h"

#include "base/mem.h"

#include <stdio.h>

static void text_out(sqlite3_stmt *s, int at, char *out, size_t cap)
{
    const unsigned char *v = sqlite3_column_text(s, at);
    snprintf(out, cap, "%s", v ? (const char *)v : "");
}

static char *heap_out(sqlite3_stmt *s, int at)
{
    const unsigned char *v = sqlite3_column_text(s, at);
    return v ? mem_strdup((const char *)v) : NULL;
}

#define BIND_T(col, member) sql_bind_text(s, at++, row->member);
#define BIND_I(col, member) sqlite3_bind_int64(s, at++, row->member);
#define READ_T(col, member) text_out(s, at++, row->member, sizeof row->member);
#define READ_I(col, member) row->member = sqlite3_column_int64(s, at++);
#define READ_B(col, member) row->member = sqlite3_column_int(s, at++) != 0;
#define READ_S(col, member) row->member = heap_out(s, at++);

static void file_bind(sqlite3_stmt *s, int at, const struct store_file *row)
{
    FILE_ALL(BIND_T, BIND_I, BIND_I)
}

static void file_read(sqlite3_stmt *s, struct store_file *row)
{
    int at = 1;
    FILE_ALL(READ_T, READ_I, READ_B)
}

static void job_read(sqlite3_stmt *s, struct store_job *row)
{
    int at = 1;
    JOB_ALL(READ_T, READ_I, READ_B, READ_S)
}

static int refuse(struct store_op *op, enum err_code code, const char *why)
{
    op->rc = err_set(&op->err, code, "%s", why);
    return 0;
}

static int not_found(struct store_op *op)
{
    return refuse(op, ERR_NOT_FOUND, "there is no such object");
}

/* The row's number of (tenant, id) into *seq: 1, 0 = none, -1 = broken */
static int seq_of(struct store_sql *q, enum statement i, const char *tenant, const char *id, int64_t *seq)
{
    sqlite3_stmt *s = sql_get_by(q, i, tenant, id);
    int rc = s ? sql_step(q, s) : -1;
    if (rc <= 0) return rc;
    *seq = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return 1;
}

/* ---- files */

static int file_put(struct store_sql *q, struct store_op *op)
{
    sqlite3_stmt *s = sql_get(q, ST_FILE_PUT);
    if (s == NULL) return -1;
    file_bind(s, 1, &op->file);
    int rc = sql_run(q, s);
    return rc == 1 ? refuse(op, ERR_BAD_VALUE, "this id exists already") : rc;
}

static int file_get(struct store_sql *q, struct store_op *op)
{
    sqlite3_stmt *s = sql_get_by(q, ST_FILE_GET, op->tenant, op->id);
    int rc = s ? sql_step(q, s) : -1;
    if (rc <= 0) return rc < 0 ? -1 : not_found(op);
    file_read(s, &op->file);
    sqlite3_reset(s);
    return 0;
}

static int file_users(struct store_sql *q, const char *hash, int64_t *out)
{
    sqlite3_stmt *s = sql_get_by(q, ST_USERS, hash, NULL);
    if (s == NULL || sql_step(q, s) != 1) return -1;
    *out = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return 0;
}

static int file_delete(struct store_sql *q, struct store_op *op)
{
    if (file_get(q, op) != 0) return -1;
    if (op->rc != 0) return 0;
    sqlite3_stmt *s = sql_get_by(q, ST_FILE_DELETE, op->tenant, op->id);
    if (s == NULL || sql_run(q, s) != 0) return -1;
    return file_users(q, op->file.hash, &op->blob_users);
}

/* Binds a list's arguments; *s NULL and 0: answered. */
static int list_begin(struct store_sql *q, struct store_op *op, bool files, sqlite3_stmt **s)
{
    int64_t after = -1;
    *s = NULL;
    if (op->limit == 0 || op->limit > STORE_LIST_MAX)
        return refuse(op, ERR_BAD_VALUE, "limit is out of range");
    if (op->after[0]) {
        int rc = seq_of(q, files ? ST_FILE_SEQ : ST_JOB_SEQ, op->tenant, op->after, &after);
        if (rc <= 0) return rc < 0 ? -1 : not_found(op);
    }
    *s = sql_get_by(q, files ? op->ascending ? ST_FILE_UP : ST_FILE_DOWN : op->ascending ? ST_JOB_UP : ST_JOB_DOWN,
                op->tenant, NULL);
    if (*s == NULL) return -1;
    sqlite3_bind_int64(*s, 2, after);
    if (files) sql_bind_text(*s, 3, op->purpose);
    else sqlite3_bind_int(*s, 3, op->unfinished);
    sqlite3_bind_int64(*s, 4, (int64_t)op->limit + 1); /* one more tells whether there is more */
    return 0;
}

static int list(struct store_sql *q, struct store_op *op, bool files)
{
    sqlite3_stmt *s;
    int rc = list_begin(q, op, files, &s);
    if (rc != 0 || s == NULL) return rc;
    if (files) op->files = mem_array(op->limit, sizeof *op->files);
    else op->jobs = mem_array(op->limit, sizeof *op->jobs);
    if (op->files == NULL && op->jobs == NULL) return refuse(op, ERR_NO_MEMORY, "out of memory");
    while ((rc = sql_step(q, s)) == 1) {
        if (op->n == op->limit) {
            op->more = true;
            sqlite3_reset(s);
            return 0;
        }
        if (files) file_read(s, &op->files[op->n++]);
        else job_read(s, &op->jobs[op->n++]);
    }
    return rc;
}

/* ---- jobs */

static int job_by(struct store_sql *q, enum statement i, const char *tenant, const char *key,
                  struct store_job *out)
{
    sqlite3_stmt *s = sql_get_by(q, i, tenant, key);
    int rc = s ? sql_step(q, s) : -1;
    if (rc <= 0) return rc;
    job_read(s, out);
    sqlite3_reset(s);
    return 1;
}

static int job_create(struct store_sql *q, struct store_op *op)
{
    struct store_job known, *row = &op->job;
    int rc = job_by(q, ST_JOB_BY_KEY, row->tenant, row->submission_key, &known);
    if (rc < 0) return -1;
    if (rc == 1) {
        op->job = known;
        op->known = true;
        return 0;
    }
    sqlite3_stmt *s = sql_get(q, ST_JOB_PUT);
    if (s == NULL) return -1;
    sqlite3_bind_int64(s, 1, q->epoch);
    int at = 2;
    row->completed = row->failed = 0;
    row->usage = (struct store_usage){0};
    JOB_ALL(BIND_T, BIND_I, BIND_I, BIND_T)
    rc = sql_run(q, s);
    return rc == 1 ? refuse(op, ERR_BAD_VALUE, "this id exists already") : rc;
}

static int job_update(struct store_sql *q, struct store_op *op)
{
    const struct store_job *row = &op->job;
    sqlite3_stmt *s = sql_get(q, ST_JOB_SET);
    if (s == NULL) return -1;
    int at = 2;
    sqlite3_bind_int64(s, 1, q->epoch);
    JOB_FREE(BIND_T, BIND_I, BIND_I, BIND_T)
    sql_bind_text(s, at++, row->tenant);
    sql_bind_text(s, at, row->id);
    int rc = sql_run(q, s);
    if (rc != 0) return -1;
    return sqlite3_changes(q->db) == 0 ? not_found(op) : 0;
}

static int sums(struct store_sql *q, struct store_op *op)
{
    sqlite3_stmt *s = sql_get_by(q, ST_SUMS, op->tenant, NULL);
    if (s == NULL || sql_step(q, s) != 1) return -1;
    struct store_job *row = &op->job;
    int at = 0;
    READ_I(total, total)
    JOB_COUNTED(READ_I)
    sqlite3_reset(s);
    return 0;
}

/* ---- results */

static int result_put(struct store_sql *q, int64_t seq, struct store_result *r)
{
    sqlite3_stmt *s = sql_get(q, ST_RESULT_PUT);
    if (s == NULL) return -1;
    int at = 1;
    const int64_t head[] = {seq, r->line, r->ok, r->http_status};
    for (int i = 0; i < 4; i++) sqlite3_bind_int64(s, at++, head[i]);
    sqlite3_bind_blob64(s, at++, r->body ? r->body : "", r->bytes, SQLITE_STATIC);
    const int64_t used[] = {r->usage.input, r->usage.cached, r->usage.output, r->usage.wasted};
    for (int i = 0; i < 4; i++) sqlite3_bind_int64(s, at++, used[i]);
    if (sql_run(q, s) != 0) return -1;
    r->duplicate = sqlite3_changes(q->db) == 0;
    return 0;
}

static void usage_add_to(struct store_usage *u, const struct store_usage *n)
{
    u->input += n->input;
    u->cached += n->cached;
    u->output += n->output;
    u->wasted += n->wasted;
}

/* Result and count are one transaction: no count without its result, whatever is lost. */
static int results_put(struct store_sql *q, struct store_op *op)
{
    int64_t seq = 0, done = 0, failed = 0;
    struct store_usage u = {0};
    int rc = seq_of(q, ST_JOB_SEQ, op->tenant, op->id, &seq);
    if (rc <= 0) return rc < 0 ? -1 : not_found(op);
    for (size_t i = 0; i < op->n_results; i++) {
        if (result_put(q, seq, &op->results[i]) != 0) return -1;
        if (op->results[i].duplicate) continue;
        if (op->results[i].ok) done++;
        else failed++;
        usage_add_to(&u, &op->results[i].usage);
    }
    op->job.completed = done; /* what this op added */
    op->job.failed = failed;
    op->job.usage = u;
    if (done + failed == 0) return 0;
    sqlite3_stmt *s = sql_get(q, ST_JOB_COUNT);
    if (s == NULL) return -1;
    const int64_t v[] = {seq, q->epoch, done, failed, u.input, u.cached, u.output, u.wasted};
    for (int i = 0; i < 8; i++) sqlite3_bind_int64(s, i + 1, v[i]);
    return sql_run(q, s) == 0 ? 0 : -1;
}

static int row_read(sqlite3_stmt *s, struct store_result *r)
{
    *r = (struct store_result){.line = sqlite3_column_int64(s, 0),
                               .ok = sqlite3_column_int(s, 1) != 0,
                               .http_status = sqlite3_column_int(s, 2),
                               .bytes = (size_t)sqlite3_column_bytes(s, 3),
                               .usage = {sqlite3_column_int64(s, 4), sqlite3_column_int64(s, 5),
                                         sqlite3_column_int64(s, 6), sqlite3_column_int64(s, 7)}};
    const void *body = sqlite3_column_blob(s, 3);
    r->body = mem_memdup(body ? body : "", r->bytes);
    return r->body ? 0 : -1;
}

static int results_read(struct store_sql *q, struct store_op *op)
{
    int64_t seq = 0;
    size_t bytes = 0;
    int rc = seq_of(q, ST_JOB_SEQ, op->tenant, op->id, &seq);
    if (rc <= 0) return rc < 0 ? -1 : not_found(op);
    if (op->limit == 0 || op->limit > STORE_LIST_MAX)
        return refuse(op, ERR_BAD_VALUE, "limit is out of range");
    op->rows = mem_array(op->limit, sizeof *op->rows);
    if (op->rows == NULL) return refuse(op, ERR_NO_MEMORY, "out of memory");
    sqlite3_stmt *s = sql_get(q, ST_RESULT_READ);
    if (s == NULL) return -1;
    const int64_t which = op->which == STORE_ALL ? -1 : op->which == STORE_OK_ONLY;
    const int64_t v[] = {seq, op->first_line, which, (int64_t)op->limit + 1};
    for (int i = 0; i < 4; i++) sqlite3_bind_int64(s, i + 1, v[i]);
    while ((rc = sql_step(q, s)) == 1) {
        if (op->n == op->limit || bytes >= STORE_READ_BYTES) {
            op->more = true;
            sqlite3_reset(s);
            return 0;
        }
        if (row_read(s, &op->rows[op->n]) != 0) {
            sqlite3_reset(s);
            return refuse(op, ERR_NO_MEMORY, "out of memory");
        }
        bytes += op->rows[op->n++].bytes;
    }
    return rc;
}

static int results_done(struct store_sql *q, struct store_op *op)
{
    int64_t seq = 0;
    int rc = seq_of(q, ST_JOB_SEQ, op->tenant, op->id, &seq);
    if (rc <= 0) return rc < 0 ? -1 : not_found(op);
    sqlite3_stmt *s = sql_get(q, ST_RESULT_DONE);
    if (s == NULL) return -1;
    sqlite3_bind_int64(s, 1, seq);
    op->job.completed = op->job.failed = 0;
    op->job.usage = (struct store_usage){0};
    while ((rc = sql_step(q, s)) == 1) {
        const uint64_t line = (uint64_t)sqlite3_column_int64(s, 0);
        const struct store_usage u = {sqlite3_column_int64(s, 2), sqlite3_column_int64(s, 3),
                                      sqlite3_column_int64(s, 4), sqlite3_column_int64(s, 5)};
        if (line < op->n_lines) op->bitmap[line / 8] |= (uint8_t)(1u << line % 8);
        if (sqlite3_column_int(s, 1)) op->job.completed++;
        else op->job.failed++;
        usage_add_to(&op->job.usage, &u);
    }
    return rc;
}

/* ---- ops and transactions */

bool store_op_writes(const struct store_op *op)
{
    return op->kind == STORE_FILE_PUT || op->kind == STORE_FILE_DELETE || op->kind == STORE_JOB_CREATE ||
           op->kind == STORE_JOB_UPDATE || op->kind == STORE_RESULTS_PUT;
}

int store_sql_run(struct store_sql *q, struct store_op *op)
{
    op->rc = 0;
    err_clear(&op->err);
    if (q->stale && store_op_writes(op))
        return refuse(op, ERR_DRAINING, "another gateway has taken over this store");
    switch (op->kind) {
    case STORE_FILE_PUT: return file_put(q, op);
    case STORE_FILE_GET: return file_get(q, op);
    case STORE_FILE_LIST: return list(q, op, true);
    case STORE_FILE_DELETE: return file_delete(q, op);
    case STORE_JOB_CREATE: return job_create(q, op);
    case STORE_JOB_GET: {
        int rc = job_by(q, ST_JOB_GET, op->tenant, op->id, &op->job);
        return rc < 0 ? -1 : rc == 0 ? not_found(op) : 0;
    }
    case STORE_JOB_LIST: return list(q, op, false);
    case STORE_JOB_UPDATE: return job_update(q, op);
    case STORE_RESULTS_PUT: return results_put(q, op);
    case STORE_RESULTS_READ: return results_read(q, op);
    case STORE_RESULTS_DONE: return results_done(q, op);
    case STORE_SUMS: return sums(q, op);
    }
    return refuse(op, ERR_INTERNAL, "unknown operation");
}

