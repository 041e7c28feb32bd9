/* json_value.h - JSON (jansson) to msgpack values (proto/value.h), back, and to text.
 *
 * Thread: any. Limits: JSON_VALUE_DEPTH_MAX levels, so that a body nested in an RPC message stays within
 * VALUE_DEPTH_MAX. Numbers: whole ones up to 2^63 - 1, bigger ones from the wire become reals; NaN and
 * infinity, which JSON has not, become null. Bytes that are not UTF-8 are refused.
 */
#ifndef SLUICE_CLI_JSON_VALUE_H
#define SLUICE_CLI_JSON_VALUE_H

#include "base/buf.h"
#include "base/err.h"
#include "proto/value.h"

#include <jansson.h>

#define JSON_VALUE_DEPTH_MAX 56

/* Appends; -1 when nested too deeply (ERR_BAD_JSON) or without memory. */
int json_value_put(struct buf *out, const json_t *j, struct err *e);
/* A new reference; NULL on no memory or bytes that JSON cannot hold. */
json_t *json_value_make(const struct value *v);
/* Appends compact text of one line; -1 = no memory. */
int json_value_text(struct buf *out, const json_t *j);
/* One line on stdout; takes the reference. -1: NULL, no memory, or not written. Thread: main. */
int json_value_print(json_t *j);
/* Text to JSON, strict: one value, no duplicate keys; NULL and ERR_BAD_JSON with the reason. */
json_t *json_value_parse(const char *p, size_t n, struct err *e);

#endif
