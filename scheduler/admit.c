#include "scheduler/admit.h"

#include <assert.h>
#include <string.h>

#define HORIZON_NS 60000000000u
#define GRACE_NS 5000000000u
#define SHARE_PERMILLE 450u
#define WINDOW_NS 500000000u
#define SECOND_NS 1000000000u
/* Of a slot that is promised: the rate is an estimate, and what was promised too much cannot be taken back; the rest
 * goes to newcomers. Less when more is here than there should be. */
#define FILL 0.96
#define FILL_BEHIND 0.5
#define RATIO_MIN 0.125
#define RATIO_MAX 4.0

struct admit_ticket {
    struct hash128 key;
    uint64_t due_ns, work_ns, made_ns;
    uint32_t tenant, next; /* next: 1 + ticket, in its chain or the free list */
    uint8_t live, counted, pad[6];
};

struct admit_class {
    uint64_t prompt, out;
    uint32_t seqs, pad;
};

struct admit {
    struct admit_config cfg;
    struct admit_pool pool;
    struct admit_class classes[CLASSES_MAX];
    double ratio;
    double window_work_ns;      /* done since window_ns, no seat free all the while */
    uint64_t window_ns;         /* 0 = a seat is free */
    uint64_t promised_ns, swept_ns;
    uint64_t taken, refused, promises, kept, lapsed;
    double slots[ADMIT_SLOTS];  /* work promised to return in each quarter of a second, by time modulo */
    uint64_t slots_from;        /* number of the first one; those before are empty again */
    uint32_t windows;           /* seen, at most 4 */
    uint32_t tickets, holders;  /* live; tenants that have some */
    uint32_t free_ticket, n_chains;
    uint64_t tickets_at, chains_at, held_at; /* byte offsets */
};

static uint64_t admit_align(uint64_t n)
{
    return (n + 63u) & ~(uint64_t)63u;
}

static size_t admit_layout(struct admit *a, const struct admit_config *cfg)
{
    if (cfg->max_tickets == 0 || cfg->max_tickets > 1u << 20) return 0;
    if (cfg->max_tenants == 0 || cfg->max_tenants > 1u << 20) return 0;
    a->n_chains = 1;
    while (a->n_chains < cfg->max_tickets) a->n_chains *= 2;
    a->tickets_at = admit_align(sizeof *a);
    a->chains_at = admit_align(a->tickets_at + cfg->max_tickets * sizeof(struct admit_ticket));
    a->held_at = admit_align(a->chains_at + a->n_chains * sizeof(uint32_t));
    return (size_t)admit_align(a->held_at + cfg->max_tenants * sizeof(uint32_t));
}

static struct admit_ticket *admit_tickets(const struct admit *a)
{
    return (struct admit_ticket *)(void *)((char *)(uintptr_t)a + a->tickets_at);
}

static uint32_t *admit_chain(const struct admit *a, struct hash128 key)
{
    uint32_t *chains = (uint32_t *)(void *)((char *)(uintptr_t)a + a->chains_at);
    return &chains[key.lo & (a->n_chains - 1)];
}

static uint32_t *admit_held(const struct admit *a, uint32_t tenant)
{
    assert(tenant < a->cfg.max_tenants);
    return (uint32_t *)(void *)((char *)(uintptr_t)a + a->held_at) + tenant;
}

size_t admit_bytes(const struct admit_config *cfg)
{
    struct admit tmp;
    return admit_layout(&tmp, cfg);
}

struct admit *admit_init(void *region, const struct admit_config *cfg)
{
    struct admit *a = region;
    assert(((uintptr_t)region & 63u) == 0);
    size_t bytes = admit_layout(a, cfg);
    assert(bytes != 0);
    (void)bytes;
    a->cfg = *cfg;
    if (a->cfg.horizon_ns == 0) a->cfg.horizon_ns = HORIZON_NS;
    if (a->cfg.grace_ns == 0) a->cfg.grace_ns = GRACE_NS;
    if (a->cfg.share_permille == 0) a->cfg.share_permille = SHARE_PERMILLE;
    a->ratio = 1;
    for (uint32_t i = 0; i < cfg->max_tickets; i++)
        admit_tickets(a)[i].next = i + 1 < cfg->max_tickets ? i + 2 : 0;
    a->free_ticket = 1;
    return a;
}

/* ---- what is there, and how fast it goes */

static bool admit_known(const struct admit *a)
{
    return a->pool.workers > 0 && a->pool.seats > 0 && a->pool.prompt_ns > 0 && a->pool.out_ns > 0;
}

static uint32_t admit_urgent_seqs(const struct admit *a)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < CLASSES_MAX; k++)
        n += (a->cfg.urgent >> k & 1u) != 0 ? a->classes[k].seqs : 0;
    return n;
}

/* A window begins when the last seat is taken and is void when one becomes free. */
static void admit_window(struct admit *a, uint64_t now_ns)
{
    if (!admit_known(a) || admit_urgent_seqs(a) < a->pool.seats) {
        a->window_ns = 0;
        a->window_work_ns = 0;
        return;
    }
    if (a->window_ns == 0) {
        a->window_ns = now_ns;
        a->window_work_ns = 0;
    }
    if (now_ns - a->window_ns < WINDOW_NS) return;
    double seen = a->window_work_ns / ((double)(now_ns - a->window_ns) * a->pool.workers);
    a->windows += a->windows < 4;
    a->ratio += (seen - a->ratio) / a->windows; /* the first ones say most */
    if (a->ratio < RATIO_MIN) a->ratio = RATIO_MIN;
    if (a->ratio > RATIO_MAX) a->ratio = RATIO_MAX;
    a->window_ns = now_ns;
    a->window_work_ns = 0;
}

void admit_set_pool(struct admit *a, const struct admit_pool *p, uint64_t now_ns)
{
    if (p->workers != a->pool.workers || p->seats != a->pool.seats) a->window_ns = 0;
    a->pool = *p;
    admit_window(a, now_ns);
}

void admit_enter(struct admit *a, uint8_t cls, uint32_t n_prompt, uint32_t n_out)
{
    struct admit_class *k = &a->classes[cls];
    k->seqs++;
    k->prompt += n_prompt;
    k->out += n_out;
}

void admit_leave(struct admit *a, uint8_t cls, uint32_t n_prompt, uint32_t n_out)
{
    struct admit_class *k = &a->classes[cls];
    assert(k->seqs > 0 && k->prompt >= n_prompt && k->out >= n_out);
    k->seqs--;
    k->prompt -= n_prompt;
    k->out -= n_out;
}

void admit_work(struct admit *a, uint8_t cls, uint32_t n_prompt, uint32_t n_out,
                uint32_t expected_out, uint64_t now_ns)
{
    struct admit_class *k = &a->classes[cls];
    assert(k->prompt >= n_prompt && k->out >= expected_out);
    k->prompt -= n_prompt;
    k->out -= expected_out;
    if ((a->cfg.urgent >> cls & 1u) != 0)
        a->window_work_ns += n_prompt * a->pool.prompt_ns + n_out * a->pool.out_ns;
    admit_window(a, now_ns);
}

/* B of the header, in ns of one worker. */
static double admit_backlog(const struct admit *a, const struct admit_ask *ask)
{
    double prompt = 0, out = 0, seqs = ask->n_seqs;
    for (uint32_t k = 0; k < CLASSES_MAX; k++) {
        if ((ask->ahead >> k & 1u) == 0) continue;
        prompt += (double)a->classes[k].prompt;
        out += (double)a->classes[k].out;
        seqs += a->classes[k].seqs;
    }
    double over = seqs > a->pool.seats ? (seqs - a->pool.seats) / seqs : 0;
    return prompt * a->pool.prompt_ns + out * a->pool.out_ns * over;
}

static double admit_rate(const struct admit *a)
{
    return a->pool.workers * a->ratio;
}

static double admit_own_ns(const struct admit *a, const struct admit_ask *ask)
{
    return ask->n_prompt * a->pool.prompt_ns / a->ratio;
}

uint64_t admit_predict(const struct admit *a, const struct admit_ask *ask)
{
    if (!admit_known(a)) return 0;
    double ns = admit_backlog(a, ask) / admit_rate(a) + admit_own_ns(a, ask);
    return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

/* L of the header: work that may stand before it. */
static double admit_limit(const struct admit *a, const struct admit_ask *ask)
{
    double may = (double)ask->objective_ns * a->cfg.share_permille / 1000;
    double own = admit_own_ns(a, ask);
    return admit_rate(a) * (may - (own < may / 2 ? own : may / 2));
}

/* ---- tickets */

/* Of this key the one that is due first. */
static uint32_t admit_find(const struct admit *a, struct hash128 key)
{
    uint32_t best = 0;
    if ((key.lo | key.hi) == 0) return 0;
    for (uint32_t t = *admit_chain(a, key); t != 0; t = admit_tickets(a)[t - 1].next) {
        const struct admit_ticket *x = &admit_tickets(a)[t - 1];
        if (!hash128_equal(x->key, key)) continue;
        if (best == 0 || x->due_ns < admit_tickets(a)[best - 1].due_ns) best = t;
    }
    return best;
}

/* Another request that asks for the same, not the one that was refused coming back too early. */
static bool admit_is_equal_one(const struct admit *a, uint32_t ticket, uint64_t now_ns)
{
    const struct admit_ticket *t = &admit_tickets(a)[ticket - 1];
    return now_ns + ADMIT_EARLY_NS < t->due_ns && now_ns - t->made_ns < ADMIT_EQUAL_NS;
}

static void admit_uncount(struct admit *a, struct admit_ticket *t)
{
    if (!t->counted) return;
    assert(a->promised_ns >= t->work_ns);
    a->promised_ns -= t->work_ns;
    t->counted = 0;
}

static void admit_forget(struct admit *a, uint32_t ticket)
{
    struct admit_ticket *t = &admit_tickets(a)[ticket - 1];
    uint32_t *at = admit_chain(a, t->key);
    while (*at != ticket) at = &admit_tickets(a)[*at - 1].next;
    *at = t->next;
    admit_uncount(a, t);
    if (--*admit_held(a, t->tenant) == 0) a->holders--;
    *t = (struct admit_ticket){.next = a->free_ticket};
    a->free_ticket = ticket;
    a->tickets--;
}

static void admit_sweep(struct admit *a, uint64_t now_ns)
{
    if (a->tickets == 0 || now_ns - a->swept_ns < ADMIT_SWEEP_NS) return;
    a->swept_ns = now_ns;
    for (uint32_t i = 0; i < a->cfg.max_tickets; i++) {
        struct admit_ticket *t = &admit_tickets(a)[i];
        if (!t->live) continue;
        if (now_ns > t->due_ns + ADMIT_LATE_NS) {
            a->lapsed += t->counted;
            admit_uncount(a, t);
        }
        if (now_ns > t->due_ns + a->cfg.grace_ns) admit_forget(a, i + 1);
    }
}

static double admit_ask_work(const struct admit *a, const struct admit_ask *ask)
{
    return ask->n_prompt * a->pool.prompt_ns + ask->n_out * a->pool.out_ns + 1;
}

static bool admit_promise(struct admit *a, const struct admit_ask *ask, uint64_t now_ns,
                          uint64_t due_ns)
{
    uint32_t *held = admit_held(a, ask->tenant), ticket = a->free_ticket;
    bool others = a->holders > (*held > 0);
    if (ticket == 0 || (ask->key.lo | ask->key.hi) == 0) return false;
    if (others && *held >= a->cfg.max_tickets / 2) return false;
    struct admit_ticket *t = &admit_tickets(a)[ticket - 1];
    a->free_ticket = t->next;
    *t = (struct admit_ticket){
        .key = ask->key,
        .due_ns = due_ns,
        .made_ns = now_ns,
        .work_ns = (uint64_t)admit_ask_work(a, ask),
        .tenant = ask->tenant,
        .next = *admit_chain(a, ask->key),
        .live = 1,
        .counted = 1};
    *admit_chain(a, ask->key) = ticket;
    if ((*held)++ == 0) a->holders++;
    a->promised_ns += t->work_ns;
    a->tickets++;
    a->promises++;
    return true;
}

/* Slots that are past are empty again. */
static void admit_slots_pass(struct admit *a, uint64_t now_ns)
{
    uint64_t from = now_ns / ADMIT_SLOT_NS;
    if (from - a->slots_from >= ADMIT_SLOTS) memset(a->slots, 0, sizeof a->slots);
    for (; a->slots_from < from && from - a->slots_from < ADMIT_SLOTS; a->slots_from++)
        a->slots[a->slots_from % ADMIT_SLOTS] = 0;
    a->slots_from = from;
}

/* Whole seconds until it is promised to be taken, in ns; 0 = not within the horizon. `over`: work here beyond L. */
static uint64_t admit_when(struct admit *a, const struct admit_ask *ask, uint64_t now_ns, double over)
{
    double work = admit_ask_work(a, ask), limit = admit_limit(a, ask);
    double behind = over <= 0 || limit <= 0 ? 0 : over < limit ? over / limit : 1;
    double room = admit_rate(a) * ADMIT_SLOT_NS * (FILL - FILL_BEHIND * behind);
    double first = over > 0 ? over / admit_rate(a) : 0;
    uint64_t horizon = a->cfg.horizon_ns, most = (uint64_t)(ADMIT_SLOTS - 1) * ADMIT_SLOT_NS;
    if (horizon > most) horizon = most;
    admit_slots_pass(a, now_ns);
    for (uint64_t wait = SECOND_NS; wait <= horizon; wait += SECOND_NS) {
        double *slot = &a->slots[(now_ns + wait) / ADMIT_SLOT_NS % ADMIT_SLOTS];
        if ((double)wait < first || (*slot > 0 && *slot + work / 2 > room)) continue; /* as often over as under */
        *slot += work;
        return wait;
    }
    return 0;
}

/* It has a promise. */
static void admit_return(struct admit *a, uint32_t ticket, uint64_t now_ns, struct admit_verdict *v)
{
    const struct admit_ticket *t = &admit_tickets(a)[ticket - 1];
    v->taken = now_ns + ADMIT_EARLY_NS >= t->due_ns;
    if (!v->taken) {
        v->retry_ns = t->due_ns - now_ns;
        return;
    }
    a->kept++;
    admit_forget(a, ticket);
}

void admit_decide(struct admit *a, const struct admit_ask *ask, uint64_t now_ns,
                  struct admit_verdict *v)
{
    *v = (struct admit_verdict){.taken = true};
    admit_sweep(a, now_ns);
    admit_window(a, now_ns);
    uint32_t ticket = admit_find(a, ask->key);
    v->wait_ns = admit_predict(a, ask);
    if (ticket != 0 && admit_is_equal_one(a, ticket, now_ns)) ticket = 0;
    if (ticket != 0) {
        admit_return(a, ticket, now_ns, v);
    } else if (admit_known(a) && ask->objective_ns != 0 &&
               ask->tenant_seqs + ask->n_seqs > ask->fair_seqs) {
        double over = admit_backlog(a, ask) - admit_limit(a, ask);
        v->taken = over <= 0;
        if (!v->taken) v->retry_ns = admit_when(a, ask, now_ns, over);
        if (v->retry_ns != 0 && !admit_promise(a, ask, now_ns, now_ns + v->retry_ns)) v->retry_ns = 0;
    }
    a->taken += v->taken;
    a->refused += !v->taken;
}

void admit_stats(const struct admit *a, struct admit_stats *out)
{
    *out = (struct admit_stats){.tickets = a->tickets,
                                .promised_ns = a->promised_ns,
                                .taken = a->taken,
                                .refused = a->refused,
                                .promises = a->promises,
                                .kept = a->kept,
                                .lapsed = a->lapsed,
                                .ratio = a->ratio};
    struct admit_ask all = {.ahead = a->cfg.urgent};
    if (admit_known(a)) out->backlog_ns = admit_backlog(a, &all) / admit_rate(a);
}

const char *admit_check(const struct admit *a)
{
    uint64_t promised = 0;
    uint32_t live = 0, held = 0, holders = 0;
    for (uint32_t i = 0; i < a->cfg.max_tickets; i++) {
        const struct admit_ticket *t = &admit_tickets(a)[i];
        if (!t->live) continue;
        live++;
        promised += t->counted ? t->work_ns : 0;
        uint32_t found = admit_find(a, t->key);
        if (found == 0 || admit_tickets(a)[found - 1].due_ns > t->due_ns)
            return "a ticket is not found by its key";
    }
    for (uint32_t i = 0; i < a->cfg.max_tenants; i++) {
        held += *admit_held(a, i);
        holders += *admit_held(a, i) > 0;
    }
    if (live != a->tickets || held != live || holders != a->holders) return "tickets miscounted";
    return promised == a->promised_ns ? NULL : "promised work is not that of the tickets";
}
