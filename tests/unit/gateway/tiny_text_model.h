/* tiny_text_model.h - the tiny model opened in memory's stead from a scratch file, as the gateway
 * opens a model. */
#ifndef SLUICE_TESTS_TINY_TEXT_MODEL_H
#define SLUICE_TESTS_TINY_TEXT_MODEL_H

#include "gateway/api_limits.h"
#include "model/model.h"
#include "tests/tiny/tiny_model.h"

/* The tiny vocabulary: 4 control tokens, then the 256 bytes, then merges. */
#define TINY_BYTE(b) (4 + (int32_t)(uint8_t)(b))

/* 0, or -1 with a line on stderr. The scratch file is removed at once (the mapping stays). */
int tiny_text_model_open(struct model *m, const char *name);
/* Limits of the tiny model under default settings. */
void tiny_text_limits(struct api_limits *l, const struct model *m);

#endif
