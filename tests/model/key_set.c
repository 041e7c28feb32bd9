#include "tests/model/key_set.h"

#include "base/mem.h"

int key_set_init(struct key_set *s, unsigned log2_size)
{
    s->mask = ((uint64_t)1 << log2_size) - 1;
    s->count = 0;
    s->at = mem_map((s->mask + 1) * sizeof *s->at);
    return s->at != NULL ? 0 : -1;
}

void key_set_deinit(struct key_set *s)
{
    mem_unmap(s->at, (s->mask + 1) * sizeof *s->at);
    s->at = NULL;
}

/* The place of k, or the empty one where it belongs. The all-zero key marks emptiness. */
static uint64_t key_set_place(const struct key_set *s, struct hash128 *k)
{
    if ((k->lo | k->hi) == 0) k->lo = 1;
    uint64_t i = k->lo & s->mask;
    while ((s->at[i].lo | s->at[i].hi) != 0 && !hash128_equal(s->at[i], *k)) i = (i + 1) & s->mask;
    return i;
}

bool key_set_has(const struct key_set *s, struct hash128 k)
{
    uint64_t i = key_set_place(s, &k);
    return (s->at[i].lo | s->at[i].hi) != 0;
}

bool key_set_add(struct key_set *s, struct hash128 k)
{
    uint64_t i = key_set_place(s, &k);
    if ((s->at[i].lo | s->at[i].hi) != 0) return false;
    s->at[i] = k;
    s->count++;
    return true;
}

bool key_set_full(const struct key_set *s)
{
    return s->count > s->mask / 4 * 3;
}
