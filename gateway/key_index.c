#include "gateway/key_index.h"

#include "base/mem.h"

#include <assert.h>

struct entry {
    uint8_t hash[API_KEY_HASH_BYTES];
    struct key_grant grant;        /* tenant NULL = free */
};

struct key_index {
    uint8_t secret[API_KEY_SECRET_BYTES];
    uint32_t mask, n, room;
    struct entry *entries;
};

int key_index_create(struct key_index **out, uint32_t n_keys, struct err *e)
{
    struct key_index *x = mem_zalloc(sizeof *x);
    uint32_t size = 16;
    while (size < 2 * n_keys) size *= 2;
    if (x) x->entries = mem_array(size, sizeof *x->entries);
    if (x == NULL || x->entries == NULL) {
        mem_free(x);
        return err_set(e, ERR_NO_MEMORY, "out of memory for %u keys", n_keys);
    }
    x->mask = size - 1;
    x->room = n_keys;
    api_key_secret(x->secret);
    *out = x;
    return 0;
}

void key_index_destroy(struct key_index **px)
{
    struct key_index *x = *px;
    *px = NULL;
    if (x == NULL) return;
    mem_free(x->entries);
    mem_free(x);
}

/* The entry of this hash, or the free one where it would go. */
static struct entry *place(const struct key_index *x, const uint8_t hash[API_KEY_HASH_BYTES])
{
    uint64_t at = api_key_slot(hash, x->secret);
    for (;; at++) {
        struct entry *en = &x->entries[at & x->mask];
        /* a free one is compared as well: finding nothing costs what finding something does */
        bool same = api_key_equal(en->hash, hash);
        if (en->grant.tenant == NULL || same) return en;
    }
}

void key_index_add(struct key_index *x, const uint8_t hash[API_KEY_HASH_BYTES],
                   struct key_grant grant)
{
    struct entry *en = place(x, hash);
    assert(grant.tenant != NULL);
    if (en->grant.tenant != NULL) return;
    assert(x->n < x->room);
    x->n++;
    for (int i = 0; i < API_KEY_HASH_BYTES; i++) en->hash[i] = hash[i];
    en->grant = grant;
}

bool key_index_find(const struct key_index *x, const char *key, size_t n, struct key_grant *out)
{
    uint8_t hash[API_KEY_HASH_BYTES];
    if (n == 0 || n > API_KEY_MAX) return false;
    api_key_hash(hash, key, n);
    *out = place(x, hash)->grant;
    return out->tenant != NULL;
}
