/* Messages as clients send them: roles, parts, null content; the rendered prompt holds the default
 * system text once. */
#include "gateway/api_messages.h"

#include "gateway/api_job.h"
#include "tests/unit/gateway/gateway_rig.h"

#include "base/mem.h"

#include <string.h>

static struct model model;
static struct api_limits limits;

static json_t *plain(const char *messages, struct err *e)
{
    char body[4096];
    err_clear(e);
    snprintf(body, sizeof body, "{\"messages\":%s}", messages);
    json_t *o = api_parse_body(body, strlen(body), e);
    ck_assert_msg(o != NULL, "%s: %s", body, e->msg);
    json_t *out = api_messages(o, e);
    json_decref(o);
    return out;
}

static void check_plain(const char *messages, const char *role, const char *content, size_t n)
{
    struct err e = {0};
    json_t *out = plain(messages, &e);
    ck_assert_msg(out != NULL, "%s: %s", messages, e.msg);
    const json_t *m = json_array_get(out, 0);
    ck_assert_str_eq(json_string_value(json_object_get(m, "role")), role);
    ck_assert_uint_eq(json_string_length(json_object_get(m, "content")), n);
    ck_assert_int_eq(memcmp(json_string_value(json_object_get(m, "content")), content, n), 0);
    json_decref(out);
}

START_TEST(roles)
{
    check_plain("[{\"role\":\"user\",\"content\":\"a\"}]", "user", "a", 1);
    check_plain("[{\"role\":\"developer\",\"content\":\"a\"}]", "system", "a", 1);
    check_plain("[{\"role\":\"function\",\"content\":\"a\",\"name\":\"f\"}]", "tool", "a", 1);
    check_plain("[{\"role\":\"assistant\"}]", "assistant", "", 0);
    check_plain("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}]", "assistant", "",
                0);
    check_plain("[{\"role\":\"user\",\"content\":null}]", "user", "", 0);
    check_plain("[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]", "user", "a\0b", 3);
}
END_TEST

START_TEST(parts)
{
    check_plain("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},{\"type\":"
                "\"text\",\"text\":\"two\"}]}]",
                "user", "one\ntwo", 7);
    check_plain("[{\"role\":\"user\",\"content\":[]}]", "user", "", 0);
    check_plain(
        "[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]",
        "assistant", "no", 2);
}
END_TEST

START_TEST(refusals)
{
    static const struct { const char *messages; enum err_code code;
    } rows[] = {
        {"null", ERR_MISSING},
        {"\"x\"", ERR_BAD_TYPE},
        {"{}", ERR_BAD_TYPE},
        {"[]", ERR_BAD_VALUE},
        {"[5]", ERR_BAD_TYPE},
        {"[null]", ERR_BAD_TYPE},
        {"[{\"content\":\"x\"}]", ERR_MISSING},
        {"[{\"role\":null,\"content\":\"x\"}]", ERR_MISSING},
        {"[{\"role\":5,\"content\":\"x\"}]", ERR_BAD_TYPE},
        {"[{\"role\":\"foo\",\"content\":\"x\"}]", ERR_BAD_VALUE},
        {"[{\"role\":\"user\\u0000\",\"content\":\"x\"}]", ERR_BAD_VALUE},
        {"[{\"role\":\"user\"}]", ERR_MISSING},
        {"[{\"role\":\"user\",\"content\":5}]", ERR_BAD_TYPE},
        {"[{\"role\":\"user\",\"content\":{}}]", ERR_BAD_TYPE},
        {"[{\"role\":\"user\",\"content\":[\"x\"]}]", ERR_BAD_TYPE},
        {"[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]", ERR_BAD_TYPE},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", ERR_BAD_TYPE},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}]", ERR_BAD_TYPE},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]",
         ERR_UNSUPPORTED},
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{\"type\":\"input_"
         "audio\"}]}]",
         ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e;
        ck_assert_msg(plain(rows[i].messages, &e) == NULL, "%s was taken", rows[i].messages);
        ck_assert_msg(e.code == rows[i].code, "%s: %s", rows[i].messages, err_name(e.code));
        ck_assert_str_eq(e.param, "messages");
    }
}
END_TEST

/* The rendered prompt of a chat, as text. */
static char *rendered(const char *messages, struct err *e)
{
    struct api_job j;
    struct request_in in = {.endpoint = ENDPOINT_CHAT};
    char body[4096];
    snprintf(body, sizeof body, "{\"model\":\"tiny\",\"messages\":%s}", messages);
    in.n_body = strlen(body);
    in.body = mem_memdup(body, in.n_body);
    api_job_init(&j, &model, &limits, &in);
    struct tokenizer_scratch *s = tokenizer_scratch_create(model.tok);
    api_job_work(&j, s);
    tokenizer_scratch_destroy(&s);
    *e = j.err;
    char *text = NULL;
    if (!j.failed) {
        struct buf b = {0};
        for (size_t i = 0; i < j.prompts[0].ids.n; i++) {
            size_t n;
            const uint8_t *p = vocab_bytes(model.vocab, j.prompts[0].ids.ids[i], &n);
            buf_add(&b, p, n);
        }
        buf_addc(&b, '\0');
        text = buf_take(&b, NULL);
    }
    api_job_deinit(&j);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++) n++;
    return n;
}

/* Odd orders are rendered, never a failure of the server (B53); the default system text comes
 * exactly once. */
START_TEST(odd_orders)
{
    static const struct { const char *messages; int defaults, turns;
    } rows[] = {
        {"[{\"role\":\"user\",\"content\":\"a\"}]", 1, 3},
        {"[{\"role\":\"system\",\"content\":\"s\"}]", 0, 2},
        {"[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"}]", 0,
         3},
        {"[{\"role\":\"assistant\",\"content\":\"a\"}]", 1, 3},
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]", 1, 4},
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null}]", 1, 4},
        {"[{\"role\":\"tool\",\"content\":\"a\"}]", 1, 3},
        {"[{\"role\":\"user\",\"content\":\"<|im_end|>\"}]", 1,
         3}, /* a caller's control token stays plain text */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e;
        char *text = rendered(rows[i].messages, &e);
        ck_assert_msg(text != NULL, "%s: %s", rows[i].messages, e.msg);
        ck_assert_int_eq(count(text, "You are made from a seed."), rows[i].defaults);
        ck_assert_int_eq(count(text, "<|im_start|>"), rows[i].turns);
        mem_free(text);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("api_messages");
    TCase *t = tcase_create("messages");
    if (tiny_text_model_open(&model, "tiny") != 0) return 1;
    tiny_text_limits(&limits, &model);
    tcase_add_test(t, roles);
    tcase_add_test(t, parts);
    tcase_add_test(t, refusals);
    tcase_add_test(t, odd_orders);
    suite_add_tcase(s, t);
    int r = test_run(s);
    model_close(&model);
    return r;
}
