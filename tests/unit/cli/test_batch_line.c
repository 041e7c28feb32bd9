/* One line of input and one of results: what is taken, what is refused, what is final. */
#include "cli/batch_line.h"
#include "cli/json_value.h"
#include "tests/common/test_run.h"

#include <string.h>

#define BODY "\"body\":{\"model\":\"m\"}"
#define POST "\"method\":\"POST\""
#define CHAT "\"url\":\"/v1/chat/completions\""

static struct batch_line l;
static struct err e;

static int parse(const char *text) {
    memset(&e, 0, sizeof(e));
    return batch_line_parse(&l, text, strlen(text), &e);
}

START_TEST(good_lines_are_taken) {
    ck_assert_int_eq(parse("{\"custom_id\":\"a\"," POST "," CHAT "," BODY "}"), 0);
    ck_assert_str_eq(l.custom_id, "a");
    ck_assert_str_eq(l.url, "/v1/chat/completions");
    batch_line_deinit(&l);
    ck_assert_int_eq(parse("{\"body\":{},\"url\":\"/v1/completions\"," POST
                           ",\"custom_id\":\"\xc3\xa4\",\"extra\":[1]}"), 0);
    ck_assert_uint_eq(l.n_custom_id, 2);
    batch_line_deinit(&l);
}
END_TEST

START_TEST(streaming_is_dropped_from_the_body) {
    ck_assert_int_eq(parse("{\"custom_id\":\"a\"," POST "," CHAT
                           ",\"body\":{\"stream\":true,\"n\":2,\"stream_options\":{}}}"), 0);
    ck_assert_uint_eq(json_object_size(l.body), 1);
    batch_line_deinit(&l);
}
END_TEST

START_TEST(broken_lines_say_what_is_wrong) {
    static const struct { const char *text, *word; } bad[] = {
        {"", "JSON"}, {"{", "JSON"}, {"[]", "object"}, {"{} {}", "JSON"}, {"{}", "custom_id"},
        {"{" POST "," CHAT "," BODY "}", "custom_id"},
        {"{\"custom_id\":7," POST "," CHAT "," BODY "}", "custom_id"},
        {"{\"custom_id\":\"\"," POST "," CHAT "," BODY "}", "custom_id"},
        {"{\"custom_id\":\"a\"," CHAT "," BODY "}", "method"},
        {"{\"custom_id\":\"a\",\"method\":\"GET\"," CHAT "," BODY "}", "method"},
        {"{\"custom_id\":\"a\",\"method\":\"post\"," CHAT "," BODY "}", "method"},
        {"{\"custom_id\":\"a\"," POST "," BODY "}", "url"},
        {"{\"custom_id\":\"a\"," POST ",\"url\":\"/v1/embeddings\"," BODY "}", "url"},
        {"{\"custom_id\":\"a\"," POST "," CHAT "}", "body"},
        {"{\"custom_id\":\"a\"," POST "," CHAT ",\"body\":[]}", "body"},
        {"{\"custom_id\":\"a\",\"custom_id\":\"b\"," POST "," CHAT "," BODY "}", "JSON"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(parse(bad[i].text) != 0, "%s was taken", bad[i].text);
        ck_assert_msg(strstr(e.msg, bad[i].word) != NULL, "%s: %s", bad[i].text, e.msg);
    }
}
END_TEST

START_TEST(deep_bodies_are_refused_here_not_at_the_door) {
    char text[1024] = "{\"custom_id\":\"a\"," POST "," CHAT ",\"body\":{\"x\":";
    size_t n = strlen(text);
    memset(text + n, '[', 100);
    memset(text + n + 100, ']', 100);
    memcpy(text + n + 200, "}}", 3);
    ck_assert_int_ne(parse(text), 0);
    ck_assert_ptr_nonnull(strstr(e.msg, "deep"));
}
END_TEST

static enum batch_verdict verdict(const char *text) {
    struct batch_result r;
    enum batch_verdict v = batch_result_parse(&r, text, strlen(text));
    if (v != BATCH_RESULT_BROKEN)
        batch_result_deinit(&r);
    return v;
}

START_TEST(results_are_final_or_not) {
#define R(status) "{\"custom_id\":\"a\",\"response\":{\"status_code\":" status ",\"body\":{}}}"
    ck_assert_int_eq(verdict(R("200")), BATCH_RESULT_DONE);
    ck_assert_int_eq(verdict(R("400")), BATCH_RESULT_FAILED);
    ck_assert_int_eq(verdict(R("404")), BATCH_RESULT_FAILED);
    ck_assert_int_eq(verdict(R("408")), BATCH_RESULT_RETRY);
    ck_assert_int_eq(verdict(R("429")), BATCH_RESULT_RETRY);
    ck_assert_int_eq(verdict(R("499")), BATCH_RESULT_RETRY);
    ck_assert_int_eq(verdict(R("500")), BATCH_RESULT_RETRY);
    ck_assert_int_eq(verdict(R("503")), BATCH_RESULT_RETRY);
    ck_assert_int_eq(verdict(R("0")), BATCH_RESULT_RETRY);
    ck_assert_int_eq(verdict("{\"custom_id\":\"a\",\"response\":null,\"error\":{}}"),
                     BATCH_RESULT_RETRY);
    ck_assert_int_eq(verdict("{\"custom_id\":\"a\"}"), BATCH_RESULT_BROKEN);
    ck_assert_int_eq(verdict("{\"response\":{\"status_code\":200}}"), BATCH_RESULT_BROKEN);
    ck_assert_int_eq(verdict("{\"custom_id\":\"a\",\"respo"), BATCH_RESULT_BROKEN);
    ck_assert_int_eq(verdict(""), BATCH_RESULT_BROKEN);
}
END_TEST

START_TEST(a_result_is_one_line_that_reads_back) {
    struct buf out = {0};
    struct batch_result r;
    json_t *body = json_pack("{s:s,s:s}", "id", "chatcmpl-1", "text", "two\nlines");
    ck_assert_int_eq(batch_result_put(&out, "batch_req_1", "a\"\n", 3, 200, body), 0);
    ck_assert_int_eq(out.p[out.len - 1], '\n');
    ck_assert_ptr_eq(memchr(out.p, '\n', out.len), out.p + out.len - 1);
    ck_assert_int_eq(batch_result_parse(&r, out.p, out.len - 1), BATCH_RESULT_DONE);
    ck_assert_str_eq(r.custom_id, "a\"\n");
    const json_t *response = json_object_get(r.root, "response");
    ck_assert_str_eq(json_string_value(json_object_get(r.root, "id")), "batch_req_1");
    ck_assert(json_is_null(json_object_get(r.root, "error")));
    ck_assert_str_eq(json_string_value(json_object_get(response, "request_id")), "chatcmpl-1");
    ck_assert(json_equal((json_t *)(uintptr_t)json_object_get(response, "body"), body));
    batch_result_deinit(&r);
    json_decref(body);
    buf_deinit(&out);
}
END_TEST

int main(void) {
    Suite *s = suite_create("batch_line");
    TCase *t = tcase_create("all");
    tcase_add_test(t, good_lines_are_taken);
    tcase_add_test(t, streaming_is_dropped_from_the_body);
    tcase_add_test(t, broken_lines_say_what_is_wrong);
    tcase_add_test(t, deep_bodies_are_refused_here_not_at_the_door);
    tcase_add_test(t, results_are_final_or_not);
    tcase_add_test(t, a_result_is_one_line_that_reads_back);
    suite_add_tcase(s, t);
    return test_run(s);
}
