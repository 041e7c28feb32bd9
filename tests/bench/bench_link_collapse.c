/* bench_link_collapse.c - what batch gets done when its sequences want up to 24 times the KV pool
 * and real-time waves take half of it away again and again.
 *
 * The pool holds what the seats' sequences fill at their ends. Against it: the same number of batch
 * sequences running, the same real-time list, a pool and spare seats so large that nobody is ever
 * preempted (its STATUS must say so); measured before, between and after the others, and each level
 * compared with the mean of the two around it. Where an answer ends is known to nobody before
 * (driver_request_open_ended). Work is batch positions computed for the first time and ids
 * accepted. Variants: with a host tier, with its copies throttled, and (for the tax, at two levels)
 * without one. The worker holds 4 x the seats and some; what is more waits at the gateway, so
 * demands of 6, 12 and 24 are the same to it: three measurements of one. */
#include "tests/bench/bench_link.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

#define WAVE_IN 440 /* five of them take 1.9 s on one core: below park_max */
#define WAVE_OUT 24
#define PREEMPTIONS_MIN 500
#define LEVELS 5

static const uint32_t demands[LEVELS] = {1, 3, 6, 12, 24};
enum { FAST, THROTTLED, RECOMPUTE, VARIANTS };
static const char *const variant_names[VARIANTS] = {"swap", "throttled", "recompute"};

struct collapse {
    struct bench_options o;
    struct bench_report *r;
    struct arrivals waves;
    uint32_t wave; /* requests in one */
    bool host, throttle;
    char copy_flag[64];
    double base[VARIANTS + 1];
    uint64_t preempted_long;
};

static void sizes(struct collapse *c) {
    struct bench_options *o = &c->o;
    o->seats = o->seats != 0 ? o->seats : 28;
    o->batch_in = o->batch_in != 0 ? o->batch_in : 136; /* 102 .. 170 */
    o->batch_out = o->batch_out != 0 ? o->batch_out : 32;
    o->prefill_chunk = o->prefill_chunk != 0 ? o->prefill_chunk : 128;
    o->seconds = o->seconds > 0 ? o->seconds : o->quick ? 12 : 34;
    o->warm_s = o->warm_s > 0 ? o->warm_s : o->quick ? 2 : 4;
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
                      .seed = c->o.seed,
                      .length_seed = c->o.seed};
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
    char name[40];
    snprintf(name, sizeof(name), "never_preempting_tok_s_%d", (int)(rate - c->base));
    bench_figure(c->r, name, *rate);
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
    else if (driver_worker_knows(c->o.program, "host-kv-tokens"))
        bench_add_flag(&w, "--host-kv-tokens=0"); /* there is one by default */
    if (variant == THROTTLED)
        bench_add_flag(&w, c->copy_flag);
    for (int k = 0; k < LEVELS; k++) {
        struct arm a;
        uint32_t keep = demands[k] * c->o.seats;
        if ((c->o.quick || variant == RECOMPUTE) && k != 1 && k != 3)
            continue;
        if (run_level(c, &w, keep < most ? keep : most, &a, e) != 0)
            return -1;
        out[k] = (struct level){arm_batch_rate(&a, true), arm_tax(&a), preemptions(&a)};
        c->preempted_long += a.preempted_long;
    }
    return 0;
}

static void judge_variant(struct collapse *c, int variant, const struct level *l) {
    double base = (c->base[variant] + c->base[variant + 1]) / 2;
    char name[80];
    for (int k = 0; k < LEVELS; k++) {
        if (l[k].rate <= 0)
            continue;
        snprintf(name, sizeof(name), "%s_%ux", variant_names[variant], demands[k]);
        if (variant == RECOMPUTE)
            bench_figure(c->r, name, l[k].rate / base);
        else
            bench_verdict(c->r, name, l[k].rate / base, c->o.null_engine ? 0.95 : 0.90, false);
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
 * copy (16 positions of 23 kB at 1,300 positions a second: SmolLM2-135M, F16, one core). */
static void find_flags(struct collapse *c) {
    struct driver_config w = bench_worker(&c->o);
    c->host = bench_host_tier(&c->o, &w);
    c->throttle = c->host && driver_worker_knows(c->o.program, "copy-gbps");
    snprintf(c->copy_flag, sizeof(c->copy_flag), "--copy-gbps=%g",
             c->o.copy_gbps > 0 ? c->o.copy_gbps : 0.6);
    if (!c->throttle)
        bench_void(c->r, "this worker has no host tier with a throttle");
}

/* All levels of all variants, with the pool that never preempts between. */
static int measure(struct collapse *c, struct level levels[VARIANTS][LEVELS], struct err *e) {
    if (baseline(c, &c->base[0], e) != 0)
        return -1;
    for (int v = 0; v < VARIANTS; v++) {
        c->base[v + 1] = c->base[v];
        if (c->o.only != NULL && strcmp(c->o.only, variant_names[v]) != 0)
            continue;
        if ((v == FAST && !c->host) || (v == THROTTLED && !c->throttle))
            continue;
        if (one_variant(c, v, levels[v], e) != 0 || baseline(c, &c->base[v + 1], e) != 0)
            return -1;
        double apart = c->base[v] / c->base[v + 1];
        if (!(apart > 0.95 && apart < 1.05))
            bench_void(c->r, "before and after, the pool that never preempts is over 5 % apart");
    }
    return 0;
}

int bench_collapse(const struct bench_options *o, struct bench_report *r, struct err *e) {
    struct collapse c = {.o = *o, .r = r};
    struct level levels[VARIANTS][LEVELS] = {0};
    double tax[VARIANTS] = {0};
    sizes(&c);
    find_flags(&c);
    int rc = make_waves(&c, e);
    if (rc == 0)
        rc = measure(&c, levels, e);
    bench_figure(r, "wave_of_pool", (double)c.wave * (WAVE_IN + WAVE_OUT) / c.o.kv_tokens);
    arrivals_free(&c.waves);
    if (rc != 0)
        return -1;
    for (int v = 0; v < VARIANTS; v++) {
        judge_variant(&c, v, levels[v]);
        tax[v] = levels[v][1].tax + levels[v][3].tax; /* the levels that all have */
    }
    if (tax[RECOMPUTE] > 0 && tax[THROTTLED] > 0)
        bench_verdict(r, "recompute_tax_over_throttled", tax[RECOMPUTE] / tax[THROTTLED], 20,
                      false);
    bench_figure(r, "preemptions_of_128_ids", (double)c.preempted_long);
    if (c.preempted_long < PREEMPTIONS_MIN)
        bench_void(r, "fewer than 500 preemptions of sequences with 128 ids");
    return 0;
}
