/* store_sql.h - the store's SQL, all of it: schema, migrations, one function per op. Private to store*.c.
 *
 * Thread: one connection belongs to one thread. Order: store_sql_begin, store_sql_run ..., store_sql_commit
 * or store_sql_rollback. After -1 of begin, run or commit the transaction is broken and the connection
 * is not trusted again: rollback, close, open. Why it broke: store_sql_reason, store_sql_corrupt.
 */
#ifndef SLUICE_GATEWAY_STORE_SQL_H
#define SLUICE_GATEWAY_STORE_SQL_H

#include "gateway/store.h"

#define STORE_PATH_MAX 4096
#define STORE_VERSION_CORRUPT (-2) /* store_sql_open: set it aside */

struct store_sql;

/* `check`: read the whole database through first. *epoch 0: the next one is taken; else it is kept.
 * 0, -1 (not now: disk, rights, version), STORE_VERSION_CORRUPT; e filled. */
int store_sql_open(struct store_sql **out, const char *path, const struct store_options *o, bool check,
                   int64_t *epoch, struct err *e);
void store_sql_close(struct store_sql **q);
/* Copies what can be read of the database `from` into this one and counts the jobs again; rows copied. */
int64_t store_sql_salvage(struct store_sql *q, const char *from, const struct store_options *o);

bool store_op_writes(const struct store_op *op);
int store_sql_begin(struct store_sql *q, bool writes);
int store_sql_run(struct store_sql *q, struct store_op *op); /* 0: op->rc and op->err are set */
/* Before the commit of a writing transaction: gives it a number, > 0 (-1 = broken). A commit whose sync
 * failed may be in the log all the same: after reopening, store_sql_settle writes what the log holds
 * into the database, synced, and says 1 = that transaction is there, 0 = it is not, -1 = broken. */
int64_t store_sql_mark(struct store_sql *q);
int store_sql_settle(struct store_sql *q, int64_t mark);
int store_sql_commit(struct store_sql *q);
void store_sql_rollback(struct store_sql *q);
const char *store_sql_reason(const struct store_sql *q);
bool store_sql_corrupt(const struct store_sql *q);

/* For the check. `out` "ok" or the first complaint. -1: cannot be read. */
int store_sql_integrity(struct store_sql *q, char *out, size_t cap);
enum store_count { COUNT_FILES, COUNT_JOBS, COUNT_RESULTS, COUNT_WRONG, COUNT_HOMELESS, COUNT_KINDS };
int64_t store_sql_count(struct store_sql *q, enum store_count what); /* -1: cannot be read */
int64_t store_sql_blob_users(struct store_sql *q, const char *hash); /* -1: cannot be read */
int store_sql_each_blob(struct store_sql *q, void (*each)(void *user, const char *hash), void *user);

#endif
