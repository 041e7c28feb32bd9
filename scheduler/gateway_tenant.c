/* Tenants: caps, room in slots, what they are charged, and the tags that follow. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>

void gc_retag(struct gateway_core *c, uint32_t tenant, uint8_t cls)
{
    fair_queue_tag(gc_fair(c), cls, tenant, tenant_account_tag(gc_account(c), tenant, cls));
}

static uint64_t gc_least_tag(const struct gateway_core *c, uint8_t cls)
{
    uint64_t tag;
    return fair_queue_min_tag(gc_fair(c), cls, &tag) ? tag : UINT64_MAX;
}

/* At its cap it keeps what it has queued and is passed over. */
static void gc_hold(struct gateway_core *c, uint32_t tenant)
{
    struct gc_tenant *t = &gc_tenants(c)[tenant];
    bool held = t->max_in_flight != 0 && t->in_flight >= t->max_in_flight;
    if ((t->held != 0) == held) return;
    if (held)
        t->held_at_ns = c->now_ns;
    else
        t->held_ns += c->now_ns - t->held_at_ns;
    t->held = held;
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) {
        if (!held && t->queued[k] > 0) { /* what it did not use under its own cap is no credit */
            tenant_account_wake(gc_account(c), tenant, k, false, gc_least_tag(c, k));
            gc_retag(c, tenant, k);
        }
        fair_queue_hold(gc_fair(c), k, tenant, held);
    }
}

void gc_tenant(struct gateway_core *c, const struct gateway_event *ev)
{
    assert(ev->tenant.index < c->cfg.max_tenants && ev->tenant.weight_permille <= TENANT_WEIGHT_MAX);
    struct gc_tenant *t = &gc_tenants(c)[ev->tenant.index];
    bool known = ev->tenant.weight_permille != 0;
    c->known_tenants += (uint32_t)known - t->known;
    t->known = known;
    t->weight_permille = known ? ev->tenant.weight_permille : 1000;
    t->max_in_flight = known ? ev->tenant.max_in_flight : 0;
    t->max_queued = known ? ev->tenant.max_queued : 0;
    tenant_account_weight(gc_account(c), ev->tenant.index, t->weight_permille);
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) gc_retag(c, ev->tenant.index, k);
    gc_hold(c, ev->tenant.index);
}

void gc_tenant_took(struct gateway_core *c, uint32_t tenant, bool taken)
{
    struct gc_tenant *t = &gc_tenants(c)[tenant];
    assert(taken || t->in_use > 0);
    if (taken) c->active_tenants += t->in_use++ == 0;
    if (!taken) c->active_tenants -= --t->in_use == 0;
}

bool gateway_core_room(const struct gateway_core *c, uint32_t tenant)
{
    const struct gc_tenant *t = &gc_tenants(c)[tenant];
    assert(tenant < c->cfg.max_tenants);
    uint32_t spare = c->cfg.max_slots - c->in_use;
    if (spare == 0) return false;
    if (t->max_queued != 0 && t->in_use - t->in_flight >= t->max_queued) return false;
    if (c->known_tenants < 2 || t->in_use == 0) return true;
    uint32_t firsts = 0, eighth = c->cfg.max_slots / 8;
    if (c->known_tenants > c->active_tenants) firsts = c->known_tenants - c->active_tenants;
    if (firsts > eighth) firsts = eighth;
    if (spare <= firsts) return false;
    if (t->in_use < c->cfg.max_slots / 2 / c->active_tenants) return true;
    return t->in_use < spare - firsts;
}

void gc_tenant_wakes(struct gateway_core *c, const struct gc_slot *s)
{
    const struct gc_tenant *t = &gc_tenants(c)[s->tenant];
    if (fair_queue_flow_count(gc_fair(c), s->cls, s->tenant) > 0) return;
    bool idle = t->queued[s->cls] + t->sent[s->cls] == 0 && !s->was_sent;
    tenant_account_wake(gc_account(c), s->tenant, s->cls, idle, gc_least_tag(c, s->cls));
    gc_retag(c, s->tenant, s->cls);
}

/* A class that is below its floor share has something owed, in 1/1000 tokens. Only what is sent
 * while several classes have somebody to send counts: an idle class saves nothing up. */
static void gc_owe(struct gateway_core *c, uint8_t cls, uint32_t tokens)
{
    uint64_t tag;
    uint32_t others = 0;
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) {
        bool waits = fair_queue_min_tag(gc_fair(c), k, &tag);
        others += k != cls && waits;
        if (k != cls && !waits && c->owed[k] > 0) c->owed[k] = 0;
    }
    if (others == 0) {
        if (c->owed[cls] > 0) c->owed[cls] = 0;
        return;
    }
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) {
        uint32_t floor = c->cfg.classes.rows[k].floor_permille;
        if (floor == 0 || (k != cls && !fair_queue_min_tag(gc_fair(c), k, &tag))) continue;
        c->owed[k] += (int64_t)tokens * floor;
        if (c->owed[k] > GC_OWED_MAX) c->owed[k] = GC_OWED_MAX;
    }
    int64_t spent = (int64_t)tokens * 1000;
    c->owed[cls] -= spent;
    if (c->owed[cls] < -spent) c->owed[cls] = -spent;
}

void gc_tenant_sent(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    struct gc_tenant *t = &gc_tenants(c)[s->tenant];
    uint32_t made = s->n_ids - s->n_prompt, usual = s->hint_out > made ? s->hint_out - made : 0;
    s->left = tenant_account_expect(gc_account(c), s->tenant, s->cls,
                                    s->prompt_paid ? 0 : s->n_prompt, s->max_total - s->n_ids,
                                    usual);
    uint64_t tag = tenant_account_send(gc_account(c), s->tenant, s->cls, s->left,
                                       gc_least_tag(c, s->cls));
    if (!s->was_sent) s->tag = tag;
    gc_owe(c, s->cls, s->left);
    t->in_flight++;
    t->sent[s->cls]++;
    c->sent[s->cls]++;
    gc_retag(c, s->tenant, s->cls);
    gc_hold(c, s->tenant);
}

void gc_tenant_left(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    struct gc_tenant *t = &gc_tenants(c)[s->tenant];
    assert(t->in_flight > 0 && t->sent[s->cls] > 0 && c->sent[s->cls] > 0);
    tenant_account_land(gc_account(c), s->tenant, s->cls, s->left);
    s->left = 0;
    /* nothing used: only for the system's time, which is not to stay ahead of this tenant's */
    tenant_account_serve(gc_account(c), s->tenant, s->cls, 0, 0, c->now_ns, true);
    t->in_flight--;
    t->sent[s->cls]--;
    c->sent[s->cls]--;
    gc_retag(c, s->tenant, s->cls);
    gc_hold(c, s->tenant);
}

static void gc_charge(struct gateway_core *c, uint32_t slot, uint64_t landed, uint32_t prompt,
                      uint32_t output)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    const struct gc_worker *w = &gc_workers(c)[s->worker];
    uint32_t land = landed < s->left ? (uint32_t)landed : s->left;
    s->left -= land;
    tenant_account_land(gc_account(c), s->tenant, s->cls, land);
    tenant_account_serve(gc_account(c), s->tenant, s->cls, prompt, output, c->now_ns,
                         tenant_account_counts(gc_account(c), s->worker, w->incarnation, s->tenant,
                                               s->cls));
    gc_retag(c, s->tenant, s->cls);
}

void gc_tenant_pays(struct gateway_core *c, uint32_t slot, uint32_t cached)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    uint32_t from = s->paid_to > s->n_prompt ? s->paid_to : s->n_prompt;
    uint32_t output = s->next > from ? s->next - from : 0, prompt = 0;
    uint64_t landed = (uint64_t)output * tenant_account_out_weight(gc_account(c));
    if (output > 0) s->paid_to = s->next;
    if (!s->prompt_paid) {
        landed += s->n_prompt;
        prompt = s->n_prompt - (cached < s->n_prompt ? cached : s->n_prompt);
        s->prompt_paid = 1;
    }
    gc_charge(c, slot, landed, prompt, output);
}

void gc_tenant_pays_prompt(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (s->prompt_paid) return;
    s->prompt_paid = 1;
    gc_charge(c, slot, s->n_prompt, s->n_prompt, 0);
}

void gateway_core_tenant_stats(const struct gateway_core *c, uint32_t tenant,
                               struct gateway_tenant_stats *out)
{
    assert(tenant < c->cfg.max_tenants);
    const struct gc_tenant *t = &gc_tenants(c)[tenant];
    *out = (struct gateway_tenant_stats){.weight_permille = t->weight_permille,
                                         .in_use = t->in_use,
                                         .refused = t->refused,
                                         .held = t->held};
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) {
        out->queued[k] = t->queued[k];
        out->sent[k] = t->sent[k];
        tenant_account_usage(gc_account(c), tenant, k, &out->usage[k]);
    }
}

static const char *gc_tenant_check_one(const struct gateway_core *c, uint32_t i)
{
    const struct gc_tenant *t = &gc_tenants(c)[i];
    uint32_t in_use = 0, in_flight = 0;
    for (uint8_t k = 0; k < c->cfg.classes.n; k++) {
        uint32_t queued = 0, sent = 0;
        uint64_t left = 0;
        struct tenant_usage u;
        for (uint32_t j = 0; j < c->cfg.max_slots; j++) {
            const struct gc_slot *s = &gc_slots(c)[j];
            if (s->state == GC_FREE || s->tenant != i || s->cls != k) continue;
            in_use++;
            queued += s->state == GC_QUEUED;
            sent += s->state == GC_SENT;
            left += s->left;
        }
        in_flight += sent;
        tenant_account_usage(gc_account(c), i, k, &u);
        if (queued != t->queued[k] || sent != t->sent[k]) return "a tenant's slots miscounted";
        if (left != u.in_flight) return "a tenant's tokens in flight miscounted";
    }
    if (in_use != t->in_use || in_flight != t->in_flight) return "a tenant's slots miscounted";
    if ((t->held != 0) != (t->max_in_flight != 0 && t->in_flight >= t->max_in_flight))
        return "a tenant is held at the wrong time";
    return NULL;
}

const char *gc_tenant_check(const struct gateway_core *c)
{
    uint32_t active = 0, known = 0;
    for (uint32_t i = 0; i < c->cfg.max_tenants; i++) {
        const char *bad = gc_tenant_check_one(c, i);
        if (bad != NULL) return bad;
        active += gc_tenants(c)[i].in_use > 0;
        known += gc_tenants(c)[i].known;
    }
    if (active != c->active_tenants || known != c->known_tenants) return "active tenants miscounted";
    return tenant_account_check(gc_account(c));
}
