#include "model/bpe_table.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

static uint32_t slots_for(uint32_t count)
{
    uint32_t n = 16;
    assert(count <= 1u << 28);
    while (n < 2 * count)
        n *= 2;
    return n;
}

static uint32_t hash_pair(int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)((x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u >> 32);
}

int pair_table_init(struct pair_table *t, uint32_t count)
{
    uint32_t n = slots_for(count);
    t->slots = mem_array(n, sizeof *t->slots);
    if (!t->slots)
        return -1;
    t->mask = n - 1;
    for (uint32_t i = 0; i < n; i++)
        t->slots[i].left = -1;
    return 0;
}

void pair_table_deinit(struct pair_table *t)
{
    mem_free(t->slots);
    t->slots = NULL;
}

void pair_table_put(struct pair_table *t, int32_t left, int32_t right, int32_t rank, int32_t merged)
{
    uint32_t i = hash_pair(left, right) & t->mask;
    while (t->slots[i].left >= 0) {
        if (t->slots[i].left == left && t->slots[i].right == right)
            return;
        i = (i + 1) & t->mask;
    }
    t->slots[i] = (struct pair_slot){left, right, rank, merged};
}

const struct pair_slot *pair_table_find(const struct pair_table *t, int32_t left, int32_t right)
{
    for (uint32_t i = hash_pair(left, right) & t->mask;; i = (i + 1) & t->mask) {
        const struct pair_slot *s = &t->slots[i];
        if (s->left == left && s->right == right)
            return s;
        if (s->left < 0)
            return NULL;
    }
}

int byte_index_init(struct byte_index *x, const struct vocab *v)
{
    uint32_t n = slots_for((uint32_t)vocab_size(v));
    x->v = v;
    x->slots = mem_array(n, sizeof *x->slots);
    if (!x->slots)
        return -1;
    x->mask = n - 1;
    memset(x->slots, 0xff, n * sizeof *x->slots);
    for (int32_t id = 0; id < vocab_size(v); id++) {
        size_t len;
        const uint8_t *p = vocab_bytes(v, id, &len);
        if (!vocab_is_plain(v, id) || byte_index_find(x, p, len) >= 0)
            continue;
        uint32_t i = (uint32_t)hash64(p, len, 0) & x->mask;
        while (x->slots[i] >= 0)
            i = (i + 1) & x->mask;
        x->slots[i] = id;
    }
    return 0;
}

void byte_index_deinit(struct byte_index *x)
{
    mem_free(x->slots);
    x->slots = NULL;
}

int32_t byte_index_find(const struct byte_index *x, const uint8_t *p, size_t n)
{
    for (uint32_t i = (uint32_t)hash64(p, n, 0) & x->mask; x->slots[i] >= 0;
         i = (i + 1) & x->mask) {
        size_t len;
        const uint8_t *q = vocab_bytes(x->v, x->slots[i], &len);
        if (len == n && memcmp(p, q, n) == 0)
            return x->slots[i];
    }
    return -1;
}
