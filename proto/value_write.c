/* value_write.c - msgpack-c's packer over a struct buf. A packer is two pointers on the stack, so each
 * call makes its own; a failed append is remembered by the buf, therefore results are not looked at.
 */
#include "proto/value.h"

#include <assert.h>
#include <msgpack/pack.h>

static int write_bytes(void *data, const char *p, size_t n)
{
    struct buf *b = data;
    buf_add(b, p, n);
    return b->bad ? -1 : 0;
}

static msgpack_packer packer(struct buf *b)
{
    assert(b != NULL);
    msgpack_packer pk;
    msgpack_packer_init(&pk, b, write_bytes);
    return pk;
}

void value_put_nil(struct buf *b)
{
    msgpack_packer pk = packer(b);
    msgpack_pack_nil(&pk);
}

void value_put_bool(struct buf *b, bool v)
{
    msgpack_packer pk = packer(b);
    if (v)
        msgpack_pack_true(&pk);
    else
        msgpack_pack_false(&pk);
}

void value_put_int(struct buf *b, int64_t v)
{
    msgpack_packer pk = packer(b);
    msgpack_pack_int64(&pk, v);
}

void value_put_uint(struct buf *b, uint64_t v)
{
    msgpack_packer pk = packer(b);
    msgpack_pack_uint64(&pk, v);
}

void value_put_float(struct buf *b, double v)
{
    msgpack_packer pk = packer(b);
    msgpack_pack_double(&pk, v);
}

void value_put_float32(struct buf *b, float v)
{
    msgpack_packer pk = packer(b);
    msgpack_pack_float(&pk, v);
}

/* A string of 4 GiB has no head in msgpack: it must not become a short one. */
static bool too_long(struct buf *b, size_t n)
{
    if (n > UINT32_MAX)
        b->bad = true;
    return n > UINT32_MAX;
}

void value_put_str(struct buf *b, const char *s, size_t n)
{
    if (too_long(b, n))
        return;
    msgpack_packer pk = packer(b);
    msgpack_pack_str(&pk, n);
    buf_add(b, s, n);
}

void value_put_bin(struct buf *b, const void *p, size_t n)
{
    if (too_long(b, n))
        return;
    msgpack_packer pk = packer(b);
    msgpack_pack_bin(&pk, n);
    buf_add(b, p, n);
}

void value_put_array(struct buf *b, uint32_t n)
{
    msgpack_packer pk = packer(b);
    msgpack_pack_array(&pk, n);
}

void value_put_map(struct buf *b, uint32_t n)
{
    msgpack_packer pk = packer(b);
    msgpack_pack_map(&pk, n);
}
