#include "gateway/api_fields.h"

#include <math.h>
#include <string.h>

#define API_DEPTH_MAX 64
#define API_VALUES_MAX (2u << 20)

json_t *api_get(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return v == NULL || json_is_null(v) ? NULL : v;
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

static int wrong_type(struct err *e, const char *key, const char *want, const json_t *v)
{
    return err_set_param(e, ERR_BAD_TYPE, key,
                         "Invalid type for '%s': expected %s, but got %s instead.", key, want,
                         type_name(v));
}

int api_bool(const json_t *o, const char *key, bool *out, struct err *e)
{
    json_t *v = api_get(o, key);
    if (v == NULL) return 0;
    if (!json_is_boolean(v)) return wrong_type(e, key, "a boolean", v);
    *out = json_is_true(v);
    return 1;
}

int api_whole(const json_t *v, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return 0;
    }
    if (!json_is_real(v)) return -1;
    double d = json_real_value(v);
    /* beyond 2^53 a double no longer says which integer was meant */
    if (!(fabs(d) <= 9007199254740992.0) || d != floor(d)) return -1;
    *out = (int64_t)d;
    return 0;
}

int api_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out, struct err *e)
{
    json_t *v = api_get(o, key);
    if (v == NULL) return 0;
    int64_t i;
    if (!json_is_number(v)) return wrong_type(e, key, "an integer", v);
    if (api_whole(v, &i) != 0) return wrong_type(e, key, "an integer", v);
    if (i < min || i > max) {
        return err_set_param(e, ERR_BAD_VALUE, key,
                             "Invalid value for '%s': %lld is not in %lld .. %lld.", key,
                             (long long)i, (long long)min, (long long)max);
    }
    *out = i;
    return 1;
}

int api_float(const json_t *o, const char *key, double min, double max, double *out, struct err *e)
{
    json_t *v = api_get(o, key);
    if (v == NULL) return 0;
    if (!json_is_number(v)) return wrong_type(e, key, "a number", v);
    double d = json_number_value(v);
    if (!(d >= min && d <= max)) {
        return err_set_param(e, ERR_BAD_VALUE, key,
                             "Invalid value for '%s': %g is not in %g .. %g.", key, d, min, max);
    }
    *out = d;
    return 1;
}

int api_string(const json_t *o, const char *key, struct api_str *out, struct err *e)
{
    json_t *v = api_get(o, key);
    if (v == NULL) return 0;
    if (!json_is_string(v)) return wrong_type(e, key, "a string", v);
    out->p = json_string_value(v);
    out->n = json_string_length(v);
    return 1;
}

int api_token_id(const json_t *v, const char *param, int32_t n_vocab, int32_t *out, struct err *e)
{
    int64_t i;
    if (api_whole(v, &i) != 0) return wrong_type(e, param, "token ids (integers)", v);
    if (i < 0 || i >= n_vocab) {
        return err_set_param(e, ERR_BAD_VALUE, param,
                             "Invalid value for '%s': token id %lld is not in 0 .. %d.", param,
                             (long long)i, n_vocab - 1);
    }
    *out = (int32_t)i;
    return 0;
}

/* Before the parser works on what a stranger sent: depth of brackets (it recurses) and number of
 * values (a value of two bytes takes over a hundred in its tree), outside strings. */
static const char *too_much(const char *p, size_t n)
{
    int depth = 0;
    uint32_t values = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > API_DEPTH_MAX) return "it is nested too deeply";
            values++;
        } else if (c == ']' || c == '}') {
            depth--;
        } else if (c == ',') {
            values++;
        }
        if (values > API_VALUES_MAX) return "it has too many values";
    }
    return NULL;
}

json_t *api_parse_body(const char *p, size_t n, struct err *e)
{
    if (n == 0) {
        err_set(e, ERR_BAD_JSON, "The request body is empty; send a JSON object.");
        return NULL;
    }
    const char *why = too_much(p, n);
    if (why) {
        err_set(e, ERR_BAD_JSON, "The JSON body is refused: %s (limits: depth %d, %u values).", why,
                API_DEPTH_MAX, API_VALUES_MAX);
        return NULL;
    }
    json_error_t je;
    json_t *o = json_loadb(p, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &je);
    if (o == NULL) {
        err_set(e, ERR_BAD_JSON,
                "We could not parse the JSON body of your request: %s (line %d, column %d).",
                je.text, je.line, je.column);
        return NULL;
    }
    if (!json_is_object(o)) {
        err_set(e, ERR_BAD_JSON, "The request body must be a JSON object, but it is %s.",
                type_name(o));
        json_decref(o);
        return NULL;
    }
    return o;
}
