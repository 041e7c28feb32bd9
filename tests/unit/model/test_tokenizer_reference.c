/* The real model's tokenizer against the reference vectors, and long texts. */
#include "model/tokenizer.h"

#include "base/buf.h"
#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct gguf *gguf;
static struct vocab *vocab;
static struct tokenizer *tok;
static struct tokenizer_scratch *scratch;

static void open_all(void)
{
    struct err e;
    ck_assert_msg(gguf_open(&gguf, test_model_path(), &e) == 0, "%s", e.msg);
    ck_assert_msg(vocab_create(&vocab, gguf, &e) == 0, "%s", e.msg);
    ck_assert_msg(tokenizer_create(&tok, gguf, vocab, &e) == 0, "%s", e.msg);
    scratch = tokenizer_scratch_create(tok);
    ck_assert_ptr_nonnull(scratch);
}

static void close_all(void)
{
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tok);
    vocab_destroy(&vocab);
    gguf_close(&gguf);
}

static void encode(const char *text, size_t n, bool special, struct id_list *out)
{
    struct err e;
    ck_assert_msg(tokenizer_encode(tok, scratch, text, n, special, 0, out, &e) == 0, "%s", e.msg);
}

/* Text of the ids, as a stream shows it. */
static void decode(const struct id_list *l, struct buf *out)
{
    struct detok d = {0};
    for (size_t i = 0; i < l->n; i++) {
        size_t n;
        const uint8_t *p = detok_visible(vocab, l->ids[i], false, &n);
        detok_push(&d, p, n, out);
    }
    detok_end(&d, out);
}

static void check_ids(const json_t *line, const char *key, bool special, int number)
{
    const json_t *text = json_object_get(line, "text"), *want = json_object_get(line, key);
    struct id_list got = {0};
    struct buf back = {0};
    encode(json_string_value(text), json_string_length(text), special, &got);
    ck_assert_msg(got.n == json_array_size(want), "line %d, %s: %zu ids, not %zu", number, key,
                  got.n, json_array_size(want));
    for (size_t i = 0; i < got.n; i++)
        ck_assert_msg(got.ids[i] == json_integer_value(json_array_get(want, i)),
                      "line %d, %s: id %zu is %d", number, key, i, got.ids[i]);
    decode(&got, &back);
    ck_assert_msg(back.len == json_string_length(text) &&
                      memcmp(buf_str(&back), json_string_value(text), back.len) == 0,
                  "line %d, %s: the ids do not give the text back", number, key);
    id_list_deinit(&got);
    buf_deinit(&back);
}

START_TEST(reference_lines)
{
    char path[TEST_PATH_MAX + 32];
    int n = 0;
    snprintf(path, sizeof path, "%s/tokenizer.jsonl", test_reference_dir());
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    for (json_error_t je; !feof(f);) {
        json_t *line = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &je);
        if (!line)
            break;
        n++;
        check_ids(line, "ids", false, n);
        check_ids(line, "ids_special", true, n);
        json_decref(line);
    }
    fclose(f);
    ck_assert_int_eq(n, 137);
}
END_TEST

START_TEST(alice_round_trip)
{
    char path[TEST_PATH_MAX + 32];
    size_t n;
    struct id_list ids = {0};
    struct buf back = {0};
    snprintf(path, sizeof path, "%s/alice.txt", test_reference_dir());
    char *text = test_read_file(path, &n);
    ck_assert_ptr_nonnull(text);
    encode(text, n, false, &ids);
    decode(&ids, &back);
    ck_assert_uint_eq(back.len, n);
    ck_assert_int_eq(memcmp(buf_str(&back), text, n), 0);
    ck_assert_uint_lt(ids.n, n / 3);
    id_list_deinit(&ids);
    buf_deinit(&back);
    free(text);
}
END_TEST

/* 2 MB of one letter, of white space, of digits: one piece or millions; quadratic work would take
 * hours. */
START_TEST(huge_pieces)
{
    static const char fill[] = {'a', ' ', '7', '.', '\n'};
    size_t n = 2000000;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < sizeof fill; i++) {
        struct id_list ids = {0};
        struct buf back = {0};
        memset(text, fill[i], n);
        encode(text, n, true, &ids);
        decode(&ids, &back);
        ck_assert_uint_eq(back.len, n);
        ck_assert_int_eq(memcmp(buf_str(&back), text, n), 0);
        id_list_deinit(&ids);
        buf_deinit(&back);
    }
    free(text);
}
END_TEST

START_TEST(max_ids_stops)
{
    struct id_list ids = {0};
    struct err e;
    const char *text = "one two three <|im_end|> four";
    encode(text, strlen(text), true, &ids);
    size_t n = ids.n;
    for (size_t max = 1; max < n + 2; max++) {
        ids.n = 0;
        int rc = tokenizer_encode(tok, scratch, text, strlen(text), true, max, &ids, &e);
        ck_assert_int_eq(rc, max < n ? -1 : 0);
        if (rc != 0)
            ck_assert_int_eq(e.code, ERR_TOO_LARGE);
    }
    id_list_deinit(&ids);
}
END_TEST

/* Bytes without a token vanish and never become the file's unknown id, which is a control token. */
START_TEST(bytes_without_a_token)
{
    static const char text[] = "a\x04\xff\xc0"
                               "b\x06";
    struct id_list ids = {0};
    encode(text, sizeof text - 1, false, &ids);
    ck_assert_uint_eq(ids.n, 2);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert(!vocab_is_control(vocab, ids.ids[i]));
    id_list_deinit(&ids);
}
END_TEST

START_TEST(vocabulary_facts)
{
    size_t n;
    const int32_t *eog = vocab_eog(vocab, &n);
    ck_assert_int_eq(vocab_size(vocab), 49152);
    ck_assert_int_eq(vocab_eos(vocab), 2);
    ck_assert_int_eq(vocab_bos(vocab), 1);
    ck_assert(!vocab_add_bos(vocab));
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(eog[0], 0);
    ck_assert_int_eq(eog[1], 2);
    ck_assert_int_eq(vocab_find(vocab, "<|im_start|>", 12), 1);
    ck_assert_int_eq(vocab_find(vocab, "the", 3), -1);
    const uint8_t *p = vocab_bytes(vocab, 10813, &n);
    ck_assert(n == 2 && p[0] == 0xf0 && p[1] == 0x9f);
}
END_TEST

int main(void)
{
    if (!test_model_path() || !test_reference_dir())
        return test_skip("the real model or the reference vectors are not here");
    Suite *s = suite_create("tokenizer_reference");
    TCase *c = tcase_create("all");
    tcase_add_unchecked_fixture(c, open_all, close_all);
    tcase_set_timeout(c, 100);
    tcase_add_test(c, reference_lines);
    tcase_add_test(c, alice_round_trip);
    tcase_add_test(c, huge_pieces);
    tcase_add_test(c, max_ids_stops);
    tcase_add_test(c, bytes_without_a_token);
    tcase_add_test(c, vocabulary_facts);
    suite_add_tcase(s, c);
    return test_run(s);
}
