/* What is here and at the workers, and how fast it goes: the figures that admit.h decides from. */
#include "scheduler/gateway_core_impl.h"

#include <assert.h>
#include <string.h>

#define GC_MODEL_CONTEXT 256 /* positions that a decoding sequence is taken to have */
#define GC_MODEL_CHUNK 64

bool gc_admit_config(const struct gateway_core_config *cfg, struct admit_config *a)
{
    *a = (struct admit_config){.max_tickets = cfg->max_tickets,
                               .max_tenants = cfg->max_tenants != 0 ? cfg->max_tenants : 1,
                               .horizon_ns = cfg->horizon_ns};
    for (uint32_t k = 0; k < cfg->classes.n; k++)
        a->urgent |= (uint8_t)((cfg->classes.rows[k].rank == 0) << k);
    return cfg->max_tickets != 0;
}

/* Ids that its tenant's answers usually have, of those it may make. */
static uint32_t gc_usual_out(const struct gateway_core *c, uint32_t tenant, uint8_t cls,
                             uint32_t max_out, uint32_t hint)
{
    uint32_t weight = tenant_account_out_weight(gc_account(c));
    return tenant_account_expect(gc_account(c), tenant, cls, 0, max_out, hint) / weight;
}

uint32_t gc_out_of(const struct gateway_core *c, const struct gc_slot *s)
{
    return gc_usual_out(c, s->tenant, s->cls, s->max_total - s->n_ids, s->hint_out);
}

void gc_admit_enter(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (gc_admit(c) == NULL) return;
    s->due_prompt = s->n_prompt;
    s->due_out = gc_usual_out(c, s->tenant, s->cls, s->max_total - s->n_ids, s->hint_out);
    admit_enter(gc_admit(c), s->cls, s->due_prompt, s->due_out);
}

void gc_admit_leave(struct gateway_core *c, uint32_t slot)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (gc_admit(c) == NULL || s->state == GC_DONE) return; /* it left when it was done */
    admit_leave(gc_admit(c), s->cls, s->due_prompt, s->due_out);
    s->due_prompt = s->due_out = 0;
}

void gc_admit_work(struct gateway_core *c, uint32_t slot, uint32_t n_out)
{
    struct gc_slot *s = &gc_slots(c)[slot];
    if (gc_admit(c) == NULL) return;
    uint32_t expected = n_out < s->due_out ? n_out : s->due_out;
    admit_work(gc_admit(c), s->cls, s->due_prompt, n_out, expected, c->now_ns);
    s->due_prompt = 0;
    s->due_out -= expected;
}

/* What a position and an id cost in a step whose seats are all taken; routing asks, too. */
void gc_admit_cost(struct gc_worker *w, const float *cost, uint32_t n)
{
    struct step_cost model;
    struct step_shape full = {0};
    if (cost == NULL || n < COST_FEATURES || w->max_seqs == 0) return;
    memset(&model, 0, sizeof model);
    model.level = 1;
    for (uint32_t i = 0; i < COST_FEATURES; i++) model.coef[i] = cost[i] > 0 ? (double)cost[i] : 0;
    for (uint32_t i = 0; i < w->max_seqs; i++) step_shape_add(&full, GC_MODEL_CONTEXT, 1, 1);
    double decode = (double)step_cost_ns(&model, &full);
    step_shape_add(&full, 0, GC_MODEL_CHUNK, 0);
    w->prompt_ns = ((double)step_cost_ns(&model, &full) - decode) / GC_MODEL_CHUNK;
    w->out_ns = decode / w->max_seqs;
}

/* As many equal ones as do the same work: rates add up, times do not. */
void gc_admit_pool(struct gateway_core *c)
{
    struct admit_pool p = {0};
    uint32_t known = 0;
    if (gc_admit(c) == NULL) return;
    for (uint32_t i = 0; i < c->workers_end; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        if (w->state != GC_LIVE || w->draining) continue;
        p.workers++;
        p.seats += w->max_seqs;
        if (w->prompt_ns <= 0 || w->out_ns <= 0) continue;
        known++;
        p.prompt_ns += 1 / w->prompt_ns;
        p.out_ns += 1 / w->out_ns;
    }
    if (known > 0) {
        p.prompt_ns = known / p.prompt_ns;
        p.out_ns = known / p.out_ns;
    }
    admit_set_pool(gc_admit(c), &p, c->now_ns);
}

/* The least that a prompt can take, on the fastest that could take `s` (NULL: on the fastest); 0 = not known of one of
 * them, it may be fast. Half of what the model says: with a cached prefix, or alone on the device, it may be that fast. */
static double gc_prompt_least_ns(const struct gateway_core *c, const struct gc_slot *s, uint32_t n_prompt)
{
    double best = 0;
    for (uint32_t i = 0; i < c->workers_end; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        if (s != NULL ? !gc_could(c, s, w, false) : w->state != GC_LIVE || w->draining) continue;
        if (w->prompt_ns <= 0) return 0;
        if (best <= 0 || w->prompt_ns < best) best = w->prompt_ns;
    }
    return n_prompt * best / 2;
}

bool gc_admit_too_late(const struct gateway_core *c, const struct gc_slot *s)
{
    if (gc_admit(c) == NULL || s->next > s->n_prompt) return false;
    return gc_prompt_least_ns(c, s, s->n_prompt) > (double)(s->deadline_ns - c->now_ns);
}

static uint8_t gc_ahead(const struct gateway_core *c, uint8_t cls)
{
    uint8_t ahead = 0;
    for (uint32_t k = 0; k < c->cfg.classes.n; k++) {
        bool before = c->cfg.classes.rows[k].order <= c->cfg.classes.rows[cls].order;
        ahead |= (uint8_t)(before << k);
    }
    return ahead;
}

/* What of the seats is a tenant's if all that have something here want some. */
static uint32_t gc_fair_seqs(const struct gateway_core *c, uint32_t tenant)
{
    uint32_t seats = 0, n = c->active_tenants + (gc_tenants(c)[tenant].in_use == 0);
    for (uint32_t i = 0; i < c->workers_end; i++) {
        const struct gc_worker *w = &gc_workers(c)[i];
        if (w->state == GC_LIVE && !w->draining) seats += w->max_seqs;
    }
    return n < 2 ? 0 : seats / n; /* alone it is flooded by nobody */
}

/* Its own prompt alone takes longer, on the fastest one. What waits here says nothing: another
 * tenant's backlog does not stand before it, and in its own tenant's a deadline goes first. */
static bool gc_admit_hopeless(const struct gateway_core *c, const struct gateway_ask *ask,
                              uint64_t now_ns)
{
    if (ask->deadline_ns == 0 || ask->n_seqs == 0) return false;
    if (now_ns >= ask->deadline_ns) return true;
    return gc_prompt_least_ns(c, NULL, ask->n_prompt / ask->n_seqs) > (double)(ask->deadline_ns - now_ns);
}

enum err_code gateway_core_admit(struct gateway_core *c, const struct gateway_ask *ask,
                                 uint64_t now_ns, struct admit_verdict *v)
{
    assert(now_ns >= c->now_ns && ask->cls < c->cfg.classes.n && ask->tenant < c->cfg.max_tenants);
    *v = (struct admit_verdict){.taken = true};
    if (gc_admit(c) == NULL) return ERR_OK;
    const struct gc_tenant *t = &gc_tenants(c)[ask->tenant];
    uint32_t each = ask->n_seqs != 0 ? ask->max_out / ask->n_seqs : 0;
    struct admit_ask a = {.key = ask->key,
                          .tenant = ask->tenant,
                          .tenant_seqs = t->queued[ask->cls] + t->sent[ask->cls],
                          .fair_seqs = gc_fair_seqs(c, ask->tenant),
                          .n_seqs = ask->n_seqs,
                          .n_prompt = ask->n_prompt,
                          .ahead = gc_ahead(c, ask->cls),
                          .objective_ns = c->cfg.classes.rows[ask->cls].ttft_ms * 1000000ull};
    a.n_out = ask->n_seqs * gc_usual_out(c, ask->tenant, ask->cls, each, ask->hint_out);
    if (gc_admit_hopeless(c, ask, now_ns)) return ERR_DEADLINE;
    admit_decide(gc_admit(c), &a, now_ns, v);
    return v->taken ? ERR_OK : ERR_OVERLOADED;
}
