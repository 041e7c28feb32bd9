/* message_check.c - the bound of every field, in one place for both directions: the encoder asserts what
 * the decoder demands, so a message that this build can send is one that it would take. Sums are 64-bit.
 * Comparisons of floats are written so that NaN fails them.
 */
#include "proto/message.h"

#include "proto/scan.h"

#include <assert.h>
#include <string.h>

const char *msg_name(enum msg_kind k)
{
    switch (k) {
#define MSG_CASE(name, number, dir, text)                                                          \
    case MSG_##name:                                                                               \
        return #name;
        MSG_LIST(MSG_CASE)
#undef MSG_CASE
    }
    return "?";
}

static int breach(struct err *e, const char *field, const char *why)
{
    return err_set(e, ERR_PROTOCOL, "%s: %s", field, why);
}

static int in_range(struct err *e, uint64_t v, uint64_t min, uint64_t max, const char *field)
{
    return v >= min && v <= max ? 0 : breach(e, field, "out of range");
}

static int in_range_f(struct err *e, float v, float min, float max, const char *field)
{
    return v >= min && v <= max ? 0 : breach(e, field, "out of range or not a number");
}

/* Names come into logs and metrics: no control characters, valid UTF-8. */
static int is_text(struct err *e, const char *s, size_t cap, bool empty_allowed, const char *field)
{
    size_t n = strnlen(s, cap);
    if (n == cap)
        return breach(e, field, "too long");
    if (n == 0 && !empty_allowed)
        return breach(e, field, "empty");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return breach(e, field, "holds a control character");
    return scan_utf8(s, n) ? 0 : breach(e, field, "not UTF-8");
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            return -1;                                                                             \
    } while (0)

static int check_hello(const struct msg_hello *h, struct err *e)
{
    if (h->version_min == 0 || h->version_min > h->version_max)
        return breach(e, "version", "not a range");
    TRY(is_text(e, h->name, sizeof h->name, false, "name"));
    TRY(is_text(e, h->model, sizeof h->model, true, "model"));
    TRY(is_text(e, h->family, sizeof h->family, true, "family"));
    TRY(in_range(e, h->n_ctx, 1, MSG_IDS_MAX, "n_ctx"));
    TRY(in_range(e, h->n_vocab, 1, MSG_VOCAB_MAX, "n_vocab"));
    TRY(in_range(e, h->block_tokens, 1, MSG_IDS_MAX, "block_tokens"));
    TRY(in_range(e, h->n_blocks, 1, MSG_BLOCKS_MAX, "n_blocks"));
    TRY(in_range(e, h->max_seqs, 1, MSG_SLOTS_MAX, "max_seqs"));
    return in_range(e, h->max_slots, 1, MSG_SLOTS_MAX, "max_slots");
}

static int check_hello_reply(const struct msg_hello_reply *r, struct err *e)
{
    if (r->accepted && r->version == 0)
        return breach(e, "version", "accepted without one");
    TRY(in_range(e, (uint64_t)r->code, 0, ERR_COUNT - 1, "code"));
    TRY(is_text(e, r->reason, sizeof r->reason, true, "reason"));
    return is_text(e, r->gateway, sizeof r->gateway, false, "gateway");
}

static int check_sync(const struct msg_sync *s, struct err *e)
{
    TRY(in_range(e, s->n, 0, MSG_ENTRIES_MAX, "entries"));
    for (uint32_t i = 0; i < s->n; i++)
        TRY(in_range(e, s->entries[i].have, 0, MSG_IDS_MAX, "have"));
    return 0;
}

static int check_status(const struct msg_status *s, struct err *e)
{
    TRY(in_range(e, s->n_classes, 0, CLASSES_MAX, "classes"));
    TRY(in_range(e, s->n_cost, 0, MSG_COST_MAX, "cost"));
    TRY(in_range(e, s->blocks_total, 0, MSG_BLOCKS_MAX, "blocks_total"));
    TRY(in_range(e, s->blocks_free, 0, s->blocks_total, "blocks_free"));
    TRY(in_range(e, s->blocks_cached, 0, s->blocks_total, "blocks_cached"));
    TRY(in_range(e, s->host_total, 0, MSG_BLOCKS_MAX, "host_total"));
    TRY(in_range(e, s->host_free, 0, s->host_total, "host_free"));
    for (uint32_t i = 0; i < s->n_classes; i++) {
        TRY(in_range(e, s->waiting[i], 0, MSG_SLOTS_MAX, "waiting"));
        TRY(in_range(e, s->active[i], 0, MSG_SLOTS_MAX, "active"));
        TRY(in_range(e, s->window[i], 0, MSG_SLOTS_MAX, "window"));
    }
    for (uint32_t i = 0; i < s->n_cost; i++)
        TRY(in_range_f(e, s->cost[i], -3e38f, 3e38f, "cost"));
    return 0;
}

static int check_ids(const int32_t *ids, uint32_t n, const char *field, struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= MSG_VOCAB_MAX)
            return breach(e, field, "an id is out of range");
    return 0;
}

static int check_sampling(const struct msg_submit *s, struct err *e)
{
    TRY(in_range_f(e, s->temperature, 0, MSG_FACTOR_MAX, "temperature"));
    TRY(in_range_f(e, s->top_p, 0, 1, "top_p"));
    TRY(in_range_f(e, s->min_p, 0, 1, "min_p"));
    TRY(in_range_f(e, s->repetition_penalty, 1 / MSG_FACTOR_MAX, MSG_FACTOR_MAX,
                   "repetition_penalty"));
    TRY(in_range_f(e, s->presence_penalty, -MSG_FACTOR_MAX, MSG_FACTOR_MAX, "presence_penalty"));
    TRY(in_range_f(e, s->frequency_penalty, -MSG_FACTOR_MAX, MSG_FACTOR_MAX,
                   "frequency_penalty"));
    if (s->top_k < -1)
        return breach(e, "top_k", "below -1");
    TRY(in_range(e, s->n_top, 0, MSG_TOP_MAX, "n_top"));
    TRY(in_range(e, s->n_stop_ids, 0, MSG_STOP_IDS_MAX, "stop_ids"));
    TRY(check_ids(s->stop_ids, s->n_stop_ids, "stop_ids", e));
    TRY(in_range(e, s->n_stops, 0, MSG_STOPS_MAX, "stops"));
    for (uint32_t i = 0; i < s->n_stops; i++)
        TRY(in_range(e, s->stops[i].n, 1, MSG_STOP_BYTES_MAX, "a stop string"));
    TRY(in_range(e, s->n_bias, 0, MSG_BIAS_MAX, "bias"));
    for (uint32_t i = 0; i < s->n_bias; i++) {
        TRY(check_ids(&s->bias[i].id, 1, "bias", e));
        TRY(in_range_f(e, s->bias[i].bias, -MSG_BIAS_ABS_MAX, MSG_BIAS_ABS_MAX, "bias"));
    }
    return 0;
}

static int check_submit(const struct msg_submit *s, struct err *e)
{
    TRY(in_range(e, s->cls, 0, CLASSES_MAX - 1, "cls"));
    TRY(in_range(e, s->rank, 0, 1, "rank"));
    TRY(is_text(e, s->tenant, sizeof s->tenant, true, "tenant"));
    TRY(in_range(e, s->n_ids, 1, MSG_IDS_MAX, "ids"));
    TRY(check_ids(s->ids, s->n_ids, "ids", e));
    TRY(in_range(e, s->n_prompt, 1, s->n_ids, "n_prompt"));
    TRY(in_range(e, s->from, 1, s->n_ids, "from"));
    TRY(in_range(e, s->max_total, s->n_ids, MSG_IDS_MAX, "max_total"));
    TRY(in_range(e, s->min_total, 0, s->max_total, "min_total"));
    TRY(in_range(e, s->deadline_in_ns, 0, MSG_DURATION_MAX, "deadline_in_ns"));
    TRY(in_range(e, s->kv_quota, 0, INT32_MAX, "kv_quota"));
    TRY(in_range(e, s->n_cache_salt, 0, MSG_SALT_MAX, "cache_salt"));
    return check_sampling(s, e);
}

static int check_record(const struct msg_record *r, bool logprobs, struct err *e)
{
    TRY(check_ids(&r->id, 1, "records", e));
    if (!logprobs)
        return 0;
    TRY(in_range(e, r->n_top, 0, MSG_TOP_MAX, "alternatives"));
    for (uint32_t i = 0; i < r->n_top; i++)
        TRY(check_ids(&r->top[i].id, 1, "alternatives", e));
    return 0; /* logprobs: the decoder bounds them, the encoder clamps them */
}

static int check_tokens_entry(const struct msg_tokens_entry *t, struct err *e)
{
    TRY(in_range(e, (uint64_t)t->index + t->n, 0, MSG_IDS_MAX, "index"));
    TRY(in_range(e, (uint64_t)t->finish, 0, FINISH_COUNT - 1, "finish"));
    TRY(in_range(e, t->cached, 0, MSG_IDS_MAX, "cached"));
    TRY(in_range(e, t->n_booked, 0, MSG_BOOKED_MAX, "booked"));
    for (uint32_t i = 0; i < t->n_booked; i++)
        TRY(in_range(e, t->booked_ns[i], 0, MSG_DURATION_MAX, "booked"));
    for (uint32_t i = 0; i < t->n; i++)
        TRY(check_record(&t->records[i], t->logprobs, e));
    return 0;
}

static int check_tokens(const struct msg_tokens *t, struct err *e)
{
    TRY(in_range(e, t->n, 0, MSG_ENTRIES_MAX, "entries"));
    for (uint32_t i = 0; i < t->n; i++)
        TRY(check_tokens_entry(&t->entries[i], e));
    TRY(in_range(e, t->n_accounts, 0, CLASSES_MAX, "accounts"));
    for (uint32_t i = 0; i < t->n_accounts; i++)
        TRY(in_range(e, t->accounts[i].cls, 0, CLASSES_MAX - 1, "accounts"));
    TRY(in_range(e, t->n_tenants, 0, MSG_TENANTS_MAX, "tenants"));
    for (uint32_t i = 0; i < t->n_tenants; i++)
        TRY(in_range(e, t->tenants[i].cls, 0, CLASSES_MAX - 1, "tenants"));
    return 0;
}

int msg_check(const struct msg *m, struct err *e)
{
    assert(m != NULL);
    switch (m->kind) {
    case MSG_HELLO:
        return check_hello(&m->u.hello, e);
    case MSG_HELLO_REPLY:
        return check_hello_reply(&m->u.hello_reply, e);
    case MSG_SYNC:
        return check_sync(&m->u.sync, e);
    case MSG_STATUS:
        return check_status(&m->u.status, e);
    case MSG_SUBMIT:
        return check_submit(&m->u.submit, e);
    case MSG_TOKENS:
        return check_tokens(&m->u.tokens, e);
    case MSG_CANCEL:
    case MSG_GAP:
    case MSG_ACK:
        return in_range(e, m->u.sub.from, 0, MSG_IDS_MAX, "from");
    case MSG_PING:
    case MSG_DRAIN:
    case MSG_BYE:
        return 0;
    }
    return breach(e, "kind", "no such message");
}
