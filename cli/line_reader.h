/* line_reader.h - the lines of a regular file, one after the other, in bounded memory.
 *
 * Reads with pread, so several readers may share a descriptor. A line ends with LF or CR LF; the end is
 * not part of it. The last line may have none (`ended` false). A UTF-8 byte order mark before the first line is
 * skipped. A line over `max_bytes` comes with `too_long`, n = 0, and its end is found without keeping it.
 * Memory: one buffer that grows to the longest line, at most max_bytes + 64 KiB.
 * Thread: one owner.
 */
#ifndef SLUICE_CLI_LINE_READER_H
#define SLUICE_CLI_LINE_READER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct line {
    const char *p;   /* until the next call */
    size_t n;
    uint64_t number; /* from 1 */
    uint64_t offset; /* of p in the file */
    bool ended, too_long;
};

struct line_reader {
    int fd;
    char *buf;
    size_t cap, start, end, max_bytes;
    uint64_t offset, number; /* file offset of buf[start]; lines given so far */
    bool eof;
};

void line_reader_init(struct line_reader *r, int fd, size_t max_bytes);
void line_reader_deinit(struct line_reader *r);
/* 1 = a line, 0 = the end, -1 = I/O error or no memory. */
int line_reader_next(struct line_reader *r, struct line *l, struct err *e);

#endif
