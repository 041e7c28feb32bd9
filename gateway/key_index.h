/* key_index.h - from an API key to whom it belongs, in constant time for whoever tries keys.
 *
 * A table of hashes, open addressing, at most half full. The place of a hash is a keyed hash of it under
 * a secret of this process (proto/api_key.h), and each candidate is compared over all its bytes: how
 * long a look-up takes depends on places that nobody outside can predict or steer, never on how much of
 * a key was right. Built once, then read only; a new file makes a new index.
 * Thread: the loop. Ownership: key_index_destroy frees it; grants point at tenants that the owner keeps alive.
 */
#ifndef SLUICE_GATEWAY_KEY_INDEX_H
#define SLUICE_GATEWAY_KEY_INDEX_H

#include "proto/api_key.h"

struct tenant;

struct key_grant {
    struct tenant *tenant;
    uint8_t classes;               /* what this key may use: bits of the class table */
};

struct key_index;

int key_index_create(struct key_index **out, uint32_t n_keys, struct err *e); /* room for so many */
void key_index_destroy(struct key_index **x);
/* A hash that is there already keeps its first grant. */
void key_index_add(struct key_index *x, const uint8_t hash[API_KEY_HASH_BYTES],
                   struct key_grant grant);
bool key_index_find(const struct key_index *x, const char *key, size_t n, struct key_grant *out);

#endif
