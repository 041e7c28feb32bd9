#include "worker/engine/cpu/cpu_math.h"

#include <string.h>

#define ROUND_F64 0x1.8p52 /* adding it rounds to an integer, half to even */

static double f64_of_bits(uint64_t u) {
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static uint64_t f64_bits(double d) {
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* Series are summed from the smallest term on, Horner's way: 1 + r(1 + r/2(1 + r/3(...))). */
double exp_f64(double x) {
    double t = x * 0x1.71547652b82fep+0 + ROUND_F64;
    double n = t - ROUND_F64;
    double r = fma(n, -0x1.abc9e3b39803fp-56, fma(n, -0x1.62e42fefa39efp-1, x));
    double p = 1.0;
    for (int k = 13; k >= 2; k--)
        p = 1.0 + p * r / k;
    p = fma(p, r, 1.0);
    return p * f64_of_bits((f64_bits(t) + 1023u) << 52);
}

double log_f64(double x) {
    if (!(x > 0))
        return x == 0 ? -INFINITY : NAN;
    if (x == INFINITY)
        return x;
    uint64_t u = f64_bits(x);
    /* x = m * 2^e with m in [sqrt(1/2), sqrt(2)) */
    int64_t e = (int64_t)((u - 0x3fe6a09e667f3bcdull) >> 52);
    if (e >= 2048)
        e -= 4096; /* the difference was negative: its upper 12 bits are a two's complement */
    double m = f64_of_bits(u - ((uint64_t)e << 52));
    double f = (m - 1.0) / (m + 1.0), f2 = f * f, p = 0;
    for (int k = 21; k >= 3; k -= 2)
        p = (p + 1.0 / k) * f2;
    /* log m = 2 f + 2 f p; hi * e is exact (21 zero bits) */
    double small = 2.0 * f * p + (double)e * 0x1.a39ef35793c76p-33;
    return (double)e * 0x1.62e42feep-1 + (2.0 * f + small);
}

double pow_f64(double base, double y) {
    return exp_f64(y * log_f64(base));
}

static double sin_series(double r) {
    static const double c[] = { /* (-1)^k / (2k + 1)!, k = 8 .. 1 */
        1 / 355687428096000.0, -1 / 1307674368000.0, 1 / 6227020800.0, -1 / 39916800.0,
        1 / 362880.0, -1 / 5040.0, 1 / 120.0, -1 / 6.0};
    double r2 = r * r, p = c[0];
    for (int i = 1; i < 8; i++)
        p = p * r2 + c[i];
    return r + r * r2 * p;
}

static double cos_series(double r) {
    static const double c[] = { /* (-1)^k / (2k)!, k = 8 .. 1 */
        1 / 20922789888000.0, -1 / 87178291200.0, 1 / 479001600.0, -1 / 3628800.0,
        1 / 40320.0, -1 / 720.0, 1 / 24.0, -1 / 2.0};
    double r2 = r * r, p = c[0];
    for (int i = 1; i < 8; i++)
        p = p * r2 + c[i];
    return 1.0 + r2 * p;
}

void sincos_f64(double x, double *sine, double *cosine) {
    double t = x * 0x1.45f306dc9c883p-1 + ROUND_F64;
    double k = t - ROUND_F64;
    /* pi / 2 in three parts: the remainder keeps 1e-17 up to k = 2^21 */
    double r = fma(k, -0x1.921fb54442d18p+0, x);
    r = fma(k, -0x1.1a62633145c07p-54, r);
    r = fma(k, 0x1.f1976b7ed8fbcp-110, r);
    double s = sin_series(r), c = cos_series(r);
    unsigned quadrant = (unsigned)(f64_bits(t) & 3u);
    *sine = quadrant & 1u ? c : s;
    *cosine = quadrant & 1u ? s : c;
    if (quadrant & 2u)
        *sine = -*sine;
    if ((quadrant + 1u) & 2u)
        *cosine = -*cosine;
}
