#include "gateway/json_value.h"

#include "gateway/json_out.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put(const json_t *j, struct buf *out)
{
    const char *key;
    json_t *v;
    size_t i;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        value_put_map(out, (uint32_t)json_object_size(j));
        json_object_foreach((json_t *)j, key, v) {
            value_put_str(out, key, strlen(key));
            put(v, out);
        }
        break;
    case JSON_ARRAY:
        value_put_array(out, (uint32_t)json_array_size(j));
        json_array_foreach(j, i, v) put(v, out);
        break;
    case JSON_STRING: value_put_str(out, json_string_value(j), json_string_length(j)); break;
    case JSON_INTEGER: value_put_int(out, json_integer_value(j)); break;
    case JSON_REAL: value_put_float(out, json_real_value(j)); break;
    case JSON_TRUE: value_put_bool(out, true); break;
    case JSON_FALSE: value_put_bool(out, false); break;
    case JSON_NULL: value_put_nil(out); break;
    }
}

int json_to_value(const char *json, size_t n, struct buf *out)
{
    json_t *j = json_loadb(json, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (j == NULL) return -1;
    put(j, out);
    json_decref(j);
    return out->bad ? -1 : 0;
}

/* A whole float stays a float: 5.0 is not the integer 5. */
static int put_float(double f, struct buf *out)
{
    char text[40];
    if (!isfinite(f)) return -1;
    snprintf(text, sizeof text, "%.17g", f);
    buf_adds(out, text);
    if (text[strspn(text, "-0123456789")] == '\0') buf_adds(out, ".0");
    return out->bad ? -1 : 0;
}

static int put_items(const struct value *v, struct buf *out)
{
    bool map = v->kind == VALUE_MAP;
    buf_addc(out, map ? '{' : '[');
    for (uint32_t i = 0; i < v->n; i++) {
        if (i) buf_addc(out, ',');
        if (map) {
            const struct value *k = &v->as.items[2 * i];
            json_out_str(out, k->as.s, k->n_bytes);
            buf_addc(out, ':');
        }
        if (value_to_json(&v->as.items[map ? 2 * i + 1 : i], out) != 0) return -1;
    }
    buf_addc(out, map ? '}' : ']');
    return 0;
}

int value_to_json(const struct value *v, struct buf *out)
{
    switch (v->kind) {
    case VALUE_NIL: buf_adds(out, "null"); break;
    case VALUE_BOOL: buf_adds(out, v->as.b ? "true" : "false"); break;
    case VALUE_INT: buf_addf(out, "%" PRId64, v->as.i); break;
    case VALUE_UINT: buf_addf(out, "%" PRIu64, v->as.u); break;
    case VALUE_FLOAT: return put_float(v->as.f, out);
    case VALUE_STR:
        json_out_str(out, v->as.s, v->n_bytes);
        break; /* invalid UTF-8 is refused by the JSON parser */
    case VALUE_BIN: return -1;
    case VALUE_ARRAY:
    case VALUE_MAP: return put_items(v, out);
    }
    return out->bad ? -1 : 0;
}
