/* gguf.h - reads what a GGUF file (version 2 or 3, little endian) says; maps it, never copies tensors.
 *
 * Every count, length, offset and size is checked against the file's size before it is used or
 * multiplied; tables in memory are at most a few times the bytes they describe. Errors name the field or tensor
 * (ERR_BAD_FILE). Extra bytes after the last tensor: a warning in the log, not an error.
 * Order: gguf_open, lookups, gguf_close. Ownership: every string, array and tensor pointer lives
 * inside the mapping until gguf_close. Thread: read-only after open, any thread.
 * Source: GGUF specification, ggml-org/ggml docs/gguf.md.
 */
#ifndef SLUICE_MODEL_GGUF_H
#define SLUICE_MODEL_GGUF_H

#include "base/err.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_DIMS_MAX 4
#define GGUF_KV_MAX 65536        /* counts above these are refused, whatever the file's size */
#define GGUF_TENSORS_MAX 65536

enum gguf_type { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q4_0 = 2, GGUF_Q4_1 = 3, GGUF_Q8_0 = 8, GGUF_BF16 = 30 };

struct gguf_str { const char *p; size_t n; };            /* not NUL-terminated */

struct gguf_tensor {
    struct gguf_str name;
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* dims[0] is the contiguous one; missing ones are 1 */
    uint32_t type;                /* enum gguf_type, or another number of the format */
    const void *data;             /* inside the mapping, aligned as the file says (>= 32) */
    uint64_t bytes;
};

struct gguf;

int gguf_open(struct gguf **out, const char *path, struct err *e);
void gguf_close(struct gguf **g);
/* The same over bytes in memory (tests, fuzzing); `p` must stay valid and be 32-byte aligned. */
int gguf_open_mem(struct gguf **out, const void *p, size_t n, struct err *e);

/* Scalar and string keys. 0, or -1 when absent or of another type (integers convert when they fit). */
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out);
int gguf_get_f32(const struct gguf *g, const char *key, float *out);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out);
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out);
/* Arrays: element count, or -1 when absent or of another element type. */
int64_t gguf_array_count(const struct gguf *g, const char *key);
int gguf_array_str(const struct gguf *g, const char *key, uint64_t i, struct gguf_str *out); /* O(1) */
int gguf_array_i64(const struct gguf *g, const char *key, uint64_t i, int64_t *out);
int gguf_array_f32(const struct gguf *g, const char *key, uint64_t i, float *out);

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* NULL = absent */
uint64_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i);
const char *gguf_type_name(uint32_t type);               /* "Q4_1", or "type 17" */
/* Bytes of n elements of a type; 0 when the type is unknown or n is no multiple of its block. */
uint64_t gguf_type_bytes(uint32_t type, uint64_t n);
uint64_t gguf_file_bytes(const struct gguf *g);
/* For who has copied the tensors: gives the pages of their bytes back to the system (they come again from the
 * file when read). Returns the bytes before the tensors, which stay. Bytes in memory all stay. */
uint64_t gguf_drop_tensor_pages(const struct gguf *g);
/* A string of the file, fit for a message: cut at 64 bytes, and what is not printable ASCII shown as '?'. */
struct gguf_shown { char s[72]; };
struct gguf_shown gguf_show(struct gguf_str s);
/* Hash over names, shapes, types and bytes of all tensors: part of the numerics id (E10). Reads the whole file once. */
struct hash128 gguf_tensors_hash(const struct gguf *g);

#endif
