/* value.h - msgpack as a tree of values, for the RPC door, without msgpack.h leaving proto/.
 *
 * Reading: value_parse scans first (own scan: counts <= bytes left, depth <= VALUE_DEPTH_MAX, total
 * nodes <= VALUE_NODES_MAX), then builds a read-only tree in one arena. Strings carry lengths, may hold NUL,
 * and are checked to be UTF-8 on request. Writing: value_writer appends msgpack to a buf.
 * Maps: string keys only, duplicates refused.
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

struct value_tree { struct value root; void *arena; };

int value_parse(struct value_tree *t, const void *p, size_t n, struct err *e);
void value_tree_deinit(struct value_tree *t);
const struct value *value_get(const struct value *map, const char *key); /* NULL = absent or not a map */

void value_put_nil(struct buf *b);
void value_put_bool(struct buf *b, bool v);
void value_put_int(struct buf *b, int64_t v);
void value_put_uint(struct buf *b, uint64_t v);
void value_put_float(struct buf *b, double v);
void value_put_str(struct buf *b, const char *s, size_t n);
void value_put_bin(struct buf *b, const void *p, size_t n);
void value_put_array(struct buf *b, uint32_t n);   /* then n values */
void value_put_map(struct buf *b, uint32_t n);     /* then n pairs */

#endif
