/* The journal: cut at every byte of what was written, a line's ids are a prefix of what was appended; a
 * failed sync begins a new segment and loses nothing; an ended line does not come back. */
#include "gateway/journal.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[TEST_PATH_MAX];
static struct journal *j;
static struct err e;
static _Atomic int fail_syncs;

static int t_open(void *u, const char *p, int flags, int mode) { (void)u; return open(p, flags, mode); }
static ssize_t t_write(void *u, int fd, const void *p, size_t n) { (void)u; return write(fd, p, n > 7 ? n / 2 : n); }
static int t_close(void *u, int fd) { (void)u; return close(fd); }
static int t_remove(void *u, const char *p) { (void)u; return unlink(p); }
static int t_dir(void *u, const char *p) { (void)u; (void)p; return 0; }
static int t_sync(void *u, int fd)
{
    (void)u;
    (void)fd;
    if (atomic_load(&fail_syncs) == 0) return 0;
    atomic_fetch_sub(&fail_syncs, 1);
    errno = EIO;
    return -1;
}
static const struct journal_io io = {t_open, t_write, t_sync, t_close, t_remove, t_dir, NULL};
static const struct journal_options options = {.io = &io};

static void open_it(void) { ck_assert_msg(journal_open(&j, dir, &options, &e) == 0, "%s", e.msg); }
static void setup(void) { ck_assert_int_eq(test_tmpdir_make(dir, "journal"), 0); }
static void teardown(void)
{
    journal_close(&j);
    test_tmpdir_remove(dir);
}

static void fill(void)
{
    int32_t prompt[3] = {7, 8, 9};
    struct journal_line l = {.job = "batch_1", .line = 1, .seed = 5, .boundary = 3, .prompt = prompt, .n_prompt = 3};
    ck_assert_int_eq(journal_start(j, &l), 0);
    l.line = 2;
    ck_assert_int_eq(journal_start(j, &l), 0);
    for (int32_t i = 0; i < 20; i++) ck_assert_int_eq(journal_ids(j, "batch_1", 1, (uint32_t)i, &i, 1), 0);
    ck_assert_int_eq(journal_sub(j, "batch_1", 1, 3, 4, 5, 6), 0);
    ck_assert_int_eq(journal_end(j, "batch_1", 2), 0);
}

static void check_whole(void)
{
    const struct journal_line *l = journal_found(j, 0);
    ck_assert_ptr_nonnull(l);
    ck_assert_ptr_null(journal_found(j, 1));
    ck_assert_uint_eq(l->n_out, 20);
    ck_assert_uint_eq(l->submission_lo, 4);
    ck_assert_int_eq(l->prompt[2], 9);
}

START_TEST(a_failed_sync_loses_nothing)
{
    atomic_store(&fail_syncs, 2);
    open_it();
    ck_assert(journal_full(j));
    fill();
    journal_close(&j);
    atomic_store(&fail_syncs, 0);
    open_it();
    check_whole();
}
END_TEST

START_TEST(every_prefix_is_good)
{
    char path[TEST_PATH_MAX + 32];
    static char bytes[8192];
    open_it();
    fill();
    journal_close(&j);
    snprintf(path, sizeof path, "%s/journal-00000001.log", dir);
    int fd = open(path, O_RDONLY);
    const ssize_t n = read(fd, bytes, sizeof bytes);
    close(fd);
    ck_assert_int_gt(n, 500);
    uint32_t last = 0;
    for (ssize_t cut = 0; cut <= n; cut++) {
        test_tmpdir_remove(dir);
        mkdir(dir, 0700);
        fd = open(path, O_WRONLY | O_CREAT, 0600);
        ck_assert_int_eq(write(fd, bytes, (size_t)cut), cut);
        close(fd);
        open_it();
        uint32_t n_out = 0;
        for (size_t i = 0; journal_found(j, i); i++) {
            const struct journal_line *l = journal_found(j, i);
            if (l->line == 1) n_out = l->n_out;
            for (uint32_t k = 0; k < l->n_out; k++) ck_assert_int_eq(l->out[k], (int32_t)k);
        }
        ck_assert_uint_ge(n_out, last);
        last = n_out;
        if (cut == n) check_whole();
        journal_close(&j);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("journal");
    TCase *t = tcase_create("journal");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_failed_sync_loses_nothing);
    tcase_add_test(t, every_prefix_is_good);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
