/* api_key.h - API keys: making one, its hash, comparing hashes. The only place that knows how.
 *
 * A key is `sk-sluice-` and 43 base64url characters: 256 random bits. Because nobody can guess among 2^256,
 * its hash needs no slow password function: one keyed BLAKE2b (a fixed key that only separates it from other
 * uses) costs half a microsecond and cannot be turned back. Whoever reads the file of hashes has no key.
 *
 * Comparing is constant-time over the whole hash. A table of hashes is indexed by api_key_slot: a keyed
 * hash (SipHash) under a secret that each process draws anew and nobody else knows. So where a wrong key
 * lands, and how long the look-up takes, says nothing about the keys that are there.
 *
 * Thread: any, after api_key_init. Ownership: caller's storage.
 */
#ifndef SLUICE_PROTO_API_KEY_H
#define SLUICE_PROTO_API_KEY_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define API_KEY_TEXT_BYTES 54    /* of a key we make, with the NUL */
#define API_KEY_MAX 256          /* longer ones are wrong without being hashed */
#define API_KEY_HASH_BYTES 32
#define API_KEY_ID_BYTES 17      /* "key_" and 12 hex digits of the hash, with the NUL */
#define API_KEY_SECRET_BYTES 16

int api_key_init(struct err *e); /* once a process before anything else; 0 or -1 */
void api_key_make(char out[API_KEY_TEXT_BYTES]);
void api_key_hash(uint8_t out[API_KEY_HASH_BYTES], const char *key, size_t n);
bool api_key_equal(const uint8_t a[API_KEY_HASH_BYTES], const uint8_t b[API_KEY_HASH_BYTES]);
/* The name by which people and logs speak of a key; it does not help to find the key. */
void api_key_id(char out[API_KEY_ID_BYTES], const uint8_t hash[API_KEY_HASH_BYTES]);
void api_key_secret(uint8_t out[API_KEY_SECRET_BYTES]);
uint64_t api_key_slot(const uint8_t hash[API_KEY_HASH_BYTES],
                      const uint8_t secret[API_KEY_SECRET_BYTES]);
void api_key_wipe(void *p, size_t n);

#endif
