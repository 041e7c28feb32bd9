/* batch_journal.c - see batch_journal.h. */
#include "cli/batch_journal.h"
#include "cli/batch_line.h"
#include "cli/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* An answer to a line of BATCH_LINE_BYTES_MAX may be bigger than the line. */
#define RESULT_BYTES_MAX (64u << 20)

static int io_error(const struct batch_journal *j, const char *what, struct err *e) {
    return err_set(e, ERR_IO, "cannot %s %s: %s", what, j->path, strerror(errno));
}

static int refuse_same_file(const struct batch_journal *j, int avoid_fd, struct err *e) {
    struct stat in, out;
    if (fstat(j->fd, &out) != 0 || !S_ISREG(out.st_mode))
        return err_set(e, ERR_BAD_FILE, "%s is no regular file; it is the journal too", j->path);
    if (avoid_fd >= 0 && fstat(avoid_fd, &in) == 0 && in.st_dev == out.st_dev &&
        in.st_ino == out.st_ino)
        return err_set(e, ERR_BAD_FILE, "input and output are the same file");
    return 0;
}

static void mark(struct batch_journal *j, struct id_table *ids, const struct batch_result *r,
                 enum batch_verdict verdict) {
    struct id_entry *at = id_table_find(ids, r->custom_id, r->n_custom_id);
    if (at == NULL) {
        j->foreign++;
        return;
    }
    j->done -= at->state == ID_DONE;
    j->failed -= at->state == ID_FAILED;
    at->state = verdict == BATCH_RESULT_DONE     ? ID_DONE
                : verdict == BATCH_RESULT_FAILED ? ID_FAILED
                                                 : ID_OPEN;
    j->done += at->state == ID_DONE;
    j->failed += at->state == ID_FAILED;
}

static int broken(const struct batch_journal *j, uint64_t number, struct err *e) {
    return err_set(e, ERR_BAD_FILE, "line %llu of %s is no result of a batch; choose another file",
                   (unsigned long long)number, j->path);
}

/* Reads all lines. Sets size to the end of the last whole one; *open_end: that one lacks its LF. */
static int scan(struct batch_journal *j, struct line_reader *r, struct id_table *ids, bool *open_end,
                struct err *e) {
    struct line at;
    uint64_t bad_number = 0;
    int rc;
    while ((rc = line_reader_next(r, &at, e)) == 1) {
        struct batch_result result;
        if (bad_number != 0) /* broken, and not the last one */
            return broken(j, bad_number, e);
        if (at.n == 0 && !at.too_long && at.ended) {
            j->size = r->offset;
            continue;
        }
        enum batch_verdict verdict =
            at.too_long ? BATCH_RESULT_BROKEN : batch_result_parse(&result, at.p, at.n);
        if (verdict == BATCH_RESULT_BROKEN) {
            bad_number = at.number;
            continue;
        }
        mark(j, ids, &result, verdict);
        batch_result_deinit(&result);
        j->size = r->offset;
        *open_end = !at.ended;
    }
    /* A torn line begins as ours do; a whole foreign file of one line does not, and stays. */
    if (rc == 0 && bad_number == 1) {
        char head[7] = "";
        ssize_t n = pread(j->fd, head, 6, 0);
        if (n > 0 && memcmp(head, "{\"id\":", (size_t)n) != 0 && head[0] != '\0')
            return broken(j, 1, e);
    }
    return rc;
}

/* Brings the file to whole lines: cuts a torn tail, adds a missing last LF. */
static int mend(struct batch_journal *j, bool open_end, struct err *e) {
    struct stat st;
    if (fstat(j->fd, &st) != 0)
        return io_error(j, "read", e);
    j->torn_bytes = (uint64_t)st.st_size - j->size;
    if (j->torn_bytes > 0 && ftruncate(j->fd, (off_t)j->size) != 0)
        return io_error(j, "cut", e);
    if (open_end && batch_journal_append(j, "\n", 1, 1, e) != 0)
        return -1;
    return j->torn_bytes > 0 || open_end ? batch_journal_sync(j, e) : 0;
}

/* A new file's name is durable only with its folder. */
static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash == path ? 1 : slash != NULL ? (int)(slash - path) : 0;
    snprintf(folder, sizeof(folder), "%.*s", n > 0 ? n : 1, n > 0 ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

static int lock_and_read(struct batch_journal *j, int avoid_fd, struct id_table *ids, struct err *e) {
    struct line_reader r;
    bool open_end = false;
    if (refuse_same_file(j, avoid_fd, e) != 0)
        return -1;
    if (flock(j->fd, LOCK_EX | LOCK_NB) != 0)
        return err_set(e, ERR_IO, "%s is in use by another run", j->path);
    line_reader_init(&r, j->fd, RESULT_BYTES_MAX);
    int rc = scan(j, &r, ids, &open_end, e);
    line_reader_deinit(&r);
    if (rc == 0)
        rc = mend(j, open_end, e);
    if (rc == 0)
        sync_folder(j->path);
    return rc;
}

int batch_journal_open(struct batch_journal *j, const char *path, int avoid_fd, struct id_table *ids,
                       struct err *e) {
    memset(j, 0, sizeof(*j));
    j->path = path;
    j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (j->fd < 0)
        return io_error(j, "open", e);
    if (lock_and_read(j, avoid_fd, ids, e) == 0)
        return 0;
    close(j->fd);
    j->fd = -1;
    return -1;
}

int batch_journal_append(struct batch_journal *j, const char *p, size_t n, double now_ms,
                         struct err *e) {
    ssize_t w;
    do
        w = write(j->fd, p, n);
    while (w < 0 && errno == EINTR);
    if (w == (ssize_t)n) {
        j->size += n;
        if (j->unsynced_ms == 0)
            j->unsynced_ms = now_ms;
        return 0;
    }
    if (w >= 0)
        errno = ENOSPC;
    io_error(j, "write", e);
    if (ftruncate(j->fd, (off_t)j->size) != 0) {
        /* The next run cuts the torn line off. */
    }
    return -1;
}

int batch_journal_due(const struct batch_journal *j, double now_ms) {
    if (j->unsynced_ms == 0)
        return -1;
    double left = j->unsynced_ms + BATCH_SYNC_MS - now_ms;
    return left > 0 ? (int)left : 0;
}

int batch_journal_sync(struct batch_journal *j, struct err *e) {
    if (j->unsynced_ms == 0)
        return 0;
    j->unsynced_ms = 0;
    return fdatasync(j->fd) == 0 ? 0 : io_error(j, "write", e);
}

int batch_journal_close(struct batch_journal *j, struct err *e) {
    int rc = batch_journal_sync(j, e);
    close(j->fd); /* the lock goes with it */
    j->fd = -1;
    return rc;
}
