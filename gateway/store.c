#include "gateway/store.h"

#include "base/log.h"
#include "base/mem.h"
#include "gateway/store_sql.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 5000

/* Ops wait in `queue` under the lock, then stand in the thread's own `group`, then in `done` until the
 * loop takes them. `out` bounds all three together. */
struct store {
    uv_loop_t *loop;
    uv_async_t async;
    bool closed;
    char path[STORE_PATH_MAX];
    struct store_options options;
    int64_t epoch;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct store_op *queue[STORE_QUEUE_OPS]; uint32_t head, n;
    struct store_op *done[STORE_QUEUE_OPS]; uint32_t n_done;
    uint32_t out;                                          /* loop thread only */
    bool stop;
    struct store_state state;
    /* the thread's own */
    struct store_sql *sql;
    struct store_op *group[STORE_GROUP_OPS]; uint32_t n_group; size_t group_bytes;
    uint32_t backoff_ms;
    int64_t mark;          /* of a transaction whose commit failed: is it there? 0 = none */
};

void store_job_deinit(struct store_job *j)
{
    mem_free(j->metadata);
    mem_free(j->errors);
    mem_free(j->on_completion);
    j->metadata = j->errors = j->on_completion = NULL;
}

/* A transaction that is run again begins with an op as it was pushed. */
void store_op_deinit(struct store_op *op)
{
    for (size_t i = 0; op->jobs && i < op->n; i++) store_job_deinit(&op->jobs[i]);
    for (size_t i = 0; op->rows && i < op->n; i++) mem_free((void *)op->rows[i].body);
    if (op->kind == STORE_JOB_GET || op->known) store_job_deinit(&op->job);
    mem_free(op->files);
    mem_free(op->jobs);
    mem_free(op->rows);
    op->files = NULL;
    op->jobs = NULL;
    op->rows = NULL;
    op->n = 0;
    op->more = op->known = false;
}

/* ---- opening */

static void rename_with(const char *path, const char *to, const char *tail)
{
    char a[STORE_PATH_MAX + 8], b[STORE_PATH_MAX + 48];
    snprintf(a, sizeof a, "%s%s", path, tail);
    snprintf(b, sizeof b, "%s%s", to, tail);
    rename(a, b); /* a missing log is no error */
}

static int set_aside(struct store *s, struct err *e)
{
    char to[STORE_PATH_MAX + 40], why[ERR_MSG_MAX];
    snprintf(why, sizeof why, "%s", e->msg);
    int i = 0;
    do {
        snprintf(to, sizeof to, "%s.corrupt-%d", s->path, ++i);
    } while (access(to, F_OK) == 0);
    rename_with(s->path, to, "");
    rename_with(s->path, to, "-wal");
    rename_with(s->path, to, "-shm");
    s->epoch = 0;
    if (store_sql_open(&s->sql, s->path, &s->options, false, &s->epoch, e) != 0) return -1;
    int64_t n = store_sql_salvage(s->sql, to, &s->options);
    log_error("%s; it was set aside as %s, %lld rows could be read and were carried over", why, to, (long long)n);
    store_sql_close(&s->sql);
    s->epoch = 0;
    return store_sql_open(&s->sql, s->path, &s->options, false, &s->epoch, e);
}

static int open_sql(struct store *s, bool check, struct err *e)
{
    int rc = store_sql_open(&s->sql, s->path, &s->options, check, &s->epoch, e);
    return rc == STORE_VERSION_CORRUPT ? set_aside(s, e) : rc;
}

/* ---- the thread */

static size_t op_bytes(const struct store_op *op)
{
    size_t n = sizeof *op;
    for (size_t i = 0; i < op->n_results; i++) n += op->results[i].bytes;
    return n;
}

/* Under the lock: what waits joins the group. */
static void take_ops(struct store *s)
{
    while (s->n > 0 && s->n_group < STORE_GROUP_OPS && s->group_bytes < STORE_GROUP_BYTES) {
        struct store_op *op = s->queue[s->head];
        s->head = (s->head + 1) % STORE_QUEUE_OPS;
        s->n--;
        s->group[s->n_group++] = op;
        s->group_bytes += op_bytes(op);
    }
    s->state.waiting = s->n + s->n_group;
}

/* Hands the group's answered ops back: all of them, or (reads_only) those that write nothing. */
static void hand_back(struct store *s, bool reads_only)
{
    uint32_t kept = 0;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_group; i++) {
        if (reads_only && store_op_writes(s->group[i])) s->group[kept++] = s->group[i];
        else s->done[s->n_done++] = s->group[i];
    }
    s->state.ops += s->n_group - kept;
    s->n_group = kept;
    if (kept == 0) s->group_bytes = 0;
    s->state.waiting = s->n + kept;
    pthread_mutex_unlock(&s->lock);
    uv_async_send(&s->async); /* closed only after the thread is joined */
}

/* One transaction of the group, or of its reads alone. */
static int transact(struct store *s, bool reads_only)
{
    bool writes = false;
    for (uint32_t i = 0; i < s->n_group; i++) writes |= store_op_writes(s->group[i]);
    if (store_sql_begin(s->sql, writes && !reads_only) != 0) return -1;
    for (uint32_t i = 0; i < s->n_group; i++) {
        if (reads_only && store_op_writes(s->group[i])) continue;
        store_op_deinit(s->group[i]);
        if (store_sql_run(s->sql, s->group[i]) != 0) return -1;
    }
    if (writes && !reads_only && (s->mark = store_sql_mark(s->sql)) < 0) {
        s->mark = 0;
        return -1;
    }
    if (store_sql_commit(s->sql) != 0) return -1;
    if (!reads_only) s->mark = 0;
    return 0;
}

static void say_paused(struct store *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    if (!s->state.paused)
        log_error("the store is paused, batch results wait: %s; it is tried again by itself", why);
    s->state.paused = true;
    s->state.retries++;
    snprintf(s->state.reason, sizeof s->state.reason, "%s", why);
    pthread_mutex_unlock(&s->lock);
}

static void say_running(struct store *s)
{
    s->backoff_ms = 0;
    pthread_mutex_lock(&s->lock);
    s->state.commits++;
    if (s->state.paused) log_info("the store goes on");
    s->state.paused = false;
    s->state.reason[0] = '\0';
    pthread_mutex_unlock(&s->lock);
}

/* Sleeps the back-off or until the end is wanted; true = give up. */
static bool wait_again(struct store *s)
{
    struct timespec t;
    s->backoff_ms = s->backoff_ms == 0 ? BACKOFF_MIN_MS : s->backoff_ms * 2;
    if (s->backoff_ms > BACKOFF_MAX_MS) s->backoff_ms = BACKOFF_MAX_MS;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += (long)(s->backoff_ms % 1000) * 1000000;
    t.tv_sec += s->backoff_ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_mutex_lock(&s->lock);
    int rc = 0;
    while (!s->stop && rc == 0) rc = pthread_cond_timedwait(&s->some, &s->lock, &t);
    bool stop = s->stop;
    if (s->mark == 0) take_ops(s); /* the group of a transaction in doubt stays as it is */
    pthread_mutex_unlock(&s->lock);
    return stop;
}

static void give_up(struct store *s)
{
    for (uint32_t i = 0; i < s->n_group; i++) {
        store_op_deinit(s->group[i]);
        s->group[i]->rc = err_set(&s->group[i]->err, ERR_IO, "the store closed before this was durable");
    }
    hand_back(s, false);
}

/* The file is not trusted after a failure: closed, reopened, read again, the same ops run again. */
static int reopen(struct store *s, bool *there)
{
    struct err e;
    bool corrupt = s->sql != NULL && store_sql_corrupt(s->sql);
    if (s->sql != NULL) {
        store_sql_rollback(s->sql);
        store_sql_close(&s->sql);
    }
    int rc = open_sql(s, corrupt, &e);
    *there = false;
    if (rc != 0) {
        say_paused(s, e.msg);
        return rc;
    }
    if (s->mark == 0) return 0;
    rc = store_sql_settle(s->sql, s->mark);
    if (rc < 0) {
        say_paused(s, store_sql_reason(s->sql));
        return -1;
    }
    *there = rc == 1;
    s->mark = 0;
    return 0;
}

static void finish_group(struct store *s)
{
    bool there;
    while (s->n_group > 0) {
        if (s->sql != NULL && s->mark == 0 && transact(s, false) == 0) {
            say_running(s);
            hand_back(s, false);
            return;
        }
        if (s->sql != NULL) say_paused(s, store_sql_reason(s->sql));
        int rc = reopen(s, &there);
        if (rc == 0 && there) {
            say_running(s);
            hand_back(s, false);
            return;
        }
        if (rc == 0 && transact(s, true) == 0) hand_back(s, true); /* reads need no room */
        else if (s->sql != NULL) store_sql_rollback(s->sql);
        if (s->n_group > 0 && wait_again(s)) give_up(s);
    }
}

static void *thread_main(void *arg)
{
    struct store *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop || s->n > 0) {
        if (s->n == 0) {
            pthread_cond_wait(&s->some, &s->lock);
            continue;
        }
        take_ops(s);
        pthread_mutex_unlock(&s->lock);
        finish_group(s);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the loop's side */

static void on_async(uv_async_t *a)
{
    struct store *s = a->data;
    struct store_op *ops[64];
    uint32_t n;
    do {
        pthread_mutex_lock(&s->lock);
        n = s->n_done < 64 ? s->n_done : 64;
        memcpy(ops, s->done, n * sizeof ops[0]);
        memmove(s->done, s->done + n, (s->n_done - n) * sizeof s->done[0]);
        s->n_done -= n;
        pthread_mutex_unlock(&s->lock);
        s->out -= n;
        for (uint32_t i = 0; i < n; i++) ops[i]->done(ops[i]);
    } while (n == 64);
}

int store_push(struct store *s, struct store_op *op)
{
    if (s->out == STORE_QUEUE_OPS) return -1;
    s->out++;
    pthread_mutex_lock(&s->lock);
    s->queue[(s->head + s->n++) % STORE_QUEUE_OPS] = op;
    pthread_cond_signal(&s->some);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

void store_state(struct store *s, struct store_state *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->state;
    pthread_mutex_unlock(&s->lock);
}

int64_t store_epoch(const struct store *s) { return s->epoch; }

int store_open(struct store **out, uv_loop_t *loop, const char *dir, const struct store_options *o,
               struct err *e)
{
    struct store *s = mem_zalloc(sizeof *s);
    *out = NULL;
    if (s == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    s->loop = loop;
    if (o) s->options = *o;
    snprintf(s->path, sizeof s->path, "%s/store.db", dir);
    if (open_sql(s, true, e) != 0) {
        mem_free(s);
        return -1;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->some, NULL);
    s->async.data = s;
    uv_async_init(loop, &s->async, on_async);
    if (pthread_create(&s->thread, NULL, thread_main, s) != 0) {
        s->thread = pthread_self();
        store_close(&s);
        return err_set(e, ERR_NO_MEMORY, "out of memory: cannot start the store's thread");
    }
    *out = s;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    ((struct store *)h->data)->closed = true;
}

void store_close(struct store **ps)
{
    struct store *s = *ps;
    *ps = NULL;
    if (s == NULL) return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->some);
    pthread_mutex_unlock(&s->lock);
    if (!pthread_equal(s->thread, pthread_self())) pthread_join(s->thread, NULL);
    on_async(&s->async);
    uv_close((uv_handle_t *)&s->async, on_closed);
    while (!s->closed) uv_run(s->loop, UV_RUN_ONCE);
    store_sql_close(&s->sql);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->some);
    mem_free(s);
}
