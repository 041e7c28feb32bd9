/* rpc.c - the RPC door's messages: encoders and the decoder. */
#include "proto/rpc.h"

#include "proto/scan.h"

#include <assert.h>
#include <string.h>

static const char *const kind_text[] = {
    [RPC_REQUEST] = "request", [RPC_DELTA] = "delta", [RPC_DONE] = "done", [RPC_ERROR] = "error",
    [RPC_CANCEL] = "cancel",   [RPC_PING] = "ping",   [RPC_PONG] = "pong",
};
#define N_KINDS (sizeof kind_text / sizeof kind_text[0])

static int find_kind(const struct value *v)
{
    for (unsigned i = 0; i < N_KINDS; i++)
        if (value_str_is(v, kind_text[i]))
            return (int)i;
    return -1;
}

/* An optional number that fits 32 bits; 0 when absent. */
static int get_u32(const struct value *map, const char *key, uint32_t *out, struct err *e)
{
    const struct value *v = value_get(map, key);
    *out = 0;
    if (v == NULL || v->kind == VALUE_NIL)
        return 0;
    if (v->kind != VALUE_UINT || v->as.u > UINT32_MAX)
        return err_set_param(e, ERR_PROTOCOL, key, "%s must be an unsigned 32-bit integer", key);
    *out = (uint32_t)v->as.u;
    return 0;
}

/* A string of 1 to max bytes, UTF-8 without NUL; absent or nil gives NULL. */
static int get_text(const struct value *map, const char *key, size_t max, const char **s, size_t *n,
                    struct err *e)
{
    const struct value *v = value_get(map, key);
    *s = NULL;
    *n = 0;
    if (v == NULL || v->kind == VALUE_NIL)
        return 0;
    if (!value_is_utf8(v) || v->n_bytes == 0 || v->n_bytes > max ||
        memchr(v->as.s, '\0', v->n_bytes) != NULL)
        return err_set_param(e, ERR_PROTOCOL, key, "%s must be a string of 1 to %zu bytes", key,
                             max);
    *s = v->as.s;
    *n = v->n_bytes;
    return 0;
}

/* REQUEST, DELTA and ERROR carry a map; DONE a map or nil; the rest nothing. */
static int get_body(struct rpc_msg *m, struct err *e)
{
    bool needed = m->kind == RPC_REQUEST || m->kind == RPC_DELTA || m->kind == RPC_ERROR;
    const struct value *v = value_get(&m->tree.root, "body");
    if (v != NULL && v->kind == VALUE_NIL)
        v = NULL;
    if (needed || m->kind == RPC_DONE)
        m->body = v;
    if ((m->body == NULL && needed) || (m->body != NULL && m->body->kind != VALUE_MAP))
        return err_set_param(e, ERR_PROTOCOL, "body", "body must be a map");
    return 0;
}

static int decode_tree(struct rpc_msg *m, struct err *e)
{
    const struct value *root = &m->tree.root, *id = value_get(root, "id");
    if (root->kind != VALUE_MAP)
        return err_set(e, ERR_PROTOCOL, "an RPC message is a map");
    if (id == NULL || id->kind != VALUE_UINT)
        return err_set_param(e, ERR_PROTOCOL, "id", "id must be an unsigned integer");
    m->id = id->as.u;
    int kind = find_kind(value_get(root, "t"));
    if (kind < 0)
        return err_set_param(e, ERR_PROTOCOL, "t", "t names no RPC message");
    m->kind = (enum rpc_kind)kind;
    if (get_text(root, "path", RPC_PATH_MAX, &m->path, &m->n_path, e) != 0 ||
        get_text(root, "class", RPC_CLASS_MAX, &m->cls, &m->n_cls, e) != 0 ||
        get_text(root, "key", RPC_KEY_MAX, &m->key, &m->n_key, e) != 0 ||
        get_u32(root, "status", &m->status, e) != 0 ||
        get_u32(root, "retry_after_ms", &m->retry_after_ms, e) != 0)
        return -1;
    if (m->kind == RPC_REQUEST && m->path == NULL)
        return err_set_param(e, ERR_PROTOCOL, "path", "a request needs a path");
    return get_body(m, e);
}

int rpc_decode(struct rpc_msg *m, const void *p, size_t n, struct err *e)
{
    *m = (struct rpc_msg){.id = 0};
    if (n > RPC_BYTES_MAX)
        return err_set(e, ERR_PROTOCOL, "a message of %zu bytes is too long", n);
    if (value_parse(&m->tree, p, n, e) != 0)
        return -1;
    if (decode_tree(m, e) == 0)
        return 0;
    uint64_t id = m->id;
    rpc_msg_deinit(m);
    m->id = id;
    return -1;
}

void rpc_msg_deinit(struct rpc_msg *m)
{
    value_tree_deinit(&m->tree);
    *m = (struct rpc_msg){.id = 0};
}

static void put_key(struct buf *b, const char *key)
{
    value_put_str(b, key, strlen(key));
}

static void put_head(struct buf *b, uint32_t pairs, enum rpc_kind kind, uint64_t id)
{
    value_put_map(b, pairs);
    put_key(b, "t");
    put_key(b, kind_text[kind]);
    put_key(b, "id");
    value_put_uint(b, id);
}

/* A body that failed while it was built fails the message too: half a body must not be sent. */
static void put_body(struct buf *b, const struct buf *body)
{
    put_key(b, "body");
    if (body == NULL) {
        value_put_nil(b);
        return;
    }
    if (body->bad)
        b->bad = true;
    buf_add(b, body->p, body->len);
}

void rpc_put_request_as(struct buf *out, uint64_t id, const char *path, const char *cls,
                        const char *key, const struct buf *body)
{
    assert(path != NULL && body != NULL);
    put_head(out, key != NULL ? 6 : 5, RPC_REQUEST, id);
    put_key(out, "path");
    put_key(out, path);
    put_key(out, "class");
    if (cls != NULL)
        put_key(out, cls);
    else
        value_put_nil(out);
    if (key != NULL) {
        put_key(out, "key");
        put_key(out, key);
    }
    put_body(out, body);
}

void rpc_put_request(struct buf *out, uint64_t id, const char *path, const char *cls,
                     const struct buf *body)
{
    rpc_put_request_as(out, id, path, cls, NULL, body);
}

void rpc_put_delta(struct buf *out, uint64_t id, const struct buf *body)
{
    put_head(out, 3, RPC_DELTA, id);
    put_body(out, body);
}

void rpc_put_done(struct buf *out, uint64_t id, const struct buf *body)
{
    put_head(out, 3, RPC_DONE, id);
    put_body(out, body);
}

void rpc_put_error(struct buf *out, uint64_t id, uint32_t status, uint32_t retry_after_ms,
                   const struct buf *body)
{
    put_head(out, 5, RPC_ERROR, id);
    put_key(out, "status");
    value_put_uint(out, status);
    put_key(out, "retry_after_ms");
    value_put_uint(out, retry_after_ms);
    put_body(out, body);
}

void rpc_put_cancel(struct buf *out, uint64_t id)
{
    put_head(out, 2, RPC_CANCEL, id);
}

void rpc_put_ping(struct buf *out, uint64_t id, bool pong)
{
    put_head(out, 2, pong ? RPC_PONG : RPC_PING, id);
}
