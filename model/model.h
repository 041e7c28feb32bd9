/* model.h - one model file opened for text work (gateway) or tokens only (worker): gguf, hyper-parameters,
 * vocabulary, tokenizer, chat template together, and its name.
 *
 * Ownership: model_open owns all parts until model_close. `chat` is NULL when the file has no template.
 */
#ifndef SLUICE_MODEL_MODEL_H
#define SLUICE_MODEL_MODEL_H

#include "model/chat_template.h"
#include "model/hparams.h"
#include "model/tokenizer.h"

struct model {
    char name[128];               /* file name without .gguf, or as given */
    struct gguf *gguf;
    struct hparams hp;
    struct vocab *vocab;
    struct tokenizer *tok;
    struct chat_template *chat;
    struct hash128 vocab_hash, template_hash;
};

int model_open(struct model *m, const char *path, const char *name, struct err *e);
void model_close(struct model *m);

/* Chat messages to ids, exactly once per request (E9): rendering, then tokenizing. Control tokens are recognised
 * in the template's own pieces only; the text between two of them is tokenized as one. ERR_INVALID when the
 * file has no template. ids are appended. */
int model_chat_ids(const struct model *m, struct tokenizer_scratch *s, const json_t *messages,
                   bool add_generation_prompt, size_t max_ids, struct id_list *out, struct err *e);

#endif
