/* journal.h - what running batch lines have made so far, so that after kill -9 a line goes on from its
 * last journaled token.
 *
 * Records: START, SUB, IDS, END of a (job, line). Appended on the loop into a bounded ring (never
 * blocks); the journal's own thread writes them by write(2) as they come, and syncs in groups of at
 * most JOURNAL_SYNC_MS. A process killed loses what was still in the ring (microseconds); a loss of
 * power at most JOURNAL_SYNC_MS of ids. Nothing here is needed for correctness of counts: a line
 * without a journal starts anew.
 * Layout: <dir>/journal-NNNNNNNN.log; a record is {u32 bytes, u32 kind, u64 XXH3 seeded by the segment's
 * number, payload}, little-endian. Replay stops a segment at its first torn or wrong record. A segment
 * over segment_bytes is followed by a new one that begins with the live lines' state, after which the
 * older ones are removed: the folder holds at most about two segments and twice the live state.
 * Failure: after an error of write or fsync the segment is not trusted again, a new one is begun with
 * the live state, with back-off of 50 ms to 5 s; journal_state says so. Meanwhile journal_full holds the caller back
 * from starting lines; records are kept in the ring's memory and in the live state, none is dropped
 * but ids of a line whose record found no memory (that line then starts anew).
 * Thread: all calls from one thread (the loop), but journal_state: any.
 */
#ifndef SLUICE_GATEWAY_JOURNAL_H
#define SLUICE_GATEWAY_JOURNAL_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define JOURNAL_ID_MAX 64
#define JOURNAL_SYNC_MS 50
#define JOURNAL_RING_BYTES (8u << 20)   /* journal_full from half of it on */
#define JOURNAL_SEGMENT_BYTES (64u << 20)
#define JOURNAL_IDS_MAX (1u << 20)      /* of one record */

/* One line's state, as replayed. */
struct journal_line {
    char job[JOURNAL_ID_MAX];
    int64_t line;
    uint64_t submission_hi, submission_lo;  /* the last one */
    uint64_t seed, numerics_hi, numerics_lo;
    uint32_t boundary;                      /* n_prompt: positions below are the prompt's */
    uint32_t max_total;
    int32_t *prompt; uint32_t n_prompt;
    int32_t *out; uint32_t n_out, cap_out;
};

/* Where bytes go; tests inject faults. Each as the system call of its name. NULL = the system's. */
struct journal_io {
    int (*open)(void *user, const char *path, int flags, int mode);
    ssize_t (*write)(void *user, int fd, const void *p, size_t n);
    int (*sync)(void *user, int fd);
    int (*close)(void *user, int fd);
    int (*remove)(void *user, const char *path);
    int (*sync_dir)(void *user, const char *dir);
    void *user;
};

struct journal_options { const struct journal_io *io; size_t ring_bytes, segment_bytes; uint32_t sync_ms; };

struct journal_state {
    bool broken; char reason[160];
    uint64_t records, bytes, syncs, errors, segments;
    uint64_t live_lines, torn_bytes;
};

struct journal;
/* Replays `dir` (made if missing), then begins a new segment with what is live. o may be NULL. */
int journal_open(struct journal **out, const char *dir, const struct journal_options *o, struct err *e);
void journal_close(struct journal **j); /* writes and syncs what is in the ring */

/* After journal_open, before the first append: the lines found. Pointers live until that line ends or
 * the next call. Returns NULL past the last. */
const struct journal_line *journal_found(const struct journal *j, size_t i);

/* 0, or -1: the ring is full, nothing was taken (START: the caller waits; others: the caller may try
 * again or go on, the line then has no more journal). */
int journal_start(struct journal *j, const struct journal_line *l); /* its `out` is ignored */
int journal_sub(struct journal *j, const char *job, int64_t line, uint64_t sub_hi, uint64_t sub_lo,
                uint64_t numerics_hi, uint64_t numerics_lo);
/* ids of output positions index..index+n-1; what is known already is left out, a gap is refused at
 * replay (the line keeps what is before it). */
int journal_ids(struct journal *j, const char *job, int64_t line, uint32_t index, const int32_t *ids, uint32_t n);
int journal_end(struct journal *j, const char *job, int64_t line);
bool journal_full(struct journal *j);   /* start no more lines */
void journal_state(struct journal *j, struct journal_state *out);

/* For `sluice store check`: reads without writing; 0 and counts, or -1. */
int journal_inspect(const char *dir, struct journal_state *out, struct err *e);

#endif
