#include "tests/unit/gateway/tiny_text_model.h"

#include "tests/common/testpaths.h"

#include <stdio.h>

int tiny_text_model_open(struct model *m, const char *name)
{
    char dir[TEST_PATH_MAX], path[TEST_PATH_MAX + 16];
    struct err e = {0};
    if (test_tmpdir_make(dir, "gateway") != 0) {
        perror("scratch folder");
        return -1;
    }
    snprintf(path, sizeof path, "%s/tiny.gguf", dir);
    int r = tiny_model_write(TINY_SEED, path) != 0 || model_open(m, path, name, &e) != 0 ? -1 : 0;
    if (r != 0) fprintf(stderr, "tiny model: %s\n", e.msg);
    test_tmpdir_remove(dir);
    return r;
}

void tiny_text_limits(struct api_limits *l, const struct model *m)
{
    struct settings s;
    settings_defaults(&s);
    api_limits_fill(l, &s, m);
}
