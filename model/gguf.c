#include "model/gguf_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_bytes(struct gguf **out, const void *p, size_t n, bool mapped, struct err *e)
{
    struct gguf *g = mem_zalloc(sizeof *g);
    if (!g) {
        if (mapped)
            munmap((void *)(uintptr_t)p, n);
        return err_set(e, ERR_NO_MEMORY, "no memory to read the model file");
    }
    g->p = p;
    g->n = n;
    g->mapped = mapped;
    if (gguf_parse(g, e) != 0) {
        gguf_close(&g);
        return -1;
    }
    *out = g;
    return 0;
}

uint64_t gguf_drop_tensor_pages(const struct gguf *g)
{
    uintptr_t first = (uintptr_t)g->p + g->n, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        uintptr_t at = (uintptr_t)gguf_tensor_at(g, i)->data;
        first = at < first ? at : first;
    }
    if (!g->mapped || g->n == 0) /* dropped heap pages would be zero, not the file again */
        return g->n;
    first = (first + page - 1) / page * page;
    uintptr_t end = (uintptr_t)g->p + g->n;
    if (first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
    return first < end ? first - (uintptr_t)g->p : g->n;
}

int gguf_open_mem(struct gguf **out, const void *p, size_t n, struct err *e)
{
    assert(((uintptr_t)p & 31) == 0);
    *out = NULL;
    return open_bytes(out, p, n, false, e);
}

/* Maps the file; NULL and an error, or the bytes (an empty file gives a non-NULL pointer and n =
 * 0). */
static const void *map_file(const char *path, size_t *n, struct err *e)
{
    static const char nothing[1];
    const void *p = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        err_set(e, ERR_IO, "cannot open the model file %s: %s", path, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        err_set(e, ERR_BAD_FILE, "%s is %s, not a model file", path,
                S_ISDIR(st.st_mode) ? "a folder" : "no regular file");
        goto out;
    }
    *n = (size_t)st.st_size;
    p = nothing;
    if (*n != 0) {
        p = mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            err_set(e, ERR_IO, "cannot map the model file %s: %s", path, strerror(errno));
            p = NULL;
        }
    }
out:
    close(fd);
    return p;
}

int gguf_open(struct gguf **out, const char *path, struct err *e)
{
    struct err why;
    size_t n = 0;
    *out = NULL;
    const void *p = map_file(path, &n, e);
    if (!p)
        return -1;
    if (open_bytes(out, p, n, n != 0, &why) == 0)
        return 0;
    return err_set(e, why.code, "%s: %s", path, why.msg);
}

void gguf_close(struct gguf **gp)
{
    struct gguf *g = *gp;
    *gp = NULL;
    if (!g)
        return;
    for (uint64_t i = 0; i < g->n_kvs; i++)
        mem_free(g->kvs[i].offsets);
    mem_free(g->kvs);
    mem_free(g->tensors);
    mem_free(g->by_name);
    if (g->mapped)
        munmap((void *)(uintptr_t)g->p, g->n);
    mem_free(g);
}

const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key)
{
    struct gguf_str want = {key, strlen(key)};
    uint64_t lo = 0, hi = g->n_kvs;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int r = gguf_str_cmp(g->kvs[mid].key, want);
        if (r == 0)
            return &g->kvs[mid];
        if (r < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* An integer of any width as (magnitude, negative). -1: not an integer type. */
static int load_int(uint32_t type, const uint8_t *p, uint64_t *mag, bool *negative)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v;
    int64_t s;
    v.u64 = 0;
    memcpy(&v, p, gguf_value_bytes(type));
    *negative = false;
    switch (type) {
    case GGUF_V_U8: *mag = v.u8; return 0;
    case GGUF_V_U16: *mag = v.u16; return 0;
    case GGUF_V_U32: *mag = v.u32; return 0;
    case GGUF_V_U64: *mag = v.u64; return 0;
    case GGUF_V_I8: s = v.i8; break;
    case GGUF_V_I16: s = v.i16; break;
    case GGUF_V_I32: s = v.i32; break;
    case GGUF_V_I64: s = v.i64; break;
    default: return -1;
    }
    *negative = s < 0;
    *mag = s < 0 ? -(uint64_t)s : (uint64_t)s;
    return 0;
}

static const struct gguf_kv *find_scalar(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    return kv && !kv->is_array ? kv : NULL;
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out)
{
    const struct gguf_kv *kv = find_scalar(g, key);
    uint64_t mag;
    bool negative;
    if (!kv || load_int(kv->type, kv->value, &mag, &negative) != 0 || negative)
        return -1;
    *out = mag;
    return 0;
}

static int load_f32(uint32_t type, const uint8_t *p, float *out)
{
    double d;
    if (type == GGUF_V_F32) {
        memcpy(out, p, 4);
        return 0;
    }
    if (type != GGUF_V_F64)
        return -1;
    memcpy(&d, p, 8);
    /* Out of float's range the conversion would be undefined: infinity, which every check refuses.
     */
    *out = fabs(d) > 3.4028234663852886e38 ? INFINITY : (float)d;
    return 0;
}

int gguf_get_f32(const struct gguf *g, const char *key, float *out)
{
    const struct gguf_kv *kv = find_scalar(g, key);
    return kv ? load_f32(kv->type, kv->value, out) : -1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_kv *kv = find_scalar(g, key);
    if (!kv || kv->type != GGUF_V_BOOL)
        return -1;
    *out = *kv->value != 0;
    return 0;
}

/* A string whose bounds gguf_parse has checked. */
static struct gguf_str load_str(const uint8_t *p)
{
    uint64_t n;
    memcpy(&n, p, 8);
    return (struct gguf_str){(const char *)p + 8, (size_t)n};
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out)
{
    const struct gguf_kv *kv = find_scalar(g, key);
    if (!kv || kv->type != GGUF_V_STRING)
        return -1;
    *out = load_str(kv->value);
    return 0;
}

static const struct gguf_kv *find_element(const struct gguf *g, const char *key, uint64_t i)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    return kv && kv->is_array && i < kv->count ? kv : NULL;
}

int64_t gguf_array_count(const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    return kv && kv->is_array ? (int64_t)kv->count : -1;
}

int gguf_array_str(const struct gguf *g, const char *key, uint64_t i, struct gguf_str *out)
{
    const struct gguf_kv *kv = find_element(g, key, i);
    if (!kv || kv->type != GGUF_V_STRING)
        return -1;
    *out = load_str(g->p + kv->offsets[i]);
    return 0;
}

int gguf_array_i64(const struct gguf *g, const char *key, uint64_t i, int64_t *out)
{
    const struct gguf_kv *kv = find_element(g, key, i);
    uint64_t mag;
    bool negative;
    if (!kv || load_int(kv->type, kv->value + i * gguf_value_bytes(kv->type), &mag, &negative) != 0)
        return -1;
    if (mag > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return -1;
    *out = negative ? (int64_t)(0 - mag) : (int64_t)mag;
    return 0;
}

int gguf_array_f32(const struct gguf *g, const char *key, uint64_t i, float *out)
{
    const struct gguf_kv *kv = find_element(g, key, i);
    return kv ? load_f32(kv->type, kv->value + i * gguf_value_bytes(kv->type), out) : -1;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    struct gguf_str want = {name, strlen(name)};
    uint64_t lo = 0, hi = g->n_tensors;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int r = gguf_str_cmp(g->by_name[mid]->name, want);
        if (r == 0)
            return g->by_name[mid];
        if (r < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

uint64_t gguf_tensor_count(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i];
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->n;
}

struct hash128 gguf_tensors_hash(const struct gguf *g)
{
    /* By name, so that the order in the file does not matter; a chain, so that every part does. */
    struct hash128 h = {0, 0};
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = g->by_name[i];
        struct {
            uint64_t lo, hi, name[2], data[2], dims[GGUF_DIMS_MAX], type;
        } link;
        struct hash128 name = hash128(t->name.p, t->name.n, 0);
        struct hash128 data = hash128(t->data, (size_t)t->bytes, 0);
        memset(&link, 0, sizeof link);
        link.lo = h.lo;
        link.hi = h.hi;
        link.name[0] = name.lo;
        link.name[1] = name.hi;
        link.data[0] = data.lo;
        link.data[1] = data.hi;
        memcpy(link.dims, t->dims, sizeof link.dims);
        link.type = t->type;
        h = hash128(&link, sizeof link, 0);
    }
    return h;
}
