/* eval_stats.h - two models' opinions on the same text, position by position: perplexity, KL,
 * agreement, and whether they drift apart as a text grows.
 *
 * eval_compare turns two rows of logits into a point, eval_stats_add collects points by position.
 * B is the reference: KL is KL(B || A), agreement is "A's likeliest token is B's". With one model
 * (b = NULL) only nll and argmax of A are there. Sums in double. Thread: any, plain storage.
 */
#ifndef SLUICE_CLI_EVAL_STATS_H
#define SLUICE_CLI_EVAL_STATS_H

#include <stdbool.h>
#include <stdint.h>

#define EVAL_BUCKETS 16
#define EVAL_NEAR_TIE 0.35 /* nat: B itself hardly prefers its own choice to A's */

struct eval_point {
    double nll_a, nll_b; /* nats of the token that follows */
    double kl;           /* KL(B || A), nats, >= 0 but for rounding */
    double gap;          /* B's preference of its own choice over A's, nats; 0 when they agree */
    int32_t top_a, top_b;
};

struct eval_sums {
    uint64_t n, same, near; /* near: differs, but gap <= EVAL_NEAR_TIE */
    double nll_a, nll_b, kl, diff, kl_max, gap_max; /* diff: |difference of the log-probability| */
    double delta, delta2;   /* nll_a - nll_b and its square: the error of the perplexity's ratio */
};

struct eval_line { /* least squares of a quantity over the position */
    double n, x, y, xx, xy, yy;
};

struct eval_stats {
    bool two;              /* there is a B */
    uint32_t positions;    /* of a window; buckets are equal parts of it */
    struct eval_sums all, buckets[EVAL_BUCKETS];
    struct eval_line kl_line, same_line, nll_line;
};

/* target: the id that follows. b NULL: A alone. Rows of n_vocab floats, finite. */
void eval_compare(struct eval_point *p, const float *a, const float *b, uint32_t n_vocab,
                  int32_t target);

void eval_stats_init(struct eval_stats *s, bool two, uint32_t positions);
void eval_stats_add(struct eval_stats *s, uint32_t position, const struct eval_point *p);
/* First position of bucket i. */
uint32_t eval_stats_bucket_from(const struct eval_stats *s, uint32_t i);

double eval_perplexity_a(const struct eval_sums *s);
double eval_perplexity_b(const struct eval_sums *s);
double eval_agreement(const struct eval_sums *s); /* 0 .. 1 */
double eval_mean(double sum, uint64_t n);         /* NAN when n is 0 */
/* Perplexity of A over B's less 1, and one standard error of it. */
double eval_excess(const struct eval_sums *s, double *error);
/* Change of the quantity per 1,000 positions, and one standard error of it. NAN below 3 points. */
double eval_slope(const struct eval_line *l, double *error);
/* Whether A and B come apart along the text: KL rises, or agreement falls, by more than 3 standard
 * errors, and by more than a tenth of the mean KL or one in a hundred tokens over the window. */
bool eval_drifts(const struct eval_stats *s);

#endif
