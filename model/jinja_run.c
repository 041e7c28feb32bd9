#include "model/jinja_run.h"

#include "base/mem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 32 * 1024, ALIGN = 16 };

struct jchunk {
    struct jchunk *next;
    size_t used, cap;
    _Alignas(ALIGN) char bytes[];
};

void jrun_init(struct jrun *r, struct err *e)
{
    memset(r, 0, sizeof *r);
    r->e = e;
    r->line = 1;
}

void jrun_deinit(struct jrun *r)
{
    while (r->chunks) {
        struct jchunk *next = r->chunks->next;
        mem_free(r->chunks);
        r->chunks = next;
    }
    r->used = 0;
}

static struct jchunk *chunk_add(struct jrun *r, size_t n)
{
    size_t cap = n > CHUNK_BYTES / 4 ? n : CHUNK_BYTES;
    if (cap > JRUN_ARENA_MAX - r->used) {
        jrun_fail(r, ERR_TOO_LARGE, "the template needs more than %zu bytes of memory",
                  JRUN_ARENA_MAX);
        return NULL;
    }
    struct jchunk *c = mem_alloc(sizeof *c + cap);
    if (!c) {
        jrun_fail(r, ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    r->used += cap;
    c->used = 0;
    c->cap = cap;
    /* A large block of its own goes behind the head, so that the head's free rest stays in use. */
    if (cap != CHUNK_BYTES && r->chunks) {
        c->next = r->chunks->next;
        r->chunks->next = c;
    } else {
        c->next = r->chunks;
        r->chunks = c;
    }
    return c;
}

void *jrun_alloc(struct jrun *r, size_t n)
{
    if (n > JRUN_ARENA_MAX) {
        jrun_fail(r, ERR_TOO_LARGE, "a value of the template is too large");
        return NULL;
    }
    n = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct jchunk *c = r->chunks;
    if (!c || c->cap - c->used < n) {
        c = chunk_add(r, n);
        if (!c)
            return NULL;
    }
    void *p = c->bytes + c->used;
    c->used += n;
    memset(p, 0, n);
    return p;
}

void *jrun_array(struct jrun *r, size_t count, size_t size)
{
    assert(size);
    if (count > JRUN_ARENA_MAX / size) {
        jrun_fail(r, ERR_TOO_LARGE, "a value of the template is too large");
        return NULL;
    }
    return jrun_alloc(r, count * size);
}

char *jrun_strndup(struct jrun *r, const char *p, size_t n)
{
    char *s = jrun_alloc(r, n + 1);
    if (s && n)
        memcpy(s, p, n);
    return s;
}

void *jrun_grow(struct jrun *r, void *p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return p;
    size_t next = *cap ? *cap : 8;
    while (next < need)
        next *= 2;
    void *q = jrun_array(r, next, size);
    if (!q)
        return NULL;
    if (*cap)
        memcpy(q, p, *cap * size);
    *cap = next;
    return q;
}

int jrun_step(struct jrun *r, size_t bytes)
{
    r->steps += 1 + bytes / 1024;
    if (r->steps > JRUN_STEPS_MAX)
        return jrun_fail(r, ERR_TOO_LARGE, "the template takes more than %u steps", JRUN_STEPS_MAX);
    return 0;
}

int jrun_fail(struct jrun *r, enum err_code code, const char *fmt, ...)
{
    char msg[ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_set(r->e, code, "chat template line %u: %s", r->line, msg);
}
