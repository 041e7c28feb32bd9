/* batch_journal.h - the results file of `batch run`, which is its own journal.
 *
 * open locks the file (flock, so that two runs cannot mix), reads it and marks in the id table what has a
 * final result; a torn last line (a crash in the middle of a write) is cut off, anything else that is no
 * result line means another file and is refused, untouched. Then only whole lines are appended, one write(2) each.
 * Results that are not final (see batch_line.h) leave their id open: a later line of the same custom_id counts.
 * Durability: sync after BATCH_SYNC_MS at the latest (the owner calls batch_journal_due).
 * Thread: one owner; times in ms from one clock.
 */
#ifndef SLUICE_CLI_BATCH_JOURNAL_H
#define SLUICE_CLI_BATCH_JOURNAL_H

#include "base/err.h"
#include "cli/id_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATCH_SYNC_MS 1000

struct batch_journal {
    const char *path;       /* borrowed */
    int fd;
    uint64_t size;          /* bytes of whole lines */
    uint64_t done, failed;  /* found at open, of ids in the table */
    uint64_t foreign;       /* results of ids that are not in the table */
    uint64_t torn_bytes;    /* cut off at open */
    double unsynced_ms;     /* since when; 0 = all is on the disk */
};

/* `avoid_fd`: the input, which must be another file. */
int batch_journal_open(struct batch_journal *j, const char *path, int avoid_fd, struct id_table *ids,
                       struct err *e);
/* Appends one whole line. A short write (disk full) is undone: the file ends with the last whole line. */
int batch_journal_append(struct batch_journal *j, const char *p, size_t n, double now_ms,
                         struct err *e);
/* ms until a sync is due (0 = now); -1 = nothing to sync. */
int batch_journal_due(const struct batch_journal *j, double now_ms);
int batch_journal_sync(struct batch_journal *j, struct err *e);
/* Syncs what is left. */
int batch_journal_close(struct batch_journal *j, struct err *e);

#endif
