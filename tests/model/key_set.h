/* key_set.h - a set of 128-bit state fingerprints, open addressing, one mapping, never grows.
 *
 * Two different states with one fingerprint would hide one of them: at 10^7 states the chance is
 * 10^-24. Full = the search reports it as a failure. Thread: one owner.
 */
#ifndef SLUICE_TESTS_KEY_SET_H
#define SLUICE_TESTS_KEY_SET_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

struct key_set {
    struct hash128 *at;
    uint64_t mask, count;
};

int key_set_init(struct key_set *s, unsigned log2_size);
void key_set_deinit(struct key_set *s);
bool key_set_add(struct key_set *s, struct hash128 k); /* false: was there */
bool key_set_has(const struct key_set *s, struct hash128 k);
bool key_set_full(const struct key_set *s); /* three quarters */

#endif
