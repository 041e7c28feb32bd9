/* gguf_builder.h - writes a GGUF file (version 3) in memory, for tests.
 *
 * Order: init, keys, tensors, gguf_builder_finish, deinit. Nothing is checked: tests of the reader
 * build wrong files with it on purpose. Failure (no memory) shows as NULL from finish. Thread: one.
 */
#ifndef SLUICE_TESTS_TINY_GGUF_BUILDER_H
#define SLUICE_TESTS_TINY_GGUF_BUILDER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct gguf_builder {
    struct buf keys, tensors, data;
    uint64_t n_keys, n_tensors;
    uint32_t version;
};

void gguf_builder_init(struct gguf_builder *b);
void gguf_builder_deinit(struct gguf_builder *b);

void gguf_builder_u32(struct gguf_builder *b, const char *key, uint32_t v);
void gguf_builder_u64(struct gguf_builder *b, const char *key, uint64_t v);
void gguf_builder_f32(struct gguf_builder *b, const char *key, float v);
void gguf_builder_bool(struct gguf_builder *b, const char *key, bool v);
void gguf_builder_str(struct gguf_builder *b, const char *key, const char *v);
/* The head of an array; its elements follow by gguf_builder_raw or gguf_builder_element. */
void gguf_builder_array(struct gguf_builder *b, const char *key, uint32_t element_type,
                        uint64_t count);
void gguf_builder_element(struct gguf_builder *b, const char *s, size_t n); /* one string */
void gguf_builder_raw(struct gguf_builder *b, const void *p, size_t n);
/* Key and type number only; the value's bytes follow by gguf_builder_raw. */
void gguf_builder_key(struct gguf_builder *b, const char *key, uint32_t type);
/* dims[0] is the contiguous one. The bytes are copied and padded to 32. */
void gguf_builder_tensor(struct gguf_builder *b, const char *name, uint32_t n_dims,
                         const uint64_t *dims, uint32_t type, const void *p, size_t n);

/* The file, 64-byte aligned, exactly *n bytes long; free() it. NULL = no memory. */
void *gguf_builder_finish(struct gguf_builder *b, size_t *n);

#endif
