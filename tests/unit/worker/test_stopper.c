/* Where an answer ends, and how many of its bytes are seen: reasons in their order, min_total,
 * stops that straddle tokens, and a resumed sequence that ends exactly where the uninterrupted one
 * does. */
#include "tests/unit/worker/worker_rig.h"
#include "worker/stopper.h"

#include "base/hash.h"

#include <string.h>

#define SEED 77

static struct rig_model rig;

static void setup(void) {
    rig_model_open(&rig);
}
static void teardown(void) {
    rig_model_close(&rig);
}

static struct stop_set *stops_of(const char *a, const char *b) {
    struct stop_text t[2] = {{a, strlen(a)}, {b, b != NULL ? strlen(b) : 0}};
    return stop_set_create(t, b != NULL ? 2 : 1);
}

/* Pushes a text byte by byte from index `at` on; stops at the first finish. */
static enum finish push_text(const struct stop_rules *r, struct stopper *s, uint32_t at,
                             const char *text) {
    enum finish f = FINISH_NONE;
    for (size_t i = 0; text[i] != '\0' && f == FINISH_NONE; i++)
        f = stopper_push(rig.m.vocab, r, s, at + (uint32_t)i, RIG_BYTE(text[i]));
    return f;
}

START_TEST(end_ids_and_their_text) {
    struct stop_rules r = {.max_total = 100, .skip_special = true};
    struct stopper s = {0};
    ck_assert_int_eq(push_text(&r, &s, 5, "abc"), FINISH_NONE);
    ck_assert_uint_eq(s.visible, 3);
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 8, TINY_IM_END), FINISH_EOS);
    ck_assert_uint_eq(s.visible, 3);
    r.skip_special = false; /* visible or not, the end id's own text is not part of the answer */
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 8, TINY_ENDOFTEXT), FINISH_EOS);
    ck_assert_uint_eq(s.visible, 3);
}
END_TEST

START_TEST(ignored_eos_goes_on) {
    struct stop_rules r = {.max_total = 100, .ignore_eos = true, .skip_special = true};
    struct stopper s = {0};
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 5, TINY_IM_END), FINISH_NONE);
    ck_assert_uint_eq(s.visible, 0);
    r.skip_special = false;
    size_t n;
    vocab_bytes(rig.m.vocab, TINY_IM_END, &n);
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 6, TINY_IM_END), FINISH_NONE);
    ck_assert_uint_eq(s.visible, n);
}
END_TEST

START_TEST(stop_ids) {
    int32_t ids[] = {RIG_BYTE('x'), TINY_IM_END};
    struct stop_rules r = {.stop_ids = ids, .n_stop_ids = 2, .max_total = 100, .ignore_eos = true};
    struct stopper s = {0};
    ck_assert_int_eq(push_text(&r, &s, 5, "abx"), FINISH_STOP_ID);
    ck_assert_uint_eq(s.visible, 2);
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 8, TINY_IM_END), FINISH_STOP_ID);
    r.ignore_eos = false;
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 8, TINY_IM_END), FINISH_EOS);
}
END_TEST

START_TEST(stop_string_over_tokens) {
    struct stop_set *set = stops_of("END", "\xe2\x82\xac");
    struct stop_rules r = {.stops = set, .max_total = 100};
    struct stopper s = {0};
    ck_assert_int_eq(push_text(&r, &s, 5, "oh EN END"), FINISH_STOP_STRING);
    ck_assert_uint_eq(s.visible, 6);
    s = (struct stopper){0};
    r.include_stop = true;
    ck_assert_int_eq(push_text(&r, &s, 5, "oh EN END"), FINISH_STOP_STRING);
    ck_assert_uint_eq(s.visible, 9);
    s = (struct stopper){0}; /* a character over three tokens */
    r.include_stop = false;
    ck_assert_int_eq(push_text(&r, &s, 5, "1\xe2\x82\xac"), FINISH_STOP_STRING);
    ck_assert_uint_eq(s.visible, 1);
    stop_set_destroy(&set);
}
END_TEST

START_TEST(invisible_tokens_do_not_break_a_stop) {
    struct stop_set *set = stops_of("ab", NULL);
    struct stop_rules r = {
        .stops = set, .max_total = 100, .ignore_eos = true, .skip_special = true};
    struct stopper s = {0};
    ck_assert_int_eq(push_text(&r, &s, 5, "a"), FINISH_NONE);
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 6, TINY_IM_START), FINISH_NONE);
    ck_assert_int_eq(push_text(&r, &s, 7, "b"), FINISH_STOP_STRING);
    ck_assert_uint_eq(s.visible, 0);
    r.skip_special = false; /* visible it is: then the text is a<|im_start|>b */
    s = (struct stopper){0};
    push_text(&r, &s, 5, "a");
    stopper_push(rig.m.vocab, &r, &s, 6, TINY_IM_START);
    ck_assert_int_eq(push_text(&r, &s, 7, "b"), FINISH_NONE);
    stop_set_destroy(&set);
}
END_TEST

START_TEST(length_comes_last) {
    struct stop_set *set = stops_of("c", NULL);
    struct stop_rules r = {.stops = set, .max_total = 8};
    struct stopper s = {0};
    ck_assert_int_eq(push_text(&r, &s, 5, "abc"), FINISH_STOP_STRING);
    s = (struct stopper){0};
    ck_assert_int_eq(push_text(&r, &s, 5, "abd"), FINISH_LENGTH);
    ck_assert_uint_eq(s.visible, 3);
    s = (struct stopper){0};
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 7, TINY_IM_END), FINISH_EOS);
    stop_set_destroy(&set);
}
END_TEST

START_TEST(no_end_before_min_total) {
    struct stop_set *set = stops_of("ab", NULL);
    struct stop_rules r = {.stops = set, .min_total = 8, .max_total = 100};
    struct stopper s = {0};
    /* "ab" is whole at total 7: too early, and it does not count later; the next one does */
    ck_assert_int_eq(push_text(&r, &s, 5, "ab"), FINISH_NONE);
    ck_assert_int_eq(push_text(&r, &s, 7, "ab"), FINISH_STOP_STRING);
    ck_assert_uint_eq(s.visible, 2);
    s = (struct stopper){0}; /* begun too early, whole exactly when the minimum is reached */
    ck_assert_int_eq(push_text(&r, &s, 5, "cab"), FINISH_STOP_STRING);
    ck_assert_uint_eq(s.visible, 1);
    s = (struct stopper){
        0}; /* ids: banned below min_total; were one there all the same it would end nothing */
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 7, TINY_IM_END), FINISH_NONE);
    ck_assert_int_eq(stopper_push(rig.m.vocab, &r, &s, 8, TINY_IM_END), FINISH_EOS);
    stop_set_destroy(&set);
}
END_TEST

START_TEST(banned_ids) {
    int32_t ids[] = {RIG_BYTE('x')}, out[8];
    struct stop_rules r = {.stop_ids = ids, .n_stop_ids = 1};
    size_t n_eog;
    vocab_eog(rig.m.vocab, &n_eog);
    ck_assert_uint_eq(stopper_banned(rig.m.vocab, &r, out, 8), n_eog + 1);
    ck_assert_int_eq(out[n_eog], RIG_BYTE('x'));
    r.ignore_eos = true;
    ck_assert_uint_eq(stopper_banned(rig.m.vocab, &r, out, 8), 1);
    ck_assert_int_eq(out[0], RIG_BYTE('x'));
}
END_TEST

/* Random ids; cut anywhere, replay, go on: same finish at the same place with the same count. */
START_TEST(resume_changes_nothing) {
    struct stop_set *set = stops_of("aab", "ba");
    struct stop_rules r = {.stops = set, .max_total = 44, .min_total = 9, .skip_special = true};
    for (uint64_t round = 0; round < 400; round++) {
        int32_t ids[44] = {0};
        uint32_t n = 4;
        struct stopper whole = {0};
        enum finish f = FINISH_NONE;
        for (; f == FINISH_NONE; n++) {
            uint64_t x = rand_at(SEED + round, n);
            ids[n] = x % 40 == 0  ? TINY_IM_END
                     : x % 7 == 0 ? TINY_IM_START
                                  : RIG_BYTE("ab cd"[x / 64 % 5]);
            f = stopper_push(rig.m.vocab, &r, &whole, n, ids[n]);
        }
        for (uint32_t cut = 4; cut < n; cut++) {
            struct stopper s = {0};
            enum finish g = FINISH_NONE;
            stopper_replay(rig.m.vocab, &r, &s, ids, 4, cut);
            for (uint32_t i = cut; i < n; i++) {
                ck_assert_int_eq(g, FINISH_NONE);
                g = stopper_push(rig.m.vocab, &r, &s, i, ids[i]);
            }
            ck_assert_int_eq(g, f);
            ck_assert_uint_eq(s.visible, whole.visible);
        }
    }
    stop_set_destroy(&set);
}
END_TEST

int main(void) {
    Suite *s = suite_create("stopper");
    TCase *t = tcase_create("stopper");
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_test(t, end_ids_and_their_text);
    tcase_add_test(t, ignored_eos_goes_on);
    tcase_add_test(t, stop_ids);
    tcase_add_test(t, stop_string_over_tokens);
    tcase_add_test(t, invisible_tokens_do_not_break_a_stop);
    tcase_add_test(t, length_comes_last);
    tcase_add_test(t, no_end_before_min_total);
    tcase_add_test(t, banned_ids);
    tcase_add_test(t, resume_changes_nothing);
    suite_add_tcase(s, t);
    return test_run(s);
}
