#include "gateway/store_sql_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- schema. A step is never changed once released; the next version is a new step. */

static const char *const steps[] = {
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);"
    "INSERT INTO meta VALUES ('epoch', 0), ('txn', 0);"
    "CREATE TABLE files (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,"
    " purpose TEXT, filename TEXT, hash TEXT NOT NULL, bytes INTEGER, created INTEGER, expires INTEGER,"
    " hidden INTEGER);"
    "CREATE INDEX files_tenant ON files (tenant, seq);"
    "CREATE INDEX files_hash ON files (hash);"
    "CREATE TABLE jobs (seq INTEGER PRIMARY KEY AUTOINCREMENT, epoch INTEGER NOT NULL, id TEXT NOT NULL UNIQUE,"
    " tenant TEXT NOT NULL, class TEXT, endpoint TEXT, status TEXT, input_file TEXT, output_file TEXT,"
    " error_file TEXT, submission_key TEXT, window INTEGER, created INTEGER, in_progress INTEGER,"
    " expires INTEGER, finalizing INTEGER, completed_at INTEGER, failed_at INTEGER, expired INTEGER,"
    " cancelling INTEGER, cancelled INTEGER, total INTEGER, done INTEGER, failed INTEGER, input INTEGER,"
    " cached INTEGER, output INTEGER, wasted INTEGER, concurrency INTEGER, paused INTEGER, metadata TEXT,"
    " errors TEXT, on_completion TEXT);"
    "CREATE INDEX jobs_tenant ON jobs (tenant, seq);"
    "CREATE UNIQUE INDEX jobs_submission ON jobs (tenant, submission_key) WHERE submission_key <> '';"
    "CREATE TABLE results (job INTEGER NOT NULL, line INTEGER NOT NULL, ok INTEGER, status INTEGER, body BLOB,"
    " input INTEGER, cached INTEGER, output INTEGER, wasted INTEGER, UNIQUE (job, line));",
};
#define VERSION ((int)(sizeof steps / sizeof steps[0]))

#define NAME(col, member) "," #col
#define MARK(col, member) ",?"
#define SET(col, member) "," #col "=?"
#define JOB_COLUMNS JOB_ALL(NAME, NAME, NAME, NAME)
#define FILE_COLUMNS FILE_ALL(NAME, NAME, NAME)
#define AFTER(table) "COALESCE((SELECT seq FROM " table " WHERE tenant=?1 AND id=?2),-1)"

#define LIST_FILES "SELECT seq" FILE_COLUMNS " FROM files WHERE tenant=?1 AND hidden=0 AND (?3='' OR purpose=?3)"
#define ONGOING " AND (?3=0 OR status NOT IN ('completed','failed','expired','cancelled'))"
#define LIST_JOBS "SELECT seq" JOB_COLUMNS " FROM jobs WHERE (?1='' OR tenant=?1)" ONGOING
static const char *const texts[ST_COUNT] = {
    [ST_BEGIN] = "BEGIN",
    [ST_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_EPOCH] = "SELECT value FROM meta WHERE key='epoch'",
    [ST_TXN] = "SELECT value FROM meta WHERE key='txn'",
    [ST_TXN_NEXT] = "UPDATE meta SET value=value+1 WHERE key='txn'",
    [ST_FILE_PUT] = "INSERT INTO files (seq" FILE_COLUMNS ") VALUES (NULL" FILE_ALL(MARK, MARK, MARK) ")",
    [ST_FILE_GET] = "SELECT seq" FILE_COLUMNS " FROM files WHERE tenant=?1 AND id=?2",
    [ST_FILE_DELETE] = "DELETE FROM files WHERE tenant=?1 AND id=?2",
    [ST_FILE_DOWN] = LIST_FILES " AND (?2<0 OR seq<?2) ORDER BY seq DESC LIMIT ?4",
    [ST_FILE_UP] = LIST_FILES " AND seq>?2 ORDER BY seq LIMIT ?4",
    [ST_USERS] = "SELECT count(*) FROM files WHERE hash=?1",
    [ST_FILE_SEQ] = "SELECT seq FROM files WHERE tenant=?1 AND id=?2",
    [ST_JOB_PUT] = "INSERT INTO jobs (epoch" JOB_COLUMNS ") VALUES (?" JOB_ALL(MARK, MARK, MARK, MARK) ")",
    [ST_JOB_GET] = "SELECT seq" JOB_COLUMNS " FROM jobs WHERE tenant=?1 AND id=?2",
    [ST_JOB_BY_KEY] = "SELECT seq" JOB_COLUMNS " FROM jobs WHERE tenant=?1 AND submission_key=?2"
                      " AND submission_key<>''",
    [ST_JOB_SET] = "UPDATE jobs SET epoch=?" JOB_FREE(SET, SET, SET, SET) " WHERE tenant=? AND id=?",
    [ST_JOB_DOWN] = LIST_JOBS " AND (?2<0 OR seq<?2) ORDER BY seq DESC LIMIT ?4",
    [ST_JOB_UP] = LIST_JOBS " AND seq>?2 ORDER BY seq LIMIT ?4",
    [ST_JOB_SEQ] = "SELECT seq FROM jobs WHERE (?1='' OR tenant=?1) AND id=?2",
    [ST_JOB_COUNT] = "UPDATE jobs SET epoch=?2, done=done+?3, failed=failed+?4, input=input+?5,"
                     " cached=cached+?6, output=output+?7, wasted=wasted+?8 WHERE seq=?1",
    [ST_RESULT_PUT] = "INSERT INTO results VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (job, line) DO NOTHING",
    [ST_RESULT_READ] = "SELECT line,ok,status,body,input,cached,output,wasted FROM results"
                       " WHERE job=?1 AND line>=?2 AND (?3<0 OR ok=?3) ORDER BY line LIMIT ?4",
    [ST_RESULT_DONE] = "SELECT line,ok,input,cached,output,wasted FROM results WHERE job=?1",
    [ST_SUMS] = "SELECT sum(total),sum(done),sum(failed),sum(input),sum(cached),sum(output),sum(wasted)"
                " FROM jobs WHERE tenant=?1",
};

/* ---- small helpers: a failed step is remembered, its kind decides between one op and all */

static int broken(struct store_sql *q)
{
    int rc = sqlite3_extended_errcode(q->db) & 0xff;
    snprintf(q->reason, sizeof q->reason, "%s", rc == SQLITE_FULL ? "the disk is full" : sqlite3_errmsg(q->db));
    q->corrupt = rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB;
    return -1;
}

/* Rewound, ready to bind; NULL = broken. */
sqlite3_stmt *sql_get(struct store_sql *q, enum statement i)
{
    if (q->st[i] == NULL && sqlite3_prepare_v3(q->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &q->st[i],
                                               NULL) != SQLITE_OK) {
        broken(q);
        return NULL;
    }
    sqlite3_reset(q->st[i]);
    return q->st[i];
}

int sql_run(struct store_sql *q, sqlite3_stmt *s) /* a statement without rows; 1 = a constraint */
{
    int rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) rc = SQLITE_DONE;
    if ((rc & 0xff) == SQLITE_CONSTRAINT) {
        sqlite3_reset(s);
        return 1;
    }
    int bad = rc == SQLITE_DONE ? 0 : broken(q);
    sqlite3_reset(s);
    return bad;
}

/* 1 = a row, 0 = none, -1 = broken */
int sql_step(struct store_sql *q, sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) return 1;
    int bad = rc == SQLITE_DONE ? 0 : broken(q);
    sqlite3_reset(s);
    return bad;
}

void sql_bind_text(sqlite3_stmt *s, int at, const char *v)
{
    sqlite3_bind_text(s, at, v, -1, SQLITE_STATIC); /* NULL binds NULL */
}

sqlite3_stmt *sql_get_by(struct store_sql *q, enum statement i, const char *a, const char *b)
{
    sqlite3_stmt *s = sql_get(q, i);
    if (s == NULL) return NULL;
    sql_bind_text(s, 1, a);
    if (b) sql_bind_text(s, 2, b);
    return s;
}


static int64_t meta_now(struct store_sql *q, enum statement what)
{
    sqlite3_stmt *s = sql_get(q, what);
    if (s == NULL || sql_step(q, s) != 1) return -1;
    int64_t v = sqlite3_column_int64(s, 0);
    sqlite3_reset(s);
    return v;
}

int store_sql_begin(struct store_sql *q, bool writes)
{
    sqlite3_stmt *s = sql_get(q, writes ? ST_BEGIN_WRITE : ST_BEGIN);
    if (s == NULL || sql_run(q, s) != 0) return -1;
    int64_t now = meta_now(q, ST_EPOCH);
    q->stale = now > q->epoch;
    return now < 0 ? -1 : 0;
}

int64_t store_sql_mark(struct store_sql *q)
{
    sqlite3_stmt *s = sql_get(q, ST_TXN_NEXT);
    return s != NULL && sql_run(q, s) == 0 ? meta_now(q, ST_TXN) : -1;
}

int store_sql_settle(struct store_sql *q, int64_t mark)
{
    int log_pages = 0, moved = 0;
    if (sqlite3_wal_checkpoint_v2(q->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, &log_pages, &moved) != SQLITE_OK)
        return broken(q);
    int64_t now = meta_now(q, ST_TXN), epoch = meta_now(q, ST_EPOCH);
    if (now < 0 || epoch < 0) return -1;
    return now == mark && epoch == q->epoch;
}

int store_sql_commit(struct store_sql *q)
{
    sqlite3_stmt *s = sql_get(q, ST_COMMIT);
    return s != NULL && sql_run(q, s) == 0 ? 0 : -1;
}

void store_sql_rollback(struct store_sql *q)
{
    for (int i = 0; i < ST_COUNT; i++) sqlite3_reset(q->st[i]);
    if (!sqlite3_get_autocommit(q->db)) sqlite3_exec(q->db, "ROLLBACK", NULL, NULL, NULL);
}

const char *store_sql_reason(const struct store_sql *q) { return q->reason; }
bool store_sql_corrupt(const struct store_sql *q) { return q->corrupt; }

/* ---- opening */

static int exec(struct store_sql *q, const char *sql)
{
    return sqlite3_exec(q->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : broken(q);
}

static int64_t number(struct store_sql *q, const char *sql, const char *arg)
{
    sqlite3_stmt *s = NULL;
    int64_t v = -1;
    if (sqlite3_prepare_v2(q->db, sql, -1, &s, NULL) != SQLITE_OK) return broken(q);
    if (arg) sql_bind_text(s, 1, arg);
    if (sqlite3_step(s) == SQLITE_ROW) v = sqlite3_column_int64(s, 0);
    else broken(q);
    sqlite3_finalize(s);
    return v;
}

static int migrate(struct store_sql *q, int64_t from)
{
    char set[64];
    if (exec(q, "BEGIN IMMEDIATE") != 0) return -1;
    for (int64_t v = from; v < VERSION; v++)
        if (exec(q, steps[v]) != 0) return -1;
    snprintf(set, sizeof set, "PRAGMA user_version=%d", VERSION);
    if (exec(q, set) != 0) return -1;
    return exec(q, "COMMIT");
}

static int take_epoch(struct store_sql *q, int64_t *epoch)
{
    if (*epoch == 0) {
        if (exec(q, "BEGIN IMMEDIATE; UPDATE meta SET value=value+1 WHERE key='epoch'") != 0) return -1;
        *epoch = meta_now(q, ST_EPOCH);
        if (*epoch < 0 || exec(q, "COMMIT") != 0) return -1;
    }
    q->epoch = *epoch;
    return 0;
}

static int prepare(struct store_sql *q, const struct store_options *o, bool check, int64_t *epoch)
{
    char text[200];
    sqlite3_busy_timeout(q->db, 1000);
    sqlite3_extended_result_codes(q->db, 1);
    int64_t version = number(q, "PRAGMA user_version", NULL);
    if (version < 0) return -1;
    if (version > VERSION) {
        snprintf(q->reason, sizeof q->reason, "its version is %d, this program knows %d: use a newer one",
                 (int)version, VERSION);
        return -1;
    }
    if (o->read_only) return 0;
    if (exec(q, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-8192;"
                "PRAGMA journal_size_limit=67108864; PRAGMA wal_autocheckpoint=4000") != 0)
        return -1;
    snprintf(text, sizeof text, "PRAGMA max_page_count=%lld", (long long)o->max_pages);
    if (o->max_pages > 0 && exec(q, text) != 0) return -1;
    if (version < VERSION && migrate(q, version) != 0) return -1;
    if (check && store_sql_integrity(q, text, sizeof text) != 0) return -1;
    if (check && strcmp(text, "ok") != 0) {
        snprintf(q->reason, sizeof q->reason, "%.180s", text);
        q->corrupt = true;
        return -1;
    }
    return take_epoch(q, epoch);
}

int store_sql_open(struct store_sql **out, const char *path, const struct store_options *o, bool check,
                   int64_t *epoch, struct err *e)
{
    struct store_sql *q = mem_zalloc(sizeof *q);
    *out = NULL;
    if (q == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    int flags = o->read_only ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int rc = sqlite3_open_v2(path, &q->db, flags | SQLITE_OPEN_NOMUTEX, o->vfs);
    if (rc != SQLITE_OK) broken(q);
    if (rc != SQLITE_OK || prepare(q, o, check, epoch) != 0) {
        bool corrupt = q->corrupt;
        err_set(e, ERR_BAD_FILE, "the store %s cannot be used: %s", path, q->reason);
        store_sql_close(&q);
        return corrupt ? STORE_VERSION_CORRUPT : -1;
    }
    *out = q;
    return 0;
}

void store_sql_close(struct store_sql **pq)
{
    struct store_sql *q = *pq;
    *pq = NULL;
    if (q == NULL) return;
    for (int i = 0; i < ST_COUNT; i++) sqlite3_finalize(q->st[i]);
    sqlite3_close(q->db);
    mem_free(q);
}

/* ---- setting aside, checking */

static void bind_row(sqlite3_stmt *to, sqlite3_stmt *from)
{
    const int n = sqlite3_column_count(from);
    for (int i = 0; i < n; i++) sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
}

/* Row by row until the first that cannot be read, once from either end. */
static int64_t copy_rows(struct store_sql *q, sqlite3 *old, const char *select, const char *insert)
{
    sqlite3_stmt *from = NULL, *to = NULL;
    int64_t n = 0;
    if (sqlite3_prepare_v2(old, select, -1, &from, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(q->db, insert, -1, &to, NULL) == SQLITE_OK &&
        sqlite3_column_count(from) == sqlite3_bind_parameter_count(to)) {
        while (sqlite3_step(from) == SQLITE_ROW) {
            bind_row(to, from);
            if (sqlite3_step(to) == SQLITE_DONE) n += sqlite3_changes(q->db);
            sqlite3_reset(to);
        }
    }
    sqlite3_finalize(from);
    sqlite3_finalize(to);
    return n;
}

#define COPY_FILES "INSERT OR IGNORE INTO files (seq" FILE_COLUMNS ") VALUES (?" FILE_ALL(MARK, MARK, MARK) ")"
#define COPY_JOBS                                                                                  \
    "INSERT OR IGNORE INTO jobs (seq,epoch" JOB_COLUMNS ") VALUES (?,?" JOB_ALL(MARK, MARK, MARK, MARK) ")"
#define RECOUNT(column, what)                                                                      \
    column "=(SELECT COALESCE(sum(" what "),0) FROM results WHERE job=seq)"

int64_t store_sql_salvage(struct store_sql *q, const char *from, const struct store_options *o)
{
    static const char *const tables[][2] = {
        {"SELECT seq" FILE_COLUMNS " FROM files NOT INDEXED ORDER BY seq", COPY_FILES},
        {"SELECT seq,epoch" JOB_COLUMNS " FROM jobs NOT INDEXED ORDER BY seq", COPY_JOBS},
        {"SELECT * FROM results NOT INDEXED ORDER BY rowid", "INSERT OR IGNORE INTO results VALUES (?,?,?,?,?,?,?,?,?)"},
    };
    sqlite3 *old = NULL;
    int64_t n = 0;
    char down[1200];
    if (sqlite3_open_v2(from, &old, SQLITE_OPEN_READWRITE, o->vfs) == SQLITE_OK && exec(q, "BEGIN IMMEDIATE") == 0) {
        for (int i = 0; i < 3; i++) {
            snprintf(down, sizeof down, "%s DESC", tables[i][0]);
            n += copy_rows(q, old, tables[i][0], tables[i][1]);
            n += copy_rows(q, old, down, tables[i][1]);
        }
        exec(q, "DELETE FROM results WHERE job NOT IN (SELECT seq FROM jobs)");
        exec(q, "UPDATE jobs SET " RECOUNT("done", "ok") "," RECOUNT("failed", "1-ok") "," RECOUNT("input", "input")
                "," RECOUNT("cached", "cached") "," RECOUNT("output", "output") "," RECOUNT("wasted", "wasted"));
        exec(q, "UPDATE meta SET value=max(value,(SELECT COALESCE(max(epoch),0) FROM jobs)) WHERE key='epoch'");
        if (exec(q, "COMMIT") != 0) {
            store_sql_rollback(q);
            n = 0;
        }
        q->epoch = meta_now(q, ST_EPOCH);
    }
    sqlite3_close(old);
    return n;
}

int store_sql_integrity(struct store_sql *q, char *out, size_t cap)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(q->db, "PRAGMA integrity_check(1)", -1, &s, NULL) != SQLITE_OK) return broken(q);
    int rc = sqlite3_step(s);
    const char *said = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (said) snprintf(out, cap, "%s", said);
    else broken(q);
    sqlite3_finalize(s);
    return said ? 0 : -1;
}

int64_t store_sql_count(struct store_sql *q, enum store_count what)
{
    static const char *const counts[COUNT_KINDS] = {
        "SELECT count(*) FROM files",
        "SELECT count(*) FROM jobs",
        "SELECT count(*) FROM results",
        "SELECT count(*) FROM jobs j WHERE done<>(SELECT COALESCE(sum(ok),0) FROM results r WHERE r.job=j.seq)"
        " OR failed<>(SELECT COALESCE(sum(1-ok),0) FROM results r WHERE r.job=j.seq)"
        " OR output<>(SELECT COALESCE(sum(r.output),0) FROM results r WHERE r.job=j.seq)",
        "SELECT count(*) FROM results WHERE job NOT IN (SELECT seq FROM jobs)",
    };
    return number(q, counts[what], NULL);
}

int64_t store_sql_blob_users(struct store_sql *q, const char *hash)
{
    return number(q, texts[ST_USERS], hash);
}

int store_sql_each_blob(struct store_sql *q, void (*each)(void *user, const char *hash), void *user)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(q->db, "SELECT DISTINCT hash FROM files", -1, &s, NULL) != SQLITE_OK) return broken(q);
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) each(user, (const char *)sqlite3_column_text(s, 0));
    if (rc != SQLITE_DONE) broken(q);
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? 0 : -1;
}
