/* batch_input.h - the input file of `batch run`: checked whole first, then read line by line.
 *
 * Order: open, check (each broken line is reported with its number), then next until 0; line fetches
 * one again. A file with a broken line is not run at all. Blank lines, CR LF, a byte order mark and a missing
 * last newline are fine. The file must be a regular one (it is read twice) and stay as it is: a line that
 * changed between check and use is an error.
 * Memory: the id table and one line. Thread: one owner.
 */
#ifndef SLUICE_CLI_BATCH_INPUT_H
#define SLUICE_CLI_BATCH_INPUT_H

#include "cli/batch_line.h"
#include "cli/id_table.h"
#include "cli/line_reader.h"

#include <stdio.h>

#define BATCH_REPORT_MAX 20 /* broken lines printed; the rest is counted */

struct batch_input {
    const char *path; /* borrowed */
    int fd;
    struct id_table ids;
    uint64_t n_lines, n_broken; /* requests; broken lines */
    struct line_reader reader;
};

int batch_input_open(struct batch_input *in, const char *path, struct err *e);
void batch_input_close(struct batch_input *in);
/* 0 = every line is good and there is at least one; -1 with `e` (the broken ones are on `report`). */
int batch_input_check(struct batch_input *in, FILE *report, struct err *e);
/* The next line whose state is ID_OPEN: 1 with its place, 0 = no more, -1. */
int batch_input_next(struct batch_input *in, struct line *at, struct err *e);
/* Reads and parses the line at (offset, n) again. */
int batch_input_line(struct batch_input *in, uint64_t offset, size_t n, struct batch_line *l,
                     struct err *e);

#endif
