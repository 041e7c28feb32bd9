#include "tests/unit/proto/msg_gen.h"

#include "proto/wire.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KIND_ROW(name, number, dir, text) MSG_##name,
const enum msg_kind msg_gen_kinds[] = {MSG_LIST(KIND_ROW)};
const unsigned msg_gen_n_kinds = sizeof msg_gen_kinds / sizeof msg_gen_kinds[0];

struct gen {
    uint64_t seed, n;
    struct wire w; /* only its arena */
};

/* Often a small number, often the largest allowed, else anything between. */
static uint64_t num(struct gen *g, uint64_t min, uint64_t max)
{
    uint64_t r = rand_at(g->seed, g->n++), how = r >> 61, v = rand_at(g->seed, g->n++);
    uint64_t span = max - min;
    if (how == 0)
        return max;
    if (how < 4)
        return min + v % (span < 200 ? span + 1 : 200);
    return span == UINT64_MAX ? v : min + v % (span + 1);
}

static bool flip(struct gen *g)
{
    return rand_at(g->seed, g->n++) & 1;
}

static float real(struct gen *g, float min, float max)
{
    float v = min + (max - min) * rand_unit(g->seed, g->n++);
    return v < min ? min : v > max ? max : v;
}

static void text(struct gen *g, char *out, size_t cap, size_t min)
{
    static const char *const part[] = {"a", "Z", "-", "7", "\xc3\xa9", "\xe2\x82\xac", " "};
    size_t want = num(g, min, cap - 1), n = 0;
    for (;;) {
        const char *s = part[num(g, 0, 6)];
        if (n + strlen(s) > want)
            break;
        memcpy(out + n, s, strlen(s));
        n += strlen(s);
    }
    if (n < min)
        out[n++] = 'x';
    out[n] = '\0';
}

static struct hash128 hash(struct gen *g)
{
    return (struct hash128){.lo = num(g, 0, UINT64_MAX), .hi = num(g, 0, UINT64_MAX)};
}

static struct sub_id sub(struct gen *g)
{
    return (struct sub_id){num(g, 0, UINT64_MAX), num(g, 0, UINT64_MAX)};
}

static int32_t id(struct gen *g)
{
    return (int32_t)num(g, 0, MSG_VOCAB_MAX - 1);
}

static void *list(struct gen *g, size_t n, size_t bytes)
{
    void *p = wire_alloc(&g->w, n, bytes);
    assert(p != NULL);
    return p;
}

static int32_t *ids(struct gen *g, uint32_t n)
{
    int32_t *p = list(g, n, sizeof(*p));
    for (uint32_t i = 0; i < n; i++)
        p[i] = id(g);
    return p;
}

static void gen_hello(struct gen *g, struct msg_hello *h)
{
    h->version_max = (uint32_t)num(g, 1, UINT32_MAX);
    h->version_min = (uint32_t)num(g, 1, h->version_max);
    text(g, h->name, sizeof h->name, 1);
    h->incarnation = num(g, 0, UINT64_MAX);
    text(g, h->model, sizeof h->model, 0);
    h->tensors = hash(g);
    h->vocab = hash(g);
    h->chat_template = hash(g);
    h->numerics = hash(g);
    text(g, h->family, sizeof h->family, 0);
    h->n_ctx = (uint32_t)num(g, 1, MSG_IDS_MAX);
    h->n_vocab = (uint32_t)num(g, 1, MSG_VOCAB_MAX);
    h->block_tokens = (uint32_t)num(g, 1, MSG_IDS_MAX);
    h->n_blocks = (uint32_t)num(g, 1, MSG_BLOCKS_MAX);
    h->max_seqs = (uint32_t)num(g, 1, MSG_SLOTS_MAX);
    h->max_slots = (uint32_t)num(g, 1, MSG_SLOTS_MAX);
}

static void gen_hello_reply(struct gen *g, struct msg_hello_reply *r)
{
    r->accepted = flip(g);
    r->version = (uint32_t)num(g, 1, UINT32_MAX);
    r->code = (enum err_code)num(g, 0, ERR_COUNT - 1);
    text(g, r->reason, sizeof r->reason, 0);
    text(g, r->gateway, sizeof r->gateway, 1);
    r->incarnation = num(g, 0, UINT64_MAX);
}

static void gen_sync(struct gen *g, struct msg_sync *s)
{
    s->n = (uint32_t)num(g, 0, 20);
    s->entries = list(g, s->n, sizeof(*s->entries));
    for (uint32_t i = 0; i < s->n; i++)
        s->entries[i] = (struct msg_sync_entry){sub(g), (uint32_t)num(g, 0, MSG_IDS_MAX), flip(g)};
}

static void gen_status(struct gen *g, struct msg_status *s)
{
    s->number = num(g, 0, UINT64_MAX);
    s->n_classes = (uint32_t)num(g, 0, CLASSES_MAX);
    for (uint32_t i = 0; i < s->n_classes; i++) {
        s->waiting[i] = (uint32_t)num(g, 0, MSG_SLOTS_MAX);
        s->active[i] = (uint32_t)num(g, 0, MSG_SLOTS_MAX);
        s->window[i] = (uint32_t)num(g, 0, MSG_SLOTS_MAX);
    }
    s->blocks_total = (uint32_t)num(g, 0, MSG_BLOCKS_MAX);
    s->blocks_free = (uint32_t)num(g, 0, s->blocks_total);
    s->steps = num(g, 0, UINT64_MAX);
    s->preemptions = num(g, 0, UINT64_MAX);
    s->parks = num(g, 0, UINT64_MAX);
    s->drops = num(g, 0, UINT64_MAX);
    s->step_ns = num(g, 0, UINT64_MAX);
    s->busy_ns = num(g, 0, UINT64_MAX);
    s->uptime_ns = num(g, 0, UINT64_MAX);
    s->n_cost = (uint32_t)num(g, 0, MSG_COST_MAX);
    for (uint32_t i = 0; i < s->n_cost; i++)
        s->cost[i] = real(g, -1e9f, 1e9f);
    s->draining = flip(g);
    s->blocks_cached = (uint32_t)num(g, 0, s->blocks_total);
    s->host_total = (uint32_t)num(g, 0, MSG_BLOCKS_MAX);
    s->host_free = (uint32_t)num(g, 0, s->host_total);
    s->cache_hits = num(g, 0, UINT64_MAX);
    s->cache_misses = num(g, 0, UINT64_MAX);
    s->swap_ins = num(g, 0, UINT64_MAX);
    s->recomputes = num(g, 0, UINT64_MAX);
    s->copy_ns = num(g, 0, UINT64_MAX);
    s->faults = num(g, 0, UINT64_MAX);
    s->evictions = num(g, 0, UINT64_MAX);
    for (uint32_t i = 0; i < s->n_classes; i++)
        s->started_tag[i] = num(g, 0, UINT64_MAX);
}

static void gen_sampling(struct gen *g, struct msg_submit *s)
{
    s->temperature = real(g, 0, 2);
    s->top_p = real(g, 0, 1);
    s->min_p = real(g, 0, 1);
    s->repetition_penalty = real(g, 0.5f, 2);
    s->presence_penalty = real(g, -2, 2);
    s->frequency_penalty = real(g, -2, 2);
    s->top_k = (int32_t)num(g, 0, INT32_MAX) - (int32_t)num(g, 0, 1);
    s->seed = num(g, 0, UINT64_MAX);
    s->logprobs = flip(g);
    s->n_top = (uint8_t)num(g, 0, MSG_TOP_MAX);
    s->ignore_eos = flip(g);
    s->include_stop = flip(g);
    s->skip_special = flip(g);
    s->n_stop_ids = (uint32_t)num(g, 0, MSG_STOP_IDS_MAX);
    s->stop_ids = ids(g, s->n_stop_ids);
    s->n_stops = (uint32_t)num(g, 0, MSG_STOPS_MAX);
    s->stops = list(g, s->n_stops, sizeof(*s->stops));
    for (uint32_t i = 0; i < s->n_stops; i++) {
        uint32_t n = (uint32_t)num(g, 1, 40);
        char *p = list(g, n, 1);
        for (uint32_t k = 0; k < n; k++)
            p[k] = (char)num(g, 0, 255);
        s->stops[i] = (struct msg_stop){p, n};
    }
    s->n_bias = (uint32_t)num(g, 0, 12);
    s->bias = list(g, s->n_bias, sizeof(*s->bias));
    for (uint32_t i = 0; i < s->n_bias; i++)
        s->bias[i] = (struct msg_bias){id(g), real(g, -100, 100)};
}

static void gen_submit(struct gen *g, struct msg_submit *s)
{
    s->sub = sub(g);
    s->cls = (uint8_t)num(g, 0, CLASSES_MAX - 1);
    s->rank = (uint8_t)num(g, 0, 1);
    s->ttft_ms = (uint32_t)num(g, 0, UINT32_MAX);
    s->tpot_ms = (uint32_t)num(g, 0, UINT32_MAX);
    text(g, s->tenant, sizeof s->tenant, 0);
    s->tag = num(g, 0, UINT64_MAX);
    s->n_ids = (uint32_t)num(g, 1, 300);
    s->ids = ids(g, s->n_ids);
    s->n_prompt = (uint32_t)num(g, 1, s->n_ids);
    s->from = (uint32_t)num(g, 1, s->n_ids);
    s->max_total = (uint32_t)num(g, s->n_ids, MSG_IDS_MAX);
    s->min_total = (uint32_t)num(g, 0, s->max_total);
    s->deadline_in_ns = num(g, 0, MSG_DURATION_MAX);
    s->adapter = num(g, 0, UINT64_MAX);
    s->kv_quota = (uint32_t)num(g, 0, INT32_MAX);
    s->n_cache_salt = (uint32_t)num(g, 0, MSG_SALT_MAX);
    char *salt = list(g, s->n_cache_salt, 1);
    for (uint32_t i = 0; i < s->n_cache_salt; i++)
        salt[i] = (char)num(g, 0, 255);
    s->cache_salt = salt;
    gen_sampling(g, s);
}

static void gen_record(struct gen *g, struct msg_record *r, bool logprobs)
{
    r->id = id(g);
    if (!logprobs)
        return;
    r->logprob = real(g, -30, 0);
    r->n_top = (uint8_t)num(g, 0, MSG_TOP_MAX);
    r->top = list(g, r->n_top, sizeof(*r->top));
    for (uint32_t i = 0; i < r->n_top; i++)
        r->top[i] = (struct msg_top){id(g), real(g, -30, 0)};
}

static void gen_tokens(struct gen *g, struct msg_tokens *t)
{
    t->n = (uint32_t)num(g, 0, 6);
    t->entries = list(g, t->n, sizeof(*t->entries));
    for (uint32_t i = 0; i < t->n; i++) {
        struct msg_tokens_entry *e = &t->entries[i];
        e->sub = sub(g);
        e->n = (uint32_t)num(g, 0, 12);
        e->index = (uint32_t)num(g, 0, MSG_IDS_MAX - e->n);
        e->logprobs = flip(g);
        e->records = list(g, e->n, sizeof(*e->records));
        for (uint32_t k = 0; k < e->n; k++)
            gen_record(g, &e->records[k], e->logprobs);
        e->finish = (enum finish)num(g, 0, FINISH_COUNT - 1);
        e->visible_bytes = (uint32_t)num(g, 0, UINT32_MAX);
        e->preemptions = (uint32_t)num(g, 0, UINT32_MAX);
        e->cached = (uint32_t)num(g, 0, MSG_IDS_MAX);
        e->n_booked = (uint32_t)num(g, 0, MSG_BOOKED_MAX);
        for (uint32_t k = 0; k < e->n_booked; k++)
            e->booked_ns[k] = num(g, 0, MSG_DURATION_MAX);
    }
    t->n_accounts = (uint32_t)num(g, 0, CLASSES_MAX);
    t->accounts = list(g, t->n_accounts, sizeof(*t->accounts));
    for (uint32_t i = 0; i < t->n_accounts; i++)
        t->accounts[i] = (struct msg_account){(uint8_t)num(g, 0, CLASSES_MAX - 1),
                                              num(g, 0, UINT64_MAX), num(g, 0, UINT64_MAX),
                                              num(g, 0, UINT64_MAX), num(g, 0, UINT64_MAX)};
    t->n_tenants = (uint32_t)num(g, 0, 5);
    t->tenants = list(g, t->n_tenants, sizeof(*t->tenants));
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        text(g, t->tenants[i].name, sizeof t->tenants[i].name, 0);
        t->tenants[i].cls = (uint8_t)num(g, 0, CLASSES_MAX - 1);
        t->tenants[i].prompt_first = num(g, 0, UINT64_MAX);
        t->tenants[i].output = num(g, 0, UINT64_MAX);
    }
    t->tenants_all = flip(g);
}

void msg_gen(struct msg *m, enum msg_kind kind, uint64_t seed)
{
    struct gen g = {.seed = seed * 31 + (uint64_t)kind};
    *m = (struct msg){.kind = kind};
    if (kind == MSG_HELLO)
        gen_hello(&g, &m->u.hello);
    else if (kind == MSG_HELLO_REPLY)
        gen_hello_reply(&g, &m->u.hello_reply);
    else if (kind == MSG_SYNC)
        gen_sync(&g, &m->u.sync);
    else if (kind == MSG_STATUS)
        gen_status(&g, &m->u.status);
    else if (kind == MSG_SUBMIT)
        gen_submit(&g, &m->u.submit);
    else if (kind == MSG_TOKENS)
        gen_tokens(&g, &m->u.tokens);
    else if (kind == MSG_CANCEL || kind == MSG_GAP || kind == MSG_ACK)
        m->u.sub = (struct msg_sub){sub(&g), (uint32_t)num(&g, 0, MSG_IDS_MAX)};
    m->arena = g.w.arena;
}

#define SAME(field)                                                                                \
    if (a->field != b->field)                                                                      \
        return #field;
#define SAME_TEXT(field)                                                                           \
    if (strcmp(a->field, b->field) != 0)                                                           \
        return #field;
#define SAME_HASH(field)                                                                           \
    if (!hash128_equal(a->field, b->field))                                                        \
        return #field;
#define SAME_SUB(field)                                                                            \
    if (!sub_id_equal(a->field, b->field))                                                         \
        return #field;
#define SAME_BYTES(field, count)                                                                   \
    if ((count) > 0 && memcmp(a->field, b->field, (count) * sizeof a->field[0]) != 0)              \
        return #field;

static const char *differ_hello(const struct msg_hello *a, const struct msg_hello *b)
{
    SAME(version_min) SAME(version_max) SAME_TEXT(name) SAME(incarnation) SAME_TEXT(model)
    SAME_HASH(tensors) SAME_HASH(vocab) SAME_HASH(chat_template) SAME_HASH(numerics)
    SAME_TEXT(family) SAME(n_ctx) SAME(n_vocab) SAME(block_tokens) SAME(n_blocks)
    SAME(max_seqs) SAME(max_slots)
    return NULL;
}

static const char *differ_reply(const struct msg_hello_reply *a, const struct msg_hello_reply *b)
{
    SAME(accepted) SAME(version) SAME(code) SAME_TEXT(reason) SAME_TEXT(gateway) SAME(incarnation)
    return NULL;
}

static const char *differ_sync(const struct msg_sync *a, const struct msg_sync *b)
{
    SAME(n)
    for (uint32_t i = 0; i < a->n; i++) {
        SAME_SUB(entries[i].sub) SAME(entries[i].have) SAME(entries[i].finished)
    }
    return NULL;
}

static const char *differ_status(const struct msg_status *a, const struct msg_status *b)
{
    SAME(number) SAME(n_classes) SAME_BYTES(waiting, CLASSES_MAX) SAME_BYTES(active, CLASSES_MAX)
    SAME_BYTES(window, CLASSES_MAX) SAME(blocks_total) SAME(blocks_free) SAME(steps)
    SAME(preemptions) SAME(parks) SAME(drops) SAME(step_ns) SAME(busy_ns) SAME(uptime_ns)
    SAME(n_cost) SAME_BYTES(cost, MSG_COST_MAX) SAME(draining)
    SAME(blocks_cached) SAME(host_total) SAME(host_free) SAME(cache_hits) SAME(cache_misses)
    SAME(swap_ins) SAME(recomputes) SAME(copy_ns) SAME(faults) SAME(evictions)
    for (uint32_t i = 0; i < a->n_classes; i++) {
        SAME(started_tag[i])
    }
    return NULL;
}

static const char *differ_submit(const struct msg_submit *a, const struct msg_submit *b)
{
    SAME_SUB(sub) SAME(cls) SAME(rank) SAME(ttft_ms) SAME(tpot_ms) SAME_TEXT(tenant) SAME(tag)
    SAME(n_ids) SAME_BYTES(ids, a->n_ids) SAME(n_prompt) SAME(from) SAME(max_total)
    SAME(min_total) SAME(deadline_in_ns) SAME(adapter) SAME(kv_quota) SAME(n_cache_salt)
    SAME_BYTES(cache_salt, a->n_cache_salt) SAME(temperature) SAME(top_p) SAME(min_p)
    SAME(repetition_penalty) SAME(presence_penalty) SAME(frequency_penalty) SAME(top_k) SAME(seed)
    SAME(logprobs) SAME(n_top) SAME(ignore_eos) SAME(include_stop) SAME(skip_special)
    SAME(n_stop_ids) SAME_BYTES(stop_ids, a->n_stop_ids) SAME(n_stops) SAME(n_bias)
    for (uint32_t i = 0; i < a->n_stops; i++) {
        SAME(stops[i].n) SAME_BYTES(stops[i].p, a->stops[i].n)
    }
    for (uint32_t i = 0; i < a->n_bias; i++) {
        SAME(bias[i].id) SAME(bias[i].bias)
    }
    return NULL;
}

static const char *differ_record(const struct msg_record *a, const struct msg_record *b)
{
    SAME(id) SAME(logprob) SAME(n_top)
    for (uint32_t i = 0; i < a->n_top; i++) {
        SAME(top[i].id) SAME(top[i].logprob)
    }
    return NULL;
}

static const char *differ_tokens(const struct msg_tokens *a, const struct msg_tokens *b)
{
    SAME(n) SAME(n_accounts) SAME(n_tenants) SAME(tenants_all)
    for (uint32_t i = 0; i < a->n; i++) {
        SAME_SUB(entries[i].sub) SAME(entries[i].index) SAME(entries[i].n)
        SAME(entries[i].logprobs) SAME(entries[i].finish) SAME(entries[i].visible_bytes)
        SAME(entries[i].preemptions) SAME(entries[i].cached) SAME(entries[i].n_booked)
        for (uint32_t k = 0; k < a->entries[i].n_booked; k++) {
            SAME(entries[i].booked_ns[k])
        }
        for (uint32_t k = 0; k < a->entries[i].n; k++) {
            const char *d = differ_record(&a->entries[i].records[k], &b->entries[i].records[k]);
            if (d)
                return d;
        }
    }
    for (uint32_t i = 0; i < a->n_accounts; i++) {
        SAME(accounts[i].cls) SAME(accounts[i].prompt_first) SAME(accounts[i].output)
        SAME(accounts[i].recomputed) SAME(accounts[i].dropped)
    }
    for (uint32_t i = 0; i < a->n_tenants; i++) {
        SAME_TEXT(tenants[i].name) SAME(tenants[i].cls) SAME(tenants[i].prompt_first)
        SAME(tenants[i].output)
    }
    return NULL;
}

const char *msg_gen_differ(const struct msg *a, const struct msg *b)
{
    SAME(kind)
    switch (a->kind) {
    case MSG_HELLO:
        return differ_hello(&a->u.hello, &b->u.hello);
    case MSG_HELLO_REPLY:
        return differ_reply(&a->u.hello_reply, &b->u.hello_reply);
    case MSG_SYNC:
        return differ_sync(&a->u.sync, &b->u.sync);
    case MSG_STATUS:
        return differ_status(&a->u.status, &b->u.status);
    case MSG_SUBMIT:
        return differ_submit(&a->u.submit, &b->u.submit);
    case MSG_TOKENS:
        return differ_tokens(&a->u.tokens, &b->u.tokens);
    case MSG_CANCEL:
    case MSG_GAP:
    case MSG_ACK:
        SAME_SUB(u.sub.sub)
        SAME(u.sub.from)
        return NULL;
    default:
        return NULL;
    }
}
