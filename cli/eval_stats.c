/* eval_stats.c - see eval_stats.h. */
#include "cli/eval_stats.h"

#include <math.h>
#include <string.h>

#define DRIFT_ERRORS 3
#define DRIFT_KL_PART 0.1
#define DRIFT_SAME 0.01

/* log of the sum of exp over a row, and its largest entry (the smallest id among equals). */
static double log_sum(const float *x, uint32_t n, int32_t *top) {
    double sum = 1; /* the best one itself */
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    for (uint32_t i = 0; i < n; i++)
        sum += i != best ? exp((double)x[i] - (double)x[best]) : 0;
    *top = (int32_t)best;
    return (double)x[best] + log(sum);
}

void eval_compare(struct eval_point *p, const float *a, const float *b, uint32_t n_vocab,
                  int32_t target) {
    memset(p, 0, sizeof(*p));
    double za = log_sum(a, n_vocab, &p->top_a), zb;
    p->nll_a = za - (double)a[target];
    if (b == NULL)
        return;
    zb = log_sum(b, n_vocab, &p->top_b);
    p->nll_b = zb - (double)b[target];
    p->gap = (double)b[p->top_b] - (double)b[p->top_a];
    for (uint32_t i = 0; i < n_vocab; i++) {
        double lb = (double)b[i] - zb;
        if (lb > -50) /* below e^-50 a term is nothing beside the rounding of the others */
            p->kl += exp(lb) * (lb - ((double)a[i] - za));
    }
}

void eval_stats_init(struct eval_stats *s, bool two, uint32_t positions) {
    memset(s, 0, sizeof(*s));
    s->two = two;
    s->positions = positions > 0 ? positions : 1;
}

static void add(struct eval_sums *s, const struct eval_point *p, bool two) {
    double delta = p->nll_a - p->nll_b;
    s->n++;
    s->nll_a += p->nll_a;
    if (!two)
        return;
    s->nll_b += p->nll_b;
    s->kl += p->kl;
    s->diff += fabs(delta);
    s->delta += delta;
    s->delta2 += delta * delta;
    s->same += p->top_a == p->top_b;
    s->near += p->top_a != p->top_b && p->gap <= EVAL_NEAR_TIE;
    s->kl_max = p->kl > s->kl_max ? p->kl : s->kl_max;
    s->gap_max = p->gap > s->gap_max ? p->gap : s->gap_max;
}

static void line_add(struct eval_line *l, double x, double y) {
    l->n++;
    l->x += x;
    l->y += y;
    l->xx += x * x;
    l->xy += x * y;
    l->yy += y * y;
}

void eval_stats_add(struct eval_stats *s, uint32_t position, const struct eval_point *p) {
    uint64_t bucket = (uint64_t)position * EVAL_BUCKETS / s->positions;
    bucket = bucket < EVAL_BUCKETS ? bucket : EVAL_BUCKETS - 1;
    add(&s->all, p, s->two);
    add(&s->buckets[bucket], p, s->two);
    line_add(&s->nll_line, position, p->nll_a);
    if (s->two) {
        line_add(&s->kl_line, position, p->kl);
        line_add(&s->same_line, position, p->top_a == p->top_b);
    }
}

uint32_t eval_stats_bucket_from(const struct eval_stats *s, uint32_t i) {
    return (uint32_t)(((uint64_t)i * s->positions + EVAL_BUCKETS - 1) / EVAL_BUCKETS);
}

double eval_mean(double sum, uint64_t n) {
    return n > 0 ? sum / (double)n : NAN;
}

double eval_perplexity_a(const struct eval_sums *s) {
    return exp(eval_mean(s->nll_a, s->n));
}

double eval_perplexity_b(const struct eval_sums *s) {
    return exp(eval_mean(s->nll_b, s->n));
}

double eval_agreement(const struct eval_sums *s) {
    return eval_mean((double)s->same, s->n);
}

double eval_excess(const struct eval_sums *s, double *error) {
    double n = (double)s->n, mean = eval_mean(s->delta, s->n);
    double variance = s->n > 1 ? (s->delta2 - n * mean * mean) / (n - 1) : NAN;
    double ratio = exp(mean);
    *error = ratio * sqrt(fmax(variance, 0) / n);
    return ratio - 1;
}

double eval_slope(const struct eval_line *l, double *error) {
    double sxx = l->xx - l->x * l->x / l->n, sxy = l->xy - l->x * l->y / l->n;
    double syy = l->yy - l->y * l->y / l->n;
    *error = NAN;
    if (l->n < 3 || !(sxx > 0))
        return NAN;
    double slope = sxy / sxx;
    *error = 1000 * sqrt(fmax(syy - slope * sxy, 0) / (l->n - 2) / sxx);
    return 1000 * slope;
}

bool eval_drifts(const struct eval_stats *s) {
    double kl_error, same_error, window = s->positions / 1000.0;
    double kl = eval_slope(&s->kl_line, &kl_error), same = eval_slope(&s->same_line, &same_error);
    double mean = eval_mean(s->all.kl, s->all.n);
    if (!s->two)
        return false;
    return (kl > DRIFT_ERRORS * kl_error && kl * window > DRIFT_KL_PART * mean) ||
           (-same > DRIFT_ERRORS * same_error && -same * window > DRIFT_SAME);
}
