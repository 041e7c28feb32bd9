#include "worker/engine/cpu/ops.h"

#include "worker/engine/cpu/ops_parts.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

const struct cpu_ops cpu_ops_scalar = OPS_TABLE(scalar, scalar, scalar, scalar);
#if defined(__x86_64__)
const struct cpu_ops cpu_ops_avx2 = OPS_TABLE(avx2, avx2, avx2, avx2);
const struct cpu_ops cpu_ops_avx512 = OPS_TABLE(avx512, avx2, avx512, avx512);
#endif

#if defined(__x86_64__)
#define LEAF1_ECX_FMA (1u << 12)
#define LEAF1_ECX_OSXSAVE (1u << 27)
#define LEAF1_ECX_F16C (1u << 29)
#define LEAF7_EBX_AVX2 (1u << 5)
#define LEAF7_EBX_AVX512 (1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) /* F, DQ, BW, VL */
#define LEAF7_ECX_VNNI (1u << 11)
#define XCR0_YMM 0x06u /* xmm, ymm */
#define XCR0_ZMM 0xe6u /* and masks, upper halves, the upper 16 */

/* Whether the system saves these registers at a switch; without it their instructions fault. */
static bool system_saves(uint32_t mask) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo & mask) == mask;
}

bool cpu_ops_have_avx2(void) {
    const uint32_t want = LEAF1_ECX_FMA | LEAF1_ECX_OSXSAVE | LEAF1_ECX_F16C;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & want) != want || !system_saves(XCR0_YMM))
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & LEAF7_EBX_AVX2);
}

bool cpu_ops_have_avx512(void) {
    uint32_t a, b, c, d;
    if (!cpu_ops_have_avx2() || !system_saves(XCR0_ZMM) ||
        !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    return (b & LEAF7_EBX_AVX512) == LEAF7_EBX_AVX512 && (c & LEAF7_ECX_VNNI);
}
#else
bool cpu_ops_have_avx2(void) {
    return false;
}

bool cpu_ops_have_avx512(void) {
    return false;
}
#endif

static const struct cpu_ops *auto_ops(void) {
#if defined(__x86_64__)
    if (cpu_ops_have_avx512())
        return &cpu_ops_avx512;
    if (cpu_ops_have_avx2())
        return &cpu_ops_avx2;
#endif
    return &cpu_ops_scalar;
}

const struct cpu_ops *cpu_ops_choose(enum engine_kernel kernel, struct err *e) {
    switch (kernel) {
    case ENGINE_KERNEL_AUTO:
        return auto_ops();
    case ENGINE_KERNEL_SCALAR:
        return &cpu_ops_scalar;
    case ENGINE_KERNEL_AVX2:
#if defined(__x86_64__)
        if (cpu_ops_have_avx2())
            return &cpu_ops_avx2;
#endif
        err_set(e, ERR_INVALID, "kernel avx2 needs a CPU with AVX2, FMA and F16C and a system that "
                "saves their registers; use kernel scalar or auto");
        return NULL;
    case ENGINE_KERNEL_AVX512:
#if defined(__x86_64__)
        if (cpu_ops_have_avx512())
            return &cpu_ops_avx512;
#endif
        err_set(e, ERR_INVALID, "kernel avx512 needs a CPU with AVX-512 (F, BW, VL, DQ, VNNI) and "
                "a system that saves its registers; use kernel avx2 or auto");
        return NULL;
    default:
        err_set(e, ERR_INVALID, "unknown kernel %d", (int)kernel);
        return NULL;
    }
}
