/* scan.h - reads msgpack heads, and proves a whole message well-formed before anything is built from it.
 *
 * Why: msgpack-c (4.0.0) allocates what a head announces (five bytes make it ask for gigabytes) and recursive
 * readers run out of stack. scan_check walks the bytes once, iteratively, with a fixed stack and without one
 * allocation; after it succeeded a reader may trust every count, length and depth in these bytes.
 *
 * Rule for counts: the number of values still owed, over all open arrays and maps together, never exceeds
 * the bytes left (a value needs at least one byte). So a message of n bytes can announce at most n values in all,
 * however they are nested, and an array of 2^32-1 elements in five bytes ends there.
 * All ext types and the reserved byte 0xc1 are refused. Bytes after the root value are refused.
 *
 * Thread: any, no state. Failure: -1 and ERR_PROTOCOL. Cost: one pass, n / 1 GB/s about.
 */
#ifndef SLUICE_PROTO_SCAN_H
#define SLUICE_PROTO_SCAN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCAN_DEPTH_MAX 64

enum scan_kind {
    SCAN_NIL, SCAN_BOOL, SCAN_INT, SCAN_UINT, SCAN_FLOAT, SCAN_STR, SCAN_BIN, SCAN_ARRAY, SCAN_MAP
};

struct scan_token {
    enum scan_kind kind;           /* an integer >= 0 is SCAN_UINT in whatever form it was written */
    bool b;
    int64_t i;                     /* SCAN_INT: below zero */
    uint64_t u;
    double f;                      /* float 32 widened, or float 64 */
    const uint8_t *p; uint32_t n;  /* STR, BIN: the bytes; ARRAY: n values follow; MAP: n pairs follow */
};

struct scan_info { uint32_t nodes, depth; };

/* One head, and the body of a string. Advances *p; NULL, or why these bytes are refused (static text). */
const char *scan_next(const uint8_t **p, const uint8_t *end, struct scan_token *t);

/* The whole message: one value, at most depth_max levels of arrays and maps (a flat array is 1) and
 * nodes_max values. `info` may be NULL. */
int scan_check(const void *p, size_t n, uint32_t depth_max, uint32_t nodes_max,
               struct scan_info *info, struct err *e);

/* Whether the bytes are UTF-8 (shortest forms only, no surrogates, up to U+10FFFF). */
bool scan_utf8(const char *s, size_t n);

#endif
