/* Yield: from a real-time arrival to its first computed segment while a long batch step runs. */
#include "tests/bench/virtual/vload.h"
#include "tests/bench/virtual/vrows.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

#define SEATS 16
#define TRIES 2000
#define BATCH_ID (1ull << 32)
#define PROMPT 2000
#define BAR_PREFILL 0.10
#define BAR_DECODE 0.15

struct watch {
    struct sim_worker *w;
    uint64_t seed;
    uint32_t n_out, tries, n;
    uint64_t batch_next, batch_live;
    uint64_t arrived_ns, step_ns; /* of the request at hand; step_ns 0 = the try does not count */
    bool waiting, idle;
    double *share, *ms; /* wait / the step it met */
    int32_t ids[PROMPT];
};

static void on_started(void *ctx, uint64_t request, uint64_t now_ns, uint64_t first_segment_ns)
{
    struct watch *v = ctx;
    if (request >= BATCH_ID) return;
    v->waiting = false;
    if (v->step_ns == 0) return;
    double wait = (double)(now_ns + first_segment_ns - v->arrived_ns);
    v->ms[v->n] = wait / VLOAD_MS;
    v->share[v->n++] = wait / (double)v->step_ns;
}

static void on_tokens(void *ctx, const struct sim_tokens *t)
{
    struct watch *v = ctx;
    if (t->finish == FINISH_NONE) return;
    if (t->request >= BATCH_ID)
        v->batch_live--;
    else
        v->idle = true;
}

static void feed(struct watch *v)
{
    while (v->batch_live < SEATS) {
        struct sim_request r = {
            .id = BATCH_ID + v->batch_next, .cls = CLASS_BATCH, .tag = v->batch_next};
        r.n_prompt = PROMPT - (uint32_t)(rand_at(v->seed, v->batch_next) % 64);
        r.n_out = r.max_out = v->n_out;
        vload_ids(v->ids, r.n_prompt, v->seed, r.id);
        r.ids = v->ids;
        if (sim_worker_submit(v->w, &r) != 0) return;
        v->batch_next++;
        v->batch_live++;
    }
}

/* Does the step at hand count? (a) >= 256 positions; (b) a decode of all seats. */
static uint64_t step_met(const struct watch *v, bool decode)
{
    uint32_t positions;
    uint8_t rank;
    uint64_t ns = sim_device_running_ns(sim_worker_device(v->w), &positions, &rank);
    if (ns == 0 || rank == 0) return 0;
    return decode ? (positions >= SEATS - 1 && positions <= SEATS ? ns : 0)
                  : (positions >= 256 ? ns : 0);
}

static void arrive(struct watch *v, uint64_t k, bool decode)
{
    struct sim_request r = {
        .id = k + 1, .cls = CLASS_REALTIME, .n_prompt = 24, .n_out = 1, .max_out = 1};
    vload_ids(v->ids, r.n_prompt, v->seed ^ 1, k);
    r.ids = v->ids;
    v->arrived_ns = sim_worker_now_ns(v->w);
    v->step_ns = step_met(v, decode);
    v->waiting = true;
    v->idle = false;
    if (sim_worker_submit(v->w, &r) != 0) v->idle = true;
}

static const char *watch_run(struct watch *v, bool decode, uint32_t want)
{
    uint64_t next = VLOAD_S, k = 0;
    v->idle = true;
    while (v->n < want && k < 50ull * want) {
        feed(v);
        if (sim_worker_bad(v->w) != NULL) return sim_worker_bad(v->w);
        if (sim_worker_step(v->w, next)) continue;
        if (sim_worker_now_ns(v->w) < next) return "time stands still";
        if (v->idle) arrive(v, k++, decode);
        next += 100 * VLOAD_MS + rand_at(v->seed, k) % (400 * VLOAD_MS);
    }
    v->tries = (uint32_t)k;
    return NULL;
}

static void one(struct vreport *r, const struct voptions *o, bool decode)
{
    struct watch v = {.seed = o->seed, .n_out = decode ? 512 : 2};
    uint32_t want = (uint32_t)(TRIES * o->scale);
    /* One seat and some blocks are left for the arrival: what is measured is the step, not the
     * swap. */
    struct sim_worker_config c =
        vload_worker(SEATS + 1, SEATS * (PROMPT + 512) / 16 + 32, 0, 4 * SEATS);
    c.core.prefill_chunk = 512;
    c.core.max_tokens = c.core.max_rows = SEATS + 1 + 512;
    /* Without the planner: it would cut the steps that are to be met here. */
    memset(&c.core.cost, 0, sizeof c.core.cost);
    c.sink = (struct sim_sink){.ctx = &v, .tokens = on_tokens, .started = on_started};
    v.w = sim_worker_create(&c);
    v.share = mem_array(want + 1, sizeof *v.share);
    v.ms = mem_array(want + 1, sizeof *v.ms);
    if (v.w == NULL || v.share == NULL || v.ms == NULL)
        r->error = "no memory";
    else
        r->error = watch_run(&v, decode, want);
    if (r->error == NULL) {
        const char *what = decode ? "decode of 16 at 2k" : "prefill >= 256";
        struct vload_figures share = vload_figures(v.share, v.n), ms = vload_figures(v.ms, v.n);
        vreport_add(r, VBAR_NONE, 0, v.n, "%s: tries that count", what);
        vreport_add(r, VBAR_NONE, 0, ms.p99, "%s: wait p99 ms", what);
        vreport_add(r, VBAR_NONE, 0, share.p50, "%s: wait / step p50", what);
        vreport_add(r, VBAR_MOST, decode ? BAR_DECODE : BAR_PREFILL, share.p99,
                    "%s: wait / step p99", what);
        if (v.n < want) r->void_because = "too few tries met such a step";
    }
    sim_worker_destroy(&v.w);
    mem_free(v.share);
    mem_free(v.ms);
}

void vrow_yield(struct vreport *r, const struct voptions *o)
{
    r->row = "yield";
    one(r, o, false);
    if (r->error == NULL) one(r, o, true);
}
