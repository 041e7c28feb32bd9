/* gguf_parse.c - header, key table and tensor table of a GGUF file.
 *
 *   "GGUF" u32 version  u64 n_tensors  u64 n_kv
 *   n_kv      x { string key, u32 type, value }           string = u64 length, bytes
 *   n_tensors x { string name, u32 n_dims, u64 dims[n_dims], u32 type, u64 offset }
 *   padding to general.alignment, then the tensors' bytes; offsets count from there
 *
 * The file is hostile: a number from it is compared with the bytes that are left before it is
 * multiplied, added or allocated for. Counts are bounded by (bytes left / smallest entry), so a
 * table in memory is at most a few times the bytes it describes.
 */
#include "model/gguf_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define KV_BYTES_MIN 13u     /* empty key, type, one byte of value */
#define TENSOR_BYTES_MIN 32u /* empty name, one dimension */
#define KEY_BYTES_MAX 65535u
#define ALIGN_MIN 32u /* the kernels load 32 bytes at a time */
#define ALIGN_MAX 65536u

struct cursor {
    const uint8_t *p;
    size_t n, at;
};

static size_t left(const struct cursor *c)
{
    return c->n - c->at;
}

static int take(struct cursor *c, void *out, size_t n)
{
    if (n > left(c))
        return -1;
    memcpy(out, c->p + c->at, n);
    c->at += n;
    return 0;
}

static int take_str(struct cursor *c, struct gguf_str *out)
{
    uint64_t n;
    if (take(c, &n, sizeof n) != 0 || n > left(c))
        return -1;
    out->p = (const char *)c->p + c->at;
    out->n = (size_t)n;
    c->at += (size_t)n;
    return 0;
}

int gguf_str_cmp(struct gguf_str a, struct gguf_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int r = n ? memcmp(a.p, b.p, n) : 0;
    return r ? r : (a.n > b.n) - (a.n < b.n);
}

struct gguf_shown gguf_show(struct gguf_str s)
{
    struct gguf_shown o;
    size_t n = s.n < 64 ? s.n : 64;
    for (size_t i = 0; i < n; i++)
        o.s[i] = s.p[i] >= 0x20 && s.p[i] < 0x7f ? s.p[i] : '?';
    memcpy(o.s + n, n < s.n ? "..." : "", n < s.n ? 4 : 1);
    return o;
}

size_t gguf_value_bytes(uint32_t type)
{
    static const uint8_t bytes[GGUF_V_COUNT] = {
        [GGUF_V_U8] = 1,  [GGUF_V_I8] = 1,  [GGUF_V_U16] = 2, [GGUF_V_I16] = 2,
        [GGUF_V_U32] = 4, [GGUF_V_I32] = 4, [GGUF_V_F32] = 4, [GGUF_V_BOOL] = 1,
        [GGUF_V_U64] = 8, [GGUF_V_I64] = 8, [GGUF_V_F64] = 8,
    };
    return type < GGUF_V_COUNT ? bytes[type] : 0;
}

/* Strings of an array, or the one of a scalar: walk them, note where each starts. */
static int parse_strings(struct cursor *c, struct gguf_kv *kv, struct err *e)
{
    if (kv->count > left(c) / 8)
        return err_set(e, ERR_BAD_FILE, "key '%s': %llu strings do not fit in the file",
                       gguf_show(kv->key).s, (unsigned long long)kv->count);
    if (kv->is_array) {
        kv->offsets = mem_array((size_t)kv->count + 1, sizeof *kv->offsets);
        if (!kv->offsets)
            return err_set(e, ERR_NO_MEMORY, "no memory for key '%s'", gguf_show(kv->key).s);
    }
    for (uint64_t i = 0; i < kv->count; i++) {
        struct gguf_str s;
        if (kv->is_array)
            kv->offsets[i] = c->at;
        if (take_str(c, &s) != 0)
            return err_set(e, ERR_BAD_FILE, "key '%s': string %llu runs past the end of the file",
                           gguf_show(kv->key).s, (unsigned long long)i);
    }
    return 0;
}

static int parse_value(struct cursor *c, struct gguf_kv *kv, struct err *e)
{
    struct gguf_shown key = gguf_show(kv->key);
    kv->count = 1;
    if (kv->type == GGUF_V_ARRAY) {
        kv->is_array = true;
        if (take(c, &kv->type, 4) != 0 || take(c, &kv->count, 8) != 0)
            return err_set(e, ERR_BAD_FILE, "key '%s': the file ends inside the array's head",
                           key.s);
    }
    kv->value = c->p + c->at;
    if (kv->type == GGUF_V_STRING)
        return parse_strings(c, kv, e);
    size_t bytes = gguf_value_bytes(kv->type);
    if (bytes == 0)
        return err_set(e, ERR_BAD_FILE, "key '%s': value type %u is %s", key.s, kv->type,
                       kv->type == GGUF_V_ARRAY ? "an array of arrays, not supported" : "unknown");
    if (kv->count > left(c) / bytes)
        return err_set(e, ERR_BAD_FILE, "key '%s': %llu values do not fit in the file", key.s,
                       (unsigned long long)kv->count);
    if (kv->type == GGUF_V_BOOL && !kv->is_array && *kv->value > 1)
        return err_set(e, ERR_BAD_FILE, "key '%s': bool is %u, not 0 or 1", key.s, *kv->value);
    c->at += (size_t)kv->count * bytes;
    return 0;
}

static int kv_cmp(const void *a, const void *b)
{
    return gguf_str_cmp(((const struct gguf_kv *)a)->key, ((const struct gguf_kv *)b)->key);
}

static int parse_kvs(struct gguf *g, struct cursor *c, uint64_t count, struct err *e)
{
    g->kvs = mem_array((size_t)count + 1, sizeof *g->kvs);
    if (!g->kvs)
        return err_set(e, ERR_NO_MEMORY, "no memory for %llu keys", (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_kv *kv = &g->kvs[i];
        if (take_str(c, &kv->key) != 0 || take(c, &kv->type, 4) != 0)
            return err_set(e, ERR_BAD_FILE, "key %llu of %llu runs past the end of the file",
                           (unsigned long long)i, (unsigned long long)count);
        if (kv->key.n > KEY_BYTES_MAX)
            return err_set(e, ERR_BAD_FILE, "key %llu is %zu bytes long, at most %u are allowed",
                           (unsigned long long)i, kv->key.n, KEY_BYTES_MAX);
        g->n_kvs = i + 1; /* from here on gguf_close frees its offsets */
        if (parse_value(c, kv, e) != 0)
            return -1;
    }
    qsort(g->kvs, (size_t)count, sizeof *g->kvs, kv_cmp);
    for (uint64_t i = 1; i < count; i++)
        if (kv_cmp(&g->kvs[i - 1], &g->kvs[i]) == 0)
            return err_set(e, ERR_BAD_FILE, "key '%s' is there twice", gguf_show(g->kvs[i].key).s);
    return 0;
}

static int parse_alignment(struct gguf *g, struct err *e)
{
    g->alignment = ALIGN_MIN;
    if (!gguf_kv_find(g, "general.alignment"))
        return 0;
    if (gguf_get_u64(g, "general.alignment", &g->alignment) != 0)
        return err_set(e, ERR_BAD_FILE, "key 'general.alignment' is not an integer");
    if (g->alignment < ALIGN_MIN || g->alignment > ALIGN_MAX ||
        (g->alignment & (g->alignment - 1)) != 0)
        return err_set(e, ERR_BAD_FILE,
                       "key 'general.alignment' is %llu, not a power of two from %u to %u",
                       (unsigned long long)g->alignment, ALIGN_MIN, ALIGN_MAX);
    return 0;
}

static int parse_dims(struct cursor *c, struct gguf_tensor *t, struct err *e)
{
    struct gguf_shown name = gguf_show(t->name);
    if (take(c, &t->n_dims, 4) != 0)
        return err_set(e, ERR_BAD_FILE, "tensor '%s': the file ends inside its entry", name.s);
    if (t->n_dims < 1 || t->n_dims > GGUF_DIMS_MAX)
        return err_set(e, ERR_BAD_FILE, "tensor '%s': n_dims is %u, not 1 to %d", name.s, t->n_dims,
                       GGUF_DIMS_MAX);
    for (unsigned i = 0; i < GGUF_DIMS_MAX; i++)
        t->dims[i] = 1;
    for (unsigned i = 0; i < t->n_dims; i++) {
        if (take(c, &t->dims[i], 8) != 0)
            return err_set(e, ERR_BAD_FILE, "tensor '%s': the file ends inside its entry", name.s);
        if (t->dims[i] == 0)
            return err_set(e, ERR_BAD_FILE, "tensor '%s': dimension %u is 0", name.s, i);
    }
    return 0;
}

/* Bytes of the tensor from its type and dimensions, without overflow and not above the file's size.
 */
static int size_tensor(struct gguf_tensor *t, size_t file_bytes, struct err *e)
{
    struct gguf_shown name = gguf_show(t->name);
    uint64_t row = gguf_type_bytes(t->type, t->dims[0]);
    if (row == 0)
        return err_set(
            e, ERR_BAD_FILE,
            "tensor '%s': dimension 0 is %llu, which %s, unknown or in blocks, cannot have", name.s,
            (unsigned long long)t->dims[0], gguf_type_name(t->type));
    t->bytes = row;
    for (unsigned i = 1; i < GGUF_DIMS_MAX && t->bytes <= file_bytes; i++) {
        if (t->dims[i] > file_bytes / t->bytes)
            return err_set(e, ERR_BAD_FILE,
                           "tensor '%s': dimension %u is %llu, larger than the file can hold",
                           name.s, i, (unsigned long long)t->dims[i]);
        t->bytes *= t->dims[i];
    }
    if (t->bytes > file_bytes)
        return err_set(e, ERR_BAD_FILE,
                       "tensor '%s': dimension 0 is %llu, larger than the file can hold", name.s,
                       (unsigned long long)t->dims[0]);
    return 0;
}

/* The table; `data` holds the offset until place_tensors turns it into a pointer. */
static int parse_tensors(struct gguf *g, struct cursor *c, uint64_t count, uint64_t *offsets,
                         struct err *e)
{
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (take_str(c, &t->name) != 0)
            return err_set(e, ERR_BAD_FILE,
                           "tensor %llu of %llu: its name runs past the end of the file",
                           (unsigned long long)i, (unsigned long long)count);
        if (parse_dims(c, t, e) != 0)
            return -1;
        if (take(c, &t->type, 4) != 0 || take(c, &offsets[i], 8) != 0)
            return err_set(e, ERR_BAD_FILE, "tensor '%s': the file ends inside its entry",
                           gguf_show(t->name).s);
    }
    g->n_tensors = count;
    return 0;
}

static int place_tensors(struct gguf *g, const uint64_t *offsets, struct err *e)
{
    size_t room = g->n - g->data_at;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        struct gguf_shown name = gguf_show(t->name);
        if (offsets[i] % g->alignment != 0)
            return err_set(e, ERR_BAD_FILE,
                           "tensor '%s': offset %llu is no multiple of the alignment %llu", name.s,
                           (unsigned long long)offsets[i], (unsigned long long)g->alignment);
        if (size_tensor(t, g->n, e) != 0)
            return -1;
        if (offsets[i] > room || t->bytes > room - offsets[i])
            return err_set(e, ERR_BAD_FILE,
                           "tensor '%s' lies outside the file (offset %llu + %llu bytes, the "
                           "file has %zu): broken download?",
                           name.s, (unsigned long long)offsets[i], (unsigned long long)t->bytes,
                           room);
        t->data = g->p + g->data_at + offsets[i];
        g->by_name[i] = t;
    }
    return 0;
}

static int by_data(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

static int by_name(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;
    return gguf_str_cmp(x->name, y->name);
}

/* Overlaps are refused: with them a small file could make every reader of all tensors run for
 * hours. */
static int order_tensors(struct gguf *g, struct err *e)
{
    size_t n = (size_t)g->n_tensors;
    const uint8_t *end = g->p + g->data_at;
    qsort(g->by_name, n, sizeof *g->by_name, by_data);
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = g->by_name[i];
        if ((const uint8_t *)t->data < end)
            return err_set(e, ERR_BAD_FILE, "tensor '%s' overlaps tensor '%s'",
                           gguf_show(t->name).s, gguf_show(g->by_name[i - 1]->name).s);
        end = (const uint8_t *)t->data + t->bytes;
    }
    size_t extra = (size_t)(g->p + g->n - end);
    if (extra >= g->alignment)
        log_warn("the model file has %zu bytes after its last tensor; they are ignored", extra);
    qsort(g->by_name, n, sizeof *g->by_name, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&g->by_name[i - 1], &g->by_name[i]) == 0)
            return err_set(e, ERR_BAD_FILE, "tensor '%s' is there twice",
                           gguf_show(g->by_name[i]->name).s);
    return 0;
}

static int parse_tensor_part(struct gguf *g, struct cursor *c, uint64_t count, struct err *e)
{
    int rc = -1;
    uint64_t *offsets = mem_array((size_t)count + 1, sizeof *offsets);
    g->tensors = mem_array((size_t)count + 1, sizeof *g->tensors);
    g->by_name = mem_array((size_t)count + 1, sizeof *g->by_name);
    if (!offsets || !g->tensors || !g->by_name) {
        err_set(e, ERR_NO_MEMORY, "no memory for %llu tensors", (unsigned long long)count);
        goto out;
    }
    if (parse_tensors(g, c, count, offsets, e) != 0)
        goto out;
    size_t pad = (size_t)(-(uint64_t)c->at & (g->alignment - 1));
    g->data_at = pad <= left(c) ? c->at + pad : g->n;
    if (place_tensors(g, offsets, e) == 0 && order_tensors(g, e) == 0)
        rc = 0;
out:
    mem_free(offsets);
    return rc;
}

static int check_count(const char *field, uint64_t count, uint64_t max, size_t room, struct err *e)
{
    if (count > max)
        return err_set(e, ERR_BAD_FILE, "%s is %llu, at most %llu are allowed", field,
                       (unsigned long long)count, (unsigned long long)max);
    if (count > room)
        return err_set(e, ERR_BAD_FILE, "%s is %llu, more than the file has room for", field,
                       (unsigned long long)count);
    return 0;
}

int gguf_parse(struct gguf *g, struct err *e)
{
    struct cursor c = {g->p, g->n, 0};
    char magic[4];
    uint64_t n_tensors, n_kvs;
    if (g->n == 0)
        return err_set(e, ERR_BAD_FILE, "the file is empty");
    if (take(&c, magic, 4) != 0 || memcmp(magic, "GGUF", 4) != 0)
        return err_set(e, ERR_BAD_FILE, "not a GGUF file: its first four bytes are not 'GGUF'");
    if (take(&c, &g->version, 4) != 0)
        return err_set(e, ERR_BAD_FILE, "the file ends inside the header (version)");
    if (g->version != 2 && g->version != 3)
        return err_set(e, ERR_BAD_FILE,
                       "version is %u%s; versions 2 and 3, little endian, are read", g->version,
                       g->version == 0x03000000u ? " (a big-endian file)" : "");
    if (take(&c, &n_tensors, 8) != 0)
        return err_set(e, ERR_BAD_FILE, "the file ends inside the header (n_tensors)");
    if (take(&c, &n_kvs, 8) != 0)
        return err_set(e, ERR_BAD_FILE, "the file ends inside the header (n_kv)");
    if (check_count("n_tensors", n_tensors, GGUF_TENSORS_MAX, left(&c) / TENSOR_BYTES_MIN, e) !=
            0 ||
        check_count("n_kv", n_kvs, GGUF_KV_MAX, left(&c) / KV_BYTES_MIN, e) != 0)
        return -1;
    if (parse_kvs(g, &c, n_kvs, e) != 0 || parse_alignment(g, e) != 0)
        return -1;
    return parse_tensor_part(g, &c, n_tensors, e);
}
