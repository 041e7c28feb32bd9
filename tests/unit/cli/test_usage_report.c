/* `sluice usage`: rows and sums in the three forms, several folders, damaged days. */
#include "cli/usage_report.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define DAY 20788

static char dir[TEST_PATH_MAX], second[TEST_PATH_MAX];
static char text[65536], warnings[4096];

static void save(const char *folder, int32_t day, struct usage_row *rows, uint32_t n)
{
    struct usage_day d = {.day = day, .seq = 1, .rows = rows, .n = n};
    struct err e;
    ck_assert_int_eq(usage_file_save(folder, &d, &e), 0);
}

static void setup(void)
{
    struct usage_row first[] = {
        {"bob", {.requests = 2, .prompt = 100, .output = 10, .refused_limits = 1, .refused_server = 2}},
        {USAGE_ENGINE, {.prompt = 130, .output = 19, .wasted_recomputed = 7, .wasted_dropped = 3}},
        {"alice", {.requests = 1, .prompt = 20, .cached = 5, .output = 8, .wasted_surplus = 4,
                   .wasted_again = 6}}};
    struct usage_row next[] = {{"alice", {.requests = 9, .prompt = 1, .output = 2}}};
    struct usage_row other[] = {{"alice", {.requests = 1, .output = 1000}},
                                {USAGE_ENGINE, {.prompt = 1}}};
    ck_assert_int_eq(test_tmpdir_make(dir, "usage"), 0);
    ck_assert_int_eq(test_tmpdir_make(second, "usage"), 0);
    save(dir, DAY, first, 3);
    save(dir, DAY + 1, next, 1);
    save(second, DAY, other, 2);
}

static void teardown(void)
{
    test_tmpdir_remove(dir);
    test_tmpdir_remove(second);
}

static int report(struct usage_report *r, struct err *e)
{
    r->out = fmemopen(text, sizeof text, "w");
    r->warn = fmemopen(warnings, sizeof warnings, "w");
    r->folders[r->n_folders++] = dir;
    int rc = usage_report_run(r, e);
    fclose(r->out);
    fclose(r->warn);
    return rc;
}

START_TEST(test_csv)
{
    struct usage_report r = {.from = DAY, .to = DAY + 5, .form = USAGE_CSV};
    struct err e;
    ck_assert_int_eq(report(&r, &e), 0);
    ck_assert_str_eq(text,
        "day,tenant,requests,refused-limits,refused-server,prompt,cached,output,wasted-again,"
        "wasted-recomputed,wasted-dropped,wasted-surplus\n"
        "2026-12-01,*,0,0,0,130,0,19,0,7,3,0\n"
        "2026-12-01,alice,1,0,0,20,5,8,6,0,0,4\n"
        "2026-12-01,bob,2,1,2,100,0,10,0,0,0,0\n"
        "2026-12-02,alice,9,0,0,1,0,2,0,0,0,0\n");
}
END_TEST

START_TEST(test_json)
{
    struct usage_report r = {.from = DAY, .to = DAY, .form = USAGE_JSON};
    struct err e;
    ck_assert_int_eq(report(&r, &e), 0);
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_int_t useful, engine, difference, wasted, alice;
    const char *name;
    ck_assert_ptr_nonnull(j);
    ck_assert_int_eq(json_unpack(j, "{s:[o,{s:s,s:I}],s:{s:I,s:I},s:{s:I,s:I}}", "rows",
                                 &(json_t *){NULL}, "tenant", &name, "wasted-surplus", &alice,
                                 "total", "useful", &useful, "wasted", &wasted, "engine", "useful",
                                 &engine, "difference", &difference), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "rows")), 3);
    ck_assert_str_eq(name, "alice");
    ck_assert(alice == 4 && useful == 138 && wasted == 10);
    /* 149 by the workers: 6 again, 4 surplus, one nobody saw */
    ck_assert(engine == 149 && difference == 1);
    json_decref(j);
}
END_TEST

START_TEST(test_table_and_tenant)
{
    struct usage_report r = {.from = 0, .to = DAY + 1}, one = {.from = 0, .to = DAY, .tenant = "bob"};
    struct err e;
    ck_assert_int_eq(report(&r, &e), 0);
    ck_assert_ptr_nonnull(strstr(text, "useful (prompt + output): 141 tokens\n"));
    ck_assert_ptr_nonnull(strstr(text, "workers counted 149 useful tokens (difference -2), 7 "
                                       "computed again, 3 dropped\n"));
    ck_assert_ptr_null(strstr(text, "*"));
    ck_assert_uint_eq(r.n_rows, 3);
    ck_assert_int_eq(report(&one, &e), 0);
    ck_assert_uint_eq(one.n_rows, 1);
    ck_assert_uint_eq(one.total.output, 10);
    ck_assert_ptr_null(strstr(text, "workers"));
}
END_TEST

START_TEST(test_two_gateways)
{
    struct usage_report r = {.folders = {second}, .n_folders = 1, .from = DAY, .to = DAY + 1,
                             .form = USAGE_CSV};
    struct err e;
    ck_assert_int_eq(report(&r, &e), 0);
    ck_assert_ptr_nonnull(strstr(text, "2026-12-01,alice,2,0,0,20,5,1008,6,0,0,4\n"));
    ck_assert_ptr_null(strstr(text, "*"));
    ck_assert_uint_eq(r.n_rows, 3);
}
END_TEST

START_TEST(test_damaged_and_absent)
{
    struct usage_report r = {.from = DAY, .to = DAY + 1};
    struct usage_report none = {.folders = {"/nowhere/at/all"}, .n_folders = 1, .to = DAY};
    char path[TEST_PATH_MAX + 64];
    struct err e;
    snprintf(path, sizeof path, "%s/usage/2026-12-01.tsv", dir);
    ck_assert_int_eq(test_write_file(path, "cut", 3), 0);
    ck_assert_int_eq(report(&r, &e), 0);
    ck_assert_uint_eq(r.n_bad, 1);
    ck_assert_ptr_nonnull(strstr(warnings, "2026-12-01.tsv: the file is cut or damaged"));
    ck_assert_uint_eq(r.n_rows, 1);
    ck_assert_int_eq(report(&none, &e), -1);
    ck_assert_int_eq(e.code, ERR_NOT_FOUND);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("usage_report");
    TCase *tc = tcase_create("report");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_csv);
    tcase_add_test(tc, test_json);
    tcase_add_test(tc, test_table_and_tenant);
    tcase_add_test(tc, test_two_gateways);
    tcase_add_test(tc, test_damaged_and_absent);
    suite_add_tcase(s, tc);
    return test_run(s);
}
