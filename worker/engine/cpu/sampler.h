/* sampler.h - one row of logits to one id (worker/engine/sample.h says the order of the steps).
 *
 * Kept ids are ordered by falling value after steps 1 and 2, ties by id; top_p keeps the shortest
 * run of that order whose probability reaches top_p (at least one id), min_p those with at least
 * min_p times the largest probability. Sums are double, in that order (or 8 fixed lanes by id
 * where nothing is cut). The draw takes the first id whose running sum exceeds rand_unit(seed,
 * position) * total.
 * NaN logits count as -inf, +inf as the largest float. When every id is masked or banned, id 0 is
 * returned (a mask with no bit set is the caller's mistake). Out-of-range ids in lists are skipped.
 * Reported log-probabilities are at least SAMPLER_LOGPROB_MIN and never NaN, so that JSON can
 * hold them.
 *
 * Order: sampler_init once per thread that samples, then sampler_sample / sampler_score; one
 * sampler belongs to one thread at a time. Memory: the caller's, sampler_bytes(n_vocab) bytes (24
 * per id), no allocation. Cost on 49,152 ids: a scan of them, 3 us, for greedy; two more for top_k,
 * and one with exp, 15 us, for top_p without top_k and for log-probabilities (once for both at
 * temperature 1); a heap of the likely ids.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_SAMPLER_H
#define SLUICE_WORKER_ENGINE_CPU_SAMPLER_H

#include "worker/engine/cpu/ops.h"
#include "worker/engine/sample.h"

#define SAMPLER_LOGPROB_MIN (-9999.0f)
#define SAMPLER_UNKNOWN UINT32_MAX

struct sampler {
    const struct cpu_ops *ops;
    uint32_t n_vocab;
    float *values;    /* logits after steps 1 and 2 */
    uint32_t *counts; /* of history ids; all zero between calls */
    int32_t *heap;    /* ids the next one is among */
    int32_t *ids;     /* ids of the present band */
    int32_t *kept;    /* ids in falling order */
    float *weights;   /* of kept */
    uint32_t raw_best; /* of this call: index of the largest raw logit, or SAMPLER_UNKNOWN */
    double raw_total;  /* of this call: sum of exp(logit - largest), or below 0 */
};

size_t sampler_bytes(uint32_t n_vocab);
/* `work`: sampler_bytes bytes, 16-byte aligned; kept until the sampler is no longer used. */
void sampler_init(struct sampler *s, const struct cpu_ops *ops, uint32_t n_vocab, void *work);

/* Draws an id; with `logprob` its log-probability, and the n_top (<= SAMPLE_TOP_MAX) likeliest
 * ids. */
void sampler_sample(struct sampler *s, const float *logits, const struct sample_params *p,
                    bool logprob, uint32_t n_top, struct sample_result *out);
/* The known id `target` instead of a draw: its log-probability always, and the top list. */
void sampler_score(struct sampler *s, const float *logits, int32_t target, uint32_t n_top,
                   struct sample_result *out);

#endif
