/* blob.h - content-addressed files on the local disk, under <state>/files/.
 *
 * A blob's name is the hex BLAKE2b-256 of its bytes; it never changes once it has that name. Writing:
 * blob_begin, blob_append as often as wanted, blob_commit or blob_abort. Commit syncs the file, renames
 * it to its hash and syncs the folder: a hash handed out survives a loss of power. The same bytes
 * twice are one file; who uses it is counted by the store's files table (store.h blob_users).
 * Thread: one writer belongs to one thread at a time (a text lane's); the blobs themselves: any.
 * Failure: ERR_TOO_LARGE over max_bytes; ERR_QUEUE_FULL with "no space left on the disk" (retryable);
 * ERR_IO otherwise. After a failed append only abort is left. A temp file left by a crash is removed by
 * blob_collect. Cost: one write(2) an append, BLAKE2b at about 1 GB/s; memory: the writer alone.
 */
#ifndef SLUICE_GATEWAY_BLOB_H
#define SLUICE_GATEWAY_BLOB_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define BLOB_HASH_MAX 65 /* 64 hex digits and the NUL */

struct blobs;
struct blob_writer;

int blobs_open(struct blobs **out, const char *state_dir, struct err *e); /* makes <state>/files/ */
void blobs_close(struct blobs **b);

int blob_begin(struct blobs *b, int64_t max_bytes, struct blob_writer **out, struct err *e);
int blob_append(struct blob_writer *w, const void *p, size_t n, struct err *e);
int64_t blob_written(const struct blob_writer *w);
int blob_commit(struct blob_writer **w, char hash[BLOB_HASH_MAX], struct err *e); /* *w = NULL always */
void blob_abort(struct blob_writer **w);

/* A descriptor opened for reading (the caller closes it), or -1. `bytes` may be NULL. */
int blob_open(const struct blobs *b, const char *hash, int64_t *bytes, struct err *e);
/* Removes one that nobody uses any more; one that is not there is no error. */
int blob_remove(struct blobs *b, const char *hash, struct err *e);
/* Reads a blob through and compares its name: 0, or -1 with ERR_NOT_FOUND, ERR_BAD_FILE, ERR_IO. */
int blob_verify(const struct blobs *b, const char *hash, struct err *e);
/* At start, before anything writes: removes temp files and every blob that `used` says no to. With
 * `dry`, only counts them. Returns how many, -1 = the folder cannot be read. */
int64_t blob_collect(struct blobs *b, bool (*used)(void *user, const char *hash), void *user, bool dry);

#endif
