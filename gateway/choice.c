#include "gateway/choice.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

static void fill_submit(struct choice *c, const struct api_params *p,
                        const struct api_prompt *prompt, uint64_t seed)
{
    struct msg_submit *s = &c->seq.submit;
    s->cls = p->cls;
    s->n_prompt = (uint32_t)prompt->ids.n;
    uint64_t min = p->min_tokens ? (uint64_t)s->n_prompt + (uint64_t)p->min_tokens : 0;
    s->min_total = min < UINT32_MAX ? (uint32_t)min : UINT32_MAX;
    s->temperature = (float)p->temperature;
    s->top_p = (float)p->top_p;
    s->min_p = (float)p->min_p;
    s->top_k = p->top_k;
    s->repetition_penalty = (float)p->repetition_penalty;
    s->presence_penalty = (float)p->presence_penalty;
    s->frequency_penalty = (float)p->frequency_penalty;
    s->seed = seed;
    s->logprobs = p->logprobs;
    s->n_top = p->n_top;
    s->ignore_eos = p->ignore_eos;
    s->include_stop = p->include_stop;
    s->skip_special = p->skip_special;
    s->stop_ids = (int32_t *)p->stop_ids;
    s->n_stop_ids = p->n_stop_ids;
    s->stops = (struct msg_stop *)p->stops;
    s->n_stops = p->n_stops;
    s->bias = p->bias;
    s->n_bias = p->n_bias;
    s->cache_salt = p->cache_salt;
    s->n_cache_salt = p->n_cache_salt;
}

void choice_init(struct choice *c, struct request *r, uint32_t index,
                 const struct api_params *params, const struct api_prompt *prompt, uint64_t seed,
                 uint32_t n_ctx)
{
    memset(c, 0, sizeof *c);
    c->request = r;
    c->prompt = prompt;
    c->index = index;
    c->seq.slot = UINT32_MAX;
    c->seq.prompt = prompt->ids.ids;
    c->seq.n_prompt = (uint32_t)prompt->ids.n;
    c->seq.priority = params->priority;
    fill_submit(c, params, prompt, seed);
    uint64_t total = (uint64_t)c->seq.n_prompt + (uint64_t)params->max_tokens;
    c->seq.submit.max_total = UINT32_MAX;
    sequence_shorten(&c->seq, total < n_ctx ? (uint32_t)total : n_ctx);
    /* prompt scores: the first id has none, so index 1 is the first record */
    bool scores = params->echo && params->logprobs;
    c->from0 = c->seq.from = scores ? 1 : c->seq.n_prompt;
}

void choice_deinit(struct choice *c)
{
    mem_free(c->seq.out);
    mem_free(c->lps);
    mem_free(c->n_tops);
    mem_free(c->tops);
    buf_deinit(&c->raw);
}

static int grow_lps(struct choice *c, uint32_t n_top, uint32_t need)
{
    if (need <= c->cap_lps) return 0;
    uint32_t cap = c->cap_lps ? c->cap_lps : 32;
    while (cap < need) cap *= 2;
    float *lps = mem_realloc(c->lps, cap * sizeof *lps);
    if (lps) c->lps = lps;
    uint8_t *nt = mem_realloc(c->n_tops, cap);
    if (nt) c->n_tops = nt;
    struct msg_top *tops = mem_realloc(c->tops, ((size_t)cap * n_top + 1) * sizeof *tops);
    if (tops) c->tops = tops;
    if (!lps || !nt || !tops) return -1;
    c->cap_lps = cap;
    return 0;
}

int choice_take(struct choice *c, const struct api_params *params, uint32_t index,
                const struct msg_record *records, uint32_t n, bool logprobs)
{
    if (!params->logprobs) return 0;
    if (index != c->from0 + c->n_lps) return -1; /* dispatch delivers each index once, in order */
    if (grow_lps(c, params->n_top, c->n_lps + n) != 0) return -1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = c->n_lps++, k = logprobs ? records[i].n_top : 0;
        if (k > params->n_top) k = params->n_top;
        c->lps[at] = logprobs ? records[i].logprob : 0;
        c->n_tops[at] = (uint8_t)k;
        if (k) memcpy(c->tops + (size_t)at * params->n_top, records[i].top, k * sizeof *c->tops);
    }
    return 0;
}

/* Nothing was said yet, but ids may have been rendered into bytes that are still held back. */
void choice_restart(struct choice *c)
{
    c->n_lps = c->cursor = 0;
    c->stop = (struct stop_state){0};
    c->stopped = false;
    c->fed = c->sent = c->chars = 0;
    buf_clear(&c->raw);
    c->detok = (struct detok){0};
    c->finish = FINISH_NONE;
    c->first_ns = c->last_ns = 0;
}

/* Code points that begin in an id's bytes. Of ids, not of text sent: what is held back would shift
 * the offsets of a stream against those of the whole reply (logprobs.c counts there, in the same
 * way). */
static uint64_t count_chars(const struct api_params *params, const struct model *m, int32_t id)
{
    size_t n;
    uint64_t chars = 0;
    if (!params->logprobs) return 0;
    const uint8_t *b = detok_visible(m->vocab, id, params->skip_special, &n);
    for (size_t i = 0; i < n; i++) chars += (b[i] & 0xc0) != 0x80;
    return chars;
}

/* Visible bytes of the next id into `raw`, and through the matcher. As the worker does it: a stop
 * that completes before min_tokens are made is ignored. */
static void feed(struct choice *c, const struct api_params *params, const struct model *m,
                 const struct stop_set *stops)
{
    size_t n, at = 0;
    bool may_end = c->seq.n_prompt + c->cursor + 1 >= c->seq.submit.min_total;
    const uint8_t *b = detok_visible(m->vocab, c->seq.out[c->cursor++], params->skip_special, &n);
    uint64_t base = c->stop.fed, start, end;
    while (!c->stopped && at < n && stop_feed(stops, &c->stop, b + at, n - at, &start, &end)) {
        c->stopped = may_end;
        at = (size_t)(end - base);
    }
    c->fed += n;
    c->chars += count_chars(params, m, c->seq.out[c->cursor - 1]);
    buf_add(&c->raw, b, n);
}

/* Give out what is certain now. */
static void release(struct choice *c, const struct stop_set *stops, struct buf *text)
{
    bool end = c->finish != FINISH_NONE && c->cursor == c->seq.n_out;
    uint64_t limit = c->fed;
    if (!end) limit -= c->stopped ? limit - c->sent : stop_held(stops, &c->stop);
    if (c->finish != FINISH_NONE && limit > c->visible) limit = c->visible;
    if (c->raw.bad) {
        text->bad = true;
        return;
    }
    if (limit > c->sent) {
        size_t n = (size_t)(limit - c->sent);
        detok_push(&c->detok, (const uint8_t *)c->raw.p, n, text);
        buf_consume(&c->raw, n);
        c->sent = limit;
    }
    if (end) detok_end(&c->detok, text);
}

bool choice_next(struct choice *c, const struct api_params *params, const struct model *m,
                 const struct stop_set *stops, struct buf *text, struct piece *p)
{
    *p = (struct piece){.begins = !c->begun, .first = c->cursor, .chars = c->chars};
    if (c->finish_sent || (c->cursor == c->seq.n_out && c->finish == FINISH_NONE)) return false;
    size_t before = text->len;
    while (c->cursor < c->seq.n_out && text->len == before && (p->n == 0 || !params->logprobs)) {
        feed(c, params, m, stops);
        p->n++;
        release(c, stops, text);
    }
    if (c->finish != FINISH_NONE && c->cursor == c->seq.n_out) {
        release(c, stops, text);
        p->finish = c->finish;
        c->finish_sent = true;
    }
    if (text->len == before && p->finish == FINISH_NONE && !(params->logprobs && p->n))
        return false;
    c->begun = true;
    p->prompt = p->begins && params->echo;
    for (uint32_t i = 0; p->prompt && i < c->seq.n_prompt; i++)
        c->chars += count_chars(params, m, c->seq.prompt[i]);
    return true;
}
