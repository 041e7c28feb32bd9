/* Flows in order: a heap by tag, and where the class has a longest wait one by age. */
#include "scheduler/fair_queue_impl.h"

#include <assert.h>

static bool flow_before(const struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t a,
                        uint32_t b)
{
    const struct fair_flow *x = &fair_flows(q, cls)[a], *y = &fair_flows(q, cls)[b];
    if (by == FAIR_BY_AGE && x->aged_ns != y->aged_ns) return x->aged_ns < y->aged_ns;
    if (x->tag != y->tag) return x->tag < y->tag;
    if (x->picked != y->picked) return x->picked < y->picked;
    return a < b;
}

static void flow_set(struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t at,
                     uint32_t flow)
{
    fair_heap(q, cls, by)[at] = flow;
    fair_flows(q, cls)[flow].place[by] = at + 1;
}

static uint32_t flow_up(struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t at)
{
    uint32_t *h = fair_heap(q, cls, by), flow = h[at];
    while (at > 0 && flow_before(q, cls, by, flow, h[(at - 1) / 2])) {
        flow_set(q, cls, by, at, h[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    flow_set(q, cls, by, at, flow);
    return at;
}

static void flow_down(struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t at)
{
    uint32_t *h = fair_heap(q, cls, by), n = q->classes[cls].heap_n[by], flow = h[at];
    for (;;) {
        uint32_t kid = 2 * at + 1;
        if (kid >= n) break;
        if (kid + 1 < n && flow_before(q, cls, by, h[kid + 1], h[kid])) kid++;
        if (!flow_before(q, cls, by, h[kid], flow)) break;
        flow_set(q, cls, by, at, h[kid]);
        at = kid;
    }
    flow_set(q, cls, by, at, flow);
}

static void flow_fix(struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t flow)
{
    flow_down(q, cls, by, flow_up(q, cls, by, fair_flows(q, cls)[flow].place[by] - 1));
}

static void flow_enter(struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t flow)
{
    uint32_t at = q->classes[cls].heap_n[by]++;
    assert(at < q->cfg.max_flows);
    flow_set(q, cls, by, at, flow);
    (void)flow_up(q, cls, by, at);
}

static void flow_leave(struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t flow)
{
    uint32_t *h = fair_heap(q, cls, by), last = --q->classes[cls].heap_n[by];
    uint32_t at = fair_flows(q, cls)[flow].place[by] - 1, moved = h[last];
    assert(at <= last && h[at] == flow);
    h[last] = 0;
    fair_flows(q, cls)[flow].place[by] = 0;
    if (moved == flow) return;
    flow_set(q, cls, by, at, moved);
    flow_fix(q, cls, by, moved);
}

/* Into one of the heaps or out of it; `moved`: its key may have changed. */
static void flow_update(struct fair_queue *q, uint8_t cls, enum fair_order by, uint32_t flow,
                        bool moved)
{
    const struct fair_flow *f = &fair_flows(q, cls)[flow];
    bool wanted = f->n > 0 && !f->held && (by == FAIR_BY_TAG || q->cfg.longest_ns[cls] != 0);
    if (wanted && f->place[by] == 0)
        flow_enter(q, cls, by, flow);
    else if (!wanted && f->place[by] != 0)
        flow_leave(q, cls, by, flow);
    else if (wanted && moved)
        flow_fix(q, cls, by, flow);
}

void fair_flow_changed(struct fair_queue *q, uint8_t cls, uint32_t flow)
{
    struct fair_flow *f = &fair_flows(q, cls)[flow];
    uint64_t aged = f->oldest != 0 ? fair_at(q, f->oldest)->arrived_ns : 0;
    if (f->oldest != 0 && f->promoted_ns > aged) aged = f->promoted_ns;
    bool moved = aged != f->aged_ns;
    f->aged_ns = aged;
    flow_update(q, cls, FAIR_BY_TAG, flow, false);
    flow_update(q, cls, FAIR_BY_AGE, flow, moved);
}

void fair_flow_moved(struct fair_queue *q, uint8_t cls, uint32_t flow)
{
    flow_update(q, cls, FAIR_BY_TAG, flow, true);
    flow_update(q, cls, FAIR_BY_AGE, flow, true);
}

const char *fair_flow_check(const struct fair_queue *q, uint8_t cls)
{
    uint32_t in[2] = {0, 0};
    for (uint32_t i = 0; i < q->cfg.max_flows; i++) {
        const struct fair_flow *f = &fair_flows(q, cls)[i];
        bool wanted = f->n > 0 && !f->held;
        if ((f->place[FAIR_BY_TAG] != 0) != wanted ||
            (f->place[FAIR_BY_AGE] != 0) != (wanted && q->cfg.longest_ns[cls] != 0))
            return "a flow is in the wrong heap";
        for (int by = 0; by < 2; by++) {
            const uint32_t *h = fair_heap(q, cls, (enum fair_order)by);
            uint32_t at = f->place[by] - 1;
            if (f->place[by] == 0) continue;
            in[by]++;
            if (at >= q->classes[cls].heap_n[by] || h[at] != i) return "a flow's place is wrong";
            if (at > 0 && flow_before(q, cls, (enum fair_order)by, i, h[(at - 1) / 2]))
                return "flows are out of order";
        }
    }
    if (in[0] != q->classes[cls].heap_n[0] || in[1] != q->classes[cls].heap_n[1])
        return "flows miscounted";
    return NULL;
}
