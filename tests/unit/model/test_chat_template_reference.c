/* The real model's own template makes every prompt of the reference, byte for byte. */
#include "model/chat_template.h"

#include "model/gguf.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <stdio.h>
#include <string.h>

static void check_line(const struct chat_template *t, const json_t *line)
{
    struct err e;
    struct chat_text x;
    const json_t *want = json_object_get(line, "prompt_text");
    const char *name = json_string_value(json_object_get(line, "name"));
    int rc = chat_template_render(t, json_object_get(line, "messages"), true, NULL, &x, &e);
    ck_assert_msg(rc == 0, "%s: %s", name, e.msg);
    ck_assert_msg(x.n == json_string_length(want) &&
                  !memcmp(x.text, json_string_value(want), x.n), "%s: %s", name, x.text);
    for (size_t i = 0; i < x.n_pieces; i++) /* turns are fenced by own text */
        ck_assert(x.pieces[i].own == !(i & 1));
    chat_text_deinit(&x);
}

START_TEST(prompts_of_the_reference)
{
    struct err e;
    struct gguf *g;
    struct gguf_str src;
    struct chat_template *t;
    char path[TEST_PATH_MAX];
    int lines = 0;
    ck_assert_msg(gguf_open(&g, test_model_path(), &e) == 0, "%s", e.msg);
    ck_assert_int_eq(gguf_get_str(g, "tokenizer.chat_template", &src), 0);
    ck_assert_msg(chat_template_create(&t, src.p, src.n, &e) == 0, "%s", e.msg);
    snprintf(path, sizeof path, "%s/gold.jsonl", test_reference_dir());
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    json_t *line;
    while ((line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        check_line(t, line);
        json_decref(line);
        lines++;
    }
    fclose(f);
    ck_assert_int_eq(lines, 17);
    chat_template_destroy(&t);
    gguf_close(&g);
}
END_TEST

int main(void)
{
    if (!test_model_path() || !test_reference_dir())
        return test_skip("the real model or the reference is absent");
    Suite *s = suite_create("chat_template_reference");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, prompts_of_the_reference);
    suite_add_tcase(s, t);
    return test_run(s);
}
