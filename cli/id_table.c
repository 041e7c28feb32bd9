/* id_table.c - see id_table.h. Open addressing, linear probing, doubled when 2/3 full. */
#include "cli/id_table.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_PLACES 1024

int id_table_init(struct id_table *t) {
    memset(t, 0, sizeof(*t));
    if (getrandom(&t->seed, sizeof(t->seed), 0) != sizeof(t->seed))
        t->seed = (uint64_t)(uintptr_t)t; /* an unseeded table is merely easier to attack */
    t->places = mem_array(FIRST_PLACES, sizeof(*t->places));
    t->mask = FIRST_PLACES - 1;
    return t->places != NULL ? 0 : -1;
}

void id_table_deinit(struct id_table *t) {
    mem_free(t->places);
    t->places = NULL;
}

/* Its place, or the empty one where it would go. */
static struct id_entry *place(const struct id_table *t, struct hash128 key) {
    for (size_t i = (size_t)key.lo & t->mask;; i = (i + 1) & t->mask)
        if (t->places[i].line == 0 || hash128_equal(t->places[i].key, key))
            return &t->places[i];
}

struct id_entry *id_table_find(const struct id_table *t, const char *id, size_t n) {
    struct id_entry *at = place(t, hash128(id, n, t->seed));
    return at->line != 0 ? at : NULL;
}

static int grow(struct id_table *t) {
    struct id_table bigger = *t;
    bigger.mask = t->mask * 2 + 1;
    bigger.places = mem_array(bigger.mask + 1, sizeof(*bigger.places));
    if (bigger.places == NULL)
        return -1;
    for (size_t i = 0; i <= t->mask; i++)
        if (t->places[i].line != 0)
            *place(&bigger, t->places[i].key) = t->places[i];
    mem_free(t->places);
    *t = bigger;
    return 0;
}

int id_table_add(struct id_table *t, const char *id, size_t n, uint64_t line, struct id_entry **at) {
    assert(line > 0);
    if ((t->n + 1) * 3 > (t->mask + 1) * 2 && grow(t) != 0)
        return -1;
    struct hash128 key = hash128(id, n, t->seed);
    *at = place(t, key);
    if ((*at)->line != 0)
        return 1;
    **at = (struct id_entry){key, line, ID_OPEN};
    t->n++;
    return 0;
}
