/* The GGUF reader on good files built in memory, and on files on disk. */
#include "model/gguf.h"

#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"
#include "tests/tiny/tiny_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file with one key of every scalar type. */
static void *scalars(size_t *n)
{
    struct gguf_builder b;
    gguf_builder_init(&b);
    gguf_builder_key(&b, "u8", 0);
    gguf_builder_raw(&b, &(uint8_t){200}, 1);
    gguf_builder_key(&b, "i8", 1);
    gguf_builder_raw(&b, &(int8_t){-7}, 1);
    gguf_builder_key(&b, "u16", 2);
    gguf_builder_raw(&b, &(uint16_t){60000}, 2);
    gguf_builder_key(&b, "i16", 3);
    gguf_builder_raw(&b, &(int16_t){1234}, 2);
    gguf_builder_u32(&b, "u32", 4000000000u);
    gguf_builder_key(&b, "i32", 5);
    gguf_builder_raw(&b, &(int32_t){-1}, 4);
    gguf_builder_f32(&b, "f32", 1.5f);
    gguf_builder_bool(&b, "bool", true);
    gguf_builder_str(&b, "str", "text");
    gguf_builder_str(&b, "nothing", "");
    gguf_builder_u64(&b, "u64", UINT64_MAX);
    gguf_builder_key(&b, "i64", 11);
    gguf_builder_raw(&b, &(int64_t){INT64_MAX}, 8);
    gguf_builder_key(&b, "f64", 12);
    gguf_builder_raw(&b, &(double){1e300}, 8);
    void *p = gguf_builder_finish(&b, n);
    gguf_builder_deinit(&b);
    return p;
}

START_TEST(scalar_keys)
{
    struct gguf *g;
    struct gguf_str s;
    struct err e;
    uint64_t u;
    float f;
    bool flag;
    size_t n;
    void *p = scalars(&n);
    ck_assert_msg(gguf_open_mem(&g, p, n, &e) == 0, "%s", e.msg);
    ck_assert(gguf_get_u64(g, "u8", &u) == 0 && u == 200);
    ck_assert(gguf_get_u64(g, "u16", &u) == 0 && u == 60000);
    ck_assert(gguf_get_u64(g, "i16", &u) == 0 && u == 1234);
    ck_assert(gguf_get_u64(g, "u32", &u) == 0 && u == 4000000000u);
    ck_assert(gguf_get_u64(g, "u64", &u) == 0 && u == UINT64_MAX);
    ck_assert(gguf_get_u64(g, "i64", &u) == 0 && u == INT64_MAX);
    ck_assert_int_eq(gguf_get_u64(g, "i8", &u), -1);
    ck_assert_int_eq(gguf_get_u64(g, "i32", &u), -1);
    ck_assert_int_eq(gguf_get_u64(g, "f32", &u), -1);
    ck_assert_int_eq(gguf_get_u64(g, "str", &u), -1);
    ck_assert_int_eq(gguf_get_u64(g, "absent", &u), -1);
    ck_assert(gguf_get_f32(g, "f32", &f) == 0 && f == 1.5f);
    ck_assert(gguf_get_f32(g, "f64", &f) == 0 && isinf(f));
    ck_assert_int_eq(gguf_get_f32(g, "u8", &f), -1);
    ck_assert(gguf_get_bool(g, "bool", &flag) == 0 && flag);
    ck_assert_int_eq(gguf_get_bool(g, "u8", &flag), -1);
    ck_assert(gguf_get_str(g, "str", &s) == 0 && s.n == 4 && memcmp(s.p, "text", 4) == 0);
    ck_assert(gguf_get_str(g, "nothing", &s) == 0 && s.n == 0);
    ck_assert_int_eq(gguf_get_str(g, "bool", &s), -1);
    ck_assert_int_eq(gguf_array_count(g, "str"), -1);
    ck_assert_uint_eq(gguf_tensor_count(g), 0);
    ck_assert_uint_eq(gguf_file_bytes(g), n);
    gguf_close(&g);
    ck_assert_ptr_null(g);
    gguf_close(&g);
    free(p);
}
END_TEST

START_TEST(arrays)
{
    struct gguf_builder b;
    struct gguf *g;
    struct gguf_str s;
    struct err e;
    int64_t v;
    float f;
    size_t n;
    gguf_builder_init(&b);
    gguf_builder_array(&b, "words", 8, 3);
    gguf_builder_element(&b, "one", 3);
    gguf_builder_element(&b, "", 0);
    gguf_builder_element(&b, "a\0b", 3);
    gguf_builder_array(&b, "small", 1, 2);
    gguf_builder_raw(&b, (int8_t[]){-128, 127}, 2);
    gguf_builder_array(&b, "big", 10, 1);
    gguf_builder_raw(&b, &(uint64_t){UINT64_MAX}, 8);
    gguf_builder_array(&b, "scores", 6, 2);
    gguf_builder_raw(&b, (float[]){0.5f, -2}, 8);
    gguf_builder_array(&b, "none", 8, 0);
    void *p = gguf_builder_finish(&b, &n);
    ck_assert_msg(gguf_open_mem(&g, p, n, &e) == 0, "%s", e.msg);
    ck_assert_int_eq(gguf_array_count(g, "words"), 3);
    ck_assert(gguf_array_str(g, "words", 0, &s) == 0 && s.n == 3 && memcmp(s.p, "one", 3) == 0);
    ck_assert(gguf_array_str(g, "words", 1, &s) == 0 && s.n == 0);
    ck_assert(gguf_array_str(g, "words", 2, &s) == 0 && s.n == 3 && memcmp(s.p, "a\0b", 3) == 0);
    ck_assert_int_eq(gguf_array_str(g, "words", 3, &s), -1);
    ck_assert_int_eq(gguf_array_i64(g, "words", 0, &v), -1);
    ck_assert(gguf_array_i64(g, "small", 0, &v) == 0 && v == -128);
    ck_assert(gguf_array_i64(g, "small", 1, &v) == 0 && v == 127);
    ck_assert_int_eq(gguf_array_i64(g, "big", 0, &v), -1);
    ck_assert(gguf_array_f32(g, "scores", 1, &f) == 0 && f == -2);
    ck_assert_int_eq(gguf_array_str(g, "scores", 0, &s), -1);
    ck_assert_int_eq(gguf_array_count(g, "none"), 0);
    ck_assert_int_eq(gguf_array_str(g, "none", 0, &s), -1);
    gguf_close(&g);
    free(p);
    gguf_builder_deinit(&b);
}
END_TEST

START_TEST(tensors_of_the_tiny_model)
{
    struct gguf *g;
    struct err e;
    size_t n;
    void *p = tiny_model_bytes(TINY_SEED, &n);
    ck_assert_msg(gguf_open_mem(&g, p, n, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(gguf_tensor_count(g), 2 + 9 * TINY_LAYERS);
    const struct gguf_tensor *t = gguf_tensor_find(g, "token_embd.weight");
    ck_assert_ptr_nonnull(t);
    ck_assert(t->n_dims == 2 && t->dims[0] == 64 && t->dims[1] == 300 && t->dims[2] == 1);
    ck_assert(t->type == GGUF_Q8_0 && t->bytes == 64 / 32 * 34 * 300);
    ck_assert_uint_eq((uintptr_t)t->data % 32, 0);
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        char name[65] = "";
        t = gguf_tensor_at(g, i);
        memcpy(name, t->name.p, t->name.n);
        ck_assert_ptr_eq(gguf_tensor_find(g, name), t);
    }
    ck_assert_ptr_null(gguf_tensor_find(g, "blk.2.attn_q.weight"));
    ck_assert_ptr_null(gguf_tensor_find(g, ""));
    gguf_close(&g);
    free(p);
}
END_TEST

START_TEST(type_sizes)
{
    ck_assert_uint_eq(gguf_type_bytes(GGUF_F32, 7), 28);
    ck_assert_uint_eq(gguf_type_bytes(GGUF_F16, 7), 14);
    ck_assert_uint_eq(gguf_type_bytes(GGUF_Q4_0, 64), 36);
    ck_assert_uint_eq(gguf_type_bytes(GGUF_Q4_1, 64), 40);
    ck_assert_uint_eq(gguf_type_bytes(GGUF_Q8_0, 64), 68);
    ck_assert_uint_eq(gguf_type_bytes(GGUF_Q4_1, 33), 0);
    ck_assert_uint_eq(gguf_type_bytes(17, 32), 0);
    ck_assert_uint_eq(gguf_type_bytes(GGUF_F32, UINT64_MAX / 2), 0);
    ck_assert_str_eq(gguf_type_name(GGUF_Q4_1), "Q4_1");
    ck_assert_str_eq(gguf_type_name(17), "type 17");
    ck_assert_str_eq(gguf_type_name(UINT32_MAX), "type 4294967295");
}
END_TEST

static struct hash128 hash_of(const void *p, size_t n)
{
    struct gguf *g;
    struct err e;
    ck_assert_msg(gguf_open_mem(&g, p, n, &e) == 0, "%s", e.msg);
    struct hash128 h = gguf_tensors_hash(g);
    gguf_close(&g);
    return h;
}

START_TEST(hash_sees_every_part)
{
    size_t n;
    uint8_t *p = tiny_model_bytes(TINY_SEED, &n);
    struct hash128 h = hash_of(p, n);
    ck_assert(hash128_equal(h, hash_of(p, n)));
    p[n - 1] ^= 1; /* a weight */
    ck_assert(!hash128_equal(h, hash_of(p, n)));
    p[n - 1] ^= 1;
    uint8_t *name = memmem(p, n, "blk.1.attn_q.weight", 19);
    name[4] = '7'; /* a name */
    ck_assert(!hash128_equal(h, hash_of(p, n)));
    name[4] = '1';
    memcpy(name + 23, (uint64_t[]){32, 128}, 16); /* a shape of the same size */
    ck_assert(!hash128_equal(h, hash_of(p, n)));
    memcpy(name + 23, (uint64_t[]){64, 64}, 16);
    uint8_t *key = memmem(p, n, "general.name", 12);
    key[24] = 'X'; /* no tensor's business */
    ck_assert(hash128_equal(h, hash_of(p, n)));
    free(p);
}
END_TEST

/* Opens dir/name with the n bytes given; the message when it fails, NULL when it opens. */
static const char *open_file(const char *dir, const void *p, size_t n)
{
    static struct err e;
    char path[TEST_PATH_MAX + 16];
    struct gguf *g;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    ck_assert_int_eq(test_write_file(path, p, n), 0);
    int rc = gguf_open(&g, path, &e);
    if (rc != 0) {
        ck_assert_ptr_nonnull(strstr(e.msg, path));
        return e.msg;
    }
    gguf_close(&g);
    return NULL;
}

START_TEST(files_cut_and_grown)
{
    char dir[TEST_PATH_MAX];
    size_t n;
    uint8_t *p = tiny_model_bytes(TINY_SEED, &n);
    ck_assert_int_eq(test_tmpdir_make(dir, "gguf"), 0);
    ck_assert_ptr_null(open_file(dir, p, n));
    ck_assert_ptr_nonnull(
        strstr(open_file(dir, p, n - 1), "tensor 'output_norm.weight' lies outside"));
    ck_assert_ptr_nonnull(strstr(open_file(dir, p, n / 2), "' lies outside the file"));
    ck_assert_ptr_nonnull(strstr(open_file(dir, p, 20), "n_kv"));
    ck_assert_ptr_nonnull(strstr(open_file(dir, p, 0), "the file is empty"));
    uint8_t *more = calloc(1, n + (1 << 20));
    ck_assert_ptr_nonnull(more);
    memcpy(more, p, n);
    ck_assert_ptr_null(open_file(dir, more, n + (1 << 20)));
    free(more);
    free(p);
    test_tmpdir_remove(dir);
}
END_TEST

/* Dropped pages come again from the file with the same bytes; bytes in memory are left alone. */
START_TEST(tensor_pages_dropped)
{
    char path[TEST_PATH_MAX], dir[TEST_PATH_MAX];
    struct gguf *file, *mem;
    struct err e;
    size_t n;
    void *p = tiny_model_bytes(TINY_SEED, &n);
    ck_assert_int_eq(test_tmpdir_make(dir, "drop"), 0);
    snprintf(path, sizeof path, "%.4000s/t.gguf", dir);
    ck_assert_int_eq(tiny_model_write(TINY_SEED, path), 0);
    ck_assert_int_eq(gguf_open(&file, path, &e), 0);
    ck_assert_int_eq(gguf_open_mem(&mem, p, n, &e), 0);
    struct hash128 before = gguf_tensors_hash(file);
    uint64_t kept = gguf_drop_tensor_pages(file);
    ck_assert(kept > 0 && kept < gguf_file_bytes(file));
    ck_assert(hash128_equal(gguf_tensors_hash(file), before));
    ck_assert_uint_eq(gguf_drop_tensor_pages(mem), n);
    ck_assert(hash128_equal(gguf_tensors_hash(mem), before));
    gguf_close(&file);
    gguf_close(&mem);
    free(p);
    test_tmpdir_remove(dir);
}
END_TEST

START_TEST(paths_that_are_no_file)
{
    char dir[TEST_PATH_MAX], path[TEST_PATH_MAX + 16];
    struct gguf *g;
    struct err e;
    ck_assert_int_eq(test_tmpdir_make(dir, "gguf"), 0);
    ck_assert_int_eq(gguf_open(&g, dir, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "folder"));
    snprintf(path, sizeof path, "%s/absent", dir);
    ck_assert_int_eq(gguf_open(&g, path, &e), -1);
    ck_assert_int_eq(e.code, ERR_IO);
    snprintf(path, sizeof path, "%s/fifo", dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(gguf_open(&g, path, &e), -1); /* and does not wait for a writer */
    ck_assert_int_eq(e.code, ERR_BAD_FILE);
    ck_assert_ptr_null(g);
    test_tmpdir_remove(dir);
}
END_TEST

START_TEST(no_memory_at_any_allocation)
{
    size_t n, used = mem_used();
    void *p = tiny_model_bytes(TINY_SEED, &n);
    for (uint64_t nth = 1;; nth++) {
        struct gguf *g;
        struct err e;
        mem_fail_nth(nth);
        int rc = gguf_open_mem(&g, p, n, &e);
        mem_fail_nth(0);
        if (rc == 0) {
            ck_assert_uint_gt(nth, 4);
            gguf_close(&g);
            break;
        }
        ck_assert_int_eq(e.code, ERR_NO_MEMORY);
        ck_assert_ptr_null(g);
        ck_assert_uint_eq(mem_used(), used);
    }
    ck_assert_uint_eq(mem_used(), used);
    free(p);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gguf");
    TCase *c = tcase_create("all");
    tcase_add_test(c, scalar_keys);
    tcase_add_test(c, arrays);
    tcase_add_test(c, tensors_of_the_tiny_model);
    tcase_add_test(c, type_sizes);
    tcase_add_test(c, hash_sees_every_part);
    tcase_add_test(c, files_cut_and_grown);
    tcase_add_test(c, tensor_pages_dropped);
    tcase_add_test(c, paths_that_are_no_file);
    tcase_add_test(c, no_memory_at_any_allocation);
    suite_add_tcase(s, c);
    return test_run(s);
}
