/* No collapse, and the preemption tax: a pool that its seats fill, more and more waiting, waves of
 * real-time. */
#include "tests/bench/virtual/vload.h"
#include "tests/bench/virtual/vrows.h"

#include <string.h>

#define SEATS 8
#define PROMPT_MIN 128 /* so that every preemption is one of a sequence with >= 128 tokens */
#define PROMPT_MAX 256
#define OUT_MIN 64
#define OUT_MAX 448
#define MEAN_END ((PROMPT_MIN + PROMPT_MAX + OUT_MIN + OUT_MAX) / 2)
#define POOL (SEATS * MEAN_END / VLOAD_BLOCK)
#define WAVES 200
#define PERIOD_NS (10 * VLOAD_S)
/* A wave: 4 requests that end with half the pool between them, about 2 s of device time together.
 */
#define WAVE_COUNT 4
#define WAVE_END (POOL * VLOAD_BLOCK / 2 / WAVE_COUNT)
#define WAVE_OUT 76
#define PREEMPTIONS 500
#define BAR_RATE 0.95
#define BAR_BETTER 0.98
#define BAR_TAX 0.005
#define BAR_TIMES 20

enum resume { RESUME_AUTO, RESUME_SWAP, RESUME_RECOMPUTE };

static const uint32_t demands[] = {1, 3, 6, 12, 24};

struct point {
    double rate; /* batch tokens / the never-preempting pool's */
    double tax;
    uint64_t preemptions;
};

static int run(struct vload_result *out, const struct voptions *o, const struct vload_list *list,
               uint32_t demand, enum resume resume, uint64_t copy_ns, bool reference)
{
    struct vload_arm arm = {.list = list, .seed = o->seed};
    uint32_t blocks = reference ? 16 * POOL : POOL, seats = SEATS + (reference ? WAVE_COUNT : 0);
    bool host = o->host && resume != RESUME_RECOMPUTE && !reference;
    arm.worker = vload_worker(seats, blocks, host ? (24 + 1) * POOL : 0, 26 * SEATS);
    arm.worker.cost.copy_ns = arm.worker.core.copy_ns = copy_ns;
    arm.worker.core.debug_resume = resume == RESUME_SWAP ? 1 : 0;
    arm.batch = (struct vload_batch){.outstanding = demand * SEATS,
                                     .prompt_min = PROMPT_MIN,
                                     .prompt_max = PROMPT_MAX,
                                     .out_min = OUT_MIN,
                                     .out_max = OUT_MAX,
                                     .max_out = 1024};
    arm.duration_ns = (uint64_t)(WAVES * o->scale) * PERIOD_NS;
    return vload_run(&arm, out);
}

static struct point point(const struct vload_result *v, const struct vload_result *reference)
{
    double useful = (double)(v->stats.useful[0] + v->stats.useful[1]);
    return (struct point){(double)v->batch_out / (double)reference->batch_out,
                          ((double)v->stats.device.positions - useful) / useful,
                          v->stats.core.preemptions};
}

static int one_demand(struct vreport *r, const struct voptions *o, const struct vload_list *list,
                      uint32_t demand, uint32_t ratio, const struct vload_result *reference)
{
    struct sim_cost cost = vload_cpu_cost();
    uint64_t copy_ns = ratio == 0 ? cost.copy_ns : VLOAD_BLOCK * cost.token_ns / ratio;
    struct vload_result v;
    struct point p[3];
    memset(p, 0, sizeof p);
    for (int k = RESUME_AUTO; k <= RESUME_RECOMPUTE; k++) {
        if (!o->host && k == RESUME_SWAP) continue;
        if (run(&v, o, list, demand, (enum resume)k, copy_ns, false) != 0) return -1;
        p[k] = point(&v, reference);
        if (v.bad != NULL)
            r->error = v.bad;
        else if (v.stats.wrong + v.stats.device.stale_reads + v.rt_missing > 0)
            r->error = "wrong, stale or missing answers";
    }
    const char *path = ratio == 0 ? "fast" : "20:1";
    double better = p[1].rate > p[2].rate ? p[1].rate : p[2].rate;
    vreport_add(r, VBAR_LEAST, BAR_RATE, p[0].rate, "%ux %s: tokens / never preempting", demand,
                path);
    if (o->host) vreport_add(r, VBAR_NONE, 0, p[1].rate, "%ux %s: swap only", demand, path);
    vreport_add(r, VBAR_NONE, 0, p[2].rate, "%ux %s: recompute only", demand, path);
    vreport_add(r, VBAR_LEAST, BAR_BETTER, p[0].rate / better,
                "%ux %s: / better of swap, recompute", demand, path);
    vreport_add(r, VBAR_NONE, 0, (double)p[0].preemptions, "%ux %s: preemptions", demand, path);
    if (p[0].preemptions < PREEMPTIONS * o->scale) r->void_because = "too few preemptions";
    if (ratio == 0) return 0;
    vreport_add(r, VBAR_MOST, BAR_TAX, p[0].tax, "%ux %s: tax", demand, path);
    vreport_add(r, VBAR_LEAST, BAR_TIMES, p[2].tax / p[0].tax, "%ux %s: recompute's tax / tax",
                demand, path);
    return 0;
}

void vrow_collapse(struct vreport *r, const struct voptions *o)
{
    struct vload_list list = {NULL, 0};
    struct vload_result reference;
    r->row = "collapse";
    uint32_t waves = (uint32_t)(WAVES * o->scale);
    if (vload_list_waves(&list, waves, PERIOD_NS, WAVE_COUNT, WAVE_END - WAVE_OUT, WAVE_OUT) != 0) {
        r->error = "no memory";
        return;
    }
    int rc = run(&reference, o, &list, 1, RESUME_AUTO, 0, true);
    if (rc == 0) {
        vreport_add(r, VBAR_MOST, 0, (double)reference.stats.core.preemptions,
                    "preemptions of the reference");
        vreport_add(r, VBAR_NONE, 0,
                    (double)reference.batch_out * 1e9 / ((double)waves * PERIOD_NS),
                    "batch tokens/s of the reference");
        vreport_add(r, VBAR_NONE, 0, reference.busy[0], "busy with real-time");
    }
    for (uint32_t ratio = 0; rc == 0 && ratio <= 20; ratio += 20)
        for (uint32_t k = 0; rc == 0 && k < sizeof demands / sizeof *demands; k++)
            rc = one_demand(r, o, &list, demands[k], ratio, &reference);
    if (rc != 0) r->error = "no memory";
    vload_list_free(&list);
}
