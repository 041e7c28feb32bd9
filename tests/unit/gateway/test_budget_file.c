/* The budgets of a process that was killed: what the next one finds, whatever is in the file. */
#include "base/hash.h"
#include "gateway/budget_file.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define S 1000000000ull
#define LIMIT 100000

static char dir[TEST_PATH_MAX];
static const struct token_limits limits = {.tokens_per_minute = LIMIT, .requests_per_minute = 1000};

static void setup(void)
{
    ck_assert_int_eq(test_tmpdir_make(dir, "budget"), 0);
}

static void teardown(void)
{
    test_tmpdir_remove(dir);
}

static struct budget_time at(uint64_t s)
{
    return (struct budget_time){(5000 + s) * S, (int64_t)(1800000000 + s)};
}

static struct budget_file *open_file(void)
{
    struct budget_file *f;
    struct err e;
    ck_assert_msg(budget_file_open(&f, dir, &e) == 0, "%s", e.msg);
    return f;
}

/* What a new process at second `s` believes of a tenant. */
static uint64_t held(struct budget_file *f, const char *tenant, uint64_t s)
{
    struct token_budget b;
    token_budget_init(&b, &limits);
    budget_file_restore(f, tenant, at(s), &b);
    return minute_window_sum(&b.tokens, at(s).now_ns);
}

START_TEST(test_used_and_reserved)
{
    struct budget_file *f = open_file(), *second;
    struct token_budget b;
    struct budget_lease l = {0};
    struct err e;
    ck_assert_int_eq(budget_file_open(&second, dir, &e), -1); /* one process a folder */
    token_budget_init(&b, &limits);
    ck_assert_uint_eq(held(f, "alice", 0), 0);
    ck_assert_int_eq(token_budget_reserve(&b, at(0), 100, 50, &l).why, BUDGET_OK);
    token_budget_charge(&b, at(0), &l, 100, 10);
    budget_file_note(f, 7, "alice", at(0), &b);
    budget_file_close(&f);
    f = open_file();
    ck_assert_uint_eq(held(f, "alice", 0), 150);
    ck_assert_uint_eq(held(f, "alice", 30), 150);
    ck_assert_uint_eq(held(f, "alice", 62), 40); /* what was reserved counts from now */
    ck_assert_uint_eq(held(f, "alicex", 0) + held(f, "alic", 0) + held(f, "", 0), 0);
    budget_file_close(&f);
    f = open_file(); /* nothing was noted by the process in between */
    ck_assert_uint_eq(held(f, "alice", 0), 0);
    budget_file_close(&f);
    budget_file_close(&f);
    budget_file_note(NULL, 0, "alice", at(0), &b);
    budget_file_restore(NULL, "alice", at(0), &b);
}
END_TEST

/* A child reserves, charges and settles at random, tells how much is used or reserved before each call and
 * after it, and is killed. The file must hold one of the last two. */
static void child(int pipe_fd, uint64_t seed)
{
    struct budget_file *f = open_file();
    struct token_budget b;
    struct budget_lease l[8] = {{0}};
    token_budget_init(&b, &limits);
    for (uint64_t k = 0;; k++) {
        struct budget_lease *one = &l[rand_at(seed, 2 * k) % 8];
        uint64_t n = rand_at(seed, 2 * k + 1) % 40;
        if (!one->held) token_budget_reserve(&b, at(0), n, n, one);
        else if (n < 20) token_budget_charge(&b, at(0), one, one->prompt, one->output / 2);
        else token_budget_settle(&b, one);
        uint64_t sum = minute_window_sum(&b.tokens, at(0).now_ns) + b.reserved_prompt +
                       b.reserved_output;
        budget_file_note(f, 1, "alice", at(0), &b);
        if (write(pipe_fd, &sum, sizeof sum) != sizeof sum) _exit(1);
    }
}

START_TEST(test_killed)
{
    for (uint64_t round = 0; round < 20; round++) {
        int fds[2], status;
        uint64_t sums[2] = {0}, sum, n = 0;
        ck_assert_int_eq(pipe(fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(fds[0]);
            child(fds[1], round);
        }
        close(fds[1]);
        for (uint64_t want = 1 + rand_at(99, round) % 3000; n < want; n++)
            ck_assert_int_eq(read(fds[0], &sum, sizeof sum), sizeof sum);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        while (read(fds[0], &sum, sizeof sum) == sizeof sum) {
            sums[0] = sums[1];
            sums[1] = sum;
        }
        close(fds[0]);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        struct budget_file *f = open_file();
        /* the call after the last one told may have been noted, in part or whole: each moves < 80 */
        uint64_t found = held(f, "alice", 0);
        ck_assert_msg(found <= LIMIT && found + 80 > sums[1] && found < sums[1] + 160,
                      "%llu told %llu", (unsigned long long)found, (unsigned long long)sums[1]);
        budget_file_close(&f);
    }
}
END_TEST

START_TEST(test_hostile_file)
{
    char path[TEST_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/budgets", dir);
    struct budget_file *f = open_file();
    struct token_budget b;
    token_budget_init(&b, &limits);
    token_budget_restore(&b, at(0), 0, 60, 1);
    budget_file_note(f, 0, "alice", at(0), &b);
    budget_file_close(&f);
    size_t n;
    char *good = test_read_file(path, &n), *bad = malloc(n);
    ck_assert(good != NULL && bad != NULL);
    for (uint64_t k = 0; k < 300; k++) {
        memcpy(bad, good, n);
        for (uint64_t i = 0; i < 64; i++) /* in the first record, and anywhere */
            bad[rand_at(3, k * 200 + 2 * i) % (i % 2 ? n : 112)] = (char)rand_at(3, k * 200 + 2 * i + 1);
        memcpy(bad, good, 16);
        if (k % 2) memcpy(bad + 16, good + 16, 56);
        ck_assert_int_eq(test_write_file(path, bad, k % 10 == 0 ? n / 2 : n), 0);
        f = open_file();
        ck_assert_uint_le(held(f, "alice", k), LIMIT);
        budget_file_close(&f);
    }
    free(good);
    free(bad);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("budget_file");
    TCase *tc = tcase_create("file");
    tcase_set_timeout(tc, 0);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_used_and_reserved);
    tcase_add_test(tc, test_killed);
    tcase_add_test(tc, test_hostile_file);
    suite_add_tcase(s, tc);
    return test_run(s);
}
