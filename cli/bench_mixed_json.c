/* bench_mixed_json.c - a measurement as one JSON object (see bench_mixed_report.h). */
#include "cli/bench_machine.h"
#include "cli/bench_mixed_report.h"

#include <math.h>

static json_t *num(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static void put(json_t *o, const char *name, double v) {
    json_object_set_new(o, name, num(v));
}

static void put_count(json_t *o, const char *name, uint64_t v) {
    json_object_set_new(o, name, json_integer((json_int_t)v));
}

static json_t *ratio(const struct stats_ratio *r, bool sides) {
    json_t *o = json_object();
    put(o, "ratio", r->ratio);
    put(o, "low", r->low);
    put(o, "high", r->high);
    if (sides) {
        put(o, "alone", r->alone);
        put(o, "mixed", r->mixed);
    }
    return o;
}

static json_t *row(const struct mixed_row *w) {
    json_t *o = json_object();
    json_object_set_new(o, "arm", json_string(w->name));
    put(o, "wall_s", w->wall_s);
    put(o, "busy", w->busy);
    put(o, "driver_late_p99_ms", w->late_p99_ms);
    put_count(o, "arrivals", w->arrivals);
    put_count(o, "answered", w->answered);
    put_count(o, "refused", w->refused);
    put_count(o, "broken", w->broken);
    put_count(o, "batch_done", w->batch_done);
    put_count(o, "batch_refused", w->batch_refused);
    put_count(o, "batch_out_least", w->shortest);
    put(o, "batch_tokens_s", w->batch_tok_s);
    put(o, "batch_output_tokens_s", w->batch_out_tok_s);
    put(o, "batch_streams", w->streams);
    for (int what = 0; what < MIXED_WHATS && w->arrivals > 0; what++) {
        json_t *v = json_object();
        for (int k = 0; k < STATS_KINDS; k++)
            put(v, mixed_kind_names[k], w->waits[what][k]);
        json_object_set_new(o, mixed_what_names[what], v);
    }
    return o;
}

static json_t *counts(const struct mixed_counts *n) {
    json_t *o = json_object();
    put_count(o, "compared", n->compared);
    put_count(o, "identical", n->same);
    put_count(o, "unanswered", n->unanswered);
    return o;
}

static json_t *counters(const struct bench_counters *c) {
    json_t *o = json_object();
    put(o, "parks", c->parks);
    put(o, "drops", c->drops);
    put(o, "preemptions", c->preemptions);
    put(o, "swap_ins", c->swap_ins);
    put(o, "recomputes", c->recomputes);
    put(o, "steps", c->steps);
    put(o, "errors", c->errors);
    return o;
}

static json_t *checks(const struct mixed_run *r) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->n_checks; i++) {
        const struct mixed_check *c = &r->checks[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:b,s:s,s:s}", "name", c->name, "promise", c->promise,
                                        "state", mixed_state_word(c->state), "text", c->text));
    }
    return list;
}

static json_t *engine(const struct mixed_engine *g) {
    json_t *o = json_object(), *d = json_array();
    for (int i = 0; i < 4; i++)
        json_array_append_new(d, num(g->rt_decode[i]));
    put(o, "realtime_prefill_tokens_s", g->rt_prefill);
    json_object_set_new(o, "realtime_decode_tokens_s_of_1_2_4_8", d);
    put(o, "batch_prefill_tokens_s", g->batch_prefill);
    put(o, "batch_decode_tokens_s", g->batch_decode);
    put_count(o, "batch_width", g->batch_width);
    return o;
}

static json_t *run(const struct mixed_run *r) {
    json_t *o = json_object(), *rows = json_array();
    for (int k = 0; k < MIXED_ARMS; k++)
        json_array_append_new(rows, row(&r->rows[k]));
    json_object_set_new(o, "arms", rows);
    for (int what = 0; what < MIXED_WHATS; what++) {
        json_t *v = json_object();
        for (int k = 0; k < STATS_KINDS; k++)
            json_object_set_new(v, mixed_kind_names[k], ratio(&r->ratios[what][k], true));
        json_object_set_new(o, mixed_what_names[what], v);
    }
    json_object_set_new(o, "harvest", ratio(&r->harvest, true));
    json_object_set_new(o, "harvest_output_only", ratio(&r->harvest_out, true));
    put(o, "U", r->u);
    if (r->u_engine > 0)
        put(o, "U_engine", r->u_engine);
    json_object_set_new(o, "attainment_alone", ratio(&r->attained[0], false));
    json_object_set_new(o, "attainment_mixed", ratio(&r->attained[1], false));
    put(o, "goodput_alone_s", r->goodput[0]);
    put(o, "goodput_mixed_s", r->goodput[1]);
    if (r->mixed.known)
        json_object_set_new(o, "mixed_counters", counters(&r->mixed));
    json_object_set_new(o, "realtime_answers", counts(&r->rt));
    json_object_set_new(o, "batch_answers", counts(&r->batch));
    if (r->engine.rt_prefill > 0)
        json_object_set_new(o, "engine", engine(&r->engine));
    json_object_set_new(o, "checks", checks(r));
    json_object_set_new(o, "valid", json_boolean(r->valid));
    json_object_set_new(o, "held", json_boolean(r->held));
    return o;
}

static json_t *kill_json(const struct mixed_kill *k) {
    json_t *o = json_object();
    put_count(o, "realtime", k->realtime);
    put_count(o, "batch", k->batch);
    put_count(o, "lost", k->lost);
    put_count(o, "doubled", k->doubled);
    put_count(o, "sent_again", k->sent_again);
    put_count(o, "connections_cut", k->cut);
    put_count(o, "refusals", k->refused);
    put(o, "worker_back_s", k->back_s[0]);
    put(o, "gateway_back_s", k->back_s[1]);
    json_object_set_new(o, "answers", counts(&k->answers));
    return o;
}

json_t *mixed_report_json(const struct mixed *m) {
    char date[16], cpu[128], scope[400];
    json_t *o = json_object(), *runs = json_array();
    bench_date(date);
    bench_cpu_name(cpu, sizeof(cpu));
    mixed_scope(m, scope, sizeof(scope));
    json_object_set_new(o, "date", json_string(date));
    json_object_set_new(o, "cpu", json_string(cpu));
    put_count(o, "cores", (uint64_t)bench_cores());
    json_object_set_new(o, "model", json_string(m->model));
    json_object_set_new(o, "engine", json_string(m->o.url != NULL ? m->o.url : m->o.engine));
    put_count(o, "threads", m->o.threads);
    put_count(o, "seats", m->o.seats);
    put_count(o, "kv_tokens", m->kv_tokens);
    put_count(o, "requests", m->plan.n);
    put(o, "rate_s", m->plan.rate);
    put_count(o, "batch_in", m->o.batch_in);
    put_count(o, "batch_out", m->o.batch_out);
    put_count(o, "keep", m->o.keep);
    put_count(o, "seed", m->o.seed);
    put(o, "slo_ttft_ms", m->o.slo_ttft_ms);
    put(o, "slo_gap_ms", m->o.slo_gap_ms);
    if (m->idle_busy >= 0)
        put(o, "idle_busy", m->idle_busy);
    put(o, "took_s", m->took_s);
    json_object_set_new(o, "scope", json_string(scope));
    for (uint32_t i = 0; i < m->n_runs; i++)
        json_array_append_new(runs, run(&m->runs[i]));
    json_object_set_new(o, "runs", runs);
    if (m->sim.done)
        json_object_set_new(o, "simulated", mixed_sim_json(m));
    if (m->kill.done)
        json_object_set_new(o, "kill", kill_json(&m->kill));
    return o;
}
