/* bench_link_collapse.c - what batch gets done when its sequences want up to 24 times the KV pool
 * and real-time waves take half of it away again and again.
 *
 * The pool holds what the seats' sequences fill at their ends. Against it: the same number of batch
 * sequences running, the same real-time list, a pool and spare seats so large that nobody is ever
 * preempted (its STATUS must say so); measured before and after all levels. Where an answer ends
 * is known to nobody before (driver_request_open_ended). Work is batch positions computed for the
 * first time and ids accepted. Variants: without a host tier (recompute only), with it, and with
 * its copies throttled; the last two only where the worker knows the flags. */
#include "tests/bench/bench_link.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

#define WAVE_IN 480
#define WAVE_OUT 32
#define PREEMPTIONS_MIN 500
#define LEVELS 5

static const uint32_t demands[LEVELS] = {1, 3, 6, 12, 24};
enum { RECOMPUTE, FAST, THROTTLED, VARIANTS };
static const char *const variant_names[VARIANTS] = {"recompute", "swap", "throttled"};

struct collapse {
    struct bench_options o;
    struct bench_report *r;
    struct arrivals waves;
    uint32_t wave; /* requests in one */
    bool host, throttle;
    char copy_flag[64];
    double base, tax[VARIANTS];
    uint64_t preempted_long;
};

static void sizes(struct collapse *c) {
    struct bench_options *o = &c->o;
    o->seats = o->seats != 0 ? o->seats : 24;
    o->batch_in = o->batch_in != 0 ? o->batch_in : 176; /* 132 .. 220 */
    o->batch_out = o->batch_out != 0 ? o->batch_out : 64;
    o->prefill_chunk = o->prefill_chunk != 0 ? o->prefill_chunk : 128;
    o->seconds = o->seconds > 0 ? o->seconds : o->quick ? 12 : 32;
    o->warm_s = o->warm_s > 0 ? o->warm_s : o->quick ? 2 : 5;
    if (o->kv_tokens == 0)
        o->kv_tokens = o->seats * (o->batch_in + o->batch_out) / 16 * 16;
    c->wave = o->kv_tokens / 2 / (WAVE_IN + WAVE_OUT);
    c->wave = c->wave > 0 ? c->wave : 1;
}

/* A wave each ten seconds, two seconds after the start first. */
static int make_waves(struct collapse *c, struct err *e) {
    uint32_t n = 1 + (uint32_t)((c->o.seconds - 2.5) / 10);
    c->waves = (struct arrivals){.n = n * c->wave};
    c->waves.v = mem_array(c->waves.n, sizeof(*c->waves.v));
    if (c->waves.v == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory");
    for (uint32_t i = 0; i < c->waves.n; i++)
        c->waves.v[i] = (struct arrival){.at_ns = (2 + 10 * (uint64_t)(i / c->wave)) * BENCH_NS,
                                         .n_in = WAVE_IN,
                                         .n_out = WAVE_OUT};
    return 0;
}

static int run_level(struct collapse *c, const struct driver_config *w, uint32_t keep,
                     struct arm *a, struct err *e) {
    static struct link_driver d;
    *a = (struct arm){.d = &d,
                      .list = &c->waves,
                      .keep = keep,
                      .batch_in = c->o.batch_in,
                      .batch_out = c->o.batch_out,
                      .open_ended = true,
                      .warm_s = c->o.warm_s,
                      .seconds = c->o.seconds,
                      .seed = c->o.seed};
    int rc = driver_open(&d, w, e);
    if (rc == 0)
        rc = arm_run(a, e);
    uint32_t unanswered = 0;
    for (uint32_t i = 0; rc == 0 && i < c->waves.n; i++)
        unanswered += !driver_request_answered(&a->rt[i]);
    driver_close(&d);
    arm_free(a); /* its figures stay */
    return rc == 0 && unanswered > 0
               ? err_set(e, ERR_INTERNAL, "%u real-time requests unanswered", unanswered)
               : rc;
}

static uint64_t preemptions(const struct arm *a) {
    return a->status[1].preemptions - a->status[0].preemptions;
}

static int baseline(struct collapse *c, double *rate, struct err *e) {
    struct driver_config w = bench_worker(&c->o);
    struct arm a;
    w.seats = c->o.seats + c->wave + 1;
    w.kv_tokens = w.seats * (3 * (c->o.batch_in + c->o.batch_out) / 2 + 32 + WAVE_IN);
    if (run_level(c, &w, c->o.seats, &a, e) != 0)
        return -1;
    *rate = arm_batch_rate(&a, true);
    bench_figure(c->r, "never_preempting_tok_s", *rate);
    if (preemptions(&a) > 0)
        bench_void(c->r, "the pool that never preempts preempted");
    return 0;
}

struct level {
    double rate, tax;
    uint64_t preemptions;
};

static int one_variant(struct collapse *c, int variant, struct level *out, struct err *e) {
    struct driver_config w = bench_worker(&c->o);
    uint32_t most = 4 * c->o.seats + 16 - c->wave - 2; /* slots, less the wave's */
    if (variant != RECOMPUTE)
        bench_host_tier(&c->o, &w);
    if (variant == THROTTLED)
        bench_add_flag(&w, c->copy_flag);
    for (int k = 0; k < LEVELS; k++) {
        struct arm a;
        uint32_t keep = demands[k] * c->o.seats;
        if (c->o.quick && k != 0 && k != 2)
            continue;
        if (run_level(c, &w, keep < most ? keep : most, &a, e) != 0)
            return -1;
        out[k] = (struct level){arm_batch_rate(&a, true), arm_tax(&a), preemptions(&a)};
        c->preempted_long += a.preempted_long;
        c->tax[variant] += out[k].tax;
    }
    return 0;
}

static void judge_variant(struct collapse *c, int variant, const struct level *l) {
    char name[80];
    for (int k = 0; k < LEVELS; k++) {
        if (l[k].rate <= 0)
            continue;
        snprintf(name, sizeof(name), "%s_%ux", variant_names[variant], demands[k]);
        if (variant == RECOMPUTE && c->host)
            bench_figure(c->r, name, l[k].rate / c->base);
        else
            bench_verdict(c->r, name, l[k].rate / c->base, c->o.null_engine ? 0.95 : 0.90, false);
        snprintf(name, sizeof(name), "%s_%ux_tax", variant_names[variant], demands[k]);
        if (variant == THROTTLED)
            bench_verdict(c->r, name, l[k].tax, 0.005, true);
        else
            bench_figure(c->r, name, l[k].tax);
        snprintf(name, sizeof(name), "%s_%ux_preemptions", variant_names[variant], demands[k]);
        bench_figure(c->r, name, (double)l[k].preemptions);
    }
}

/* Flags that a worker may not know. The throttle: a block takes 20 times as long to compute as to
 * copy (16 positions of 46 kB at 1,200 positions a second: SmolLM2-135M, F16, one core). */
static void find_flags(struct collapse *c) {
    struct driver_config w = bench_worker(&c->o);
    c->host = bench_host_tier(&c->o, &w);
    c->throttle = c->host && driver_worker_knows(c->o.program, "copy-gbps");
    snprintf(c->copy_flag, sizeof(c->copy_flag), "--copy-gbps=%g",
             c->o.copy_gbps > 0 ? c->o.copy_gbps : 1.1);
    if (!c->throttle)
        bench_void(c->r, "this worker has no host tier with a throttle");
}

int bench_collapse(const struct bench_options *o, struct bench_report *r, struct err *e) {
    struct collapse c = {.o = *o, .r = r};
    struct level levels[VARIANTS][LEVELS] = {0};
    double before, after;
    sizes(&c);
    find_flags(&c);
    int rc = make_waves(&c, e);
    if (rc == 0)
        rc = baseline(&c, &before, e);
    for (int v = 0; rc == 0 && v < VARIANTS; v++)
        if (v == RECOMPUTE || (v == FAST ? c.host : c.throttle))
            rc = one_variant(&c, v, levels[v], e);
    if (rc == 0)
        rc = baseline(&c, &after, e);
    arrivals_free(&c.waves);
    if (rc != 0)
        return -1;
    c.base = (before + after) / 2;
    if (!(before / after > 0.95 && before / after < 1.05))
        bench_void(r, "before and after, the pool that never preempts differs by more than 5 %");
    for (int v = 0; v < VARIANTS; v++)
        judge_variant(&c, v, levels[v]);
    if (c.throttle && c.tax[THROTTLED] > 0)
        bench_verdict(r, "recompute_tax_over_throttled", c.tax[RECOMPUTE] / c.tax[THROTTLED], 20,
                      false);
    bench_figure(r, "preemptions_of_128_ids", (double)c.preempted_long);
    if (c.preempted_long < PREEMPTIONS_MIN)
        bench_void(r, "fewer than 500 preemptions of sequences with 128 ids");
    return 0;
}
