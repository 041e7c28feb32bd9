/* testpaths.h - where a test finds what is outside of it: the source, the build, the real model,
 * the reference vectors, a scratch folder of its own.
 *
 * The real model and the reference may be absent: then the function returns NULL and the test
 * counts a skip
 * (`return test_skip("...")` from main, or leave the case out). Returned paths live until the
 * process ends. Thread: the first call of each from one thread only (results are cached in
 * statics). Uses libc only, so that tests of base/ can link it too; what test_read_file returns is
 * freed with free().
 */
#ifndef SLUICE_TESTS_COMMON_TESTPATHS_H
#define SLUICE_TESTS_COMMON_TESTPATHS_H

#include <stddef.h>

#define TEST_PATH_MAX 4096
#define TEST_EXIT_SKIP 77

const char *test_source_dir(void); /* env SLUICE_SOURCE_DIR, or what CMake knew */
const char *test_build_dir(void);  /* env SLUICE_BUILD_DIR, or what CMake knew */
const char *
test_model_path(void); /* env SLUICE_MODEL, or <source>/.cache/model/...; NULL = absent */
const char *test_reference_dir(void); /* <source>/../shared/reference; NULL = absent */
const char *test_tiny_path(void); /* <build>/tests/tiny.gguf, made by the build; NULL = absent */

/* A new empty folder under $TMPDIR or /tmp whose name holds `tag`. 0, or -1 with errno. */
int test_tmpdir_make(char out[TEST_PATH_MAX], const char *tag);
/* Removes the folder and all in it; links are unlinked, not followed. Refuses any path not made
 * above. */
void test_tmpdir_remove(const char *dir);

/* A whole file with a NUL after its last byte; NULL with errno. Free with free(). */
char *test_read_file(const char *path, size_t *n);
int test_write_file(const char *path, const void *p, size_t n); /* 0, or -1 with errno */

/* Prints "SKIP: why" and returns TEST_EXIT_SKIP, so that main can `return test_skip(...)`. */
int test_skip(const char *why);

#endif
