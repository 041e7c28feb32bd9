/* buf.h - a growable byte buffer with a limit; the unit in which text and messages are built.
 *
 * Failure is sticky: after a failed grow (no memory, or over `limit`) `bad` is set and every later
 * append does nothing, so that a long builder checks once at its end. Bytes may hold NUL; buf_str
 * adds a terminating NUL outside `len`. Zero-initialised storage is a valid empty buffer without limit.
 */
#ifndef SLUICE_BASE_BUF_H
#define SLUICE_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *p;
    size_t len, cap;
    size_t limit; /* 0 = none */
    bool bad;
};

void buf_init(struct buf *b, size_t limit);
void buf_deinit(struct buf *b);
void buf_clear(struct buf *b);                            /* keeps the memory, clears `bad` */
int buf_reserve(struct buf *b, size_t extra);             /* 0, or -1 and `bad` */
void buf_add(struct buf *b, const void *p, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t n);                /* drops the first n bytes */
const char *buf_str(struct buf *b);                       /* NUL-terminated view; "" when bad */
char *buf_take(struct buf *b, size_t *len);               /* ownership to the caller (mem_free); NULL when bad */

#endif
