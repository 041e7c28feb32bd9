/* The key file: mode, both sides' view of it, and every way in which it is refused. */
#include "proto/transport.h"

#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char dir[TEST_PATH_MAX], path[TEST_PATH_MAX + 16];

START_TEST(both_sides_fit_together)
{
    struct transport_keys g, w;
    struct stat st;
    struct err e;
    ck_assert_int_eq(transport_keys_make(path, &e), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(transport_keys_load(&g, path, true, &e), 0);
    ck_assert_int_eq(transport_keys_load(&w, path, false, &e), 0);
    ck_assert(g.on && w.on && g.n_allowed == 1);
    ck_assert_mem_eq(g.allowed[0], w.own_public, TRANSPORT_KEY_BYTES);
    ck_assert_mem_eq(w.server_public, g.own_public, TRANSPORT_KEY_BYTES);
    ck_assert_mem_ne(g.own_secret, w.own_secret, TRANSPORT_KEY_BYTES);
    struct transport_keys again;
    ck_assert_int_eq(transport_keys_make(path, &e), 0); /* a second start makes new ones */
    ck_assert_int_eq(transport_keys_load(&again, path, true, &e), 0);
    ck_assert_mem_ne(again.own_public, g.own_public, TRANSPORT_KEY_BYTES);
    transport_keys_wipe(&again);
    ck_assert(!again.on);
}
END_TEST

static void refused(const char *text, enum err_code code)
{
    struct transport_keys k;
    struct err e;
    ck_assert_int_eq(test_write_file(path, text, strlen(text)), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_int_eq(transport_keys_load(&k, path, true, &e), -1);
    ck_assert_int_eq(e.code, code);
    ck_assert(!k.on);
}

START_TEST(bad_files_are_refused)
{
    struct transport_keys k;
    struct err e;
    ck_assert_int_eq(transport_keys_load(&k, "/nowhere/keys", true, &e), -1);
    ck_assert_int_eq(e.code, ERR_IO);
    ck_assert_int_eq(transport_keys_load(&k, dir, true, &e), -1);
    ck_assert_int_eq(transport_keys_make("/nowhere/keys", &e), -1);
    ck_assert_int_eq(transport_keys_make(path, &e), 0);
    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert_int_eq(transport_keys_load(&k, path, true, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "others"));
    refused("", ERR_BAD_FILE);
    refused("gateway_public short\n", ERR_BAD_FILE);
    /* Keys of one file, public and secret from different pairs. */
    size_t n;
    ck_assert_int_eq(transport_keys_make(path, &e), 0);
    char *text = test_read_file(path, &n);
    char *a = strstr(text, "gateway_public "), *b = strstr(text, "worker_public ");
    ck_assert(text && a && b);
    memcpy(a + strlen("gateway_public "), b + strlen("worker_public "), 40);
    refused(text, ERR_BAD_FILE);
    free(text);
}
END_TEST

int main(void)
{
    if (test_tmpdir_make(dir, "keys") != 0)
        return 1;
    snprintf(path, sizeof path, "%s/link.keys", dir);
    Suite *s = suite_create("transport_keys");
    TCase *tc = tcase_create("transport_keys");
    tcase_add_test(tc, both_sides_fit_together);
    tcase_add_test(tc, bad_files_are_refused);
    suite_add_tcase(s, tc);
    int rc = test_run(s);
    test_tmpdir_remove(dir);
    return rc;
}
