/* engine_flags.h - words of --kernel and --kv-type. NULL text: the default. Thread: any. */
#ifndef SLUICE_CLI_ENGINE_FLAGS_H
#define SLUICE_CLI_ENGINE_FLAGS_H

#include "worker/engine/engine.h"

int engine_flags_kernel(enum engine_kernel *out, const char *text, struct err *e);
int engine_flags_kv_type(enum engine_kv_type *out, const char *flag, const char *text,
                         struct err *e);

#endif
