/* f16.h - half precision to single and back in plain C, equal to the F16C instructions bit for bit
 * (denormals, infinities, quieted NaNs; round to nearest even). Pure, any thread.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_F16_H
#define SLUICE_WORKER_ENGINE_CPU_F16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float f32_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 0) /* zero or denormal: mantissa * 2^-24 is exact */
        return f32_of_bits(sign | f32_bits((float)mantissa * 0x1p-24f));
    if (exponent == 31)
        return f32_of_bits(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    return f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* bfloat16 is the upper half of a float. */
static inline float bf16_to_f32(uint16_t h) {
    return f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t f32_to_f16(float f) {
    uint32_t u = f32_bits(f), a = u & 0x7fffffffu;
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14: the sum's last bit is 2^-24, so it does the rounding */
        return (uint16_t)(sign | (f32_bits(f32_of_bits(a) + 0.5f) - 0x3f000000u));
    a += 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | ((a - 0x38000000u) >> 13));
}

#endif
