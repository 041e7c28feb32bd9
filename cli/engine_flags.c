/* engine_flags.c - see engine_flags.h. */
#include "cli/engine_flags.h"

#include <string.h>

int engine_flags_kernel(enum engine_kernel *out, const char *text, struct err *e) {
    static const struct {
        const char *name;
        enum engine_kernel kernel;
    } rows[] = {{"auto", ENGINE_KERNEL_AUTO},
                {"scalar", ENGINE_KERNEL_SCALAR},
                {"avx2", ENGINE_KERNEL_AVX2},
                {"avx512", ENGINE_KERNEL_AVX512}};
    *out = ENGINE_KERNEL_AUTO;
    if (text == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, text) == 0) {
            *out = rows[i].kernel;
            return 0;
        }
    return err_set(e, ERR_BAD_VALUE, "--kernel takes auto, scalar, avx2 or avx512, not '%.40s'",
                   text);
}

int engine_flags_kv_type(enum engine_kv_type *out, const char *flag, const char *text,
                         struct err *e) {
    *out = ENGINE_KV_F16;
    if (text == NULL || strcmp(text, "f16") == 0)
        return 0;
    if (strcmp(text, "int8") != 0)
        return err_set(e, ERR_BAD_VALUE, "--%s takes f16 or int8, not '%.40s'", flag, text);
    *out = ENGINE_KV_INT8;
    return 0;
}
