/* auth.h - is this caller known? From what a door was given to a grant, or the one answer for all others.
 *
 * Without a tenants file everybody is the one open tenant (listeners are loopback only then). With one,
 * a request shows exactly one key: `Authorization: Bearer KEY` (the word in any case, blanks around the
 * key ignored), or `x-api-key: KEY`; over RPC the field `key`. No key, an empty or malformed one, two
 * of them, an unknown or a revoked one: the same error, word for word (ERR_UNAUTHORIZED), so that nothing is
 * learned from it. The key itself is never logged and not kept.
 * Thread: the loop.
 */
#ifndef SLUICE_GATEWAY_AUTH_H
#define SLUICE_GATEWAY_AUTH_H

#include "gateway/gateway.h"
#include "gateway/key_index.h"

/* `key` NULL = none was shown. 0 and *out (tenant NULL only in a gateway without tenants), or -1. */
int auth_key(const struct gateway *g, const char *key, size_t n, struct key_grant *out,
             struct err *e);
/* The value of an Authorization header: *key points into it. false = no Bearer key. */
bool auth_bearer(const char *value, const char **key, size_t *n);
/* The value of x-api-key: blanks around it cut off. */
bool auth_plain(const char *value, const char **key, size_t *n);
void auth_error(struct err *e);

#endif
