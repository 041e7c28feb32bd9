#include "gateway/store_check.h"

#include "gateway/store_sql.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct look { struct blobs *b; struct store_sql *q; struct store_report *r; bool unknown; };

static void problem(struct store_report *r, const char *text)
{
    if (r->problem[0] == '\0') snprintf(r->problem, sizeof r->problem, "%.500s", text);
}

static void look_at_blob(void *user, const char *hash)
{
    struct look *l = user;
    struct err e;
    if (blob_verify(l->b, hash, &e) == 0) return;
    if (e.code == ERR_NOT_FOUND) l->r->missing_blobs++;
    else l->r->bad_blobs++;
    problem(l->r, e.msg);
}

/* What cannot be asked is kept: a blob too many is harmless. */
static bool is_used(void *user, const char *hash)
{
    struct look *l = user;
    int64_t n = store_sql_blob_users(l->q, hash);
    if (n < 0) l->unknown = true;
    return n != 0;
}

static void look_at_counts(struct store_sql *q, struct store_report *r)
{
    if (store_sql_integrity(q, r->integrity, sizeof r->integrity) != 0)
        snprintf(r->integrity, sizeof r->integrity, "%.190s", store_sql_reason(q));
    if (strcmp(r->integrity, "ok") != 0) problem(r, r->integrity);
    r->files = store_sql_count(q, COUNT_FILES);
    r->jobs = store_sql_count(q, COUNT_JOBS);
    r->results = store_sql_count(q, COUNT_RESULTS);
    r->wrong_counts = store_sql_count(q, COUNT_WRONG);
    r->homeless_results = store_sql_count(q, COUNT_HOMELESS);
    if (r->wrong_counts != 0) problem(r, "a job's counts differ from its results");
    if (r->homeless_results != 0) problem(r, "there are results of no job");
}

static int open_check(const char *dir, struct store_sql **q, struct err *e)
{
    const struct store_options o = {.read_only = true};
    char path[STORE_PATH_MAX];
    int64_t epoch = 0;
    snprintf(path, sizeof path, "%s/store.db", dir);
    return store_sql_open(q, path, &o, false, &epoch, e) == 0 ? 0 : -1;
}

int store_check(const char *dir, struct store_report *r, struct err *e)
{
    struct look l = {.r = r};
    char journal[STORE_PATH_MAX];
    memset(r, 0, sizeof *r);
    if (open_check(dir, &l.q, e) != 0) return -1;
    if (blobs_open(&l.b, dir, e) != 0) {
        store_sql_close(&l.q);
        return -1;
    }
    look_at_counts(l.q, r);
    if (store_sql_each_blob(l.q, look_at_blob, &l) != 0) problem(r, store_sql_reason(l.q));
    r->orphan_blobs = blob_collect(l.b, is_used, &l, true);
    snprintf(journal, sizeof journal, "%s/journal", dir);
    r->journal_ok = access(journal, F_OK) != 0 || journal_inspect(journal, &r->journal, e) == 0;
    if (!r->journal_ok) problem(r, e->msg);
    blobs_close(&l.b);
    store_sql_close(&l.q);
    return 0;
}

int64_t store_collect(const char *dir, struct blobs *b)
{
    struct look l = {.b = b};
    struct err e;
    char path[STORE_PATH_MAX];
    snprintf(path, sizeof path, "%s/store.db", dir);
    if (access(path, F_OK) != 0 || open_check(dir, &l.q, &e) != 0) return -1;
    /* First without removing: of a database that cannot be read whole, nothing is an orphan. */
    char whole[200];
    int64_t n = -1;
    if (store_sql_integrity(l.q, whole, sizeof whole) == 0 && strcmp(whole, "ok") == 0 &&
        blob_collect(b, is_used, &l, true) >= 0 && !l.unknown)
        n = blob_collect(b, is_used, &l, false);
    store_sql_close(&l.q);
    return n;
}
