/* cpu_rates.h - what bounds the CPU backend on this machine: read bandwidth, and the rate of the
 * product kernel when everything it touches is near.
 *
 * Measured on threads of its own (a pool of cfg->n_threads), about a third of a second and 256 MiB
 * for that time; an open engine should be idle meanwhile. Thread: any, one call at a time.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_CPU_RATES_H
#define SLUICE_WORKER_ENGINE_CPU_CPU_RATES_H

#include "worker/engine/engine.h"

int cpu_measure(const struct engine_config *cfg, struct engine_rates *out, struct err *e);

#endif
