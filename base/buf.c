/* buf.c - growable bytes. Invariant: p is NULL, or cap >= len + 1, so that the terminating NUL of
 * buf_str always has its place and needs no allocation of its own.
 */
#include "base/buf.h"

#include "base/mem.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FIRST_CAP 64

void buf_init(struct buf *b, size_t limit) {
    *b = (struct buf){.limit = limit};
}

void buf_deinit(struct buf *b) {
    mem_free(b->p);
    *b = (struct buf){.limit = b->limit};
}

void buf_clear(struct buf *b) {
    b->len = 0;
    b->bad = false;
}

static int fail(struct buf *b) {
    b->bad = true;
    return -1;
}

int buf_reserve(struct buf *b, size_t extra) {
    if (b->bad)
        return -1;
    if (extra > SIZE_MAX / 4 - b->len) /* also keeps the doubling below from overflowing */
        return fail(b);
    size_t need = b->len + extra;
    if (b->limit != 0 && need > b->limit)
        return fail(b);
    if (b->p != NULL && need + 1 <= b->cap)
        return 0;
    size_t cap = b->cap < FIRST_CAP ? FIRST_CAP : b->cap;
    while (cap < need + 1)
        cap *= 2;
    if (b->limit != 0 && cap > b->limit + 1)
        cap = b->limit + 1;
    char *p = mem_realloc(b->p, cap);
    if (p == NULL)
        return fail(b);
    b->p = p;
    b->cap = cap;
    return 0;
}

void buf_add(struct buf *b, const void *p, size_t n) {
    if (n == 0 || buf_reserve(b, n) != 0)
        return;
    memcpy(b->p + b->len, p, n);
    b->len += n;
}

void buf_adds(struct buf *b, const char *s) {
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c) {
    buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *fmt, ...) {
    if (buf_reserve(b, 0) != 0)
        return;
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(b->p + b->len, b->cap - b->len, fmt, ap);
    va_end(ap);
    if (n < 0) {
        fail(b);
    } else if ((size_t)n < b->cap - b->len) {
        b->len += (size_t)n;
    } else if (buf_reserve(b, (size_t)n) == 0) {
        vsnprintf(b->p + b->len, b->cap - b->len, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_consume(struct buf *b, size_t n) {
    assert(n <= b->len);
    b->len -= n;
    if (b->len > 0 && n > 0)
        memmove(b->p, b->p + n, b->len);
}

const char *buf_str(struct buf *b) {
    if (b->bad || b->p == NULL)
        return "";
    b->p[b->len] = '\0';
    return b->p;
}

char *buf_take(struct buf *b, size_t *len) {
    if (buf_reserve(b, 0) != 0)
        return NULL;
    char *p = b->p;
    p[b->len] = '\0';
    if (len != NULL)
        *len = b->len;
    *b = (struct buf){.limit = b->limit};
    return p;
}
