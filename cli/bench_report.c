/* bench_report.c - see bench_report.h. */
#include "cli/bench_report.h"
#include "cli/bench_machine.h"

#include <math.h>
#include <string.h>

#define MB 1e-6

static void cell(FILE *f, double v, const char *fmt, int width) {
    char text[32] = "-";
    if (isfinite(v) && v > 0)
        snprintf(text, sizeof(text), fmt, v);
    fprintf(f, " %*s", width, text);
}

/* Median of the pairs' own ratios: two samples one behind the other saw the same machine. */
static double precise_ratio(const struct bench_case *c) {
    struct bench_samples ratios = {.n = 0};
    for (int i = 0; i < c->precise.n && i < c->ours.n; i++)
        bench_samples_add(&ratios, c->precise.v[i] / c->ours.v[i]);
    return bench_samples_median(&ratios);
}

static void case_row(const struct bench_case *c, FILE *f) {
    char name[64], spread[40] = "-";
    double ours = bench_samples_median(&c->ours), peer = bench_samples_median(&c->peer);
    bench_case_name(c, name, sizeof(name));
    fprintf(f, "%-22s %7u", name, c->threads);
    if (c->skipped) {
        fprintf(f, "  skipped: K and V of %.1f GB do not fit half of the free memory, or the "
                   "context is past the model's\n", (double)c->kv_bytes * 1e-9);
        return;
    }
    if (c->ours.n > 0)
        snprintf(spread, sizeof(spread), "%.1f-%.1f", bench_samples_min(&c->ours),
                 bench_samples_max(&c->ours));
    cell(f, ours, "%.1f", 9);
    fprintf(f, " %17s", spread);
    cell(f, 100 * ours / c->bound, "%.0f %%", 7);
    cell(f, peer, "%.1f", 9);
    cell(f, ours / peer, "%.2f", 6);
    if (c->precise.n > 0) {
        cell(f, bench_samples_median(&c->precise), "%.1f", 9);
        cell(f, precise_ratio(c), "%.3f", 6);
    }
    fprintf(f, "%s%s\n", c->peer_name[0] != '\0' ? " " : "", c->peer_name);
}

/* "name median (least-most) unit" */
static void rate(FILE *f, const char *name, const struct bench_samples *s, const char *fmt,
                 const char *unit) {
    char v[3][24];
    snprintf(v[0], sizeof(v[0]), fmt, bench_samples_median(s));
    snprintf(v[1], sizeof(v[1]), fmt, bench_samples_min(s));
    snprintf(v[2], sizeof(v[2]), fmt, bench_samples_max(s));
    fprintf(f, "%s %s (%s-%s)%s", name, v[0], v[1], v[2], unit);
}

void bench_report_table(const struct bench_engine *b, FILE *f) {
    char date[16], cpu[128];
    bench_date(date);
    bench_cpu_name(cpu, sizeof(cpu));
    fprintf(f, "%s, %s, %s, %s KV; %s; weights %.1f MB a step, opened in %.2f s\n", date,
            b->model.name, b->setups[0].drive.limits->family,
            b->kv_type == ENGINE_KV_INT8 ? "int8" : "f16", cpu, b->work.weight_bytes * MB,
            b->open_s);
    for (uint32_t t = 0; t < b->threads.n; t++) {
        const struct bench_setup *s = &b->setups[t];
        fprintf(f, "%u thread%s: ", s->threads, s->threads > 1 ? "s" : "");
        rate(f, "weights' bytes", &s->weights_gb_s, "%.1f", " GB/s, ");
        rate(f, "past caches", &s->read_gb_s, "%.1f", " GB/s, ");
        rate(f, "inner loop", &s->int8_gmac_s, "%.0f", " int8 Gmac/s\n");
    }
    fprintf(f, "\n%-22s %7s %9s %17s %7s %9s %6s%s\n", "tokens/s", "threads", "median", "spread",
            "bound", "peer", "ratio", b->precise ? "   precise  ratio" : "");
    for (uint32_t i = 0; i < b->n_cases; i++)
        case_row(&b->cases[i], f);
    fprintf(f, "\nbound: of what reads (of the weights' bytes again and again; past every cache) and "
               "the inner loop measured\nbeside it would allow. A step's width and the positions "
               "before it: \"decode 16 at 2048\" is 16 sequences,\neach with 2,048 positions.\n");
    if (b->precise)
        fprintf(f, "precise: the same with that setting, sample by sample in turn; ratio: the median "
                   "of the pairs'.\n");
    if (b->peer != NULL)
        fprintf(f, "peer: %s on %s, interleaved (ours, peer, peer, ours). How it did the same: "
                   "prompt, generate, batched,\nor pp (one prompt of as many tokens).\n",
                b->peer, b->peer_model);
}

static json_t *samples_json(const struct bench_samples *s) {
    json_t *list = json_array();
    for (int i = 0; i < s->n; i++)
        json_array_append_new(list, json_real(s->v[i]));
    if (s->n == 0)
        return json_pack("{s:o}", "samples", list);
    return json_pack("{s:f,s:f,s:f,s:o}", "median", bench_samples_median(s), "min",
                     bench_samples_min(s), "max", bench_samples_max(s), "samples", list);
}

static json_t *case_json(const struct bench_case *c) {
    char name[64];
    bench_case_name(c, name, sizeof(name));
    json_t *j = json_pack("{s:s,s:s,s:i,s:i,s:i,s:b,s:I}", "name", name, "kind",
                          c->kind == BENCH_PREFILL ? "prefill" : "decode", "threads",
                          (int)c->threads, "tokens", (int)c->tokens, "context", (int)c->context,
                          "skipped", c->skipped, "kv_bytes", (json_int_t)c->kv_bytes);
    if (j == NULL || c->skipped)
        return j;
    json_object_set_new(j, "tokens_s", samples_json(&c->ours));
    if (isfinite(c->bound))
        json_object_set_new(j, "bound_tokens_s", json_real(c->bound));
    if (c->precise.n > 0) {
        json_object_set_new(j, "precise_tokens_s", samples_json(&c->precise));
        json_object_set_new(j, "precise_ratio", json_real(precise_ratio(c)));
    }
    if (c->peer.n > 0) {
        json_object_set_new(j, "peer_tokens_s", samples_json(&c->peer));
        json_object_set_new(j, "peer_how", json_string(c->peer_name));
        json_object_set_new(j, "ratio", json_real(bench_samples_median(&c->ours) /
                                                  bench_samples_median(&c->peer)));
    }
    return j;
}

json_t *bench_report_json(const struct bench_engine *b) {
    char date[16], cpu[128];
    bench_date(date);
    bench_cpu_name(cpu, sizeof(cpu));
    json_t *rates = json_array(), *cases = json_array();
    for (uint32_t t = 0; t < b->threads.n; t++)
        json_array_append_new(rates, json_pack("{s:i,s:o,s:o,s:o}", "threads",
                                               (int)b->setups[t].threads, "read_gb_s",
                                               samples_json(&b->setups[t].read_gb_s),
                                               "weights_gb_s",
                                               samples_json(&b->setups[t].weights_gb_s),
                                               "int8_gmac_s",
                                               samples_json(&b->setups[t].int8_gmac_s)));
    for (uint32_t i = 0; i < b->n_cases; i++)
        json_array_append_new(cases, case_json(&b->cases[i]));
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:f,s:f,s:s?,s:o,s:o}", "date", date, "cpu", cpu,
                     "model", b->model.name, "family", b->setups[0].drive.limits->family, "kv",
                     b->kv_type == ENGINE_KV_INT8 ? "int8" : "f16", "rounds", (int)b->rounds,
                     "weight_bytes", b->work.weight_bytes, "open_s", b->open_s, "peer", b->peer,
                     "machine", rates, "cases", cases);
}
