/* api_tokenize.h - POST /tokenize and /detokenize (vLLM's form, and llama-server's {content} ->
 * {tokens}). */
#ifndef SLUICE_GATEWAY_API_TOKENIZE_H
#define SLUICE_GATEWAY_API_TOKENIZE_H

#include "gateway/api_params.h"
#include "model/model.h"

int api_tokenize(const struct model *m, const struct api_limits *lim, const json_t *body,
                 struct tokenizer_scratch *s, struct buf *out, struct err *e);
int api_detokenize(const struct model *m, const struct api_limits *lim, const json_t *body,
                   struct buf *out, struct err *e);

#endif
