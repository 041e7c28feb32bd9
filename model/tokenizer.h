/* tokenizer.h - byte-level BPE: text to ids and back.
 *
 * Pre-tokenizer `smollm` (single digits split off, then the GPT-2 expression), merges in O(n log n).
 * Input is bytes with a length (NUL allowed); invalid UTF-8 is tokenized byte-wise, never refused here.
 * Order: tokenizer_create once per model, tokenizer_encode from any number of threads at once, each with
 * its own tokenizer_scratch (holds PCRE2 match data and merge heaps; grows, and is cut back after a huge text).
 * Bytes the vocabulary has no token for (the real model: 21, such as 0x04) take no id. The vocabulary must outlive it.
 */
#ifndef SLUICE_MODEL_TOKENIZER_H
#define SLUICE_MODEL_TOKENIZER_H

#include "model/vocab.h"

struct tokenizer;
struct tokenizer_scratch;

struct id_list { int32_t *ids; size_t n, cap; };                 /* grown through base/mem.h */
void id_list_deinit(struct id_list *l);
int id_list_add(struct id_list *l, const int32_t *ids, size_t n); /* -1 = no memory */

int tokenizer_create(struct tokenizer **out, const struct gguf *g, const struct vocab *v, struct err *e);
void tokenizer_destroy(struct tokenizer **t);
struct tokenizer_scratch *tokenizer_scratch_create(const struct tokenizer *t); /* NULL = no memory */
void tokenizer_scratch_destroy(struct tokenizer_scratch **s);

/* Append the ids of text[0..n) to `out`. `parse_special`: control tokens written in the text become
 * their ids (/v1/completions, /tokenize, the template's own text); otherwise they are plain characters.
 * Stops with ERR_TOO_LARGE when out->n would pass `max_ids` (0 = no limit). 0 or -1. */
int tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text, size_t n,
                     bool parse_special, size_t max_ids, struct id_list *out, struct err *e);
/* The first control token written in text[*at..n): its id, with *at and *len where it stands; -1 and *at = n
 * when there is none. Leftmost, then longest. */
int32_t tokenizer_next_control(const struct tokenizer *t, const char *text, size_t n, size_t *at, size_t *len);
const struct vocab *tokenizer_vocab(const struct tokenizer *t);

/* Detokenizer: ids in, whole UTF-8 out, bytes that may still become a character held back.
 * A plain struct per stream, zero-initialised; no allocation. */
struct detok { uint8_t held[4]; uint8_t n_held; };
struct buf;
/* Append the text that is certain after these `bytes`; invalid sequences become U+FFFD (one for each maximal
 * subpart, as Unicode 15 section 3.9 recommends and Python's "replace" does). */
void detok_push(struct detok *d, const uint8_t *bytes, size_t n, struct buf *out);
void detok_end(struct detok *d, struct buf *out);                 /* flush: what is held becomes one U+FFFD */
/* Visible bytes of an id: none for control tokens when skip_special. */
const uint8_t *detok_visible(const struct vocab *v, int32_t id, bool skip_special, size_t *n);

#endif
