#include "worker/engine/cpu/ops.h"

#include "worker/engine/cpu/ops_parts.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

const struct cpu_ops cpu_ops_scalar = OPS_TABLE(scalar);
#if defined(__x86_64__)
const struct cpu_ops cpu_ops_avx2 = OPS_TABLE(avx2);
#endif

#if defined(__x86_64__)
#define LEAF1_ECX_FMA (1u << 12)
#define LEAF1_ECX_OSXSAVE (1u << 27)
#define LEAF1_ECX_F16C (1u << 29)
#define LEAF7_EBX_AVX2 (1u << 5)
#define XCR0_XMM_YMM 6u

/* Whether the system saves the 256-bit registers at a switch; without it AVX faults. */
static bool system_saves_ymm(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & XCR0_XMM_YMM) == XCR0_XMM_YMM;
}

bool cpu_ops_have_avx2(void) {
    const uint32_t want = LEAF1_ECX_FMA | LEAF1_ECX_OSXSAVE | LEAF1_ECX_F16C;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & want) != want || !system_saves_ymm())
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & LEAF7_EBX_AVX2);
}
#else
bool cpu_ops_have_avx2(void) {
    return false;
}
#endif

const struct cpu_ops *cpu_ops_choose(enum engine_kernel kernel, struct err *e) {
    bool have = cpu_ops_have_avx2();
    switch (kernel) {
    case ENGINE_KERNEL_SCALAR:
        return &cpu_ops_scalar;
    case ENGINE_KERNEL_AVX2:
        if (!have) {
            err_set(e, ERR_INVALID, "kernel avx2 needs a CPU with AVX2, FMA and F16C and a system "
                    "that saves their registers; use kernel scalar or auto");
            return NULL;
        }
        break;
    case ENGINE_KERNEL_AUTO:
        if (!have)
            return &cpu_ops_scalar;
        break;
    default:
        err_set(e, ERR_INVALID, "unknown kernel %d", (int)kernel);
        return NULL;
    }
#if defined(__x86_64__)
    return &cpu_ops_avx2;
#else
    return &cpu_ops_scalar;
#endif
}
