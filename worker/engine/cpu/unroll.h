/* unroll.h - UNROLL before a loop of a constant count makes it vanish. Kernels are templates over
 * such counts: where a loop stays, the accumulators live in memory instead of registers (-O2 alone
 * does not unroll).
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_UNROLL_H
#define SLUICE_WORKER_ENGINE_CPU_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
