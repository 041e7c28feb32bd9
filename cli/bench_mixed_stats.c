/* bench_mixed_stats.c - figures of a run: waits, ratios, harvest, attainment (see bench_mixed.h).
 */
#include "base/hash.h"
#include "base/mem.h"
#include "cli/bench_mixed.h"

#include <math.h>
#include <string.h>

static const char *const arm_names[MIXED_ARMS] = {"B1", "A1", "M1", "M2", "A2", "B2"};

/* One request's waits of a kind, added to its arrival. */
static void add_waits(struct stats_waits *w, uint32_t i, const struct arm_request *r,
                      enum mixed_what what) {
    const struct answer *a = &r->answer;
    if (!a->whole) {
        stats_waits_add(w, i, INFINITY);
        return;
    }
    if (what == MIXED_TTFT)
        stats_waits_add(w, i, answer_first_ms(a) - r->first_sent_ms);
    if (what == MIXED_E2E)
        stats_waits_add(w, i, answer_last_ms(a) - r->first_sent_ms);
    for (uint32_t k = 1; what == MIXED_GAP && k < a->n_pieces; k++)
        stats_waits_add(w, i, a->pieces[k].at_ms - a->pieces[k - 1].at_ms);
}

static int waits_of(struct stats_waits *w, const struct arm *a, enum mixed_what what) {
    uint32_t n = a->plan != NULL ? a->plan->n : 0, cap = 0;
    for (uint32_t i = 0; i < n; i++)
        cap += 1 + a->rt[i].answer.n_pieces;
    if (stats_waits_init(w, n, cap) != 0)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        add_waits(w, i, &a->rt[i], what);
    return 0;
}

/* Share of the time in which a real-time request was in flight, as seen from here. */
static double seen_busy(const struct arm *a) {
    double busy = 0, upto = 0;
    for (uint32_t i = 0; a->plan != NULL && i < a->plan->n; i++) {
        const struct arm_request *r = &a->rt[i]; /* in order of their sending */
        double end = answer_last_ms(&r->answer);
        double begin = r->first_sent_ms > upto ? r->first_sent_ms : upto;
        if (end > begin) {
            busy += end - begin;
            upto = end;
        }
    }
    return busy / (a->to_ms - a->from_ms);
}

double mixed_busy(const struct mixed *m, const struct arm *a) {
    if (m->busy_by == MIXED_BUSY_CPU)
        return arm_busy_cpu(a);
    return m->busy_by == MIXED_BUSY_STEPS ? arm_busy_steps(a) : seen_busy(a);
}

static void count(struct mixed_row *w, const struct arm *a) {
    w->arrivals = a->plan != NULL ? a->plan->n : 0;
    for (uint32_t i = 0; i < w->arrivals; i++) {
        w->answered += a->rt[i].answer.whole;
        w->refused += a->rt[i].refused;
        w->broken += a->rt[i].broken;
    }
    for (uint32_t i = 0; i < a->n_batch; i++) {
        w->batch_done += a->batch[i]->answer.whole;
        w->batch_refused += a->batch[i]->refused;
    }
}

static void row(const struct mixed *m, struct mixed_row *w, const struct arm *a, const char *name) {
    *w = (struct mixed_row){.name = name,
                            .wall_s = arm_wall_s(a),
                            .busy = mixed_busy(m, a),
                            .late_p99_ms = a->late_p99_ms,
                            .shortest = a->shortest};
    count(w, a);
    if (a->n_batch > 0) {
        w->batch_tok_s = arm_batch_tokens(a, a->from_ms, a->to_ms, true) / w->wall_s;
        w->batch_out_tok_s = arm_batch_tokens(a, a->from_ms, a->to_ms, false) / w->wall_s;
        w->streams = arm_batch_streams(a);
    }
}

static int curve(double out[MIXED_CURVE], const struct stats_waits *const *arms) {
    uint32_t n = arms[0]->at[arms[0]->n], all = n + arms[1]->at[arms[1]->n];
    double *v = mem_array(all + 1, sizeof(*v));
    if (v == NULL)
        return -1;
    memcpy(v, arms[0]->v, n * sizeof(*v));
    memcpy(v + n, arms[1]->v, (all - n) * sizeof(*v));
    stats_sort(v, all);
    for (int i = 0; i < MIXED_CURVE; i++)
        out[i] = stats_quantile(v, all, (double)i / (MIXED_CURVE - 1));
    mem_free(v);
    return 0;
}

static int latencies(struct mixed *m, struct mixed_run *r, enum mixed_what what) {
    static const int arms[4] = {MIXED_A1, MIXED_A2, MIXED_M1, MIXED_M2};
    struct stats_waits w[4] = {{0}};
    const struct stats_waits *alone[2] = {&w[0], &w[1]}, *mixed[2] = {&w[2], &w[3]};
    int rc = 0;
    for (int k = 0; k < 4 && rc == 0; k++) {
        const struct stats_waits *one[1] = {&w[k]};
        rc = waits_of(&w[k], &r->arms[arms[k]], what) != 0 ||
             stats_pooled(r->rows[arms[k]].waits[what], one, 1) != 0;
    }
    rc = rc != 0 ||
         stats_ratios(r->ratios[what], alone, mixed, 2, m->o.seed + (uint64_t)what) != 0 ||
         curve(r->curves[what][0], alone) != 0 || curve(r->curves[what][1], mixed) != 0;
    for (int k = 0; k < 4; k++)
        stats_waits_deinit(&w[k]);
    return rc;
}

/* Batch tokens/s of each second of two arms, for the interval: neighbours belong together. */
static uint32_t rates(double *out, uint32_t cap, const struct arm *a, const struct arm *b,
                      bool prompts) {
    uint32_t n = 0;
    for (int k = 0; k < 2; k++) {
        const struct arm *x = k == 0 ? a : b;
        for (double at = x->from_ms; at + 1000 <= x->to_ms && n < cap; at += 1000)
            out[n++] = arm_batch_tokens(x, at, at + 1000, prompts);
    }
    return n;
}

static double both(const struct mixed_row *a, const struct mixed_row *b, bool prompts) {
    double x = prompts ? a->batch_tok_s : a->batch_out_tok_s;
    double y = prompts ? b->batch_tok_s : b->batch_out_tok_s;
    return (x * a->wall_s + y * b->wall_s) / (a->wall_s + b->wall_s);
}

static int harvest(struct mixed *m, struct mixed_run *r, struct stats_ratio *out, bool prompts) {
    const struct mixed_row *w = r->rows;
    struct arm *a = r->arms;
    uint32_t cap = (uint32_t)(w[MIXED_B1].wall_s + w[MIXED_B2].wall_s + w[MIXED_M1].wall_s +
                              w[MIXED_M2].wall_s) +
                   4;
    double *v = mem_array(2 * (size_t)cap, sizeof(*v));
    if (v == NULL)
        return -1;
    uint32_t n_m = rates(v, cap, &a[MIXED_M1], &a[MIXED_M2], prompts);
    uint32_t n_b = rates(v + cap, cap, &a[MIXED_B1], &a[MIXED_B2], prompts);
    stats_means_ratio(out, v, n_m, v + cap, n_b, n_m >= 40 ? 5 : 1, m->o.seed ^ 0x4a7u);
    mem_free(v);
    out->low /= 1 - r->u;
    out->high /= 1 - r->u;
    out->alone = both(&w[MIXED_B1], &w[MIXED_B2], prompts); /* whole arms, not whole seconds */
    out->mixed = both(&w[MIXED_M1], &w[MIXED_M2], prompts);
    out->ratio = out->mixed / (out->alone * (1 - r->u));
    return 0;
}

/* Both objectives: the first token, and the mean gap. */
static bool attained(const struct mixed_options *o, const struct arm_request *r) {
    const struct answer *a = &r->answer;
    if (!a->whole || answer_first_ms(a) - r->first_sent_ms > o->slo_ttft_ms)
        return false;
    uint32_t gaps = a->n_pieces > 1 ? a->n_pieces - 1 : 0;
    return gaps == 0 || (a->pieces[gaps].at_ms - a->pieces[0].at_ms) / gaps <= o->slo_gap_ms;
}

static int attainment(struct mixed *m, struct mixed_run *r) {
    static const int pairs[2][2] = {{MIXED_A1, MIXED_A2}, {MIXED_M1, MIXED_M2}};
    double *v = mem_array(2 * (size_t)m->plan.n + 1, sizeof(*v));
    if (v == NULL)
        return -1;
    for (int side = 0; side < 2; side++) {
        uint32_t n = 0;
        double wall = 0, good = 0;
        for (int k = 0; k < 2; k++) {
            const struct arm *a = &r->arms[pairs[side][k]];
            wall += arm_wall_s(a);
            for (uint32_t i = 0; i < m->plan.n; i++)
                good += v[n++] = attained(&m->o, &a->rt[i]);
        }
        stats_mean_interval(&r->attained[side], v, n, 1, m->o.seed ^ 0x510u);
        r->goodput[side] = good / wall;
    }
    mem_free(v);
    return 0;
}

static void counters(struct mixed_run *r) {
    struct bench_counters *s = &r->mixed;
    memset(s, 0, sizeof(*s));
    for (int k = MIXED_M1; k <= MIXED_M2; k++) {
        const struct bench_counters *x = &r->arms[k].counters[0], *y = &r->arms[k].counters[1];
        s->known = y->known;
        s->parks += y->parks - x->parks;
        s->drops += y->drops - x->drops;
        s->preemptions += y->preemptions - x->preemptions;
        s->swap_ins += y->swap_ins - x->swap_ins;
        s->recomputes += y->recomputes - x->recomputes;
        s->steps += y->steps - x->steps;
        s->errors += y->errors - x->errors;
        s->ledger_s += y->ledger_s - x->ledger_s;
        s->ledger_batch_s += y->ledger_batch_s - x->ledger_batch_s;
    }
}

int mixed_figures(struct mixed *m, struct mixed_run *r, struct err *e) {
    for (int k = 0; k < MIXED_ARMS; k++)
        row(m, &r->rows[k], &r->arms[k], arm_names[k]);
    const struct mixed_row *a = &r->rows[MIXED_A1], *b = &r->rows[MIXED_A2];
    r->u = (a->busy * a->wall_s + b->busy * b->wall_s) / (a->wall_s + b->wall_s);
    counters(r);
    for (int what = 0; what < MIXED_WHATS; what++)
        if (latencies(m, r, (enum mixed_what)what) != 0)
            return err_set(e, ERR_NO_MEMORY, "no memory for the figures");
    if (harvest(m, r, &r->harvest, true) != 0 || harvest(m, r, &r->harvest_out, false) != 0 ||
        attainment(m, r) != 0)
        return err_set(e, ERR_NO_MEMORY, "no memory for the figures");
    return 0;
}
