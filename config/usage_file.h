/* usage_file.h - one file a day under DIR/usage, replaced as a whole, never seen half written.
 *
 * Writing day D: (1) D.tmp is written and synced, (2) D.tsv is renamed to D.old, (3) D.tmp is renamed to
 * D.tsv, (4) the folder is synced. Dead after any byte of (1) or after any step, the newest whole text is still
 * there: usage_file_load reads all three names and takes the one that is whole and has the highest
 * sequence number. One writer a folder (the gateway); any number of readers.
 * Thread: any, all of it blocks on the disk. Failure: -1 and `e`.
 */
#ifndef SLUICE_CONFIG_USAGE_FILE_H
#define SLUICE_CONFIG_USAGE_FILE_H

#include "config/usage_text.h"

#define USAGE_DAYS_MAX 1100          /* three years; older files are removed by usage_file_forget */
#define USAGE_FILE_STEPS 4

/* ERR_NOT_FOUND: there is nothing of that day; ERR_BAD_FILE: there is, and none of it is whole. */
int usage_file_load(struct usage_day *out, const char *dir, int32_t day, struct err *e);
/* Makes DIR/usage when it is missing (DIR must be there). */
int usage_file_save(const char *dir, const struct usage_day *d, struct err *e);
/* The first `steps` steps of it only: what a process killed then leaves. For tests. */
int usage_file_save_part(const char *dir, const struct usage_day *d, int steps, struct err *e);
/* D.tsv, which load called a bad file, becomes D.bad: nothing writes over it, a person may look. */
void usage_file_set_aside(const char *dir, int32_t day);
/* The days of [from, to] that have a file, rising; at most `cap`. Count, or -1. */
int usage_file_days(const char *dir, int32_t from, int32_t to, int32_t *out, int cap,
                    struct err *e);
/* Removes what is older than USAGE_DAYS_MAX days before `today`. Other files are left alone. */
void usage_file_forget(const char *dir, int32_t today);

#endif
