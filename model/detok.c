/* detok.c - bytes of tokens to whole UTF-8 text, one stream at a time (contract in tokenizer.h). */
#include "model/tokenizer.h"
#include "model/utf8.h"

#include "base/buf.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* One byte that is not part of a well-formed run. What was held is broken by a byte that cannot
 * follow it: the held bytes are one maximal subpart, so one U+FFFD, and the byte is looked at
 * again. */
static void push_byte(struct detok *d, uint8_t b, struct buf *out)
{
    if (d->n_held > 0) {
        if (utf8_next_ok(d->held, d->n_held, b)) {
            d->held[d->n_held++] = b;
            if (d->n_held == utf8_length(d->held[0])) {
                buf_add(out, d->held, d->n_held);
                d->n_held = 0;
            }
            return;
        }
        d->n_held = 0;
        buf_adds(out, REPLACEMENT);
    }
    unsigned len = utf8_length(b);
    if (len == 1)
        buf_add(out, &b, 1);
    else if (len == 0)
        buf_adds(out, REPLACEMENT);
    else
        d->held[d->n_held++] = b;
}

void detok_push(struct detok *d, const uint8_t *bytes, size_t n, struct buf *out)
{
    size_t i = 0;
    while (i < n) {
        if (d->n_held == 0) {
            size_t whole = utf8_valid_prefix(bytes + i, n - i);
            buf_add(out, bytes + i, whole);
            i += whole;
        }
        if (i < n)
            push_byte(d, bytes[i++], out);
    }
}

void detok_end(struct detok *d, struct buf *out)
{
    if (d->n_held > 0)
        buf_adds(out, REPLACEMENT);
    d->n_held = 0;
}

const uint8_t *detok_visible(const struct vocab *v, int32_t id, bool skip_special, size_t *n)
{
    const uint8_t *p = vocab_bytes(v, id, n);
    if (skip_special && vocab_is_control(v, id))
        *n = 0;
    return p;
}
