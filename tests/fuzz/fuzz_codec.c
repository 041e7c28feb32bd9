/* fuzz_codec.c - any bytes as a link message, as a value tree, as an RPC message. What is read must be
 * written again as it was read: encode(decode(x)) decodes to the same bytes.
 */
#include "base/mem.h"
#include "proto/message.h"
#include "proto/rpc.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_message(const uint8_t *data, size_t n)
{
    struct msg m, again;
    struct err e = {0};
    if (msg_decode(&m, data, n, &e) != 0) {
        assert(e.code != ERR_OK && e.msg[0] && m.arena == NULL);
        return;
    }
    struct buf a = {0}, b = {0};
    msg_encode(&a, &m);
    assert(!a.bad);
    int rc = msg_decode(&again, a.p, a.len, &e);
    assert(rc == 0);
    (void)rc;
    msg_encode(&b, &again);
    assert(a.len == b.len && memcmp(a.p, b.p, a.len) == 0);
    msg_deinit(&again);
    msg_deinit(&m);
    buf_deinit(&a);
    buf_deinit(&b);
}

/* Touches every node and byte, so that a sanitizer sees a wrong pointer. */
static uint64_t touch(const struct value *v)
{
    uint64_t sum = (uint64_t)v->kind;
    if (v->kind == VALUE_STR || v->kind == VALUE_BIN) {
        for (size_t i = 0; i < v->n_bytes; i++)
            sum += (unsigned char)v->as.s[i];
        if (v->kind == VALUE_STR)
            sum += value_is_utf8(v);
    }
    if (v->kind == VALUE_ARRAY || v->kind == VALUE_MAP) {
        size_t n = v->kind == VALUE_MAP ? 2 * (size_t)v->n : v->n;
        for (size_t i = 0; i < n; i++)
            sum += touch(&v->as.items[i]);
    }
    return sum;
}

static void try_value(const uint8_t *data, size_t n)
{
    struct value_tree t;
    struct err e = {0};
    volatile uint64_t sum = 0;
    if (value_parse(&t, data, n, &e) == 0) {
        sum = touch(&t.root);
        (void)value_get(&t.root, "body");
        value_tree_deinit(&t);
    } else {
        assert(e.code != ERR_OK && e.msg[0] && t.arena == NULL);
    }
    (void)sum;
}

static void try_rpc(const uint8_t *data, size_t n)
{
    struct rpc_msg m;
    struct err e = {0};
    if (rpc_decode(&m, data, n, &e) == 0) {
        assert(m.kind != RPC_REQUEST || (m.path != NULL && m.body != NULL));
        rpc_msg_deinit(&m);
    } else {
        assert(e.code != ERR_OK && e.msg[0] && m.tree.arena == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t before = mem_used();
    try_message(data, n);
    try_value(data, n);
    try_rpc(data, n);
    assert(mem_used() == before);
    return 0;
}
