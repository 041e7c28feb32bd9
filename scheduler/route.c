#include "scheduler/route.h"

#include "base/hash.h"

#include <assert.h>

#define WAYS 4

struct route_entry {
    uint64_t key, workers, used; /* key 0 = free; used: number of the last use */
};

struct route {
    struct route_config cfg;
    uint64_t uses;
    double load[ROUTE_WORKERS_MAX]; /* as of load_at_ns */
    uint64_t load_at_ns[ROUTE_WORKERS_MAX];
    uint32_t sets, pad;
    uint64_t entries_at; /* byte offset */
};

static const uint32_t lengths[ROUTE_KEYS] = {32, 128, 256, 512, 1024, 2048};

uint32_t route_length(uint32_t i)
{
    assert(i < ROUTE_KEYS);
    return lengths[i];
}

void route_keys_make(struct route_keys *out, uint64_t root, const int32_t *ids, uint32_t n_ids)
{
    *out = (struct route_keys){.n = 0};
    while (out->n < ROUTE_KEYS && lengths[out->n] <= n_ids) {
        out->key[out->n] = hash64(ids, lengths[out->n] * sizeof *ids, root) | 1u;
        out->n++;
    }
}

static size_t route_layout(struct route *r, const struct route_config *cfg)
{
    if (cfg->entries == 0 || cfg->entries > 1u << 24 || cfg->max_workers > ROUTE_WORKERS_MAX) return 0;
    r->sets = 1;
    while (r->sets * WAYS < cfg->entries) r->sets *= 2;
    r->entries_at = (sizeof *r + 63u) & ~(uint64_t)63u;
    return (size_t)(r->entries_at + (uint64_t)r->sets * WAYS * sizeof(struct route_entry) + 63u) & ~(size_t)63u;
}

size_t route_bytes(const struct route_config *cfg)
{
    struct route tmp;
    return route_layout(&tmp, cfg);
}

struct route *route_init(void *region, const struct route_config *cfg)
{
    struct route *r = region;
    assert(((uintptr_t)region & 63u) == 0);
    size_t bytes = route_layout(r, cfg);
    assert(bytes != 0);
    (void)bytes;
    r->cfg = *cfg;
    return r;
}

static struct route_entry *route_set(const struct route *r, uint64_t key)
{
    struct route_entry *all = (struct route_entry *)(void *)((char *)(uintptr_t)r + r->entries_at);
    return all + (size_t)(key >> 8 & (r->sets - 1)) * WAYS;
}

static struct route_entry *route_find(const struct route *r, uint64_t key)
{
    struct route_entry *set = route_set(r, key);
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].key == key) return &set[i];
    }
    return NULL;
}

uint32_t route_match(const struct route *r, const struct route_keys *k, uint32_t worker)
{
    for (uint32_t i = k->n; i > 0; i--) {
        const struct route_entry *e = route_find(r, k->key[i - 1]);
        if (e != NULL && (e->workers >> worker & 1u) != 0) return lengths[i - 1];
    }
    return 0;
}

static struct route_entry *route_take(struct route *r, uint64_t key)
{
    struct route_entry *set = route_set(r, key), *e = route_find(r, key);
    if (e != NULL) return e;
    e = &set[0];
    for (uint32_t i = 1; i < WAYS; i++) {
        if (set[i].used < e->used) e = &set[i];
    }
    *e = (struct route_entry){.key = key};
    return e;
}

/* 2^-x by a short series, good to 1 % for the fractions asked for here: libm's differ per machine. */
static double route_faded(double load, uint64_t since_ns)
{
    double x = (double)since_ns / ROUTE_FADE_NS;
    for (; x >= 1; x -= 1) load /= 2;
    return load / (1 + x * (0.6931 + x * 0.3069));
}

double route_load(const struct route *r, uint32_t worker, uint64_t now_ns)
{
    assert(worker < r->cfg.max_workers);
    return route_faded(r->load[worker], now_ns - r->load_at_ns[worker]);
}

void route_sent(struct route *r, const struct route_keys *k, uint32_t worker, double work_ns, uint64_t now_ns)
{
    r->load[worker] = route_load(r, worker, now_ns) + work_ns;
    r->load_at_ns[worker] = now_ns;
    for (uint32_t i = 0; i < k->n; i++) {
        struct route_entry *e = route_take(r, k->key[i]);
        e->workers |= (uint64_t)1 << worker;
        e->used = ++r->uses;
    }
}

void route_gone(struct route *r, uint32_t worker)
{
    struct route_entry *all = route_set(r, 0);
    assert(worker < r->cfg.max_workers);
    for (uint64_t i = 0; i < (uint64_t)r->sets * WAYS; i++) all[i].workers &= ~((uint64_t)1 << worker);
    r->load[worker] = 0;
}

uint32_t route_choose(struct route *r, const struct route_offer *offers, uint32_t n, uint64_t live, uint64_t now_ns)
{
    double sum = 0, best_cost = 0, best_load = 0;
    uint32_t count = 0, best = 0;
    assert(n > 0);
    for (uint32_t w = 0; w < r->cfg.max_workers; w++) {
        if ((live >> w & 1u) == 0) continue;
        sum += route_load(r, w, now_ns);
        count++;
    }
    double most = count > 0 ? ROUTE_SLACK * sum / count : 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct route_offer *o = &offers[i];
        double load = route_load(r, o->worker, now_ns), over = load > most ? load - most : 0;
        double cost = o->prefill_ns + o->wait_ns + over;
        if (i > 0 && (cost > best_cost || (cost == best_cost && load >= best_load))) continue;
        best = i;
        best_cost = cost;
        best_load = load;
    }
    return best;
}
