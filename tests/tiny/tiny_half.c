#include "tests/tiny/tiny_half.h"

#include "model/gguf.h"

#include <assert.h>
#include <math.h>
#include <string.h>

uint16_t tiny_to_half(float f)
{
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    double a = fabs((double)f);
    int exp;
    assert(a < 65520.0);
    if (a == 0)
        return sign;
    frexp(a, &exp);                             /* a = m 2^exp, 0.5 <= m < 1 */
    int unit = exp - 11 < -24 ? -24 : exp - 11; /* weight of the last of 11 significant bits */
    long q = lrint(ldexp(a, -unit));            /* exact but for this rounding, ties to even */
    if (q == 2048) {
        q = 1024;
        unit++;
    }
    if (q < 1024) /* subnormal: unit is -24 */
        return (uint16_t)(sign | q);
    return (uint16_t)(sign | (unit + 25) << 10 | (q - 1024));
}

float tiny_from_half(uint16_t h)
{
    int exp = h >> 10 & 31, frac = h & 1023;
    double v = exp == 0 ? ldexp(frac, -24) : ldexp(1024 + frac, exp - 25);
    if (exp == 31)
        v = frac ? NAN : INFINITY;
    return (float)(h & 0x8000 ? -v : v);
}

uint16_t tiny_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

void tiny_quantise_q4_0(const float *x, size_t n, uint8_t *out)
{
    assert(n % 32 == 0);
    for (; n > 0; n -= 32, x += 32, out += 18) {
        float top = 0; /* the value of the largest size takes q = 0 */
        uint8_t q[32];
        for (int i = 0; i < 32; i++)
            top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
        uint16_t d = tiny_to_half(top / -8);
        float fd = tiny_from_half(d);
        for (int i = 0; i < 32; i++) {
            float v = fd != 0 ? x[i] / fd + 8.5f : 8;
            q[i] = (uint8_t)(v < 0 ? 0 : v > 15 ? 15 : v);
        }
        memcpy(out, &d, 2);
        for (int i = 0; i < 16; i++)
            out[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
    }
}

void tiny_quantise_q4_1(const float *x, size_t n, uint8_t *out)
{
    assert(n % 32 == 0);
    for (; n > 0; n -= 32, x += 32, out += 20) {
        float lo = x[0], hi = x[0];
        uint8_t q[32];
        for (int i = 1; i < 32; i++) {
            lo = x[i] < lo ? x[i] : lo;
            hi = x[i] > hi ? x[i] : hi;
        }
        uint16_t d = tiny_to_half((hi - lo) / 15), m = tiny_to_half(lo);
        float fd = tiny_from_half(d), fm = tiny_from_half(m);
        for (int i = 0; i < 32; i++) {
            float v = fd > 0 ? (x[i] - fm) / fd + 0.5f : 0;
            q[i] = (uint8_t)(v < 0 ? 0 : v > 15 ? 15 : v);
        }
        memcpy(out, &d, 2);
        memcpy(out + 2, &m, 2);
        for (int i = 0; i < 16; i++)
            out[4 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
    }
}

void tiny_quantise_q8_0(const float *x, size_t n, uint8_t *out)
{
    assert(n % 32 == 0);
    for (; n > 0; n -= 32, x += 32, out += 34) {
        float top = 0;
        for (int i = 0; i < 32; i++)
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        uint16_t d = tiny_to_half(top / 127);
        float fd = tiny_from_half(d);
        memcpy(out, &d, 2);
        for (int i = 0; i < 32; i++) {
            long q = fd > 0 ? lrintf(x[i] / fd) : 0;
            ((int8_t *)out)[2 + i] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
        }
    }
}

int tiny_quantise(uint32_t type, const float *x, size_t n, uint8_t *out)
{
    switch (type) {
    case GGUF_F32:
        memcpy(out, x, n * sizeof *x);
        return 0;
    case GGUF_F16:
    case GGUF_BF16:
        for (size_t i = 0; i < n; i++) {
            uint16_t h = type == GGUF_F16 ? tiny_to_half(x[i]) : tiny_to_bf16(x[i]);
            memcpy(out + 2 * i, &h, sizeof h);
        }
        return 0;
    case GGUF_Q4_0:
        tiny_quantise_q4_0(x, n, out);
        return 0;
    case GGUF_Q4_1:
        tiny_quantise_q4_1(x, n, out);
        return 0;
    case GGUF_Q8_0:
        tiny_quantise_q8_0(x, n, out);
        return 0;
    default:
        return -1;
    }
}

static void q4_0_block(const uint8_t *p, float *out)
{
    uint16_t d;
    memcpy(&d, p, 2);
    for (int i = 0; i < 16; i++) {
        out[i] = tiny_from_half(d) * (float)((p[2 + i] & 15) - 8);
        out[i + 16] = tiny_from_half(d) * (float)((p[2 + i] >> 4) - 8);
    }
}

static void q4_1_block(const uint8_t *p, float *out)
{
    uint16_t d, m;
    memcpy(&d, p, 2);
    memcpy(&m, p + 2, 2);
    for (int i = 0; i < 16; i++) {
        out[i] = tiny_from_half(d) * (float)(p[4 + i] & 15) + tiny_from_half(m);
        out[i + 16] = tiny_from_half(d) * (float)(p[4 + i] >> 4) + tiny_from_half(m);
    }
}

static void q8_0_block(const uint8_t *p, float *out)
{
    uint16_t d;
    memcpy(&d, p, 2);
    for (int i = 0; i < 32; i++)
        out[i] = tiny_from_half(d) * (float)((const int8_t *)p)[2 + i];
}

static void halves(uint32_t type, const uint8_t *p, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, 2);
        out[i] = type == GGUF_F16 ? tiny_from_half(h) : from_bf16(h);
    }
}

int tiny_dequantise(uint32_t type, const void *p, size_t n, float *out)
{
    const uint8_t *b = p;
    switch (type) {
    case GGUF_F32:
        memcpy(out, p, n * sizeof *out);
        return 0;
    case GGUF_F16:
    case GGUF_BF16:
        halves(type, p, n, out);
        return 0;
    case GGUF_Q4_0:
        for (size_t i = 0; i < n / 32; i++)
            q4_0_block(b + 18 * i, out + 32 * i);
        return 0;
    case GGUF_Q4_1:
        for (size_t i = 0; i < n / 32; i++)
            q4_1_block(b + 20 * i, out + 32 * i);
        return 0;
    case GGUF_Q8_0:
        for (size_t i = 0; i < n / 32; i++)
            q8_0_block(b + 34 * i, out + 32 * i);
        return 0;
    default:
        return -1;
    }
}
