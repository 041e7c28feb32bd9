/* Replay: the events of a mixed run with preemptions through a fresh core: the same actions, byte
 * for byte. */
#include "tests/bench/virtual/vload.h"
#include "tests/bench/virtual/vrecord.h"
#include "tests/bench/virtual/vrows.h"

void vrow_replay(struct vreport *r, const struct voptions *o)
{
    static const uint32_t in[2] = {16, 64}, out[2] = {1, 24};
    struct vload_list list = {NULL, 0};
    struct vrecord rec = {.n = 0};
    struct vload_result v;
    struct vload_arm arm = {.seed = o->seed, .event = vrecord_event, .event_ctx = &rec};
    r->row = "replay";
    buf_init(&rec.actions, (size_t)1 << 40);
    arm.worker = vload_worker(8, 160, o->host ? 300 : 0, 64);
    arm.worker.core.pool.prefix_cache = true;
    arm.worker.core.debug_preempt_every = 97;
    arm.batch = (struct vload_batch){32, 64, 256, 32, 256, 512};
    if (vload_list_poisson(&list, o->seed, (uint32_t)(1000 * o->scale), 200 * VLOAD_MS, in, out) !=
            0 ||
        (arm.list = &list, arm.duration_ns = list.a[list.n - 1].at_ns, vload_run(&arm, &v) != 0)) {
        r->error = "no memory";
    } else {
        r->error = v.bad;
        uint32_t same = vrecord_replay(&rec, &arm.worker.core);
        vreport_add(r, VBAR_NONE, 0, (double)v.stats.core.preemptions, "preemptions");
        vreport_add(r, VBAR_NONE, 0, (double)rec.actions.len, "bytes of actions");
        vreport_add(r, VBAR_NONE, 0, rec.n, "events");
        vreport_add(r, VBAR_MOST, 0, (double)(rec.n - (same == UINT32_MAX ? 0 : same)),
                    "events from the first difference on");
    }
    vload_list_free(&list);
    vrecord_deinit(&rec);
}
