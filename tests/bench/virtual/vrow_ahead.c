/* Copies ahead: waves whose requests end one after another, so that blocks become free while real-time still
 * runs; a copy takes as long as computing its block, so that waiting for it would show. */
#include "tests/bench/virtual/vload.h"
#include "tests/bench/virtual/vrows.h"

#define SEATS 8
#define MEAN_END 448
#define POOL (SEATS * MEAN_END / VLOAD_BLOCK)
#define WAVES 60
#define PERIOD_NS (10 * VLOAD_S)
#define WAVE_COUNT 4
#define WAVE_END (POOL * VLOAD_BLOCK / 2 / WAVE_COUNT)
#define OUT_MIN 20
#define OUT_MAX 76
#define BAR_RATE 0.95
#define BAR_TAX 0.005

static int run(struct vload_result *out, const struct voptions *o, const struct vload_list *list,
               bool reference)
{
    struct vload_arm arm = {.list = list, .seed = o->seed};
    uint32_t blocks = reference ? 16 * POOL : POOL, seats = SEATS + (reference ? WAVE_COUNT : 0);
    struct sim_cost cost = vload_cpu_cost();
    arm.worker = vload_worker(seats, blocks, o->host && !reference ? 25 * POOL : 0, 26 * SEATS);
    arm.worker.cost.copy_ns = arm.worker.core.copy_ns = VLOAD_BLOCK * cost.token_ns;
    arm.batch = (struct vload_batch){.outstanding = 6 * SEATS,
                                     .prompt_min = 128,
                                     .prompt_max = 256,
                                     .out_min = 64,
                                     .out_max = 448,
                                     .max_out = 1024};
    arm.duration_ns = (uint64_t)(WAVES * o->scale) * PERIOD_NS;
    return vload_run(&arm, out);
}

static void figures(struct vreport *r, const struct vload_result *v, const struct vload_result *ref,
                    bool host)
{
    double useful = (double)(v->stats.useful[0] + v->stats.useful[1]);
    vreport_add(r, VBAR_LEAST, BAR_RATE, (double)v->batch_out / (double)ref->batch_out,
                "tokens / never preempting");
    vreport_add(r, VBAR_MOST, BAR_TAX, ((double)v->stats.device.positions - useful) / useful, "tax");
    vreport_add(r, VBAR_MOST, 1.02, v->gap.mean / ref->gap.mean, "gap mean / never preempting");
    vreport_add(r, VBAR_MOST, 1.02, v->ttft.mean / ref->ttft.mean, "ttft mean / never preempting");
    vreport_add(r, VBAR_NONE, 0, (double)v->stats.core.preemptions, "preemptions");
    vreport_add(r, VBAR_NONE, 0, (double)v->stats.core.resumed_swap, "resumed by swap-in");
    vreport_add(r, host ? VBAR_LEAST : VBAR_NONE, 1, (double)v->stats.core.ahead, "of these brought ahead");
    vreport_add(r, VBAR_NONE, 0, (double)v->stats.core.given_back, "given back unused");
    if (v->bad != NULL)
        r->error = v->bad;
    else if (v->stats.wrong + v->stats.device.stale_reads + v->rt_missing > 0)
        r->error = "wrong, stale or missing answers";
}

void vrow_ahead(struct vreport *r, const struct voptions *o)
{
    struct vload_list list = {NULL, 0};
    struct vload_result reference, v;
    uint32_t waves = (uint32_t)(WAVES * o->scale);
    r->row = "ahead";
    if (vload_list_waves(&list, waves, PERIOD_NS, WAVE_COUNT, WAVE_END - OUT_MAX, OUT_MAX) != 0) {
        r->error = "no memory";
        return;
    }
    for (uint32_t i = 0; i < list.n; i++)
        list.a[i].n_out = OUT_MIN + (OUT_MAX - OUT_MIN) * (i % WAVE_COUNT) / (WAVE_COUNT - 1);
    if (run(&reference, o, &list, true) != 0 || run(&v, o, &list, false) != 0)
        r->error = "no memory";
    else
        figures(r, &v, &reference, o->host);
    vload_list_free(&list);
}
