#include "gateway/journal.h"

#include "base/log.h"
#include "base/mem.h"
#include "gateway/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_CAP 4200
#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 5000

/* `ring` is filled under the lock by the loop; the thread swaps it for `work`. All below is the thread's
 * own, but for `found`, which the loop reads between journal_open and the first append. */
struct journal {
    char dir[4096];
    struct journal_options o;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct buf ring;
    bool stop, started;
    struct journal_state state;
    struct buf work;
    struct live live;
    struct live found;
    int fd;                       /* -1: no segment that is trusted */
    uint64_t number, first;       /* of this segment; of the oldest one still there */
    uint64_t written, base;       /* bytes in this segment, of them the state it began with */
    int64_t dirty_ms;             /* when the oldest byte not yet synced was written, 0 = all are */
    int64_t retry_ms;             /* no earlier than this a new segment */
    uint32_t backoff_ms;
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the system's calls, unless a test has others */

static int io_open(void *u, const char *path, int flags, int mode) { (void)u; return open(path, flags, mode); }
static ssize_t io_write(void *u, int fd, const void *p, size_t n) { (void)u; return write(fd, p, n); }
static int io_sync(void *u, int fd) { (void)u; return fdatasync(fd); }
static int io_close(void *u, int fd) { (void)u; return close(fd); }
static int io_remove(void *u, const char *path) { (void)u; return unlink(path); }
static int io_sync_dir(void *u, const char *dir)
{
    (void)u;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}
static const struct journal_io system_io = {io_open, io_write, io_sync, io_close, io_remove, io_sync_dir, NULL};

static int write_all(struct journal *j, const char *p, size_t n)
{
    const struct journal_io *io = j->o.io;
    while (n > 0) {
        ssize_t rc = io->write(io->user, j->fd, p, n);
        if (rc < 0 && errno == EINTR) continue;
        if (rc <= 0) return -1;
        p += rc;
        n -= (size_t)rc;
    }
    return 0;
}

/* ---- segments */

static void distrust(struct journal *j)
{
    const int why = errno;
    if (j->fd >= 0) j->o.io->close(j->o.io->user, j->fd);
    j->fd = -1;
    j->dirty_ms = 0;
    j->backoff_ms = j->backoff_ms == 0 ? BACKOFF_MIN_MS : j->backoff_ms * 2;
    if (j->backoff_ms > BACKOFF_MAX_MS) j->backoff_ms = BACKOFF_MAX_MS;
    j->retry_ms = now_ms() + j->backoff_ms;
    pthread_mutex_lock(&j->lock);
    if (!j->state.broken) log_error("the journal cannot be written, batch lines are not started: %s", strerror(why));
    j->state.broken = true;
    j->state.errors++;
    snprintf(j->state.reason, sizeof j->state.reason, "%s", strerror(why));
    pthread_mutex_unlock(&j->lock);
}

/* Fills in the checks of the records in b, for this segment. */
static void seal(struct journal *j, struct buf *b)
{
    for (size_t at = 0; at < b->len;) {
        struct record_head h;
        memcpy(&h, b->p + at, sizeof h);
        h.check = record_check(&h, b->p + at + sizeof h, j->number);
        memcpy(b->p + at, &h, sizeof h);
        at += sizeof h + h.bytes;
    }
}

static int write_state(struct journal *j)
{
    struct buf b = {0};
    int rc = 0;
    j->written = 0;
    for (size_t i = 0; i <= j->live.n && rc == 0; i++) {
        buf_clear(&b);
        rc = i < j->live.n ? record_state(&b, &j->live.rows[i]->l, true) : record_bare(&b, REC_COMPLETE, "", 0);
        if (rc != 0) errno = ENOMEM;
        if (rc == 0) seal(j, &b);
        if (rc == 0) rc = write_all(j, b.p, b.len);
        j->written += b.len;
    }
    j->base = j->written;
    buf_deinit(&b);
    return rc;
}

/* A new segment with the live state; only when it is on the disk the older ones go. */
static int begin_segment(struct journal *j)
{
    const struct journal_io *io = j->o.io;
    char path[PATH_CAP];
    if (j->fd >= 0) io->close(io->user, j->fd);
    segment_path(path, sizeof path, j->dir, ++j->number);
    j->fd = io->open(io->user, path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (j->fd < 0 || write_state(j) != 0 || io->sync(io->user, j->fd) != 0 || io->sync_dir(io->user, j->dir) != 0) {
        distrust(j);
        return -1;
    }
    for (; j->first < j->number; j->first++) {
        segment_path(path, sizeof path, j->dir, j->first);
        io->remove(io->user, path); /* one that stays is read again, its lines are older: no harm */
    }
    j->dirty_ms = 0;
    j->backoff_ms = 0;
    pthread_mutex_lock(&j->lock);
    if (j->state.broken) log_info("the journal goes on in a new segment");
    j->state.broken = false;
    j->state.reason[0] = '\0';
    j->state.segments++;
    j->state.syncs++;
    pthread_mutex_unlock(&j->lock);
    return 0;
}

/* ---- the thread */

static uint64_t apply_work(struct journal *j)
{
    uint64_t n = 0;
    for (size_t at = 0; at < j->work.len; n++) {
        struct record_head h;
        memcpy(&h, j->work.p + at, sizeof h);
        live_apply(&j->live, h.kind, (unsigned char *)j->work.p + at + sizeof h, h.bytes, j->number);
        at += sizeof h + h.bytes;
    }
    return n;
}

static void write_work(struct journal *j)
{
    const uint64_t n = apply_work(j); /* first: a new segment after a failure begins with it */
    if (j->fd >= 0) {
        seal(j, &j->work);
        if (write_all(j, j->work.p, j->work.len) != 0) distrust(j);
        else if (j->dirty_ms == 0) j->dirty_ms = now_ms();
    }
    j->written += j->work.len;
    pthread_mutex_lock(&j->lock);
    j->state.records += n;
    j->state.bytes += j->work.len;
    j->state.live_lines = j->live.n;
    pthread_mutex_unlock(&j->lock);
    buf_clear(&j->work);
}

static void sync_segment(struct journal *j)
{
    if (j->dirty_ms == 0 || j->fd < 0) return;
    if (j->o.io->sync(j->o.io->user, j->fd) != 0) {
        distrust(j);
        return;
    }
    j->dirty_ms = 0;
    pthread_mutex_lock(&j->lock);
    j->state.syncs++;
    pthread_mutex_unlock(&j->lock);
}

static void look_after(struct journal *j, bool last)
{
    const int64_t now = now_ms();
    const uint64_t full = j->o.segment_bytes > 2 * j->base ? j->o.segment_bytes : 2 * j->base;
    if (j->dirty_ms != 0 && (last || now - j->dirty_ms >= j->o.sync_ms / 2)) sync_segment(j);
    if (j->fd < 0 ? last || now >= j->retry_ms : j->written > full) begin_segment(j);
}

/* Under the lock. Until there is work, or something is due. */
static void wait_some(struct journal *j)
{
    struct timespec t;
    int64_t until = 0;
    if (j->dirty_ms != 0) until = j->dirty_ms + j->o.sync_ms / 2;
    else if (j->fd < 0) until = j->retry_ms;
    if (until == 0) {
        pthread_cond_wait(&j->some, &j->lock);
        return;
    }
    t = (struct timespec){until / 1000, until % 1000 * 1000000};
    pthread_cond_timedwait(&j->some, &j->lock, &t);
}

static void *thread_main(void *arg)
{
    struct journal *j = arg;
    bool stop = false;
    while (!stop) {
        pthread_mutex_lock(&j->lock);
        if (j->ring.len == 0 && !j->stop) wait_some(j);
        stop = j->stop;
        struct buf full = j->ring;
        j->ring = j->work;
        j->work = full;
        pthread_mutex_unlock(&j->lock);
        if (j->work.len > 0) write_work(j);
        look_after(j, stop);
    }
    return NULL;
}

/* ---- opening */

static int replay(struct journal *j, struct live *into, struct err *e)
{
    uint64_t *numbers = NULL;
    size_t n = 0;
    char path[PATH_CAP];
    if (segment_list(j->dir, &numbers, &n) != 0)
        return err_set(e, ERR_IO, "the journal's folder %s cannot be read: %s", j->dir, strerror(errno));
    j->first = n > 0 ? numbers[0] : 1;
    for (size_t i = 0; i < n; i++) {
        segment_path(path, sizeof path, j->dir, numbers[i]);
        if (segment_replay(path, numbers[i], into, &j->state.records, &j->state.torn_bytes) != 0) {
            mem_free(numbers);
            return err_set(e, ERR_IO, "the journal %s cannot be read: %s", path, strerror(errno));
        }
        j->number = numbers[i];
        j->state.segments++;
    }
    mem_free(numbers);
    j->state.live_lines = into->n;
    return 0;
}

static void take_options(struct journal *j, const struct journal_options *o)
{
    if (o) j->o = *o;
    if (j->o.io == NULL) j->o.io = &system_io;
    if (j->o.ring_bytes == 0) j->o.ring_bytes = JOURNAL_RING_BYTES;
    if (j->o.segment_bytes == 0) j->o.segment_bytes = JOURNAL_SEGMENT_BYTES;
    if (j->o.sync_ms == 0) j->o.sync_ms = JOURNAL_SYNC_MS;
}

static int start(struct journal *j, struct err *e)
{
    pthread_condattr_t a;
    buf_init(&j->ring, j->o.ring_bytes);
    buf_init(&j->work, j->o.ring_bytes);
    if (replay(j, &j->found, e) != 0) return -1;
    j->state = (struct journal_state){0};
    if (replay(j, &j->live, e) != 0) return -1;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->some, &a);
    pthread_condattr_destroy(&a);
    j->started = true;
    begin_segment(j); /* a disk that is full now: the thread tries again */
    if (pthread_create(&j->thread, NULL, thread_main, j) != 0) {
        j->stop = true;
        return err_set(e, ERR_NO_MEMORY, "out of memory: cannot start the journal's thread");
    }
    return 0;
}

int journal_open(struct journal **out, const char *dir, const struct journal_options *o, struct err *e)
{
    struct journal *j = mem_zalloc(sizeof *j);
    *out = NULL;
    if (j == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    j->fd = -1;
    snprintf(j->dir, sizeof j->dir, "%s", dir);
    take_options(j, o);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        err_set(e, ERR_IO, "%s: %s", dir, strerror(errno));
        mem_free(j);
        return -1;
    }
    if (start(j, e) != 0) {
        journal_close(&j);
        return -1;
    }
    *out = j;
    return 0;
}

void journal_close(struct journal **pj)
{
    struct journal *j = *pj;
    *pj = NULL;
    if (j == NULL) return;
    if (j->started) {
        pthread_mutex_lock(&j->lock);
        const bool running = !j->stop;
        j->stop = true;
        pthread_cond_broadcast(&j->some);
        pthread_mutex_unlock(&j->lock);
        if (running) pthread_join(j->thread, NULL);
        pthread_mutex_destroy(&j->lock);
        pthread_cond_destroy(&j->some);
    }
    if (j->fd >= 0) j->o.io->close(j->o.io->user, j->fd);
    live_deinit(&j->live);
    live_deinit(&j->found);
    buf_deinit(&j->ring);
    buf_deinit(&j->work);
    mem_free(j);
}

const struct journal_line *journal_found(const struct journal *j, size_t i)
{
    return i < j->found.n ? &j->found.rows[i]->l : NULL;
}

/* ---- the loop's side */

static int appended(struct journal *j, int rc) /* with the lock held */
{
    if (rc == 0) pthread_cond_signal(&j->some);
    pthread_mutex_unlock(&j->lock);
    return rc;
}

int journal_start(struct journal *j, const struct journal_line *l)
{
    pthread_mutex_lock(&j->lock);
    return appended(j, record_state(&j->ring, l, false));
}

int journal_sub(struct journal *j, const char *job, int64_t line, uint64_t sub_hi, uint64_t sub_lo,
                uint64_t numerics_hi, uint64_t numerics_lo)
{
    const uint64_t v[4] = {sub_hi, sub_lo, numerics_hi, numerics_lo};
    pthread_mutex_lock(&j->lock);
    return appended(j, record_sub(&j->ring, job, line, v));
}

int journal_ids(struct journal *j, const char *job, int64_t line, uint32_t index, const int32_t *ids, uint32_t n)
{
    pthread_mutex_lock(&j->lock);
    return appended(j, record_ids(&j->ring, job, line, index, ids, n));
}

int journal_end(struct journal *j, const char *job, int64_t line)
{
    pthread_mutex_lock(&j->lock);
    return appended(j, record_bare(&j->ring, REC_END, job, line));
}

bool journal_full(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    const bool full = j->state.broken || j->ring.len > j->o.ring_bytes / 2;
    pthread_mutex_unlock(&j->lock);
    return full;
}

void journal_state(struct journal *j, struct journal_state *out)
{
    pthread_mutex_lock(&j->lock);
    *out = j->state;
    pthread_mutex_unlock(&j->lock);
}

int journal_inspect(const char *dir, struct journal_state *out, struct err *e)
{
    struct journal *j = mem_zalloc(sizeof *j);
    if (j == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    snprintf(j->dir, sizeof j->dir, "%s", dir);
    int rc = replay(j, &j->live, e);
    *out = j->state;
    live_deinit(&j->live);
    mem_free(j);
    return rc;
}
