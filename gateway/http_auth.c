/* http_auth.c - the key of an HTTP call, and the headers that speak of it. */
#include "gateway/http_priv.h"

#include "gateway/auth.h"
#include "gateway/tenants.h"

#include <string.h>
#include <strings.h>

struct shown { const char *bearer, *plain; unsigned n; };

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    struct shown *s = cls;
    (void)kind;
    bool bearer = strcasecmp(name, "Authorization") == 0;
    if (!bearer && strcasecmp(name, "x-api-key") != 0) return MHD_YES;
    s->n++;
    if (bearer) s->bearer = value ? value : "";
    else s->plain = value ? value : "";
    return MHD_YES;
}

/* Two keys are none: what one proxy takes for the key another might not. */
static bool shown_key(struct http_call *c, const char **key, size_t *n)
{
    struct shown s = {0};
    MHD_get_connection_values(c->conn, MHD_HEADER_KIND, on_header, &s);
    if (s.n != 1) return false;
    return s.bearer ? auth_bearer(s.bearer, key, n) : auth_plain(s.plain, key, n);
}

/* Everything needs a key but what is named here; a path that is no route, too. */
static bool open_to_all(const struct http_call *c)
{
    if (tenants_are_open(c->h->g->tenants)) return true;
    if (c->route == NULL) return false;
    if (strcmp(c->route->path, "/metrics") == 0) return c->h->g->settings->open_metrics;
    return c->route->open;
}

void http_auth(struct http_call *c)
{
    struct err e;
    const char *key = NULL;
    size_t n = 0;
    if (!open_to_all(c) && !shown_key(c, &key, &n)) key = NULL;
    if (open_to_all(c) && !tenants_are_open(c->h->g->tenants)) return;
    c->denied = auth_key(c->h->g, key, n, &c->who, &e) != 0;
    tenant_hold(c->who.tenant);
}

enum MHD_Result http_deny(struct http_call *c)
{
    struct err e;
    auth_error(&e);
    return http_reply_error(c, &e, NULL, 0);
}

static void put(struct MHD_Response *r, const char *what, const char *kind, const char *value)
{
    char name[48];
    snprintf(name, sizeof name, "x-ratelimit-%s-%s", what, kind);
    MHD_add_response_header(r, name, value);
}

static void put_group(struct MHD_Response *r, const char *kind, uint64_t limit, uint64_t remaining,
                      uint64_t reset_ns)
{
    char text[BUDGET_RESET_TEXT_MAX];
    if (limit == 0) return;
    snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
    put(r, "limit", kind, text);
    snprintf(text, sizeof text, "%llu", (unsigned long long)remaining);
    put(r, "remaining", kind, text);
    budget_reset_text(text, reset_ns);
    put(r, "reset", kind, text);
}

void http_limit_headers(struct http_call *c, struct MHD_Response *r)
{
    struct tenant *t = c->request ? request_tenant(c->request) : NULL;
    struct budget_view v;
    char text[16];
    bool never;
    if (t == NULL) return;
    tenant_view(t, &v);
    put_group(r, "requests", v.limit_requests, v.remaining_requests, v.reset_requests_ns);
    put_group(r, "tokens", v.limit_tokens, v.remaining_tokens, v.reset_tokens_ns);
    if (request_state(c->request) != REQUEST_FAILED) return;
    uint32_t ms = request_retry_ms(c->request, &never);
    if (never) MHD_add_response_header(r, "x-should-retry", "false");
    if (ms == 0) return;
    snprintf(text, sizeof text, "%u", ms);
    MHD_add_response_header(r, "Retry-After-Ms", text);
}
