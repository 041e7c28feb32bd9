/* peer_map.c - places in one array; chains of equal hash and the list from latest to longest ago heard go
 * through the places by index. Number = generation << 12 | place, generation from 1.
 */
#include "proto/peer_map.h"

#include "base/hash.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>

#define NIL UINT32_MAX
#define PLACE_BITS 12
#define GENERATION_MAX ((1u << (32 - PLACE_BITS)) - 1)

_Static_assert(PEER_PLACES_MAX == 1u << PLACE_BITS, "a number holds the place in PLACE_BITS");

struct place {
    uint8_t *id;                   /* NULL = free */
    uint32_t n, generation;
    uint32_t chain;                /* next of the same bucket, or next free place */
    uint32_t newer, older;
};

struct peer_map {
    uint64_t seed;
    uint32_t capacity, count, free;
    uint32_t newest, oldest;
    uint32_t buckets[PEER_PLACES_MAX];
    struct place places[];
};

int peer_map_create(struct peer_map **out, uint32_t capacity)
{
    assert(capacity >= 1 && capacity <= PEER_PLACES_MAX);
    struct peer_map *m = mem_zalloc(sizeof(*m) + capacity * sizeof(m->places[0]));
    *out = m;
    if (m == NULL)
        return -1;
    if (getrandom(&m->seed, sizeof m->seed, 0) != (ssize_t)sizeof m->seed)
        m->seed = (uint64_t)(uintptr_t)m; /* worse, not wrong */
    m->capacity = capacity;
    m->newest = m->oldest = NIL;
    for (uint32_t i = 0; i < PEER_PLACES_MAX; i++)
        m->buckets[i] = NIL;
    for (uint32_t i = 0; i < capacity; i++)
        m->places[i] = (struct place){.generation = 1, .chain = i + 1 < capacity ? i + 1 : NIL};
    return 0;
}

void peer_map_destroy(struct peer_map **out)
{
    struct peer_map *m = *out;
    for (uint32_t i = 0; m != NULL && i < m->capacity; i++)
        mem_free(m->places[i].id);
    mem_free(m);
    *out = NULL;
}

static uint32_t *bucket_of(struct peer_map *m, const void *id, size_t n)
{
    return &m->buckets[hash64(id, n, m->seed) & (PEER_PLACES_MAX - 1)];
}

static void unlink_age(struct peer_map *m, uint32_t at)
{
    struct place *p = &m->places[at];
    if (p->newer == NIL)
        m->newest = p->older;
    else
        m->places[p->newer].older = p->older;
    if (p->older == NIL)
        m->oldest = p->newer;
    else
        m->places[p->older].newer = p->newer;
}

static void link_newest(struct peer_map *m, uint32_t at)
{
    m->places[at].newer = NIL;
    m->places[at].older = m->newest;
    if (m->newest != NIL)
        m->places[m->newest].newer = at;
    else
        m->oldest = at;
    m->newest = at;
}

static uint32_t number_of(const struct peer_map *m, uint32_t at)
{
    return m->places[at].generation << PLACE_BITS | at;
}

static void forget(struct peer_map *m, uint32_t at)
{
    struct place *p = &m->places[at];
    uint32_t *link = bucket_of(m, p->id, p->n);
    while (*link != at) {
        assert(*link != NIL);
        link = &m->places[*link].chain;
    }
    *link = p->chain;
    unlink_age(m, at);
    mem_free(p->id);
    p->id = NULL;
    p->generation = p->generation == GENERATION_MAX ? 1 : p->generation + 1;
    p->chain = m->free;
    m->free = at;
    m->count--;
}

static uint32_t add(struct peer_map *m, const void *id, size_t n)
{
    uint8_t *copy = mem_memdup(id, n);
    if (copy == NULL)
        return PEER_NONE;
    if (m->free == NIL)
        forget(m, m->oldest);
    uint32_t at = m->free, *bucket = bucket_of(m, id, n);
    struct place *p = &m->places[at];
    m->free = p->chain;
    p->id = copy;
    p->n = (uint32_t)n;
    p->chain = *bucket;
    *bucket = at;
    link_newest(m, at);
    m->count++;
    return number_of(m, at);
}

uint32_t peer_map_touch(struct peer_map *m, const void *id, size_t n)
{
    assert(n <= PEER_ID_MAX);
    for (uint32_t at = *bucket_of(m, id, n); at != NIL; at = m->places[at].chain) {
        const struct place *p = &m->places[at];
        if (p->n == n && memcmp(p->id, id, n) == 0) {
            unlink_age(m, at);
            link_newest(m, at);
            return number_of(m, at);
        }
    }
    return add(m, id, n);
}

/* Index of a live number, or NIL. */
static uint32_t find(const struct peer_map *m, uint32_t peer)
{
    uint32_t at = peer & (PEER_PLACES_MAX - 1);
    if (at >= m->capacity || m->places[at].id == NULL || number_of(m, at) != peer)
        return NIL;
    return at;
}

const void *peer_map_id(const struct peer_map *m, uint32_t peer, size_t *n)
{
    uint32_t at = find(m, peer);
    if (at == NIL)
        return NULL;
    *n = m->places[at].n;
    return m->places[at].id;
}

void peer_map_drop(struct peer_map *m, uint32_t peer)
{
    uint32_t at = find(m, peer);
    if (at != NIL)
        forget(m, at);
}

uint32_t peer_map_count(const struct peer_map *m)
{
    return m->count;
}

const char *peer_map_check(const struct peer_map *m)
{
    uint32_t live = 0, chained = 0, aged = 0, unused = 0;
    for (uint32_t i = 0; i < m->capacity; i++)
        live += m->places[i].id != NULL;
    for (uint32_t b = 0; b < PEER_PLACES_MAX; b++)
        for (uint32_t at = m->buckets[b]; at != NIL && chained <= live; at = m->places[at].chain)
            chained++;
    for (uint32_t at = m->newest; at != NIL && aged <= live; at = m->places[at].older)
        aged++;
    for (uint32_t at = m->free; at != NIL && unused <= m->capacity; at = m->places[at].chain)
        unused++;
    if (live != m->count)
        return "the count is not the number of places in use";
    if (chained != live)
        return "a peer is in no bucket, or in two";
    if (aged != live)
        return "a peer is missing in the list by age";
    return unused + live == m->capacity ? NULL : "a place is neither used nor free";
}
