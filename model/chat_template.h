/* chat_template.h - runs the model file's own chat template (the Jinja subset such templates use).
 *
 * Parsed and checked at start: a construct the interpreter does not know is refused by name with
 * its line. Rendering returns pieces, each marked as the template's own text or the caller's,
 * because **only the template's own text may become control tokens** (prompt injection: a user who
 * writes <|im_end|> gets ordinary characters). A control token is looked for inside one own piece
 * at a time, so one put together across a border (own "<|im_" + the caller's "end|>") never becomes
 * one either. What is made from both kinds is the caller's wherever the two cannot be told apart.
 *
 * Differs from the reference implementation: upper and lower case change ASCII letters only; there
 * is no clock, for one prompt must give one text (strftime_now is undefined: a template that asks
 * `is defined` first runs, another one is refused).
 * Limits: 1 MiB of template, 64 nesting levels, 1e6 steps and CHAT_RENDER_MAX bytes a rendering;
 * over them ERR_TOO_LARGE. Thread: the template is read-only, any.
 */
#ifndef SLUICE_MODEL_CHAT_TEMPLATE_H
#define SLUICE_MODEL_CHAT_TEMPLATE_H

#include "base/err.h"
#include "base/hash.h"

#include <jansson.h>
#include <stddef.h>

#define CHAT_RENDER_MAX (16u << 20)

struct chat_template;

struct chat_piece { const char *p; size_t n; bool own; }; /* own = the template's own text */
struct chat_text {
    struct chat_piece *pieces; size_t n_pieces, cap_pieces; /* neighbours of the same kind are joined */
    char *text; size_t n, cap;                              /* all pieces, in order, one allocation */
};
void chat_text_deinit(struct chat_text *t);

int chat_template_create(struct chat_template **out, const char *src, size_t n, struct err *e);
void chat_template_destroy(struct chat_template **t);
struct hash128 chat_template_hash(const struct chat_template *t);

/* A token of the model file under the name templates use ("bos_token", "eos_token"): the template's
 * own text, so that it can become a control token, which nothing in `extra` can. Wins over `extra`.
 * Call before the template is shared between threads. Both strings are copied. */
int chat_template_set_token(struct chat_template *t, const char *name, const char *text,
                            struct err *e);
/* Off at first: a role is the caller's text, as everything in a message. On: a role that is one of
 * system, user, assistant, tool, developer counts as own, for templates that build tokens of it
 * ('<|' + message.role + '|>'). Call before the template is shared. */
void chat_template_trust_roles(struct chat_template *t, bool on);

/* `messages`: array of {"role": string, "content": string, ...}; `extra` (may be NULL): further
 * variables of the template as an object (tools, ...), the caller's text. A message's null content
 * is an empty text. `out` needs no init; on failure it is empty. ERR_INVALID when the template
 * itself raises (raise_exception) or a value has the wrong kind. */
int chat_template_render(const struct chat_template *t, const json_t *messages, bool add_generation_prompt,
                         const json_t *extra, struct chat_text *out, struct err *e);

#endif
