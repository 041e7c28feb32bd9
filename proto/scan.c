/* scan.c - see scan.h. */
#include "proto/scan.h"

#include <assert.h>
#include <string.h>

static uint64_t read_be(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

/* Sign extension from `bytes` bytes. */
static int64_t read_be_signed(const uint8_t *p, unsigned bytes)
{
    uint64_t v = read_be(p, bytes);
    unsigned shift = 64 - 8 * bytes;
    return (int64_t)(v << shift) >> shift;
}

static void put_signed(struct scan_token *t, int64_t v)
{
    if (v >= 0) {
        t->kind = SCAN_UINT;
        t->u = (uint64_t)v;
    } else {
        t->kind = SCAN_INT;
        t->i = v;
    }
}

static void put_float(struct scan_token *t, const uint8_t *p, unsigned bytes)
{
    t->kind = SCAN_FLOAT;
    if (bytes == 4) {
        uint32_t bits = (uint32_t)read_be(p, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        t->f = (double)f;
    } else {
        uint64_t bits = read_be(p, 8);
        memcpy(&t->f, &bits, sizeof t->f);
    }
}

/* Shape of a head byte from 0xc0 to 0xdf: what it starts and how many bytes of number follow. */
struct head_form { uint8_t what, bytes; };
enum { H_NIL, H_BAD, H_FALSE, H_TRUE, H_STR, H_BIN, H_EXT, H_FLOAT, H_UINT, H_INT, H_ARRAY, H_MAP };
static const struct head_form forms[32] = {
    {H_NIL, 0},   {H_BAD, 0},   {H_FALSE, 0}, {H_TRUE, 0},  /* c0 */
    {H_BIN, 1},   {H_BIN, 2},   {H_BIN, 4},                 /* c4 */
    {H_EXT, 1},   {H_EXT, 2},   {H_EXT, 4},                 /* c7 */
    {H_FLOAT, 4}, {H_FLOAT, 8},                             /* ca */
    {H_UINT, 1},  {H_UINT, 2},  {H_UINT, 4},  {H_UINT, 8},  /* cc */
    {H_INT, 1},   {H_INT, 2},   {H_INT, 4},   {H_INT, 8},   /* d0 */
    {H_EXT, 0},   {H_EXT, 0},   {H_EXT, 0},   {H_EXT, 0},   {H_EXT, 0}, /* d4 fixext */
    {H_STR, 1},   {H_STR, 2},   {H_STR, 4},                 /* d9 */
    {H_ARRAY, 2}, {H_ARRAY, 4},                             /* dc */
    {H_MAP, 2},   {H_MAP, 4},                               /* de */
};

/* Takes the t->n bytes of a string. */
static const char *take_bytes(const uint8_t **p, const uint8_t *end, struct scan_token *t)
{
    if (t->n > (size_t)(end - *p))
        return "a string is longer than the message";
    t->p = *p;
    *p += t->n;
    return NULL;
}

/* Heads of one byte that carry their number: fixint, fixmap, fixarray, fixstr. True when it was one. */
static bool fix_form(uint8_t h, struct scan_token *t)
{
    if (h < 0x80 || h >= 0xe0) {
        put_signed(t, (int8_t)h);
    } else if (h < 0x90) {
        t->kind = SCAN_MAP;
        t->n = h & 15u;
    } else if (h < 0xa0) {
        t->kind = SCAN_ARRAY;
        t->n = h & 15u;
    } else if (h < 0xc0) {
        t->kind = SCAN_STR;
        t->n = h & 31u;
    } else {
        return false;
    }
    return true;
}

static const char *long_form(struct head_form f, const uint8_t *p, struct scan_token *t)
{
    switch (f.what) {
    case H_NIL:
        t->kind = SCAN_NIL;
        return NULL;
    case H_FALSE:
    case H_TRUE:
        t->kind = SCAN_BOOL;
        t->b = f.what == H_TRUE;
        return NULL;
    case H_FLOAT:
        put_float(t, p, f.bytes);
        return NULL;
    case H_UINT:
        t->kind = SCAN_UINT;
        t->u = read_be(p, f.bytes);
        return NULL;
    case H_INT:
        put_signed(t, read_be_signed(p, f.bytes));
        return NULL;
    case H_EXT:
        return "ext types are not taken";
    case H_BAD:
        return "0xc1 is no msgpack head";
    default:
        t->kind = f.what == H_STR ? SCAN_STR : f.what == H_BIN ? SCAN_BIN
                : f.what == H_ARRAY ? SCAN_ARRAY : SCAN_MAP;
        t->n = (uint32_t)read_be(p, f.bytes);
        return NULL;
    }
}

const char *scan_next(const uint8_t **p, const uint8_t *end, struct scan_token *t)
{
    assert(*p <= end);
    if (*p == end)
        return "the message is cut short";
    uint8_t h = *(*p)++;
    if (!fix_form(h, t)) {
        struct head_form f = forms[h - 0xc0];
        if (f.bytes > (size_t)(end - *p))
            return "the message is cut short";
        const uint8_t *number = *p;
        *p += f.bytes;
        const char *bad = long_form(f, number, t);
        if (bad)
            return bad;
    }
    if (t->kind == SCAN_STR || t->kind == SCAN_BIN)
        return take_bytes(p, end, t);
    return NULL;
}

/* Where a scan is: left[d] = values still owed at level d, owed = their sum. */
struct scan_walk {
    uint64_t left[SCAN_DEPTH_MAX + 1];
    uint64_t owed, nodes;
    uint32_t depth, deepest;
};

/* Opens a container of `n` values, or says why not. */
static const char *walk_open(struct scan_walk *w, uint64_t n, uint32_t depth_max, size_t bytes_left)
{
    if (w->depth == depth_max)
        return "nested too deep";
    w->left[++w->depth] = n;
    w->owed += n;
    if (w->depth > w->deepest)
        w->deepest = w->depth;
    return w->owed > bytes_left ? "it announces more values than there are bytes" : NULL;
}

static const char *walk(struct scan_walk *w, const uint8_t *p, const uint8_t *end,
                        uint32_t depth_max, uint32_t nodes_max)
{
    w->left[0] = w->owed = 1;
    for (;;) {
        while (w->left[w->depth] == 0) {
            if (w->depth == 0)
                return p == end ? NULL : "bytes after the end";
            w->depth--;
        }
        struct scan_token t;
        const char *bad = scan_next(&p, end, &t);
        if (bad)
            return bad;
        w->left[w->depth]--;
        w->owed--;
        if (++w->nodes > nodes_max)
            return "too many values";
        if (t.kind == SCAN_ARRAY || t.kind == SCAN_MAP) {
            uint64_t n = t.kind == SCAN_MAP ? 2 * (uint64_t)t.n : t.n;
            bad = walk_open(w, n, depth_max, (size_t)(end - p));
            if (bad)
                return bad;
        }
    }
}

int scan_check(const void *p, size_t n, uint32_t depth_max, uint32_t nodes_max,
               struct scan_info *info, struct err *e)
{
    assert(depth_max <= SCAN_DEPTH_MAX);
    struct scan_walk w = {.depth = 0};
    const uint8_t *bytes = p ? p : (const uint8_t *)"";
    const char *bad = walk(&w, bytes, bytes + n, depth_max, nodes_max);
    if (bad)
        return err_set(e, ERR_PROTOCOL, "not a valid msgpack message of %zu bytes: %s", n, bad);
    if (info)
        *info = (struct scan_info){.nodes = (uint32_t)w.nodes, .depth = w.deepest};
    return 0;
}

/* Continuation bytes that a lead byte asks for, and the smallest code point they may make; 0 = no lead. */
static unsigned utf8_tail(uint8_t lead, uint32_t *bits, uint32_t *least)
{
    if (lead >= 0xc2 && lead < 0xe0) {
        *bits = lead & 31u;
        *least = 0x80;
        return 1;
    }
    if (lead >= 0xe0 && lead < 0xf0) {
        *bits = lead & 15u;
        *least = 0x800;
        return 2;
    }
    if (lead >= 0xf0 && lead < 0xf5) {
        *bits = lead & 7u;
        *least = 0x10000;
        return 3;
    }
    return 0;
}

bool scan_utf8(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s, *end = p + n;
    while (p < end) {
        uint8_t c = *p++;
        if (c < 0x80)
            continue;
        uint32_t v = 0, least = 0;
        unsigned tail = utf8_tail(c, &v, &least);
        if (tail == 0 || tail > (size_t)(end - p))
            return false;
        for (unsigned i = 0; i < tail; i++, p++) {
            if ((*p & 0xc0) != 0x80)
                return false;
            v = v << 6 | (*p & 63u);
        }
        if (v < least || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
            return false;
    }
    return true;
}
