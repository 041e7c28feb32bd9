#include "gateway/budget_file.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define MAGIC 0x31746567647562ull /* "budget1" */

/* All words are aligned, so a death leaves each either old or new. */
struct record {
    char tenant[56];
    uint64_t used, reserved, requests;
    int64_t wall_s, pad;
};

struct image { uint64_t magic, pad; struct record records[BUDGET_FILE_RECORDS]; };

_Static_assert(sizeof(struct record) == 96 && sizeof(((struct record *)0)->tenant) >=
               TENANT_NAME_BYTES, "the layout of the file");

struct budget_file {
    int fd;
    struct image *now;             /* mapped */
    struct image *before;          /* a copy of what the last process left; NULL = nothing */
};

static int read_before(struct budget_file *f)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0 || st.st_size != (off_t)sizeof *f->before) return 0;
    f->before = mem_alloc(sizeof *f->before);
    if (f->before == NULL) return -1;
    if (pread(f->fd, f->before, sizeof *f->before, 0) == (ssize_t)sizeof *f->before &&
        f->before->magic == MAGIC)
        return 0;
    mem_free(f->before);
    f->before = NULL;
    return 0;
}

static int map(struct budget_file *f)
{
    /* blocks are taken now: a full disk is an error here, not a fault at a store */
    if (ftruncate(f->fd, sizeof *f->now) != 0) return -1;
    int rc = posix_fallocate(f->fd, 0, sizeof *f->now);
    if (rc != 0) {
        errno = rc;
        return -1;
    }
    void *p = mmap(NULL, sizeof *f->now, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (p == MAP_FAILED) return -1;
    f->now = p;
    return 0;
}

int budget_file_open(struct budget_file **out, const char *dir, struct err *e)
{
    char path[PATH_BYTES];
    *out = NULL;
    int n = snprintf(path, sizeof path, "%s/budgets", dir);
    if (n < 0 || n >= PATH_BYTES)
        return err_set(e, ERR_BAD_VALUE, "the path of the state folder is too long");
    struct budget_file *f = mem_zalloc(sizeof *f);
    if (f == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0 || flock(f->fd, LOCK_EX | LOCK_NB) != 0) {
        const char *why = f->fd >= 0 && errno == EWOULDBLOCK ? "another gateway uses it"
                                                              : strerror(errno);
        err_set(e, ERR_IO, "cannot keep budgets in %s: %s", path, why);
        budget_file_close(&f);
        return -1;
    }
    if (read_before(f) != 0 || map(f) != 0) {
        err_set(e, ERR_IO, "cannot keep budgets in %s: %s", path, strerror(errno));
        budget_file_close(&f);
        return -1;
    }
    /* only what is restored, and noted again, holds from now on */
    memset(f->now->records, 0, sizeof f->now->records);
    f->now->magic = MAGIC;
    *out = f;
    return 0;
}

void budget_file_close(struct budget_file **pf)
{
    struct budget_file *f = *pf;
    *pf = NULL;
    if (f == NULL) return;
    if (f->now) munmap(f->now, sizeof *f->now);
    if (f->fd >= 0) close(f->fd);
    mem_free(f->before);
    mem_free(f);
}

static uint64_t at_most(uint64_t n, uint64_t limit)
{
    return n < limit ? n : limit;
}

void budget_file_restore(const struct budget_file *f, const char *tenant, struct budget_time t,
                         struct token_budget *b)
{
    for (uint32_t i = 0; f && f->before && i < BUDGET_FILE_RECORDS; i++) {
        const struct record *r = &f->before->records[i];
        if (strncmp(r->tenant, tenant, sizeof r->tenant) != 0) continue;
        /* a whole second off: wall clocks here count seconds */
        int64_t age_s = t.wall_s - r->wall_s - 1;
        uint64_t age_ns = age_s > 0 ? (uint64_t)at_most((uint64_t)age_s, 3600) * 1000000000u : 0;
        uint64_t used = at_most(r->used, b->limits.tokens_per_minute);
        uint64_t left = b->limits.tokens_per_minute - used;
        token_budget_restore(b, t, age_ns, used,
                             at_most(r->requests, b->limits.requests_per_minute));
        token_budget_restore(b, t, 0, at_most(r->reserved, left), 0);
        return;
    }
}

void budget_file_note(struct budget_file *f, uint32_t index, const char *tenant,
                      struct budget_time t, struct token_budget *b)
{
    if (f == NULL) return;
    assert(index < BUDGET_FILE_RECORDS);
    struct record *r = &f->now->records[index];
    if (strncmp(r->tenant, tenant, sizeof r->tenant) != 0) {
        memset(r, 0, sizeof *r);
        snprintf(r->tenant, sizeof r->tenant, "%s", tenant);
    }
    /* The sum of both words must never be too small: tokens go from reserved to used, so used first. */
    __atomic_store_n(&r->used, minute_window_sum(&b->tokens, t.now_ns), __ATOMIC_RELEASE);
    __atomic_store_n(&r->reserved, b->reserved_prompt + b->reserved_output, __ATOMIC_RELEASE);
    __atomic_store_n(&r->requests, minute_window_sum(&b->requests, t.now_ns), __ATOMIC_RELEASE);
    __atomic_store_n(&r->wall_s, t.wall_s, __ATOMIC_RELEASE);
}
