/* cli_file.h - a scratch folder with files for the tests of the batch commands. */
#ifndef SLUICE_TESTS_UNIT_CLI_FILE_H
#define SLUICE_TESTS_UNIT_CLI_FILE_H

#include "tests/common/testpaths.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static char cli_dir[TEST_PATH_MAX];

static inline void cli_setup(void) {
    ck_assert_int_eq(test_tmpdir_make(cli_dir, "cli"), 0);
}

static inline void cli_teardown(void) {
    test_tmpdir_remove(cli_dir);
}

/* Path of `name` in the folder; valid until the call after the next three. */
static inline const char *cli_path(const char *name) {
    static char paths[4][TEST_PATH_MAX + 64];
    static unsigned next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof(paths[0]), "%s/%s", cli_dir, name);
    return p;
}

static inline const char *cli_write(const char *name, const void *p, size_t n) {
    const char *path = cli_path(name);
    ck_assert_int_eq(test_write_file(path, p, n), 0);
    return path;
}

static inline const char *cli_write_text(const char *name, const char *text) {
    return cli_write(name, text, strlen(text));
}

#endif
