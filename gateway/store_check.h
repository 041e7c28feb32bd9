/* store_check.h - is a state folder's store whole? And at start: blobs that nobody uses go.
 *
 * store_check only reads; a gateway may run meanwhile (then a blob just written may be seen as an orphan).
 */
#ifndef SLUICE_GATEWAY_STORE_CHECK_H
#define SLUICE_GATEWAY_STORE_CHECK_H

#include "gateway/blob.h"
#include "gateway/journal.h"

struct store_report {
    char integrity[200];                      /* "ok", or the first complaint */
    int64_t files, jobs, results;
    int64_t wrong_counts, homeless_results;   /* jobs whose counts differ from their results; results of no job */
    int64_t missing_blobs, bad_blobs, orphan_blobs;
    struct journal_state journal;
    bool journal_ok;
    char problem[ERR_MSG_MAX];                /* the first, "" = none */
};

/* 0 = looked at (report->problem says how it is), -1 = there is no store, or it cannot be opened. */
int store_check(const char *dir, struct store_report *out, struct err *e);
/* Before store_open: removes temp files and blobs that no file names. How many; -1 = not possible now. */
int64_t store_collect(const char *dir, struct blobs *b);

#endif
