/* store.h - the gateway's durable memory: files, jobs, results; one SQLite database, one writer.
 *
 * Order of calls: store_open, any number of store_push, store_close. An op is a struct of the caller,
 * zeroed, its inputs filled, pushed from the loop thread; it and all that its inputs point to stay the
 * store's until done(op) is called on the loop thread. done comes after the transaction is durable
 * (WAL, synchronous=FULL): what `err` says 0 for survives a loss of power.
 * Order: ops are run in the order pushed; a read sees every write pushed before it.
 * Group commit: what waits (up to STORE_GROUP_OPS, STORE_GROUP_BYTES) shares a transaction. While a
 * transaction is being synced, the next one gathers; a lone op is not held back.
 * Back-pressure: store_push returns -1 when STORE_QUEUE_OPS ops are out; the op is still the caller's.
 * Faults: disk full, read-only or I/O error: the transaction is rolled back, the database closed,
 * reopened and re-read, and the same ops are run again, with back-off of 50 ms to 5 s, for as long as it
 * takes. Meanwhile store_state says paused and why; nothing is lost, nothing is answered in error.
 * At store_close, ops that could not be made durable get ERR_IO (retryable).
 * Epoch: each store_open takes the next lease epoch; a write under an older one gets
 * ERR_DRAINING ("another gateway took over the store"), and so does every later write.
 * Tenant: part of every look-up; a foreign id is ERR_NOT_FOUND, the same as one that never was.
 * Cost: about 20 us an op and a sync a group. Memory: the queue's pointers and SQLite's cache (8 MB).
 */
#ifndef SLUICE_GATEWAY_STORE_H
#define SLUICE_GATEWAY_STORE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define STORE_ID_MAX 64        /* with the NUL, as all *_MAX of text here */
#define STORE_TENANT_MAX 72
#define STORE_WORD_MAX 64
#define STORE_FILENAME_MAX 256
#define STORE_HASH_MAX 65      /* hex of the blob */
#define STORE_LIST_MAX 1000
#define STORE_QUEUE_OPS 4096
#define STORE_GROUP_OPS 512
#define STORE_GROUP_BYTES (8u << 20)

struct store_file {
    char id[STORE_ID_MAX];             /* file-... */
    char tenant[STORE_TENANT_MAX];
    char purpose[STORE_WORD_MAX];
    char filename[STORE_FILENAME_MAX];
    char hash[STORE_HASH_MAX];         /* its blob (gateway/blob.h) */
    int64_t bytes, created_s, expires_s; /* expires 0 = never */
    bool hidden;                       /* kept for a job, not listed */
};

struct store_usage { int64_t input, cached, output, wasted; };

/* Times are seconds since 1970, 0 = has not happened. Texts may be NULL; what the store hands out is
 * freed with store_job_deinit. */
struct store_job {
    char id[STORE_ID_MAX];             /* batch_... */
    char tenant[STORE_TENANT_MAX];
    char klass[STORE_WORD_MAX], endpoint[STORE_WORD_MAX], status[STORE_WORD_MAX];
    char input_file[STORE_ID_MAX], output_file[STORE_ID_MAX], error_file[STORE_ID_MAX];
    char submission_key[STORE_WORD_MAX]; /* "" = none; else unique per tenant */
    int64_t window_s;
    int64_t created_s, in_progress_s, expires_s, finalizing_s, completed_s, failed_s, expired_s,
        cancelling_s, cancelled_s;
    int64_t total, completed, failed;  /* completed and failed are the store's: counted from results */
    struct store_usage usage;          /* the store's, too: sums over the results */
    int64_t concurrency;               /* 0 = no cap */
    bool paused;
    char *metadata, *errors, *on_completion; /* JSON, JSON, command or URL */
};

struct store_result {
    int64_t line;
    bool ok;
    int32_t http_status;
    const void *body; size_t bytes;
    struct store_usage usage;
    bool duplicate;                    /* out: the line had its result already, this one was dropped */
};

enum store_op_kind {
    STORE_FILE_PUT,      /* file */
    STORE_FILE_GET,      /* tenant, id -> file */
    STORE_FILE_LIST,     /* tenant, after, purpose ("" = all), ascending, limit -> files, n, more */
    STORE_FILE_DELETE,   /* tenant, id -> file as it was. The blob is freed by blob_collect or the caller
                          * when `blob_users` comes back 0 */
    STORE_JOB_CREATE,    /* job; a known submission_key: job is filled with the one that is there, `known` */
    STORE_JOB_GET,       /* tenant, id -> job */
    STORE_JOB_LIST,      /* tenant ("" = every tenant's, for a start), after, ascending, limit,
                          * unfinished -> jobs, n, more */
    STORE_JOB_UPDATE,    /* job: everything but id, tenant, submission key, created, counts and usage */
    STORE_RESULTS_PUT,   /* tenant, id, results, n_results -> each one's `duplicate`, job counts in `job` */
    STORE_RESULTS_READ,  /* tenant, id, first line, limit, which -> rows, n, more; at most STORE_READ_BYTES */
    STORE_RESULTS_DONE,  /* tenant, id, bitmap of n_lines (caller's, zeroed) -> bits of done lines, counts */
    STORE_SUMS           /* tenant -> sums over its jobs in job.total, completed, failed, usage */
};
#define STORE_READ_BYTES (4u << 20)

enum store_which { STORE_ALL, STORE_OK_ONLY, STORE_FAILED_ONLY };

struct store_op {
    enum store_op_kind kind;
    void (*done)(struct store_op *op); /* loop thread; the op is the caller's again */
    void *user;
    /* in */
    char tenant[STORE_TENANT_MAX], id[STORE_ID_MAX], after[STORE_ID_MAX], purpose[STORE_WORD_MAX];
    uint32_t limit; bool ascending, unfinished;
    struct store_result *results; size_t n_results;
    int64_t first_line; enum store_which which;
    uint8_t *bitmap; size_t n_lines;
    /* in or out */
    struct store_file file;
    struct store_job job;
    /* out */
    int rc; struct err err;            /* rc 0, or -1 with err */
    struct store_file *files; struct store_job *jobs; struct store_result *rows; size_t n;
    bool more, known;
    int64_t blob_users;
};
/* Frees what the store allocated in an op (files, jobs, rows, job's texts when they are the store's). */
void store_op_deinit(struct store_op *op);
void store_job_deinit(struct store_job *j);

struct store_state { bool paused; char reason[200]; uint64_t retries, commits, ops; uint32_t waiting; };

struct store_options {
    const char *vfs;       /* NULL = the system's; tests inject faults by another */
    int64_t max_pages;     /* 0 = no limit of the database's size (pages of 4 KiB) */
    bool read_only;        /* `sluice store check` */
};

struct store;
/* `dir`: the state folder, exists. Opens or makes <dir>/store.db, migrates it forward; one newer than
 * this program is refused (ERR_BAD_FILE). A corrupt one is set aside as store.db.corrupt-N, what can be
 * read is carried over, an error is logged. loop: where done() is called. 0, or -1 with e. */
int store_open(struct store **out, uv_loop_t *loop, const char *dir, const struct store_options *o,
               struct err *e);
/* Runs what is queued, then closes; done() of every op has been called when it returns. */
void store_close(struct store **s);
int store_push(struct store *s, struct store_op *op);
void store_state(struct store *s, struct store_state *out); /* any thread */
int64_t store_epoch(const struct store *s);

#endif
