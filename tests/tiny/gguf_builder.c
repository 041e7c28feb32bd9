#include "tests/tiny/gguf_builder.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 32u

void gguf_builder_init(struct gguf_builder *b)
{
    memset(b, 0, sizeof *b);
    b->version = 3;
}

void gguf_builder_deinit(struct gguf_builder *b)
{
    buf_deinit(&b->keys);
    buf_deinit(&b->tensors);
    buf_deinit(&b->data);
}

static void add_str(struct buf *out, const char *s, size_t n)
{
    uint64_t len = n;
    buf_add(out, &len, 8);
    buf_add(out, s, n);
}

void gguf_builder_key(struct gguf_builder *b, const char *key, uint32_t type)
{
    add_str(&b->keys, key, strlen(key));
    buf_add(&b->keys, &type, 4);
    b->n_keys++;
}

void gguf_builder_raw(struct gguf_builder *b, const void *p, size_t n)
{
    buf_add(&b->keys, p, n);
}

void gguf_builder_u32(struct gguf_builder *b, const char *key, uint32_t v)
{
    gguf_builder_key(b, key, 4);
    gguf_builder_raw(b, &v, 4);
}

void gguf_builder_u64(struct gguf_builder *b, const char *key, uint64_t v)
{
    gguf_builder_key(b, key, 10);
    gguf_builder_raw(b, &v, 8);
}

void gguf_builder_f32(struct gguf_builder *b, const char *key, float v)
{
    gguf_builder_key(b, key, 6);
    gguf_builder_raw(b, &v, 4);
}

void gguf_builder_bool(struct gguf_builder *b, const char *key, bool v)
{
    uint8_t byte = v;
    gguf_builder_key(b, key, 7);
    gguf_builder_raw(b, &byte, 1);
}

void gguf_builder_str(struct gguf_builder *b, const char *key, const char *v)
{
    gguf_builder_key(b, key, 8);
    add_str(&b->keys, v, strlen(v));
}

void gguf_builder_array(struct gguf_builder *b, const char *key, uint32_t element_type,
                        uint64_t count)
{
    gguf_builder_key(b, key, 9);
    gguf_builder_raw(b, &element_type, 4);
    gguf_builder_raw(b, &count, 8);
}

void gguf_builder_element(struct gguf_builder *b, const char *s, size_t n)
{
    add_str(&b->keys, s, n);
}

static void pad(struct buf *out, size_t at)
{
    static const char zeros[ALIGN];
    buf_add(out, zeros, -at & (ALIGN - 1));
}

void gguf_builder_tensor(struct gguf_builder *b, const char *name, uint32_t n_dims,
                         const uint64_t *dims, uint32_t type, const void *p, size_t n)
{
    uint64_t offset;
    pad(&b->data, b->data.len);
    offset = b->data.len;
    add_str(&b->tensors, name, strlen(name));
    buf_add(&b->tensors, &n_dims, 4);
    buf_add(&b->tensors, dims, 8 * (size_t)n_dims);
    buf_add(&b->tensors, &type, 4);
    buf_add(&b->tensors, &offset, 8);
    buf_add(&b->data, p, n);
    b->n_tensors++;
}

void *gguf_builder_finish(struct gguf_builder *b, size_t *n)
{
    struct buf all = {0};
    void *p = NULL;
    buf_add(&all, "GGUF", 4);
    buf_add(&all, &b->version, 4);
    buf_add(&all, &b->n_tensors, 8);
    buf_add(&all, &b->n_keys, 8);
    buf_add(&all, b->keys.p, b->keys.len);
    buf_add(&all, b->tensors.p, b->tensors.len);
    pad(&all, all.len);
    buf_add(&all, b->data.p, b->data.len);
    bool bad = all.bad || b->keys.bad || b->tensors.bad || b->data.bad;
    if (!bad && posix_memalign(&p, 64, all.len) == 0) {
        memcpy(p, all.p, all.len);
        *n = all.len;
    }
    buf_deinit(&all);
    return p;
}
