#include "model/tokenizer.h"

#include "model/bpe.h"
#include "model/pretok.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A merge area above this is given back after the text that needed it: one huge prompt must not
 * cost every text thread its 100 MB for ever. */
#define WORK_KEEP_SYMBOLS (64u << 10)

struct tokenizer {
    const struct vocab *vocab;
    struct pretok *pretok;
    struct bpe *bpe;
    int32_t *controls; /* ids, longest text first, so that the first match is the longest */
    size_t n_controls;
    bool starts[256]; /* some control token's text begins with this byte */
};

struct tokenizer_scratch {
    struct pretok_match *match;
    struct bpe_work work;
};

static int longest_first(const void *a, const void *b, void *arg)
{
    size_t na, nb;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    vocab_bytes(arg, x, &na);
    vocab_bytes(arg, y, &nb);
    return na != nb ? (na < nb ? 1 : -1) : (x > y) - (x < y);
}

static int index_controls(struct tokenizer *t)
{
    size_t n;
    t->controls = mem_array((size_t)vocab_size(t->vocab), sizeof *t->controls);
    if (!t->controls)
        return -1;
    for (int32_t id = 0; id < vocab_size(t->vocab); id++) {
        const uint8_t *p = vocab_bytes(t->vocab, id, &n);
        if (!vocab_is_control(t->vocab, id) || n == 0)
            continue;
        t->controls[t->n_controls++] = id;
        t->starts[p[0]] = true;
    }
    qsort_r(t->controls, t->n_controls, sizeof *t->controls, longest_first,
            (void *)(uintptr_t)t->vocab);
    return 0;
}

int tokenizer_create(struct tokenizer **out, const struct gguf *g, const struct vocab *v,
                     struct err *e)
{
    *out = NULL;
    struct tokenizer *t = mem_zalloc(sizeof *t);
    if (!t)
        return err_set(e, ERR_NO_MEMORY, "no memory for the tokenizer");
    t->vocab = v;
    if (pretok_create(&t->pretok, g, e) != 0 || bpe_create(&t->bpe, g, v, e) != 0)
        goto fail;
    if (index_controls(t) != 0) {
        err_set(e, ERR_NO_MEMORY, "no memory for the tokenizer");
        goto fail;
    }
    *out = t;
    return 0;
fail:
    tokenizer_destroy(&t);
    return -1;
}

void tokenizer_destroy(struct tokenizer **tp)
{
    struct tokenizer *t = *tp;
    *tp = NULL;
    if (!t)
        return;
    pretok_destroy(&t->pretok);
    bpe_destroy(&t->bpe);
    mem_free(t->controls);
    mem_free(t);
}

const struct vocab *tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab;
}

struct tokenizer_scratch *tokenizer_scratch_create(const struct tokenizer *t)
{
    struct tokenizer_scratch *s = mem_zalloc(sizeof *s);
    if (!s)
        return NULL;
    s->match = pretok_match_create(t->pretok);
    if (!s->match)
        tokenizer_scratch_destroy(&s);
    return s;
}

void tokenizer_scratch_destroy(struct tokenizer_scratch **sp)
{
    struct tokenizer_scratch *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    pretok_match_destroy(&s->match);
    bpe_work_deinit(&s->work);
    mem_free(s);
}

int32_t tokenizer_next_control(const struct tokenizer *t, const char *text, size_t n, size_t *at,
                               size_t *len)
{
    for (size_t i = *at; i < n; i++) {
        if (!t->starts[(uint8_t)text[i]])
            continue;
        for (size_t k = 0; k < t->n_controls; k++) {
            size_t n_text;
            const uint8_t *p = vocab_bytes(t->vocab, t->controls[k], &n_text);
            if (n_text <= n - i && memcmp(text + i, p, n_text) == 0) {
                *at = i;
                *len = n_text;
                return t->controls[k];
            }
        }
    }
    *at = n;
    *len = 0;
    return -1;
}

static int too_many(size_t max_ids, struct err *e)
{
    return err_set(e, ERR_TOO_LARGE, "the text has more than %zu tokens", max_ids);
}

static int add_control(int32_t id, size_t max_ids, struct id_list *out, struct err *e)
{
    if (max_ids != 0 && out->n >= max_ids)
        return too_many(max_ids, e);
    if (id_list_add(out, &id, 1) != 0)
        return err_set(e, ERR_NO_MEMORY, "no memory to tokenize the text");
    return 0;
}

static int encode_plain(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text,
                        size_t n, size_t max_ids, struct id_list *out, struct err *e)
{
    struct pretok_iter it;
    size_t from;
    int more;
    pretok_begin(&it, text, n);
    while ((more = pretok_next(t->pretok, s->match, &it, &from)) > 0) {
        if (bpe_encode(t->bpe, &s->work, it.p + from, it.at - from, out) != 0)
            return err_set(e, ERR_NO_MEMORY, "no memory to tokenize the text");
        if (max_ids != 0 && out->n > max_ids)
            return too_many(max_ids, e);
    }
    if (more < 0)
        return err_set(e, ERR_INTERNAL, "the pre-tokenizer hit a limit at byte %zu of the text",
                       from);
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, const char *text,
                     size_t n, bool parse_special, size_t max_ids, struct id_list *out,
                     struct err *e)
{
    size_t done = 0;
    int rc = 0;
    while (rc == 0 && done < n) {
        size_t at = done, len = 0;
        int32_t id = -1;
        if (parse_special)
            id = tokenizer_next_control(t, text, n, &at, &len);
        else
            at = n;
        rc = encode_plain(t, s, text + done, at - done, max_ids, out, e);
        if (rc == 0 && id >= 0)
            rc = add_control(id, max_ids, out, e);
        done = at + len;
    }
    if (s->work.cap > WORK_KEEP_SYMBOLS)
        bpe_work_deinit(&s->work);
    return rc;
}
