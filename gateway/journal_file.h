/* journal_file.h - records of the journal and the state they add up to. Private to journal*.c.
 *
 * Payload: u8 length and bytes of the job's id, i64 line, then by kind
 *   STATE: u64 submission hi, lo, seed, numerics hi, lo; u32 boundary, max_total, n_prompt, n_out; the ids
 *   SUB: u64 submission hi, lo, numerics hi, lo      IDS: u32 index, n; the ids
 *   END, COMPLETE: nothing
 * STATE replaces all that was known of the line. COMPLETE ends the state that a segment begins with: lines not
 * named in it by then have ended. Thread: a table belongs to one.
 */
#ifndef SLUICE_GATEWAY_JOURNAL_FILE_H
#define SLUICE_GATEWAY_JOURNAL_FILE_H

#include "base/buf.h"
#include "gateway/journal.h"

enum record_kind { REC_STATE = 1, REC_SUB, REC_IDS, REC_END, REC_COMPLETE };

struct record_head { uint32_t bytes, kind; uint64_t check; };
uint64_t record_check(const struct record_head *h, const void *payload, uint64_t segment);

/* Appends head (check 0) and payload; 0, or -1 when `b` has no room for it, nothing appended. */
int record_state(struct buf *b, const struct journal_line *l, bool with_out);
int record_sub(struct buf *b, const char *job, int64_t line, const uint64_t v[4]);
int record_ids(struct buf *b, const char *job, int64_t line, uint32_t index, const int32_t *ids, uint32_t n);
int record_bare(struct buf *b, enum record_kind kind, const char *job, int64_t line);

struct live_line { struct journal_line l; uint64_t segment; };
struct live { struct live_line **rows; size_t n, cap; uint32_t *index; size_t n_index; };

void live_deinit(struct live *t);
/* 0, -1 = the payload makes no sense. What finds no memory: its line is left out. */
int live_apply(struct live *t, uint32_t kind, const unsigned char *p, size_t n, uint64_t segment);

/* One segment's records, to the first that is torn or wrong. torn: bytes after it. -1 = cannot be read. */
int segment_replay(const char *path, uint64_t number, struct live *t, uint64_t *records, uint64_t *torn);
/* Numbers of the folder's segments, ascending (mem_free); -1 = the folder cannot be read. */
int segment_list(const char *dir, uint64_t **numbers, size_t *n);
void segment_path(char *out, size_t cap, const char *dir, uint64_t number);

#endif
