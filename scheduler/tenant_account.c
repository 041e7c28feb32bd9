#include "scheduler/tenant_account.h"

#include <assert.h>

#define CLAMP_NS 10000000000u
#define SECOND_NS 1000000000u
/* Ids an answer is expected to have before the first one of its tenant ended. Low on purpose: a tag that was
 * set too high cannot be taken back from a worker, one too low is put right as ids come. */
#define OUT_UNKNOWN 32u
#define FOLD ((uint64_t)1 << 36) /* tokens: far below where the product with the scale overflows */

/* One tenant in one class. */
struct account_row {
    uint64_t base;      /* virtual time when `served` was 0 */
    uint64_t served;    /* tokens since; kept apart, so that nothing is lost to rounding */
    uint64_t in_flight; /* tokens */
    uint64_t last_tag;  /* on the wire */
    uint64_t prompt_first, output;
    uint32_t usual_x16; /* ids of an answer, moving mean x 16; 0 = none ended yet */
    uint32_t pad;
};

/* Counters of one worker for one row, as last seen. */
struct account_seen {
    uint64_t incarnation, prompt_first, output;
};

struct account_class {
    uint64_t system;  /* virtual time of the class */
    uint64_t frame;   /* added to tags on the wire */
    uint64_t largest; /* tokens: the dearest request, fading */
    uint32_t setter;  /* whose pick set `system` */
    uint32_t pad;
};

struct tenant_account {
    struct tenant_account_config cfg;
    uint64_t second_at_ns, second_tokens, rate; /* the running second; tokens/s */
    struct account_class classes[CLASSES_MAX];
    uint64_t weights_at, rows_at, workers_at, seen_at; /* byte offsets */
};

static uint64_t account_align(uint64_t n)
{
    return (n + 63u) & ~(uint64_t)63u;
}

static size_t account_layout(struct tenant_account *a, const struct tenant_account_config *cfg)
{
    if (cfg->max_tenants == 0 || cfg->max_tenants > 1u << 20) return 0;
    if (cfg->n_classes == 0 || cfg->n_classes > CLASSES_MAX || cfg->max_workers > 1u << 16)
        return 0;
    uint64_t rows = (uint64_t)cfg->max_tenants * cfg->n_classes;
    a->weights_at = account_align(sizeof *a);
    a->rows_at = account_align(a->weights_at + cfg->max_tenants * sizeof(uint32_t));
    a->workers_at = account_align(a->rows_at + rows * sizeof(struct account_row));
    a->seen_at = account_align(a->workers_at + cfg->max_workers * sizeof(uint64_t));
    return (size_t)account_align(a->seen_at +
                                 rows * cfg->max_workers * sizeof(struct account_seen));
}

static uint32_t *account_weights(const struct tenant_account *a)
{
    return (uint32_t *)((char *)(uintptr_t)a + a->weights_at);
}

static uint32_t account_index(const struct tenant_account *a, uint32_t tenant, uint8_t cls)
{
    assert(tenant < a->cfg.max_tenants && cls < a->cfg.n_classes);
    return tenant * a->cfg.n_classes + cls;
}

static struct account_row *account_row(const struct tenant_account *a, uint32_t tenant, uint8_t cls)
{
    return (struct account_row *)((char *)(uintptr_t)a + a->rows_at) +
           account_index(a, tenant, cls);
}

static uint64_t *account_workers(const struct tenant_account *a)
{
    return (uint64_t *)((char *)(uintptr_t)a + a->workers_at);
}

size_t tenant_account_bytes(const struct tenant_account_config *cfg)
{
    struct tenant_account tmp;
    return account_layout(&tmp, cfg);
}

struct tenant_account *tenant_account_init(void *region, const struct tenant_account_config *cfg)
{
    struct tenant_account *a = region;
    assert(((uintptr_t)region & 63u) == 0);
    size_t bytes = account_layout(a, cfg);
    assert(bytes != 0);
    (void)bytes;
    a->cfg = *cfg;
    if (a->cfg.out_weight == 0) a->cfg.out_weight = 1;
    if (a->cfg.clamp_ns == 0) a->cfg.clamp_ns = CLAMP_NS;
    for (uint32_t i = 0; i < cfg->max_tenants; i++) account_weights(a)[i] = 1000;
    return a;
}

uint32_t tenant_account_out_weight(const struct tenant_account *a)
{
    return a->cfg.out_weight;
}

uint64_t tenant_account_rate(const struct tenant_account *a)
{
    return a->rate;
}

/* Tokens of this tenant as virtual time. */
static uint64_t account_virtual(const struct tenant_account *a, uint32_t tenant, uint64_t tokens)
{
    if (tokens > UINT64_MAX / TENANT_TAG_SCALE) return UINT64_MAX / account_weights(a)[tenant];
    return tokens * TENANT_TAG_SCALE / account_weights(a)[tenant];
}

static uint64_t account_time(const struct tenant_account *a, uint32_t tenant, uint8_t cls)
{
    const struct account_row *r = account_row(a, tenant, cls);
    return r->base + account_virtual(a, tenant, r->served);
}

uint64_t tenant_account_tag(const struct tenant_account *a, uint32_t tenant, uint8_t cls)
{
    const struct account_row *r = account_row(a, tenant, cls);
    return r->base + account_virtual(a, tenant, r->served + r->in_flight);
}

/* Its virtual time is `time` from now on. */
static void account_set(const struct tenant_account *a, uint32_t tenant, uint8_t cls, uint64_t time)
{
    struct account_row *r = account_row(a, tenant, cls);
    r->base = time;
    r->served = 0;
}

void tenant_account_weight(struct tenant_account *a, uint32_t tenant, uint32_t weight_permille)
{
    uint64_t times[CLASSES_MAX];
    assert(tenant < a->cfg.max_tenants && weight_permille <= TENANT_WEIGHT_MAX);
    for (uint8_t k = 0; k < a->cfg.n_classes; k++) times[k] = account_time(a, tenant, k);
    account_weights(a)[tenant] = weight_permille == 0 ? 1000 : weight_permille;
    for (uint8_t k = 0; k < a->cfg.n_classes; k++) account_set(a, tenant, k, times[k]);
}

/* How far a tenant may be ahead or behind, in its own virtual time. */
static uint64_t account_clamp(const struct tenant_account *a, uint32_t tenant, uint8_t cls)
{
    if (a->rate == 0) return UINT64_MAX / 4;
    uint64_t tokens = a->rate * (a->cfg.clamp_ns / 1000000) / 1000;
    uint64_t four = 4 * a->classes[cls].largest;
    return account_virtual(a, tenant, tokens > four ? tokens : four);
}

void tenant_account_wake(struct tenant_account *a, uint32_t tenant, uint8_t cls, bool idle,
                         uint64_t least)
{
    uint64_t floor = a->classes[cls].system < least ? a->classes[cls].system : least;
    uint64_t tag = tenant_account_tag(a, tenant, cls);
    if (!idle) {
        uint64_t clamp = account_clamp(a, tenant, cls);
        floor = floor > clamp ? floor - clamp : 0;
    }
    if (tag < floor) account_row(a, tenant, cls)->base += floor - tag;
}

uint32_t tenant_account_expect(const struct tenant_account *a, uint32_t tenant, uint8_t cls,
                               uint32_t n_prompt, uint32_t max_out, uint32_t hint_out)
{
    uint32_t usual = account_row(a, tenant, cls)->usual_x16;
    uint32_t out = hint_out != 0 ? hint_out : usual != 0 ? (usual + 8) / 16 : OUT_UNKNOWN;
    if (out > max_out) out = max_out;
    uint64_t tokens = n_prompt + (uint64_t)out * a->cfg.out_weight;
    return tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}

uint64_t tenant_account_send(struct tenant_account *a, uint32_t tenant, uint8_t cls,
                             uint32_t expected, uint64_t least)
{
    struct account_row *r = account_row(a, tenant, cls);
    struct account_class *k = &a->classes[cls];
    uint64_t tag = tenant_account_tag(a, tenant, cls), wire = tag + k->frame;
    k->system = tag < least ? tag : least;
    k->setter = tenant;
    k->largest -= k->largest / 1024;
    if (expected > k->largest) k->largest = expected;
    r->in_flight += expected;
    if (wire < r->last_tag) wire = r->last_tag;
    r->last_tag = wire;
    return wire;
}

/* The system's time is never ahead of who set it: what was expected of it did not come. */
static void account_lower(struct tenant_account *a, uint32_t tenant, uint8_t cls)
{
    uint64_t tag = tenant_account_tag(a, tenant, cls);
    if (a->classes[cls].setter == tenant && tag < a->classes[cls].system)
        a->classes[cls].system = tag;
}

void tenant_account_land(struct tenant_account *a, uint32_t tenant, uint8_t cls, uint32_t tokens)
{
    struct account_row *r = account_row(a, tenant, cls);
    assert(r->in_flight >= tokens);
    r->in_flight -= tokens;
}

static void account_second(struct tenant_account *a, uint64_t tokens, uint64_t now_ns)
{
    uint64_t since = now_ns - a->second_at_ns;
    if (since >= SECOND_NS) {
        uint64_t seen = a->second_tokens * 1000 / (since / 1000000);
        a->rate -= (a->rate + 63) / 64;
        if (a->second_at_ns != 0 && seen > a->rate) a->rate = seen;
        a->second_at_ns = now_ns;
        a->second_tokens = 0;
    }
    a->second_tokens += tokens;
}

static void account_charge(struct tenant_account *a, uint32_t tenant, uint8_t cls, uint64_t tokens,
                           uint64_t now_ns)
{
    struct account_row *r = account_row(a, tenant, cls);
    r->served += tokens;
    uint64_t time = account_time(a, tenant, cls);
    uint64_t latest = a->classes[cls].system + account_clamp(a, tenant, cls);
    if (time > latest)
        account_set(a, tenant, cls, latest);
    else if (r->served > FOLD)
        account_set(a, tenant, cls, time);
    account_second(a, tokens, now_ns);
}

void tenant_account_serve(struct tenant_account *a, uint32_t tenant, uint8_t cls,
                          uint32_t prompt_first, uint32_t output, uint64_t now_ns, bool counted)
{
    struct account_row *r = account_row(a, tenant, cls);
    uint64_t tokens = prompt_first + (uint64_t)output * a->cfg.out_weight;
    r->prompt_first += prompt_first;
    r->output += output;
    if (!counted && tokens > 0) account_charge(a, tenant, cls, tokens, now_ns);
    account_lower(a, tenant, cls);
}

void tenant_account_learn(struct tenant_account *a, uint32_t tenant, uint8_t cls, uint32_t n_out)
{
    struct account_row *r = account_row(a, tenant, cls);
    uint32_t x16 = n_out < UINT32_MAX / 32 ? n_out * 16 : UINT32_MAX / 2;
    if (r->usual_x16 == 0)
        r->usual_x16 = x16 + 1;
    else
        r->usual_x16 += (uint32_t)(((int64_t)x16 - r->usual_x16) / 16);
}

static struct account_seen *account_seen_row(const struct tenant_account *a, uint32_t worker,
                                             uint32_t tenant, uint8_t cls)
{
    return (struct account_seen *)((char *)(uintptr_t)a + a->seen_at) +
           (size_t)worker * a->cfg.max_tenants * a->cfg.n_classes + account_index(a, tenant, cls);
}

void tenant_account_all_seen(struct tenant_account *a, uint32_t worker, uint64_t incarnation)
{
    assert(worker < a->cfg.max_workers && incarnation != 0);
    account_workers(a)[worker] = incarnation;
}

void tenant_account_seen(struct tenant_account *a, uint32_t worker, uint64_t incarnation,
                         uint32_t tenant, uint8_t cls, uint64_t prompt_first, uint64_t output,
                         uint64_t now_ns)
{
    assert(worker < a->cfg.max_workers && incarnation != 0);
    struct account_seen *s = account_seen_row(a, worker, tenant, cls);
    if (s->incarnation != incarnation && account_workers(a)[worker] == incarnation)
        *s = (struct account_seen){incarnation, 0, 0};
    if (s->incarnation == incarnation) {
        if (prompt_first < s->prompt_first || output < s->output) return;
        uint64_t tokens =
            prompt_first - s->prompt_first + (output - s->output) * a->cfg.out_weight;
        if (tokens > UINT32_MAX) tokens = UINT32_MAX; /* more than any message can mean */
        if (tokens > 0) account_charge(a, tenant, cls, tokens, now_ns);
    }
    *s = (struct account_seen){incarnation, prompt_first, output};
}

bool tenant_account_counts(const struct tenant_account *a, uint32_t worker, uint64_t incarnation,
                           uint32_t tenant, uint8_t cls)
{
    return worker < a->cfg.max_workers && incarnation != 0 &&
           account_seen_row(a, worker, tenant, cls)->incarnation == incarnation;
}

void tenant_account_started(struct tenant_account *a, uint8_t cls, uint64_t tag)
{
    assert(cls < a->cfg.n_classes);
    struct account_class *k = &a->classes[cls];
    if (tag > k->system + k->frame) k->frame = tag - k->system;
}

void tenant_account_usage(const struct tenant_account *a, uint32_t tenant, uint8_t cls,
                          struct tenant_usage *out)
{
    const struct account_row *r = account_row(a, tenant, cls);
    *out = (struct tenant_usage){.prompt_first = r->prompt_first,
                                 .output = r->output,
                                 .in_flight = r->in_flight,
                                 .virtual_time = account_time(a, tenant, cls),
                                 .tag = tenant_account_tag(a, tenant, cls)};
}

const char *tenant_account_check(const struct tenant_account *a)
{
    for (uint32_t i = 0; i < a->cfg.max_tenants; i++) {
        if (account_weights(a)[i] == 0) return "a tenant has no weight";
        for (uint8_t k = 0; k < a->cfg.n_classes; k++) {
            if (account_row(a, i, k)->served > FOLD) return "a row was not folded";
            if (tenant_account_tag(a, i, k) < account_time(a, i, k)) return "a tag overflows";
        }
    }
    return NULL;
}
