#include "gateway/api_params.h"

#include "base/mem.h"
#include "gateway/class_choice.h"

#include <stdlib.h>
#include <string.h>

/* Known fields that would change the answer and that we cannot honour (yet): 400, never ignored. */
static const char *const unsupported[] = {
    "functions",
    "function_call",
    "audio",
    "web_search_options",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "suffix",
    "truncate_prompt_tokens",
    "chat_template",
    "chat_template_kwargs",
    "prompt_embeds",
    "documents",
    "logits_processors",
    "length_penalty",
};

static int unsupported_field(struct err *e, const char *key, const char *why)
{
    return err_set_param(e, ERR_UNSUPPORTED, key, "'%s' is not supported: %s.", key, why);
}

static int read_refused(const json_t *o, struct err *e)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        if (api_get(o, unsupported[i]))
            return unsupported_field(e, unsupported[i], "this server cannot honour it");
    }
    bool b = false;
    if (api_bool(o, "use_beam_search", &b, e) < 0) return -1;
    if (b)
        return unsupported_field(e, "use_beam_search", "this server samples, it does not search");
    if (api_bool(o, "continue_final_message", &b, e) < 0) return -1;
    if (b)
        return unsupported_field(e, "continue_final_message",
                                 "a chat always begins a new assistant message");
    const json_t *m = api_get(o, "modalities");
    if (m &&
        !(json_is_array(m) && json_array_size(m) == 1 && json_is_string(json_array_get(m, 0)) &&
          strcmp(json_string_value(json_array_get(m, 0)), "text") == 0)) {
        return unsupported_field(e, "modalities", "only [\"text\"] is");
    }
    return 0;
}

static int read_tools(const json_t *o, struct err *e)
{
    const json_t *tools = api_get(o, "tools"), *choice = api_get(o, "tool_choice");
    bool none = json_is_string(choice) && strcmp(json_string_value(choice), "none") == 0;
    if (tools) {
        if (!json_is_array(tools))
            return err_set_param(e, ERR_BAD_TYPE, "tools", "'tools' must be an array.");
        if (json_array_size(tools) == 0)
            return err_set_param(e, ERR_BAD_VALUE, "tools", "'tools' must not be empty.");
        if (!none)
            return unsupported_field(e, "tools",
                                     "tool calls cannot be made yet; send tool_choice \"none\"");
    } else if (choice && !none) {
        return err_set_param(e, ERR_BAD_VALUE, "tool_choice",
                             "'tool_choice' is only allowed when 'tools' are given.");
    }
    const json_t *f = api_get(o, "response_format");
    if (f == NULL) return 0;
    const json_t *type = json_object_get(f, "type");
    if (!json_is_string(type)) {
        return err_set_param(e, ERR_BAD_VALUE, "response_format",
                             "'response_format' needs a 'type'.");
    }
    const char *t = json_string_value(type);
    if (strcmp(t, "text") == 0) return 0;
    if (strcmp(t, "json_schema") == 0 && !json_is_object(json_object_get(f, "json_schema"))) {
        return err_set_param(e, ERR_MISSING, "response_format",
                             "'response_format' of type json_schema needs 'json_schema'.");
    }
    return unsupported_field(e, "response_format", "only type \"text\" is available");
}

static int read_stream(struct api_params *p, const json_t *o, struct err *e)
{
    if (api_bool(o, "stream", &p->stream, e) < 0) return -1;
    const json_t *so = api_get(o, "stream_options");
    if (so == NULL) return 0;
    if (!json_is_object(so))
        return err_set_param(e, ERR_BAD_TYPE, "stream_options",
                             "'stream_options' must be an object.");
    if (!p->stream) {
        return err_set_param(e, ERR_BAD_VALUE, "stream_options",
                             "'stream_options' is only allowed when 'stream' is true.");
    }
    if (api_bool(so, "include_usage", &p->include_usage, e) < 0) return -1;
    return api_bool(so, "continuous_usage_stats", &p->continuous_usage, e) < 0 ? -1 : 0;
}

/* What the caller gave, against the tenant's cap; else the default, within it. */
static int resolve_max(struct api_params *p, int64_t max, const char *field,
                       const struct api_rules *rules, const struct api_limits *lim, struct err *e)
{
    int64_t cap = rules->max_output;
    int64_t chat = rules->default_output ? rules->default_output : lim->default_max_tokens_chat;
    p->max_tokens = max >= 0 ? max : p->endpoint == ENDPOINT_CHAT ? chat : 16;
    if (cap == 0 || p->max_tokens <= cap) return 0;
    if (max < 0) p->max_tokens = cap;
    else
        return err_set_param(e, ERR_BAD_VALUE, field, "'%s' is %lld, this key may ask for %lld.",
                             field, (long long)max, (long long)cap);
    return 0;
}

static int read_limits(struct api_params *p, const json_t *o, const struct api_rules *rules,
                       const struct api_limits *lim, struct err *e)
{
    int64_t n = 1, best_of = -1, max = -1, max2 = -1;
    bool chat = p->endpoint == ENDPOINT_CHAT;
    if (api_int(o, "n", 1, lim->max_choices, &n, e) < 0) return -1;
    if (api_int(o, "best_of", 1, lim->max_choices, &best_of, e) < 0) return -1;
    if (best_of > n) return unsupported_field(e, "best_of", "it must not be larger than 'n'");
    p->n = (uint32_t)n;
    if (!chat && api_bool(o, "echo", &p->echo, e) < 0) return -1;
    if (api_int(o, "max_tokens", p->echo ? 0 : 1, INT32_MAX, &max, e) < 0) return -1;
    if (chat && api_int(o, "max_completion_tokens", 1, INT32_MAX, &max2, e) < 0) return -1;
    const char *field = max2 >= 0 ? "max_completion_tokens" : "max_tokens";
    if (resolve_max(p, max2 >= 0 ? max2 : max, field, rules, lim, e) != 0) return -1;
    if (api_int(o, "min_tokens", 0, INT32_MAX, &p->min_tokens, e) < 0) return -1;
    if (p->min_tokens > p->max_tokens) {
        return err_set_param(e, ERR_BAD_VALUE, "min_tokens",
                             "'min_tokens' (%lld) is larger than max_tokens (%lld).",
                             (long long)p->min_tokens, (long long)p->max_tokens);
    }
    int64_t priority = 0;
    if (api_int(o, "priority", INT64_MIN, INT64_MAX, &priority, e) < 0) return -1;
    /* smaller is sooner, as vLLM has it; the scheduler counts the other way */
    p->priority = (int8_t)(priority < -7 ? 7 : priority > 8 ? -8 : -priority);
    return 0;
}

static int read_sampling(struct api_params *p, const json_t *o, struct err *e)
{
    int64_t k = 0, seed = 0;
    p->temperature = p->top_p = p->repetition_penalty = 1;
    if (api_float(o, "temperature", 0, 2, &p->temperature, e) < 0) return -1;
    if (api_float(o, "top_p", 0, 1, &p->top_p, e) < 0) return -1;
    if (p->top_p == 0) p->top_p = 1e-6; /* 0 means "only the best", as OpenAI takes it */
    if (api_float(o, "min_p", 0, 1, &p->min_p, e) < 0) return -1;
    if (api_int(o, "top_k", -1, INT32_MAX, &k, e) < 0) return -1;
    p->top_k = k < 0 ? 0 : (int32_t)k;
    if (api_float(o, "repetition_penalty", 0.01, 10, &p->repetition_penalty, e) < 0) return -1;
    if (api_float(o, "presence_penalty", -2, 2, &p->presence_penalty, e) < 0) return -1;
    if (api_float(o, "frequency_penalty", -2, 2, &p->frequency_penalty, e) < 0) return -1;
    int r = api_int(o, "seed", INT64_MIN, INT64_MAX, &seed, e);
    if (r < 0) return -1;
    p->has_seed = r == 1;
    p->seed = (uint64_t)seed;
    return 0;
}

static int read_logprobs(struct api_params *p, const json_t *o, struct err *e)
{
    int64_t k = 0;
    if (p->endpoint == ENDPOINT_COMPLETION) {
        int r = api_int(o, "logprobs", 0, MSG_TOP_MAX, &k, e);
        p->logprobs = r == 1;
        p->n_top = (uint8_t)k;
        return r < 0 ? -1 : 0;
    }
    if (api_bool(o, "logprobs", &p->logprobs, e) < 0) return -1;
    int r = api_int(o, "top_logprobs", 0, MSG_TOP_MAX, &k, e);
    if (r < 0) return -1;
    if (r == 1 && k > 0 && !p->logprobs) {
        return err_set_param(e, ERR_BAD_VALUE, "top_logprobs",
                             "'top_logprobs' needs 'logprobs' to be true.");
    }
    p->n_top = (uint8_t)k;
    return 0;
}

static int add_stop(struct api_params *p, const json_t *v, struct err *e)
{
    if (!json_is_string(v))
        return err_set_param(e, ERR_BAD_TYPE, "stop",
                             "'stop' must be a string or a list of strings.");
    size_t n = json_string_length(v);
    if (n == 0 || n > MSG_STOP_BYTES_MAX) {
        return err_set_param(e, ERR_BAD_VALUE, "stop",
                             "A stop string has 1 to %d bytes, this one %zu.", MSG_STOP_BYTES_MAX,
                             n);
    }
    char *copy = mem_memdup(json_string_value(v), n);
    if (copy == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    p->stops[p->n_stops++] = (struct msg_stop){copy, (uint32_t)n};
    return 0;
}

static int read_stops(struct api_params *p, const json_t *o, int32_t n_vocab, struct err *e)
{
    const json_t *s = api_get(o, "stop"), *v;
    size_t i;
    if (json_is_array(s)) {
        if (json_array_size(s) > 4)
            return err_set_param(e, ERR_BAD_VALUE, "stop", "At most 4 stop strings, not %zu.",
                                 json_array_size(s));
        json_array_foreach(s, i, v) {
            if (add_stop(p, v, e) != 0) return -1;
        }
    } else if (s && add_stop(p, s, e) != 0) {
        return -1;
    }
    const json_t *ids = api_get(o, "stop_token_ids");
    if (ids == NULL) return 0;
    if (!json_is_array(ids))
        return err_set_param(e, ERR_BAD_TYPE, "stop_token_ids",
                             "'stop_token_ids' must be a list of token ids.");
    if (json_array_size(ids) > MSG_STOP_IDS_MAX) {
        return err_set_param(e, ERR_BAD_VALUE, "stop_token_ids", "At most %d stop token ids.",
                             MSG_STOP_IDS_MAX);
    }
    json_array_foreach(ids, i, v) {
        if (api_token_id(v, "stop_token_ids", n_vocab, &p->stop_ids[p->n_stop_ids], e) != 0)
            return -1;
        p->n_stop_ids++;
    }
    return 0;
}

static int bias_entry(struct api_params *p, const char *key, const json_t *v, int32_t n_vocab,
                      struct err *e)
{
    size_t digits = strspn(key, "0123456789");
    bool plain = digits > 0 && digits < 12 && key[digits] == '\0';
    long long id = plain ? strtoll(key, NULL, 10) : -1;
    if (id < 0 || id >= n_vocab) {
        return err_set_param(e, ERR_BAD_VALUE, "logit_bias",
                             "logit_bias key '%.32s' is not a token id in 0 .. %d.", key,
                             n_vocab - 1);
    }
    double d = json_number_value(v);
    if (!json_is_number(v) || !(d >= -100 && d <= 100)) {
        return err_set_param(e, ERR_BAD_VALUE, "logit_bias",
                             "logit_bias of token %lld must be a number in -100 .. 100.", id);
    }
    p->bias[p->n_bias++] = (struct msg_bias){(int32_t)id, (float)d};
    return 0;
}

static int read_bias(struct api_params *p, json_t *o, int32_t n_vocab, struct err *e)
{
    json_t *b = api_get(o, "logit_bias"), *v;
    const char *key;
    if (b == NULL) return 0;
    if (!json_is_object(b))
        return err_set_param(e, ERR_BAD_TYPE, "logit_bias",
                             "'logit_bias' must be an object of token id to bias.");
    size_t n = json_object_size(b);
    if (n == 0) return 0;
    if (n > MSG_BIAS_MAX)
        return err_set_param(e, ERR_BAD_VALUE, "logit_bias", "At most %d logit_bias entries.",
                             MSG_BIAS_MAX);
    p->bias = mem_array(n, sizeof *p->bias);
    if (p->bias == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    json_object_foreach(b, key, v) {
        if (bias_entry(p, key, v, n_vocab, e) != 0) return -1;
    }
    return 0;
}

/* As vLLM takes it. It divides what the tenant has cached; it never opens another tenant's. */
static int read_salt(struct api_params *p, const json_t *o, struct err *e)
{
    struct api_str s = {"", 0};
    int r = api_string(o, "cache_salt", &s, e);
    if (r <= 0) return r;
    if (s.n == 0 || s.n > MSG_SALT_MAX) {
        return err_set_param(e, ERR_BAD_VALUE, "cache_salt",
                             "'cache_salt' has 1 to %d bytes, this one %zu.", MSG_SALT_MAX, s.n);
    }
    p->cache_salt = mem_memdup(s.p, s.n);
    if (p->cache_salt == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    p->n_cache_salt = (uint32_t)s.n;
    return 0;
}

static int read_class(struct api_params *p, const json_t *o, const char *cls, uint8_t allowed,
                      const struct api_limits *lim, struct err *e)
{
    struct api_str tier = {"", 0};
    if (api_string(o, "service_tier", &tier, e) < 0) return -1;
    static const char *const tiers[] = {"auto", "default", "flex", "scale", "priority"};
    int t = -1;
    for (int i = 0; i < 5; i++) {
        if (tier.n == strlen(tiers[i]) && memcmp(tier.p, tiers[i], tier.n) == 0) t = i;
    }
    if (tier.n > 0 && t < 0) {
        return err_set_param(e, ERR_BAD_VALUE, "service_tier",
                             "'service_tier' must be auto, default, flex, scale or priority.");
    }
    if (allowed == 0) allowed = class_all(&lim->classes);
    if (class_choose(&lim->classes, allowed, cls, t == 2, &p->cls, e) != 0) return -1;
    if (t >= 0) { /* the tier actually used, only when asked */
        bool below = lim->classes.rows[p->cls].rank > 0;
        strcpy(p->tier, below ? "flex" : t == 4 ? "priority" : "default");
    }
    return 0;
}

int api_check_model(const json_t *body, const struct api_limits *limits, bool required,
                    struct err *e)
{
    struct api_str m = {0};
    int r = api_string(body, "model", &m, e);
    if (r < 0) return -1;
    if (r == 0) {
        if (!required) return 0;
        return err_set_param(e, ERR_MISSING, "model",
                             "You must provide a model parameter; this server has '%s'.",
                             limits->model_name);
    }
    if (m.n != strlen(limits->model_name) || memcmp(m.p, limits->model_name, m.n) != 0) {
        return err_set_param(e, ERR_MODEL_NOT_FOUND, "model",
                             "The model '%.*s' does not exist; this server has '%s'.",
                             (int)(m.n > 100 ? 100 : m.n), m.p, limits->model_name);
    }
    return 0;
}

int api_params_read(struct api_params *p, enum endpoint endpoint, const json_t *body,
                    const char *cls, const struct api_rules *rules,
                    const struct api_limits *limits, struct err *e)
{
    static const struct api_rules everything = {.model_ok = true};
    if (rules == NULL) rules = &everything;
    memset(p, 0, sizeof *p);
    p->endpoint = endpoint;
    p->skip_special = true;
    if (read_stream(p, body, e) != 0 || read_limits(p, body, rules, limits, e) != 0)
        return -1;
    if (read_sampling(p, body, e) != 0 || read_logprobs(p, body, e) != 0) return -1;
    if (read_stops(p, body, limits->n_vocab, e) != 0) return -1;
    if (read_bias(p, (json_t *)body, limits->n_vocab, e) != 0) return -1;
    if (api_bool(body, "ignore_eos", &p->ignore_eos, e) < 0) return -1;
    if (api_bool(body, "include_stop_str_in_output", &p->include_stop, e) < 0) return -1;
    if (api_bool(body, "skip_special_tokens", &p->skip_special, e) < 0) return -1;
    if (read_class(p, body, cls, rules->classes, limits, e) != 0) return -1;
    if (read_salt(p, body, e) != 0) return -1;
    return read_refused(body, e) != 0 || read_tools(body, e) != 0 ? -1 : 0;
}

void api_params_deinit(struct api_params *p)
{
    for (uint32_t i = 0; i < p->n_stops; i++) mem_free((void *)p->stops[i].p);
    mem_free(p->bias);
    mem_free(p->cache_salt);
    p->n_stops = p->n_bias = 0;
    p->bias = NULL;
    p->cache_salt = NULL;
    p->n_cache_salt = 0;
}
