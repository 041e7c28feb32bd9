/* fuzz_gguf.c - any bytes as a model file: reader, hyper-parameters, vocabulary, tokenizer. */
#include "model/hparams.h"
#include "model/tokenizer.h"

#include "base/log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_open("fuzz_gguf", LOG_ERROR, false); /* bytes after the last tensor are a warning each time */
    return 0;
}

/* Touches everything an open file hands out, so that a sanitizer sees a wrong pointer. */
static void touch_all(const struct gguf *g)
{
    unsigned sum = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        for (size_t k = 0; k < t->name.n; k++)
            sum += (unsigned char)t->name.p[k];
        (void)gguf_type_name(t->type);
    }
    struct hash128 h = gguf_tensors_hash(g);
    sum += (unsigned)h.lo;
    struct gguf_str s;
    if (gguf_get_str(g, "general.name", &s) == 0)
        for (size_t k = 0; k < s.n; k++)
            sum += (unsigned char)s.p[k];
    __asm__ volatile("" : : "r"(sum)); /* the reads must not be optimised away */
}

static void try_text(const struct gguf *g)
{
    static const char text[] = "a line, 42 of <|im_end|>\n\xff\xe2\x82 it's";
    struct vocab *v = NULL;
    struct tokenizer *t = NULL;
    struct err e;
    if (vocab_create(&v, g, &e) != 0)
        return;
    if (tokenizer_create(&t, g, v, &e) == 0) {
        struct tokenizer_scratch *s = tokenizer_scratch_create(t);
        struct id_list l = {0};
        if (s && tokenizer_encode(t, s, text, sizeof text - 1, true, 0, &l, &e) == 0)
            for (size_t i = 0; i < l.n; i++)
                assert(l.ids[i] >= 0 && l.ids[i] < vocab_size(v));
        id_list_deinit(&l);
        tokenizer_scratch_destroy(&s);
    }
    tokenizer_destroy(&t);
    vocab_destroy(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    void *p = NULL;
    struct gguf *g = NULL;
    struct hparams hp;
    struct err e;
    if (posix_memalign(&p, 32, n ? n : 1) != 0)
        return 0;
    memcpy(p, data, n);
    if (gguf_open_mem(&g, p, n, &e) == 0) {
        touch_all(g);
        (void)hparams_read(&hp, g, &e);
        try_text(g);
        gguf_close(&g);
    } else {
        assert(e.code != ERR_OK && e.msg[0]);
    }
    free(p);
    return 0;
}
