/* api_fields.h - typed readers of an OpenAI body's fields: one clear error naming the field, null =
 * absent.
 *
 * Each reader: 1 = present and taken, 0 = absent or null (out untouched), -1 = wrong type or out of
 * bounds (e filled with the field as `param`). Integers: JSON integers, and floats that are whole
 * numbers (5.0, 1e2), nothing else; never wraps. Strings are borrowed from the JSON tree and may
 * hold NUL; lengths are carried.
 */
#ifndef SLUICE_GATEWAY_API_FIELDS_H
#define SLUICE_GATEWAY_API_FIELDS_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct api_str { const char *p; size_t n; };

int api_bool(const json_t *o, const char *key, bool *out, struct err *e);
int api_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out,
            struct err *e);
int api_float(const json_t *o, const char *key, double min, double max, double *out, struct err *e);
int api_string(const json_t *o, const char *key, struct api_str *out, struct err *e);
/* A number that must be a token id: 0 <= id < n_vocab, checked in 64 bits. */
int api_token_id(const json_t *v, const char *param, int32_t n_vocab, int32_t *out, struct err *e);
/* A whole number from a JSON integer or a whole float. 0, or -1 when it is neither. */
int api_whole(const json_t *v, int64_t *out);
/* The field, or NULL when absent or null. */
json_t *api_get(const json_t *o, const char *key);

/* Body bytes to an object: UTF-8 checked, duplicate keys, depth over 64 and trailing bytes refused.
 * NULL and e. */
json_t *api_parse_body(const char *p, size_t n, struct err *e);

#endif
