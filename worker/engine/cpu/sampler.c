#include "worker/engine/cpu/sampler.h"

#include "base/hash.h"
#include "worker/engine/cpu/cpu_math.h"

#include <assert.h>
#include <float.h>
#include <string.h>

#define SEEN (1u << 31) /* in counts: the id is in the history; the low bits count it as output */

/* Ids are taken in falling order without sorting all: a heap of the ids whose value is within this
 * much (in units of temperature) of the maximum, and when it is used up one of the next band. On
 * real logits exp(-4) leaves tens of candidates, exp(-10) hundreds; the last one takes the rest. */
static const float band_depth[] = {4.0f, 10.0f, 20.0f, INFINITY};
#define BANDS 4
/* A band of many ids is first dealt out into buckets of falling values, so that the heap stays
 * small where thousands of ids are taken. */
#define BUCKETS 256
#define BUCKET_MIN 128 /* ids of a band that is not dealt out */

struct picker {
    const struct cpu_ops *ops;
    const float *values;
    int32_t *heap;        /* largest on top, ties: smaller id on top */
    int32_t *ids;         /* of the band, unordered, or bucket after bucket */
    uint32_t n_vocab, n_heap, band, bucket;
    uint32_t ends[BUCKETS]; /* of the band's buckets in ids; the next one is `bucket` */
    float max, temperature, upper; /* upper: values at or above were in an earlier band */
};

size_t sampler_bytes(uint32_t n_vocab) {
    return (size_t)n_vocab * (3 * sizeof(float) + 3 * sizeof(int32_t));
}

void sampler_init(struct sampler *s, const struct cpu_ops *ops, uint32_t n_vocab, void *work) {
    assert(n_vocab > 0);
    memset(work, 0, sampler_bytes(n_vocab));
    s->ops = ops;
    s->n_vocab = n_vocab;
    s->values = work;
    s->counts = (uint32_t *)(void *)(s->values + n_vocab);
    s->heap = (int32_t *)(void *)(s->counts + n_vocab);
    s->ids = s->heap + n_vocab;
    s->kept = s->ids + n_vocab;
    s->weights = (float *)(void *)(s->kept + n_vocab);
}

static bool in_range(const struct sampler *s, int32_t id) {
    return id >= 0 && (uint32_t)id < s->n_vocab;
}

/* Step 1. */
static void apply_bias_and_mask(struct sampler *s, const struct sample_params *p) {
    for (uint32_t i = 0; i < p->n_bias; i++)
        if (in_range(s, p->bias[i].id))
            s->values[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; i < p->n_banned; i++)
        if (in_range(s, p->banned[i]))
            s->values[p->banned[i]] = -INFINITY;
    for (uint32_t first = 0; p->mask != NULL && first < s->n_vocab; first += 64) {
        uint64_t masked = ~p->mask[first / 64];
        if (s->n_vocab - first < 64)
            masked &= (1ull << (s->n_vocab - first)) - 1;
        for (; masked != 0; masked &= masked - 1)
            s->values[first + (uint32_t)__builtin_ctzll(masked)] = -INFINITY;
    }
}

static bool has_penalties(const struct sample_params *p) {
    return p->history != NULL && (p->repetition_penalty != 1.0f || p->presence_penalty != 0 ||
                                  p->frequency_penalty != 0);
}

/* Step 2: counts first, then each id of the history once; counts are zero again afterwards. */
static void apply_penalties(struct sampler *s, const struct sample_params *p) {
    for (uint32_t i = 0; i < p->n_history; i++) {
        if (!in_range(s, p->history[i]))
            continue;
        uint32_t *c = &s->counts[p->history[i]];
        *c = (*c | SEEN) + (i >= p->n_prompt);
    }
    for (uint32_t i = 0; i < p->n_history; i++) {
        if (!in_range(s, p->history[i]) || s->counts[p->history[i]] == 0)
            continue;
        float *v = &s->values[p->history[i]];
        uint32_t n = s->counts[p->history[i]] & ~SEEN;
        s->counts[p->history[i]] = 0;
        *v = *v > 0 ? *v / p->repetition_penalty : *v * p->repetition_penalty;
        *v -= p->frequency_penalty * (float)n;
        if (n > 0)
            *v -= p->presence_penalty;
    }
}

/* +inf has no place in a sum. (NaN is passed over by every scan.) */
static void remove_infinity(float *values, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (values[i] > FLT_MAX)
            values[i] = FLT_MAX;
}

static bool above(const struct picker *k, int32_t a, int32_t b) {
    float va = k->values[a], vb = k->values[b];
    return va > vb || (va == vb && a < b);
}

static void sift_down(struct picker *k, uint32_t at) {
    int32_t id = k->heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= k->n_heap)
            break;
        if (child + 1 < k->n_heap && above(k, k->heap[child + 1], k->heap[child]))
            child++;
        if (!above(k, k->heap[child], id))
            break;
        k->heap[at] = k->heap[child];
        at = child;
    }
    k->heap[at] = id;
}

/* Never falls as the value does. */
static uint32_t bucket_of(float value, float top, float scale) {
    float at = (top - value) * scale;
    return at < BUCKETS - 1 ? (uint32_t)at : BUCKETS - 1;
}

/* n ids of heap go to ids, in the order of their buckets; inside a bucket by id. */
static void deal_out(struct picker *k, uint32_t n, float top, float width) {
    float scale = BUCKETS / width;
    uint32_t begin[BUCKETS] = {0};
    for (uint32_t i = 0; i < n; i++)
        begin[bucket_of(k->values[k->heap[i]], top, scale)]++;
    for (uint32_t b = 0, sum = 0; b < BUCKETS; b++) {
        uint32_t size = begin[b];
        begin[b] = sum;
        k->ends[b] = sum += size;
    }
    for (uint32_t i = 0; i < n; i++)
        k->ids[begin[bucket_of(k->values[k->heap[i]], top, scale)]++] = k->heap[i];
    k->bucket = 0;
}

static void make_heap(struct picker *k, uint32_t n) {
    k->n_heap = n;
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(k, i);
}

static void next_bucket(struct picker *k) {
    uint32_t begin = k->bucket == 0 ? 0 : k->ends[k->bucket - 1];
    uint32_t n = k->ends[k->bucket++] - begin;
    memcpy(k->heap, k->ids + begin, n * sizeof *k->heap);
    make_heap(k, n);
}

static void next_band(struct picker *k) {
    float depth = band_depth[k->band], above_it = k->band > 0 ? band_depth[k->band - 1] : 0;
    float lower = k->max - depth * k->temperature, top = k->upper < k->max ? k->upper : k->max;
    float width = (depth < INFINITY ? depth - above_it : above_it) * k->temperature;
    uint32_t n = k->ops->select(k->values, k->n_vocab, lower, k->upper, k->heap);
    k->band++;
    k->upper = lower;
    if (n > BUCKET_MIN && width > FLT_MIN && width < FLT_MAX)
        deal_out(k, n, top, width);
    else
        make_heap(k, n);
}

/* The next id in falling order; -1 when only ids of -inf are left. */
static int32_t picker_next(struct picker *k) {
    while (k->n_heap == 0) {
        if (k->bucket < BUCKETS)
            next_bucket(k);
        else if (k->band < BANDS)
            next_band(k);
        else
            return -1;
    }
    int32_t id = k->heap[0];
    k->heap[0] = k->heap[--k->n_heap];
    if (k->n_heap > 0)
        sift_down(k, 0);
    return id;
}

static float weight_of(const struct picker *k, int32_t id) {
    return exp_f32((k->values[id] - k->max) / k->temperature);
}

/* Steps 4 to 7 where ids are cut off: `limit` ids by top_k; top_p is a share of `total`, or when
 * that is negative of the weight of the ids top_k kept. */
static int32_t draw_cut(struct sampler *s, struct picker *k, const struct sample_params *p,
                        uint32_t limit, double total, double unit) {
    uint32_t n = 0, n_kept = 0;
    bool all = total < 0; /* top_k: its ids' sum must be known before top_p can cut */
    double sum = 0, kept = 0;
    int32_t id;
    while (n < limit && (n == 0 || all || p->top_p >= 1 || sum < p->top_p * total) &&
           (id = picker_next(k)) >= 0) {
        float w = weight_of(k, id);
        if (n > 0 && w < p->min_p && !all)
            break;
        s->kept[n] = id;
        s->weights[n++] = w;
        sum += w;
    }
    if (all)
        total = sum;
    for (; n_kept < n && (n_kept == 0 || p->top_p >= 1 || kept < p->top_p * total); n_kept++) {
        if (n_kept > 0 && s->weights[n_kept] < p->min_p)
            break;
        kept += s->weights[n_kept];
    }
    double running = 0;
    for (uint32_t i = 0; i < n_kept; i++) {
        running += s->weights[i];
        if (running > unit * kept)
            return s->kept[i];
    }
    return s->kept[n_kept - 1];
}

/* Steps 3 to 7 over `values`, whose largest is at `best` and finite. */
static int32_t draw(struct sampler *s, const float *values, uint32_t best,
                    const struct sample_params *p) {
    struct picker k = {.ops = s->ops, .values = values, .heap = s->heap, .ids = s->ids,
                       .n_vocab = s->n_vocab, .bucket = BUCKETS, .max = values[best],
                       .temperature = p->temperature, .upper = INFINITY};
    double unit = rand_unit(p->seed, p->position);
    bool limited = p->top_k > 0 && (uint32_t)p->top_k < s->n_vocab;
    if (limited)
        return draw_cut(s, &k, p, (uint32_t)p->top_k, -1, unit);
    double total = s->ops->sum_exp(values, s->n_vocab, k.max, p->temperature), sum = 0;
    if (values != s->values && p->temperature == 1.0f)
        s->raw_total = total;
    if (p->top_p < 1 || p->min_p > 0)
        return draw_cut(s, &k, p, s->n_vocab, total, unit);
    int32_t id, last = (int32_t)best;
    while ((id = picker_next(&k)) >= 0) {
        last = id;
        sum += weight_of(&k, id);
        if (sum > unit * total)
            break;
    }
    return last;
}

/* Steps 1 to 7. Without a reason to change the logits they are read where they are. */
static int32_t sample(struct sampler *s, const float *logits, const struct sample_params *p) {
    bool plain = p->n_bias == 0 && p->n_banned == 0 && p->mask == NULL && !has_penalties(p);
    const float *values = logits;
    if (!plain) {
        memcpy(s->values, logits, s->n_vocab * sizeof *logits);
        apply_bias_and_mask(s, p);
        if (has_penalties(p))
            apply_penalties(s, p);
        values = s->values;
    }
    uint32_t best = s->ops->argmax(values, s->n_vocab);
    if (plain)
        s->raw_best = best;
    if (!(p->temperature > 0))
        return (int32_t)best;
    if (values[best] > FLT_MAX) {
        if (plain)
            memcpy(s->values, logits, s->n_vocab * sizeof *logits);
        values = s->values;
        remove_infinity(s->values, s->n_vocab);
        best = s->ops->argmax(values, s->n_vocab);
    }
    return values[best] > -INFINITY ? draw(s, values, best, p) : (int32_t)best;
}

/* Largest of the raw logits, and log of the sum of exp(x - max). What step 3 found is used. */
static double log_sum(struct sampler *s, const float *logits, float *max) {
    if (s->raw_best == SAMPLER_UNKNOWN)
        s->raw_best = s->ops->argmax(logits, s->n_vocab);
    *max = logits[s->raw_best];
    if (s->raw_total < 0)
        s->raw_total = s->ops->sum_exp(logits, s->n_vocab, *max, 1.0f);
    return log_f64(s->raw_total);
}

static float logprob_of(const float *logits, int32_t id, float max, double log_total) {
    double lp = (double)logits[id] - max - log_total;
    return lp >= SAMPLER_LOGPROB_MIN ? lp > 0 ? 0 : (float)lp : SAMPLER_LOGPROB_MIN;
}

/* The n largest raw logits, falling, ties by id, into out->top (ids only), where NaN or infinite
 * ones are among them: one by one. */
static void find_odd_top(const float *logits, uint32_t n_vocab, uint32_t n,
                         struct sample_result *out) {
    float values[SAMPLE_TOP_MAX], floor_value = -INFINITY;
    uint32_t have = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        float v = logits[i] == logits[i] ? logits[i] : -INFINITY;
        if (have == n && !(v > floor_value))
            continue;
        uint32_t at = have < n ? have++ : n - 1;
        for (; at > 0 && v > values[at - 1]; at--) {
            values[at] = values[at - 1];
            out->top[at] = out->top[at - 1];
        }
        values[at] = v;
        out->top[at].id = (int32_t)i;
        floor_value = values[have - 1];
    }
    out->n_top = have;
}

static void find_top(struct sampler *s, const float *logits, float max, uint32_t n,
                     struct sample_result *out) {
    struct picker k = {.ops = s->ops, .values = logits, .heap = s->heap, .ids = s->ids,
                       .n_vocab = s->n_vocab, .bucket = BUCKETS, .max = max,
                       .temperature = 1, .upper = INFINITY};
    for (; out->n_top < n; out->n_top++) {
        int32_t id = picker_next(&k);
        if (id < 0) {
            find_odd_top(logits, s->n_vocab, n, out);
            return;
        }
        out->top[out->n_top].id = id;
    }
}

static void report(struct sampler *s, const float *logits, bool logprob, uint32_t n_top,
                   struct sample_result *out) {
    assert(n_top <= SAMPLE_TOP_MAX);
    float max;
    out->logprob = 0;
    out->n_top = 0;
    if (!logprob && n_top == 0)
        return;
    double log_total = log_sum(s, logits, &max);
    if (logprob && in_range(s, out->id))
        out->logprob = logprob_of(logits, out->id, max, log_total);
    if (n_top > 0)
        find_top(s, logits, max, n_top, out);
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = logprob_of(logits, out->top[i].id, max, log_total);
}

void sampler_sample(struct sampler *s, const float *logits, const struct sample_params *p,
                    bool logprob, uint32_t n_top, struct sample_result *out) {
    s->raw_best = SAMPLER_UNKNOWN;
    s->raw_total = -1;
    out->id = sample(s, logits, p);
    report(s, logits, logprob, n_top, out);
}

void sampler_score(struct sampler *s, const float *logits, int32_t target, uint32_t n_top,
                   struct sample_result *out) {
    s->raw_best = SAMPLER_UNKNOWN;
    s->raw_total = -1;
    out->id = target;
    report(s, logits, true, n_top, out);
}
