/* value.h - msgpack as a tree of values, for the RPC door, without msgpack.h leaving proto/.
 *
 * Reading: value_parse scans first (proto/scan.h: counts <= bytes left, depth <= VALUE_DEPTH_MAX, total
 * nodes <= VALUE_NODES_MAX), then builds a read-only tree in one arena of known size (24 bytes a node and
 * a copy of the input, so the input may be freed at once). Nothing is allocated before the scan has passed.
 * Strings carry lengths, may hold NUL, and are checked to be UTF-8 on request (value_is_utf8).
 * Maps: string keys only, duplicates refused. An integer >= 0 is VALUE_UINT in whatever form it was
 * sent, VALUE_INT is below zero. Floats may be NaN or infinite: whoever checks a bound must refuse those.
 * Failure: ERR_PROTOCOL, or ERR_NO_MEMORY; nothing to free then.
 *
 * Writing: value_put_* append msgpack to a buf (by msgpack-c's packer); failure is sticky in the buf.
 * Thread: any; a tree or buf belongs to one thread at a time.
 */
#ifndef SLUICE_PROTO_VALUE_H
#define SLUICE_PROTO_VALUE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VALUE_DEPTH_MAX 64
#define VALUE_NODES_MAX (4u << 20)

enum value_kind { VALUE_NIL, VALUE_BOOL, VALUE_INT, VALUE_UINT, VALUE_FLOAT, VALUE_STR, VALUE_BIN, VALUE_ARRAY, VALUE_MAP };

struct value {
    enum value_kind kind;
    uint32_t n;                    /* array: elements, map: pairs */
    size_t n_bytes;                /* str, bin */
    union {
        bool b; int64_t i; uint64_t u; double f;
        const char *s;             /* str, bin: not NUL-terminated */
        const struct value *items; /* array: n values; map: 2n values, key then value */
    } as;
};

struct value_tree { struct value root; void *arena; }; /* may be copied: nothing points into the struct */

int value_parse(struct value_tree *t, const void *p, size_t n, struct err *e);
void value_tree_deinit(struct value_tree *t);
/* NULL = absent, or `map` NULL or not a map. Cost: one comparison a pair. */
const struct value *value_get(const struct value *map, const char *key);
bool value_is_utf8(const struct value *v);         /* a string, and valid UTF-8 */
bool value_str_is(const struct value *v, const char *s); /* a string of exactly these bytes; v may be NULL */

void value_put_nil(struct buf *b);
void value_put_bool(struct buf *b, bool v);
void value_put_int(struct buf *b, int64_t v);
void value_put_uint(struct buf *b, uint64_t v);
void value_put_float(struct buf *b, double v);
void value_put_float32(struct buf *b, float v);    /* 5 bytes, exact for a float */
void value_put_str(struct buf *b, const char *s, size_t n);
void value_put_bin(struct buf *b, const void *p, size_t n);
void value_put_array(struct buf *b, uint32_t n);   /* then n values */
void value_put_map(struct buf *b, uint32_t n);     /* then n pairs */

#endif
