/* Stop strings: the earliest completion wins, the longest of those at one byte, and cutting the
 * text anywhere changes nothing. Random texts over a small alphabet are compared with a naive
 * search. */
#include "model/stop_match.h"

#include "base/hash.h"
#include "base/mem.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <string.h>

#define SEED 20251
#define ROUNDS 3000

static struct stop_set *make(const char *const *texts, uint32_t n) {
    struct stop_text t[STOP_MAX];
    for (uint32_t i = 0; i < n; i++)
        t[i] = (struct stop_text){texts[i], strlen(texts[i])};
    struct stop_set *s = stop_set_create(t, n);
    ck_assert_ptr_nonnull(s);
    return s;
}

/* Feeds all of `text`; "" when no stop completes, else the stop's range. */
static bool run(const struct stop_set *s, const char *text, size_t cut, uint64_t *start,
                uint64_t *end) {
    struct stop_state st = {0};
    size_t n = strlen(text);
    const uint8_t *p = (const uint8_t *)text;
    if (cut > n)
        cut = n;
    if (stop_feed(s, &st, p, cut, start, end))
        return true;
    return stop_feed(s, &st, p + cut, n - cut, start, end);
}

#define EXPECT(set, text, from, to)                                                                \
    do {                                                                                           \
        uint64_t a_ = 0, b_ = 0;                                                                   \
        for (size_t cut_ = 0; cut_ <= strlen(text); cut_++) {                                      \
            ck_assert(run(set, text, cut_, &a_, &b_));                                             \
            ck_assert_uint_eq(a_, from);                                                           \
            ck_assert_uint_eq(b_, to);                                                             \
        }                                                                                          \
    } while (0)

START_TEST(first_to_complete_wins) {
    const char *texts[] = {"abcd", "bc", "STOP", "\n\n"};
    struct stop_set *s = make(texts, 4);
    EXPECT(s, "xxabcd", 3, 5); /* "bc" completes before "abcd" does */
    EXPECT(s, "SSTOP", 1, 5);
    EXPECT(s, "STOSTOP", 3, 7);
    EXPECT(s, "line\n\n\n", 4, 6);
    uint64_t a, b;
    ck_assert(!run(s, "abdacdSTO P\n \n", 3, &a, &b));
    stop_set_destroy(&s);
    ck_assert_ptr_null(s);
    stop_set_destroy(&s);
}
END_TEST

START_TEST(longest_at_one_byte) {
    const char *texts[] = {"c", "bc", "abc"};
    struct stop_set *s = make(texts, 3);
    EXPECT(s, "xabc", 1, 4);
    EXPECT(s, "xbc", 1, 3);
    EXPECT(s, "xc", 1, 2);
    stop_set_destroy(&s);
}
END_TEST

START_TEST(overlaps_fall_back) {
    const char *texts[] = {"aabaac", "ababa"};
    struct stop_set *s = make(texts, 2);
    EXPECT(s, "aabaabaac", 3, 9);
    EXPECT(s, "xababa", 1, 6);
    EXPECT(s, "abababa", 0, 5);
    stop_set_destroy(&s);
}
END_TEST

START_TEST(multibyte_and_nul) {
    struct stop_text t[] = {{"\xe2\x82\xac!", 4}, {"a\0b", 3}};
    struct stop_set *s = stop_set_create(t, 2);
    struct stop_state st = {0};
    uint64_t a, b;
    ck_assert(!stop_feed(s, &st, (const uint8_t *)"\xe2", 1, &a, &b));
    ck_assert_uint_eq(stop_held(s, &st), 1);
    ck_assert(!stop_feed(s, &st, (const uint8_t *)"\x82\xac", 2, &a, &b));
    ck_assert_uint_eq(stop_held(s, &st), 3);
    ck_assert(!stop_feed(s, &st, (const uint8_t *)"?a\0", 3, &a, &b));
    ck_assert_uint_eq(stop_held(s, &st), 2);
    ck_assert(stop_feed(s, &st, (const uint8_t *)"bzz", 3, &a, &b));
    ck_assert_uint_eq(a, 4);
    ck_assert_uint_eq(b, 7);
    stop_set_destroy(&s);
}
END_TEST

START_TEST(an_ignored_stop_is_fed_on) {
    const char *texts[] = {"abab"};
    struct stop_set *s = make(texts, 1);
    struct stop_state st = {0};
    uint64_t a, b;
    ck_assert(stop_feed(s, &st, (const uint8_t *)"ababab", 6, &a, &b));
    ck_assert_uint_eq(b, 4);
    ck_assert_uint_eq(stop_held(s, &st), 2); /* "ab" may begin another one */
    ck_assert(stop_feed(s, &st, (const uint8_t *)"ab", 2, &a, &b));
    ck_assert_uint_eq(a, 2);
    ck_assert_uint_eq(b, 6);
    stop_set_destroy(&s);
}
END_TEST

START_TEST(empty_set_counts_only) {
    struct stop_set *s = stop_set_create(NULL, 0);
    struct stop_state st = {0};
    uint64_t a, b;
    ck_assert(!stop_feed(s, &st, (const uint8_t *)"text", 4, &a, &b));
    ck_assert_uint_eq(st.fed, 4);
    ck_assert_uint_eq(stop_held(s, &st), 0);
    stop_set_destroy(&s);
}
END_TEST

START_TEST(longest_pattern_and_most_patterns) {
    static char big[STOP_BYTES_MAX];
    memset(big, 'a', sizeof(big));
    struct stop_text t[STOP_MAX];
    for (int i = 0; i < STOP_MAX; i++)
        t[i] = (struct stop_text){big, sizeof(big)};
    struct stop_set *s = stop_set_create(t, STOP_MAX);
    struct stop_state st = {0};
    uint64_t a, b;
    for (uint32_t i = 0; i < STOP_BYTES_MAX - 1; i++) {
        ck_assert(!stop_feed(s, &st, (const uint8_t *)"a", 1, &a, &b));
        ck_assert_uint_eq(stop_held(s, &st), i + 1);
    }
    ck_assert(stop_feed(s, &st, (const uint8_t *)"a", 1, &a, &b));
    ck_assert_uint_eq(a, 0);
    stop_set_destroy(&s);
}
END_TEST

START_TEST(no_memory) {
    struct stop_text t = {"x", 1};
    mem_fail_nth(1);
    ck_assert_ptr_null(stop_set_create(&t, 1));
    mem_fail_nth(0);
}
END_TEST

/* ---- against a naive search ---- */

struct rng {
    uint64_t n;
};

static uint32_t below(struct rng *r, uint32_t n) {
    return (uint32_t)(rand_at(SEED, r->n++) % n);
}

static bool naive(const struct stop_text *t, uint32_t n, const char *text, size_t len,
                  uint64_t *start, uint64_t *end) {
    for (size_t e = 1; e <= len; e++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < n; i++)
            if (t[i].n <= e && t[i].n > longest && memcmp(text + e - t[i].n, t[i].p, t[i].n) == 0)
                longest = t[i].n;
        if (longest == 0)
            continue;
        *start = e - longest;
        *end = e;
        return true;
    }
    return false;
}

static uint32_t naive_held(const struct stop_text *t, uint32_t n, const char *text, size_t len) {
    uint32_t held = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 1; k < t[i].n && k <= len; k++)
            if (k > held && memcmp(text + len - k, t[i].p, k) == 0)
                held = k;
    return held;
}

static void one_round(struct rng *r) {
    char store[STOP_MAX][8], text[64];
    struct stop_text t[STOP_MAX];
    uint32_t n = 1 + below(r, 4), len = 1 + below(r, sizeof(text));
    for (uint32_t i = 0; i < n; i++) {
        t[i] = (struct stop_text){store[i], 1 + below(r, 7)};
        for (size_t k = 0; k < t[i].n; k++)
            store[i][k] = (char)('a' + below(r, 2));
    }
    for (uint32_t k = 0; k < len; k++)
        text[k] = (char)('a' + below(r, 2 + below(r, 2)));
    struct stop_set *s = stop_set_create(t, n);
    struct stop_state st = {0};
    uint64_t a = 0, b = 0, wa = 0, wb = 0;
    bool want = naive(t, n, text, len, &wa, &wb), got = false;
    for (uint32_t at = 0; at < len && !got;) {
        uint32_t step = 1 + below(r, 4);
        if (step > len - at)
            step = len - at;
        got = stop_feed(s, &st, (const uint8_t *)text + at, step, &a, &b);
        at += step;
        if (!got)
            ck_assert_uint_eq(stop_held(s, &st), naive_held(t, n, text, at));
    }
    ck_assert_int_eq(got, want);
    ck_assert_uint_eq(a, wa);
    ck_assert_uint_eq(b, wb);
    stop_set_destroy(&s);
}

START_TEST(random_against_naive) {
    struct rng r = {0};
    printf("seed %d\n", SEED);
    for (int i = 0; i < ROUNDS; i++)
        one_round(&r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("stop_match");
    TCase *t = tcase_create("stop_match");
    tcase_add_test(t, first_to_complete_wins);
    tcase_add_test(t, longest_at_one_byte);
    tcase_add_test(t, overlaps_fall_back);
    tcase_add_test(t, multibyte_and_nul);
    tcase_add_test(t, an_ignored_stop_is_fed_on);
    tcase_add_test(t, empty_set_counts_only);
    tcase_add_test(t, longest_pattern_and_most_patterns);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, random_against_naive);
    suite_add_tcase(s, t);
    return test_run(s);
}
