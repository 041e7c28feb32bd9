/* sim_report.c - see sim_report.h. */
#include "cli/sim_report.h"

#include <math.h>
#include <string.h>

#define MS 1e6
#define S 1e9

static double quantile_ms(const struct sim_hist *h, double q) {
    return sim_hist_quantile(h, q) / MS;
}

static double seconds(const struct sim_report *r) {
    return r->totals->end_ns > 0 ? (double)r->totals->end_ns / S : 1;
}

static double share(uint64_t part, uint64_t all) {
    return all == 0 ? 0 : (double)part / (double)all;
}

static double busy(const struct sim_report *r) {
    double all = seconds(r) * S * r->plan->workers;
    return ((double)r->totals->busy_ns[0] + (double)r->totals->busy_ns[1]) / all;
}

static void add_ms(struct buf *b, double ms) {
    if (isfinite(ms))
        buf_addf(b, " %10.1f", ms);
    else
        buf_adds(b, "        inf");
}

static void add_row(struct buf *b, const struct sim_report *r, const char *name,
                    const struct sim_row *row) {
    static const double quantiles[] = {0.5, 0.9, 0.99};
    buf_addf(b, "%-16.16s %8llu %7llu", name, (unsigned long long)row->requests,
             (unsigned long long)row->failed);
    for (int i = 0; i < 3; i++)
        add_ms(b, quantile_ms(&row->ttft, quantiles[i]));
    for (int i = 0; i < 3; i++)
        add_ms(b, quantile_ms(&row->gap, quantiles[i]));
    add_ms(b, quantile_ms(&row->end, 0.99));
    buf_addf(b, " %9.1f %9.1f %6.1f%%\n", (double)row->output_tokens / seconds(r),
             (double)row->kept_tokens / seconds(r), 100 * share(row->kept, row->requests));
}

static void add_head(struct buf *b, const char *what) {
    buf_addf(b, "\n%-16s %8s %7s %10s %10s %10s %10s %10s %10s %10s %9s %9s %7s\n", what, "requests",
             "failed", "ttft p50", "p90", "p99", "gap p50", "p90", "p99", "end p99", "tokens/s", "goodput",
             "kept");
}

static void add_tenants(struct buf *b, const struct sim_report *r) {
    bool shown[SIM_TRACE_TENANTS_MAX] = {false};
    uint32_t n = r->trace->n_tenants;
    if (n < 2)
        return;
    add_head(b, "tenant");
    for (uint32_t k = 0; k < n && k < SIM_REPORT_TENANTS; k++) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++)
            if (!shown[i] && (best == n || r->meter->by_tenant[i].output_tokens >
                                               r->meter->by_tenant[best].output_tokens))
                best = i;
        shown[best] = true;
        add_row(b, r, r->trace->tenants[best], &r->meter->by_tenant[best]);
    }
    if (n > SIM_REPORT_TENANTS)
        buf_addf(b, "(and %u more tenants; --json has them all)\n", n - SIM_REPORT_TENANTS);
}

int sim_report_table(struct buf *b, const struct sim_report *r) {
    const struct sim_totals *t = r->totals;
    double all = seconds(r) * S;
    buf_addf(b, "%s: %u requests, %u worker%s: %s\n", r->title, r->trace->n, r->plan->workers,
             r->plan->workers == 1 ? "" : "s", r->plan->hardware->name);
    buf_addf(b, "last answer after %.1f s; workers busy %.1f%% (%.1f%% to %.1f%%)\n", seconds(r),
             100 * busy(r), 100 * (double)t->laziest_ns / all, 100 * (double)t->busiest_ns / all);
    buf_addf(b, "steps %llu, positions %llu, recomputed %llu, dropped %llu; preemptions %llu, parks %llu, "
                "copies %llu, cache hits %llu of %llu blocks\n",
             (unsigned long long)t->steps, (unsigned long long)t->positions,
             (unsigned long long)t->recomputed, (unsigned long long)t->dropped,
             (unsigned long long)t->preemptions, (unsigned long long)t->parks,
             (unsigned long long)t->copies, (unsigned long long)t->cache_hits,
             (unsigned long long)(t->cache_hits + t->cache_misses));
    add_head(b, "class");
    for (uint32_t k = 0; k < r->plan->classes.n; k++)
        if (r->meter->by_class[k].requests > 0)
            add_row(b, r, r->plan->classes.rows[k].name, &r->meter->by_class[k]);
    add_tenants(b, r);
    return b->bad ? -1 : 0;
}

/* ---- JSON ---- */

static json_t *number(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *times_json(const struct sim_hist *h) {
    return json_pack("{s:I,s:o,s:o,s:o,s:o,s:o}", "n", (json_int_t)h->count, "mean",
                     number(sim_hist_mean(h) / MS), "p50", number(quantile_ms(h, 0.5)), "p90",
                     number(quantile_ms(h, 0.9)), "p99", number(quantile_ms(h, 0.99)), "max",
                     number(h->endless > 0 ? INFINITY : (double)h->max_ns / MS));
}

static json_t *row_json(const struct sim_report *r, const char *name, const struct sim_row *row) {
    json_t *j = json_pack("{s:s,s:I,s:I,s:I,s:I,s:I}", "name", name, "requests",
                          (json_int_t)row->requests, "finished", (json_int_t)row->finished, "failed",
                          (json_int_t)row->failed, "prompt_tokens", (json_int_t)row->prompt_tokens,
                          "output_tokens", (json_int_t)row->output_tokens);
    json_object_set_new(j, "ttft_ms", times_json(&row->ttft));
    json_object_set_new(j, "gap_ms", times_json(&row->gap));
    json_object_set_new(j, "end_ms", times_json(&row->end));
    json_object_set_new(j, "tokens_s", number((double)row->output_tokens / seconds(r)));
    json_object_set_new(j, "goodput_tokens_s", number((double)row->kept_tokens / seconds(r)));
    json_object_set_new(j, "attainment", number(share(row->kept, row->requests)));
    json_object_set_new(j, "last_answer_s", number((double)row->last_ns / S));
    return j;
}

json_t *sim_report_json(const struct sim_report *r) {
    const struct sim_totals *t = r->totals;
    json_t *classes = json_array(), *tenants = json_array();
    for (uint32_t k = 0; k < r->plan->classes.n; k++)
        if (r->meter->by_class[k].requests > 0)
            json_array_append_new(
                classes, row_json(r, r->plan->classes.rows[k].name, &r->meter->by_class[k]));
    for (uint32_t i = 0; i < r->trace->n_tenants; i++)
        json_array_append_new(tenants, row_json(r, r->trace->tenants[i], &r->meter->by_tenant[i]));
    json_t *j = json_pack("{s:s,s:s,s:I,s:I,s:I}", "run", r->title, "hardware",
                          r->plan->hardware->name, "requests", (json_int_t)r->trace->n, "workers",
                          (json_int_t)r->plan->workers, "seed", (json_int_t)r->plan->seed);
    json_object_set_new(j, "seconds", number(seconds(r)));
    json_object_set_new(j, "utilisation", number(busy(r)));
    json_object_set_new(j, "utilisation_min", number((double)t->laziest_ns / (seconds(r) * S)));
    json_object_set_new(j, "utilisation_max", number((double)t->busiest_ns / (seconds(r) * S)));
    json_t *counts = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "steps", (json_int_t)t->steps, "positions",
        (json_int_t)t->positions, "recomputed", (json_int_t)t->recomputed, "dropped",
        (json_int_t)t->dropped, "preemptions", (json_int_t)t->preemptions, "parks",
        (json_int_t)t->parks, "drops", (json_int_t)t->drops, "copies", (json_int_t)t->copies,
        "cache_hits", (json_int_t)t->cache_hits, "cache_misses", (json_int_t)t->cache_misses,
        "resubmits", (json_int_t)t->resubmits);
    json_object_set_new(j, "counts", counts);
    json_object_set_new(j, "classes", classes);
    json_object_set_new(j, "tenants", tenants);
    return j;
}

/* ---- the difference of runs ---- */

static void compare_line(struct buf *b, const char *row, const char *what, double base, double v) {
    buf_addf(b, "  %-18.18s %-20s", row, what);
    buf_addf(b, " %12.6g -> %-12.6g", base, v);
    if (isfinite(base) && isfinite(v) && base != 0)
        buf_addf(b, " %+.1f%%", 100 * (v / base - 1));
    buf_addc(b, '\n');
}

static void compare_row(struct buf *b, const char *name, const struct sim_report *x,
                        const struct sim_row *r, const struct sim_report *y, const struct sim_row *s) {
    compare_line(b, name, "ttft p50 ms", quantile_ms(&r->ttft, 0.5), quantile_ms(&s->ttft, 0.5));
    compare_line(b, name, "ttft p99 ms", quantile_ms(&r->ttft, 0.99), quantile_ms(&s->ttft, 0.99));
    compare_line(b, name, "gap p99 ms", quantile_ms(&r->gap, 0.99), quantile_ms(&s->gap, 0.99));
    compare_line(b, name, "end p99 ms", quantile_ms(&r->end, 0.99), quantile_ms(&s->end, 0.99));
    compare_line(b, name, "goodput tokens/s", (double)r->kept_tokens / seconds(x),
                 (double)s->kept_tokens / seconds(y));
    compare_line(b, name, "promises kept %", 100 * share(r->kept, r->requests),
                 100 * share(s->kept, s->requests));
    compare_line(b, name, "last answer s", (double)r->last_ns / S, (double)s->last_ns / S);
}

static void compare(struct buf *b, const struct sim_report *x, const struct sim_report *y) {
    buf_addf(b, "\n%s -> %s\n", x->title, y->title);
    compare_line(b, "pool", "busy %", 100 * busy(x), 100 * busy(y));
    compare_line(b, "pool", "seconds", seconds(x), seconds(y));
    for (uint32_t k = 0; k < x->plan->classes.n; k++)
        if (x->meter->by_class[k].requests > 0)
            compare_row(b, x->plan->classes.rows[k].name, x, &x->meter->by_class[k], y,
                        &y->meter->by_class[k]);
    uint32_t n = x->trace->n_tenants;
    for (uint32_t i = 0; n > 1 && i < n && i < SIM_REPORT_TENANTS; i++)
        compare_row(b, x->trace->tenants[i], x, &x->meter->by_tenant[i], y, &y->meter->by_tenant[i]);
}

int sim_report_compare(struct buf *b, const struct sim_report *const *list, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        compare(b, list[0], list[i]);
    return b->bad ? -1 : 0;
}
