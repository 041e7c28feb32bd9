/* json_value.c - see json_value.h. */
#include "cli/json_value.h"

#include "cli/terminal.h"

#include <math.h>
#include <string.h>

static int put(struct buf *out, const json_t *j, unsigned depth, struct err *e);

static int put_object(struct buf *out, const json_t *j, unsigned depth, struct err *e) {
    json_t *o = (json_t *)(uintptr_t)j; /* iterators take no const */
    value_put_map(out, (uint32_t)json_object_size(o));
    for (void *at = json_object_iter(o); at != NULL; at = json_object_iter_next(o, at)) {
        const char *key = json_object_iter_key(at);
        value_put_str(out, key, strlen(key));
        if (put(out, json_object_iter_value(at), depth + 1, e) != 0)
            return -1;
    }
    return 0;
}

static int put_array(struct buf *out, const json_t *j, unsigned depth, struct err *e) {
    size_t n = json_array_size(j);
    value_put_array(out, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        if (put(out, json_array_get(j, i), depth + 1, e) != 0)
            return -1;
    return 0;
}

static int put(struct buf *out, const json_t *j, unsigned depth, struct err *e) {
    if (depth > JSON_VALUE_DEPTH_MAX)
        return err_set(e, ERR_BAD_JSON, "nested deeper than %d levels", JSON_VALUE_DEPTH_MAX);
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return put_object(out, j, depth, e);
    case JSON_ARRAY:
        return put_array(out, j, depth, e);
    case JSON_STRING:
        value_put_str(out, json_string_value(j), json_string_length(j));
        break;
    case JSON_INTEGER:
        value_put_int(out, json_integer_value(j));
        break;
    case JSON_REAL:
        value_put_float(out, json_real_value(j));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        value_put_bool(out, json_is_true(j));
        break;
    case JSON_NULL:
        value_put_nil(out);
        break;
    }
    return out->bad ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
}

int json_value_put(struct buf *out, const json_t *j, struct err *e) {
    return put(out, j, 1, e);
}

static json_t *make_array(const struct value *v) {
    json_t *a = json_array();
    for (uint32_t i = 0; a != NULL && i < v->n; i++) {
        if (json_array_append_new(a, json_value_make(&v->as.items[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static json_t *make_object(const struct value *v) {
    json_t *o = json_object();
    for (uint32_t i = 0; o != NULL && i < v->n; i++) {
        const struct value *key = &v->as.items[2 * i];
        char name[256];
        bool fits = key->n_bytes < sizeof(name) && memchr(key->as.s, 0, key->n_bytes) == NULL;
        if (fits) {
            memcpy(name, key->as.s, key->n_bytes);
            name[key->n_bytes] = '\0';
        }
        if (!fits || json_object_set_new(o, name, json_value_make(key + 1)) != 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

json_t *json_value_make(const struct value *v) {
    switch (v->kind) {
    case VALUE_BOOL:
        return json_boolean(v->as.b);
    case VALUE_INT:
        return json_integer(v->as.i);
    case VALUE_UINT:
        return v->as.u <= INT64_MAX ? json_integer((json_int_t)v->as.u) : json_real((double)v->as.u);
    case VALUE_FLOAT:
        return isfinite(v->as.f) ? json_real(v->as.f) : json_null();
    case VALUE_STR:
    case VALUE_BIN:
        return json_stringn(v->as.s, v->n_bytes);
    case VALUE_ARRAY:
        return make_array(v);
    case VALUE_MAP:
        return make_object(v);
    case VALUE_NIL:
        break;
    }
    return json_null();
}

static int append(const char *p, size_t n, void *data) {
    struct buf *b = data;
    buf_add(b, p, n);
    return b->bad ? -1 : 0;
}

int json_value_text(struct buf *out, const json_t *j) {
    /* 9 digits: what a float of the engine needs to be read back exactly. */
    size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9);
    return json_dump_callback(j, append, out, flags) != 0 || out->bad ? -1 : 0;
}

json_t *json_value_parse(const char *p, size_t n, struct err *e) {
    json_error_t why;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_t *j = json_loadb(p, n, flags, &why);
    if (j == NULL)
        err_set(e, ERR_BAD_JSON, "no valid JSON: %s (byte %d)", why.text, why.position);
    return j;
}

int json_value_print(json_t *j)
{
    struct buf out = {0};
    int rc = j != NULL ? json_value_text(&out, j) : -1;
    buf_addc(&out, '\n');
    if (rc == 0)
        rc = terminal_write(1, out.p, out.len);
    json_decref(j);
    buf_deinit(&out);
    return rc;
}
