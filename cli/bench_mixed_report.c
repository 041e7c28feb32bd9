/* bench_mixed_report.c - the table (see bench_mixed_report.h). */
#include "cli/bench_mixed_report.h"
#include "cli/bench_machine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const mixed_what_names[MIXED_WHATS] = {"TTFT", "gap", "E2E"};
const char *const mixed_kind_names[STATS_KINDS] = {"p50", "p90", "p99", "mean"};

const char *mixed_state_word(enum mixed_state s) {
    static const char *const words[] = {"held", "MISSED", "not checked"};
    return words[s];
}

void mixed_heading(const struct mixed *m, char *out, size_t cap) {
    char date[16], cpu[128];
    bench_date(date);
    bench_cpu_name(cpu, sizeof(cpu));
    int n = snprintf(out, cap, "%s, %s, %d cores; ", date, cpu, bench_cores());
    if (n < 0 || (size_t)n >= cap)
        return;
    if (m->o.url != NULL)
        snprintf(out + n, cap - (size_t)n, "%s at %s", m->model, m->o.url);
    else
        snprintf(out + n, cap - (size_t)n, "%s, engine %s, %u thread%s, %u seats, %u KV positions",
                 m->model, m->o.engine, m->o.threads, m->o.threads > 1 ? "s" : "", m->o.seats,
                 m->kv_tokens);
}

void mixed_scope(const struct mixed *m, char *out, size_t cap) {
    uint32_t valid = 0;
    for (uint32_t i = 0; i < m->n_runs; i++)
        valid += m->runs[i].valid;
    if (m->plan.n >= MIXED_CLAIM_REQUESTS)
        snprintf(out, cap,
                 "%u arrivals an arm: enough for the promise at p99. %u of %u run%s valid.",
                 m->plan.n, valid, m->n_runs, m->n_runs > 1 ? "s" : "");
    else
        snprintf(out, cap,
                 "%u arrivals an arm: p50 and mean are as good as their intervals say; p99 "
                 "rests on %.0f waits of both arms and claims nothing below %u arrivals "
                 "(--requests %u). %u of %u run%s valid.",
                 m->plan.n, m->plan.n * 0.02, MIXED_CLAIM_REQUESTS, MIXED_CLAIM_REQUESTS, valid,
                 m->n_runs, m->n_runs > 1 ? "s" : "");
}

static void cell(FILE *f, double v, const char *fmt, int width) {
    char text[32] = "-";
    if (isfinite(v))
        snprintf(text, sizeof(text), fmt, v);
    fprintf(f, " %*s", width, text);
}

static void arm_row(FILE *f, const struct mixed_row *w) {
    fprintf(f, "%-4s %7.1f", w->name, w->wall_s);
    if (w->arrivals > 0) {
        char n[24];
        snprintf(n, sizeof(n), "%u/%u", w->answered, w->arrivals);
        fprintf(f, " %11s", n);
        cell(f, w->waits[MIXED_TTFT][STATS_P50], "%.2f", 8);
        cell(f, w->waits[MIXED_TTFT][STATS_P99], "%.2f", 8);
        cell(f, w->waits[MIXED_GAP][STATS_P50], "%.2f", 8);
        cell(f, w->waits[MIXED_GAP][STATS_P99], "%.2f", 8);
    } else {
        fprintf(f, " %11s %8s %8s %8s %8s", "-", "-", "-", "-", "-");
    }
    cell(f, w->batch_tok_s > 0 ? w->batch_tok_s : NAN, "%.1f", 10);
    cell(f, w->busy, "%.3f", 6);
    cell(f, w->late_p99_ms, "%.2f", 8);
    fprintf(f, "\n");
}

static void ratio_row(FILE *f, const char *name, const struct stats_ratio *r) {
    fprintf(f, "%-10s", name);
    cell(f, r->alone, "%.2f", 10);
    cell(f, r->mixed, "%.2f", 10);
    cell(f, r->ratio, "%.3f", 8);
    cell(f, r->low, "%.3f", 8);
    cell(f, r->high, "%.3f", 8);
    fprintf(f, "\n");
}

static void ratios(const struct mixed_run *r, FILE *f) {
    static const int order[] = {STATS_P50, STATS_MEAN, STATS_P90, STATS_P99};
    char name[24];
    fprintf(f, "\n%-10s %9s %10s %8s %17s\n", "", "alone ms", "mixed ms", "ratio", "95 % interval");
    for (int what = 0; what < MIXED_WHATS; what++)
        for (int k = 0; k < STATS_KINDS; k++) {
            snprintf(name, sizeof(name), "%s %s", mixed_what_names[what],
                     mixed_kind_names[order[k]]);
            ratio_row(f, name, &r->ratios[what][order[k]]);
        }
}

static void sums(const struct mixed *m, const struct mixed_run *r, FILE *f) {
    fprintf(f,
            "\nharvest %.3f (%.3f to %.3f): batch %.1f tokens/s alone, %.1f mixed, U %.3f; output "
            "tokens only %.3f\n",
            r->harvest.ratio, r->harvest.low, r->harvest.high, r->harvest.alone, r->harvest.mixed,
            r->u, r->harvest_out.ratio);
    fprintf(f,
            "within TTFT %.0f ms and mean gap %.0f ms: alone %.2f %% (%.2f to %.2f), mixed %.2f %% "
            "(%.2f to %.2f); goodput %.3f and %.3f requests/s\n",
            m->o.slo_ttft_ms, m->o.slo_gap_ms, 100 * r->attained[0].ratio, 100 * r->attained[0].low,
            100 * r->attained[0].high, 100 * r->attained[1].ratio, 100 * r->attained[1].low,
            100 * r->attained[1].high, r->goodput[0], r->goodput[1]);
    fprintf(f, "mixed arms: ");
    if (r->mixed.known)
        fprintf(f,
                "%.0f parks, %.0f drops, %.0f preemptions, %.0f swap-ins, %.0f recomputes in %.0f "
                "steps\n",
                r->mixed.parks, r->mixed.drops, r->mixed.preemptions, r->mixed.swap_ins,
                r->mixed.recomputes, r->mixed.steps);
    else
        fprintf(f, "this server counts no parks, drops or preemptions\n");
    fprintf(f,
            "answers beside the same request alone: real-time %u of %u identical, batch %u of %u\n",
            r->rt.same, r->rt.compared, r->batch.same, r->batch.compared);
}

static void checks(const struct mixed_run *r, FILE *f) {
    for (int promise = 1; promise >= 0; promise--) {
        fprintf(f, "\n%s\n",
                promise ? "promises" : "conditions (one missed: the run proves nothing)");
        for (uint32_t i = 0; i < r->n_checks; i++) {
            const struct mixed_check *c = &r->checks[i];
            if (c->promise == (promise == 1))
                fprintf(f, "  %-12s %-20s %s\n", mixed_state_word(c->state), c->name, c->text);
        }
    }
    fprintf(f, "\nrun %s; promises %s\n", r->valid ? "valid" : "VOID", r->held ? "held" : "MISSED");
}

static void kill_part(const struct mixed *m, FILE *f) {
    const struct mixed_kill *k = &m->kill;
    fprintf(f,
            "\nkill -9 of worker and gateway while both classes ran: %u lost, %u doubled of %u "
            "real-time and %u batch requests\n",
            k->lost, k->doubled, k->realtime, k->batch);
    fprintf(
        f,
        "%u sent again (%u connections cut, %u refusals); answers again after %.2f s (worker) and "
        "%.2f s (gateway); %u of %u answers identical\n",
        k->sent_again, k->cut, k->refused, k->back_s[0], k->back_s[1], k->answers.same,
        k->answers.compared);
}

void mixed_report_table(const struct mixed *m, FILE *f) {
    char text[600];
    mixed_heading(m, text, sizeof(text));
    fprintf(f, "%s\n", text);
    fprintf(f,
            "%u arrivals an arm at %.3f/s%s%s, mean %.1f in / %.1f out; batch %u in / %u out, %u "
            "out at "
            "a time; seed %llu; %.0f s\n",
            m->plan.n, m->plan.rate, m->o.trace != NULL ? " of " : "",
            m->o.trace != NULL ? m->o.trace : "", load_plan_mean_in(&m->plan),
            load_plan_mean_out(&m->plan), m->o.batch_in, m->o.batch_out, m->o.keep,
            (unsigned long long)m->o.seed, m->took_s);
    for (uint32_t i = 0; i < m->n_runs; i++) {
        const struct mixed_run *r = &m->runs[i];
        if (m->n_runs > 1)
            fprintf(f, "\n==== run %u of %u\n", i + 1, m->n_runs);
        fprintf(f, "\n%-4s %7s %11s %8s %8s %8s %8s %10s %6s %8s\n", "arm", "s", "answered",
                "TTFT p50", "p99 ms", "gap p50", "p99 ms", "batch t/s", "busy", "late ms");
        for (int k = 0; k < MIXED_ARMS; k++)
            arm_row(f, &r->rows[k]);
        ratios(r, f);
        sums(m, r, f);
        checks(r, f);
    }
    if (m->sim.done)
        mixed_sim_table(m, f);
    if (m->kill.done)
        kill_part(m, f);
    mixed_scope(m, text, sizeof(text));
    fprintf(f, "\n%s\n", text);
}
