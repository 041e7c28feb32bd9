/* sse.h - server-sent events: bytes in any cuts, whole events out.
 *
 * Follows the WHATWG text: lines end in LF, CR or CRLF; "data:" lines of one event are joined by
 * LF, one space after the colon is no part of the value; lines that begin with a colon say nothing;
 * a blank line ends the event; an event without data is none; what the stream's end cuts off is
 * none. Order: sse_init, sse_push as bytes come, sse_deinit. Thread: one owner. The texts given to
 * `event` live until it returns. Failure: -1 = no memory, or a line over SSE_LINE_MAX bytes; push
 * no more then.
 */
#ifndef SLUICE_CLI_SSE_H
#define SLUICE_CLI_SSE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

#define SSE_LINE_MAX (8u << 20)
#define SSE_NAME_MAX 32

struct sse {
    /* name: "" when the event gives none */
    void (*event)(void *ctx, const char *name, const char *data, size_t n);
    void *ctx;
    struct buf line, data;
    char name[SSE_NAME_MAX];
    bool has_data, after_cr, begun;
};

void sse_init(struct sse *s, void (*event)(void *ctx, const char *name, const char *data, size_t n),
              void *ctx);
int sse_push(struct sse *s, const char *p, size_t n);
void sse_deinit(struct sse *s);

#endif
