/* batch_run.h - the run itself: lines of the input to the server, results to the journal.
 *
 * At most `concurrency` lines are with the server; each is a slot that knows where its line stands in the file,
 * not the line, so that memory does not grow with the file. A line's life: read, sent, and then
 *   DONE                -> appended with 200
 *   ERROR, final (4xx)  -> appended with its status
 *   ERROR, retryable    -> sent again after a pause (100 ms, doubled up to 10 s; the server's Retry-After
 *                          where it gives one); after BATCH_TRIES tries of a status other than 429 and 503, or
 *                          `patience_s` of those, it is given up: no result is written, a re-run tries again
 *   connection lost     -> sent again once there is a server; that is no try of the line
 * With no server for `patience_s` the run ends with CLI_NO_SERVER; what was appended stays.
 * Thread: main only.
 */
#ifndef SLUICE_CLI_BATCH_RUN_H
#define SLUICE_CLI_BATCH_RUN_H

#include "cli/batch_input.h"
#include "cli/batch_journal.h"
#include "cli/batch_progress.h"
#include "cli/command.h"
#include "cli/server.h"

#define BATCH_CONCURRENCY_MAX 4096
#define BATCH_TRIES 5

struct batch_slot {
    enum { SLOT_FREE, SLOT_WAITING, SLOT_SENT } state;
    uint64_t rpc_id, offset, number;
    size_t n;
    uint32_t tries;
    double due_ms, first_failed_ms; /* first_failed_ms 0 = never failed */
};

struct batch_run {
    struct batch_input *in;
    struct batch_journal *journal;
    struct server *server;
    struct batch_progress progress;
    const char *cls;
    double patience_s;
    struct batch_slot *slots; /* `concurrency` of them */
    uint32_t concurrency, n_busy, n_sent;
    uint64_t given_up;
    bool input_ended;
    uint64_t tag_seed, tag_count;
    double lost_ms, reopen_ms; /* without a server since; next try */
    uint32_t reopen_tries;
};

/* 0, or -1 without memory. The other fields are set by the caller. */
int batch_run_init(struct batch_run *r, uint32_t concurrency);
void batch_run_deinit(struct batch_run *r);
/* Until all is done, interrupted, or lost. The server must be open. */
enum cli_exit batch_run_all(struct batch_run *r);

/* Pause before try number `tries` + 1, in ms. */
double batch_pause_ms(uint32_t tries, uint32_t retry_after_ms);

#endif
