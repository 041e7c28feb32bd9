#include "gateway/api_tokenize.h"

#include "gateway/api_messages.h"
#include "gateway/json_out.h"

#include <inttypes.h>

#define TOKENIZE_IDS_MAX (4u << 20)

static int ids_of(const struct model *m, const json_t *body, struct tokenizer_scratch *s,
                  struct id_list *ids, struct err *e)
{
    bool generate = true, special = true;
    struct api_str text = {0};
    if (api_bool(body, "add_generation_prompt", &generate, e) < 0) return -1;
    if (api_bool(body, "add_special_tokens", &special, e) < 0)
        return -1; /* the model adds none of its own */
    if (api_get(body, "messages")) {
        if (m->chat == NULL)
            return err_set(e, ERR_UNSUPPORTED, "The model file has no chat template.");
        json_t *messages = api_messages(body, e);
        if (messages == NULL) return -1;
        int r = model_chat_ids(m, s, messages, generate, TOKENIZE_IDS_MAX, ids, e);
        json_decref(messages);
        return r;
    }
    int r = api_string(body, "prompt", &text, e);
    if (r == 0) r = api_string(body, "content", &text, e);
    if (r < 0) return -1;
    if (r == 0)
        return err_set_param(e, ERR_MISSING, "prompt", "Provide 'prompt' (text) or 'messages'.");
    return tokenizer_encode(m->tok, s, text.p, text.n, true, TOKENIZE_IDS_MAX, ids, e);
}

int api_tokenize(const struct model *m, const struct api_limits *lim, const json_t *body,
                 struct tokenizer_scratch *s, struct buf *out, struct err *e)
{
    struct id_list ids = {0};
    bool strs = false;
    int r = api_bool(body, "return_token_strs", &strs, e) < 0 ? -1 : ids_of(m, body, s, &ids, e);
    if (r == 0) {
        buf_addf(out, "{\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"tokens\":[", ids.n,
                 lim->n_ctx);
        for (size_t i = 0; i < ids.n; i++) buf_addf(out, i ? ",%d" : "%d", ids.ids[i]);
        buf_adds(out, "],\"token_strs\":");
        if (strs) buf_addc(out, '[');
        for (size_t i = 0; strs && i < ids.n; i++) {
            size_t n;
            const uint8_t *b = vocab_bytes(m->vocab, ids.ids[i], &n);
            if (i) buf_addc(out, ',');
            json_out_bytes(out, b, n);
        }
        buf_adds(out, strs ? "]}" : "null}");
        if (out->bad) r = err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    id_list_deinit(&ids);
    return r;
}

int api_detokenize(const struct model *m, const struct api_limits *lim, const json_t *body,
                   struct buf *out, struct err *e)
{
    const json_t *t = api_get(body, "tokens"), *v;
    size_t i;
    if (!json_is_array(t)) {
        return err_set_param(e, t ? ERR_BAD_TYPE : ERR_MISSING, "tokens",
                             "Provide 'tokens', a list of token ids.");
    }
    struct buf text = {0};
    struct detok d = {0};
    json_array_foreach(t, i, v) {
        int32_t id;
        if (api_token_id(v, "tokens", lim->n_vocab, &id, e) != 0) {
            buf_deinit(&text);
            return -1;
        }
        size_t n;
        const uint8_t *b = vocab_bytes(m->vocab, id, &n);
        detok_push(&d, b, n, &text);
    }
    detok_end(&d, &text);
    buf_adds(out, "{\"prompt\":");
    json_out_str(out, text.p, text.len);
    buf_adds(out, ",\"content\":"); /* llama-server's name for it */
    json_out_str(out, text.p, text.len);
    buf_addc(out, '}');
    int r = text.bad || out->bad ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
    buf_deinit(&text);
    return r;
}
