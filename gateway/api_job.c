#include "gateway/api_job.h"

#include "base/mem.h"
#include "gateway/api_messages.h"
#include "gateway/api_tokenize.h"

#include <string.h>

void api_job_init(struct api_job *j, const struct model *m, const struct api_limits *limits,
                  const struct request_in *in)
{
    memset(j, 0, sizeof *j);
    j->model = m;
    j->limits = limits;
    j->endpoint = in->endpoint;
    memcpy(j->cls, in->cls, sizeof j->cls);
    j->rules = (struct api_rules){.model_ok = true};
    j->body = in->body;
    j->n_body = in->n_body;
    buf_init(&j->reply, 256u << 20);
}

void api_job_deinit(struct api_job *j)
{
    for (uint32_t i = 0; i < j->n_prompts; i++) {
        id_list_deinit(&j->prompts[i].ids);
        mem_free(j->prompts[i].text);
    }
    mem_free(j->prompts);
    mem_free(j->body);
    api_params_deinit(&j->params);
    buf_deinit(&j->reply);
    memset(j, 0, sizeof *j);
}

/* The prompt must leave room for one output id, or exactly fill the context when nothing is to be
 * made. */
static int check_length(const struct api_job *j, const struct api_prompt *p, const char *param,
                        struct err *e)
{
    size_t room = j->params.max_tokens > 0 ? 1 : 0, n = p->ids.n;
    if (n == 0)
        return err_set_param(e, ERR_BAD_VALUE, param,
                             "The prompt is empty; it needs at least one token.");
    if (n + room <= j->limits->n_ctx) return 0;
    return err_set_param(e, ERR_CONTEXT_LENGTH, param,
                         "This model's maximum context length is %u tokens, however your prompt "
                         "has %zu%s; shorten it.",
                         j->limits->n_ctx, n, room ? " and at least one token must be made" : "");
}

/* Tokenizing stops soon after the context is full, so a huge text costs little; the count is then
 * "more than". */
static size_t id_limit(const struct api_job *j)
{
    return (size_t)j->limits->n_ctx * 4 + 16;
}

static int too_long(const struct api_job *j, const char *param, struct err *e)
{
    if (e->code != ERR_TOO_LARGE) return -1;
    return err_set_param(e, ERR_CONTEXT_LENGTH, param,
                         "This model's maximum context length is %u tokens, however your prompt "
                         "has more than %zu; shorten it.",
                         j->limits->n_ctx, id_limit(j));
}

static int chat_prompt(struct api_job *j, const json_t *body, struct tokenizer_scratch *s,
                       struct err *e)
{
    bool generate = true;
    if (api_bool(body, "add_generation_prompt", &generate, e) < 0) return -1;
    if (j->model->chat == NULL) {
        return err_set(e, ERR_UNSUPPORTED,
                       "The model file has no chat template; use /v1/completions.");
    }
    json_t *messages = api_messages(body, e);
    if (messages == NULL) return -1;
    j->prompts = mem_array(1, sizeof *j->prompts);
    int r = -1;
    if (j->prompts == NULL) {
        err_set(e, ERR_NO_MEMORY, "out of memory");
    } else {
        j->n_prompts = 1;
        r = model_chat_ids(j->model, s, messages, generate, id_limit(j), &j->prompts[0].ids, e);
        if (r != 0) too_long(j, "messages", e);
        else r = check_length(j, &j->prompts[0], "messages", e);
    }
    json_decref(messages);
    return r;
}

static int text_prompt(struct api_job *j, struct api_prompt *p, const json_t *v,
                       struct tokenizer_scratch *s, struct err *e)
{
    const char *text = json_string_value(v);
    size_t n = json_string_length(v);
    /* completions parse control tokens written in the text, as vLLM does: the caller writes the raw
     * prompt */
    if (tokenizer_encode(j->model->tok, s, text, n, true, id_limit(j), &p->ids, e) != 0)
        return too_long(j, "prompt", e);
    if (j->params.echo) {
        p->text = mem_memdup(text, n ? n : 1);
        p->n_text = n;
        if (p->text == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    return check_length(j, p, "prompt", e);
}

static int echo_ids(const struct api_job *j, struct api_prompt *p, struct err *e)
{
    struct buf text = {0};
    struct detok d = {0};
    for (size_t i = 0; i < p->ids.n; i++) {
        size_t n;
        const uint8_t *b =
            detok_visible(j->model->vocab, p->ids.ids[i], j->params.skip_special, &n);
        detok_push(&d, b, n, &text);
    }
    detok_end(&d, &text);
    p->text = buf_take(&text, &p->n_text);
    return p->text ? 0 : err_set(e, ERR_NO_MEMORY, "out of memory");
}

static int ids_prompt(struct api_job *j, struct api_prompt *p, const json_t *v, struct err *e)
{
    size_t i;
    const json_t *x;
    int32_t id;
    if (json_array_size(v) > id_limit(j)) {
        return err_set_param(e, ERR_CONTEXT_LENGTH, "prompt",
                             "This model's maximum context length is %u tokens, however your "
                             "prompt has %zu; shorten it.",
                             j->limits->n_ctx, json_array_size(v));
    }
    json_array_foreach(v, i, x) {
        if (api_token_id(x, "prompt", j->limits->n_vocab, &id, e) != 0) return -1;
        if (id_list_add(&p->ids, &id, 1) != 0) return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    if (check_length(j, p, "prompt", e) != 0) return -1;
    return j->params.echo ? echo_ids(j, p, e) : 0;
}

static int completion_prompts(struct api_job *j, const json_t *body, struct tokenizer_scratch *s,
                              struct err *e)
{
    const json_t *v = api_get(body, "prompt");
    if (v == NULL) return err_set_param(e, ERR_MISSING, "prompt", "You must provide a 'prompt'.");
    const json_t *first = json_is_array(v) ? json_array_get(v, 0) : NULL;
    if (!json_is_string(v) && !json_is_array(v)) {
        return err_set_param(e, ERR_BAD_TYPE, "prompt",
                             "'prompt' must be a string, a list of strings, a list of token ids or "
                             "a list of those.");
    }
    if (json_is_array(v) && first == NULL)
        return err_set_param(e, ERR_BAD_VALUE, "prompt", "'prompt' must not be empty.");
    bool list = first && !json_is_number(first);
    size_t n = list ? json_array_size(v) : 1;
    if (n * j->params.n > j->limits->max_choices) {
        return err_set_param(e, ERR_BAD_VALUE, "prompt",
                             "%zu prompts x n = %u are more than %u choices.", n, j->params.n,
                             j->limits->max_choices);
    }
    j->prompts = mem_array(n, sizeof *j->prompts);
    if (j->prompts == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    j->n_prompts = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = list ? json_array_get(v, i) : v;
        int r = json_is_string(x) ? text_prompt(j, &j->prompts[i], x, s, e)
                : json_is_array(x)
                    ? ids_prompt(j, &j->prompts[i], x, e)
                    : err_set_param(e, ERR_BAD_TYPE, "prompt",
                                    "prompt[%zu] must be a string or a list of token ids.", i);
        if (r != 0) return -1;
    }
    return 0;
}

/* Other names are 404 before: who may not use it learns no more than that it is here. */
static int check_model(const struct api_job *j, const json_t *body, bool required, struct err *e)
{
    if (api_check_model(body, j->limits, required, e) != 0) return -1;
    if (j->rules.model_ok) return 0;
    return err_set_param(e, ERR_FORBIDDEN, "model", "This key may not use the model '%s'.",
                         j->limits->model_name);
}

static int work(struct api_job *j, const json_t *body, struct tokenizer_scratch *s, struct err *e)
{
    if (j->endpoint == ENDPOINT_TOKENIZE || j->endpoint == ENDPOINT_DETOKENIZE) {
        if (check_model(j, body, false, e) != 0) return -1;
        return j->endpoint == ENDPOINT_TOKENIZE
                   ? api_tokenize(j->model, j->limits, body, s, &j->reply, e)
                   : api_detokenize(j->model, j->limits, body, &j->reply, e);
    }
    if (check_model(j, body, true, e) != 0) return -1;
    if (api_params_read(&j->params, j->endpoint, body, j->cls, &j->rules, j->limits, e) != 0)
        return -1;
    return j->endpoint == ENDPOINT_CHAT ? chat_prompt(j, body, s, e)
                                        : completion_prompts(j, body, s, e);
}

void api_job_work(struct api_job *j, struct tokenizer_scratch *scratch)
{
    json_t *body = api_parse_body(j->body, j->n_body, &j->err);
    j->failed = body == NULL || work(j, body, scratch, &j->err) != 0;
    json_decref(body);
    mem_free(j->body); /* the text is not needed any more: ids only from here on (E9) */
    j->body = NULL;
}
