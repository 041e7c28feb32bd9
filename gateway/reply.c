#include "gateway/reply.h"

#include "base/hash.h"
#include "gateway/json_out.h"
#include "gateway/logprobs.h"

#include <inttypes.h>
#include <string.h>

static bool is_chat(const struct request *r)
{
    return r->job.endpoint == ENDPOINT_CHAT;
}

void reply_head(struct request *r)
{
    bool chat = is_chat(r);
    const char *object = !chat                  ? "text_completion"
                         : r->job.params.stream ? "chat.completion.chunk"
                                                : "chat.completion";
    buf_addf(&r->head, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", r->id,
             object, r->created_s);
    json_out_str(&r->head, r->g->model->name, strlen(r->g->model->name));
    if (r->job.params.tier[0]) buf_addf(&r->head, ",\"service_tier\":\"%s\"", r->job.params.tier);
}

/* What was cached before the request came: the least of a prompt's choices, since later ones find
 * what the first has computed. Those that have said nothing yet are not asked. */
static uint64_t cached_of(const struct request *r)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < r->job.n_prompts; k++) {
        uint32_t least = UINT32_MAX;
        for (uint32_t i = 0; i < r->n_choices; i++) {
            const struct choice *c = &r->choices[i];
            if (c->prompt == &r->job.prompts[k] && c->seq.n_out > 0 && c->seq.cached < least)
                least = c->seq.cached;
        }
        sum += least != UINT32_MAX ? least : 0;
    }
    return sum;
}

/* `rendered`: count what was written so far (stream); else what was made. */
static void add_usage(const struct request *r, bool rendered, struct buf *out)
{
    uint64_t prompt = 0, made = 0;
    for (uint32_t i = 0; i < r->job.n_prompts; i++) prompt += r->job.prompts[i].ids.n;
    for (uint32_t i = 0; i < r->n_choices; i++)
        made += rendered ? r->choices[i].cursor : r->choices[i].seq.n_out;
    buf_addf(out,
             "{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
             ",\"total_tokens\":%" PRIu64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64
             "},\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
             prompt, made, prompt + made, cached_of(r));
}

static void add_finish(enum finish f, struct buf *out)
{
    const char *text = finish_openai(f);
    if (text) buf_addf(out, ",\"finish_reason\":\"%s\"", text);
    else buf_adds(out, ",\"finish_reason\":null");
}

static void add_logprobs(const struct request *r, const struct choice *c, const struct piece *p,
                         struct buf *out)
{
    const struct api_params *params = &r->job.params;
    buf_adds(out, ",\"logprobs\":");
    if (!params->logprobs || (p->n == 0 && !p->prompt)) buf_adds(out, "null");
    else if (is_chat(r)) logprobs_chat(out, c, params, r->g->model, p);
    else logprobs_completion(out, c, params, r->g->model, p);
}

static void add_delta(const struct piece *p, const struct buf *text, struct buf *out)
{
    buf_adds(out, ",\"delta\":{");
    if (p->begins) buf_adds(out, "\"role\":\"assistant\",");
    if (p->begins || text->len) {
        buf_adds(out, "\"content\":");
        json_out_str(out, text->p, text->len);
    }
    buf_addc(out, '}');
}

/* Completion text: the echoed prompt, then the output. */
static void add_text(const struct choice *c, const struct piece *p, const struct buf *text,
                     struct buf *out)
{
    buf_adds(out, ",\"text\":");
    if (!p->prompt) {
        json_out_str(out, text->p, text->len);
        return;
    }
    struct buf all = {0};
    buf_add(&all, c->prompt->text, c->prompt->n_text);
    buf_add(&all, text->p, text->len);
    json_out_bytes(out, (const uint8_t *)all.p, all.len);
    if (all.bad) out->bad = true;
    buf_deinit(&all);
}

void reply_chunk(struct request *r, const struct choice *c, const struct piece *p,
                 const struct buf *text, struct buf *out)
{
    buf_add(out, r->head.p, r->head.len);
    buf_addf(out, ",\"choices\":[{\"index\":%" PRIu32, c->index);
    if (is_chat(r)) add_delta(p, text, out);
    else add_text(c, p, text, out);
    add_logprobs(r, c, p, out);
    add_finish(p->finish, out);
    buf_adds(out, "}]");
    if (r->job.params.continuous_usage) {
        buf_adds(out, ",\"usage\":");
        add_usage(r, true, out);
    } else if (r->job.params.include_usage) {
        buf_adds(out, ",\"usage\":null");
    }
    buf_addc(out, '}');
}

void reply_usage_chunk(struct request *r, struct buf *out)
{
    buf_add(out, r->head.p, r->head.len);
    buf_adds(out, ",\"choices\":[],\"usage\":");
    add_usage(r, false, out);
    buf_addc(out, '}');
}

static void add_choice(struct request *r, struct choice *c, struct buf *out)
{
    struct buf text = {0};
    struct piece all = {0}, p;
    bool first = true;
    while (choice_next(c, &r->job.params, r->g->model, r->stops, &text, &p)) {
        if (first) all = p;
        else all.n += p.n;
        first = false;
        all.finish = p.finish;
    }
    buf_addf(out, "{\"index\":%" PRIu32, c->index);
    if (is_chat(r)) {
        buf_adds(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
        json_out_str(out, text.p, text.len);
        buf_adds(out, ",\"refusal\":null,\"annotations\":[]}");
    } else {
        add_text(c, &all, &text, out);
    }
    add_logprobs(r, c, &all, out);
    add_finish(all.finish, out);
    buf_addc(out, '}');
    if (text.bad) out->bad = true;
    buf_deinit(&text);
}

int reply_whole(struct request *r)
{
    struct buf *out = &r->body;
    buf_add(out, r->head.p, r->head.len);
    buf_adds(out, ",\"choices\":[");
    for (uint32_t i = 0; i < r->n_choices; i++) {
        if (i) buf_addc(out, ',');
        add_choice(r, &r->choices[i], out);
    }
    buf_adds(out, "],\"usage\":");
    add_usage(r, false, out);
    buf_addc(out, '}');
    return out->bad ? -1 : 0;
}
