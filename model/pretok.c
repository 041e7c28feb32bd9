#include "model/pretok.h"

#include "model/utf8.h"

#include "base/mem.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Every alternative starts with the character at hand, so some piece always matches there. The last
 * but one: a run of white space leaves its last character to a word behind it, but not to a digit
 * or the end. */
#define WS "\\x09-\\x0d\\x{85}\\p{Z}"
#define PATTERN                                                                                    \
    "\\p{N}"                                                                                       \
    "|'s|'t|'re|'ve|'m|'ll|'d"                                                                     \
    "| ?\\p{L}+"                                                                                   \
    "| ?[^" WS "\\p{L}\\p{N}]+"                                                                    \
    "|[" WS "]+(?![^" WS "\\p{N}])"                                                                \
    "|[" WS "]+"

/* A match backtracks over one run at most, and JIT counts none of it: the limits only bound what a
 * mistake here could cost. Heap in KiB, used by the interpreter where JIT is forbidden. */
#define MATCH_LIMIT 10000000u
#define HEAP_LIMIT_KIB 20000u

struct pretok {
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_code *code;
};

struct pretok_match {
    pcre2_match_data *data;
};

static void *pcre_alloc(size_t n, void *arg)
{
    (void)arg;
    return mem_alloc(n);
}

static void pcre_free(void *p, void *arg)
{
    (void)arg;
    mem_free(p);
}

static int check_name(const struct gguf *g, struct err *e)
{
    struct gguf_str s;
    if (gguf_get_str(g, "tokenizer.ggml.pre", &s) != 0)
        return err_set(e, ERR_BAD_FILE, "key 'tokenizer.ggml.pre' is missing or no string");
    if (s.n != 6 || memcmp(s.p, "smollm", 6) != 0)
        return err_set(e, ERR_BAD_FILE, "pre-tokenizer '%s' is not supported, only 'smollm'",
                       gguf_show(s).s);
    return 0;
}

static int compile(struct pretok *t, struct err *e)
{
    int code = 0;
    size_t at = 0;
    t->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (t->general)
        t->context = pcre2_match_context_create(t->general);
    pcre2_compile_context *cc = t->general ? pcre2_compile_context_create(t->general) : NULL;
    if (t->context && cc) {
        pcre2_set_match_limit(t->context, MATCH_LIMIT);
        pcre2_set_heap_limit(t->context, HEAP_LIMIT_KIB);
        t->code = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &code, &at, cc);
    }
    if (cc)
        pcre2_compile_context_free(cc);
    if (!t->code)
        return err_set(e, ERR_NO_MEMORY,
                       "the pre-tokenizer cannot be compiled (PCRE2 error %d at %zu)", code, at);
    /* Without JIT (forbidden on some hardened systems) the same result comes slower. */
    (void)pcre2_jit_compile(t->code, PCRE2_JIT_COMPLETE);
    return 0;
}

int pretok_create(struct pretok **out, const struct gguf *g, struct err *e)
{
    *out = NULL;
    if (check_name(g, e) != 0)
        return -1;
    struct pretok *t = mem_zalloc(sizeof *t);
    if (!t)
        return err_set(e, ERR_NO_MEMORY, "no memory for the pre-tokenizer");
    if (compile(t, e) != 0) {
        pretok_destroy(&t);
        return -1;
    }
    *out = t;
    return 0;
}

void pretok_destroy(struct pretok **tp)
{
    struct pretok *t = *tp;
    *tp = NULL;
    if (!t)
        return;
    if (t->code)
        pcre2_code_free(t->code);
    if (t->context)
        pcre2_match_context_free(t->context);
    if (t->general)
        pcre2_general_context_free(t->general);
    mem_free(t);
}

struct pretok_match *pretok_match_create(const struct pretok *t)
{
    struct pretok_match *m = mem_zalloc(sizeof *m);
    if (!m)
        return NULL;
    m->data = pcre2_match_data_create(1, t->general);
    if (!m->data) {
        mem_free(m);
        return NULL;
    }
    return m;
}

void pretok_match_destroy(struct pretok_match **mp)
{
    struct pretok_match *m = *mp;
    *mp = NULL;
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    mem_free(m);
}

void pretok_begin(struct pretok_iter *it, const void *text, size_t n)
{
    *it = (struct pretok_iter){.p = text, .n = n};
}

int pretok_next(const struct pretok *t, struct pretok_match *m, struct pretok_iter *it,
                size_t *from)
{
    *from = it->at;
    if (it->at >= it->n)
        return 0;
    if (it->at >=
        it->valid_to) { /* the last run of well-formed text is used up: look for the next one */
        it->valid_from = it->at;
        it->valid_to = it->at + utf8_valid_prefix(it->p + it->at, it->n - it->at);
        if (it->valid_to == it->at) {
            it->at++;
            return 1;
        }
    }
    /* The run is the whole subject, and checked: PCRE2's own check would read it again for each
     * piece. */
    int rc = pcre2_match(t->code, it->p + it->valid_from, it->valid_to - it->valid_from,
                         it->at - it->valid_from, PCRE2_NO_UTF_CHECK, m->data, t->context);
    if (rc < 0)
        return -1;
    it->at = it->valid_from + pcre2_get_ovector_pointer(m->data)[1];
    return it->at > *from ? 1 : -1;
}
