/* message_encode.c - struct msg to one msgpack array. The order of fields here, in message_decode.c and in
 * docs/PROTOCOL.md is the same; a round-trip test compares the first two, msgpack-c's own reader the bytes.
 */
#include "proto/message.h"
#include "proto/value.h"

#include <assert.h>
#include <string.h>

static void put_text(struct buf *b, const char *s)
{
    value_put_str(b, s, strlen(s));
}

static void put_sub(struct buf *b, struct sub_id s)
{
    value_put_uint(b, s.incarnation);
    value_put_uint(b, s.counter);
}

static void put_hash(struct buf *b, struct hash128 h)
{
    uint8_t bytes[16];
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(h.lo >> (8 * i));
        bytes[8 + i] = (uint8_t)(h.hi >> (8 * i));
    }
    value_put_bin(b, bytes, sizeof bytes);
}

static void put_u32s(struct buf *b, const uint32_t *v, uint32_t n)
{
    value_put_array(b, n);
    for (uint32_t i = 0; i < n; i++)
        value_put_uint(b, v[i]);
}

static void put_ids(struct buf *b, const int32_t *ids, uint32_t n)
{
    value_put_array(b, n);
    for (uint32_t i = 0; i < n; i++)
        value_put_int(b, ids[i]);
}

static void put_hello(struct buf *b, const struct msg_hello *h)
{
    value_put_array(b, 17);
    value_put_uint(b, MSG_HELLO);
    value_put_uint(b, h->version_min);
    value_put_uint(b, h->version_max);
    put_text(b, h->name);
    value_put_uint(b, h->incarnation);
    put_text(b, h->model);
    put_hash(b, h->tensors);
    put_hash(b, h->vocab);
    put_hash(b, h->chat_template);
    put_hash(b, h->numerics);
    put_text(b, h->family);
    value_put_uint(b, h->n_ctx);
    value_put_uint(b, h->n_vocab);
    value_put_uint(b, h->block_tokens);
    value_put_uint(b, h->n_blocks);
    value_put_uint(b, h->max_seqs);
    value_put_uint(b, h->max_slots);
}

static void put_hello_reply(struct buf *b, const struct msg_hello_reply *r)
{
    value_put_array(b, 7);
    value_put_uint(b, MSG_HELLO_REPLY);
    value_put_bool(b, r->accepted);
    value_put_uint(b, r->version);
    put_text(b, err_name(r->code));
    put_text(b, r->reason);
    put_text(b, r->gateway);
    value_put_uint(b, r->incarnation);
}

static void put_sync(struct buf *b, const struct msg_sync *s)
{
    value_put_array(b, 2);
    value_put_uint(b, MSG_SYNC);
    value_put_array(b, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        value_put_array(b, 4);
        put_sub(b, s->entries[i].sub);
        value_put_uint(b, s->entries[i].have);
        value_put_bool(b, s->entries[i].finished);
    }
}

static void put_status(struct buf *b, const struct msg_status *s)
{
    value_put_array(b, 18);
    value_put_uint(b, MSG_STATUS);
    value_put_uint(b, s->number);
    put_u32s(b, s->waiting, s->n_classes);
    put_u32s(b, s->active, s->n_classes);
    put_u32s(b, s->window, s->n_classes);
    value_put_uint(b, s->blocks_total);
    value_put_uint(b, s->blocks_free);
    value_put_uint(b, s->steps);
    value_put_uint(b, s->preemptions);
    value_put_uint(b, s->parks);
    value_put_uint(b, s->drops);
    value_put_uint(b, s->step_ns);
    value_put_uint(b, s->busy_ns);
    value_put_uint(b, s->uptime_ns);
    value_put_array(b, s->n_cost);
    for (uint32_t i = 0; i < s->n_cost; i++)
        value_put_float32(b, s->cost[i]);
    value_put_bool(b, s->draining);
    value_put_array(b, 10);
    value_put_uint(b, s->blocks_cached);
    value_put_uint(b, s->host_total);
    value_put_uint(b, s->host_free);
    value_put_uint(b, s->cache_hits);
    value_put_uint(b, s->cache_misses);
    value_put_uint(b, s->swap_ins);
    value_put_uint(b, s->recomputes);
    value_put_uint(b, s->copy_ns);
    value_put_uint(b, s->faults);
    value_put_uint(b, s->evictions);
    value_put_array(b, s->n_classes);
    for (uint32_t i = 0; i < s->n_classes; i++)
        value_put_uint(b, s->started_tag[i]);
}

/* One nested array, so that sampling can grow without moving what follows. */
static void put_sampling(struct buf *b, const struct msg_submit *s)
{
    value_put_array(b, 16);
    value_put_float32(b, s->temperature);
    value_put_float32(b, s->top_p);
    value_put_float32(b, s->min_p);
    value_put_float32(b, s->repetition_penalty);
    value_put_float32(b, s->presence_penalty);
    value_put_float32(b, s->frequency_penalty);
    value_put_int(b, s->top_k);
    value_put_uint(b, s->seed);
    value_put_bool(b, s->logprobs);
    value_put_uint(b, s->n_top);
    value_put_bool(b, s->ignore_eos);
    value_put_bool(b, s->include_stop);
    value_put_bool(b, s->skip_special);
    put_ids(b, s->stop_ids, s->n_stop_ids);
    value_put_array(b, s->n_stops);
    for (uint32_t i = 0; i < s->n_stops; i++)
        value_put_bin(b, s->stops[i].p, s->stops[i].n);
    value_put_array(b, s->n_bias);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        value_put_array(b, 2);
        value_put_int(b, s->bias[i].id);
        value_put_float32(b, s->bias[i].bias);
    }
}

static void put_submit(struct buf *b, const struct msg_submit *s)
{
    value_put_array(b, 19);
    value_put_uint(b, MSG_SUBMIT);
    put_sub(b, s->sub);
    value_put_uint(b, s->cls);
    value_put_uint(b, s->rank);
    value_put_uint(b, s->ttft_ms);
    value_put_uint(b, s->tpot_ms);
    put_text(b, s->tenant);
    value_put_uint(b, s->tag);
    put_ids(b, s->ids, s->n_ids);
    value_put_uint(b, s->n_prompt);
    value_put_uint(b, s->from);
    value_put_uint(b, s->max_total);
    value_put_uint(b, s->min_total);
    value_put_uint(b, s->deadline_in_ns);
    value_put_uint(b, s->adapter);
    put_sampling(b, s);
    value_put_uint(b, s->kv_quota);
    value_put_bin(b, s->n_cache_salt > 0 ? s->cache_salt : "", s->n_cache_salt);
}

/* A model file with broken weights makes NaN: that is the world's mistake and must not stop the worker. */
static void put_logprob(struct buf *b, float v)
{
    if (!(v >= MSG_LOGPROB_MIN))
        v = MSG_LOGPROB_MIN;
    value_put_float32(b, v > MSG_LOGPROB_MAX ? MSG_LOGPROB_MAX : v);
}

static void put_record(struct buf *b, const struct msg_record *r)
{
    value_put_array(b, 2 + 2 * (uint32_t)r->n_top);
    value_put_int(b, r->id);
    put_logprob(b, r->logprob);
    for (uint32_t i = 0; i < r->n_top; i++) {
        value_put_int(b, r->top[i].id);
        put_logprob(b, r->top[i].logprob);
    }
}

static void put_tokens_entry(struct buf *b, const struct msg_tokens_entry *t)
{
    value_put_array(b, 10);
    put_sub(b, t->sub);
    value_put_uint(b, t->index);
    put_text(b, finish_text(t->finish));
    value_put_uint(b, t->visible_bytes);
    value_put_uint(b, t->preemptions);
    value_put_bool(b, t->logprobs);
    value_put_array(b, t->n);
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->logprobs)
            put_record(b, &t->records[i]);
        else
            value_put_int(b, t->records[i].id);
    }
    value_put_uint(b, t->cached);
    value_put_array(b, t->n_booked);
    for (uint32_t i = 0; i < t->n_booked; i++)
        value_put_uint(b, t->booked_ns[i]);
}

static void put_tenants(struct buf *b, const struct msg_tokens *t)
{
    value_put_array(b, t->n_tenants);
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        value_put_array(b, 4);
        put_text(b, t->tenants[i].name);
        value_put_uint(b, t->tenants[i].cls);
        value_put_uint(b, t->tenants[i].prompt_first);
        value_put_uint(b, t->tenants[i].output);
    }
    value_put_bool(b, t->tenants_all);
}

static void put_tokens(struct buf *b, const struct msg_tokens *t)
{
    value_put_array(b, 5);
    value_put_uint(b, MSG_TOKENS);
    value_put_array(b, t->n);
    for (uint32_t i = 0; i < t->n; i++)
        put_tokens_entry(b, &t->entries[i]);
    value_put_array(b, t->n_accounts);
    for (uint32_t i = 0; i < t->n_accounts; i++) {
        value_put_array(b, 5);
        value_put_uint(b, t->accounts[i].cls);
        value_put_uint(b, t->accounts[i].prompt_first);
        value_put_uint(b, t->accounts[i].output);
        value_put_uint(b, t->accounts[i].recomputed);
        value_put_uint(b, t->accounts[i].dropped);
    }
    put_tenants(b, t);
}

static void put_one_sub(struct buf *b, enum msg_kind kind, const struct msg_sub *s)
{
    value_put_array(b, 4);
    value_put_uint(b, (uint64_t)kind);
    put_sub(b, s->sub);
    value_put_uint(b, s->from);
}

void msg_encode(struct buf *out, const struct msg *m)
{
    assert(msg_check(m, NULL) == 0);
    switch (m->kind) {
    case MSG_HELLO:
        put_hello(out, &m->u.hello);
        break;
    case MSG_HELLO_REPLY:
        put_hello_reply(out, &m->u.hello_reply);
        break;
    case MSG_SYNC:
        put_sync(out, &m->u.sync);
        break;
    case MSG_STATUS:
        put_status(out, &m->u.status);
        break;
    case MSG_SUBMIT:
        put_submit(out, &m->u.submit);
        break;
    case MSG_TOKENS:
        put_tokens(out, &m->u.tokens);
        break;
    case MSG_CANCEL:
    case MSG_GAP:
    case MSG_ACK:
        put_one_sub(out, m->kind, &m->u.sub);
        break;
    case MSG_PING:
    case MSG_DRAIN:
    case MSG_BYE:
        value_put_array(out, 1);
        value_put_uint(out, (uint64_t)m->kind);
        break;
    }
}
