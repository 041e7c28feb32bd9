#include "gateway/blob.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_CAP 4200
#define HASH_BYTES 32
#define TEMP "tmp-"

struct blobs {
    char dir[4096];
    int dir_fd;
    _Atomic uint64_t next; /* names of temp files */
};

struct blob_writer {
    struct blobs *b;
    char temp[64];
    int fd;
    int64_t written, max;
    crypto_generichash_state hash;
    bool failed;
};

static int failed(struct err *e, const char *what)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return err_set(e, ERR_QUEUE_FULL, "no space left on the disk for stored files");
    if (errno == ENOENT) return err_set(e, ERR_NOT_FOUND, "the stored file is not there");
    return err_set(e, ERR_IO, "stored file: %s: %s", what, strerror(errno));
}

/* A name from outside never becomes a path unless it is a hash. */
static bool hash_ok(const char *h)
{
    return strlen(h) == BLOB_HASH_MAX - 1 && strspn(h, "0123456789abcdef") == BLOB_HASH_MAX - 1;
}

int blobs_open(struct blobs **out, const char *state_dir, struct err *e)
{
    struct blobs *b = mem_zalloc(sizeof *b);
    *out = NULL;
    if (b == NULL || sodium_init() < 0) {
        mem_free(b);
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    snprintf(b->dir, sizeof b->dir, "%s/files", state_dir);
    if ((mkdir(b->dir, 0700) != 0 && errno != EEXIST) ||
        (b->dir_fd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        err_set(e, ERR_IO, "%s: %s", b->dir, strerror(errno));
        mem_free(b);
        return -1;
    }
    *out = b;
    return 0;
}

void blobs_close(struct blobs **b)
{
    if (*b) close((*b)->dir_fd);
    mem_free(*b);
    *b = NULL;
}

/* ---- writing */

int blob_begin(struct blobs *b, int64_t max_bytes, struct blob_writer **out, struct err *e)
{
    struct blob_writer *w = mem_zalloc(sizeof *w); /* on 64: the hash state wants it */
    *out = NULL;
    if (w == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    w->b = b;
    w->max = max_bytes;
    snprintf(w->temp, sizeof w->temp, TEMP "%d-%llu", (int)getpid(),
             (unsigned long long)atomic_fetch_add(&b->next, 1));
    w->fd = openat(b->dir_fd, w->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (w->fd < 0) {
        failed(e, "open");
        mem_free(w);
        return -1;
    }
    crypto_generichash_init(&w->hash, NULL, 0, HASH_BYTES);
    *out = w;
    return 0;
}

int blob_append(struct blob_writer *w, const void *p, size_t n, struct err *e)
{
    const char *at = p;
    if (w->failed) return err_set(e, ERR_IO, "stored file: an earlier write failed");
    if ((uint64_t)n > (uint64_t)(w->max - w->written)) {
        w->failed = true;
        return err_set(e, ERR_TOO_LARGE, "the file is over the limit of %lld bytes", (long long)w->max);
    }
    crypto_generichash_update(&w->hash, p, n);
    for (size_t left = n; left > 0;) {
        ssize_t rc = write(w->fd, at, left);
        if (rc < 0 && errno == EINTR) continue;
        if (rc <= 0) {
            w->failed = true;
            return failed(e, "write");
        }
        at += rc;
        left -= (size_t)rc;
    }
    w->written += (int64_t)n;
    return 0;
}

int64_t blob_written(const struct blob_writer *w) { return w->written; }

void blob_abort(struct blob_writer **pw)
{
    struct blob_writer *w = *pw;
    *pw = NULL;
    if (w == NULL) return;
    close(w->fd);
    unlinkat(w->b->dir_fd, w->temp, 0);
    mem_free(w);
}

int blob_commit(struct blob_writer **pw, char hash[BLOB_HASH_MAX], struct err *e)
{
    struct blob_writer *w = *pw;
    unsigned char raw[HASH_BYTES];
    int rc = w->failed ? err_set(e, ERR_IO, "stored file: an earlier write failed") : 0;
    crypto_generichash_final(&w->hash, raw, sizeof raw);
    sodium_bin2hex(hash, BLOB_HASH_MAX, raw, sizeof raw);
    if (rc == 0 && fsync(w->fd) != 0) rc = failed(e, "fsync");
    if (rc == 0 && renameat(w->b->dir_fd, w->temp, w->b->dir_fd, hash) != 0) rc = failed(e, "rename");
    if (rc == 0 && fsync(w->b->dir_fd) != 0) rc = failed(e, "fsync of the folder");
    if (rc != 0) {
        blob_abort(pw);
        return -1;
    }
    *pw = NULL;
    if (close(w->fd) != 0) { /* synced already: nothing is lost by it */
    }
    mem_free(w);
    return 0;
}

/* ---- reading */

int blob_open(const struct blobs *b, const char *hash, int64_t *bytes, struct err *e)
{
    struct stat st;
    if (!hash_ok(hash)) return err_set(e, ERR_NOT_FOUND, "the stored file is not there");
    int fd = openat(b->dir_fd, hash, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return failed(e, "open");
    if (fstat(fd, &st) != 0) {
        close(fd);
        return failed(e, "stat");
    }
    if (bytes) *bytes = st.st_size;
    return fd;
}

int blob_remove(struct blobs *b, const char *hash, struct err *e)
{
    if (!hash_ok(hash)) return err_set(e, ERR_NOT_FOUND, "the stored file is not there");
    return unlinkat(b->dir_fd, hash, 0) == 0 || errno == ENOENT ? 0 : failed(e, "remove");
}

int blob_verify(const struct blobs *b, const char *hash, struct err *e)
{
    crypto_generichash_state st;
    unsigned char raw[HASH_BYTES];
    char is[BLOB_HASH_MAX], part[1 << 15];
    ssize_t n;
    int fd = blob_open(b, hash, NULL, e);
    if (fd < 0) return -1;
    crypto_generichash_init(&st, NULL, 0, HASH_BYTES);
    while ((n = read(fd, part, sizeof part)) > 0) crypto_generichash_update(&st, (unsigned char *)part, (size_t)n);
    int bad = n < 0 ? failed(e, "read") : 0;
    close(fd);
    if (bad) return -1;
    crypto_generichash_final(&st, raw, sizeof raw);
    sodium_bin2hex(is, sizeof is, raw, sizeof raw);
    return strcmp(is, hash) == 0 ? 0 : err_set(e, ERR_BAD_FILE, "stored file %s: its bytes have changed", hash);
}

int64_t blob_collect(struct blobs *b, bool (*used)(void *user, const char *hash), void *user, bool dry)
{
    DIR *d = opendir(b->dir);
    struct dirent *f;
    int64_t n = 0;
    if (d == NULL) return -1;
    while ((f = readdir(d)) != NULL) {
        const bool temp = strncmp(f->d_name, TEMP, strlen(TEMP)) == 0;
        if (!temp && (!hash_ok(f->d_name) || used(user, f->d_name))) continue;
        n++;
        if (!dry) unlinkat(b->dir_fd, f->d_name, 0);
    }
    closedir(d);
    return n;
}
