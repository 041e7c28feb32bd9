/* The streaming detokenizer: Python's errors="replace" is the oracle (vectors made with it), and a
 * stream cut anywhere gives the same text as the whole. */
#include "model/tokenizer.h"
#include "model/utf8.h"

#include "base/buf.h"
#include "base/hash.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <string.h>

#define R "\xef\xbf\xbd"

struct vector {
    const char *in;
    size_t n_in;
    const char *want;
    size_t n_want;
};
#define V(in, want)                                                                                \
    {                                                                                              \
        in, sizeof(in) - 1, want, sizeof(want) - 1                                                 \
    }

/* clang-format off */
static const struct vector vectors[] = {
    V("plain", "plain"),
    V("", ""),
    V("\xc3\xa9", "\xc3\xa9"),
    V("\xe2\x82\xac", "\xe2\x82\xac"),
    V("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"),
    V("a\x00" "b", "a\x00" "b"),
    V("\x80", R),
    V("\xbf\xbf", R R),
    V("\xc0\x80", R R),
    V("\xc1\xbf", R R),
    V("\xff", R),
    V("\xfe\xff", R R),
    V("\xf5\x80\x80\x80", R R R R),
    V("\xc3", R),
    V("\xc3" "a", R "a"),
    V("\xc3\xc3\xa9", R "\xc3\xa9"),
    V("\xe2", R),
    V("\xe2\x82", R),
    V("\xe2\x82" "a", R "a"),
    V("\xe2" "a", R "a"),
    V("\xe2\x82\xe2\x82\xac", R "\xe2\x82\xac"),
    V("\xe0\x80\x80", R R R),
    V("\xe0\x9f\xbf", R R R),
    V("\xe0\xa0\x80", "\xe0\xa0\x80"),
    V("\xed\xa0\x80", R R R),
    V("\xed\x9f\xbf", "\xed\x9f\xbf"),
    V("\xed\xbf\xbf", R R R),
    V("\xee\x80\x80", "\xee\x80\x80"),
    V("\xf0", R),
    V("\xf0\x9f", R),
    V("\xf0\x9f\x98", R),
    V("\xf0\x9f\x98" "a", R "a"),
    V("\xf0\x8f\xbf\xbf", R R R R),
    V("\xf0\x90\x80\x80", "\xf0\x90\x80\x80"),
    V("\xf0\x9f\x98\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80"),
    V("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"),
    V("\xf4\x90\x80\x80", R R R R),
    V("\xf4\x8f\xbf", R),
    V("\xf8\x88\x80\x80\x80", R R R R R),
    V("x\xf0\x9f\x98" "y\xe2\x82" "z\xc3", "x" R "y" R "z" R),
    V("\xe2\x82\x82\x82", "\xe2\x82\x82" R),
    V("\xc3\xa9\xa9", "\xc3\xa9" R),
    V("\xf1\x80\x80\xc3\xa9", R "\xc3\xa9"),
    V("\xef\xbf\xbd", R),
    V("\xef\xbf\xbe", "\xef\xbf\xbe"),
    V("\xf0\x80\x80" "A", R R R "A"),
    V("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf" "A", R R R R "A"),
    V("\xed\xa0\xbd\xed\xb8\x80", R R R R R R),
};
/* clang-format on */
#define N_VECTORS (sizeof vectors / sizeof vectors[0])

static void push_cut(const struct vector *v, size_t cut1, size_t cut2, struct buf *out)
{
    struct detok d = {0};
    const uint8_t *p = (const uint8_t *)v->in;
    buf_clear(out);
    detok_push(&d, p, cut1, out);
    detok_push(&d, p + cut1, cut2 - cut1, out);
    detok_push(&d, p + cut2, v->n_in - cut2, out);
    detok_end(&d, out);
}

START_TEST(vectors_cut_everywhere)
{
    struct buf out = {0};
    for (size_t i = 0; i < N_VECTORS; i++) {
        const struct vector *v = &vectors[i];
        for (size_t a = 0; a <= v->n_in; a++)
            for (size_t b = a; b <= v->n_in; b++) {
                push_cut(v, a, b, &out);
                ck_assert_msg(out.len == v->n_want && memcmp(buf_str(&out), v->want, out.len) == 0,
                              "vector %zu cut at %zu and %zu", i, a, b);
            }
    }
    buf_deinit(&out);
}
END_TEST

/* What is out is never taken back: after each byte the text so far is a prefix of the end's, and
 * whole. */
START_TEST(text_so_far_is_certain)
{
    struct buf out = {0};
    for (size_t i = 0; i < N_VECTORS; i++) {
        const struct vector *v = &vectors[i];
        struct detok d = {0};
        buf_clear(&out);
        for (size_t k = 0; k < v->n_in; k++) {
            detok_push(&d, (const uint8_t *)v->in + k, 1, &out);
            ck_assert_uint_le(out.len, v->n_want);
            ck_assert_int_eq(memcmp(buf_str(&out), v->want, out.len), 0);
            ck_assert_uint_eq(utf8_valid_prefix((const uint8_t *)buf_str(&out), out.len), out.len);
            ck_assert_uint_le(d.n_held, 3);
        }
    }
    buf_deinit(&out);
}
END_TEST

START_TEST(random_bytes_in_random_pieces)
{
    uint64_t seed = 11, c = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    struct buf whole = {0}, parts = {0};
    for (int round = 0; round < 2000; round++) {
        uint8_t p[40];
        size_t n = rand_at(seed, c++) % sizeof p;
        for (size_t i = 0; i < n; i++) { /* mostly lead and continuation bytes */
            uint64_t r = rand_at(seed, c++);
            p[i] = (uint8_t)(r % 4 == 0   ? r >> 8
                             : r % 4 == 1 ? 0xe0 | (r >> 8 & 31)
                                          : 0x80 | (r >> 8 & 63));
        }
        struct detok a = {0}, b = {0};
        buf_clear(&whole);
        buf_clear(&parts);
        detok_push(&a, p, n, &whole);
        detok_end(&a, &whole);
        for (size_t i = 0, k; i < n; i += k) {
            k = 1 + rand_at(seed, c++) % (n - i);
            detok_push(&b, p + i, k, &parts);
        }
        detok_end(&b, &parts);
        ck_assert_uint_eq(whole.len, parts.len);
        ck_assert_int_eq(memcmp(buf_str(&whole), buf_str(&parts), whole.len), 0);
        ck_assert_uint_eq(utf8_valid_prefix((const uint8_t *)whole.p, whole.len), whole.len);
    }
    buf_deinit(&whole);
    buf_deinit(&parts);
}
END_TEST

/* Every code point is whole UTF-8, surrogates and what lies above U+10FFFF are not. */
START_TEST(all_code_points)
{
    for (uint32_t cp = 0; cp < 0x200000; cp += cp < 0x11000 ? 1 : 37) {
        uint8_t s[4];
        unsigned n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        if (n == 1)
            s[0] = (uint8_t)cp;
        else
            s[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | cp >> 6 * (n - 1));
        for (unsigned i = 1; i < n; i++)
            s[i] = (uint8_t)(0x80 | (cp >> 6 * (n - 1 - i) & 63));
        bool good = cp <= 0x10ffff && !(cp >= 0xd800 && cp <= 0xdfff);
        ck_assert_msg(utf8_valid_prefix(s, n) == (good ? n : 0), "U+%04X", cp);
        if (n > 1)
            ck_assert_uint_eq(utf8_valid_prefix(s, n - 1), 0);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("detok");
    TCase *c = tcase_create("all");
    tcase_add_test(c, vectors_cut_everywhere);
    tcase_add_test(c, text_so_far_is_certain);
    tcase_add_test(c, random_bytes_in_random_pieces);
    tcase_add_test(c, all_code_points);
    suite_add_tcase(s, c);
    return test_run(s);
}
