/* wire.h - inside proto/: field by field reading of a scanned message, with sticky failure and an arena.
 *
 * Use: wire_init over bytes that scan_check accepted; wire_open for each array, then its fields in order, then
 * wire_close, which skips the trailing fields of a later version. The first mistake is kept in
 * `e` with the field's name, later calls do nothing and return 0, so that a decoder checks once, at its end (but
 * a loop over a count must stop by itself: wire_count returns 0 after a failure).
 * The arena is a chain of chunks: its head is the message's `arena`, wire_arena_free frees it.
 * Thread: one owner.
 */
#ifndef SLUICE_PROTO_WIRE_H
#define SLUICE_PROTO_WIRE_H

#include "base/err.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_chunk;

struct wire {
    const uint8_t *p, *end;
    bool bad;
    struct err *e;
    struct wire_chunk *arena;
};

/* An open array: fields still to be read. */
struct wire_array { uint32_t left; };

void wire_init(struct wire *w, const void *p, size_t n, struct err *e);
void *wire_alloc(struct wire *w, size_t count, size_t bytes); /* zeroed, aligned to 16; NULL = failed */
void wire_arena_free(void *arena);

/* `a` below: the open array whose next field this is; NULL for the root and for elements of a list. */
/* Opens an array of at least `fields` fields. */
struct wire_array wire_open(struct wire *w, struct wire_array *a, uint32_t fields,
                            const char *what);
void wire_close(struct wire *w, struct wire_array *a);
/* A list: its length, at most `max`. */
uint32_t wire_count(struct wire *w, struct wire_array *a, uint32_t max, const char *what);

uint64_t wire_uint(struct wire *w, struct wire_array *a, uint64_t max, const char *what);
int32_t wire_i32(struct wire *w, struct wire_array *a, const char *what);
float wire_float(struct wire *w, struct wire_array *a, const char *what); /* finite */
bool wire_bool(struct wire *w, struct wire_array *a, const char *what);
/* Text without NUL, at most cap - 1 bytes, NUL-terminated; UTF-8 is msg_check's matter. */
void wire_text(struct wire *w, struct wire_array *a, char *out, size_t cap, const char *what);
/* Any bytes (str or bin), at most max; copied into the arena with a NUL behind. */
const char *wire_bytes(struct wire *w, struct wire_array *a, uint32_t max, uint32_t *n,
                       const char *what);
struct hash128 wire_hash(struct wire *w, struct wire_array *a, const char *what); /* 16 bytes */
int wire_fail(struct wire *w, const char *what, const char *why);                /* -1 */

#endif
