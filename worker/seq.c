/* seq.c - one block of memory a sequence, carved once; see seq.h. */
#include "worker/seq.h"

#include "base/fault.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Offsets of the arrays behind the struct. Every part begins on 8 bytes. */
struct layout {
    size_t ids, stop_ids, banned, bias, logprob, top, top_count, total;
};

static size_t place(size_t *at, size_t bytes) {
    size_t here = *at;
    *at += (bytes + 7) & ~(size_t)7;
    return here;
}

static struct layout lay_out(const struct msg_submit *m, uint32_t max_total, uint32_t n_banned) {
    size_t at = (sizeof(struct seq) + 7) & ~(size_t)7;
    size_t n_rec = m->logprobs ? max_total - m->from : 0;
    struct layout l;
    l.ids = place(&at, (size_t)max_total * sizeof(int32_t));
    l.stop_ids = place(&at, (size_t)m->n_stop_ids * sizeof(int32_t));
    l.banned = place(&at, (size_t)n_banned * sizeof(int32_t));
    l.bias = place(&at, (size_t)m->n_bias * sizeof(struct sample_bias));
    l.logprob = place(&at, n_rec * sizeof(float));
    l.top = place(&at, n_rec * m->n_top * sizeof(struct sample_top));
    l.top_count = place(&at, n_rec);
    l.total = at;
    return l;
}

size_t seq_bytes_max(const struct seq_limits *l) {
    struct msg_submit m = {.n_stop_ids = MSG_STOP_IDS_MAX,
                           .n_bias = SAMPLE_BIAS_MAX,
                           .from = 1,
                           .logprobs = true,
                           .n_top = SAMPLE_TOP_MAX};
    return lay_out(&m, l->n_ctx, SAMPLE_BANNED_MAX).total
           + STOP_MAX * STOP_BYTES_MAX * (1 + sizeof(uint16_t));
}

static void copy_sampling(struct seq *s, const struct msg_submit *m, char *bias_at) {
    struct sample_bias *bias = (struct sample_bias *)(void *)bias_at;
    for (uint32_t i = 0; i < m->n_bias; i++)
        bias[i] = (struct sample_bias){.id = m->bias[i].id, .bias = m->bias[i].bias};
    s->params = (struct sample_params){.temperature = m->temperature,
                                       .top_p = m->top_p,
                                       .min_p = m->min_p,
                                       .top_k = m->top_k,
                                       .repetition_penalty = m->repetition_penalty,
                                       .presence_penalty = m->presence_penalty,
                                       .frequency_penalty = m->frequency_penalty,
                                       .seed = m->seed,
                                       .bias = m->n_bias != 0 ? bias : NULL,
                                       .n_bias = m->n_bias};
    s->penalties = m->repetition_penalty != 1.0f || m->presence_penalty != 0.0f
                   || m->frequency_penalty != 0.0f;
}

static int make_stops(struct seq *s, const struct msg_submit *m) {
    struct stop_text texts[STOP_MAX];
    if (m->n_stops == 0)
        return 0;
    for (uint32_t i = 0; i < m->n_stops; i++)
        texts[i] = (struct stop_text){.p = m->stops[i].p, .n = m->stops[i].n};
    s->stops = stop_set_create(texts, m->n_stops);
    return s->stops != NULL ? 0 : -1;
}

static void name_tenant(struct seq *s, const struct msg_submit *m) {
    snprintf(s->tenant_name, sizeof(s->tenant_name), "%.*s", MSG_NAME_MAX - 1, m->tenant);
    s->tenant = hash64(m->tenant, strnlen(m->tenant, MSG_NAME_MAX), 0);
}

static struct seq *create_refused(const struct msg_submit *m, const char *why) {
    struct seq *s = mem_zalloc(sizeof(*s));
    if (s == NULL)
        return NULL;
    s->bytes = sizeof(*s);
    s->sub = m->sub;
    s->refused = why;
    s->cls = m->cls;
    s->tag = m->tag;
    name_tenant(s, m);
    s->n_prompt = m->n_prompt;
    s->from = m->from; /* the finish names it: a gateway knows its answer by the index */
    s->n_submitted = m->n_ids;
    s->rules.max_total = m->max_total;
    return s;
}

static size_t put_part(char *out, size_t at, char tag, const void *p, uint32_t n) {
    out[at] = tag;
    for (unsigned i = 0; i < 4; i++)
        out[at + 1 + i] = (char)(n >> (8 * i));
    if (n != 0)
        memcpy(out + at + 5, p, n);
    return at + 5 + n;
}

/* Two tenants never share a block: the root is the tenant's, under a key that nobody outside knows.
 * Each part has a tag and a length, so that none can imitate another; a salt only divides a tenant.
 * Rows of the prompt are made by computing it, so who wants some takes no hits. */
static struct hash128 make_root(const struct msg_submit *m, const struct seq_limits *l) {
    char scope[3 * 5 + MSG_NAME_MAX + sizeof(m->adapter) + MSG_SALT_MAX];
    size_t n = 0;
    if (!l->prefix_cache || m->from < m->n_prompt)
        return (struct hash128){0, 0};
    n = put_part(scope, n, 't', m->tenant, (uint32_t)strnlen(m->tenant, MSG_NAME_MAX));
    n = put_part(scope, n, 'a', &m->adapter, sizeof(m->adapter));
    if (m->n_cache_salt != 0)
        n = put_part(scope, n, 's', m->cache_salt, m->n_cache_salt);
    return prefix_root(scope, n, l->cache_key);
}

static void copy_service(struct seq *s, const struct msg_submit *m) {
    s->cls = m->cls;
    s->tag = m->tag;
    s->ttft_ms = m->ttft_ms;
    s->tpot_ms = m->tpot_ms;
    name_tenant(s, m);
    s->kv_quota = m->kv_quota;
}

static void copy_lists(struct seq *s, const struct msg_submit *m, const struct layout *l) {
    char *base = (char *)s;
    s->ids = (int32_t *)(void *)(base + l->ids);
    s->n_ids = s->n_submitted = m->n_ids;
    memcpy(s->ids, m->ids, (size_t)m->n_ids * sizeof(int32_t));
    int32_t *stop_ids = (int32_t *)(void *)(base + l->stop_ids);
    if (m->n_stop_ids != 0)
        memcpy(stop_ids, m->stop_ids, (size_t)m->n_stop_ids * sizeof(int32_t));
    s->rules.stop_ids = stop_ids;
    s->logprobs = m->logprobs;
    s->n_top = m->logprobs ? m->n_top : 0;
    s->rec_from = m->from;
    s->logprob = (float *)(void *)(base + l->logprob);
    s->top = (struct sample_top *)(void *)(base + l->top);
    s->top_count = (uint8_t *)(base + l->top_count);
}

struct seq *seq_create(const struct msg_submit *m, const struct seq_limits *l) {
    const char *why = seq_validate(m, l);
    if (why != NULL)
        return create_refused(m, why);
    uint32_t max_total = m->max_total < l->n_ctx ? m->max_total : l->n_ctx;
    struct stop_rules rules = {.stop_ids = m->stop_ids,
                               .n_stop_ids = m->n_stop_ids,
                               .ignore_eos = m->ignore_eos,
                               .include_stop = m->include_stop,
                               .skip_special = m->skip_special,
                               .min_total = m->min_total,
                               .max_total = max_total};
    uint32_t n_banned = m->min_total > m->n_prompt ? stopper_banned(l->vocab, &rules, NULL, 0) : 0;
    struct layout lay = lay_out(m, max_total, n_banned);
    struct seq *s = mem_zalloc(lay.total);
    if (s == NULL)
        return NULL;
    s->bytes = lay.total;
    s->sub = m->sub;
    copy_service(s, m);
    s->root = make_root(m, l);
    s->n_prompt = m->n_prompt;
    s->from = m->from;
    s->rules = rules;
    copy_lists(s, m, &lay);
    s->banned = (int32_t *)(void *)((char *)s + lay.banned);
    s->n_banned = n_banned;
    stopper_banned(l->vocab, &rules, s->banned, n_banned);
    copy_sampling(s, m, (char *)s + lay.bias);
    if (make_stops(s, m) != 0) {
        mem_free(s);
        return NULL;
    }
    s->rules.stops = s->stops;
    stopper_replay(l->vocab, &s->rules, &s->stop, s->ids, s->n_prompt, s->n_ids);
    s->stop_before = s->stop;
    return s;
}

void seq_destroy(struct seq **s) {
    if (*s != NULL)
        stop_set_destroy(&(*s)->stops);
    mem_free(*s);
    *s = NULL;
}

static void keep_result(struct seq *s, uint32_t index, const struct sample_result *r) {
    if (!s->logprobs || index < s->rec_from)
        return;
    uint32_t at = index - s->rec_from;
    uint32_t n = r->n_top < s->n_top ? r->n_top : s->n_top;
    s->logprob[at] = r->logprob;
    s->top_count[at] = (uint8_t)n;
    memcpy(s->top + (size_t)at * s->n_top, r->top, n * sizeof(*r->top));
}

enum finish seq_push(struct seq *s, const struct vocab *v, uint32_t index,
                     const struct sample_result *r) {
    assert(s->refused == NULL && index < s->rules.max_total);
    assert(index == s->n_ids || (index + 1 == s->n_ids && s->n_ids > s->n_submitted));
    if (index < s->n_ids)
        s->stop = s->stop_before;
    s->ids[index] = r->id;
    s->n_ids = index + 1;
    keep_result(s, index, r);
    s->stop_before = s->stop;
    s->finish = stopper_push(v, &s->rules, &s->stop, index, r->id);
    return s->finish;
}

void seq_score(struct seq *s, uint32_t index, const struct sample_result *r) {
    assert(index < s->n_ids);
    keep_result(s, index, r);
}

void seq_params(const struct seq *s, uint32_t index, struct sample_params *out) {
    *out = s->params;
    out->position = index;
    if (s->preemptions != 0 && fault_on(FAULT_SEED))
        out->seed ^= 1;
    if (s->preemptions != 0 && fault_on(FAULT_DRAW_SHIFT))
        out->position++;
    if (s->penalties) {
        out->history = s->ids;
        out->n_history = index;
        out->n_prompt = s->n_prompt + fault_on(FAULT_BOUNDARY);
        if (s->preemptions != 0 && fault_on(FAULT_HISTORY_LOST))
            out->n_history = s->n_prompt;
    }
    if (index < s->rules.min_total && s->n_banned != 0) {
        out->banned = s->banned;
        out->n_banned = s->n_banned;
    }
}

bool seq_host_choice(const struct seq *s) {
    return s->penalties || s->n_banned != 0;
}

void seq_record(const struct seq *s, uint32_t index, struct msg_record *out, struct msg_top *top) {
    assert(index < s->n_ids);
    *out = (struct msg_record){.id = s->ids[index]};
    if (!s->logprobs || index < s->rec_from)
        return;
    uint32_t at = index - s->rec_from;
    out->logprob = s->logprob[at];
    out->n_top = s->top_count[at];
    out->top = top;
    for (uint32_t i = 0; i < out->n_top; i++) {
        const struct sample_top *t = &s->top[(size_t)at * s->n_top + i];
        top[i] = (struct msg_top){.id = t->id, .logprob = t->logprob};
    }
}
