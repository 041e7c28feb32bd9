#include "worker/engine/cpu/copy_stream.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define LINE 64u

#if defined(__x86_64__)

#include <emmintrin.h> /* SSE2, which every x86-64 has: the memory is the limit, not the width */

#define PAGE 4096u
#define PAGES 4u

static inline void line(uint8_t *to, const uint8_t *from)
{
    const __m128i *s = (const __m128i *)(const void *)from;
    __m128i *d = (__m128i *)(void *)to;
    __m128i a = _mm_load_si128(s), b = _mm_load_si128(s + 1);
    __m128i c = _mm_load_si128(s + 2), e = _mm_load_si128(s + 3);
    _mm_stream_si128(d, a);
    _mm_stream_si128(d + 1, b);
    _mm_stream_si128(d + 2, c);
    _mm_stream_si128(d + 3, e);
}

void copy_stream(void *to, const void *from, size_t n)
{
    uint8_t *d = to;
    const uint8_t *s = from;
    assert(n % LINE == 0 && (uintptr_t)d % LINE == 0 && (uintptr_t)s % LINE == 0);
    size_t at = 0;
    for (; at + PAGES * PAGE <= n; at += PAGES * PAGE)
        for (size_t j = at; j < at + PAGE; j += 2 * LINE)
            for (size_t k = j; k < j + PAGES * PAGE; k += PAGE) {
                size_t next = k + PAGES * PAGE; /* of the same page's place in the next group */
                if (next < n) {
                    _mm_prefetch((const char *)s + next, _MM_HINT_T1);
                    _mm_prefetch((const char *)s + next + LINE, _MM_HINT_T1);
                }
                line(d + k, s + k);
                line(d + k + LINE, s + k + LINE);
            }
    for (; at < n; at += LINE)
        line(d + at, s + at);
}

void copy_stream_drain(void)
{
    _mm_sfence();
}

#else

void copy_stream(void *to, const void *from, size_t n)
{
    assert(n % LINE == 0);
    memcpy(to, from, n);
}

void copy_stream_drain(void)
{
}

#endif
