/* terminal.h - text of a model as bytes for stdout: whole writes, and no control of the user's terminal.
 *
 * Thread: main only.
 */
#ifndef SLUICE_CLI_TERMINAL_H
#define SLUICE_CLI_TERMINAL_H

#include "base/buf.h"

#include <stddef.h>

/* Appends `n` bytes of UTF-8 in which each control character but newline and tab has become '?': an
 * answer may hold escape sequences, which a terminal would obey. */
void terminal_clean(struct buf *out, const char *p, size_t n);
/* Writes all; 0, or -1 with errno (EPIPE: the reader is gone). */
int terminal_write(int fd, const char *p, size_t n);

#endif
