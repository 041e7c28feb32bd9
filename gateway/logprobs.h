/* logprobs.h - log-probabilities of a piece in the two forms of the OpenAI API. */
#ifndef SLUICE_GATEWAY_LOGPROBS_H
#define SLUICE_GATEWAY_LOGPROBS_H

#include "gateway/choice.h"

/* {"content":[{"token","logprob","bytes","top_logprobs"}...],"refusal":null} */
void logprobs_chat(struct buf *out, const struct choice *c, const struct api_params *params,
                   const struct model *m, const struct piece *p);
/* {"tokens","token_logprobs","top_logprobs","text_offset"}: the prompt's own first when the piece
 * holds it. */
void logprobs_completion(struct buf *out, const struct choice *c, const struct api_params *params,
                         const struct model *m, const struct piece *p);

#endif
