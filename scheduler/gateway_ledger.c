/* Why queued ones wait (ledger.h). Nobody is looked at while it waits: each class has sums of the time in which its
 * head could not go, by why; who comes into the queue notes them, who is picked takes the difference.
 *
 * Behind a class: as much of more urgent classes is at workers as of its own. Behind tenants, or its own tenant's
 * others: by who was picked meanwhile. A tenant at its cap waits for that, whatever else. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>
#include <string.h>

void gc_ledger_pass(struct gateway_core *c, uint64_t now_ns)
{
    uint64_t passed = now_ns - c->why_at_ns;
    for (uint32_t k = 0; k < c->cfg.classes.n && c->why_at_ns != 0; k++) {
        if (c->why[k] < GC_WHYS) c->why_ns[k][c->why[k]] += passed;
    }
    c->why_at_ns = now_ns;
}

static bool gc_any_live(const struct gateway_core *c)
{
    for (uint32_t i = 0; i < c->workers_end; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        if (w->state == GC_LIVE && !w->draining) return true;
    }
    return false;
}

static enum gc_why gc_why(const struct gateway_core *c, uint8_t cls)
{
    uint32_t urgent = 0;
    if (c->queued[cls] == 0) return GC_WHYS;
    if (!gc_any_live(c)) return GC_WHY_NO_WORKER;
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        bool before = c->cfg.classes.rows[k].order < c->cfg.classes.rows[cls].order;
        urgent += before ? c->sent[k] : 0;
    }
    return urgent > 0 && urgent >= c->sent[cls] ? GC_WHY_CLASS : GC_WHY_OWN;
}

void gc_ledger_look(struct gateway_core *c)
{
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) c->why[k] = (uint8_t)gc_why(c, k);
}

static uint64_t gc_held_ns(const struct gateway_core *c, const struct gc_tenant *t)
{
    return t->held_ns + (t->held ? c->now_ns - t->held_at_ns : 0);
}

void gc_ledger_queued(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    const struct gc_tenant *t = &gc_tenants(c)[s->tenant];
    s->queued_ns = c->now_ns;
    memcpy(s->was_ns, c->why_ns[s->cls], sizeof s->was_ns);
    s->was_held_ns = gc_held_ns(c, t);
    s->was_picks = c->picks[s->cls];
    s->was_own_picks = t->picks[s->cls];
}

static uint64_t gc_take(uint64_t *left, uint64_t want)
{
    uint64_t n = want < *left ? want : *left;
    *left -= n;
    return n;
}

static void gc_ledger_waited(const struct gateway_core *c, uint32_t slot, uint64_t now_ns, uint64_t out[LEDGER_QUEUE_N])
{
    const struct gc_slot *s = &gc_slots(c)[slot];
    const struct gc_tenant *t = &gc_tenants(c)[s->tenant];
    uint64_t now[GC_WHYS], left = now_ns - s->queued_ns;
    memcpy(now, c->why_ns[s->cls], sizeof now);
    if (c->why[s->cls] < GC_WHYS && now_ns > c->why_at_ns) now[c->why[s->cls]] += now_ns - c->why_at_ns; /* since the last event */
    memset(out, 0, LEDGER_QUEUE_N * sizeof *out);
    out[LEDGER_CAP - LEDGER_QUEUE] = gc_take(&left, gc_held_ns(c, t) - s->was_held_ns);
    out[LEDGER_NO_WORKER - LEDGER_QUEUE] =
        gc_take(&left, now[GC_WHY_NO_WORKER] - s->was_ns[GC_WHY_NO_WORKER]);
    out[LEDGER_CLASS - LEDGER_QUEUE] = gc_take(&left, now[GC_WHY_CLASS] - s->was_ns[GC_WHY_CLASS]);
    uint64_t picks = c->picks[s->cls] - s->was_picks, own = t->picks[s->cls] - s->was_own_picks;
    uint64_t others = picks > own ? left / picks * (picks - own) : 0;
    out[LEDGER_TENANT - LEDGER_QUEUE] = gc_take(&left, others);
    out[LEDGER_OWN - LEDGER_QUEUE] = left;
}

void gc_ledger_picked(struct gateway_core *c, uint32_t slot, uint64_t out[LEDGER_QUEUE_N])
{
    const struct gc_slot *s = &gc_slots(c)[slot];
    gc_ledger_waited(c, slot, c->now_ns, out);
    c->picks[s->cls]++;
    gc_tenants(c)[s->tenant].picks[s->cls]++;
}

bool gateway_core_waited(const struct gateway_core *c, uint32_t slot, uint64_t now_ns, uint64_t out[LEDGER_QUEUE_N])
{
    if (slot >= c->cfg.max_slots || gc_slots(c)[slot].state != GC_QUEUED) return false;
    gc_ledger_waited(c, slot, now_ns, out);
    return true;
}
