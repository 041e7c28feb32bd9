#include "model/model.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TEMPLATE_BYTES_MAX (1u << 20)

/* The file's name without folder and .gguf, or the name as given. */
static int set_name(struct model *m, const char *path, const char *name, struct err *e)
{
    const char *slash = strrchr(path, '/');
    const char *s = name ? name : slash ? slash + 1 : path;
    size_t n = strlen(s);
    if (!name && n > 5 && strcasecmp(s + n - 5, ".gguf") == 0)
        n -= 5;
    if (n == 0 || n >= sizeof m->name)
        return err_set(e, ERR_BAD_VALUE, "the model's name must have 1 to %zu bytes",
                       sizeof m->name - 1);
    memcpy(m->name, s, n);
    m->name[n] = 0;
    return 0;
}

/* bos_token and eos_token are the template's own text: they may become control tokens. */
static int name_token(struct model *m, const char *name, int32_t id, struct err *e)
{
    char text[256];
    size_t n = 0;
    const uint8_t *p = id < 0 ? NULL : vocab_bytes(m->vocab, id, &n);
    if (n >= sizeof text)
        return err_set(e, ERR_BAD_FILE, "the text of %s is %zu bytes long", name, n);
    if (n > 0)
        memcpy(text, p, n);
    text[n] = 0;
    return chat_template_set_token(m->chat, name, text, e);
}

static int open_template(struct model *m, struct err *e)
{
    struct gguf_str s;
    if (gguf_get_str(m->gguf, "tokenizer.chat_template", &s) != 0)
        return 0;
    if (s.n > TEMPLATE_BYTES_MAX)
        return err_set(e, ERR_BAD_FILE,
                       "key 'tokenizer.chat_template' is %zu bytes long, at most %u are "
                       "allowed",
                       s.n, TEMPLATE_BYTES_MAX);
    if (chat_template_create(&m->chat, s.p, s.n, e) != 0)
        return -1;
    m->template_hash = chat_template_hash(m->chat);
    /* every door takes roles from a closed list before it renders (gateway/api_messages) */
    chat_template_trust_roles(m->chat, true);
    if (name_token(m, "bos_token", vocab_bos(m->vocab), e) != 0)
        return -1;
    return name_token(m, "eos_token", vocab_eos(m->vocab), e);
}

int model_open(struct model *m, const char *path, const char *name, struct err *e)
{
    memset(m, 0, sizeof *m);
    if (set_name(m, path, name, e) != 0 || gguf_open(&m->gguf, path, e) != 0)
        goto fail;
    if (hparams_read(&m->hp, m->gguf, e) != 0 || vocab_create(&m->vocab, m->gguf, e) != 0 ||
        tokenizer_create(&m->tok, m->gguf, m->vocab, e) != 0 || open_template(m, e) != 0)
        goto fail;
    m->vocab_hash = vocab_hash(m->vocab);
    return 0;
fail:
    model_close(m);
    return -1;
}

void model_close(struct model *m)
{
    chat_template_destroy(&m->chat);
    tokenizer_destroy(&m->tok);
    vocab_destroy(&m->vocab);
    gguf_close(&m->gguf);
    memset(m, 0, sizeof *m);
}

static int render(const struct model *m, const json_t *messages, bool add_generation_prompt,
                  struct chat_text *text, struct err *e)
{
    if (!m->chat)
        return err_set(e, ERR_INVALID, "the model %s has no chat template; use completions",
                       m->name);
    return chat_template_render(m->chat, messages, add_generation_prompt, NULL, text, e);
}

/* Text between two control tokens is tokenized as one, even where it goes from the template's own
 * text into the caller's: "user\n" before a message that begins with "\n" is one run of white
 * space, as everywhere else. Only own pieces are searched for control tokens. */
static int encode_pieces(const struct model *m, struct tokenizer_scratch *s,
                         const struct chat_text *text, size_t max_ids, struct id_list *out,
                         struct err *e)
{
    size_t done = 0, begin = 0;
    for (size_t i = 0; i < text->n_pieces; i++) {
        const struct chat_piece *piece = &text->pieces[i];
        size_t at = 0, len;
        for (int32_t id; piece->own && at < piece->n; at += len) {
            id = tokenizer_next_control(m->tok, piece->p, piece->n, &at, &len);
            if (id < 0)
                break;
            if (tokenizer_encode(m->tok, s, text->text + done, begin + at - done, false, max_ids,
                                 out, e) != 0)
                return -1;
            done = begin + at + len;
            if (max_ids != 0 && out->n >= max_ids)
                return err_set(e, ERR_TOO_LARGE, "the text has more than %zu tokens", max_ids);
            if (id_list_add(out, &id, 1) != 0)
                return err_set(e, ERR_NO_MEMORY, "no memory to tokenize the chat");
        }
        begin += piece->n;
    }
    return tokenizer_encode(m->tok, s, text->text + done, text->n - done, false, max_ids, out, e);
}

int model_chat_ids(const struct model *m, struct tokenizer_scratch *s, const json_t *messages,
                   bool add_generation_prompt, size_t max_ids, struct id_list *out, struct err *e)
{
    struct chat_text text = {0};
    int rc = render(m, messages, add_generation_prompt, &text, e);
    if (rc == 0)
        rc = encode_pieces(m, s, &text, max_ids, out, e);
    chat_text_deinit(&text);
    return rc;
}
