/* The pre-tokenizer's cuts, one line each: text, then its pieces joined by "|". */
#include "model/pretok.h"

#include "base/buf.h"
#include "tests/common/test_run.h"
#include "tests/tiny/tiny_model.h"

#include <stdlib.h>
#include <string.h>

static struct gguf *gguf;
static struct pretok *pretok;
static struct pretok_match *match;
static void *bytes;

static void setup(void)
{
    struct err e;
    size_t n;
    bytes = tiny_model_bytes(TINY_SEED, &n);
    ck_assert_msg(gguf_open_mem(&gguf, bytes, n, &e) == 0, "%s", e.msg);
    ck_assert_msg(pretok_create(&pretok, gguf, &e) == 0, "%s", e.msg);
    match = pretok_match_create(pretok);
    ck_assert_ptr_nonnull(match);
}

static void teardown(void)
{
    pretok_match_destroy(&match);
    pretok_destroy(&pretok);
    gguf_close(&gguf);
    free(bytes);
}

static void cut(const char *text, size_t n, struct buf *out)
{
    struct pretok_iter it;
    size_t from, end = 0;
    int more;
    buf_clear(out);
    pretok_begin(&it, text, n);
    while ((more = pretok_next(pretok, match, &it, &from)) > 0) {
        ck_assert_uint_eq(from, end); /* no gap, no overlap */
        end = it.at;
        if (from > 0)
            buf_addc(out, '|');
        buf_add(out, text + from, it.at - from);
    }
    ck_assert_int_eq(more, 0);
    ck_assert_uint_eq(end, n);
}

static const char *const lines[][2] = {
    {"", ""},
    {"one two", "one| two"},
    {"a  b", "a| | b"},
    {"a   b", "a|  | b"},
    {"tail  ", "tail|  "},
    {"123", "1|2|3"},
    {" 5", " |5"},
    {"a  5", "a|  |5"},
    {"5  a", "5| | a"},
    {"x1y", "x|1|y"},
    {"don't we'll I'd", "don|'t| we|'ll| I|'d"},
    {"'re' 'S", "'re|'| '|S"},
    {"!? ok...", "!?| ok|..."},
    {"x\n\n y", "x|\n\n| y"},
    {"x \n", "x| \n"},
    {"\t\tif", "\t|\t|if"},
    {"a\x1c" "b", "a|\x1c|b"},
    {"\xd9\xa3\xd9\xa4", "\xd9\xa3|\xd9\xa4"},                /* Arabic digits */
    {"\xc2\xbd\xe2\x85\xa7", "\xc2\xbd|\xe2\x85\xa7"},        /* a half, Roman eight: \p{N} too */
    {"\xe6\x97\xa5\xe6\x9c\xac x", "\xe6\x97\xa5\xe6\x9c\xac| x"},
    {"e\xcc\x81!", "e|\xcc\x81!"},                            /* a combining mark is no letter */
    {"\xc2\xa0x", "\xc2\xa0|x"},                              /* no-break space is white space */
    {"a\xc2\x85" "5", "a|\xc2\x85|5"},
    {"x\xe1\xa0\x8ey", "x|\xe1\xa0\x8e|y"},                   /* U+180E is not */
    {"a\xff" "b", "a|\xff|b"},
    {" \xe2\x82", " |\xe2|\x82"},
    {"a \xff", "a| |\xff"},
};

START_TEST(cuts)
{
    struct buf out = {0};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        cut(lines[i][0], strlen(lines[i][0]), &out);
        ck_assert_msg(strcmp(buf_str(&out), lines[i][1]) == 0, "line %zu: %s", i, buf_str(&out));
    }
    buf_deinit(&out);
}
END_TEST

START_TEST(nul_is_a_character)
{
    struct buf out = {0};
    cut("a\0b 7", 5, &out);
    ck_assert_uint_eq(out.len, 9);
    ck_assert_int_eq(memcmp(buf_str(&out), "a|\0|b| |7", 9), 0);
    buf_deinit(&out);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pretok");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, cuts);
    tcase_add_test(c, nul_is_a_character);
    suite_add_tcase(s, c);
    return test_run(s);
}
