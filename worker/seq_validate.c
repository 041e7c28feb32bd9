/* seq_validate.c - is a SUBMIT possible on this model? The codec bounded sizes; here meanings are
 * checked.
 *
 * A breach is the gateway's fault or a skew of versions, never a client's: its gateway checked the
 * same.
 */
#include "worker/seq.h"

#include <math.h>

static bool ids_known(const int32_t *ids, uint32_t n, uint32_t n_vocab) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return false;
    return true;
}

static bool within(float x, float lo, float hi) {
    return isfinite(x) && x >= lo && x <= hi;
}

static const char *check_counts(const struct msg_submit *m, const struct seq_limits *l) {
    if (m->cls >= l->n_classes)
        return "class unknown to this worker";
    if (m->adapter != 0)
        return "adapters are not supported";
    if (m->n_prompt < 1 || m->n_prompt > m->n_ids)
        return "prompt boundary outside of the ids";
    if (m->n_ids > l->n_ctx)
        return "more ids than the context holds";
    if (m->max_total < m->n_ids)
        return "max_total below the ids given";
    if (m->from < 1 || m->from > m->n_ids)
        return "first index wanted outside of the ids";
    return NULL;
}

static const char *check_lists(const struct msg_submit *m, const struct seq_limits *l) {
    if (!ids_known(m->ids, m->n_ids, l->n_vocab))
        return "id outside of the vocabulary";
    if (m->n_stop_ids > MSG_STOP_IDS_MAX || !ids_known(m->stop_ids, m->n_stop_ids, l->n_vocab))
        return "stop id outside of the vocabulary";
    if (m->n_stops > STOP_MAX)
        return "too many stop strings";
    for (uint32_t i = 0; i < m->n_stops; i++)
        if (m->stops[i].n < 1 || m->stops[i].n > STOP_BYTES_MAX)
            return "stop string empty or too long";
    if (m->n_bias > SAMPLE_BIAS_MAX)
        return "too many bias entries";
    for (uint32_t i = 0; i < m->n_bias; i++)
        if (!ids_known(&m->bias[i].id, 1, l->n_vocab) || !isfinite(m->bias[i].bias))
            return "bias of an unknown id, or not a number";
    if (m->n_cache_salt > MSG_SALT_MAX)
        return "cache salt too long";
    if (m->n_top > SAMPLE_TOP_MAX)
        return "too many alternatives asked for";
    return NULL;
}

static const char *check_sampling(const struct msg_submit *m) {
    if (!within(m->temperature, 0.0f, 2.0f))
        return "temperature out of range";
    if (!within(m->top_p, 0.0f, 1.0f) || m->top_p <= 0.0f || !within(m->min_p, 0.0f, 1.0f))
        return "top_p or min_p out of range";
    if (m->top_k < 0)
        return "top_k out of range";
    if (!isfinite(m->repetition_penalty) || m->repetition_penalty <= 0.0f)
        return "repetition_penalty out of range";
    if (!within(m->presence_penalty, -2.0f, 2.0f) || !within(m->frequency_penalty, -2.0f, 2.0f))
        return "presence or frequency penalty out of range";
    return NULL;
}

/* While min_total is not reached every id that ends an answer is banned; the sampler's list is
 * bounded. */
static const char *check_banned(const struct msg_submit *m, const struct seq_limits *l) {
    struct stop_rules r = {
        .stop_ids = m->stop_ids, .n_stop_ids = m->n_stop_ids, .ignore_eos = m->ignore_eos};
    if (m->min_total > m->n_prompt && stopper_banned(l->vocab, &r, NULL, 0) > SAMPLE_BANNED_MAX)
        return "too many stop ids together with min_tokens";
    return NULL;
}

const char *seq_validate(const struct msg_submit *m, const struct seq_limits *l) {
    const char *why = check_counts(m, l);
    if (why == NULL)
        why = check_lists(m, l);
    if (why == NULL)
        why = check_sampling(m);
    if (why == NULL)
        why = check_banned(m, l);
    return why;
}
