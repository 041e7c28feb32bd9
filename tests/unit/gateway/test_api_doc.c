/* docs/API.md against the code: the table of errors row by row, and the names a client needs. */
#include "base/err.h"

#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *doc;

/* Codes that never reach a client of the API. */
static bool internal(enum err_code c)
{
    return c == ERR_OK || c == ERR_INVALID || c == ERR_PROTOCOL || c == ERR_IO || c == ERR_BAD_FILE;
}

START_TEST(errors)
{
    int rows = 0;
    for (int c = 0; c < ERR_COUNT; c++) {
        enum err_code code = (enum err_code)c;
        char row[200];
        if (internal(code)) continue;
        snprintf(row, sizeof row, "| `%s` | %d | %s | %s |", err_code_text(code),
                 err_http_status(code), err_type(code), err_retryable(code) ? "yes" : "no");
        ck_assert_msg(strstr(doc, row) != NULL, "docs/API.md lacks the row %s", row);
        rows++;
    }
    for (const char *p = strstr(doc, "| code | HTTP |"); p && (p = strstr(p, "\n| `")) != NULL; p++)
        rows--;
    ck_assert_msg(rows == 0, "docs/API.md has %d rows of errors that do not exist", -rows);
}
END_TEST

START_TEST(names)
{
    static const char *const words[] = {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/health",
        "/ready",
        "/live",
        "/ping",
        "/version",
        "/metrics",
        "X-Sluice-Class",
        "max_completion_tokens",
        "min_tokens",
        "stop_token_ids",
        "continuous_usage_stats",
        "skip_special_tokens",
        "include_stop_str_in_output",
        "repetition_penalty",
        "add_generation_prompt",
        "service_tier",
        "cache_salt",
        "cached_tokens",
        "top_logprobs",
        "logit_bias",
        "ignore_eos",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ck_assert_msg(strstr(doc, words[i]) != NULL, "docs/API.md does not name %s", words[i]);
    }
}
END_TEST

int main(void)
{
    char path[TEST_PATH_MAX];
    Suite *s = suite_create("api_doc");
    TCase *t = tcase_create("doc");
    snprintf(path, sizeof path, "%s/docs/API.md", test_source_dir());
    doc = test_read_file(path, NULL);
    if (doc == NULL) return 1;
    tcase_add_test(t, errors);
    tcase_add_test(t, names);
    suite_add_tcase(s, t);
    int r = test_run(s);
    free(doc);
    return r;
}
