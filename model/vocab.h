/* vocab.h - the tokens of a model: text, bytes, control flags, special ids.
 *
 * Built once from GGUF keys tokenizer.ggml.*; byte-level BPE ("gpt2") only, another model is refused by name.
 * Ownership: vocab_create copies what it needs; the gguf may be closed afterwards. Thread: read-only, any.
 */
#ifndef SLUICE_MODEL_VOCAB_H
#define SLUICE_MODEL_VOCAB_H

#include "base/hash.h"
#include "model/gguf.h"

struct vocab;

int vocab_create(struct vocab **out, const struct gguf *g, struct err *e);
void vocab_destroy(struct vocab **v);

int32_t vocab_size(const struct vocab *v);
bool vocab_is_control(const struct vocab *v, int32_t id);       /* token_type 3 (control) */
bool vocab_is_plain(const struct vocab *v, int32_t id);         /* token_type 1: what merges may make */
/* The bytes a token stands for (byte-level map undone; a control token's own text). id must be in range. */
const uint8_t *vocab_bytes(const struct vocab *v, int32_t id, size_t *n);
int32_t vocab_eos(const struct vocab *v);                       /* -1 when the file names none */
int32_t vocab_bos(const struct vocab *v);
bool vocab_add_bos(const struct vocab *v);
/* All end-of-generation ids: eos, eot and eom ids of the file and the control tokens <|endoftext|>, <|im_end|>, <|eot_id|>
 * present in it, ascending. *n is their count. */
const int32_t *vocab_eog(const struct vocab *v, size_t *n);
int32_t vocab_find(const struct vocab *v, const char *text, size_t n); /* control token by its text; -1 */
struct hash128 vocab_hash(const struct vocab *v);                /* ids, bytes, types, merges: HELLO carries it */

#endif
