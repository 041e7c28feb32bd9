/* The real model opened whole: every chat of the reference gives the reference's prompt ids. */
#include "model/model.h"

#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <stdio.h>
#include <string.h>

static struct model model;
static struct tokenizer_scratch *scratch;

static void open_all(void)
{
    struct err e;
    ck_assert_msg(model_open(&model, test_model_path(), "m", &e) == 0, "%s", e.msg);
    scratch = tokenizer_scratch_create(model.tok);
    ck_assert_ptr_nonnull(scratch);
}

static void close_all(void)
{
    tokenizer_scratch_destroy(&scratch);
    model_close(&model);
}

static void check_chat(const json_t *line)
{
    const json_t *want = json_object_get(line, "prompt_ids");
    const char *name = json_string_value(json_object_get(line, "name"));
    struct id_list l = {0};
    struct err e;
    int rc = model_chat_ids(&model, scratch, json_object_get(line, "messages"), true, 0, &l, &e);
    ck_assert_msg(rc == 0, "%s: %s", name, e.msg);
    ck_assert_msg(l.n == json_array_size(want), "%s: %zu ids", name, l.n);
    for (size_t i = 0; i < l.n; i++)
        ck_assert_msg(l.ids[i] == json_integer_value(json_array_get(want, i)), "%s: id %zu", name,
                      i);
    id_list_deinit(&l);
}

START_TEST(prompt_ids)
{
    char path[TEST_PATH_MAX + 32];
    int n = 0;
    snprintf(path, sizeof path, "%s/gold.jsonl", test_reference_dir());
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    for (json_t *line; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; n++) {
        check_chat(line);
        json_decref(line);
    }
    fclose(f);
    ck_assert_int_gt(n, 10);
}
END_TEST

START_TEST(facts)
{
    ck_assert_str_eq(model.name, "m");
    ck_assert_uint_eq(model.hp.n_layers, 30);
    ck_assert_uint_eq(model.hp.n_embd, 576);
    ck_assert_uint_eq(model.hp.n_ff, 1536);
    ck_assert(model.hp.n_heads == 9 && model.hp.n_kv_heads == 3 && model.hp.head_dim == 64);
    ck_assert_uint_eq(model.hp.n_ctx, 8192);
    ck_assert_float_eq(model.hp.rope_base, 100000.0f);
    ck_assert(model.hp.tied_head);
    ck_assert_uint_eq(hparams_kv_bytes_per_token(&model.hp), 23040);
}
END_TEST

int main(void)
{
    if (!test_model_path() || !test_reference_dir())
        return test_skip("the real model or the reference vectors are not here");
    Suite *s = suite_create("model_reference");
    TCase *c = tcase_create("all");
    tcase_add_unchecked_fixture(c, open_all, close_all);
    tcase_add_test(c, prompt_ids);
    tcase_add_test(c, facts);
    suite_add_tcase(s, c);
    return test_run(s);
}
