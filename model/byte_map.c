#include "model/byte_map.h"

#include <stdbool.h>

static bool stands_for_itself(unsigned b)
{
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

/* The k-th byte that does not stand for itself: 0..32, 127..160, 173. -1: there is no such. */
static int byte_of_extra(unsigned k)
{
    if (k <= 32)
        return (int)k;
    if (k <= 33 + 33)
        return (int)(127 + (k - 33));
    return k == 67 ? 173 : -1;
}

static unsigned extra_of_byte(unsigned b)
{
    return b <= 32 ? b : b <= 160 ? 33 + (b - 127) : 67;
}

long byte_map_decode(const char *text, size_t n, uint8_t *out)
{
    const uint8_t *p = (const uint8_t *)text;
    long count = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned cp = p[i];
        if (cp >= 0x80) {
            if ((cp & 0xe0) != 0xc0 || i + 1 >= n || (p[i + 1] & 0xc0) != 0x80)
                return -1;
            cp = (cp & 0x1f) << 6 | (p[++i] & 0x3f);
        }
        int b = cp >= 0x100 ? byte_of_extra(cp - 0x100) : stands_for_itself(cp) ? (int)cp : -1;
        if (b < 0)
            return -1;
        out[count++] = (uint8_t)b;
    }
    return count;
}

size_t byte_map_encode(uint8_t b, char out[2])
{
    unsigned cp = stands_for_itself(b) ? b : 0x100 + extra_of_byte(b);
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    return 2;
}
