#include "gateway/logprobs.h"

#include "gateway/json_out.h"
#include "model/tokenizer.h"

#include <string.h>

static void token_entry(struct buf *out, const struct model *m, int32_t id, float lp)
{
    size_t n;
    const uint8_t *b = vocab_bytes(m->vocab, id, &n);
    buf_adds(out, "{\"token\":");
    json_out_bytes(out, b, n);
    buf_adds(out, ",\"logprob\":");
    json_out_logprob(out, lp);
    buf_adds(out, ",\"bytes\":");
    json_out_byte_list(out, b, n);
}

void logprobs_chat(struct buf *out, const struct choice *c, const struct api_params *params,
                   const struct model *m, const struct piece *p)
{
    buf_adds(out, "{\"content\":[");
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t at = c->seq.n_prompt + p->first + i - c->from0;
        if (at >= c->n_lps) break;
        if (i) buf_addc(out, ',');
        token_entry(out, m, c->seq.out[p->first + i], c->lps[at]);
        buf_adds(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < c->n_tops[at]; k++) {
            const struct msg_top *t = &c->tops[(size_t)at * params->n_top + k];
            if (k) buf_addc(out, ',');
            token_entry(out, m, t->id, t->logprob);
            buf_addc(out, '}');
        }
        buf_adds(out, "]}");
    }
    buf_adds(out, "],\"refusal\":null}");
}

/* One row of the completion form: an absolute index of the sequence. */
struct row { int32_t id; bool scored; uint32_t at; };

static struct row row_of(const struct choice *c, uint32_t index)
{
    struct row r = {.id = index < c->seq.n_prompt ? c->seq.prompt[index]
                                                  : c->seq.out[index - c->seq.n_prompt]};
    r.scored = index >= c->from0 && index - c->from0 < c->n_lps;
    r.at = r.scored ? index - c->from0 : 0;
    return r;
}

/* Token text as the old API shows it: UTF-8 as it is, other bytes as bytes:\xNN, so that keys stay
 * distinct. NUL is written so too: legal in a JSON key, but many readers refuse it there, the one
 * behind the RPC door among them. */
static void token_name(struct buf *out, const struct model *m, int32_t id)
{
    size_t n;
    const uint8_t *b = vocab_bytes(m->vocab, id, &n);
    struct buf text = {0};
    struct detok d = {0};
    detok_push(&d, b, n, &text);
    bool whole = d.n_held == 0 && text.len == n && (n == 0 || memcmp(text.p, b, n) == 0);
    if (n != 0 && memchr(b, 0, n) != NULL) whole = false;
    if (!whole) {
        buf_clear(&text);
        buf_adds(&text, "bytes:");
        for (size_t i = 0; i < n; i++) buf_addf(&text, "\\x%02x", b[i]);
    }
    json_out_str(out, text.p, text.len);
    if (text.bad) out->bad = true;
    buf_deinit(&text);
}

static void top_object(struct buf *out, const struct choice *c, const struct api_params *params,
                       const struct model *m, struct row r)
{
    buf_addc(out, '{');
    bool seen = false;
    for (uint32_t k = 0; k < c->n_tops[r.at]; k++) {
        const struct msg_top *t = &c->tops[(size_t)r.at * params->n_top + k];
        seen |= t->id == r.id;
        if (k) buf_addc(out, ',');
        token_name(out, m, t->id);
        buf_addc(out, ':');
        json_out_logprob(out, t->logprob);
    }
    if (!seen) { /* the chosen token is always there */
        if (c->n_tops[r.at]) buf_addc(out, ',');
        token_name(out, m, r.id);
        buf_addc(out, ':');
        json_out_logprob(out, c->lps[r.at]);
    }
    buf_addc(out, '}');
}

static void offsets(struct buf *out, const struct choice *c, const struct api_params *params,
                    const struct model *m, uint32_t from, uint32_t to, uint64_t chars)
{
    for (uint32_t i = from; i < to; i++) {
        size_t n;
        buf_addf(out, i > from ? ",%llu" : "%llu", (unsigned long long)chars);
        const uint8_t *b = detok_visible(m->vocab, row_of(c, i).id, params->skip_special, &n);
        for (size_t k = 0; k < n; k++) chars += (b[k] & 0xc0) != 0x80;
    }
}

void logprobs_completion(struct buf *out, const struct choice *c, const struct api_params *params,
                         const struct model *m, const struct piece *p)
{
    uint32_t to = c->seq.n_prompt + p->first + p->n,
             from = p->prompt ? 0 : c->seq.n_prompt + p->first;
    buf_adds(out, "{\"tokens\":[");
    for (uint32_t i = from; i < to; i++) {
        if (i > from) buf_addc(out, ',');
        token_name(out, m, row_of(c, i).id);
    }
    buf_adds(out, "],\"token_logprobs\":[");
    for (uint32_t i = from; i < to; i++) {
        struct row r = row_of(c, i);
        if (i > from) buf_addc(out, ',');
        if (r.scored) json_out_logprob(out, c->lps[r.at]);
        else buf_adds(out, "null");
    }
    buf_adds(out, "],\"top_logprobs\":[");
    for (uint32_t i = from; i < to; i++) {
        struct row r = row_of(c, i);
        if (i > from) buf_addc(out, ',');
        if (r.scored) top_object(out, c, params, m, r);
        else buf_adds(out, "null");
    }
    buf_adds(out, "],\"text_offset\":[");
    offsets(out, c, params, m, from, to, p->chars);
    buf_adds(out, "]}");
}
