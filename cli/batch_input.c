/* batch_input.c - see batch_input.h. */
#include "cli/batch_input.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int batch_input_open(struct batch_input *in, const char *path, struct err *e) {
    struct stat st;
    memset(in, 0, sizeof(*in));
    in->path = path;
    in->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang us here */
    if (in->fd < 0)
        return err_set(e, ERR_BAD_FILE, "cannot open %s: %s", path, strerror(errno));
    if (fstat(in->fd, &st) != 0 || !S_ISREG(st.st_mode))
        err_set(e, ERR_BAD_FILE, "%s is no regular file; it is read twice", path);
    else if (id_table_init(&in->ids) != 0)
        err_set(e, ERR_NO_MEMORY, "out of memory");
    else
        return 0;
    batch_input_close(in);
    return -1;
}

void batch_input_close(struct batch_input *in) {
    if (in->fd >= 0)
        close(in->fd);
    in->fd = -1;
    id_table_deinit(&in->ids);
    line_reader_deinit(&in->reader);
}

static bool blank(const struct line *at) {
    for (size_t i = 0; i < at->n; i++)
        if (at->p[i] != ' ' && at->p[i] != '\t' && at->p[i] != '\r')
            return false;
    return !at->too_long;
}

/* -1 = `e` says what is wrong with this line. */
static int check_one(struct batch_input *in, const struct line *at, struct err *e) {
    struct batch_line l;
    struct id_entry *old;
    if (at->too_long)
        return err_set(e, ERR_TOO_LARGE, "longer than %u MB", BATCH_LINE_BYTES_MAX >> 20);
    if (batch_line_parse(&l, at->p, at->n, e) != 0)
        return -1;
    int rc = id_table_add(&in->ids, l.custom_id, l.n_custom_id, at->number, &old);
    if (rc < 0)
        err_set(e, ERR_NO_MEMORY, "out of memory");
    else if (rc > 0)
        err_set_param(e, ERR_BAD_VALUE, "custom_id", "\"custom_id\" is that of line %llu too",
                      (unsigned long long)old->line);
    batch_line_deinit(&l);
    return rc == 0 ? 0 : -1;
}

int batch_input_check(struct batch_input *in, FILE *report, struct err *e) {
    struct line at;
    struct err why;
    int rc;
    line_reader_init(&in->reader, in->fd, BATCH_LINE_BYTES_MAX);
    while ((rc = line_reader_next(&in->reader, &at, e)) == 1) {
        if (blank(&at))
            continue;
        if (check_one(in, &at, &why) == 0) {
            in->n_lines++;
        } else if (in->n_broken++ < BATCH_REPORT_MAX) {
            fprintf(report, "%s:%llu: %s\n", in->path, (unsigned long long)at.number, why.msg);
        }
    }
    line_reader_deinit(&in->reader);
    line_reader_init(&in->reader, in->fd, BATCH_LINE_BYTES_MAX);
    if (rc < 0)
        return -1;
    if (in->n_broken > BATCH_REPORT_MAX)
        fprintf(report, "%s: and %llu more\n", in->path,
                (unsigned long long)(in->n_broken - BATCH_REPORT_MAX));
    if (in->n_broken > 0)
        return err_set(e, ERR_BAD_FILE, "%llu broken line%s in %s; nothing was run",
                       (unsigned long long)in->n_broken, in->n_broken > 1 ? "s" : "", in->path);
    return in->n_lines > 0 ? 0 : err_set(e, ERR_BAD_FILE, "%s holds no request", in->path);
}

static int changed(const struct batch_input *in, struct err *e) {
    return err_set(e, ERR_BAD_FILE, "%s has changed since it was checked", in->path);
}

int batch_input_next(struct batch_input *in, struct line *at, struct err *e) {
    int rc;
    while ((rc = line_reader_next(&in->reader, at, e)) == 1) {
        struct batch_line l;
        if (blank(at))
            continue;
        if (at->too_long || batch_line_parse(&l, at->p, at->n, e) != 0)
            return changed(in, e);
        const struct id_entry *known = id_table_find(&in->ids, l.custom_id, l.n_custom_id);
        batch_line_deinit(&l);
        if (known == NULL || known->line != at->number)
            return changed(in, e);
        if (known->state == ID_OPEN)
            return 1;
    }
    return rc;
}

int batch_input_line(struct batch_input *in, uint64_t offset, size_t n, struct batch_line *l,
                     struct err *e) {
    char *p = mem_alloc(n);
    size_t have = 0;
    int rc = -1;
    if (p == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    while (have < n) {
        ssize_t got = pread(in->fd, p + have, n - have, (off_t)(offset + have));
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        have += got > 0 ? (size_t)got : 0;
    }
    rc = have == n && batch_line_parse(l, p, n, e) == 0 ? 0 : changed(in, e);
    mem_free(p);
    return rc;
}
