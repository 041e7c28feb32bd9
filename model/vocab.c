#include "model/vocab.h"

#include "model/byte_map.h"

#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define EOG_MAX 8
#define TOKEN_BYTES_MAX 4096 /* one token's text; bounds what a single id can put into a stream */

enum token_type { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_TYPE_MAX = 6 };

struct vocab {
    int32_t size;
    uint8_t *bytes;  /* of all tokens, one after the other */
    uint32_t *start; /* size + 1 offsets into `bytes` */
    uint8_t *type;
    int32_t *by_text; /* control tokens, sorted by their text */
    size_t n_by_text;
    int32_t eos, bos;
    bool add_bos;
    int32_t eog[EOG_MAX];
    size_t n_eog;
    struct hash128 hash;
};

static struct gguf_str text_of(const struct vocab *v, int32_t id)
{
    return (struct gguf_str){(const char *)v->bytes + v->start[id],
                             v->start[id + 1] - v->start[id]};
}

static int compare(struct gguf_str a, struct gguf_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int r = n ? memcmp(a.p, b.p, n) : 0;
    return r ? r : (a.n > b.n) - (a.n < b.n);
}

static int by_text(const void *a, const void *b, void *arg)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    int r = compare(text_of(arg, x), text_of(arg, y));
    return r ? r : (x > y) - (x < y); /* of two equal texts the smaller id is found */
}

static int check_model(const struct gguf *g, struct err *e)
{
    struct gguf_str s;
    if (gguf_get_str(g, "tokenizer.ggml.model", &s) != 0)
        return err_set(e, ERR_BAD_FILE, "key 'tokenizer.ggml.model' is missing or no string");
    if (s.n != 4 || memcmp(s.p, "gpt2", 4) != 0)
        return err_set(e, ERR_BAD_FILE,
                       "tokenizer model '%s' is not supported, only 'gpt2' (byte-level BPE)",
                       gguf_show(s).s);
    return 0;
}

static int read_types(struct vocab *v, const struct gguf *g, struct err *e)
{
    const char *key = "tokenizer.ggml.token_type";
    int64_t n = gguf_array_count(g, key);
    memset(v->type, TOKEN_NORMAL, (size_t)v->size);
    if (n < 0)
        return 0;
    if (n != v->size)
        return err_set(e, ERR_BAD_FILE, "key '%s' has %lld entries for %d tokens", key,
                       (long long)n, v->size);
    for (int32_t i = 0; i < v->size; i++) {
        int64_t type;
        if (gguf_array_i64(g, key, (uint64_t)i, &type) != 0 || type < 1 || type > TOKEN_TYPE_MAX)
            return err_set(e, ERR_BAD_FILE, "key '%s': entry %d is no token type", key, i);
        v->type[i] = (uint8_t)type;
    }
    return 0;
}

/* Texts to bytes. A normal token that is not spelled in the byte alphabet keeps its text as it is.
 */
static int read_tokens(struct vocab *v, const struct gguf *g, struct err *e)
{
    uint32_t at = 0;
    for (int32_t i = 0; i < v->size; i++) {
        struct gguf_str s;
        if (gguf_array_str(g, "tokenizer.ggml.tokens", (uint64_t)i, &s) != 0)
            return err_set(e, ERR_BAD_FILE, "key 'tokenizer.ggml.tokens' is no array of strings");
        if (s.n > TOKEN_BYTES_MAX)
            return err_set(e, ERR_BAD_FILE,
                           "key 'tokenizer.ggml.tokens': token %d is %zu bytes long, at most "
                           "%d are allowed",
                           i, s.n, TOKEN_BYTES_MAX);
        long n = v->type[i] == TOKEN_NORMAL ? byte_map_decode(s.p, s.n, v->bytes + at) : -1;
        if (n < 0) {
            memcpy(v->bytes + at, s.p, s.n);
            n = (long)s.n;
        }
        v->start[i] = at;
        at += (uint32_t)n;
    }
    v->start[v->size] = at;
    return 0;
}

/* Bytes that all texts take in the file; -1 when there are too many for 32-bit offsets. */
static int count_text(const struct gguf *g, int32_t size, size_t *total)
{
    *total = 0;
    for (int32_t i = 0; i < size; i++) {
        struct gguf_str s;
        if (gguf_array_str(g, "tokenizer.ggml.tokens", (uint64_t)i, &s) == 0)
            *total += s.n;
        if (*total > UINT32_MAX)
            return -1;
    }
    return 0;
}

static int alloc_parts(struct vocab *v, const struct gguf *g, struct err *e)
{
    int64_t n = gguf_array_count(g, "tokenizer.ggml.tokens");
    size_t total;
    if (n < 1 || n > (1 << 20))
        return err_set(e, ERR_BAD_FILE,
                       "key 'tokenizer.ggml.tokens' is missing, or has %lld entries, not 1 "
                       "to %d",
                       (long long)n, 1 << 20);
    v->size = (int32_t)n;
    if (count_text(g, v->size, &total) != 0)
        return err_set(e, ERR_BAD_FILE, "key 'tokenizer.ggml.tokens': more than 4 GiB of text");
    v->bytes = mem_alloc(total + 1);
    v->start = mem_array((size_t)v->size + 1, sizeof *v->start);
    v->type = mem_alloc((size_t)v->size);
    v->by_text = mem_array((size_t)v->size, sizeof *v->by_text);
    if (!v->bytes || !v->start || !v->type || !v->by_text)
        return err_set(e, ERR_NO_MEMORY, "no memory for a vocabulary of %d tokens", v->size);
    return 0;
}

static void index_controls(struct vocab *v)
{
    for (int32_t i = 0; i < v->size; i++)
        if (v->type[i] == TOKEN_CONTROL)
            v->by_text[v->n_by_text++] = i;
    qsort_r(v->by_text, v->n_by_text, sizeof *v->by_text, by_text, v);
}

/* An optional id key; -1 in *out when absent. */
static int read_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *out,
                   struct err *e)
{
    uint64_t id;
    *out = -1;
    if (gguf_get_u64(g, key, &id) != 0)
        return 0;
    if (id >= (uint64_t)v->size)
        return err_set(e, ERR_BAD_FILE, "key '%s' is %llu, but there are %d tokens", key,
                       (unsigned long long)id, v->size);
    *out = (int32_t)id;
    return 0;
}

static void add_eog(struct vocab *v, int32_t id)
{
    size_t at = 0;
    while (at < v->n_eog && v->eog[at] < id)
        at++;
    if (id < 0 || (at < v->n_eog && v->eog[at] == id))
        return;
    assert(v->n_eog < EOG_MAX);
    memmove(v->eog + at + 1, v->eog + at, (v->n_eog - at) * sizeof v->eog[0]);
    v->eog[at] = id;
    v->n_eog++;
}

static int read_special(struct vocab *v, const struct gguf *g, struct err *e)
{
    static const char *const texts[] = {"<|endoftext|>", "<|im_end|>", "<|eot_id|>"};
    int32_t eot, eom;
    if (read_id(v, g, "tokenizer.ggml.eos_token_id", &v->eos, e) != 0 ||
        read_id(v, g, "tokenizer.ggml.bos_token_id", &v->bos, e) != 0 ||
        read_id(v, g, "tokenizer.ggml.eot_token_id", &eot, e) != 0 ||
        read_id(v, g, "tokenizer.ggml.eom_token_id", &eom, e) != 0)
        return -1;
    add_eog(v, v->eos);
    add_eog(v, eot);
    add_eog(v, eom);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        add_eog(v, vocab_find(v, texts[i], strlen(texts[i])));
    if (gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos) != 0)
        v->add_bos = false;
    if (v->add_bos && v->bos < 0)
        return err_set(e, ERR_BAD_FILE,
                       "key 'tokenizer.ggml.add_bos_token' is true, but there is no "
                       "'tokenizer.ggml.bos_token_id'");
    return 0;
}

static struct hash128 hash_strings(const struct gguf *g, const char *key, struct hash128 h)
{
    int64_t n = gguf_array_count(g, key);
    for (int64_t i = 0; i < n; i++) {
        struct gguf_str s;
        if (gguf_array_str(g, key, (uint64_t)i, &s) != 0)
            break;
        struct hash128 x = hash128(s.p, s.n, h.lo);
        h.lo = x.lo ^ h.hi; /* a chain: order counts */
        h.hi = x.hi + 1;
    }
    return h;
}

static void hash_all(struct vocab *v, const struct gguf *g)
{
    struct hash128 part[4];
    struct gguf_str pre = {"", 0};
    size_t n = (size_t)v->size;
    struct {
        int64_t size, eos, bos, add_bos;
    } fixed = {v->size, v->eos, v->bos, v->add_bos};
    (void)gguf_get_str(g, "tokenizer.ggml.pre", &pre);
    part[0] = hash128(v->bytes, v->start[n], 0);
    part[1] = hash128(v->start, (n + 1) * sizeof *v->start, hash64(v->type, n, 0));
    part[2] = hash128(&fixed, sizeof fixed, hash64(pre.p, pre.n, 0));
    part[3] = hash_strings(g, "tokenizer.ggml.merges", (struct hash128){1, 2});
    v->hash = hash128(part, sizeof part, 0);
}

int vocab_create(struct vocab **out, const struct gguf *g, struct err *e)
{
    *out = NULL;
    if (check_model(g, e) != 0)
        return -1;
    struct vocab *v = mem_zalloc(sizeof *v);
    if (!v)
        return err_set(e, ERR_NO_MEMORY, "no memory for the vocabulary");
    if (alloc_parts(v, g, e) != 0 || read_types(v, g, e) != 0 || read_tokens(v, g, e) != 0)
        goto fail;
    index_controls(v);
    if (read_special(v, g, e) != 0)
        goto fail;
    hash_all(v, g);
    *out = v;
    return 0;
fail:
    vocab_destroy(&v);
    return -1;
}

void vocab_destroy(struct vocab **vp)
{
    struct vocab *v = *vp;
    *vp = NULL;
    if (!v)
        return;
    mem_free(v->bytes);
    mem_free(v->start);
    mem_free(v->type);
    mem_free(v->by_text);
    mem_free(v);
}

int32_t vocab_size(const struct vocab *v)
{
    return v->size;
}

bool vocab_is_control(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->size && v->type[id] == TOKEN_CONTROL;
}

bool vocab_is_plain(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->size && v->type[id] == TOKEN_NORMAL;
}

const uint8_t *vocab_bytes(const struct vocab *v, int32_t id, size_t *n)
{
    assert(id >= 0 && id < v->size);
    *n = v->start[id + 1] - v->start[id];
    return v->bytes + v->start[id];
}

int32_t vocab_eos(const struct vocab *v)
{
    return v->eos;
}

int32_t vocab_bos(const struct vocab *v)
{
    return v->bos;
}

bool vocab_add_bos(const struct vocab *v)
{
    return v->add_bos;
}

const int32_t *vocab_eog(const struct vocab *v, size_t *n)
{
    *n = v->n_eog;
    return v->eog;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t n)
{
    struct gguf_str want = {text, n};
    size_t lo = 0, hi = v->n_by_text;
    while (lo < hi) { /* the first entry not below `want` */
        size_t mid = lo + (hi - lo) / 2;
        if (compare(text_of(v, v->by_text[mid]), want) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < v->n_by_text && compare(text_of(v, v->by_text[lo]), want) == 0)
        return v->by_text[lo];
    return -1;
}

struct hash128 vocab_hash(const struct vocab *v)
{
    return v->hash;
}
