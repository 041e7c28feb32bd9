/* batch_progress.h - the line of progress of `batch run`, and the sums behind it.
 *
 * On a terminal one line is redrawn, 5 times a second at most; elsewhere a line comes every 5 s.
 * Thread: one owner; times in ms from one clock.
 */
#ifndef SLUICE_CLI_BATCH_PROGRESS_H
#define SLUICE_CLI_BATCH_PROGRESS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct batch_progress {
    FILE *out; /* NULL = quiet */
    bool tty, drawn;
    uint64_t total, before; /* lines; those whole before this run */
    uint64_t done, failed;  /* of all; failed is a part of done */
    uint64_t prompt_tokens, tokens, retries;
    double start_ms, shown_ms;
};

void batch_progress_start(struct batch_progress *p, FILE *out, bool tty, double now_ms);
/* Prints if it is time to. */
void batch_progress_show(struct batch_progress *p, double now_ms);
/* ms until the next show; -1 = never. */
int batch_progress_due(const struct batch_progress *p, double now_ms);
/* A line of its own among the progress: clears a drawn one first. */
void batch_progress_note(struct batch_progress *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void batch_progress_clear(struct batch_progress *p);
/* "12/30 done, 1 failed, 45.6 tokens/s, 0:12 left" */
void batch_progress_text(const struct batch_progress *p, double now_ms, struct buf *out);

#endif
