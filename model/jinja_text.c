#include "model/jinja_text.h"

#include "model/chat_template.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

int jbuild_add(struct jbuild *b, const char *p, size_t n, bool own)
{
    if (!n)
        return 0;
    if (n > CHAT_RENDER_MAX - b->n)
        return jrun_fail(b->run, ERR_TOO_LARGE, "the text is larger than %u bytes",
                         CHAT_RENDER_MAX);
    char *q = jrun_grow(b->run, b->p, &b->cap, b->n + n, 1);
    if (!q)
        return -1;
    b->p = q;
    memcpy(b->p + b->n, p, n);
    b->n += n;
    if (b->n_marks && b->marks[b->n_marks - 1].own == own) {
        b->marks[b->n_marks - 1].end = b->n;
        return 0;
    }
    struct jmark *m = jrun_grow(b->run, b->marks, &b->cap_marks, b->n_marks + 1, sizeof *m);
    if (!m)
        return -1;
    b->marks = m;
    m[b->n_marks++] = (struct jmark){b->n, own};
    return 0;
}

/* The first mark that ends after byte `at`. */
static size_t mark_at(const struct jtext *t, size_t at)
{
    size_t lo = 0, hi = t->n_marks;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->marks[mid].end > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

int jbuild_sub(struct jbuild *b, struct jtext *t, size_t from, size_t to)
{
    assert(t->p && from <= to && to <= t->n);
    if (!t->marks)
        return jbuild_add(b, t->p + from, to - from, t->own);
    for (size_t i = mark_at(t, from); from < to; i++) {
        size_t end = t->marks[i].end < to ? t->marks[i].end : to;
        if (jbuild_add(b, t->p + from, end - from, t->marks[i].own))
            return -1;
        from = end;
    }
    return 0;
}

int jbuild_text(struct jbuild *b, struct jtext *t)
{
    return jtext_flat(b->run, t) ? -1 : jbuild_sub(b, t, 0, t->n);
}

static void set_flat(struct jtext *t, const struct jbuild *b)
{
    t->p = b->p ? b->p : "";
    t->n = b->n;
    t->own = b->n_marks ? b->marks[0].own : true;
    t->marks = b->n_marks > 1 ? b->marks : NULL;
    t->n_marks = b->n_marks > 1 ? b->n_marks : 0;
    t->l = t->r = NULL;
}

struct jtext *jbuild_done(struct jbuild *b)
{
    struct jtext *t = jrun_alloc(b->run, sizeof *t);
    if (t)
        set_flat(t, b);
    return t;
}

struct jtext *jtext_borrow(struct jrun *r, const char *p, size_t n, bool own)
{
    struct jtext *t = jrun_alloc(r, sizeof *t);
    if (!t)
        return NULL;
    t->p = p;
    t->n = n;
    t->own = own;
    return t;
}

struct jtext *jtext_copy(struct jrun *r, const char *p, size_t n, bool own)
{
    char *q = jrun_strndup(r, p, n);
    return q ? jtext_borrow(r, q, n, own) : NULL;
}

struct jtext *jtext_cat(struct jrun *r, struct jtext *a, struct jtext *b)
{
    if (!a->n)
        return b;
    if (!b->n)
        return a;
    if (a->n > CHAT_RENDER_MAX || b->n > CHAT_RENDER_MAX - a->n) {
        jrun_fail(r, ERR_TOO_LARGE, "the text is larger than %u bytes", CHAT_RENDER_MAX);
        return NULL;
    }
    struct jtext *t = jrun_alloc(r, sizeof *t);
    if (!t)
        return NULL;
    t->n = a->n + b->n;
    t->l = a;
    t->r = b;
    return t;
}

/* A rope may be as deep as the template has steps, so it is walked with a stack of its own. */
int jtext_flat(struct jrun *r, struct jtext *t)
{
    if (t->p)
        return 0;
    if (jrun_step(r, t->n))
        return -1;
    struct jbuild b = {.run = r};
    struct jtext **stack = NULL;
    size_t n = 0, cap = 0;
    b.p = jrun_alloc(r, t->n);
    b.cap = t->n;
    if (!b.p)
        return -1;
    for (struct jtext *cur = t; cur; cur = n ? stack[--n] : NULL) {
        for (; !cur->p; cur = cur->l) {
            struct jtext **s = jrun_grow(r, stack, &cap, n + 1, sizeof *s);
            if (!s)
                return -1;
            stack = s;
            stack[n++] = cur->r;
        }
        if (jbuild_sub(&b, cur, 0, cur->n))
            return -1;
    }
    set_flat(t, &b);
    return 0;
}

bool jtext_all_own(const struct jtext *t)
{
    assert(t->p);
    return !t->n || (!t->marks && t->own); /* with marks there is a piece of either kind */
}

struct jtext *jtext_sub(struct jrun *r, struct jtext *t, size_t from, size_t to)
{
    if (jtext_flat(r, t))
        return NULL;
    if (!t->marks)
        return jtext_borrow(r, t->p + from, to - from, t->own);
    if (jrun_step(r, to - from))
        return NULL;
    struct jbuild b = {.run = r};
    return jbuild_sub(&b, t, from, to) ? NULL : jbuild_done(&b);
}

struct jtext *jtext_taint(struct jrun *r, struct jtext *t)
{
    return jtext_flat(r, t) ? NULL : jtext_borrow(r, t->p, t->n, false);
}

int jtext_cmp(struct jrun *r, struct jtext *a, struct jtext *b, int *out)
{
    if (jtext_flat(r, a) || jtext_flat(r, b))
        return -1;
    size_t n = a->n < b->n ? a->n : b->n;
    if (jrun_step(r, n))
        return -1;
    int c = n ? memcmp(a->p, b->p, n) : 0; /* byte order of UTF-8 is code point order */
    *out = c ? (c < 0 ? -1 : 1) : (a->n > b->n) - (a->n < b->n);
    return 0;
}

size_t jtext_find(const struct jtext *t, const struct jtext *what, size_t from)
{
    assert(t->p && what->p && from <= t->n);
    if (!what->n)
        return from;
    const char *q = memmem(t->p + from, t->n - from, what->p, what->n);
    return q ? (size_t)(q - t->p) : SIZE_MAX;
}

static bool is_alpha(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

struct jtext *jtext_case(struct jrun *r, struct jtext *t, enum jtext_case how)
{
    if (jtext_flat(r, t) || jrun_step(r, t->n))
        return NULL;
    char *p = jrun_strndup(r, t->p, t->n);
    struct jtext *out = p ? jtext_borrow(r, p, t->n, t->own) : NULL;
    if (!out)
        return NULL;
    out->marks = t->marks; /* every byte keeps its place */
    out->n_marks = t->n_marks;
    bool inside = false;
    for (size_t i = 0; i < t->n; i++) {
        char c = p[i];
        bool up = how == JTEXT_UPPER || (how == JTEXT_CAPITALIZE && i == 0) ||
                  ((how == JTEXT_TITLE || how == JTEXT_WORDS) && !inside);
        if (up && c >= 'a' && c <= 'z')
            p[i] = (char)(c - 'a' + 'A');
        else if (!up && c >= 'A' && c <= 'Z')
            p[i] = (char)(c - 'A' + 'a');
        if (how == JTEXT_WORDS)
            inside = !memchr("-({[<", c, 5) && !jspace_before(t->p, i + 1);
        else
            inside = is_alpha((unsigned char)c);
    }
    return out;
}

struct jtext *jtext_replace(struct jrun *r, struct jtext *t, struct jtext *old, struct jtext *new_,
                            int64_t max)
{
    if (jtext_flat(r, t) || jtext_flat(r, old) || jtext_flat(r, new_) || jrun_step(r, t->n))
        return NULL;
    if (!old->n) {
        jrun_fail(r, ERR_INVALID, "replacing an empty text is not supported");
        return NULL;
    }
    struct jbuild b = {.run = r};
    size_t at = 0, hit;
    while (max != 0 && (hit = jtext_find(t, old, at)) != SIZE_MAX) {
        if (jrun_step(r, 0) || jbuild_sub(&b, t, at, hit) || jbuild_sub(&b, new_, 0, new_->n))
            return NULL;
        at = hit + old->n;
        max -= max > 0;
    }
    if (!at)
        return t;
    if (jbuild_sub(&b, t, at, t->n))
        return NULL;
    struct jtext *out = jbuild_done(&b);
    /* A caller's search text chooses which own bytes fall out: the rest is no longer own alone. */
    return out && !jtext_all_own(old) ? jtext_taint(r, out) : out;
}
