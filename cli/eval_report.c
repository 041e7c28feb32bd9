/* eval_report.c - see eval_report.h. */
#include "cli/eval_report.h"

#include "cli/eval_plot.h"

#include <math.h>

static const char *kv_name(const struct eval_side *s) {
    return s->kv_type == ENGINE_KV_INT8 ? "int8" : "f16";
}

void eval_report_side(const struct eval_side *s, char *out, size_t cap) {
    snprintf(out, cap, "%s (%s KV%s)", s->model.name, kv_name(s), s->precise ? ", precise" : "");
}

static void heading(const struct eval_run *r, bool self, FILE *f) {
    char a[192], b[192];
    eval_report_side(&r->a, a, sizeof(a));
    eval_report_side(&r->b, b, sizeof(b));
    if (self && r->b.path != NULL)
        fprintf(f, "A: %s wrote %u tokens greedily; B, the reference: %s, forced along them\n", a,
                r->n_made, b);
    else if (self)
        fprintf(f, "A: %s wrote %u tokens greedily, one by one; compared with itself reading them "
                   "in chunks\n(the two must agree everywhere)\n", a, r->n_made);
    else if (r->b.path != NULL)
        fprintf(f, "A: %s\nB, the reference: %s\n", a, b);
    else
        fprintf(f, "A: %s\n", a);
    fprintf(f, "%llu positions scored in %u window%s of up to %u tokens\n\n",
            (unsigned long long)r->stats.all.n, r->n_windows, r->n_windows == 1 ? "" : "s",
            self ? r->ctx : r->stats.positions);
}

static void summary(const struct eval_stats *s, bool two_models, FILE *f) {
    double error, excess = eval_excess(&s->all, &error);
    if (two_models)
        fprintf(f, "perplexity             A %.4f, B %.4f: %+.2f %% (one standard error %.2f %%)\n",
                eval_perplexity_a(&s->all), eval_perplexity_b(&s->all), 100 * excess, 100 * error);
    else
        fprintf(f, "perplexity             %.4f\n", eval_perplexity_a(&s->all));
    if (!s->two)
        return;
    fprintf(f, "top-1 agreement        %.2f %%, where not: near ties (B's gap <= %.2f nat) %llu of "
               "%llu, largest gap %.3f nat\n", 100 * eval_agreement(&s->all), EVAL_NEAR_TIE,
            (unsigned long long)s->all.near, (unsigned long long)(s->all.n - s->all.same),
            s->all.gap_max);
    if (!two_models)
        return;
    fprintf(f, "KL(B || A)             mean %.5f nat, largest %.4f\n",
            eval_mean(s->all.kl, s->all.n), s->all.kl_max);
    fprintf(f, "next token's logprob   mean |difference| %.4f nat\n",
            eval_mean(s->all.diff, s->all.n));
}

static void drift(const struct eval_stats *s, bool two_models, FILE *f) {
    double error;
    if (!s->two)
        return;
    double slope = eval_slope(&s->same_line, &error);
    fprintf(f, "over the position      agreement %+.2f %% (error %.2f %%)", 100 * slope,
            100 * error);
    if (two_models) {
        slope = eval_slope(&s->kl_line, &error);
        fprintf(f, ", KL %+.5f nat (error %.5f)", slope, error);
    }
    fprintf(f, " per 1,000 tokens: %s\n", eval_drifts(s) ? "DRIFT" : "no drift");
}

static void bucket_rows(const struct eval_stats *s, bool two_models, FILE *f) {
    char line[EVAL_BUCKETS + 1];
    fprintf(f, "\n%-13s %8s %12s", "position", "tokens", "perplexity A");
    if (two_models)
        fprintf(f, " %12s %10s", "perplexity B", "mean KL");
    fprintf(f, "%s\n", s->two ? "  agreement" : "");
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        const struct eval_sums *b = &s->buckets[i];
        char range[32];
        if (b->n == 0)
            continue;
        snprintf(range, sizeof(range), "%u-%u", eval_stats_bucket_from(s, i),
                 eval_stats_bucket_from(s, i + 1) - 1);
        fprintf(f, "%-13s %8llu %12.3f", range, (unsigned long long)b->n, eval_perplexity_a(b));
        if (two_models)
            fprintf(f, " %12.3f %10.5f", eval_perplexity_b(b), eval_mean(b->kl, b->n));
        if (s->two)
            fprintf(f, " %9.2f %%", 100 * eval_agreement(b));
        fprintf(f, "\n");
    }
    eval_plot_line(line, s);
    fprintf(f, "%s over the position, low '.' to high '@': [%s]\n",
            two_models ? "KL" : "nats per token", line);
}

void eval_report_table(const struct eval_run *r, bool self, FILE *f) {
    bool two_models = r->b.path != NULL;
    heading(r, self, f);
    summary(&r->stats, two_models, f);
    drift(&r->stats, two_models, f);
    bucket_rows(&r->stats, two_models, f);
}

static void set_real(json_t *j, const char *key, double v) {
    json_object_set_new(j, key, isfinite(v) ? json_real(v) : json_null());
}

static json_t *sums_json(const struct eval_sums *s, bool two, bool two_models) {
    json_t *j = json_pack("{s:I}", "positions", (json_int_t)s->n);
    set_real(j, "perplexity_a", eval_perplexity_a(s));
    if (two) {
        set_real(j, "agreement", eval_agreement(s));
        json_object_set_new(j, "differing", json_integer((json_int_t)(s->n - s->same)));
        json_object_set_new(j, "near_ties", json_integer((json_int_t)s->near));
        set_real(j, "largest_gap_nat", s->gap_max);
    }
    if (two_models) {
        set_real(j, "perplexity_b", eval_perplexity_b(s));
        set_real(j, "kl_mean_nat", eval_mean(s->kl, s->n));
        set_real(j, "kl_max_nat", s->kl_max);
        set_real(j, "logprob_difference_mean_nat", eval_mean(s->diff, s->n));
    }
    return j;
}

static json_t *slope_json(const struct eval_line *l) {
    double error, slope = eval_slope(l, &error);
    json_t *j = json_object();
    set_real(j, "per_1000", slope);
    set_real(j, "error", error);
    return j;
}

static json_t *side_json(const struct eval_side *s) {
    return json_pack("{s:s,s:s,s:b}", "model", s->model.name, "kv", kv_name(s), "precise",
                     s->precise);
}

json_t *eval_report_json(const struct eval_run *r, bool self) {
    bool two_models = r->b.path != NULL;
    const struct eval_stats *s = &r->stats;
    json_t *j = json_pack("{s:o,s:s,s:i,s:i,s:o}", "a", side_json(&r->a), "kind",
                          self ? "self" : "text", "windows", (int)r->n_windows, "window_tokens",
                          (int)s->positions, "all", sums_json(&s->all, s->two, two_models));
    json_t *buckets = json_array();
    if (two_models)
        json_object_set_new(j, "b", side_json(&r->b));
    if (self)
        json_object_set_new(j, "written", json_integer(r->n_made));
    if (s->two) {
        json_object_set_new(j, "agreement_slope", slope_json(&s->same_line));
        json_object_set_new(j, "drift", json_boolean(eval_drifts(s)));
    }
    if (two_models) {
        double error, excess = eval_excess(&s->all, &error);
        json_object_set_new(j, "kl_slope", slope_json(&s->kl_line));
        set_real(j, "perplexity_excess", excess);
        set_real(j, "perplexity_excess_error", error);
    }
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        json_t *b = sums_json(&s->buckets[i], s->two, two_models);
        json_object_set_new(b, "from", json_integer(eval_stats_bucket_from(s, i)));
        json_array_append_new(buckets, b);
    }
    json_object_set_new(j, "buckets", buckets);
    return j;
}
