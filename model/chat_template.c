#include "model/chat_template.h"

#include "base/mem.h"
#include "model/jinja_eval.h"
#include "model/jinja_parse.h"

#include <assert.h>
#include <string.h>

enum { SOURCE_MAX = 1 << 20, TOKENS_MAX = 16 };

struct chat_template {
    struct jrun run; /* owns the tree */
    struct jast ast;
    struct hash128 hash;
    struct { const char *name; struct jtext *text; } tokens[TOKENS_MAX];
    size_t n_tokens;
    bool trust_roles;
};

void chat_text_deinit(struct chat_text *t)
{
    mem_free(t->pieces);
    mem_free(t->text);
    memset(t, 0, sizeof *t);
}

/* JSON strings are valid UTF-8, so whatever the template is made into is, when it is itself. */
static bool is_utf8(const char *src, size_t n)
{
    json_t *s = json_stringn(src, n);
    bool ok = s != NULL;
    json_decref(s);
    return ok;
}

int chat_template_create(struct chat_template **out, const char *src, size_t n, struct err *e)
{
    *out = NULL;
    if (n > SOURCE_MAX)
        return err_set(e, ERR_TOO_LARGE, "the chat template is larger than %d bytes", SOURCE_MAX);
    if (!is_utf8(src, n))
        return err_set(e, ERR_BAD_FILE, "the chat template is not valid UTF-8");
    struct chat_template *t = mem_zalloc(sizeof *t);
    if (!t)
        return err_set(e, ERR_NO_MEMORY, "out of memory for the chat template");
    t->hash = hash128(src, n, 0);
    jrun_init(&t->run, e);
    if (jast_parse(&t->ast, &t->run, src, n)) {
        chat_template_destroy(&t);
        return -1;
    }
    t->run.e = NULL; /* the caller's storage ends here */
    *out = t;
    return 0;
}

void chat_template_destroy(struct chat_template **t)
{
    if (!*t)
        return;
    jrun_deinit(&(*t)->run);
    mem_free(*t);
    *t = NULL;
}

struct hash128 chat_template_hash(const struct chat_template *t)
{
    return t->hash;
}

int chat_template_set_token(struct chat_template *t, const char *name, const char *text,
                            struct err *e)
{
    t->run.e = e;
    size_t i = 0;
    while (i < t->n_tokens && strcmp(t->tokens[i].name, name) != 0)
        i++;
    if (i == TOKENS_MAX)
        return err_set(e, ERR_TOO_LARGE, "more than %d tokens named to the chat template",
                       TOKENS_MAX);
    t->tokens[i].name = jrun_strndup(&t->run, name, strlen(name));
    t->tokens[i].text = jtext_copy(&t->run, text, strlen(text), true);
    t->run.e = NULL;
    if (!t->tokens[i].name || !t->tokens[i].text)
        return -1;
    t->n_tokens += i == t->n_tokens;
    return 0;
}

void chat_template_trust_roles(struct chat_template *t, bool on)
{
    t->trust_roles = on;
}

/* Only these words: a caller who can choose among them still writes nothing of his own. */
static bool is_closed_role(struct jtext *t)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (t->n == strlen(roles[i]) && !memcmp(t->p, roles[i], t->n))
            return true;
    return false;
}

/* A message's null content is an empty text; its role may count as the template's own. */
static int fix_message(const struct chat_template *t, struct jrun *r, struct jdict *m)
{
    struct jv v, content, empty;
    struct jtext name = {.p = "content", .n = 7, .own = true};
    if (jdict_get_name(r, m, "content", &content) || jdict_get_name(r, m, "role", &v) ||
        jv_str_new(r, "", 0, false, &empty))
        return -1;
    if (content.kind == JV_NONE && jdict_set(r, m, jv_text(&name), empty))
        return -1;
    if (t->trust_roles && v.kind == JV_STR && is_closed_role(v.u.s))
        v.u.s->own = true; /* made for this run alone; the bytes are still borrowed */
    return 0;
}

static int bind_messages(const struct chat_template *t, struct jeval *ev, const json_t *messages)
{
    struct jv list;
    if (!json_is_array(messages))
        return err_set_param(ev->run.e, ERR_INVALID, "messages", "messages is not an array");
    if (jv_from_json(&ev->run, messages, &list))
        return -1;
    for (size_t i = 0; i < list.u.list->n; i++) {
        struct jv m = list.u.list->v[i];
        if (m.kind != JV_DICT)
            return err_set_param(ev->run.e, ERR_INVALID, "messages", "message %zu is not an object",
                                 i);
        if (fix_message(t, &ev->run, m.u.dict))
            return -1;
    }
    jeval_bind(ev, "messages", list);
    return 0;
}

/* Last wins: what the model file and the request itself say cannot be replaced by `extra`. */
static int bind_all(const struct chat_template *t, struct jeval *ev, const json_t *messages,
                    bool add_generation_prompt, const json_t *extra)
{
    static const char *const funcs[] = {"raise_exception", "range", "namespace"};
    struct jv v;
    /* Templates ask for these with and without `is defined`. */
    jeval_bind(ev, "tools", jv_none());
    jeval_bind(ev, "documents", jv_none());
    if (extra) {
        if (!json_is_object(extra))
            return err_set(ev->run.e, ERR_INVALID, "the extra variables are not an object");
        if (jv_from_json(&ev->run, extra, &v))
            return -1;
        for (size_t i = 0; i < v.u.dict->n; i++)
            jeval_bind(ev, v.u.dict->e[i].key.u.s->p, v.u.dict->e[i].val);
    }
    for (size_t i = 0; i < sizeof funcs / sizeof *funcs; i++)
        jeval_bind(ev, funcs[i], (struct jv){.kind = JV_FUNC});
    for (size_t i = 0; i < t->n_tokens; i++)
        jeval_bind(ev, t->tokens[i].name, jv_text(t->tokens[i].text));
    jeval_bind(ev, "add_generation_prompt", jv_bool(add_generation_prompt, true));
    return bind_messages(t, ev, messages);
}

/* The run's arena ends with the run: what was built is copied out, once. */
static int take_output(const struct jbuild *b, struct chat_text *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    out->text = mem_alloc(b->n + 1);
    out->pieces = mem_array(b->n_marks ? b->n_marks : 1, sizeof *out->pieces);
    if (!out->text || !out->pieces) {
        chat_text_deinit(out);
        return err_set(e, ERR_NO_MEMORY, "out of memory for the rendered chat");
    }
    if (b->n)
        memcpy(out->text, b->p, b->n);
    out->text[b->n] = 0;
    out->n = b->n;
    out->cap = b->n + 1;
    out->n_pieces = b->n_marks;
    out->cap_pieces = b->n_marks ? b->n_marks : 1;
    size_t from = 0;
    for (size_t i = 0; i < b->n_marks; i++) {
        out->pieces[i] = (struct chat_piece){out->text + from, b->marks[i].end - from,
                                             b->marks[i].own};
        from = b->marks[i].end;
    }
    assert(from == b->n);
    return 0;
}

int chat_template_render(const struct chat_template *t, const json_t *messages,
                         bool add_generation_prompt, const json_t *extra, struct chat_text *out,
                         struct err *e)
{
    struct jeval ev;
    memset(out, 0, sizeof *out);
    int rc = jeval_init(&ev, &t->ast, e) ||
             bind_all(t, &ev, messages, add_generation_prompt, extra) || jeval_run(&ev) ||
             take_output(&ev.out, out, e);
    jrun_deinit(&ev.run);
    return rc ? -1 : 0;
}
