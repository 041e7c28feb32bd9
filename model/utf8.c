#include "model/utf8.h"

#include <string.h>

unsigned utf8_length(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2)
        return 0; /* a continuation, or an overlong form */
    if (lead < 0xe0)
        return 2;
    if (lead < 0xf0)
        return 3;
    return lead < 0xf5 ? 4 : 0;
}

bool utf8_next_ok(const uint8_t *seq, unsigned have, uint8_t b)
{
    uint8_t lo = 0x80, hi = 0xbf;
    if (have == 1) { /* the second byte carries the rules against overlong forms and surrogates */
        switch (seq[0]) {
        case 0xe0: lo = 0xa0; break;
        case 0xed: hi = 0x9f; break;
        case 0xf0: lo = 0x90; break;
        case 0xf4: hi = 0x8f; break;
        default: break;
        }
    }
    return b >= lo && b <= hi;
}

size_t utf8_valid_prefix(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        while (n - i >= 8 && (memcpy(&eight, p + i, 8), (eight & 0x8080808080808080u) == 0))
            i += 8;
        if (i >= n)
            break;
        unsigned len = utf8_length(p[i]);
        if (len == 0 || len > n - i)
            break;
        for (unsigned k = 1; k < len; k++)
            if (!utf8_next_ok(p + i, k, p[i + k]))
                return i;
        i += len;
    }
    return i;
}
