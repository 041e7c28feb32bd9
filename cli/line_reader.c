/* line_reader.c - see line_reader.h. */
#include "cli/line_reader.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PART 65536

void line_reader_init(struct line_reader *r, int fd, size_t max_bytes) {
    memset(r, 0, sizeof(*r));
    r->fd = fd;
    r->max_bytes = max_bytes;
}

void line_reader_deinit(struct line_reader *r) {
    mem_free(r->buf);
    r->buf = NULL;
}

/* Reads more behind buf[end]. 0, or -1. At the file's end sets eof. */
static int fill(struct line_reader *r, struct err *e) {
    if (r->start > 0) {
        memmove(r->buf, r->buf + r->start, r->end - r->start);
        r->end -= r->start;
        r->start = 0;
    }
    if (r->cap - r->end < PART) {
        size_t cap = r->cap * 2 > r->end + PART ? r->cap * 2 : r->end + PART;
        char *p = mem_realloc(r->buf, cap);
        if (p == NULL)
            return err_set(e, ERR_NO_MEMORY, "out of memory for a line of %zu bytes", r->end);
        r->buf = p;
        r->cap = cap;
    }
    ssize_t n;
    do
        n = pread(r->fd, r->buf + r->end, PART, (off_t)(r->offset + r->end));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_set(e, ERR_IO, "cannot read: %s", strerror(errno));
    r->eof = n == 0;
    r->end += (size_t)n;
    return 0;
}

static void consume(struct line_reader *r, size_t n) {
    r->start += n;
    r->offset += n;
}

static void skip_mark(struct line_reader *r) {
    if (r->number == 0 && r->offset == 0 && r->end - r->start >= 3 &&
        memcmp(r->buf + r->start, "\xef\xbb\xbf", 3) == 0)
        consume(r, 3);
}

/* The rest of a line that is too long: drops it part by part. */
static int skip_rest(struct line_reader *r, struct line *l, struct err *e) {
    l->too_long = true;
    for (;;) {
        char *lf = memchr(r->buf + r->start, '\n', r->end - r->start);
        if (lf != NULL) {
            consume(r, (size_t)(lf + 1 - (r->buf + r->start)));
            l->ended = true;
            return 1;
        }
        consume(r, r->end - r->start);
        if (r->eof)
            return 1;
        if (fill(r, e) != 0)
            return -1;
    }
}

static int give(struct line_reader *r, struct line *l, size_t n, bool ended) {
    l->p = r->buf + r->start;
    l->n = ended && n > 0 && l->p[n - 1] == '\r' ? n - 1 : n;
    l->ended = ended;
    consume(r, n + ended);
    return 1;
}

int line_reader_next(struct line_reader *r, struct line *l, struct err *e) {
    size_t seen = 0; /* bytes of this line known to hold no LF */
    memset(l, 0, sizeof(*l));
    if (r->end == r->start && !r->eof && fill(r, e) != 0)
        return -1;
    skip_mark(r);
    l->number = r->number + 1;
    l->offset = r->offset;
    for (;;) {
        size_t have = r->end - r->start;
        char *lf = have > seen ? memchr(r->buf + r->start + seen, '\n', have - seen) : NULL;
        if (lf == NULL && have <= r->max_bytes && !r->eof) {
            seen = have;
            if (fill(r, e) != 0)
                return -1;
            continue;
        }
        size_t n = lf != NULL ? (size_t)(lf - (r->buf + r->start)) : have;
        if (lf == NULL && r->eof && n == 0)
            return 0;
        r->number++;
        return n > r->max_bytes ? skip_rest(r, l, e) : give(r, l, n, lf != NULL);
    }
}
