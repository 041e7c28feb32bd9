/* Arms: arrivals, backlog, and what the gateway of a virtual worker sees of them. */
#include "tests/bench/virtual/vload.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ID (1ull << 32)
#define N_CTX 8192
#define SEGMENTS 40
/* The model of those figures: bytes of its weights, and of K and V of a position. */
#define WEIGHT_BYTES 90000000
#define KV_BYTES 23040

struct seen { /* of one real-time request */
    uint64_t last_ns;
    bool finished;
};

struct gateway {
    const struct vload_arm *arm;
    struct seen *seen;
    double *ttft, *gap;
    uint32_t n_ttft, n_gap, max_gap, rt_done;
    uint64_t batch_next, batch_live, batch_out, batch_done;
    int32_t *ids;
};

struct sim_cost vload_cpu_cost(void)
{
    return (struct sim_cost){.step_ns = 4000000,
                             .token_ns = 650000,
                             .row_ns = 200000,
                             .read_ns = 1300000,
                             .pair_ns = 500000,
                             .copy_ns = 74000};
}

struct sim_worker_config vload_worker(uint32_t seats, uint32_t blocks, uint32_t host,
                                      uint32_t slots)
{
    struct sim_worker_config c = {.cost = vload_cpu_cost(), .n_segments = SEGMENTS};
    struct worker_core_config *k = &c.core;
    k->max_slots = slots;
    k->max_seqs = k->max_spans = seats;
    k->prefill_chunk = 128;
    k->max_tokens = k->max_rows = seats + k->prefill_chunk;
    k->n_ctx = N_CTX;
    k->pool = (struct kvpool_config){.n_blocks = blocks + 1,
                                     .block_tokens = VLOAD_BLOCK,
                                     .max_seq_blocks = N_CTX / VLOAD_BLOCK,
                                     .n_host = host,
                                     .max_copies = host > 0 ? 16 : 0,
                                     .max_accounts = 1};
    class_table_default(&k->classes);
    k->min_run = 16;
    k->park_max_ns = 2 * VLOAD_S;
    k->lost_realtime_ns = 2 * VLOAD_S;
    k->lost_batch_ns = 30 * VLOAD_S;
    k->finish_repeat_ns = VLOAD_S;
    k->interference_permille = 50;
    k->n_segments = SEGMENTS;
    k->out_weight = 2;
    k->copy_ns = c.cost.copy_ns;
    double start[COST_FEATURES];
    step_cost_start_cpu(start, WEIGHT_BYTES, KV_BYTES, 1);
    step_cost_init(&k->cost, start);
    return c;
}

void vload_ids(int32_t *ids, uint32_t n, uint64_t seed, uint64_t request)
{
    uint64_t key = rand_at(seed, request);
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)(rand_at(key, i) % SIM_VOCAB);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct vload_figures vload_figures(double *ms, uint32_t n)
{
    struct vload_figures f = {.n = n};
    if (n == 0) return f;
    qsort(ms, n, sizeof *ms, by_value);
    for (uint32_t i = 0; i < n; i++) f.mean += ms[i] / n;
    f.p50 = ms[n / 2];
    uint32_t from = n * 9 / 20, to = n * 11 / 20 + 1;
    for (uint32_t i = from; i < to; i++) f.middle += ms[i] / (to - from);
    f.p99 = ms[(uint32_t)((n - 1) * 0.99)];
    f.max = ms[n - 1];
    return f;
}

static void on_realtime(struct gateway *g, const struct sim_tokens *t)
{
    struct seen *s = &g->seen[t->request - 1];
    const struct vload_arrival *a = &g->arm->list->a[t->request - 1];
    if (t->to > t->from) {
        if (s->last_ns == 0)
            g->ttft[g->n_ttft++] = (double)(t->now_ns - a->at_ns) / VLOAD_MS;
        else if (g->n_gap < g->max_gap)
            g->gap[g->n_gap++] = (double)(t->now_ns - s->last_ns) / VLOAD_MS;
        s->last_ns = t->now_ns;
    }
    g->rt_done += t->finish != FINISH_NONE && !s->finished;
    s->finished = s->finished || t->finish != FINISH_NONE;
}

static void on_tokens(void *ctx, const struct sim_tokens *t)
{
    struct gateway *g = ctx;
    if (t->request < BATCH_ID) {
        on_realtime(g, t);
        return;
    }
    bool counts = t->now_ns > g->arm->warm_ns && t->now_ns <= g->arm->duration_ns;
    if (counts) g->batch_out += t->to - t->from;
    if (t->finish == FINISH_NONE) return;
    g->batch_live--;
    g->batch_done += counts;
}

static void on_event(void *ctx, const struct worker_event *ev, uint64_t now_ns,
                     const struct worker_action *actions, uint32_t n)
{
    const struct gateway *g = ctx;
    g->arm->event(g->arm->event_ctx, ev, now_ns, actions, n);
}

static uint32_t between(uint64_t seed, uint64_t k, uint32_t min, uint32_t max)
{
    return min + (uint32_t)(rand_at(seed, k) % (max - min + 1));
}

/* Lengths depend on the sequence's number alone, so all arms of a seed have the same backlog. */
static void feed(struct gateway *g, struct sim_worker *w)
{
    const struct vload_batch *b = &g->arm->batch;
    while (g->batch_live < b->outstanding) {
        uint64_t k = g->batch_next;
        struct sim_request r = {.id = BATCH_ID + k, .cls = CLASS_BATCH, .tag = k, .seed = k + 1};
        r.n_prompt = between(g->arm->seed, 2 * k, b->prompt_min, b->prompt_max);
        r.n_out = between(g->arm->seed, 2 * k + 1, b->out_min, b->out_max);
        r.max_out = b->max_out;
        vload_ids(g->ids, r.n_prompt, g->arm->seed, r.id);
        r.ids = g->ids;
        if (sim_worker_submit(w, &r) != 0) return;
        g->batch_next++;
        g->batch_live++;
    }
}

static void arrive(struct gateway *g, struct sim_worker *w, uint32_t i)
{
    const struct vload_arrival *a = &g->arm->list->a[i];
    struct sim_request r = {.id = i + 1, .cls = CLASS_REALTIME, .tag = i, .seed = i + 1};
    r.n_prompt = a->n_prompt;
    r.n_out = r.max_out = a->n_out;
    vload_ids(g->ids, r.n_prompt, g->arm->seed ^ 0x7ea1, r.id);
    r.ids = g->ids;
    if (sim_worker_submit(w, &r) != 0) g->rt_done++; /* refused: no first token, infinite */
}

static void drive(struct gateway *g, struct sim_worker *w, struct vload_result *out)
{
    uint32_t next = 0, n = g->arm->list != NULL ? g->arm->list->n : 0;
    bool measured = false;
    while (!measured || next < n || g->rt_done < next) {
        uint64_t arrival = next < n ? g->arm->list->a[next].at_ns : SIM_NEVER;
        uint64_t until = measured ? g->arm->duration_ns * 4 : g->arm->duration_ns;
        if (sim_worker_bad(w) != NULL) break;
        feed(g, w);
        if (sim_worker_step(w, arrival < until ? arrival : until)) continue;
        if (arrival <= until) {
            arrive(g, w, next++);
        } else if (!measured) {
            sim_worker_stats(w, &out->stats);
            measured = true;
        } else {
            break; /* the list does not come to its end: those left are missing */
        }
    }
}

static void figures(struct gateway *g, const struct sim_worker *w, struct vload_result *out)
{
    uint32_t n = g->arm->list != NULL ? g->arm->list->n : 0;
    out->rt_missing = n - g->n_ttft;
    while (g->n_ttft < n) g->ttft[g->n_ttft++] = INFINITY;
    out->ttft = vload_figures(g->ttft, g->n_ttft);
    out->gap = vload_figures(g->gap, g->n_gap);
    out->batch_out = g->batch_out;
    out->batch_done = g->batch_done;
    for (int r = 0; r < 2; r++)
        out->busy[r] = (double)out->stats.device.rank_ns[r] / (double)g->arm->duration_ns;
    out->bad = sim_worker_bad(w);
}

int vload_run(const struct vload_arm *arm, struct vload_result *out)
{
    uint32_t n = arm->list != NULL ? arm->list->n : 0, gaps = 0;
    for (uint32_t i = 0; i < n; i++) gaps += arm->list->a[i].n_out;
    struct gateway g = {.arm = arm, .max_gap = gaps};
    g.seen = mem_array(n + 1, sizeof *g.seen);
    g.ttft = mem_array(n + 1, sizeof *g.ttft);
    g.gap = mem_array(gaps + 1, sizeof *g.gap);
    g.ids = mem_array(N_CTX, sizeof *g.ids);
    struct sim_worker_config cfg = arm->worker;
    cfg.sink.ctx = &g;
    cfg.sink.tokens = on_tokens;
    if (arm->event != NULL) cfg.sink.event = on_event;
    struct sim_worker *w = sim_worker_create(&cfg);
    int rc = -1;
    memset(out, 0, sizeof *out);
    if (w != NULL && g.seen != NULL && g.ttft != NULL && g.gap != NULL && g.ids != NULL) {
        drive(&g, w, out);
        figures(&g, w, out);
        rc = 0;
    }
    sim_worker_destroy(&w);
    mem_free(g.seen);
    mem_free(g.ttft);
    mem_free(g.gap);
    mem_free(g.ids);
    return rc;
}

int vload_list_poisson(struct vload_list *l, uint64_t seed, uint32_t n, uint64_t mean_gap_ns,
                       const uint32_t prompt[2], const uint32_t out[2])
{
    l->n = n;
    l->a = mem_array(n, sizeof *l->a);
    if (l->a == NULL) return -1;
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        double u = 1.0 - (double)(rand_at(seed, 3ull * i) >> 11) * 0x1p-53;
        at += (uint64_t)(-log(u) * (double)mean_gap_ns) + 1;
        l->a[i].at_ns = at;
        l->a[i].n_prompt = between(seed, 3ull * i + 1, prompt[0], prompt[1]);
        l->a[i].n_out = between(seed, 3ull * i + 2, out[0], out[1]);
    }
    return 0;
}

int vload_list_waves(struct vload_list *l, uint32_t waves, uint64_t period_ns, uint32_t count,
                     uint32_t n_prompt, uint32_t n_out)
{
    l->n = waves * count;
    l->a = mem_array(l->n, sizeof *l->a);
    if (l->a == NULL) return -1;
    for (uint32_t i = 0; i < l->n; i++)
        l->a[i] = (struct vload_arrival){period_ns / 2 + i / count * period_ns, n_prompt, n_out};
    return 0;
}

void vload_list_free(struct vload_list *l)
{
    mem_free(l->a);
    l->a = NULL;
    l->n = 0;
}
