/* cpu_math.h - exp, log, pow, sin, cos of our own (rule E3: libm's differ from CPU to CPU).
 *
 * Only IEEE basic operations and fma, so that every machine gives the same bits. Bounds are tested
 * against libm over the stated ranges. Pure, any thread, round-to-nearest expected.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_CPU_MATH_H
#define SLUICE_WORKER_ENGINE_CPU_CPU_MATH_H

#include "worker/engine/cpu/f16.h"

#include <math.h>

/* Constants shared with the vector twin (exp8 in simd_avx2.h), which must do the same steps. */
#define EXP_MAX 88.37626f        /* above: +inf; 2^n stays a normal float below */
#define EXP_MIN (-87.33654f)     /* below: 0; no result is ever denormal */
#define EXP_ROUND 12582912.0f    /* 1.5 * 2^23: adding it rounds to an integer, half to even */
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_LN2_HI 0x1.62e43p-1f
#define EXP_LN2_LO (-0x1.05c61p-29f)
/* (exp(r) - 1 - r) / r^2 on |r| <= ln2 / 2, fitted by us: 3e-9 of exp(r) */
#define EXP_C2 0x1.fffffcp-2f
#define EXP_C3 0x1.555492p-3f
#define EXP_C4 0x1.5558f2p-5f
#define EXP_C5 0x1.1239e2p-7f
#define EXP_C6 0x1.6a2432p-10f

/* exp(x) within 1 ulp for EXP_MIN <= x <= EXP_MAX; exp_f32(0) = 1 exactly; NaN stays NaN. */
static inline float exp_f32(float x) {
    float t = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = t - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r * r, r) + 1.0f;
    float y = p * f32_of_bits((f32_bits(t) + 127u) << 23); /* the sum's low bits are n */
    if (x > EXP_MAX)
        y = INFINITY;
    if (x < EXP_MIN)
        y = 0;
    return y;
}

double exp_f64(double x);  /* |x| <= 700, within 2 ulp */
double log_f64(double x);  /* normal x > 0, within 2 ulp (+ 1e-16 near 1); 0: -inf, < 0: NaN */
double pow_f64(double base, double y); /* exp_f64(y * log_f64(base)) */
/* |x| <= 2^21, each within 2e-16 of the truth (absolute). */
void sincos_f64(double x, double *sine, double *cosine);

#endif
