/* Every field of a body: types, bounds, nulls, whole floats, big numbers; what is refused and under
 * which name. */
#include "gateway/api_params.h"

#include "tests/unit/gateway/gateway_rig.h"

#include <stdio.h>
#include <string.h>

static struct model model;
static struct api_limits limits;
static struct api_params p;
static struct err e;

/* One body in, p and e out. */
static int read_body(enum endpoint endpoint, const char *cls, const char *body)
{
    err_clear(&e);
    api_params_deinit(&p);
    json_t *o = api_parse_body(body, strlen(body), &e);
    if (o == NULL) return -1;
    int r = api_params_read(&p, endpoint, o, cls, NULL, &limits, &e);
    json_decref(o);
    return r;
}

static void taken(enum endpoint endpoint, const char *body)
{
    ck_assert_msg(read_body(endpoint, "", body) == 0, "%s: %s", body, e.msg);
}

static void refused(enum endpoint endpoint, const char *body, enum err_code code, const char *param)
{
    ck_assert_msg(read_body(endpoint, "", body) != 0, "%s was taken", body);
    ck_assert_msg(e.code == code, "%s: %s instead of %s (%s)", body, err_name(e.code),
                  err_name(code), e.msg);
    ck_assert_msg(strcmp(e.param, param) == 0, "%s: param '%s' instead of '%s'", body, e.param,
                  param);
    ck_assert_uint_gt(strlen(e.msg), 10);
}

START_TEST(defaults)
{
    taken(ENDPOINT_CHAT, "{}");
    ck_assert_int_eq(p.max_tokens, limits.default_max_tokens_chat);
    ck_assert_uint_eq(p.n, 1);
    ck_assert(!p.stream && !p.has_seed && !p.logprobs && !p.echo && !p.ignore_eos &&
              p.skip_special);
    ck_assert_double_eq(p.temperature, 1);
    ck_assert_double_eq(p.top_p, 1);
    ck_assert_int_eq(p.top_k, 0);
    ck_assert_int_eq(p.cls, CLASS_REALTIME);
    ck_assert_str_eq(p.tier, "");
    taken(ENDPOINT_COMPLETION, "{}");
    ck_assert_int_eq(p.max_tokens, 16);
}
END_TEST

/* null on every field is as if it were absent (B44). */
START_TEST(nulls)
{
    taken(ENDPOINT_CHAT, "{\"n\":null,\"max_tokens\":null,\"max_completion_tokens\":null,"
                         "\"temperature\":null,\"top_p\":null,"
                         "\"top_k\":null,\"min_p\":null,\"seed\":null,\"stop\":null,\"stop_token_"
                         "ids\":null,\"logprobs\":null,"
                         "\"top_logprobs\":null,\"logit_bias\":null,\"stream\":null,\"stream_"
                         "options\":null,\"tools\":null,"
                         "\"tool_choice\":null,\"response_format\":null,\"service_tier\":null,"
                         "\"presence_penalty\":null,"
                         "\"frequency_penalty\":null,\"repetition_penalty\":null,\"min_tokens\":"
                         "null,\"ignore_eos\":null,"
                         "\"priority\":null,\"functions\":null,\"audio\":null,\"modalities\":null,"
                         "\"best_of\":null}");
    ck_assert_int_eq(p.max_tokens, limits.default_max_tokens_chat);
    ck_assert_uint_eq(p.n_stops, 0);
}
END_TEST

struct bad { const char *body; enum err_code code; const char *param; };

static const struct bad bad_both[] = {
    {"{\"stream\":\"true\"}", ERR_BAD_TYPE, "stream"},
    {"{\"stream\":1}", ERR_BAD_TYPE, "stream"},
    {"{\"max_tokens\":\"256\"}", ERR_BAD_TYPE, "max_tokens"},
    {"{\"max_tokens\":2.5}", ERR_BAD_TYPE, "max_tokens"},
    {"{\"max_tokens\":1e300}", ERR_BAD_TYPE, "max_tokens"},
    {"{\"max_tokens\":9223372036854775807}", ERR_BAD_VALUE, "max_tokens"},
    {"{\"max_tokens\":4294967297}", ERR_BAD_VALUE, "max_tokens"},
    {"{\"max_tokens\":-1}", ERR_BAD_VALUE, "max_tokens"},
    {"{\"max_tokens\":true}", ERR_BAD_TYPE, "max_tokens"},
    {"{\"max_tokens\":[5]}", ERR_BAD_TYPE, "max_tokens"},
    {"{\"n\":0}", ERR_BAD_VALUE, "n"},
    {"{\"n\":129}", ERR_BAD_VALUE, "n"},
    {"{\"n\":1.5}", ERR_BAD_TYPE, "n"},
    {"{\"best_of\":2}", ERR_UNSUPPORTED, "best_of"},
    {"{\"min_tokens\":-1}", ERR_BAD_VALUE, "min_tokens"},
    {"{\"min_tokens\":6,\"max_tokens\":5}", ERR_BAD_VALUE, "min_tokens"},
    {"{\"temperature\":\"1\"}", ERR_BAD_TYPE, "temperature"},
    {"{\"temperature\":-0.01}", ERR_BAD_VALUE, "temperature"},
    {"{\"temperature\":2.01}", ERR_BAD_VALUE, "temperature"},
    {"{\"top_p\":1.1}", ERR_BAD_VALUE, "top_p"},
    {"{\"top_p\":-1}", ERR_BAD_VALUE, "top_p"},
    {"{\"min_p\":2}", ERR_BAD_VALUE, "min_p"},
    {"{\"top_k\":-2}", ERR_BAD_VALUE, "top_k"},
    {"{\"top_k\":4294967296}", ERR_BAD_VALUE, "top_k"},
    {"{\"repetition_penalty\":0}", ERR_BAD_VALUE, "repetition_penalty"},
    {"{\"presence_penalty\":-2.1}", ERR_BAD_VALUE, "presence_penalty"},
    {"{\"frequency_penalty\":2.1}", ERR_BAD_VALUE, "frequency_penalty"},
    {"{\"seed\":\"x\"}", ERR_BAD_TYPE, "seed"},
    {"{\"seed\":1.5}", ERR_BAD_TYPE, "seed"},
    {"{\"stop\":5}", ERR_BAD_TYPE, "stop"},
    {"{\"stop\":\"\"}", ERR_BAD_VALUE, "stop"},
    {"{\"stop\":[\"a\",null]}", ERR_BAD_TYPE, "stop"},
    {"{\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", ERR_BAD_VALUE, "stop"},
    {"{\"stop_token_ids\":5}", ERR_BAD_TYPE, "stop_token_ids"},
    {"{\"stop_token_ids\":[151645]}", ERR_BAD_VALUE, "stop_token_ids"},
    {"{\"stop_token_ids\":[-1]}", ERR_BAD_VALUE, "stop_token_ids"},
    {"{\"stop_token_ids\":[4294967297]}", ERR_BAD_VALUE, "stop_token_ids"},
    {"{\"stop_token_ids\":[1.5]}", ERR_BAD_TYPE, "stop_token_ids"},
    {"{\"logit_bias\":[]}", ERR_BAD_TYPE, "logit_bias"},
    {"{\"logit_bias\":{\"300\":5}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\"AI\":-100}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\"\":1}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\" 5\":1}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\"-1\":1}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\"4294967297\":1}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\"99999999999999999999\":1}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\"5\":1000}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"logit_bias\":{\"5\":\"x\"}}", ERR_BAD_VALUE, "logit_bias"},
    {"{\"stream_options\":{\"include_usage\":true}}", ERR_BAD_VALUE, "stream_options"},
    {"{\"stream\":true,\"stream_options\":[]}", ERR_BAD_TYPE, "stream_options"},
    {"{\"stream\":true,\"stream_options\":{\"include_usage\":1}}", ERR_BAD_TYPE, "include_usage"},
    {"{\"service_tier\":\"gold\"}", ERR_BAD_VALUE, "service_tier"},
    {"{\"service_tier\":1}", ERR_BAD_TYPE, "service_tier"},
    {"{\"priority\":\"high\"}", ERR_BAD_TYPE, "priority"},
    {"{\"cache_salt\":1}", ERR_BAD_TYPE, "cache_salt"},
    {"{\"cache_salt\":\"\"}", ERR_BAD_VALUE, "cache_salt"},
    {"{\"functions\":[]}", ERR_UNSUPPORTED, "functions"},
    {"{\"suffix\":\"x\"}", ERR_UNSUPPORTED, "suffix"},
    {"{\"guided_json\":{}}", ERR_UNSUPPORTED, "guided_json"},
    {"{\"use_beam_search\":true}", ERR_UNSUPPORTED, "use_beam_search"},
    {"{\"modalities\":[\"audio\"]}", ERR_UNSUPPORTED, "modalities"},
    {"{\"tools\":{}}", ERR_BAD_TYPE, "tools"},
    {"{\"tools\":[]}", ERR_BAD_VALUE, "tools"},
    {"{\"tools\":[{\"type\":\"function\"}]}", ERR_UNSUPPORTED, "tools"},
    {"{\"tool_choice\":\"auto\"}", ERR_BAD_VALUE, "tool_choice"},
    {"{\"response_format\":\"text\"}", ERR_BAD_VALUE, "response_format"},
    {"{\"response_format\":{\"type\":\"json_schema\"}}", ERR_MISSING, "response_format"},
    {"{\"response_format\":{\"type\":\"json_object\"}}", ERR_UNSUPPORTED, "response_format"},
    {"{\"ignore_eos\":0}", ERR_BAD_TYPE, "ignore_eos"},
    {"{\"skip_special_tokens\":\"no\"}", ERR_BAD_TYPE, "skip_special_tokens"},
    {"{\"include_stop_str_in_output\":[]}", ERR_BAD_TYPE, "include_stop_str_in_output"},
};

START_TEST(wrong_values)
{
    for (size_t i = 0; i < sizeof bad_both / sizeof *bad_both; i++) {
        refused(ENDPOINT_CHAT, bad_both[i].body, bad_both[i].code, bad_both[i].param);
        refused(ENDPOINT_COMPLETION, bad_both[i].body, bad_both[i].code, bad_both[i].param);
    }
}
END_TEST

/* 256 bytes are the most, of any kind; they are the request's own copy. */
START_TEST(salts)
{
    char body[300];
    taken(ENDPOINT_CHAT, "{\"cache_salt\":null}");
    ck_assert_ptr_null(p.cache_salt);
    taken(ENDPOINT_COMPLETION, "{\"cache_salt\":\"a\\u0000|b\"}");
    ck_assert_uint_eq(p.n_cache_salt, 4);
    ck_assert_mem_eq(p.cache_salt, "a\0|b", 4);
    for (int n = MSG_SALT_MAX; n <= MSG_SALT_MAX + 1; n++) {
        snprintf(body, sizeof body, "{\"cache_salt\":\"%0*d\"}", n, 0);
        if (n == MSG_SALT_MAX) taken(ENDPOINT_CHAT, body);
        else refused(ENDPOINT_CHAT, body, ERR_BAD_VALUE, "cache_salt");
    }
}
END_TEST

START_TEST(whole_floats)
{
    taken(ENDPOINT_CHAT, "{\"max_tokens\":5.0,\"n\":2.0,\"top_k\":4e1,\"seed\":-3.0}");
    ck_assert_int_eq(p.max_tokens, 5);
    ck_assert_uint_eq(p.n, 2);
    ck_assert_int_eq(p.top_k, 40);
    ck_assert(p.has_seed && p.seed == (uint64_t)-3);
    taken(ENDPOINT_CHAT, "{\"max_tokens\":1e2}");
    ck_assert_int_eq(p.max_tokens, 100);
    taken(ENDPOINT_CHAT, "{\"seed\":9223372036854775807}");
    ck_assert(p.seed == INT64_MAX);
    taken(ENDPOINT_CHAT, "{\"seed\":-9223372036854775808}");
    ck_assert(p.seed == (uint64_t)INT64_MIN);
    refused(ENDPOINT_CHAT, "{\"seed\":9223372036854775808}", ERR_BAD_JSON, "");
    refused(ENDPOINT_CHAT, "{\"temperature\":1e400}", ERR_BAD_JSON, "");
}
END_TEST

START_TEST(max_tokens_rules)
{
    taken(ENDPOINT_CHAT, "{\"max_tokens\":7,\"max_completion_tokens\":3}");
    ck_assert_int_eq(p.max_tokens, 3); /* the newer name wins */
    refused(ENDPOINT_CHAT, "{\"max_completion_tokens\":0}", ERR_BAD_VALUE, "max_completion_tokens");
    refused(ENDPOINT_COMPLETION, "{\"max_tokens\":0}", ERR_BAD_VALUE, "max_tokens");
    taken(ENDPOINT_COMPLETION, "{\"max_tokens\":0,\"echo\":true}");
    ck_assert_int_eq(p.max_tokens, 0);
    refused(ENDPOINT_CHAT, "{\"max_tokens\":0,\"echo\":true}", ERR_BAD_VALUE,
            "max_tokens"); /* chat has no echo */
}
END_TEST

START_TEST(logprobs_forms)
{
    taken(ENDPOINT_CHAT, "{\"logprobs\":true,\"top_logprobs\":20,\"logit_bias\":{\"284\":-100}}");
    ck_assert(p.logprobs && p.n_top == 20 && p.n_bias == 1 && p.bias[0].id == 284);
    taken(ENDPOINT_CHAT, "{\"logprobs\":true,\"top_logprobs\":0}");
    ck_assert(p.logprobs && p.n_top == 0);
    refused(ENDPOINT_CHAT, "{\"logprobs\":true,\"top_logprobs\":21}", ERR_BAD_VALUE,
            "top_logprobs");
    refused(ENDPOINT_CHAT, "{\"logprobs\":true,\"top_logprobs\":-1}", ERR_BAD_VALUE,
            "top_logprobs");
    refused(ENDPOINT_CHAT, "{\"top_logprobs\":2}", ERR_BAD_VALUE, "top_logprobs");
    refused(ENDPOINT_CHAT, "{\"logprobs\":5}", ERR_BAD_TYPE, "logprobs");
    taken(ENDPOINT_COMPLETION, "{\"logprobs\":0}");
    ck_assert(p.logprobs && p.n_top == 0);
    taken(ENDPOINT_COMPLETION, "{\"logprobs\":6}");
    ck_assert(p.logprobs && p.n_top == 6);
    refused(ENDPOINT_COMPLETION, "{\"logprobs\":21}", ERR_BAD_VALUE, "logprobs");
    refused(ENDPOINT_COMPLETION, "{\"logprobs\":true}", ERR_BAD_TYPE, "logprobs");
}
END_TEST

START_TEST(stops)
{
    taken(ENDPOINT_CHAT, "{\"stop\":\"a\\u0000b\"}");
    ck_assert_uint_eq(p.n_stops, 1);
    ck_assert_uint_eq(p.stops[0].n, 3);
    ck_assert_int_eq(memcmp(p.stops[0].p, "a\0b", 3), 0);
    taken(ENDPOINT_CHAT, "{\"stop\":[],\"stop_token_ids\":[]}");
    ck_assert_uint_eq(p.n_stops, 0);
    taken(ENDPOINT_CHAT, "{\"stop\":[\"x\",\"yy\"],\"stop_token_ids\":[299,0.0]}");
    ck_assert(p.n_stops == 2 && p.n_stop_ids == 2 && p.stop_ids[0] == 299 && p.stop_ids[1] == 0);
    char body[1200];
    memset(body, 'x', sizeof body);
    memcpy(body, "{\"stop\":\"", 9);
    memcpy(body + 9 + 1025, "\"}", 3);
    refused(ENDPOINT_CHAT, body, ERR_BAD_VALUE, "stop");
    memcpy(body + 9 + 1024, "\"}", 3);
    taken(ENDPOINT_CHAT, body);
    ck_assert_uint_eq(p.stops[0].n, 1024);
}
END_TEST

START_TEST(classes)
{
    static const struct { const char *cls, *body; int want; const char *tier;
    } rows[] = {
        {"", "{}", CLASS_REALTIME, ""},
        {"", "{\"service_tier\":\"flex\"}", CLASS_BATCH, "flex"},
        {"", "{\"service_tier\":\"auto\"}", CLASS_REALTIME, "default"},
        {"", "{\"service_tier\":\"default\"}", CLASS_REALTIME, "default"},
        {"", "{\"service_tier\":\"priority\"}", CLASS_REALTIME, "priority"},
        {"batch", "{}", CLASS_BATCH, ""},
        {"batch", "{\"service_tier\":\"priority\"}", CLASS_BATCH,
         "flex"}, /* the tier really used */
        {"realtime", "{\"service_tier\":\"flex\"}", CLASS_REALTIME, "default"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_int_eq(read_body(ENDPOINT_CHAT, rows[i].cls, rows[i].body), 0);
        ck_assert_int_eq(p.cls, rows[i].want);
        ck_assert_str_eq(p.tier, rows[i].tier);
    }
    ck_assert_int_ne(read_body(ENDPOINT_CHAT, "gold", "{}"), 0);
    ck_assert_int_eq(e.code, ERR_BAD_VALUE);
    ck_assert_str_eq(e.param, "X-Sluice-Class");
}
END_TEST

START_TEST(ignored_fields)
{
    taken(ENDPOINT_CHAT,
          "{\"user\":\"u\",\"metadata\":{},\"store\":true,\"cache_salt\":\"x\",\"whatever\":[1,{}],"
          "\"tools\":[{\"type\":\"function\"}],\"tool_choice\":\"none\",\"priority\":-3,"
          "\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"use_beam_search\":"
          "false}");
}
END_TEST

/* Bodies that are no JSON object (B40, B41, B44). */
START_TEST(bodies)
{
    static const char *const broken[] = {"",
                                         " ",
                                         "[]",
                                         "null",
                                         "5",
                                         "\"x\"",
                                         "{",
                                         "{}x",
                                         "{\"a\":1,\"a\":2}",
                                         "{\"a\":01}",
                                         "{\"x\":\"\\ud83d\"}",
                                         "{\"x\":\"\\udc00 x\"}",
                                         "{\"x\":\"\xff\"}",
                                         "{'a':1}",
                                         "{\"a\":NaN}",
                                         "\xef\xbb\xbf{}",
                                         "{\"x\":\"\\ud83d\\u0041\"}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        refused(ENDPOINT_CHAT, broken[i], ERR_BAD_JSON, "");
    taken(ENDPOINT_CHAT, "{\"stop\":\"\\ud83d\\ude00\"}");
    ck_assert_uint_eq(p.stops[0].n, 4);
}
END_TEST

/* Nesting and number of values are bounded before the parser works (B40). */
START_TEST(deep_and_wide)
{
    static char body[6000000];
    const int depths[] = {62, 63, 64, 10000, 200000};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        for (int braces = 0; braces < 2; braces++) {
            size_t n = (size_t)sprintf(body, "{\"x\":");
            for (int k = 0; k < depths[i]; k++)
                n += (size_t)sprintf(body + n, braces ? "{\"a\":" : "[");
            n += (size_t)sprintf(body + n, "1");
            for (int k = 0; k < depths[i]; k++) body[n++] = braces ? '}' : ']';
            strcpy(body + n, "}");
            if (depths[i] < 64) taken(ENDPOINT_CHAT, body);
            else refused(ENDPOINT_CHAT, body, ERR_BAD_JSON, "");
        }
    }
    size_t n = (size_t)sprintf(body, "{\"x\":[0");
    for (int k = 0; k < (2 << 20); k++) n += (size_t)sprintf(body + n, ",0");
    strcpy(body + n, "]}");
    refused(ENDPOINT_CHAT, body, ERR_BAD_JSON, "");
    taken(ENDPOINT_CHAT, "{\"x\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                         "[[[[[[[[[\\\"[[[[\"}");
}
END_TEST

START_TEST(model_field)
{
    static const struct {
        const char *body;
        bool required;
        int want;
        enum err_code code;
    } rows[] = {
        {"{\"model\":\"tiny\"}", true, 0, ERR_OK},
        {"{}", true, -1, ERR_MISSING},
        {"{\"model\":null}", true, -1, ERR_MISSING},
        {"{}", false, 0, ERR_OK},
        {"{\"model\":5}", true, -1, ERR_BAD_TYPE},
        {"{\"model\":\"gpt\"}", false, -1, ERR_MODEL_NOT_FOUND},
        {"{\"model\":\"tiny\\u0000\"}", true, -1, ERR_MODEL_NOT_FOUND},
        {"{\"model\":\"\"}", true, -1, ERR_MODEL_NOT_FOUND},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err_clear(&e);
        json_t *o = api_parse_body(rows[i].body, strlen(rows[i].body), &e);
        ck_assert_int_eq(api_check_model(o, &limits, rows[i].required, &e), rows[i].want);
        ck_assert_int_eq(e.code, rows[i].code);
        if (rows[i].want != 0) ck_assert_str_eq(e.param, "model");
        json_decref(o);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("api_params");
    TCase *t = tcase_create("fields");
    if (tiny_text_model_open(&model, "tiny") != 0) return 1;
    tiny_text_limits(&limits, &model);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, defaults);
    tcase_add_test(t, nulls);
    tcase_add_test(t, wrong_values);
    tcase_add_test(t, salts);
    tcase_add_test(t, whole_floats);
    tcase_add_test(t, max_tokens_rules);
    tcase_add_test(t, logprobs_forms);
    tcase_add_test(t, stops);
    tcase_add_test(t, classes);
    tcase_add_test(t, ignored_fields);
    tcase_add_test(t, bodies);
    tcase_add_test(t, deep_and_wide);
    tcase_add_test(t, model_field);
    suite_add_tcase(s, t);
    int r = test_run(s);
    api_params_deinit(&p);
    model_close(&model);
    return r;
}
