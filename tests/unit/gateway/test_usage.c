/* Usage by tenant and day: what is counted once, what survives the process, and the writes beside the loop. */
#include "base/hash.h"
#include "base/mem.h"
#include "gateway/usage.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DAY 20788
#define NOON ((int64_t)DAY * 86400 + 43200)

static uint64_t seed = 11, counter;
static char dir[TEST_PATH_MAX];
static uv_loop_t loop;
static struct usage *u;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(rand_at(seed, counter++) % n);
}

static void open_at(int64_t wall_s)
{
    struct err e;
    ck_assert_int_eq(usage_create(&u, &loop, dir, wall_s, &e), 0);
}

static void setup(void)
{
    ck_assert_int_eq(test_tmpdir_make(dir, "usage"), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    open_at(NOON);
}

static void teardown(void)
{
    usage_destroy(&u);
    usage_destroy(&u);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* no handle is left */
    test_tmpdir_remove(dir);
}

static void output(const char *tenant, int64_t wall_s, uint64_t n)
{
    const struct usage_counts c = {.requests = 1, .output = n};
    usage_add(u, wall_s, tenant, &c);
}

static uint64_t on_disk(int32_t day, const char *tenant)
{
    struct usage_day d;
    struct err e;
    uint64_t n = 0;
    if (usage_file_load(&d, dir, day, &e) != 0) return UINT64_MAX;
    for (uint32_t i = 0; i < d.n; i++)
        if (strcmp(d.rows[i].tenant, tenant) == 0) n += d.rows[i].counts.output;
    usage_text_deinit(&d);
    return n;
}

static void write_out(void)
{
    usage_write(u);
    while (usage_writing(u)) uv_run(&loop, UV_RUN_ONCE);
}

START_TEST(test_kept_over_a_restart)
{
    struct usage_counts c;
    output("alice", NOON, 5);
    output("bob", NOON, 7);
    output("alice", NOON + 1, 6);
    ck_assert_uint_eq(on_disk(DAY, "alice"), UINT64_MAX);
    usage_write(u);
    output("alice", NOON + 2, 100); /* while the copy is written */
    while (usage_writing(u)) uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(on_disk(DAY, "alice"), 11);
    usage_destroy(&u);
    ck_assert_uint_eq(on_disk(DAY, "alice"), 111);
    open_at(NOON + 10);
    usage_find(u, "alice", &c);
    ck_assert(c.output == 111 && c.requests == 3);
    usage_find(u, "carol", &c);
    ck_assert_uint_eq(c.output, 0);
    output("alice", NOON + 20, 1);
    write_out();
    ck_assert_uint_eq(on_disk(DAY, "alice"), 112);
    ck_assert_uint_eq(on_disk(DAY, "bob"), 7);
}
END_TEST

START_TEST(test_midnight)
{
    output("alice", NOON, 5);
    output("alice", NOON + 43199, 6);
    output("alice", NOON + 43200, 7);
    output("alice", NOON + 43100, 8); /* a clock set back: today, whatever it says */
    write_out();
    write_out();
    ck_assert_uint_eq(on_disk(DAY, "alice"), 11);
    ck_assert_uint_eq(on_disk(DAY + 1, "alice"), 15);
    output("alice", NOON + 3 * 86400, 9);
    usage_destroy(&u); /* both days at the end */
    ck_assert_uint_eq(on_disk(DAY + 3, "alice"), 9);
    open_at(NOON);
    struct usage_counts c;
    usage_find(u, "alice", &c);
    ck_assert_uint_eq(c.output, 11);
    output("alice", NOON + 86400, 1); /* a day that has a file already */
    write_out();
    ck_assert_uint_eq(on_disk(DAY + 1, "alice"), 16);
}
END_TEST

START_TEST(test_disk_trouble)
{
    char now[TEST_PATH_MAX + 64], folder[TEST_PATH_MAX + 64];
    output("alice", NOON, 5);
    snprintf(folder, sizeof folder, "%s/usage", dir);
    ck_assert_int_eq(test_write_file(folder, "x", 1), 0); /* a file where the folder should be */
    write_out();
    ck_assert_int_eq(unlink(folder), 0);
    write_out(); /* not forgotten */
    ck_assert_uint_eq(on_disk(DAY, "alice"), 5);
    usage_destroy(&u);
    snprintf(now, sizeof now, "%s/usage/2026-12-01.tsv", dir);
    ck_assert_int_eq(test_write_file(now, "torn", 4), 0);
    open_at(NOON);
    output("alice", NOON, 1);
    write_out();
    ck_assert_uint_eq(on_disk(DAY, "alice"), 1);
    snprintf(now, sizeof now, "%s/usage/2026-12-01.bad", dir);
    ck_assert_int_eq(access(now, F_OK), 0);
}
END_TEST

START_TEST(test_more_tenants_than_rows)
{
    struct usage_counts c;
    uint64_t sum = 0;
    for (int i = 0; i < 5000; i++) {
        char name[32];
        snprintf(name, sizeof name, "tenant-%d", i);
        output(name, NOON, 3);
    }
    usage_find(u, "tenant-4093", &c);
    ck_assert_uint_eq(c.output, 3);
    usage_find(u, "tenant-4094", &c);
    ck_assert_uint_eq(c.output, 0);
    usage_find(u, USAGE_OTHER, &c);
    ck_assert_uint_eq(c.output, 3 * (5000 - 4094));
    const struct msg_account a = {.cls = 1, .output = 9};
    usage_engine(u, NOON, 1, true, &a, 1);
    write_out();
    struct usage_day d;
    struct err e;
    ck_assert_int_eq(usage_file_load(&d, dir, DAY, &e), 0);
    for (uint32_t i = 0; i < d.n; i++) sum += d.rows[i].counts.output;
    ck_assert(d.n == USAGE_ROWS_MAX && sum == 15009);
    usage_text_deinit(&d);
}
END_TEST

/* Deliveries in random pieces, with workers lost: go on from what is there, or again from the prompt. */
START_TEST(test_marks)
{
    for (int k = 0; k < 20000; k++) {
        struct usage_mark m = {0};
        struct usage_counts sum = {0}, c;
        uint32_t n_prompt = 1 + below(50), length = 1 + below(30), out = 0, best = 0;
        uint64_t made = 0, prompts = 0;
        while (out < length) {
            uint32_t fresh = below(4);
            if (fresh > length - out) fresh = length - out;
            if (out == 0 && fresh > 0) prompts++;
            out += fresh;
            made += fresh;
            if (fresh > 0) {
                usage_mark_deliver(&m, n_prompt, n_prompt / 2, out, fresh, &c);
                usage_counts_add(&sum, &c);
            }
            if (out > best) best = out;
            if (out < length && below(10) == 0) out = 0; /* GA_RESTART */
        }
        uint32_t computed = n_prompt - n_prompt / 2;
        ck_assert_uint_eq(sum.prompt, computed);
        ck_assert_uint_eq(sum.cached, n_prompt / 2);
        ck_assert_uint_eq(sum.output, length);
        ck_assert_uint_eq(sum.wasted_again, made - length + (prompts - 1) * computed);
        ck_assert_uint_eq(best, length);
    }
}
END_TEST

static void engine(uint64_t incarnation, bool young, uint64_t prompt, uint64_t out)
{
    const struct msg_account a[2] = {{.cls = 0, .prompt_first = prompt, .output = out},
                                     {.cls = 1, .recomputed = prompt / 10, .dropped = out / 10}};
    usage_engine(u, NOON, incarnation, young, a, 2);
}

START_TEST(test_engine_counters)
{
    struct usage_counts c;
    engine(1, true, 100, 10);
    engine(1, true, 150, 20);
    engine(1, true, 120, 15); /* an old message */
    engine(2, false, 5000, 700); /* it worked for another gateway before */
    engine(2, false, 5001, 702);
    engine(3, true, 1, 1);
    usage_engine(u, NOON, 4, true, NULL, 0);
    usage_find(u, USAGE_ENGINE, &c);
    ck_assert_uint_eq(c.prompt, 150 + 1 + 1);
    ck_assert_uint_eq(c.output, 20 + 2 + 1);
    ck_assert_uint_eq(c.wasted_recomputed, 15);
    ck_assert_uint_eq(c.wasted_dropped, 2);
    for (uint64_t i = 10; i < 200; i++) engine(i, true, 1, 0); /* more than are remembered */
    usage_find(u, USAGE_ENGINE, &c);
    ck_assert_uint_eq(c.prompt, 152 + 190);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("usage");
    TCase *tc = tcase_create("usage");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_kept_over_a_restart);
    tcase_add_test(tc, test_midnight);
    tcase_add_test(tc, test_disk_trouble);
    tcase_add_test(tc, test_more_tenants_than_rows);
    tcase_add_test(tc, test_marks);
    tcase_add_test(tc, test_engine_counters);
    suite_add_tcase(s, tc);
    return test_run(s);
}
