/* Text work of a call: prompts of all shapes to exact ids, limits with real numbers, /tokenize and
 * /detokenize. */
#include "gateway/api_job.h"

#include "base/mem.h"
#include "tests/unit/gateway/gateway_rig.h"

#include <string.h>

static struct model model;
static struct api_limits limits;
static struct tokenizer_scratch *scratch;

static void run_body(struct api_job *j, enum endpoint endpoint, const char *body, size_t n)
{
    struct request_in in = {.endpoint = endpoint};
    in.body = mem_memdup(body, n ? n : 1);
    in.n_body = n;
    api_job_init(j, &model, &limits, &in);
    api_job_work(j, scratch);
    ck_assert_int_eq(j->failed, j->err.code != ERR_OK);
}

static void run_fields(struct api_job *j, enum endpoint endpoint, const char *fields)
{
    char body[8192];
    int n = snprintf(body, sizeof body, "{\"model\":\"tiny\",%s}", fields);
    ck_assert_int_lt(n, (int)sizeof body);
    run_body(j, endpoint, body, (size_t)n);
}

static void refused(const char *fields, enum err_code code, const char *param)
{
    struct api_job j;
    run_fields(&j, ENDPOINT_COMPLETION, fields);
    ck_assert_msg(j.failed, "%s was taken", fields);
    ck_assert_msg(j.err.code == code, "%s: %s (%s)", fields, err_name(j.err.code), j.err.msg);
    ck_assert_str_eq(j.err.param, param);
    api_job_deinit(&j);
}

START_TEST(prompt_shapes)
{
    static const struct { const char *fields; uint32_t n_prompts; size_t n_ids[3]; } rows[] = {
        {"\"prompt\":\"hello\"", 1, {1}},
        {"\"prompt\":[\"hello\",\"zz\"]", 2, {1, 2}},
        {"\"prompt\":[299]", 1, {1}},
        {"\"prompt\":[1,2.0,3]", 1, {3}},
        {"\"prompt\":[[1],[2,3]]", 2, {1, 2}},
        {"\"prompt\":[\"a\",[5,6,7]]", 2, {1, 3}},
        {"\"prompt\":\"a\\u0000b\"", 1, {3}},             /* B43: the whole text counts */
        {"\"prompt\":\"<|im_start|>\"", 1, {1}},          /* completions parse control tokens */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct api_job j;
        run_fields(&j, ENDPOINT_COMPLETION, rows[i].fields);
        ck_assert_msg(!j.failed, "%s: %s", rows[i].fields, j.err.msg);
        ck_assert_uint_eq(j.n_prompts, rows[i].n_prompts);
        for (uint32_t k = 0; k < j.n_prompts; k++)
            ck_assert_uint_eq(j.prompts[k].ids.n, rows[i].n_ids[k]);
        api_job_deinit(&j);
    }
}
END_TEST

/* B57, B58. */
START_TEST(prompt_refusals)
{
    refused("\"max_tokens\":1", ERR_MISSING, "prompt");
    refused("\"prompt\":null", ERR_MISSING, "prompt");
    refused("\"prompt\":5", ERR_BAD_TYPE, "prompt");
    refused("\"prompt\":{}", ERR_BAD_TYPE, "prompt");
    refused("\"prompt\":\"\"", ERR_BAD_VALUE, "prompt");
    refused("\"prompt\":[\"\"]", ERR_BAD_VALUE, "prompt");
    refused("\"prompt\":[]", ERR_BAD_VALUE, "prompt");
    refused("\"prompt\":[[]]", ERR_BAD_VALUE, "prompt");
    refused("\"prompt\":[300]", ERR_BAD_VALUE, "prompt");
    refused("\"prompt\":[-1]", ERR_BAD_VALUE, "prompt");
    refused("\"prompt\":[4294967297]", ERR_BAD_VALUE, "prompt");
    refused("\"prompt\":[1.5]", ERR_BAD_TYPE, "prompt");
    refused("\"prompt\":[1,\"a\"]", ERR_BAD_TYPE, "prompt");
    refused("\"prompt\":[\"a\",1]", ERR_BAD_TYPE, "prompt");
    refused("\"prompt\":[true]", ERR_BAD_TYPE, "prompt");
    refused("\"prompt\":[null]", ERR_BAD_TYPE, "prompt");
    refused("\"prompt\":[[1],[2],[3]],\"n\":43", ERR_BAD_VALUE, "prompt"); /* 129 choices */
}
END_TEST

static void context_case(size_t n, const char *more, bool ok)
{
    struct api_job j;
    struct buf b = {0};
    buf_adds(&b, "{\"model\":\"tiny\",\"prompt\":[");
    for (size_t i = 0; i < n; i++) buf_adds(&b, i ? ",9" : "9");
    buf_addf(&b, "]%s}", more);
    run_body(&j, ENDPOINT_COMPLETION, b.p, b.len);
    ck_assert_msg(j.failed == !ok, "%zu ids%s: %s", n, more, j.err.msg);
    if (!ok) {
        char number[32];
        ck_assert_int_eq(j.err.code, ERR_CONTEXT_LENGTH);
        snprintf(number, sizeof number, "%zu", n);
        ck_assert_ptr_nonnull(strstr(j.err.msg, number));
        ck_assert_ptr_nonnull(strstr(j.err.msg, "2048"));
    }
    api_job_deinit(&j);
    buf_deinit(&b);
}

START_TEST(context)
{
    context_case(TINY_CTX - 2, "", true);
    context_case(TINY_CTX - 1, "", true);
    context_case(TINY_CTX, "", false);
    context_case(TINY_CTX, ",\"echo\":true,\"max_tokens\":0", true);
    context_case(TINY_CTX + 1, ",\"echo\":true,\"max_tokens\":0", false);
    context_case(TINY_CTX * 4 + 17, "", false);
    context_case(TINY_CTX - 100, ",\"max_tokens\":1000", true); /* clipped later */
    struct api_job j;
    struct buf b = {0};
    buf_adds(&b, "{\"model\":\"tiny\",\"prompt\":\"");
    for (size_t i = 0; i < 200000; i++) buf_addc(&b, (char)('a' + i * 7 % 26));
    buf_adds(&b, "\"}");
    run_body(&j, ENDPOINT_COMPLETION, b.p, b.len);
    ck_assert_int_eq(j.err.code, ERR_CONTEXT_LENGTH);
    api_job_deinit(&j);
    buf_deinit(&b);
}
END_TEST

START_TEST(echo_text)
{
    struct api_job j;
    run_fields(&j, ENDPOINT_COMPLETION, "\"prompt\":\"hello\",\"echo\":true");
    ck_assert_uint_eq(j.prompts[0].n_text, 5);
    ck_assert_int_eq(memcmp(j.prompts[0].text, "hello", 5), 0);
    api_job_deinit(&j);
    run_fields(&j, ENDPOINT_COMPLETION, "\"prompt\":[108,109],\"echo\":true"); /* bytes 'h' 'i' */
    ck_assert_uint_eq(j.prompts[0].n_text, 2);
    ck_assert_int_eq(memcmp(j.prompts[0].text, "hi", 2), 0);
    api_job_deinit(&j);
    run_fields(&j, ENDPOINT_COMPLETION, "\"prompt\":\"hello\"");
    ck_assert_ptr_null(j.prompts[0].text);
    api_job_deinit(&j);
}
END_TEST

START_TEST(chat)
{
    struct api_job j;
    run_fields(&j, ENDPOINT_CHAT, "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]");
    ck_assert_msg(!j.failed, "%s", j.err.msg);
    size_t with = j.prompts[0].ids.n;
    api_job_deinit(&j);
    run_fields(
        &j, ENDPOINT_CHAT,
        "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"add_generation_prompt\":false");
    ck_assert_uint_lt(j.prompts[0].ids.n, with);
    api_job_deinit(&j);
    run_fields(&j, ENDPOINT_TOKENIZE, "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]");
    char want[64];
    snprintf(want, sizeof want, "{\"count\":%zu,", with); /* the same ids as a chat would use */
    ck_assert_int_eq(strncmp(buf_str(&j.reply), want, strlen(want)), 0);
    api_job_deinit(&j);
    run_fields(&j, ENDPOINT_CHAT, "\"prompt\":\"x\"");
    ck_assert_int_eq(j.err.code, ERR_MISSING);
    ck_assert_str_eq(j.err.param, "messages");
    api_job_deinit(&j);
}
END_TEST

static void tokenizes(enum endpoint endpoint, const char *fields, const char *want)
{
    struct api_job j;
    char body[512];
    snprintf(body, sizeof body, "{%s}", fields); /* the model may be left out here */
    run_body(&j, endpoint, body, strlen(body));
    ck_assert_msg(!j.failed, "%s: %s", fields, j.err.msg);
    ck_assert_str_eq(buf_str(&j.reply), want);
    api_job_deinit(&j);
}

START_TEST(tokenize)
{
    tokenizes(ENDPOINT_TOKENIZE, "\"prompt\":\"hi\"",
              "{\"count\":2,\"max_model_len\":2048,\"tokens\":[108,109],\"token_strs\":null}");
    tokenizes(ENDPOINT_TOKENIZE, "\"content\":\"\"",
              "{\"count\":0,\"max_model_len\":2048,\"tokens\":[],\"token_strs\":null}");
    tokenizes(ENDPOINT_TOKENIZE, "\"prompt\":\"\\u20ac\",\"return_token_strs\":true",
              "{\"count\":3,\"max_model_len\":2048,\"tokens\":[230,134,176],"
              "\"token_strs\":[\"\xef\xbf\xbd\",\"\xef\xbf\xbd\",\"\xef\xbf\xbd\"]}");
    tokenizes(ENDPOINT_DETOKENIZE, "\"tokens\":[108,109]",
              "{\"prompt\":\"hi\",\"content\":\"hi\"}");
    tokenizes(ENDPOINT_DETOKENIZE, "\"tokens\":[]", "{\"prompt\":\"\",\"content\":\"\"}");
    tokenizes(ENDPOINT_DETOKENIZE, "\"tokens\":[230,134,176,230]",
              "{\"prompt\":\"\xe2\x82\xac\xef\xbf\xbd\",\"content\":\"\xe2\x82\xac\xef\xbf\xbd\"}");
    static const struct { enum endpoint endpoint; const char *body; enum err_code code; } bad[] = {
        {ENDPOINT_TOKENIZE, "{}", ERR_MISSING},
        {ENDPOINT_TOKENIZE, "{\"prompt\":5}", ERR_BAD_TYPE},
        {ENDPOINT_TOKENIZE, "{\"model\":\"x\",\"prompt\":\"\"}", ERR_MODEL_NOT_FOUND},
        {ENDPOINT_DETOKENIZE, "{}", ERR_MISSING},
        {ENDPOINT_DETOKENIZE, "{\"tokens\":\"x\"}", ERR_BAD_TYPE},
        {ENDPOINT_DETOKENIZE, "{\"tokens\":[300]}", ERR_BAD_VALUE},
        {ENDPOINT_DETOKENIZE, "{\"tokens\":[\"a\"]}", ERR_BAD_TYPE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct api_job j;
        run_body(&j, bad[i].endpoint, bad[i].body, strlen(bad[i].body));
        ck_assert_msg(j.failed && j.err.code == bad[i].code, "%s: %s", bad[i].body,
                      err_name(j.err.code));
        api_job_deinit(&j);
    }
}
END_TEST

/* Each allocation made to fail once: an error, no leak, no crash. */
START_TEST(no_memory)
{
    static const char body[] =
        "{\"model\":\"tiny\",\"prompt\":[\"hello\",[1,2]],\"echo\":true,\"stop\":[\"a\",\"b\"],"
        "\"logit_bias\":{\"5\":1}}";
    for (uint64_t nth = 1; nth < 200; nth++) {
        struct api_job j;
        struct request_in in = {.endpoint = ENDPOINT_COMPLETION, .n_body = sizeof body - 1};
        in.body = mem_memdup(body, sizeof body);
        api_job_init(&j, &model, &limits, &in);
        mem_fail_nth(nth);
        api_job_work(&j, scratch);
        mem_fail_nth(0);
        bool failed = j.failed;
        if (failed) ck_assert_int_eq(j.err.code, ERR_NO_MEMORY);
        api_job_deinit(&j);
        if (!failed && nth > 20) break;
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("api_job");
    TCase *t = tcase_create("job");
    if (tiny_text_model_open(&model, "tiny") != 0) return 1;
    tiny_text_limits(&limits, &model);
    scratch = tokenizer_scratch_create(model.tok);
    tcase_add_test(t, prompt_shapes);
    tcase_add_test(t, prompt_refusals);
    tcase_add_test(t, context);
    tcase_add_test(t, echo_text);
    tcase_add_test(t, chat);
    tcase_add_test(t, tokenize);
    tcase_add_test(t, no_memory);
    suite_add_tcase(s, t);
    int r = test_run(s);
    tokenizer_scratch_destroy(&scratch);
    model_close(&model);
    return r;
}
