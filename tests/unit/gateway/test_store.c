/* The store: what is answered is there after reopening; a result counts once; a foreign id is not found; an
 * older gateway writes nothing; a full store waits; a damaged one is set aside. */
#include "gateway/store_check.h"
#include "tests/common/test_run.h"
#include "tests/unit/gateway/store_rig.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[TEST_PATH_MAX];
static struct store *s;
static struct err e;

static void open_it(const struct store_options *o)
{
    ck_assert_msg(store_open(&s, &rig_loop, dir, o, &e) == 0, "%s", e.msg);
}

static void setup(void)
{
    uv_loop_init(&rig_loop);
    ck_assert_int_eq(test_tmpdir_make(dir, "store"), 0);
    open_it(NULL);
}

static void teardown(void)
{
    store_close(&s);
    ck_assert_int_eq(uv_loop_close(&rig_loop), 0);
    test_tmpdir_remove(dir);
}

START_TEST(results_count_once)
{
    bool known;
    ck_assert_int_eq(rig_job(s, "a", "batch_1", "key", &known), 0);
    ck_assert(!known);
    ck_assert_int_eq(rig_results(s, "a", "batch_1", 1, 10), 10);
    ck_assert_int_eq(rig_results(s, "a", "batch_1", 6, 10), 5);
    ck_assert_int_eq(rig_counted(s, "a", "batch_1"), 15);
    store_close(&s);
    open_it(NULL);
    ck_assert_int_eq(rig_counted(s, "a", "batch_1"), 15);
    ck_assert_int_eq(rig_job(s, "a", "batch_2", "key", &known), 0);
    ck_assert(known); /* the same submission */
    ck_assert_int_eq(rig_job(s, "b", "batch_3", "key", &known), 0);
    ck_assert(!known);
    struct store_op op = {.kind = STORE_RESULTS_READ, .tenant = "a", .id = "batch_1", .limit = 3, .which = STORE_FAILED_ONLY};
    ck_assert_int_eq(rig_run(s, &op), 0);
    ck_assert_uint_eq(op.n, 3);
    ck_assert(!op.more);
    ck_assert_int_eq(op.rows[1].line, 10);
    ck_assert_mem_eq(op.rows[1].body, "10", 2);
    store_op_deinit(&op);
}
END_TEST

START_TEST(a_foreign_id_is_not_found)
{
    ck_assert_int_eq(rig_job(s, "a", "batch_1", "", NULL), 0);
    ck_assert_int_eq(rig_results(s, "b", "batch_1", 1, 1), -1);
    ck_assert_int_eq(rig_counted(s, "b", "batch_1"), -1);
    struct store_op put = {.kind = STORE_FILE_PUT, .file = {.id = "file-1", .tenant = "a", .hash = "h"}};
    ck_assert_int_eq(rig_run(s, &put), 0);
    struct store_op get = {.kind = STORE_FILE_GET, .tenant = "b", .id = "file-1"};
    struct store_op none = {.kind = STORE_FILE_GET, .tenant = "b", .id = "file-2"};
    ck_assert_int_eq(rig_run(s, &get), -1);
    ck_assert_int_eq(rig_run(s, &none), -1);
    ck_assert_int_eq(get.err.code, ERR_NOT_FOUND);
    ck_assert_str_eq(get.err.msg, none.err.msg);
    struct store_op del = {.kind = STORE_FILE_DELETE, .tenant = "b", .id = "file-1"};
    ck_assert_int_eq(rig_run(s, &del), -1);
    strcpy(del.tenant, "a");
    ck_assert_int_eq(rig_run(s, &del), 0);
    ck_assert_int_eq(del.blob_users, 0);
}
END_TEST

START_TEST(lists_have_cursors)
{
    char id[24];
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof id, "batch_%d", i);
        ck_assert_int_eq(rig_job(s, i == 2 ? "b" : "a", id, "", NULL), 0);
    }
    struct store_op op = {.kind = STORE_JOB_LIST, .tenant = "a", .limit = 2};
    ck_assert_int_eq(rig_run(s, &op), 0);
    ck_assert_uint_eq(op.n, 2);
    ck_assert(op.more);
    ck_assert_str_eq(op.jobs[0].id, "batch_4");
    ck_assert_str_eq(op.jobs[0].metadata, "{\"a\":1}");
    store_op_deinit(&op);
    strcpy(op.after, "batch_3");
    ck_assert_int_eq(rig_run(s, &op), 0);
    ck_assert_uint_eq(op.n, 2);
    ck_assert(!op.more);
    ck_assert_str_eq(op.jobs[0].id, "batch_1");
    store_op_deinit(&op);
    strcpy(op.after, "batch_2"); /* somebody else's */
    ck_assert_int_eq(rig_run(s, &op), -1);
}
END_TEST

START_TEST(an_older_gateway_writes_nothing)
{
    struct store *newer;
    ck_assert_int_eq(rig_job(s, "a", "batch_1", "", NULL), 0);
    ck_assert_int_eq(store_open(&newer, &rig_loop, dir, NULL, &e), 0);
    struct store_op op = {.kind = STORE_JOB_UPDATE, .job = {.id = "batch_1", .tenant = "a", .status = "failed"}};
    ck_assert_int_eq(rig_run(s, &op), -1);
    ck_assert_int_eq(op.err.code, ERR_DRAINING);
    ck_assert_int_eq(rig_run(newer, &op), 0);
    ck_assert_int_eq(rig_counted(s, "a", "batch_1"), 0); /* it may still read */
    store_close(&newer);
}
END_TEST

static void count_done(struct store_op *op) { ++*(int *)op->user; }

/* Full: the write waits, reads go on, the end says it was not durable; with room it is written once. */
START_TEST(a_full_store_waits)
{
    store_close(&s);
    open_it(&(struct store_options){.max_pages = 40});
    ck_assert_int_eq(rig_job(s, "a", "batch_1", "", NULL), 0);
    static char big[60000];
    struct store_result r[4] = {{.line = 1, .body = big, .bytes = sizeof big}, {.line = 2, .body = big, .bytes = sizeof big}};
    int done = 0;
    struct store_op op = {.kind = STORE_RESULTS_PUT, .tenant = "a", .id = "batch_1", .results = r, .n_results = 2,
                          .done = count_done, .user = &done};
    struct store_state state = {0};
    ck_assert_int_eq(store_push(s, &op), 0);
    while (!state.paused) {
        uv_run(&rig_loop, UV_RUN_NOWAIT);
        store_state(s, &state);
    }
    ck_assert_int_eq(done, 0);
    ck_assert_str_eq(state.reason, "the disk is full");
    ck_assert_int_eq(rig_counted(s, "a", "batch_1"), 0); /* reads are answered, nothing is counted */
    ck_assert_int_eq(done, 0);
    store_close(&s); /* never durable: said so, retryable */
    ck_assert_int_eq(done, 1);
    ck_assert_int_eq(op.err.code, ERR_IO);
    open_it(NULL);
    ck_assert_int_eq(rig_run(s, &op), 0);
    ck_assert_int_eq(rig_counted(s, "a", "batch_1"), 2);
}
END_TEST

START_TEST(newer_is_refused)
{
    char path[TEST_PATH_MAX + 16];
    sqlite3 *db;
    store_close(&s);
    snprintf(path, sizeof path, "%s/store.db", dir);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL);
    sqlite3_close(db);
    ck_assert_int_eq(store_open(&s, &rig_loop, dir, NULL, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "99"));
    ck_assert_ptr_null(s);
}
END_TEST

/* Cut short, zeros, garbage: the server starts, what it says is consistent, the check agrees. */
START_TEST(damage_is_set_aside)
{
    char path[TEST_PATH_MAX + 16];
    struct stat st;
    struct store_report r;
    srandom((unsigned)_i + 1);
    ck_assert_int_eq(rig_job(s, "a", "batch_1", "", NULL), 0);
    for (int i = 0; i < 8; i++) ck_assert_int_eq(rig_results(s, "a", "batch_1", i * 50, 50), 50);
    store_close(&s);
    snprintf(path, sizeof path, "%s/store.db", dir);
    ck_assert_int_eq(stat(path, &st), 0);
    int fd = open(path, O_RDWR);
    static char junk[4096];
    const long at = random() % st.st_size;
    memset(junk, _i % 3 == 1 ? 0 : 0x5a, sizeof junk);
    if (_i % 3 == 0) ck_assert_int_eq(ftruncate(fd, at), 0);
    else ck_assert_int_gt(pwrite(fd, junk, sizeof junk, _i % 3 == 1 ? at / 4096 * 4096 : st.st_size), 0);
    close(fd);
    open_it(NULL);
    const int64_t n = rig_counted(s, "a", "batch_1");
    ck_assert_int_le(n, 400);
    if (n >= 0) ck_assert_int_eq(rig_results(s, "a", "batch_1", 0, 50) >= 0, 1);
    ck_assert_int_eq(store_check(dir, &r, &e), 0);
    ck_assert_msg(r.problem[0] == '\0', "seed %d: %s", _i + 1, r.problem);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *t = tcase_create("store");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, results_count_once);
    tcase_add_test(t, a_foreign_id_is_not_found);
    tcase_add_test(t, lists_have_cursors);
    tcase_add_test(t, an_older_gateway_writes_nothing);
    tcase_add_test(t, a_full_store_waits);
    tcase_add_test(t, newer_is_refused);
    tcase_add_loop_test(t, damage_is_set_aside, 0, 12);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
