/* json_value.h - JSON text to msgpack and back, for the RPC door: the same objects at both doors.
 */
#ifndef SLUICE_GATEWAY_JSON_VALUE_H
#define SLUICE_GATEWAY_JSON_VALUE_H

#include "base/buf.h"
#include "proto/value.h"

/* Append the msgpack form of a JSON text of our own making. -1 = not JSON, no memory. */
int json_to_value(const char *json, size_t n, struct buf *out);
/* Append the JSON text of a value; binary and non-finite numbers are refused (-1). Depth is bounded
 * by the parser. */
int value_to_json(const struct value *v, struct buf *out);

#endif
