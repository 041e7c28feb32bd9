/* bench_mixed_check.c - what must hold: promises, and the conditions without which a run proves
 * nothing. */
#include "cli/bench_mixed.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define A_ARMS_APART 0.05
#define U_LOW 0.30
#define U_HIGH 0.50
#define U_APART 0.10
#define IDLE_MOST 0.02
#define TTFT_OVER_ENGINE 1.15
#define BATCH_OVER_ENGINE 0.95
#define LATE_MS 2.0
#define WAITED_MOST 0.02

static struct mixed_check *add(struct mixed_run *r, const char *name, bool promise, int state) {
    struct mixed_check *c = &r->checks[r->n_checks++];
    *c = (struct mixed_check){.promise = promise, .name = name, .state = (enum mixed_state)state};
    return c;
}

static void __attribute__((format(printf, 5, 6)))
check(struct mixed_run *r, const char *name, bool promise, bool held, const char *fmt, ...) {
    struct mixed_check *c = add(r, name, promise, held ? MIXED_HELD : MIXED_MISSED);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->text, sizeof(c->text), fmt, ap);
    va_end(ap);
}

static void skip(struct mixed_run *r, const char *name, const char *why) {
    struct mixed_check *c = add(r, name, false, MIXED_NOT_CHECKED);
    snprintf(c->text, sizeof(c->text), "%s", why);
}

static void promises(const struct mixed *m, struct mixed_run *r) {
    static const struct {
        const char *name;
        enum mixed_what what;
        enum stats_kind kind;
    } rows[] = {{"TTFT p50", MIXED_TTFT, STATS_P50}, {"TTFT mean", MIXED_TTFT, STATS_MEAN},
                {"TTFT p99", MIXED_TTFT, STATS_P99}, {"gap p50", MIXED_GAP, STATS_P50},
                {"gap mean", MIXED_GAP, STATS_MEAN}, {"gap p99", MIXED_GAP, STATS_P99}};
    bool virtual = m->busy_by == MIXED_BUSY_STEPS;
    double bar = virtual ? 1.02 : 1.05, least = virtual ? 0.98 : 0.95;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct stats_ratio *q = &r->ratios[rows[i].what][rows[i].kind];
        check(r, rows[i].name, true, q->ratio <= bar,
              "mixed / alone %.3f (%.3f to %.3f), at most %.2f", q->ratio, q->low, q->high, bar);
    }
    check(r, "harvest", true, r->harvest.ratio >= least, "%.3f (%.3f to %.3f), at least %.2f",
          r->harvest.ratio, r->harvest.low, r->harvest.high, least);
    if (r->rt.compared + r->batch.compared > 0)
        check(r, "answers identical", true,
              r->rt.same == r->rt.compared && r->batch.same == r->batch.compared,
              "real-time %u of %u, batch %u of %u", r->rt.same, r->rt.compared, r->batch.same,
              r->batch.compared);
    if (m->kill.done)
        check(r, "kill -9", true, m->kill.lost + m->kill.doubled == 0, "%u lost, %u doubled of %u",
              m->kill.lost, m->kill.doubled, m->kill.realtime + m->kill.batch);
}

static void arrivals(const struct mixed *m, struct mixed_run *r) {
    const struct mixed_row *w = r->rows;
    uint32_t missing = 0, alone = 0, shortest = UINT32_MAX;
    double late = 0;
    for (int k = 0; k < MIXED_ARMS; k++) {
        late = w[k].late_p99_ms > late ? w[k].late_p99_ms : late;
        missing += w[k].arrivals - w[k].answered;
        if (k == MIXED_A1 || k == MIXED_A2)
            alone += w[k].arrivals - w[k].answered;
        else if (w[k].shortest < shortest)
            shortest = w[k].shortest;
    }
    check(r, "alone arms answered", false, alone == 0,
          "%u arrivals of the A arms without an answer "
          "(%u of all arms)",
          alone, missing);
    check(r, "backlog never empty", false, shortest >= 4 * m->o.seats,
          "never fewer than %u batch requests out for %u seats, at least %u", shortest, m->o.seats,
          4 * m->o.seats);
    check(r, "driver on time", false, late <= LATE_MS,
          "p99 of its lateness %.2f ms, at most %.0f ms", late, LATE_MS);
}

static void busy(const struct mixed *m, struct mixed_run *r) {
    static const char *const how[] = {"its CPU time", "its steps' time", "requests in flight"};
    check(r, "U in range", false, r->u >= U_LOW && r->u <= U_HIGH,
          "worker busy %.3f of the time alone (by %s), %.2f to %.2f", r->u, how[m->busy_by], U_LOW,
          U_HIGH);
    if (m->idle_busy >= 0)
        check(r, "idle worker", false, m->idle_busy <= IDLE_MOST,
              "busy %.4f without load, at most %.2f", m->idle_busy, IDLE_MOST);
    else
        skip(r, "idle worker", "not checked: its processes are not known");
    if (m->kv_tokens > 0)
        check(r, "KV pool", false,
              m->kv_tokens <= m->o.seats * (m->o.batch_in + m->o.batch_out) * 2 / 3,
              "%u positions, %.2f of what the seats' sequences fill, at most 0.67", m->kv_tokens,
              m->kv_tokens / ((double)m->o.seats * (m->o.batch_in + m->o.batch_out)));
    else
        skip(r, "KV pool", "not checked: the server is not ours");
}

/* No handicapped baseline: alone, both must be what the engine can do. */
static void against_engine(const struct mixed *m, struct mixed_run *r) {
    const struct mixed_engine *g = &r->engine;
    if (g->rt_prefill <= 0 || g->batch_decode <= 0) {
        skip(r, "baseline TTFT", m->engine_note);
        skip(r, "baseline batch", m->engine_note);
        skip(r, "U against the engine", m->engine_note);
        return;
    }
    double ideal = 1e3 * (load_plan_mean_in(&m->plan) / g->rt_prefill + 1 / g->rt_decode[0]);
    double ttft = r->ratios[MIXED_TTFT][STATS_P50].alone;
    double in = m->o.batch_in, out = m->o.batch_out;
    double batch = (in + out) / (in / g->batch_prefill + out / g->batch_decode);
    check(r, "baseline TTFT", false, ttft / ideal <= TTFT_OVER_ENGINE,
          "alone p50 %.2f ms, engine's prefill and one decode %.2f ms: %.2f, at most %.2f", ttft,
          ideal, ttft / ideal, TTFT_OVER_ENGINE);
    check(r, "baseline batch", false, r->harvest.alone / batch >= BATCH_OVER_ENGINE,
          "batch alone %.0f tokens/s, engine with %u sequences %.0f: %.2f, at least %.2f",
          r->harvest.alone, g->batch_width, batch, r->harvest.alone / batch, BATCH_OVER_ENGINE);
    check(r, "U against the engine", false, fabs(r->u / r->u_engine - 1) <= U_APART,
          "%.3f, the engine's cost of the same requests %.3f: %.2f, within %.2f", r->u, r->u_engine,
          r->u / r->u_engine, U_APART);
}

void mixed_check_all(struct mixed *m, struct mixed_run *r) {
    double p = r->rows[MIXED_A1].waits[MIXED_TTFT][STATS_P99];
    double q = r->rows[MIXED_A2].waits[MIXED_TTFT][STATS_P99];
    r->n_checks = 0;
    promises(m, r);
    check(r, "A arms agree", false, fabs(p / q - 1) <= A_ARMS_APART,
          "TTFT p99 %.2f and %.2f ms: %.3f apart, at most %.2f", p, q, fabs(p / q - 1),
          A_ARMS_APART);
    arrivals(m, r);
    busy(m, r);
    against_engine(m, r);
    if (r->mixed.ledger_s > 0)
        check(r, "waited for batch", false, r->mixed.ledger_batch_s <= WAITED_MOST * r->mixed.ledger_s,
              "%.2f %% of real-time's latency beside batch, at most %.0f %%",
              100 * r->mixed.ledger_batch_s / r->mixed.ledger_s, 100 * WAITED_MOST);
    else
        skip(r, "waited for batch", "not checked: this server has no ledger; at most 2 % of latency");
    r->valid = r->held = true;
    for (uint32_t i = 0; i < r->n_checks; i++)
        if (r->checks[i].state == MIXED_MISSED)
            *(r->checks[i].promise ? &r->held : &r->valid) = false;
}
