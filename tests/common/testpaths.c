#include "tests/common/testpaths.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TMP_MARK "/sluice-test-"

static const char *env_or(const char *name, const char *fallback)
{
    const char *v = getenv(name);
    return v && *v ? v : fallback;
}

const char *test_source_dir(void)
{
    return env_or("SLUICE_SOURCE_DIR", TESTPATHS_SOURCE_DIR);
}

const char *test_build_dir(void)
{
    return env_or("SLUICE_BUILD_DIR", TESTPATHS_BUILD_DIR);
}

/* dir + rest when it exists and can be read, else NULL; `slot` keeps the text. */
static const char *present(char slot[TEST_PATH_MAX], const char *dir, const char *rest)
{
    int n = snprintf(slot, TEST_PATH_MAX, "%s%s", dir, rest);
    if (n < 0 || n >= TEST_PATH_MAX || access(slot, R_OK) != 0)
        return NULL;
    return slot;
}

const char *test_model_path(void)
{
    static char slot[TEST_PATH_MAX];
    const char *v = getenv("SLUICE_MODEL");
    if (v && *v)
        return present(slot, v, "");
    return present(slot, test_source_dir(), "/.cache/model/SmolLM2-135M-Instruct.Q4_1.gguf");
}

const char *test_reference_dir(void)
{
    static char slot[TEST_PATH_MAX];
    return present(slot, test_source_dir(), "/../shared/reference");
}

const char *test_tiny_path(void)
{
    static char slot[TEST_PATH_MAX];
    return present(slot, test_build_dir(), "/tests/tiny.gguf");
}

int test_tmpdir_make(char out[TEST_PATH_MAX], const char *tag)
{
    int n = snprintf(out, TEST_PATH_MAX, "%s" TMP_MARK "%s-XXXXXX", env_or("TMPDIR", "/tmp"), tag);
    if (n < 0 || n >= TEST_PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mkdtemp(out) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    if (remove(path) != 0)
        fprintf(stderr, "test_tmpdir_remove: %s: %s\n", path, strerror(errno));
    return 0;
}

void test_tmpdir_remove(const char *dir)
{
    /* The mark keeps a wrong argument from emptying a folder that no test made. */
    if (!dir || !strstr(dir, TMP_MARK))
        return;
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

char *test_read_file(const char *path, size_t *n)
{
    char *p = NULL;
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    struct stat st;
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
        goto out;
    p = malloc((size_t)st.st_size + 1);
    if (!p)
        goto out;
    size_t got = fread(p, 1, (size_t)st.st_size, f);
    p[got] = 0;
    if (n)
        *n = got;
out:
    fclose(f);
    return p;
}

int test_write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return -1;
    size_t put = n ? fwrite(p, 1, n, f) : 0;
    return fclose(f) == 0 && put == n ? 0 : -1;
}

int test_skip(const char *why)
{
    printf("SKIP: %s\n", why);
    return TEST_EXIT_SKIP;
}
