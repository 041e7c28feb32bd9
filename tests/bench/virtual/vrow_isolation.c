/* Isolation and harvest: arms B A M M A B, real-time alone against beside a full batch. */
#include "tests/bench/virtual/vload.h"
#include "tests/bench/virtual/vrows.h"

#define SEATS 16
#define SLOTS 160
#define REQUESTS 2000
#define GAP_NS (135 * VLOAD_MS)
#define WARM_NS (10 * VLOAD_S)
#define BAR_LATENCY 1.02
#define BAR_HARVEST 0.98

/* 16 sequences of 200 to 400 positions (their ends: 25 blocks each) in 2/3 of what they fill. */
#define POOL_BLOCKS (SEATS * 25 * 2 / 3)

struct arms {
    struct vload_result b, a, m;
};

static int run_half(struct arms *h, const struct voptions *o, const struct vload_list *list,
                    uint64_t seed)
{
    struct vload_arm arm = {.seed = seed};
    arm.worker = vload_worker(SEATS, POOL_BLOCKS, o->host ? 4 * POOL_BLOCKS : 0, SLOTS);
    arm.worker.core.interference_permille = 20;
    arm.warm_ns = WARM_NS;
    arm.duration_ns = list->a[list->n - 1].at_ns;
    struct vload_batch batch = {.outstanding = 4 * SEATS,
                                .prompt_min = 150,
                                .prompt_max = 250,
                                .out_min = 100,
                                .out_max = 300,
                                .max_out = 512};
    arm.batch = batch;
    if (vload_run(&arm, &h->b) != 0) return -1;
    arm.list = list;
    if (vload_run(&arm, &h->m) != 0) return -1;
    arm.batch.outstanding = 0;
    return vload_run(&arm, &h->a);
}

static void ratio(struct vreport *r, const char *what, const struct vload_figures *m0,
                  const struct vload_figures *m1, const struct vload_figures *a0,
                  const struct vload_figures *a1)
{
    vreport_add(r, VBAR_NONE, 0, (a0->p50 + a1->p50) / 2, "%s alone p50 ms", what);
    vreport_add(r, VBAR_NONE, 0, (a0->p99 + a1->p99) / 2, "%s alone p99 ms", what);
    vreport_add(r, VBAR_NONE, 0, (m0->p50 + m1->p50) / (a0->p50 + a1->p50),
                "%s p50 mixed / alone (jumps by a token)", what);
    vreport_add(r, VBAR_MOST, BAR_LATENCY, (m0->middle + m1->middle) / (a0->middle + a1->middle),
                "%s p45 to p55 mixed / alone", what);
    vreport_add(r, VBAR_MOST, BAR_LATENCY, (m0->mean + m1->mean) / (a0->mean + a1->mean),
                "%s mean mixed / alone", what);
    vreport_add(r, VBAR_MOST, BAR_LATENCY, (m0->p99 + m1->p99) / (a0->p99 + a1->p99),
                "%s p99 mixed / alone", what);
}

static void counts(struct vreport *r, const struct vload_result *m)
{
    const struct sim_worker_stats *s = &m->stats;
    double useful = (double)(s->useful[0] + s->useful[1]);
    vreport_add(r, VBAR_NONE, 0, (double)s->core.steps[1], "batch steps, first mixed arm");
    vreport_add(r, VBAR_NONE, 0, (double)s->core.parks, "parks");
    vreport_add(r, VBAR_NONE, 0, (double)s->core.drops, "drops");
    vreport_add(r, VBAR_NONE, 0, (double)s->core.preemptions, "preemptions");
    vreport_add(r, VBAR_NONE, 0, (double)s->core.resumed_swap, "resumed by swap-in");
    vreport_add(r, VBAR_NONE, 0, (double)s->device.positions / useful - 1, "positions wasted");
    vreport_add(r, VBAR_NONE, 0, m->busy[0], "busy with real-time");
    vreport_add(r, VBAR_NONE, 0, m->busy[1], "busy with batch");
}

void vrow_isolation(struct vreport *r, const struct voptions *o)
{
    static const uint32_t in[2] = {16, 32}, out[2] = {4, 12};
    struct vload_list list = {NULL, 0};
    struct arms h[2];
    r->row = "isolation";
    if (vload_list_poisson(&list, o->seed, (uint32_t)(REQUESTS * o->scale), GAP_NS, in, out) != 0 ||
        run_half(&h[0], o, &list, o->seed + 1) != 0 ||
        run_half(&h[1], o, &list, o->seed + 2) != 0) {
        r->error = "no memory";
        vload_list_free(&list);
        return;
    }
    double batch_alone = 0, batch_mixed = 0, u = 0, wrong = 0;
    for (int k = 0; k < 2; k++) {
        batch_alone += (double)h[k].b.batch_out;
        batch_mixed += (double)h[k].m.batch_out;
        u += h[k].a.busy[0] / 2;
        wrong += (double)(h[k].m.stats.wrong + h[k].m.stats.device.stale_reads);
        wrong += (double)(h[k].m.rt_missing + h[k].a.rt_missing);
        if (h[k].m.bad != NULL) r->error = h[k].m.bad;
    }
    if (u < 0.30 || u > 0.50) r->void_because = "U is not within 0.30 to 0.50";
    vreport_add(r, VBAR_NONE, 0, (double)list.n, "real-time requests an arm");
    vreport_add(r, VBAR_NONE, 0, u, "U");
    ratio(r, "ttft", &h[0].m.ttft, &h[1].m.ttft, &h[0].a.ttft, &h[1].a.ttft);
    ratio(r, "gap", &h[0].m.gap, &h[1].m.gap, &h[0].a.gap, &h[1].a.gap);
    vreport_add(r, VBAR_LEAST, BAR_HARVEST, batch_mixed / (batch_alone * (1 - u)), "harvest");
    vreport_add(r, VBAR_MOST, 0, wrong, "wrong, stale or missing answers");
    counts(r, &h[0].m);
    vload_list_free(&list);
}
