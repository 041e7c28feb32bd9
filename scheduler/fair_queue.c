/* Region, keys, push, pick, remove, the auditor. */
#include "scheduler/fair_queue_impl.h"

#include <assert.h>

static uint64_t fair_align(uint64_t n)
{
    return (n + 63u) & ~(uint64_t)63u;
}

static size_t fair_layout(struct fair_queue *q, const struct fair_queue_config *cfg)
{
    if (cfg->max_entries == 0 || cfg->max_entries >= UINT32_MAX / 8) return 0;
    if (cfg->max_flows == 0 || cfg->max_flows > 1u << 20) return 0;
    if (cfg->n_classes == 0 || cfg->n_classes > CLASSES_MAX) return 0;
    uint64_t lanes = (uint64_t)cfg->n_classes * cfg->max_flows;
    q->flows_at = fair_align(sizeof *q);
    q->heaps_at = fair_align(q->flows_at + lanes * sizeof(struct fair_flow));
    q->entries_at = fair_align(q->heaps_at + 2 * lanes * sizeof(uint32_t));
    return (size_t)fair_align(q->entries_at +
                              (uint64_t)cfg->max_entries * sizeof(struct fair_entry));
}

size_t fair_queue_bytes(const struct fair_queue_config *cfg)
{
    struct fair_queue tmp;
    return fair_layout(&tmp, cfg);
}

struct fair_queue *fair_queue_init(void *region, const struct fair_queue_config *cfg)
{
    _Static_assert(sizeof(struct fair_entry) == 64, "an entry fills a line of the cache");
    struct fair_queue *q = region;
    assert(((uintptr_t)region & 63u) == 0);
    size_t bytes = fair_layout(q, cfg);
    assert(bytes != 0);
    (void)bytes;
    q->cfg = *cfg;
    return q;
}

uint64_t fair_queue_due(uint64_t arrived_ns, uint64_t deadline_ns, int8_t priority,
                        uint64_t age_ns)
{
    assert(priority >= -FAIR_PRIORITY_END && priority < FAIR_PRIORITY_END);
    if (deadline_ns != 0) return deadline_ns;
    return arrived_ns + (uint64_t)(FAIR_PRIORITY_END - priority) * age_ns;
}

struct fair_entry *fair_queue_entry(const struct fair_queue *q, uint32_t entry)
{
    assert(entry < q->cfg.max_entries);
    return &fair_entries(q)[entry];
}

static struct fair_flow *fair_flow_of(const struct fair_queue *q, const struct fair_entry *e)
{
    assert(e->cls < q->cfg.n_classes && e->flow < q->cfg.max_flows);
    return &fair_flows(q, e->cls)[e->flow];
}

void fair_queue_push(struct fair_queue *q, uint32_t entry)
{
    struct fair_entry *e = fair_queue_entry(q, entry);
    struct fair_flow *f = fair_flow_of(q, e);
    assert(!e->linked);
    e->linked = 1;
    f->n++;
    q->classes[e->cls].n++;
    fair_tree_add(q, f, entry + 1);
    fair_list_add(q, f, entry + 1);
    if (f->n == 1 || f->oldest == entry + 1) fair_flow_changed(q, e->cls, e->flow);
}

void fair_queue_remove(struct fair_queue *q, uint32_t entry)
{
    struct fair_entry *e = fair_queue_entry(q, entry);
    struct fair_flow *f = fair_flow_of(q, e);
    assert(e->linked && f->n > 0);
    bool oldest = f->oldest == entry + 1;
    fair_tree_remove(q, f, entry + 1);
    fair_list_remove(q, f, entry + 1);
    e->linked = 0;
    f->n--;
    q->classes[e->cls].n--;
    if (f->n == 0 || oldest) fair_flow_changed(q, e->cls, e->flow);
}

static uint32_t fair_in_turn(const struct fair_queue *q, uint8_t cls)
{
    if (q->classes[cls].heap_n[FAIR_BY_TAG] == 0) return FAIR_NONE;
    return fair_flows(q, cls)[fair_heap(q, cls, FAIR_BY_TAG)[0]].first - 1;
}

uint32_t fair_queue_head(const struct fair_queue *q, uint8_t cls, uint64_t now_ns)
{
    assert(cls < q->cfg.n_classes);
    const struct fair_class *c = &q->classes[cls];
    if (c->heap_n[FAIR_BY_AGE] > 0 && !c->promoted_last) {
        const struct fair_flow *f = &fair_flows(q, cls)[fair_heap(q, cls, FAIR_BY_AGE)[0]];
        if (now_ns >= f->aged_ns && now_ns - f->aged_ns >= q->cfg.longest_ns[cls])
            return f->oldest - 1;
    }
    return fair_in_turn(q, cls);
}

bool fair_queue_pick(struct fair_queue *q, uint32_t entry, uint64_t now_ns)
{
    const struct fair_entry *e = fair_queue_entry(q, entry);
    struct fair_flow *f = fair_flow_of(q, e);
    uint8_t cls = e->cls;
    uint32_t flow = e->flow;
    bool promoted = fair_in_turn(q, cls) != entry;
    assert(e->linked && !f->held);
    if (promoted) f->promoted_ns = now_ns;
    q->classes[cls].promoted_last = promoted;
    fair_queue_remove(q, entry);
    f->picked = ++q->picks;
    fair_flow_moved(q, cls, flow);
    return promoted;
}

void fair_queue_tag(struct fair_queue *q, uint8_t cls, uint32_t flow, uint64_t tag)
{
    assert(cls < q->cfg.n_classes && flow < q->cfg.max_flows);
    struct fair_flow *f = &fair_flows(q, cls)[flow];
    if (f->tag == tag) return;
    f->tag = tag;
    if (f->place[FAIR_BY_TAG] != 0) fair_flow_moved(q, cls, flow);
}

void fair_queue_hold(struct fair_queue *q, uint8_t cls, uint32_t flow, bool held)
{
    assert(cls < q->cfg.n_classes && flow < q->cfg.max_flows);
    struct fair_flow *f = &fair_flows(q, cls)[flow];
    if ((f->held != 0) == held) return;
    f->held = held;
    fair_flow_changed(q, cls, flow);
}

bool fair_queue_min_tag(const struct fair_queue *q, uint8_t cls, uint64_t *tag)
{
    if (q->classes[cls].heap_n[FAIR_BY_TAG] == 0) return false;
    *tag = fair_flows(q, cls)[fair_heap(q, cls, FAIR_BY_TAG)[0]].tag;
    return true;
}

uint32_t fair_queue_count(const struct fair_queue *q, uint8_t cls)
{
    return q->classes[cls].n;
}

uint32_t fair_queue_flow_count(const struct fair_queue *q, uint8_t cls, uint32_t flow)
{
    assert(cls < q->cfg.n_classes && flow < q->cfg.max_flows);
    return fair_flows(q, cls)[flow].n;
}

uint64_t fair_queue_oldest_ns(const struct fair_queue *q, uint8_t cls)
{
    uint64_t oldest = 0;
    if (q->classes[cls].n == 0) return 0;
    for (uint32_t i = 0; i < q->cfg.max_flows; i++) {
        const struct fair_flow *f = &fair_flows(q, cls)[i];
        if (f->n == 0) continue;
        uint64_t at = fair_at(q, f->oldest)->arrived_ns;
        if (oldest == 0 || at < oldest) oldest = at;
    }
    return oldest;
}

const char *fair_queue_check(const struct fair_queue *q)
{
    uint32_t linked = 0, counted = 0;
    for (uint8_t k = 0; k < q->cfg.n_classes; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < q->cfg.max_flows; i++) {
            const struct fair_flow *f = &fair_flows(q, k)[i];
            const char *bad = f->n > 0 || f->root != 0 ? fair_tree_check(q, f) : NULL;
            if (bad != NULL) return bad;
            n += f->n;
        }
        if (n != q->classes[k].n) return "a class's entries miscounted";
        counted += n;
        const char *bad = fair_flow_check(q, k);
        if (bad != NULL) return bad;
    }
    for (uint32_t i = 0; i < q->cfg.max_entries; i++) linked += fair_entries(q)[i].linked;
    return linked != counted ? "an entry is in no flow" : NULL;
}
