/* api_key.c - see api_key.h. */
#include "proto/api_key.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "sk-sluice-"
#define RANDOM_BYTES 32

_Static_assert(API_KEY_HASH_BYTES <= crypto_generichash_BYTES_MAX, "hash");
_Static_assert(API_KEY_SECRET_BYTES == crypto_shorthash_KEYBYTES, "secret");
_Static_assert(API_KEY_TEXT_BYTES ==
                   sizeof PREFIX - 1 + sodium_base64_ENCODED_LEN(
                                           RANDOM_BYTES, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
               "text");

/* Not secret: it makes this hash of a key differ from any other use of BLAKE2b. */
static const uint8_t domain[] = "sluice api key, hash version 1..";

int api_key_init(struct err *e)
{
    return sodium_init() >= 0 ? 0 : err_set(e, ERR_IO, "no source of random bytes");
}

void api_key_make(char out[API_KEY_TEXT_BYTES])
{
    uint8_t random[RANDOM_BYTES];
    randombytes_buf(random, sizeof random);
    memcpy(out, PREFIX, sizeof PREFIX - 1);
    sodium_bin2base64(out + sizeof PREFIX - 1, API_KEY_TEXT_BYTES - (sizeof PREFIX - 1), random,
                      sizeof random, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    sodium_memzero(random, sizeof random);
}

void api_key_hash(uint8_t out[API_KEY_HASH_BYTES], const char *key, size_t n)
{
    crypto_generichash(out, API_KEY_HASH_BYTES, (const uint8_t *)key, n, domain,
                       sizeof domain - 1);
}

bool api_key_equal(const uint8_t a[API_KEY_HASH_BYTES], const uint8_t b[API_KEY_HASH_BYTES])
{
    return sodium_memcmp(a, b, API_KEY_HASH_BYTES) == 0;
}

void api_key_id(char out[API_KEY_ID_BYTES], const uint8_t hash[API_KEY_HASH_BYTES])
{
    snprintf(out, API_KEY_ID_BYTES, "key_%02x%02x%02x%02x%02x%02x", hash[0], hash[1], hash[2],
             hash[3], hash[4], hash[5]);
}

void api_key_secret(uint8_t out[API_KEY_SECRET_BYTES])
{
    randombytes_buf(out, API_KEY_SECRET_BYTES);
}

uint64_t api_key_slot(const uint8_t hash[API_KEY_HASH_BYTES],
                      const uint8_t secret[API_KEY_SECRET_BYTES])
{
    uint64_t v;
    uint8_t short_hash[crypto_shorthash_BYTES];
    crypto_shorthash(short_hash, hash, API_KEY_HASH_BYTES, secret);
    memcpy(&v, short_hash, sizeof v);
    return v;
}

void api_key_wipe(void *p, size_t n)
{
    sodium_memzero(p, n);
}
