/* Prefix cache: a trace against an infinite cache, and K equal prompts at once. */
#include "tests/bench/virtual/vload.h"
#include "tests/bench/virtual/vrows.h"
#include "tests/bench/virtual/vtrace.h"

#include "base/mem.h"

#define BAR_TRACE 1.05
#define TRACE_MS 600000
#define BLOCKS 16384

static struct sim_worker *cached_worker(uint32_t seats, uint32_t slots)
{
    struct sim_worker_config c = vload_worker(seats, BLOCKS, 0, slots);
    c.core.pool.prefix_cache = true;
    return sim_worker_create(&c);
}

static const char *finish_all(struct sim_worker *w, struct sim_worker_stats *s)
{
    while (sim_worker_bad(w) == NULL && sim_worker_step(w, sim_worker_now_ns(w) + 100 * VLOAD_S)) {
    }
    sim_worker_stats(w, s);
    if (s->wrong + s->device.stale_reads > 0) return "wrong or stale answers";
    return sim_worker_bad(w);
}

static void trace_run(struct vreport *r, struct sim_worker *w, const struct vtrace *t)
{
    struct sim_worker_stats s;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct vtrace_request *q = &t->r[i];
        sim_worker_run_until(w, q->at_ns);
        struct sim_request req = {
            .id = i + 1, .tag = i, .seed = i + 1, .ids = q->ids, .root = q->root};
        req.cls = q->realtime ? CLASS_REALTIME : CLASS_BATCH;
        req.n_prompt = q->n_prompt;
        req.n_out = req.max_out = q->n_out;
        if (sim_worker_submit(w, &req) != 0) r->error = "no slot is free";
    }
    const char *bad = finish_all(w, &s);
    if (bad != NULL) r->error = bad;
    vreport_add(r, VBAR_NONE, 0, t->n, "trace: requests");
    vreport_add(r, VBAR_NONE, 0, 1 - (double)t->infinite_cache / (double)t->positions,
                "trace: share an infinite cache holds");
    vreport_add(r, VBAR_NONE, 0, (double)s.core.pool.evictions, "trace: evictions");
    vreport_add(r, VBAR_MOST, BAR_TRACE, (double)s.prompt_positions / (double)t->infinite_cache,
                "trace: prefill computed / infinite cache's");
}

static void trace(struct vreport *r, const struct voptions *o)
{
    struct vtrace t;
    if (vtrace_read(&t, o->trace, (uint64_t)(TRACE_MS * o->scale)) != 0) {
        r->error = "no trace, or not one";
        return;
    }
    struct sim_worker *w = cached_worker(16, 512);
    if (w != NULL)
        trace_run(r, w, &t);
    else
        r->error = "no memory";
    sim_worker_destroy(&w);
    vtrace_free(&t);
}

/* All at the same moment, `lower` of them of the lower rank first; computed = one prompt and every
 * other's tail. */
static int equal_prompts(struct vreport *r, const struct voptions *o, uint32_t k, uint32_t length,
                         uint32_t lower, double *worst)
{
    static int32_t ids[4096];
    struct sim_worker_stats s;
    struct sim_worker *w = cached_worker(64, 80);
    if (w == NULL) return -1;
    vload_ids(ids, length, o->seed, length);
    for (uint32_t i = 0; i < k; i++) {
        struct sim_request req = {.id = i + 1, .tag = i, .seed = i + 1, .ids = ids};
        req.root = prefix_root("tenant", 6, 7);
        req.cls = i < lower ? CLASS_BATCH : CLASS_REALTIME;
        req.n_prompt = length;
        req.n_out = req.max_out = 8;
        if (i == lower) /* the lower ones are under way */
            sim_worker_run_until(w, sim_worker_now_ns(w) + (lower > 0 ? 60 * VLOAD_MS : 0));
        if (sim_worker_submit(w, &req) != 0) r->error = "no slot is free";
    }
    const char *bad = finish_all(w, &s);
    if (bad != NULL) r->error = bad;
    double legal = length + (double)k * (1 + (length - 1) % VLOAD_BLOCK);
    double ratio = (double)s.prompt_positions / legal;
    if (ratio > *worst) *worst = ratio;
    sim_worker_destroy(&w);
    return 0;
}

void vrow_prefix(struct vreport *r, const struct voptions *o)
{
    static const uint32_t ks[] = {2, 3, 8, 16, 33, 64}, lengths[] = {17, 100, 256, 400, 1000};
    r->row = "prefix";
    if (o->trace != NULL) trace(r, o);
    for (uint32_t i = 0; i < sizeof ks / sizeof *ks; i++) {
        double worst = 0;
        for (uint32_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
            if (equal_prompts(r, o, ks[i], lengths[j], 0, &worst) != 0) r->error = "no memory";
        vreport_add(r, VBAR_MOST, 1.0, worst, "%u equal prompts: computed / legal, worst length",
                    ks[i]);
    }
    double worst = 0;
    if (equal_prompts(r, o, 16, 1000, 4, &worst) != 0) r->error = "no memory";
    vreport_add(r, VBAR_NONE, 0, worst, "4 lower, then 12 real-time: computed / legal");
}
