/* message_decode.c - bytes of a peer to struct msg: scan, then field by field into one arena, then msg_check.
 * Here only what the struct can hold is refused; bounds of meaning are msg_check's.
 */
#include "proto/message.h"

#include "proto/scan.h"
#include "proto/wire.h"

#include <assert.h>
#include <string.h>

static struct sub_id get_sub(struct wire *w, struct wire_array *a)
{
    struct sub_id s;
    s.incarnation = wire_uint(w, a, UINT64_MAX, "submission");
    s.counter = wire_uint(w, a, UINT64_MAX, "submission");
    return s;
}

static uint32_t get_u32(struct wire *w, struct wire_array *a, const char *what)
{
    return (uint32_t)wire_uint(w, a, UINT32_MAX, what);
}

static uint64_t get_u64(struct wire *w, struct wire_array *a, const char *what)
{
    return wire_uint(w, a, UINT64_MAX, what);
}

static uint8_t get_u8(struct wire *w, struct wire_array *a, const char *what)
{
    return (uint8_t)wire_uint(w, a, UINT8_MAX, what);
}

static int32_t *get_ids(struct wire *w, struct wire_array *a, uint32_t max, uint32_t *n,
                        const char *what)
{
    *n = wire_count(w, a, max, what);
    int32_t *ids = wire_alloc(w, *n, sizeof(*ids));
    for (uint32_t i = 0; ids != NULL && i < *n && !w->bad; i++)
        ids[i] = wire_i32(w, NULL, what);
    return ids;
}

static void get_hello(struct wire *w, struct wire_array *a, struct msg_hello *h)
{
    h->version_min = get_u32(w, a, "version_min");
    h->version_max = get_u32(w, a, "version_max");
    wire_text(w, a, h->name, sizeof h->name, "name");
    h->incarnation = get_u64(w, a, "incarnation");
    wire_text(w, a, h->model, sizeof h->model, "model");
    h->tensors = wire_hash(w, a, "tensors");
    h->vocab = wire_hash(w, a, "vocab");
    h->chat_template = wire_hash(w, a, "chat_template");
    h->numerics = wire_hash(w, a, "numerics");
    wire_text(w, a, h->family, sizeof h->family, "family");
    h->n_ctx = get_u32(w, a, "n_ctx");
    h->n_vocab = get_u32(w, a, "n_vocab");
    h->block_tokens = get_u32(w, a, "block_tokens");
    h->n_blocks = get_u32(w, a, "n_blocks");
    h->max_seqs = get_u32(w, a, "max_seqs");
    h->max_slots = get_u32(w, a, "max_slots");
}

static void get_hello_reply(struct wire *w, struct wire_array *a, struct msg_hello_reply *r)
{
    char code[64];
    r->accepted = wire_bool(w, a, "accepted");
    r->version = get_u32(w, a, "version");
    wire_text(w, a, code, sizeof code, "code");
    r->code = err_by_name(code);
    wire_text(w, a, r->reason, sizeof r->reason, "reason");
    wire_text(w, a, r->gateway, sizeof r->gateway, "gateway");
    r->incarnation = get_u64(w, a, "incarnation");
}

static void get_sync(struct wire *w, struct wire_array *a, struct msg_sync *s)
{
    s->n = wire_count(w, a, MSG_ENTRIES_MAX, "entries");
    s->entries = wire_alloc(w, s->n, sizeof(*s->entries));
    for (uint32_t i = 0; i < s->n && !w->bad; i++) {
        struct wire_array f = wire_open(w, NULL, 4, "a SYNC entry");
        s->entries[i].sub = get_sub(w, &f);
        s->entries[i].have = get_u32(w, &f, "have");
        s->entries[i].finished = wire_bool(w, &f, "finished");
        wire_close(w, &f);
    }
}

/* The three lists per class must agree in length, it is n_classes. */
static void get_per_class(struct wire *w, struct wire_array *a, uint32_t *out, uint32_t n,
                          const char *what)
{
    uint32_t got = wire_count(w, a, CLASSES_MAX, what);
    if (!w->bad && got != n) {
        wire_fail(w, what, "another number of classes");
        return;
    }
    for (uint32_t i = 0; i < got && !w->bad; i++)
        out[i] = get_u32(w, NULL, what);
}

/* Not sent by workers of before the prefix cache. */
static void get_status_kv(struct wire *w, struct wire_array *a, struct msg_status *s)
{
    struct wire_array f = wire_open(w, a, 9, "kv");
    s->blocks_cached = get_u32(w, &f, "blocks_cached");
    s->host_total = get_u32(w, &f, "host_total");
    s->host_free = get_u32(w, &f, "host_free");
    s->cache_hits = get_u64(w, &f, "cache_hits");
    s->cache_misses = get_u64(w, &f, "cache_misses");
    s->swap_ins = get_u64(w, &f, "swap_ins");
    s->recomputes = get_u64(w, &f, "recomputes");
    s->copy_ns = get_u64(w, &f, "copy_ns");
    s->faults = get_u64(w, &f, "faults");
    if (f.left > 0)
        s->evictions = get_u64(w, &f, "evictions");
    wire_close(w, &f);
}

static void get_status(struct wire *w, struct wire_array *a, struct msg_status *s)
{
    s->number = get_u64(w, a, "number");
    s->n_classes = wire_count(w, a, CLASSES_MAX, "waiting");
    for (uint32_t i = 0; i < s->n_classes && !w->bad; i++)
        s->waiting[i] = get_u32(w, NULL, "waiting");
    get_per_class(w, a, s->active, s->n_classes, "active");
    get_per_class(w, a, s->window, s->n_classes, "window");
    s->blocks_total = get_u32(w, a, "blocks_total");
    s->blocks_free = get_u32(w, a, "blocks_free");
    s->steps = get_u64(w, a, "steps");
    s->preemptions = get_u64(w, a, "preemptions");
    s->parks = get_u64(w, a, "parks");
    s->drops = get_u64(w, a, "drops");
    s->step_ns = get_u64(w, a, "step_ns");
    s->busy_ns = get_u64(w, a, "busy_ns");
    s->uptime_ns = get_u64(w, a, "uptime_ns");
    s->n_cost = wire_count(w, a, MSG_COST_MAX, "cost");
    for (uint32_t i = 0; i < s->n_cost && !w->bad; i++)
        s->cost[i] = wire_float(w, NULL, "cost");
    s->draining = wire_bool(w, a, "draining");
    if (a->left > 0)
        get_status_kv(w, a, s);
    uint32_t n = a->left > 0 ? wire_count(w, a, CLASSES_MAX, "started_tag") : 0;
    for (uint32_t i = 0; i < n && !w->bad; i++)
        s->started_tag[i] = get_u64(w, NULL, "started_tag");
}

static void get_stops(struct wire *w, struct wire_array *a, struct msg_submit *s)
{
    s->n_stops = wire_count(w, a, MSG_STOPS_MAX, "stops");
    s->stops = wire_alloc(w, s->n_stops, sizeof(*s->stops));
    for (uint32_t i = 0; i < s->n_stops && !w->bad; i++)
        s->stops[i].p = wire_bytes(w, NULL, MSG_STOP_BYTES_MAX, &s->stops[i].n, "a stop string");
}

static void get_bias(struct wire *w, struct wire_array *a, struct msg_submit *s)
{
    s->n_bias = wire_count(w, a, MSG_BIAS_MAX, "bias");
    s->bias = wire_alloc(w, s->n_bias, sizeof(*s->bias));
    for (uint32_t i = 0; i < s->n_bias && !w->bad; i++) {
        struct wire_array f = wire_open(w, NULL, 2, "bias");
        s->bias[i].id = wire_i32(w, &f, "bias");
        s->bias[i].bias = wire_float(w, &f, "bias");
        wire_close(w, &f);
    }
}

static void get_sampling(struct wire *w, struct wire_array *a, struct msg_submit *s)
{
    struct wire_array f = wire_open(w, a, 16, "sampling");
    s->temperature = wire_float(w, &f, "temperature");
    s->top_p = wire_float(w, &f, "top_p");
    s->min_p = wire_float(w, &f, "min_p");
    s->repetition_penalty = wire_float(w, &f, "repetition_penalty");
    s->presence_penalty = wire_float(w, &f, "presence_penalty");
    s->frequency_penalty = wire_float(w, &f, "frequency_penalty");
    s->top_k = wire_i32(w, &f, "top_k");
    s->seed = get_u64(w, &f, "seed");
    s->logprobs = wire_bool(w, &f, "logprobs");
    s->n_top = get_u8(w, &f, "n_top");
    s->ignore_eos = wire_bool(w, &f, "ignore_eos");
    s->include_stop = wire_bool(w, &f, "include_stop");
    s->skip_special = wire_bool(w, &f, "skip_special");
    s->stop_ids = get_ids(w, &f, MSG_STOP_IDS_MAX, &s->n_stop_ids, "stop_ids");
    get_stops(w, &f, s);
    get_bias(w, &f, s);
    wire_close(w, &f);
}

static void get_submit(struct wire *w, struct wire_array *a, struct msg_submit *s)
{
    s->sub = get_sub(w, a);
    s->cls = get_u8(w, a, "cls");
    s->rank = get_u8(w, a, "rank");
    s->ttft_ms = get_u32(w, a, "ttft_ms");
    s->tpot_ms = get_u32(w, a, "tpot_ms");
    wire_text(w, a, s->tenant, sizeof s->tenant, "tenant");
    s->tag = get_u64(w, a, "tag");
    s->ids = get_ids(w, a, MSG_IDS_MAX, &s->n_ids, "ids");
    s->n_prompt = get_u32(w, a, "n_prompt");
    s->from = get_u32(w, a, "from");
    s->max_total = get_u32(w, a, "max_total");
    s->min_total = get_u32(w, a, "min_total");
    s->deadline_in_ns = get_u64(w, a, "deadline_in_ns");
    s->adapter = get_u64(w, a, "adapter");
    get_sampling(w, a, s);
    if (a->left > 0) /* not sent by gateways of before quotas */
        s->kv_quota = get_u32(w, a, "kv_quota");
    if (a->left > 0) /* of before salts */
        s->cache_salt = wire_bytes(w, a, MSG_SALT_MAX, &s->n_cache_salt, "cache_salt");
}

static float get_logprob(struct wire *w, struct wire_array *a)
{
    float v = wire_float(w, a, "logprob");
    if (!(v >= MSG_LOGPROB_MIN && v <= MSG_LOGPROB_MAX))
        wire_fail(w, "logprob", "out of range");
    return v;
}

static void get_record(struct wire *w, struct msg_record *r)
{
    struct wire_array f = wire_open(w, NULL, 2, "a record");
    uint32_t n_top = f.left / 2 - (f.left >= 2);
    if (f.left % 2 != 0 || n_top > MSG_TOP_MAX) {
        wire_fail(w, "a record", "not pairs, or too many");
        return;
    }
    r->id = wire_i32(w, &f, "records");
    r->logprob = get_logprob(w, &f);
    r->top = wire_alloc(w, n_top, sizeof(*r->top));
    for (uint32_t i = 0; i < n_top && !w->bad; i++) {
        r->top[i].id = wire_i32(w, &f, "alternatives");
        r->top[i].logprob = get_logprob(w, &f);
    }
    r->n_top = (uint8_t)n_top;
}

static void get_tokens_entry(struct wire *w, struct msg_tokens_entry *t)
{
    struct wire_array f = wire_open(w, NULL, 8, "a TOKENS entry");
    char finish[32];
    t->sub = get_sub(w, &f);
    t->index = get_u32(w, &f, "index");
    wire_text(w, &f, finish, sizeof finish, "finish");
    int reason = finish_parse(finish);
    if (reason < 0)
        wire_fail(w, "finish", "unknown");
    t->finish = reason < 0 ? FINISH_NONE : (enum finish)reason;
    t->visible_bytes = get_u32(w, &f, "visible_bytes");
    t->preemptions = get_u32(w, &f, "preemptions");
    t->logprobs = wire_bool(w, &f, "logprobs");
    t->n = wire_count(w, &f, MSG_IDS_MAX, "records");
    t->records = wire_alloc(w, t->n, sizeof(*t->records));
    for (uint32_t i = 0; i < t->n && !w->bad; i++) {
        if (t->logprobs)
            get_record(w, &t->records[i]);
        else
            t->records[i].id = wire_i32(w, NULL, "records");
    }
    if (f.left > 0) /* not sent by workers of before */
        t->cached = get_u32(w, &f, "cached");
    if (f.left > 0)
        t->n_booked = wire_count(w, &f, MSG_BOOKED_MAX, "booked");
    for (uint32_t i = 0; i < t->n_booked && !w->bad; i++)
        t->booked_ns[i] = wire_uint(w, NULL, MSG_DURATION_MAX, "booked");
    wire_close(w, &f);
}

static void get_accounts(struct wire *w, struct wire_array *a, struct msg_tokens *t)
{
    t->n_accounts = wire_count(w, a, CLASSES_MAX, "accounts");
    t->accounts = wire_alloc(w, t->n_accounts, sizeof(*t->accounts));
    for (uint32_t i = 0; i < t->n_accounts && !w->bad; i++) {
        struct wire_array f = wire_open(w, NULL, 5, "accounts");
        t->accounts[i].cls = get_u8(w, &f, "accounts");
        t->accounts[i].prompt_first = get_u64(w, &f, "accounts");
        t->accounts[i].output = get_u64(w, &f, "accounts");
        t->accounts[i].recomputed = get_u64(w, &f, "accounts");
        t->accounts[i].dropped = get_u64(w, &f, "accounts");
        wire_close(w, &f);
    }
}

static void get_tenants(struct wire *w, struct wire_array *a, struct msg_tokens *t)
{
    t->n_tenants = wire_count(w, a, MSG_TENANTS_MAX, "tenants");
    t->tenants = wire_alloc(w, t->n_tenants, sizeof(*t->tenants));
    for (uint32_t i = 0; i < t->n_tenants && !w->bad; i++) {
        struct wire_array f = wire_open(w, NULL, 4, "tenants");
        wire_text(w, &f, t->tenants[i].name, sizeof t->tenants[i].name, "tenants");
        t->tenants[i].cls = get_u8(w, &f, "tenants");
        t->tenants[i].prompt_first = get_u64(w, &f, "tenants");
        t->tenants[i].output = get_u64(w, &f, "tenants");
        wire_close(w, &f);
    }
    t->tenants_all = wire_bool(w, a, "tenants_all");
}

static void get_tokens(struct wire *w, struct wire_array *a, struct msg_tokens *t)
{
    t->n = wire_count(w, a, MSG_ENTRIES_MAX, "entries");
    t->entries = wire_alloc(w, t->n, sizeof(*t->entries));
    for (uint32_t i = 0; i < t->n && !w->bad; i++)
        get_tokens_entry(w, &t->entries[i]);
    get_accounts(w, a, t);
    if (a->left >= 2)
        get_tenants(w, a, t);
}

static void get_body(struct wire *w, struct wire_array *a, struct msg *m)
{
    switch (m->kind) {
    case MSG_HELLO:
        get_hello(w, a, &m->u.hello);
        break;
    case MSG_HELLO_REPLY:
        get_hello_reply(w, a, &m->u.hello_reply);
        break;
    case MSG_SYNC:
        get_sync(w, a, &m->u.sync);
        break;
    case MSG_STATUS:
        get_status(w, a, &m->u.status);
        break;
    case MSG_SUBMIT:
        get_submit(w, a, &m->u.submit);
        break;
    case MSG_TOKENS:
        get_tokens(w, a, &m->u.tokens);
        break;
    case MSG_CANCEL:
    case MSG_GAP:
    case MSG_ACK:
        m->u.sub.sub = get_sub(w, a);
        m->u.sub.from = get_u32(w, a, "from");
        break;
    case MSG_PING:
    case MSG_DRAIN:
    case MSG_BYE:
        break;
    default:
        wire_fail(w, "kind", "no such message");
    }
}

int msg_decode(struct msg *m, const void *p, size_t n, struct err *e)
{
    *m = (struct msg){.arena = NULL};
    if (n > MSG_BYTES_MAX)
        return err_set(e, ERR_PROTOCOL, "a message of %zu bytes is too long", n);
    if (scan_check(p, n, MSG_DEPTH_MAX, MSG_NODES_MAX, NULL, e) != 0)
        return -1;
    struct wire w;
    wire_init(&w, p, n, e);
    struct wire_array a = wire_open(&w, NULL, 1, "message");
    m->kind = (enum msg_kind)wire_uint(&w, &a, UINT8_MAX, "kind");
    if (!w.bad)
        get_body(&w, &a, m);
    wire_close(&w, &a);
    assert(w.bad || w.p == w.end);
    m->arena = w.arena;
    if (w.bad || msg_check(m, e) != 0) {
        msg_deinit(m);
        return -1;
    }
    return 0;
}

void msg_deinit(struct msg *m)
{
    wire_arena_free(m->arena);
    *m = (struct msg){.arena = NULL};
}
