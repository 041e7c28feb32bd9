/* batch_line.c - see batch_line.h. */
#include "cli/batch_line.h"
#include "cli/json_value.h"

#include <string.h>

/* Nesting without building anything: a body deeper than the door takes would only fail there. */
static bool too_deep(json_t *j, int depth) {
    json_t *v;
    const char *key;
    size_t i;
    if (depth > JSON_VALUE_DEPTH_MAX)
        return true;
    json_object_foreach(j, key, v) if (too_deep(v, depth + 1)) return true;
    json_array_foreach(j, i, v) if (too_deep(v, depth + 1)) return true;
    return false;
}

static int check_request(struct batch_line *l, struct err *e) {
    const char *method = json_string_value(json_object_get(l->root, "method"));
    l->url = json_string_value(json_object_get(l->root, "url"));
    l->body = json_object_get(l->root, "body");
    if (method == NULL || strcmp(method, "POST") != 0)
        return err_set_param(e, ERR_BAD_VALUE, "method", "\"method\" must be \"POST\"");
    if (l->url == NULL || (strcmp(l->url, "/v1/chat/completions") != 0 &&
                           strcmp(l->url, "/v1/completions") != 0))
        return err_set_param(e, ERR_BAD_VALUE, "url",
                             "\"url\" must be /v1/chat/completions or /v1/completions");
    if (!json_is_object(l->body))
        return err_set_param(e, ERR_BAD_TYPE, "body", "\"body\" must be an object");
    if (too_deep(l->body, 1))
        return err_set_param(e, ERR_BAD_VALUE, "body", "\"body\" is nested too deeply (over %d)",
                             JSON_VALUE_DEPTH_MAX);
    json_object_del(l->body, "stream");
    json_object_del(l->body, "stream_options");
    return 0;
}

static int check_line(struct batch_line *l, struct err *e) {
    if (!json_is_object(l->root))
        return err_set(e, ERR_BAD_TYPE, "not a JSON object");
    const json_t *id = json_object_get(l->root, "custom_id");
    if (id == NULL)
        return err_set_param(e, ERR_MISSING, "custom_id", "\"custom_id\" is missing");
    l->custom_id = json_string_value(id);
    l->n_custom_id = json_string_length(id);
    if (l->custom_id == NULL || l->n_custom_id == 0 || l->n_custom_id > BATCH_ID_BYTES_MAX)
        return err_set_param(e, ERR_BAD_VALUE, "custom_id",
                             "\"custom_id\" must be a string of 1 to %d bytes", BATCH_ID_BYTES_MAX);
    return check_request(l, e);
}

int batch_line_parse(struct batch_line *l, const char *p, size_t n, struct err *e) {
    memset(l, 0, sizeof(*l));
    l->root = json_value_parse(p, n, e);
    if (l->root == NULL)
        return -1;
    if (check_line(l, e) == 0)
        return 0;
    batch_line_deinit(l);
    return -1;
}

void batch_line_deinit(struct batch_line *l) {
    json_decref(l->root);
    l->root = NULL;
}

bool batch_status_retryable(uint32_t status) {
    return status == 408 || status == 429 || status == 499 || status >= 500;
}

enum batch_verdict batch_result_parse(struct batch_result *r, const char *p, size_t n) {
    struct err e;
    memset(r, 0, sizeof(*r));
    r->root = json_value_parse(p, n, &e);
    const json_t *id = json_object_get(r->root, "custom_id");
    const json_t *response = json_object_get(r->root, "response");
    r->custom_id = json_string_value(id);
    r->n_custom_id = json_string_length(id);
    if (r->custom_id == NULL || response == NULL) {
        batch_result_deinit(r);
        return BATCH_RESULT_BROKEN;
    }
    json_int_t status = json_integer_value(json_object_get(response, "status_code"));
    if (status < 200 || status > 999 || batch_status_retryable((uint32_t)status))
        return BATCH_RESULT_RETRY;
    return status < 300 ? BATCH_RESULT_DONE : BATCH_RESULT_FAILED;
}

void batch_result_deinit(struct batch_result *r) {
    json_decref(r->root);
    r->root = NULL;
}

int batch_result_put(struct buf *out, const char *tag, const char *custom_id, size_t n_custom_id,
                     uint32_t status, const json_t *body) {
    /* The reply's own id is the request's id for whoever looks for it in the server's log. */
    const char *request = json_string_value(json_object_get(body, "id"));
    json_t *line = json_pack("{s:s,s:s%,s:{s:i,s:s,s:O},s:n}", "id", tag, "custom_id", custom_id,
                             n_custom_id, "response", "status_code", (int)status, "request_id",
                             request != NULL ? request : tag, "body", body, "error");
    int rc = line != NULL ? json_value_text(out, line) : -1;
    buf_addc(out, '\n');
    json_decref(line);
    return rc != 0 || out->bad ? -1 : 0;
}
