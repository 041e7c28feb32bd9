#include "gateway/api_messages.h"

#include "base/buf.h"

#include <string.h>

#define MESSAGES_MAX 100000

static const char *canonical_role(const json_t *m, size_t i, struct err *e)
{
    static const char *const pairs[][2] = {
        {"system", "system"}, {"developer", "system"}, {"user", "user"},
        {"assistant", "assistant"}, {"tool", "tool"}, {"function", "tool"},
    };
    const json_t *role = api_get(m, "role");
    if (!json_is_string(role)) {
        err_set_param(e, role ? ERR_BAD_TYPE : ERR_MISSING, "messages",
                      "messages[%zu] needs a string 'role'.", i);
        return NULL;
    }
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        if (json_string_length(role) == strlen(pairs[k][0]) &&
            strcmp(json_string_value(role), pairs[k][0]) == 0)
            return pairs[k][1];
    }
    err_set_param(e, ERR_BAD_VALUE, "messages",
                  "messages[%zu].role must be system, developer, user, assistant or tool.", i);
    return NULL;
}

static int add_part(struct buf *text, const json_t *part, size_t i, size_t k, struct err *e)
{
    const json_t *type = json_object_get(part, "type"), *t = json_object_get(part, "text");
    if (!json_is_object(part) || !json_is_string(type)) {
        return err_set_param(e, ERR_BAD_TYPE, "messages",
                             "messages[%zu].content[%zu] must be an object with a 'type'.", i, k);
    }
    const char *name = json_string_value(type);
    if (strcmp(name, "text") != 0 && strcmp(name, "refusal") != 0) {
        return err_set_param(
            e, ERR_UNSUPPORTED, "messages",
            "messages[%zu].content[%zu] has type '%.40s': this model reads text only.", i, k, name);
    }
    if (strcmp(name, "refusal") == 0) t = json_object_get(part, "refusal");
    if (!json_is_string(t)) {
        return err_set_param(e, ERR_BAD_TYPE, "messages",
                             "messages[%zu].content[%zu] needs a string '%s'.", i, k, name);
    }
    if (k > 0) buf_addc(text, '\n');
    buf_add(text, json_string_value(t), json_string_length(t));
    return 0;
}

/* A new string value, or NULL and e. */
static json_t *plain_content(const json_t *m, size_t i, const char *role, struct err *e)
{
    json_t *c = json_object_get(m, "content"), *part;
    if (json_is_string(c)) return json_incref(c);
    if (c == NULL && strcmp(role, "assistant") != 0) {
        err_set_param(e, ERR_MISSING, "messages", "messages[%zu] needs 'content'.", i);
        return NULL;
    }
    if (c == NULL || json_is_null(c)) return json_string("");
    if (!json_is_array(c)) {
        err_set_param(e, ERR_BAD_TYPE, "messages",
                      "messages[%zu].content must be a string or a list of parts.", i);
        return NULL;
    }
    struct buf text = {0};
    size_t k;
    int bad = 0;
    json_array_foreach(c, k, part) {
        if (add_part(&text, part, i, k, e) != 0) {
            bad = 1;
            break;
        }
    }
    json_t *out = bad || text.bad ? NULL : json_stringn(text.len ? text.p : "", text.len);
    if (!bad && out == NULL) err_set(e, ERR_NO_MEMORY, "out of memory");
    buf_deinit(&text);
    return out;
}

static json_t *plain_message(const json_t *m, size_t i, struct err *e)
{
    if (!json_is_object(m)) {
        err_set_param(e, ERR_BAD_TYPE, "messages", "messages[%zu] must be an object.", i);
        return NULL;
    }
    const char *role = canonical_role(m, i, e);
    if (role == NULL) return NULL;
    json_t *content = plain_content(m, i, role, e);
    if (content == NULL) return NULL;
    json_t *out = json_copy((json_t *)m);
    if (out == NULL || json_object_set_new(out, "content", content) != 0 ||
        json_object_set_new(out, "role", json_string(role)) != 0) {
        err_set(e, ERR_NO_MEMORY, "out of memory");
        json_decref(out);
        return NULL;
    }
    return out;
}

json_t *api_messages(const json_t *body, struct err *e)
{
    const json_t *in = api_get(body, "messages"), *m;
    size_t i;
    if (in == NULL) {
        err_set_param(e, ERR_MISSING, "messages", "You must provide 'messages'.");
        return NULL;
    }
    if (!json_is_array(in)) {
        err_set_param(e, ERR_BAD_TYPE, "messages", "'messages' must be an array of messages.");
        return NULL;
    }
    if (json_array_size(in) == 0 || json_array_size(in) > MESSAGES_MAX) {
        err_set_param(e, ERR_BAD_VALUE, "messages", "'messages' must hold 1 to %d messages.",
                      MESSAGES_MAX);
        return NULL;
    }
    json_t *out = json_array();
    json_array_foreach(in, i, m) {
        json_t *p = plain_message(m, i, e);
        if (p == NULL || json_array_append_new(out, p) != 0) {
            if (p) err_set(e, ERR_NO_MEMORY, "out of memory");
            json_decref(out);
            return NULL;
        }
    }
    return out;
}
