/* The day's usage: text that is refused when a byte of it is missing or changed, and a file whose newest whole
 * text survives a death at any point of the write. */
#include "base/hash.h"
#include "base/mem.h"
#include "config/usage_file.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t seed = 7, counter;
static char dir[TEST_PATH_MAX];

static uint64_t below(uint64_t n)
{
    return rand_at(seed, counter++) % n;
}

static void setup(void)
{
    ck_assert_int_eq(test_tmpdir_make(dir, "usage"), 0);
}

static void teardown(void)
{
    test_tmpdir_remove(dir);
}

/* ---- days */

START_TEST(test_days)
{
    const struct { const char *text; int32_t day; } rows[] = {
        {"1970-01-01", 0}, {"1969-12-31", -1}, {"2000-02-29", 11016}, {"2000-03-01", 11017},
        {"2026-12-01", 20788}, {"2100-03-01", 47541}, {"0001-01-01", -719162},
        {"9999-12-31", 2932896}};
    char text[USAGE_DAY_BYTES];
    int32_t day;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert(usage_day_parse(rows[i].text, &day));
        ck_assert_int_eq(day, rows[i].day);
        usage_day_text(text, day);
        ck_assert_str_eq(text, rows[i].text);
    }
    for (int32_t d = -719162; d <= 2932896; d += 37) {
        usage_day_text(text, d);
        ck_assert_msg(usage_day_parse(text, &day) && day == d, "%s", text);
    }
    static const char *const bad[] = {"", "2026-12-1", "2026-13-01", "2026-02-29", "2026-00-01",
                                      "2026-04-31", "2026-12-01x", "2026/12/01", "0000-01-01",
                                      "1900-02-29", "-026-12-01"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!usage_day_parse(bad[i], &day), "%s", bad[i]);
    ck_assert_int_eq(usage_day_of(86399), 0);
    ck_assert_int_eq(usage_day_of(86400), 1);
    ck_assert_int_eq(usage_day_of(-1), -1);
}
END_TEST

/* ---- text */

static struct usage_row rows[USAGE_ROWS_MAX];

static void make_rows(uint32_t n)
{
    memset(rows, 0, sizeof rows);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 1) snprintf(rows[i].tenant, sizeof rows[i].tenant, USAGE_ENGINE);
        else if (i == 2) snprintf(rows[i].tenant, sizeof rows[i].tenant, USAGE_OTHER);
        else snprintf(rows[i].tenant, sizeof rows[i].tenant, "tenant-%u", i);
        uint64_t *field = (uint64_t *)&rows[i].counts;
        for (size_t k = 0; k < sizeof rows[i].counts / sizeof *field; k++)
            field[k] = rand_at(seed, counter++) >> below(64);
    }
}

static void parses(const char *text, size_t n, bool want)
{
    struct usage_day d;
    struct err e;
    /* a block of its own size: a read beyond it is found */
    char *copy = mem_memdup(text, n);
    bool ok = usage_text_parse(&d, copy, n, &e) == 0;
    mem_free(copy);
    ck_assert_msg(ok == want, "%.200s", text);
    if (ok) usage_text_deinit(&d);
    else ck_assert_int_eq(e.code, ERR_BAD_FILE);
}

START_TEST(test_text_there_and_back)
{
    for (uint32_t n = 0; n <= USAGE_ROWS_MAX; n = n * 3 + 1) {
        struct buf text = {0};
        struct usage_day d;
        struct err e;
        make_rows(n);
        usage_text_print(&text, 20788, 77, rows, n);
        ck_assert(!text.bad && text.len <= USAGE_TEXT_BYTES);
        ck_assert_int_eq(usage_text_parse(&d, text.p, text.len, &e), 0);
        ck_assert(d.day == 20788 && d.seq == 77 && d.n == n);
        ck_assert(memcmp(d.rows, rows, n * sizeof *rows) == 0);
        usage_text_deinit(&d);
        buf_deinit(&text);
    }
    struct usage_counts a = {.prompt = UINT64_MAX - 1, .output = 5}, b = {.prompt = 1, .output = 6};
    usage_counts_add(&a, &b);
    ck_assert(a.prompt == UINT64_MAX && a.output == 11);
    usage_counts_add(&a, &b);
    ck_assert(a.prompt == UINT64_MAX && usage_useful(&a) == UINT64_MAX);
}
END_TEST

START_TEST(test_cut_or_changed)
{
    struct buf text = {0};
    make_rows(5);
    usage_text_print(&text, 20788, 3, rows, 5);
    parses(text.p, text.len, true);
    for (size_t n = 0; n < text.len; n++) parses(text.p, n, false);
    for (size_t i = 0; i < text.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text.p[i] = (char)(text.p[i] ^ 1 << bit);
            parses(text.p, text.len, false);
            text.p[i] = (char)(text.p[i] ^ 1 << bit);
        }
    }
    buf_addc(&text, '\n');
    parses(text.p, text.len, false);
    buf_deinit(&text);
}
END_TEST

/* A text of our own with a hash that is right: what a foreign or hostile writer could make. */
static void sealed(const char *body, bool want)
{
    struct buf text = {0};
    buf_adds(&text, body);
    buf_addf(&text, "end %016llx\n",
             (unsigned long long)hash64(text.p ? text.p : "", text.len, 0));
    parses(text.p, text.len, want);
    buf_deinit(&text);
}

#define HEAD(n) "sluice-usage 1 2026-12-01 seq 12 rows " n "\n"

START_TEST(test_other_writers)
{
    sealed(HEAD("1") "tenant\tfuture\toutput\na\t5\t6\n", true); /* unknown and missing columns */
    sealed(HEAD("1") "tenant\nalice\n", true);
    sealed(HEAD("0") "tenant\toutput\n", true);
    static const char *const bad[] = {
        "", "\n", HEAD("0"), HEAD("1") "tenant\toutput\n", HEAD("0") "tenant\toutput\na\t1\n",
        HEAD("1") "tenant\toutput\na\t1\nb\t2\n", HEAD("1") "tenant\toutput\toutput\na\t1\t2\n",
        HEAD("1") "tenants\toutput\na\t1\n", HEAD("1") "tenant\toutput\na\t1\t2\n",
        HEAD("1") "tenant\toutput\na\n", HEAD("1") "tenant\toutput\na\t\n",
        HEAD("1") "tenant\toutput\na\t-1\n", HEAD("1") "tenant\toutput\na\t+1\n",
        HEAD("1") "tenant\toutput\na\t18446744073709551616\n",
        HEAD("1") "tenant\toutput\na\t1e3\n", HEAD("1") "tenant\toutput\na b\t1\n",
        HEAD("1") "tenant\toutput\n\t1\n", HEAD("1") "tenant\toutput\n../x\t1\n",
        HEAD("1") "tenant\toutput\n0123456789012345678901234567890123456789012345678\t1\n",
        HEAD("4097") "tenant\n", HEAD("999999999") "tenant\n", HEAD("-1") "tenant\n",
        "sluice-usage 2 2026-12-01 seq 12 rows 0\ntenant\n",
        "sluice-usage 1 2026-02-30 seq 12 rows 0\ntenant\n",
        "sluice-usage 1 2026-12-01 seq 12 rows 0 \ntenant\n",
        HEAD("1") "tenant\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx"
                  "\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx"
                  "\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\tx\na\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) sealed(bad[i], false);
}
END_TEST

START_TEST(test_hostile_text)
{
    uint64_t good = 0;
    for (int k = 0; k < 20000; k++) {
        struct buf text = {0};
        struct usage_day d;
        struct err e;
        make_rows((uint32_t)below(6));
        usage_text_print(&text, 20788, below(100), rows, (uint32_t)below(6));
        text.len -= 21;
        static const char spice[] = "\t\n 0123456789-.*()aendqs\xff\x80";
        for (uint64_t n = below(4); n > 0; n--)
            text.p[below(text.len)] = spice[below(sizeof spice - 1)];
        if (below(3) == 0) text.len = below(text.len + 1);
        uint64_t h = hash64(text.p, text.len, 0);
        buf_addf(&text, "end %016llx\n", (unsigned long long)h);
        char *copy = mem_memdup(text.p, text.len);
        if (usage_text_parse(&d, copy, text.len, &e) == 0) {
            good++;
            ck_assert_uint_le(d.n, USAGE_ROWS_MAX);
            for (uint32_t i = 0; i < d.n; i++) ck_assert(usage_name_ok(d.rows[i].tenant));
            usage_text_deinit(&d);
        }
        mem_free(copy);
        buf_deinit(&text);
    }
    ck_assert(good > 1000 && good < 19000);
}
END_TEST

/* ---- the file */

#define DAY 20788

static struct usage_day day_of(uint64_t seq)
{
    make_rows(3);
    rows[0].counts.output = seq * 1000;
    return (struct usage_day){DAY, seq, rows, 3};
}

static void save(uint64_t seq)
{
    struct usage_day d = day_of(seq);
    struct err e;
    ck_assert_int_eq(usage_file_save(dir, &d, &e), 0);
}

static void save_steps(uint64_t seq, int steps)
{
    struct usage_day d = day_of(seq);
    struct err e;
    ck_assert_int_eq(usage_file_save_part(dir, &d, steps, &e), 0);
}

static uint64_t loaded(void)
{
    struct usage_day d;
    struct err e;
    if (usage_file_load(&d, dir, DAY, &e) != 0) return 0;
    uint64_t seq = d.seq;
    ck_assert_uint_eq(d.rows[0].counts.output, seq * 1000);
    usage_text_deinit(&d);
    return seq;
}

static size_t text_of(uint64_t seq, char *out, size_t cap)
{
    struct buf text = {0};
    struct usage_day d = day_of(seq);
    usage_text_print(&text, d.day, d.seq, d.rows, d.n);
    ck_assert(!text.bad && text.len <= cap);
    size_t n = text.len;
    memcpy(out, text.p, n);
    buf_deinit(&text);
    return n;
}

/* A death in the middle of step 1 of the save of `seq`: what the step does before it writes is done, `n`
 * bytes are written. */
static void save_part_of(uint64_t seq, const char *text, size_t n)
{
    char path[TEST_PATH_MAX + 64];
    save_steps(seq, 1);
    snprintf(path, sizeof path, "%s/usage/2026-12-01.tmp", dir);
    ck_assert_int_eq(test_write_file(path, text, n), 0);
}

START_TEST(test_death_at_every_point)
{
    struct err e;
    struct usage_day none;
    ck_assert_int_eq(usage_file_load(&none, dir, DAY, &e), -1);
    ck_assert_int_eq(e.code, ERR_NOT_FOUND);
    uint64_t seq = 1;
    save(seq);
    ck_assert_uint_eq(loaded(), 1);
    for (int died_at = 1; died_at <= USAGE_FILE_STEPS; died_at++) {
        save_steps(++seq, died_at); /* the text is whole from the first step on */
        ck_assert_uint_eq(loaded(), seq);
        char text[4096];
        size_t n_text = text_of(seq + 1, text, sizeof text);
        for (size_t n = 0; n < n_text; n++) {
            save_part_of(seq + 1, text, n);
            ck_assert_uint_eq(loaded(), seq);
        }
        seq++;
        save(++seq);
        ck_assert_uint_eq(loaded(), seq);
    }
}
END_TEST

START_TEST(test_broken_files)
{
    char now[TEST_PATH_MAX + 64];
    struct usage_day d;
    struct err e;
    save(1);
    save(2);
    snprintf(now, sizeof now, "%s/usage/2026-12-01.tsv", dir);
    ck_assert_int_eq(test_write_file(now, "rubbish", 7), 0);
    ck_assert_uint_eq(loaded(), 1); /* the last good one */
    save(3);
    ck_assert_uint_eq(loaded(), 3);
    ck_assert_int_eq(test_write_file(now, "", 0), 0);
    snprintf(now, sizeof now, "%s/usage/2026-12-01.old", dir);
    ck_assert_int_eq(test_write_file(now, "x", 1), 0);
    ck_assert_int_eq(usage_file_load(&d, dir, DAY, &e), -1);
    ck_assert_int_eq(e.code, ERR_BAD_FILE);
    /* a text under another day's name */
    struct usage_day other = day_of(9);
    other.day = DAY + 1;
    ck_assert_int_eq(usage_file_save(dir, &other, &e), 0);
    char from[TEST_PATH_MAX + 64];
    snprintf(from, sizeof from, "%s/usage/2026-12-02.tsv", dir);
    ck_assert_int_eq(rename(from, now), 0);
    ck_assert_int_eq(usage_file_load(&d, dir, DAY, &e), -1);
    ck_assert_int_eq(usage_file_save(now, &other, &e), -1); /* a folder that is none */
    ck_assert_int_eq(e.code, ERR_IO);
}
END_TEST

START_TEST(test_folder)
{
    int32_t days[4];
    struct err e;
    struct usage_day d = day_of(1);
    ck_assert_int_eq(usage_file_days(dir, 0, 99999, days, 4, &e), -1);
    ck_assert_int_eq(e.code, ERR_NOT_FOUND);
    for (int32_t k = 0; k < 6; k++) {
        d.day = DAY - k * 300;
        ck_assert_int_eq(usage_file_save(dir, &d, &e), 0);
        ck_assert_int_eq(usage_file_save(dir, &d, &e), 0);
    }
    ck_assert_int_eq(usage_file_days(dir, 0, 99999, days, 4, &e), 4);
    ck_assert(days[0] == DAY - 900 && days[3] == DAY);
    ck_assert_int_eq(usage_file_days(dir, DAY - 600, DAY - 1, days, 4, &e), 2);
    char foreign[TEST_PATH_MAX + 64];
    snprintf(foreign, sizeof foreign, "%s/usage/1999-01-01.csv", dir);
    ck_assert_int_eq(test_write_file(foreign, "mine", 4), 0);
    usage_file_forget(dir, DAY);
    ck_assert_int_eq(usage_file_days(dir, 0, DAY - 1000, days, 4, &e), 0);
    ck_assert_int_eq(access(foreign, F_OK), 0);
}
END_TEST

int main(void)
{
    const char *env = getenv("SLUICE_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    Suite *s = suite_create("usage_file");
    TCase *tc = tcase_create("usage");
    tcase_set_timeout(tc, 0);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_days);
    tcase_add_test(tc, test_text_there_and_back);
    tcase_add_test(tc, test_cut_or_changed);
    tcase_add_test(tc, test_other_writers);
    tcase_add_test(tc, test_hostile_text);
    tcase_add_test(tc, test_death_at_every_point);
    tcase_add_test(tc, test_broken_files);
    tcase_add_test(tc, test_folder);
    suite_add_tcase(s, tc);
    return test_run(s);
}
