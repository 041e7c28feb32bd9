#include "gateway/auth.h"

#include "gateway/tenants.h"

#include <string.h>
#include <strings.h>

void auth_error(struct err *e)
{
    err_set(e, ERR_UNAUTHORIZED,
            "No valid API key was given: send it as 'Authorization: Bearer KEY'.");
}

/* What a key may consist of: visible ASCII without blanks. */
static bool key_chars(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] <= ' ' || p[i] > '~') return false;
    }
    return n > 0;
}

bool auth_plain(const char *value, const char **key, size_t *n)
{
    value += strspn(value, " \t");
    size_t len = strlen(value);
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t')) len--;
    *key = value;
    *n = len;
    return key_chars(value, len);
}

bool auth_bearer(const char *value, const char **key, size_t *n)
{
    value += strspn(value, " \t");
    if (strncasecmp(value, "Bearer", 6) != 0 || (value[6] != ' ' && value[6] != '\t')) return false;
    return auth_plain(value + 6, key, n);
}

int auth_key(const struct gateway *g, const char *key, size_t n, struct key_grant *out,
             struct err *e)
{
    *out = (struct key_grant){.classes = UINT8_MAX};
    if (g->tenants == NULL) return 0;
    if (tenants_find(g->tenants, key, n, out)) return 0;
    auth_error(e);
    return -1;
}
