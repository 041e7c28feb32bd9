#include "gateway/http_priv.h"

#include "gateway/api_pages.h"
#include "gateway/explain.h"
#include "gateway/tenants.h"

#include <string.h>

static const struct http_route routes[] = {
    {"/v1/chat/completions", "POST", false, true, true, ENDPOINT_CHAT, false},
    {"/v1/completions", "POST", false, true, true, ENDPOINT_COMPLETION, false},
    {"/tokenize", "POST", false, true, true, ENDPOINT_TOKENIZE, false},
    {"/detokenize", "POST", false, true, true, ENDPOINT_DETOKENIZE, false},
    {"/v1/models", "GET, HEAD", true, false, false, 0, false},
    {"/v1/models/", "GET, HEAD", true, false, false, 0, false},
    {"/v1/requests/", "GET, HEAD", true, false, false, 0, false},
    {"/health", "GET, HEAD", true, false, false, 0, true},
    {"/ready", "GET, HEAD", true, false, false, 0, true},
    {"/live", "GET, HEAD", true, false, false, 0, true},
    {"/ping", "GET, HEAD, POST", true, true, false, 0, true},
    {"/version", "GET, HEAD", true, false, false, 0, false},
    {"/metrics", "GET, HEAD", true, false, false, 0, false},
};

const struct http_route *http_route_find(const char *path, const char **id)
{
    *id = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        if (strcmp(path, routes[i].path) == 0 && routes[i].path[n - 1] != '/') return &routes[i];
        if (routes[i].path[n - 1] == '/' && strncmp(path, routes[i].path, n) == 0 &&
            path[n] != '\0') {
            *id = path + n;
            return &routes[i];
        }
    }
    return NULL;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Percent-decoding of the id: the SDK encodes slashes and blanks in model names. NUL never matches
 * a name. */
static void decode(const char *in, char *out, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; in[i] && n + 1 < cap; i++) {
        int hi = in[i] == '%' ? hex(in[i + 1]) : -1, lo = hi >= 0 ? hex(in[i + 2]) : -1;
        if (lo >= 0) {
            out[n++] = hi * 16 + lo ? (char)(hi * 16 + lo) : '?';
            i += 2;
        } else {
            out[n++] = in[i];
        }
    }
    out[n] = '\0';
}

static enum MHD_Result reply_model(struct http_call *c)
{
    char name[256];
    struct err e;
    struct buf b = {0};
    decode(c->id, name, sizeof name);
    if (api_page_model(c->h->g, c->who.tenant, name, &b, &e) != 0) return http_reply_error(c, &e, NULL, 0);
    return http_reply_buf(c, 200, "application/json", &b, NULL, 0);
}

/* /v1/requests/ID/explain: where the time of a request that ended went. Another tenant's looks like none. */
static enum MHD_Result reply_explain(struct http_call *c)
{
    static const char tail[] = "/explain";
    char id[256];
    struct buf b = {0};
    decode(c->id, id, sizeof id);
    size_t n = strlen(id), k = sizeof tail - 1;
    if (n <= k || strcmp(id + n - k, tail) != 0)
        return http_reply_now(c, ERR_NOT_FOUND, "", "There is /v1/requests/ID/explain, and nothing else.", NULL);
    id[n - k] = '\0';
    const char *tenant = c->who.tenant ? c->who.tenant->line.name : "";
    const struct explain_entry *e = explain_find(c->h->g->explain, tenant, id);
    if (e == NULL)
        return http_reply_now(c, ERR_NOT_FOUND, "",
                              "No request of this id has ended here lately (--explain-kept says how many are kept).", NULL);
    explain_json(&b, e, &c->h->g->limits.classes);
    return http_reply_buf(c, 200, "application/json", &b, NULL, 0);
}

static enum MHD_Result reply_ready(struct http_call *c)
{
    struct err e;
    if (api_page_ready(c->h->g, &e) != 0) return http_reply_error(c, &e, NULL, 1);
    return http_reply(c, 200, "application/json", "{\"status\":\"ok\"}", 15, NULL, 0);
}

enum MHD_Result http_route_reply(struct http_call *c)
{
    const char *p = c->route->path;
    struct buf b = {0};
    if (c->id) return strcmp(p, "/v1/requests/") == 0 ? reply_explain(c) : reply_model(c);
    if (strcmp(p, "/health") == 0 || strcmp(p, "/ready") == 0) return reply_ready(c);
    if (strcmp(p, "/live") == 0 || strcmp(p, "/ping") == 0)
        return http_reply(c, 200, "application/json", "{\"status\":\"ok\"}", 15, NULL, 0);
    if (strcmp(p, "/metrics") == 0) {
        metrics_render(c->h->g, &b);
        return http_reply_buf(c, 200, "text/plain; version=0.0.4; charset=utf-8", &b, NULL, 0);
    }
    if (strcmp(p, "/version") == 0) buf_adds(&b, "{\"version\":\"" SLUICE_VERSION "\"}");
    else api_page_models(c->h->g, c->who.tenant, &b);
    return http_reply_buf(c, 200, "application/json", &b, NULL, 0);
}
