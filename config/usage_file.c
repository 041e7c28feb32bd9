/* usage_file.c - see usage_file.h. */
#include "config/usage_file.h"
#include "config/file_sync.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* The names of a day, the first three in the order in which they are looked at. */
static const char *const suffixes[] = {"tsv", "tmp", "old", "bad"};
enum { NAME_NOW, NAME_NEW, NAME_OLD, NAMES, NAME_BAD = NAMES };

static int path_of(char out[PATH_BYTES], const char *dir, int32_t day, int name, struct err *e) {
    char date[USAGE_DAY_BYTES];
    usage_day_text(date, day);
    int n = snprintf(out, PATH_BYTES, "%s/usage/%s.%s", dir, date, suffixes[name]);
    if (n < 0 || n >= PATH_BYTES)
        return err_set(e, ERR_BAD_VALUE, "the path of the state folder is too long");
    return 0;
}

static int io_error(const char *what, const char *path, struct err *e) {
    return err_set(e, ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* ---- reading */

static int read_whole(const char *path, struct buf *out, struct err *e) {
    char part[65536];
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? err_set(e, ERR_NOT_FOUND, "%s is not there", path)
                               : io_error("read", path, e);
    while ((n = read(fd, part, sizeof part)) > 0 && !out->bad)
        buf_add(out, part, (size_t)n);
    int rc = n < 0 ? io_error("read", path, e) : 0;
    if (rc == 0 && out->bad)
        rc = err_set(e, ERR_BAD_FILE, "%s is too large", path);
    close(fd);
    return rc;
}

/* -1: *out is empty. */
static int load_one(struct usage_day *out, const char *path, int32_t day, struct err *e) {
    struct buf text;
    memset(out, 0, sizeof *out);
    buf_init(&text, USAGE_TEXT_BYTES + 1);
    int rc = read_whole(path, &text, e);
    if (rc == 0 && usage_text_parse(out, text.p != NULL ? text.p : "", text.len, e) != 0) {
        struct err why = *e;
        rc = err_set(e, why.code, "%s: %s", path, why.msg);
    }
    buf_deinit(&text);
    if (rc == 0 && out->day != day) {
        usage_text_deinit(out);
        rc = err_set(e, ERR_BAD_FILE, "%s: the file is of another day", path);
    }
    return rc;
}

int usage_file_load(struct usage_day *out, const char *dir, int32_t day, struct err *e) {
    bool found = false;
    struct err worst = {.code = ERR_OK};
    memset(out, 0, sizeof *out);
    for (int i = 0; i < NAMES; i++) {
        char path[PATH_BYTES];
        struct usage_day one;
        if (path_of(path, dir, day, i, e) != 0)
            return -1;
        if (load_one(&one, path, day, e) != 0) {
            if (e->code != ERR_NOT_FOUND && worst.code == ERR_OK)
                worst = *e;
        } else if (found && one.seq <= out->seq) {
            usage_text_deinit(&one);
        } else {
            usage_text_deinit(out);
            *out = one;
            found = true;
        }
    }
    if (found)
        return 0;
    if (worst.code != ERR_OK)
        *e = worst;
    return -1;
}

/* ---- writing */

static int write_new(const char *path, const struct usage_day *d, struct err *e) {
    struct buf text;
    buf_init(&text, USAGE_TEXT_BYTES);
    usage_text_print(&text, d->day, d->seq, d->rows, d->n);
    if (text.bad) {
        buf_deinit(&text);
        return err_set(e, ERR_NO_MEMORY, "no memory to write %s", path);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0 && file_sync_write(fd, text.p, text.len) == 0;
    int rc = ok ? 0 : io_error("write", path, e);
    if (fd >= 0 && close(fd) != 0 && rc == 0)
        rc = io_error("write", path, e);
    buf_deinit(&text);
    return rc;
}

static int sync_folder(const char *dir, struct err *e) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/usage", dir);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd >= 0 && fsync(fd) == 0 ? 0 : io_error("sync", path, e);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int make_folder(const char *dir, struct err *e) {
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/usage", dir);
    if (n < 0 || n >= PATH_BYTES)
        return err_set(e, ERR_BAD_VALUE, "the path of the state folder is too long");
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return io_error("make", path, e);
    return 0;
}

static int rename_there(const char *from, const char *to, struct err *e) {
    return rename(from, to) == 0 || errno == ENOENT ? 0 : io_error("rename", from, e);
}

/* A writer that died after step 1 or 2 left its text under the new name only; writing there would
 * destroy it. After a whole save there is no such name, and nothing is read. */
static int finish_last(const char *now, const char *fresh, const char *old, int32_t day,
                       struct err *e) {
    struct usage_day left, last = {0};
    struct err why;
    if (access(fresh, F_OK) != 0 || load_one(&left, fresh, day, &why) != 0)
        return 0;
    bool newer = load_one(&last, now, day, &why) != 0 || last.seq < left.seq;
    usage_text_deinit(&left);
    usage_text_deinit(&last);
    if (!newer)
        return 0;
    return rename_there(now, old, e) != 0 ? -1 : rename_there(fresh, now, e);
}

/* The old text must not be replaced by rename alone: a file system that writes names before data would
 * show, after a power cut, a whole name with half a text, and nothing else. */
static int step(int n, const char *dir, const struct usage_day *d, struct err *e) {
    char now[PATH_BYTES], fresh[PATH_BYTES], old[PATH_BYTES];
    if (path_of(now, dir, d->day, NAME_NOW, e) != 0 ||
        path_of(fresh, dir, d->day, NAME_NEW, e) != 0 ||
        path_of(old, dir, d->day, NAME_OLD, e) != 0)
        return -1;
    switch (n) {
    case 0: return finish_last(now, fresh, old, d->day, e) != 0 ? -1 : write_new(fresh, d, e);
    case 1: return rename_there(now, old, e);
    case 2: return rename_there(fresh, now, e);
    default: return sync_folder(dir, e);
    }
}

int usage_file_save_part(const char *dir, const struct usage_day *d, int steps, struct err *e) {
    if (make_folder(dir, e) != 0)
        return -1;
    for (int i = 0; i < steps && i < USAGE_FILE_STEPS; i++)
        if (step(i, dir, d, e) != 0)
            return -1;
    return 0;
}

int usage_file_save(const char *dir, const struct usage_day *d, struct err *e) {
    return usage_file_save_part(dir, d, USAGE_FILE_STEPS, e);
}

void usage_file_set_aside(const char *dir, int32_t day) {
    char now[PATH_BYTES], aside[PATH_BYTES];
    struct err e;
    if (path_of(now, dir, day, NAME_NOW, &e) == 0 && path_of(aside, dir, day, NAME_BAD, &e) == 0)
        rename_there(now, aside, &e);
}

/* ---- the folder */

/* The day of a file's name; `kind` = which of the three. */
static bool name_day(const char *name, int32_t *day, int *kind) {
    char date[USAGE_DAY_BYTES];
    if (strlen(name) != USAGE_DAY_BYTES - 1 + 4 || name[USAGE_DAY_BYTES - 1] != '.')
        return false;
    memcpy(date, name, USAGE_DAY_BYTES - 1);
    date[USAGE_DAY_BYTES - 1] = '\0';
    for (*kind = 0; *kind < NAMES; ++*kind)
        if (strcmp(name + USAGE_DAY_BYTES, suffixes[*kind]) == 0)
            return usage_day_parse(date, day);
    return false;
}

static int rising(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Puts `day` among the `n` found, once; when full the latest ones stay. */
static int keep_day(int32_t *out, int n, int cap, int32_t day) {
    int least = 0;
    for (int i = 0; i < n; i++) {
        if (out[i] == day)
            return n;
        if (out[i] < out[least])
            least = i;
    }
    if (n < cap)
        out[n++] = day;
    else if (n > 0 && out[least] < day)
        out[least] = day;
    return n;
}

int usage_file_days(const char *dir, int32_t from, int32_t to, int32_t *out, int cap,
                    struct err *e) {
    char path[PATH_BYTES];
    struct dirent *entry;
    int n = 0, kind;
    int32_t day;
    int len = snprintf(path, sizeof path, "%s/usage", dir);
    DIR *d = len > 0 && len < PATH_BYTES ? opendir(path) : NULL;
    if (d == NULL)
        return errno == ENOENT ? err_set(e, ERR_NOT_FOUND, "there is no usage under %s", dir)
                               : io_error("read", path, e);
    while ((entry = readdir(d)) != NULL)
        if (name_day(entry->d_name, &day, &kind) && day >= from && day <= to)
            n = keep_day(out, n, cap, day);
    closedir(d);
    qsort(out, (size_t)n, sizeof *out, rising);
    return n;
}

void usage_file_forget(const char *dir, int32_t today) {
    char path[PATH_BYTES];
    struct dirent *entry;
    int kind;
    int32_t day;
    int len = snprintf(path, sizeof path, "%s/usage", dir);
    DIR *d = len > 0 && len < PATH_BYTES ? opendir(path) : NULL;
    if (d == NULL)
        return;
    while ((entry = readdir(d)) != NULL)
        if (name_day(entry->d_name, &day, &kind) && day < today - USAGE_DAYS_MAX)
            unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
}
