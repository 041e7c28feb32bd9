/* wire.c - see wire.h. */
#include "proto/wire.h"

#include "base/mem.h"
#include "proto/scan.h"

#include <assert.h>
#include <string.h>

#define CHUNK_BYTES 8192u

struct wire_chunk {
    struct wire_chunk *next;
    size_t used, cap;
    _Alignas(16) unsigned char bytes[];
};

void wire_init(struct wire *w, const void *p, size_t n, struct err *e)
{
    *w = (struct wire){.p = p, .end = (const uint8_t *)p + n, .e = e};
}

int wire_fail(struct wire *w, const char *what, const char *why)
{
    if (!w->bad)
        err_set(w->e, ERR_PROTOCOL, "%s: %s", what, why);
    w->bad = true;
    return -1;
}

static struct wire_chunk *chunk_new(struct wire *w, size_t bytes)
{
    size_t cap = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct wire_chunk *c = mem_alloc(sizeof(*c) + cap);
    if (c == NULL) {
        if (!w->bad)
            err_set(w->e, ERR_NO_MEMORY, "no memory for a message's list of %zu bytes", bytes);
        w->bad = true;
        return NULL;
    }
    *c = (struct wire_chunk){.next = w->arena, .cap = cap};
    w->arena = c;
    return c;
}

void *wire_alloc(struct wire *w, size_t count, size_t bytes)
{
    size_t size;
    if (w->bad || __builtin_mul_overflow(count, bytes, &size) || size > SIZE_MAX / 2)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    struct wire_chunk *c = w->arena;
    if (c == NULL || c->cap - c->used < size)
        c = chunk_new(w, size);
    if (c == NULL)
        return NULL;
    void *p = c->bytes + c->used;
    c->used += size;
    memset(p, 0, size);
    return p;
}

void wire_arena_free(void *arena)
{
    struct wire_chunk *c = arena;
    while (c != NULL) {
        struct wire_chunk *next = c->next;
        mem_free(c);
        c = next;
    }
}

/* The next token, counted as a field of `a`. False after a failure. */
static bool take(struct wire *w, struct wire_array *a, struct scan_token *t, const char *what)
{
    if (w->bad)
        return false;
    if (a != NULL) {
        if (a->left == 0) {
            wire_fail(w, what, "missing");
            return false;
        }
        a->left--;
    }
    const char *bad = scan_next(&w->p, w->end, t);
    assert(bad == NULL); /* scan_check accepted these bytes */
    if (bad != NULL)
        wire_fail(w, what, bad);
    return !w->bad;
}

struct wire_array wire_open(struct wire *w, struct wire_array *a, uint32_t fields,
                            const char *what)
{
    struct scan_token t;
    struct wire_array opened = {0};
    if (!take(w, a, &t, what))
        return opened;
    if (t.kind != SCAN_ARRAY)
        wire_fail(w, what, "not an array");
    else if (t.n < fields)
        wire_fail(w, what, "too few fields");
    else
        opened.left = t.n;
    return opened;
}

/* Skips one value with all in it; iterative, the scan bounded its size. */
static void skip(struct wire *w)
{
    for (uint64_t owed = 1; owed > 0; owed--) {
        struct scan_token t;
        if (!take(w, NULL, &t, "a trailing field"))
            return;
        if (t.kind == SCAN_ARRAY)
            owed += t.n;
        else if (t.kind == SCAN_MAP)
            owed += 2 * (uint64_t)t.n;
    }
}

void wire_close(struct wire *w, struct wire_array *a)
{
    for (; a->left > 0 && !w->bad; a->left--)
        skip(w);
}

uint32_t wire_count(struct wire *w, struct wire_array *a, uint32_t max, const char *what)
{
    struct scan_token t;
    if (!take(w, a, &t, what))
        return 0;
    if (t.kind != SCAN_ARRAY)
        wire_fail(w, what, "not a list");
    else if (t.n > max)
        wire_fail(w, what, "list too long");
    return w->bad ? 0 : t.n;
}

uint64_t wire_uint(struct wire *w, struct wire_array *a, uint64_t max, const char *what)
{
    struct scan_token t;
    if (!take(w, a, &t, what))
        return 0;
    if (t.kind != SCAN_UINT)
        wire_fail(w, what, "not an unsigned integer");
    else if (t.u > max)
        wire_fail(w, what, "too large");
    return w->bad ? 0 : t.u;
}

int32_t wire_i32(struct wire *w, struct wire_array *a, const char *what)
{
    struct scan_token t;
    if (!take(w, a, &t, what))
        return 0;
    if (t.kind == SCAN_UINT && t.u <= INT32_MAX)
        return (int32_t)t.u;
    if (t.kind == SCAN_INT && t.i >= INT32_MIN)
        return (int32_t)t.i;
    return wire_fail(w, what, "not a 32-bit integer");
}

float wire_float(struct wire *w, struct wire_array *a, const char *what)
{
    struct scan_token t;
    if (!take(w, a, &t, what))
        return 0;
    if (t.kind != SCAN_FLOAT)
        wire_fail(w, what, "not a float");
    else if (!(t.f >= -3.4e38 && t.f <= 3.4e38)) /* NaN fails both comparisons */
        wire_fail(w, what, "not a finite 32-bit float");
    return w->bad ? 0 : (float)t.f;
}

bool wire_bool(struct wire *w, struct wire_array *a, const char *what)
{
    struct scan_token t;
    if (!take(w, a, &t, what))
        return false;
    if (t.kind != SCAN_BOOL)
        wire_fail(w, what, "not a boolean");
    return !w->bad && t.b;
}

void wire_text(struct wire *w, struct wire_array *a, char *out, size_t cap, const char *what)
{
    struct scan_token t;
    out[0] = '\0';
    if (!take(w, a, &t, what))
        return;
    if (t.kind != SCAN_STR) {
        wire_fail(w, what, "not a string");
        return;
    }
    if (t.n >= cap) {
        wire_fail(w, what, "too long");
        return;
    }
    memcpy(out, t.p, t.n);
    out[t.n] = '\0';
    if (memchr(out, '\0', t.n) != NULL)
        wire_fail(w, what, "holds a NUL");
}

const char *wire_bytes(struct wire *w, struct wire_array *a, uint32_t max, uint32_t *n,
                       const char *what)
{
    struct scan_token t;
    *n = 0;
    if (!take(w, a, &t, what))
        return NULL;
    if (t.kind != SCAN_STR && t.kind != SCAN_BIN) {
        wire_fail(w, what, "not a string");
        return NULL;
    }
    if (t.n > max) {
        wire_fail(w, what, "too long");
        return NULL;
    }
    char *p = wire_alloc(w, (size_t)t.n + 1, 1);
    if (p == NULL)
        return NULL;
    memcpy(p, t.p, t.n);
    *n = t.n;
    return p;
}

static uint64_t read_le64(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = 8; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

struct hash128 wire_hash(struct wire *w, struct wire_array *a, const char *what)
{
    struct scan_token t;
    struct hash128 h = {0, 0};
    if (!take(w, a, &t, what))
        return h;
    if (t.kind != SCAN_BIN || t.n != 16) {
        wire_fail(w, what, "not 16 bytes");
        return h;
    }
    h.lo = read_le64(t.p);
    h.hi = read_le64(t.p + 8);
    return h;
}
