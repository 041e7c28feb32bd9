/* gguf_priv.h - the parsed form of a GGUF file, shared by gguf.c and gguf_parse.c only. */
#ifndef SLUICE_MODEL_GGUF_PRIV_H
#define SLUICE_MODEL_GGUF_PRIV_H

#include "model/gguf.h"

enum gguf_value {
    GGUF_V_U8,
    GGUF_V_I8,
    GGUF_V_U16,
    GGUF_V_I16,
    GGUF_V_U32,
    GGUF_V_I32,
    GGUF_V_F32,
    GGUF_V_BOOL,
    GGUF_V_STRING,
    GGUF_V_ARRAY,
    GGUF_V_U64,
    GGUF_V_I64,
    GGUF_V_F64,
    GGUF_V_COUNT
};

struct gguf_kv {
    struct gguf_str key;
    uint32_t type; /* enum gguf_value: of the value, or of an array's elements */
    bool is_array;
    uint64_t count;       /* elements; 1 for a scalar */
    const uint8_t *value; /* first element, unaligned; strings start at their length */
    uint64_t *
        offsets; /* arrays of strings: where element i starts in the file, so that access is O(1) */
};

struct gguf {
    const uint8_t *p;
    size_t n;
    bool mapped;
    uint32_t version;
    uint64_t alignment;
    size_t data_at;      /* where the tensors' bytes begin */
    struct gguf_kv *kvs; /* sorted by key once parsed */
    uint64_t n_kvs;
    struct gguf_tensor *tensors; /* in the file's order */
    uint64_t n_tensors;
    const struct gguf_tensor **by_name;
};

/* Fills `g` from g->p[0..n). On -1 the caller still owns what was filled (gguf_close frees it). */
int gguf_parse(struct gguf *g, struct err *e);

int gguf_str_cmp(struct gguf_str a, struct gguf_str b);
size_t gguf_value_bytes(uint32_t type); /* of one scalar; 0 for strings and arrays */
const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key);

#endif
