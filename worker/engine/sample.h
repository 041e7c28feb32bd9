/* sample.h - what one sampled token depends on: a compact parameter block, the same for every backend.
 *
 * Output = f(logits, these parameters, seed, position) and nothing else (rules E5, E6). Order of the
 * sampler, fixed: 1 bias (logit_bias, then `banned` to -inf), mask; 2 repetition, presence, frequency
 * penalties over history (repetition: prompt and output ids, the other two: output ids only, as vLLM);
 * 3 temperature (0 = argmax of what step 2 left, ties to the smaller id; steps 4 to 6 are skipped);
 * 4 top_k; 5 top_p; 6 min_p; 7 one draw rand_unit(seed, position) over the kept ids by falling
 * probability, ties by id. Log-probabilities reported are of the raw logits, before step 1.
 */
#ifndef SLUICE_WORKER_ENGINE_SAMPLE_H
#define SLUICE_WORKER_ENGINE_SAMPLE_H

#include <stdint.h>

#define SAMPLE_TOP_MAX 20          /* alternatives a row can report */
#define SAMPLE_BIAS_MAX 1024       /* logit_bias entries */
#define SAMPLE_BANNED_MAX 64       /* ids held at -inf while min_tokens is not reached */

struct sample_bias { int32_t id; float bias; };

struct sample_params {
    float temperature;             /* 0 = greedy, up to 2 */
    float top_p;                   /* (0, 1]; 1 = off */
    float min_p;                   /* [0, 1]; 0 = off */
    int32_t top_k;                 /* 0 = off */
    float repetition_penalty;      /* > 0; 1 = off */
    float presence_penalty, frequency_penalty; /* -2 .. 2; 0 = off */
    uint64_t seed;                 /* of (request, choice): already mixed with the choice's number */
    uint64_t position;             /* absolute index of the token being drawn */
    const int32_t *history;        /* all ids before it; NULL when no penalty is on */
    uint32_t n_history, n_prompt;  /* history[0 .. n_prompt) is the prompt (E7) */
    const struct sample_bias *bias; uint32_t n_bias;
    const int32_t *banned; uint32_t n_banned;
    const uint64_t *mask;          /* bit i = id i allowed, (n_vocab + 63) / 64 words; NULL = all */
};

struct sample_top { int32_t id; float logprob; };

struct sample_result {
    int32_t id;                    /* sampled id, or the target of a SCORE row */
    float logprob;                 /* of `id` in the raw logits; 0 when not asked for */
    uint32_t n_top;
    struct sample_top top[SAMPLE_TOP_MAX]; /* falling logprob, ties by id */
};

#endif
