/* Wrong GGUF files: each is refused with a message that names the field or tensor, and nothing
 * breaks (ASan and UBSan watch). Cases B80 and B82 and their kin, then seeded damage of a whole
 * model. */
#include "model/hparams.h"
#include "model/tokenizer.h"

#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/tiny/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *good;
static size_t good_n;

static void setup(void)
{
    good = tiny_model_bytes(TINY_SEED, &good_n);
    ck_assert_ptr_nonnull(good);
}

static void teardown(void)
{
    free(good);
}

/* All readers in their order; the first error, or NULL. Bytes of exactly n, so that ASan sees one
 * too many. */
static const char *load(const void *bytes, size_t n)
{
    static struct err e;
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct tokenizer *t = NULL;
    struct hparams hp;
    void *p;
    ck_assert_int_eq(posix_memalign(&p, 64, n ? n : 1), 0);
    memcpy(p, bytes, n);
    err_clear(&e);
    bool ok = gguf_open_mem(&g, p, n, &e) == 0 && hparams_read(&hp, g, &e) == 0 &&
              vocab_create(&v, g, &e) == 0 && tokenizer_create(&t, g, v, &e) == 0;
    if (ok)
        (void)gguf_tensors_hash(g);
    tokenizer_destroy(&t);
    vocab_destroy(&v);
    gguf_close(&g);
    free(p);
    if (ok)
        return NULL;
    ck_assert_int_eq(e.code, ERR_BAD_FILE);
    ck_assert_uint_gt(strlen(e.msg), 0);
    return e.msg;
}

static void expect(const void *bytes, size_t n, const char *needle)
{
    const char *msg = load(bytes, n);
    ck_assert_msg(msg != NULL, "was accepted; wanted '%s'", needle);
    ck_assert_msg(strstr(msg, needle) != NULL, "'%s' does not say '%s'", msg, needle);
}

/* The good file with `size` bytes at `at` replaced. */
static void patched(size_t at, const void *v, size_t size, const char *needle)
{
    uint8_t *p = malloc(good_n);
    ck_assert_ptr_nonnull(p);
    memcpy(p, good, good_n);
    memcpy(p + at, v, size);
    expect(p, good_n, needle);
    free(p);
}

static void patched_u64(size_t at, uint64_t v, const char *needle)
{
    patched(at, &v, 8, needle);
}

static void patched_u32(size_t at, uint32_t v, const char *needle)
{
    patched(at, &v, 4, needle);
}

/* Where the bytes behind a name begin. */
static size_t after(const char *name)
{
    const uint8_t *p = memmem(good, good_n, name, strlen(name));
    ck_assert_ptr_nonnull(p);
    return (size_t)(p - good) + strlen(name);
}

START_TEST(header)
{
    patched(0, "GGML", 4, "'GGUF'");
    patched_u32(4, 1, "version is 1");
    patched_u32(4, 4, "version is 4");
    patched_u32(4, 0x03000000, "big-endian");
    patched_u64(8, (uint64_t)1 << 61, "n_tensors is 2305843009213693952");
    patched_u64(8, UINT64_MAX, "n_tensors");
    patched_u64(8, GGUF_TENSORS_MAX, "n_tensors");
    patched_u64(8, 21, "n_dims is 0"); /* the padding read as an entry */
    patched_u64(8, 19, "output_norm.weight");
    patched_u64(16, (uint64_t)1 << 62, "n_kv is 4611686018427387904");
    patched_u64(16, GGUF_KV_MAX, "n_kv");
}
END_TEST

START_TEST(tensor_entries)
{
    size_t at = after("blk.0.attn_q.weight");
    patched_u64(at + 4, ((uint64_t)1 << 42) + 1, "tensor 'blk.0.attn_q.weight': dimension 0");
    patched_u64(at + 4, (uint64_t)1 << 42, "tensor 'blk.0.attn_q.weight': dimension 0");
    patched_u64(at + 12, ((uint64_t)1 << 42) + 1, "tensor 'blk.0.attn_q.weight': dimension 1");
    patched_u64(at + 12, UINT64_MAX, "tensor 'blk.0.attn_q.weight': dimension 1");
    patched_u64(at + 12, 0, "tensor 'blk.0.attn_q.weight': dimension 1 is 0");
    patched_u32(at, 0, "tensor 'blk.0.attn_q.weight': n_dims is 0");
    patched_u32(at, 5, "tensor 'blk.0.attn_q.weight': n_dims is 5");
    patched_u32(at, UINT32_MAX, "tensor 'blk.0.attn_q.weight': n_dims is 4294967295");
    patched_u32(at + 20, 17, "tensor 'blk.0.attn_q.weight': dimension 0 is 64, which type 17");
    patched_u32(at + 20, GGUF_F16, "tensor 'blk.0.attn_q.weight'");
    patched_u64(at + 24, UINT64_MAX - 31, "tensor 'blk.0.attn_q.weight' lies outside");
    patched_u64(at + 24, UINT64_MAX - 4095, "tensor 'blk.0.attn_q.weight' lies outside");
    patched_u64(at + 24, 33, "tensor 'blk.0.attn_q.weight': offset 33");
    patched_u64(at + 24, 0, "overlaps");
    patched_u64(at - 19 - 8, UINT64_MAX, "its name runs past the end");
    patched(after("blk.0.attn_k"), ".Weight", 7, "tensor 'blk.0.attn_k.weight' is missing");
    patched(after("blk.0.attn_") - 11, "blk.1", 5, "is there twice");
}
END_TEST

START_TEST(keys)
{
    size_t at = after("llama.block_count");
    patched_u32(at, 13, "key 'llama.block_count': value type 13");
    patched_u32(at, GGUF_Q8_0,
                "key 'llama.block_count'"); /* a string: its length is the next bytes */
    patched_u32(at + 4, 513, "key 'llama.block_count' is 513");
    patched_u32(at + 4, 100000, "key 'llama.block_count' is 100000");
    patched_u32(at + 4, 0, "key 'llama.block_count' is 0");
    patched_u32(at + 4, 3, "tensor 'blk.2.attn_norm.weight' is missing");
    patched_u32(at + 4, 1, "tensor 'blk.1.");
    at = after("tokenizer.ggml.tokens");
    patched_u32(at + 4, 9, "array of arrays");
    patched_u64(at + 8, (uint64_t)1 << 60,
                "key 'tokenizer.ggml.tokens': 1152921504606846976 strings");
    patched_u64(at + 16, UINT64_MAX, "key 'tokenizer.ggml.tokens': string 0");
    at = after("tokenizer.ggml.token_type");
    patched_u64(at + 8, (uint64_t)1 << 62,
                "key 'tokenizer.ggml.token_type': 4611686018427387904 values");
    patched_u32(at + 16, 9, "key 'tokenizer.ggml.token_type': entry 0");
    patched_u32(at + 16, UINT32_MAX, "key 'tokenizer.ggml.token_type': entry 0");
    patched(after("tokenizer.ggml.add_bos_token") + 4, "\2", 1,
            "key 'tokenizer.ggml.add_bos_token': bool");
}
END_TEST

/* Keys of the model and the tokenizer, each taken out of an otherwise good file or given a wrong
 * value. */
static void rebuilt(const char *skip, const char *pre, const char *model, const char *needle)
{
    struct gguf_builder b;
    size_t n;
    gguf_builder_init(&b);
    if (strcmp(skip, "model keys") != 0)
        tiny_model_keys(&b);
    if (pre)
        gguf_builder_str(&b, "tokenizer.ggml.pre", pre);
    if (model)
        gguf_builder_str(&b, "tokenizer.ggml.model", model);
    if (!pre && !model && strcmp(skip, "tokenizer") != 0)
        tiny_model_tokenizer(&b);
    tiny_model_tensors(&b, TINY_SEED);
    void *p = gguf_builder_finish(&b, &n);
    ck_assert_ptr_nonnull(p);
    expect(p, n, needle);
    free(p);
    gguf_builder_deinit(&b);
}

START_TEST(missing_or_foreign_parts)
{
    rebuilt("model keys", NULL, NULL, "key 'general.architecture' is missing");
    rebuilt("tokenizer", NULL, NULL, "key 'tokenizer.ggml.model' is missing");
    rebuilt("", NULL, "llama", "tokenizer model 'llama' is not supported");
    rebuilt("", NULL, "gpt2", "key 'tokenizer.ggml.tokens' is missing");
    patched(after("smollm") - 6, "llamas", 6, "pre-tokenizer 'llamas' is not supported");
    patched(after("general.architecture") + 12, "mamba", 5,
            "architecture 'mamba' is not supported");
    patched(after("tokenizer.ggml.pre") - 3, "prx", 3, "key 'tokenizer.ggml.pre' is missing");
    patched_u32(after("tokenizer.ggml.eos_token_id") + 4, 300,
                "key 'tokenizer.ggml.eos_token_id' is 300");
    patched(after("e \xc4\xa0") - 2, "\xc4\x0a", 2, "key 'tokenizer.ggml.merges': entry 0");
    patched(after("e \xc4\xa0") - 4,
            "\xc4\xa0"
            "e\xc4",
            4, "key 'tokenizer.ggml.merges': entry 0");
    patched(after("e \xc4\xa0") - 4, "e \xc4\xa1", 4, "names a token");
}
END_TEST

START_TEST(hyper_parameters)
{
    float f = 0;
    patched_u32(after("llama.attention.head_count") + 4, 7, "key 'llama.attention.head_count");
    patched_u32(after("llama.attention.head_count_kv") + 4, 3,
                "key 'llama.attention.head_count_kv' is 3");
    patched_u32(after("llama.attention.head_count_kv") + 4, 0,
                "key 'llama.attention.head_count_kv' is 0");
    patched_u32(after("llama.embedding_length") + 4, UINT32_MAX, "key 'llama.embedding_length'");
    patched_u32(after("llama.embedding_length") + 4, 128, "tensor 'token_embd.weight' is 64 x 300");
    patched_u32(after("llama.feed_forward_length") + 4, 96, "tensor 'blk.0.ffn_gate.weight'");
    patched_u32(after("llama.context_length") + 4, 1u << 30, "key 'llama.context_length'");
    patched_u32(after("llama.rope.dimension_count") + 4, 15,
                "key 'llama.rope.dimension_count' is 15");
    patched_u32(after("llama.rope.dimension_count") + 4, 18,
                "key 'llama.rope.dimension_count' is 18");
    patched_u32(after("llama.vocab_size") + 4, 299, "key 'llama.vocab_size' is 299");
    patched(after("layer_norm_rms_epsilon") + 4, &f, 4, "rms_epsilon' is 0");
    patched_u32(after("layer_norm_rms_epsilon") + 4, 0x7fc00000, "rms_epsilon' is nan");
    patched_u32(after("llama.rope.freq_base") + 4, 0xff800000,
                "key 'llama.rope.freq_base' is -inf");
}
END_TEST

START_TEST(every_cut_is_refused)
{
    for (size_t n = 0; n < good_n; n += n < 4096 ? 7 : n < 16384 ? 101 : 997)
        ck_assert_ptr_nonnull(load(good, n));
    expect(good, good_n - 1, "tensor 'output_norm.weight' lies outside");
    expect(good, good_n - 300, "' lies outside the file");
}
END_TEST

/* Random damage where the numbers are: what comes out is an error with a message, or a model that
 * loads. */
START_TEST(seeded_damage)
{
    uint64_t seed = 7;
    size_t head = after("output_norm.weight") + 32;
    uint8_t *p = malloc(good_n);
    ck_assert_ptr_nonnull(p);
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0, refused = 0; i < 3000; i++) {
        memcpy(p, good, good_n);
        for (uint64_t k = 0; k < 1 + i % 3; k++) {
            uint64_t r = rand_at(seed, 16 * i + k);
            size_t at = (size_t)(r % head);
            if (r >> 60 < 8)
                p[at] = (uint8_t)(r >> 48);
            else
                memset(p + at, r >> 60 < 12 ? 0xff : 0, at + 8 < good_n ? 8 : 1);
        }
        refused += load(p, good_n) != NULL;
        ck_assert(i < 100 || refused > i / 10);
    }
    free(p);
}
END_TEST

/* An allocation that fails anywhere in vocabulary or tokenizer: an error, and every byte given
 * back. */
START_TEST(no_memory_at_any_allocation)
{
    struct gguf *g;
    struct err e;
    ck_assert_int_eq(gguf_open_mem(&g, good, good_n, &e), 0);
    size_t used = mem_used();
    for (uint64_t nth = 0, calls = 0; nth <= calls; nth++) {
        struct vocab *v = NULL;
        struct tokenizer *t = NULL;
        struct tokenizer_scratch *s = NULL;
        struct id_list l = {0};
        uint64_t before = mem_calls();
        int rc = -1;
        mem_fail_nth(nth); /* 0: nothing fails, the calls are counted */
        if (vocab_create(&v, g, &e) == 0 && tokenizer_create(&t, g, v, &e) == 0 &&
            (s = tokenizer_scratch_create(t)) != NULL)
            rc = tokenizer_encode(t, s, "hello world", 11, true, 0, &l, &e);
        mem_fail_nth(0);
        if (nth == 0) {
            calls = mem_calls() - before;
            ck_assert_int_eq(rc, 0);
            ck_assert_uint_gt(calls, 15);
        }
        id_list_deinit(&l);
        tokenizer_scratch_destroy(&s);
        tokenizer_destroy(&t);
        vocab_destroy(&v);
        ck_assert_uint_eq(mem_used(), used);
    }
    gguf_close(&g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf_hostile");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, header);
    tcase_add_test(c, tensor_entries);
    tcase_add_test(c, keys);
    tcase_add_test(c, missing_or_foreign_parts);
    tcase_add_test(c, hyper_parameters);
    tcase_add_test(c, every_cut_is_refused);
    tcase_add_test(c, seeded_damage);
    tcase_add_test(c, no_memory_at_any_allocation);
    suite_add_tcase(s, c);
    return test_run(s);
}
