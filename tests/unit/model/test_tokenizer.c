/* Vocabulary and tokenizer on the tiny model: against a merge loop written the obvious way, round
 * trips of any bytes, control tokens only where they are asked for. */
#include "model/pretok.h"
#include "model/tokenizer.h"

#include "base/buf.h"
#include "base/hash.h"
#include "tests/common/test_run.h"
#include "tests/tiny/tiny_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_ID(b)                                                                                 \
    (4 + (int32_t)(uint8_t)(b)) /* the tiny vocabulary: controls, then bytes, then merges */

static struct gguf *gguf;
static struct vocab *vocab;
static struct tokenizer *tok;
static struct tokenizer_scratch *scratch;
static void *bytes;
static size_t bytes_n;

static void setup(void)
{
    struct err e;
    bytes = tiny_model_bytes(TINY_SEED, &bytes_n);
    ck_assert_msg(gguf_open_mem(&gguf, bytes, bytes_n, &e) == 0, "%s", e.msg);
    ck_assert_msg(vocab_create(&vocab, gguf, &e) == 0, "%s", e.msg);
    ck_assert_msg(tokenizer_create(&tok, gguf, vocab, &e) == 0, "%s", e.msg);
    scratch = tokenizer_scratch_create(tok);
    ck_assert_ptr_nonnull(scratch);
    ck_assert_ptr_eq(tokenizer_vocab(tok), vocab);
}

static void teardown(void)
{
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tok);
    vocab_destroy(&vocab);
    gguf_close(&gguf);
    free(bytes);
}

static void encode(const char *text, size_t n, bool special, struct id_list *out)
{
    struct err e;
    out->n = 0;
    ck_assert_msg(tokenizer_encode(tok, scratch, text, n, special, 0, out, &e) == 0, "%s", e.msg);
}

static void expect_ids(const char *text, bool special, const int32_t *want, size_t n)
{
    struct id_list l = {0};
    encode(text, strlen(text), special, &l);
    ck_assert_msg(l.n == n, "'%s': %zu ids, not %zu", text, l.n, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(l.ids[i] == want[i], "'%s': id %zu is %d, not %d", text, i, l.ids[i],
                      want[i]);
    id_list_deinit(&l);
}
#define EXPECT(text, special, ...)                                                                 \
    expect_ids(text, special, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / 4)

static int32_t id_of(const char *token)
{
    for (int32_t id = 0; id < vocab_size(vocab); id++) {
        size_t n;
        const uint8_t *p = vocab_bytes(vocab, id, &n);
        if (n == strlen(token) && memcmp(p, token, n) == 0)
            return id;
    }
    ck_abort_msg("no token '%s'", token);
    return -1;
}

START_TEST(vocabulary)
{
    size_t n;
    const int32_t *eog = vocab_eog(vocab, &n);
    ck_assert_int_eq(vocab_size(vocab), TINY_VOCAB);
    ck_assert(n == 2 && eog[0] == TINY_ENDOFTEXT && eog[1] == TINY_IM_END);
    ck_assert_int_eq(vocab_eos(vocab), TINY_IM_END);
    ck_assert_int_eq(vocab_bos(vocab), TINY_IM_START);
    ck_assert(!vocab_add_bos(vocab));
    ck_assert_int_eq(vocab_find(vocab, "<|im_end|>", 10), TINY_IM_END);
    ck_assert_int_eq(vocab_find(vocab, "<|im_end|", 9), -1);
    ck_assert_int_eq(vocab_find(vocab, "the", 3), -1);
    ck_assert(vocab_is_control(vocab, 3) && !vocab_is_control(vocab, 4));
    ck_assert(!vocab_is_control(vocab, -1) && !vocab_is_control(vocab, TINY_VOCAB));
    for (int b = 0; b < 256; b++) {
        const uint8_t *p = vocab_bytes(vocab, BYTE_ID(b), &n);
        ck_assert(n == 1 && *p == b);
    }
    detok_visible(vocab, TINY_IM_END, true, &n);
    ck_assert_uint_eq(n, 0);
    ck_assert_int_eq(memcmp(detok_visible(vocab, TINY_IM_END, false, &n), "<|im_end|>", 10), 0);
    ck_assert_uint_eq(n, 10);
    detok_visible(vocab, BYTE_ID('x'), true, &n);
    ck_assert_uint_eq(n, 1);
}
END_TEST

/* HELLO compares this hash: whatever changes ids or bytes has to change it. */
START_TEST(vocabulary_hash)
{
    static const char *const changes[] = {"hello", "e \xc4\xa0", "smollm", "<|aside|>"};
    struct hash128 h = vocab_hash(vocab);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct gguf *g;
        struct vocab *v;
        struct err e;
        uint8_t *at = memmem(bytes, bytes_n, changes[i], strlen(changes[i]));
        ck_assert_ptr_nonnull(at);
        at[0] ^= 1;
        ck_assert_int_eq(gguf_open_mem(&g, bytes, bytes_n, &e), 0);
        ck_assert_msg(vocab_create(&v, g, &e) == 0, "%s", e.msg);
        ck_assert_msg(!hash128_equal(h, vocab_hash(v)), "change of '%s' is not seen", changes[i]);
        vocab_destroy(&v);
        gguf_close(&g);
        at[0] ^= 1;
    }
}
END_TEST

START_TEST(known_texts)
{
    EXPECT("x", false, BYTE_ID('x'));
    EXPECT("the", false, id_of("the"));
    EXPECT("hello", false, id_of("hello"));
    EXPECT(" the", false, id_of(" the"));
    EXPECT("4the", false, BYTE_ID('4'), id_of("the"));
    EXPECT("nation", false, BYTE_ID('n'), id_of("ation"));
}
END_TEST

START_TEST(control_tokens)
{
    EXPECT("<|im_end|>", true, TINY_IM_END);
    EXPECT("x<|im_end|><|im_start|>y", true, BYTE_ID('x'), TINY_IM_END, TINY_IM_START,
           BYTE_ID('y'));
    EXPECT("<|<|aside|>", true, BYTE_ID('<'), BYTE_ID('|'), 3);
    struct id_list l = {0};
    const char *text = "x<|im_end|><|endoftext|>";
    encode(text, strlen(text), false, &l);
    ck_assert_uint_gt(l.n, 15);
    for (size_t i = 0; i < l.n; i++)
        ck_assert(!vocab_is_control(vocab, l.ids[i]));
    id_list_deinit(&l);
    size_t at = 0, len;
    ck_assert_int_eq(tokenizer_next_control(tok, text, strlen(text), &at, &len), TINY_IM_END);
    ck_assert(at == 1 && len == 10);
    at += len;
    ck_assert_int_eq(tokenizer_next_control(tok, text, strlen(text), &at, &len), TINY_ENDOFTEXT);
    at += len;
    ck_assert_int_eq(tokenizer_next_control(tok, text, strlen(text), &at, &len), -1);
    ck_assert(at == strlen(text) && len == 0);
    at = 0;
    ck_assert_int_eq(tokenizer_next_control(tok, text, 10, &at, &len), -1);
}
END_TEST

/* Merging the obvious way: of all neighbours that have a merge, the lowest rank, then the leftmost.
 */
static size_t merge_slowly(const uint8_t *p, size_t n, int32_t *ids)
{
    int64_t n_merges = gguf_array_count(gguf, "tokenizer.ggml.merges");
    size_t count = n;
    for (size_t i = 0; i < n; i++)
        ids[i] = BYTE_ID(p[i]);
    for (int64_t rank = 0; rank < n_merges; rank++) {
        int32_t merged = 4 + 256 + (int32_t)rank; /* the tiny vocabulary lists them in this order */
        size_t whole, left;
        const uint8_t *m = vocab_bytes(vocab, merged, &whole);
        for (size_t i = 0; i + 1 < count; i++) {
            size_t right;
            const uint8_t *a = vocab_bytes(vocab, ids[i], &left),
                          *b = vocab_bytes(vocab, ids[i + 1], &right);
            struct gguf_str s;
            gguf_array_str(gguf, "tokenizer.ggml.merges", (uint64_t)rank, &s);
            size_t want_left = 0; /* bytes of the left side: \xc4\xa0 stands for one */
            for (size_t k = 0; s.p[k] != ' '; k++)
                want_left += (s.p[k] & 0xc0) != 0x80;
            if (left != want_left || left + right != whole || memcmp(a, m, left) ||
                memcmp(b, m + left, right))
                continue;
            ids[i] = merged;
            memmove(ids + i + 1, ids + i + 2, (count - i - 2) * sizeof *ids);
            count--;
            rank = -1; /* from the lowest rank again */
            break;
        }
    }
    return count;
}

static void check_slowly(const char *text, size_t n)
{
    struct id_list got = {0};
    struct pretok *p;
    struct err e;
    int32_t want[512];
    size_t count = 0, from;
    ck_assert_int_eq(pretok_create(&p, gguf, &e), 0);
    struct pretok_match *m = pretok_match_create(p);
    struct pretok_iter it;
    pretok_begin(&it, text, n);
    while (pretok_next(p, m, &it, &from) > 0)
        count += merge_slowly(it.p + from, it.at - from, want + count);
    encode(text, n, false, &got);
    ck_assert_msg(got.n == count && memcmp(got.ids, want, count * sizeof *want) == 0, "'%.*s'",
                  (int)n, text);
    id_list_deinit(&got);
    pretok_match_destroy(&m);
    pretok_destroy(&p);
}

START_TEST(equals_the_slow_merge)
{
    static const char alphabet[] = "heelloworldatiinngs  t\n4";
    uint64_t seed = 3, c = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 400; round++) {
        char text[200];
        size_t n = rand_at(seed, c++) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = alphabet[rand_at(seed, c++) % (sizeof alphabet - 1)];
        check_slowly(text, n);
    }
}
END_TEST

START_TEST(any_bytes_come_back)
{
    uint64_t seed = 5, c = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    struct id_list l = {0};
    struct buf back = {0};
    for (int round = 0; round < 500; round++) {
        char text[100];
        size_t n = rand_at(seed, c++) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(rand_at(seed, c++) >> (round % 8));
        encode(text, n, round % 2, &l);
        buf_clear(&back);
        for (size_t i = 0; i < l.n; i++) {
            size_t len;
            const uint8_t *p = vocab_bytes(vocab, l.ids[i], &len);
            buf_add(&back, p, len);
        }
        ck_assert_uint_eq(back.len, n);
        ck_assert_int_eq(memcmp(buf_str(&back), text, n), 0);
    }
    id_list_deinit(&l);
    buf_deinit(&back);
}
END_TEST

/* A pair that repeats for 300 KB: one piece, merged level by level; then small texts again. */
START_TEST(one_huge_piece)
{
    size_t n = 300000;
    char *text = malloc(n);
    struct id_list l = {0};
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < n; i++)
        text[i] = "lyre"[i % 4];
    encode(text, n, false, &l);
    ck_assert_uint_eq(l.n, n / 2);
    for (size_t i = 0; i < l.n; i++)
        ck_assert_int_eq(l.ids[i], i % 2 ? id_of("re") : id_of("ly"));
    EXPECT("the", false, id_of("the"));
    free(text);
    id_list_deinit(&l);
}
END_TEST

START_TEST(limit_of_ids)
{
    struct id_list l = {0};
    struct err e;
    ck_assert_int_eq(tokenizer_encode(tok, scratch, "1234", 4, true, 4, &l, &e), 0);
    ck_assert_int_eq(tokenizer_encode(tok, scratch, "", 0, true, 4, &l, &e), 0);
    ck_assert_int_eq(tokenizer_encode(tok, scratch, "5", 1, true, 4, &l, &e), -1);
    ck_assert_int_eq(e.code, ERR_TOO_LARGE);
    l.n = 0;
    ck_assert_int_eq(tokenizer_encode(tok, scratch, "12<|im_end|>", 12, true, 2, &l, &e), -1);
    ck_assert_int_eq(e.code, ERR_TOO_LARGE);
    id_list_deinit(&l);
}
END_TEST

struct job {
    const char *text;
    size_t n;
    const struct id_list *want;
    int bad;
};

static void *encode_thread(void *arg)
{
    struct job *j = arg;
    struct tokenizer_scratch *s = tokenizer_scratch_create(tok);
    for (int i = 0; s && i < 5; i++) {
        struct id_list l = {0};
        struct err e;
        if (tokenizer_encode(tok, s, j->text, j->n, false, 0, &l, &e) != 0 || l.n != j->want->n ||
            memcmp(l.ids, j->want->ids, l.n * sizeof *l.ids) != 0)
            j->bad++;
        id_list_deinit(&l);
    }
    j->bad += s == NULL;
    tokenizer_scratch_destroy(&s);
    return NULL;
}

START_TEST(threads_agree)
{
    static const char text[] =
        "Threads share one table: 4 of them, \u00e9\u00e8 it's \u65e5\u672c  done.\n";
    struct id_list want = {0};
    struct job jobs[4];
    pthread_t th[4];
    encode(text, sizeof text - 1, false, &want);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){text, sizeof text - 1, &want, 0};
        ck_assert_int_eq(pthread_create(&th[i], NULL, encode_thread, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(th[i], NULL);
        ck_assert_int_eq(jobs[i].bad, 0);
    }
    id_list_deinit(&want);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, vocabulary);
    tcase_add_test(c, vocabulary_hash);
    tcase_add_test(c, known_texts);
    tcase_add_test(c, control_tokens);
    tcase_add_test(c, equals_the_slow_merge);
    tcase_add_test(c, any_bytes_come_back);
    tcase_add_test(c, one_huge_piece);
    tcase_add_test(c, limit_of_ids);
    tcase_add_test(c, threads_agree);
    suite_add_tcase(s, c);
    return test_run(s);
}
