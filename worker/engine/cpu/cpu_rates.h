/* cpu_rates.h - what bounds the CPU backend on this machine: read bandwidth (past every cache, and
 * over as many bytes as the model's weights read again and again, which is what decoding does), and
 * the rate of the product kernel when everything it touches is near.
 *
 * Reads are the chosen kernel's widest loads (ops.h read_xor). Measured on threads of its own (a
 * pool of cfg->n_threads), about half a second, and for that time twice the last-level cache, 256
 * MiB to 1 GiB but at most a quarter of the free memory; an open engine should be idle meanwhile.
 * Thread: any, one call at a time.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_CPU_RATES_H
#define SLUICE_WORKER_ENGINE_CPU_CPU_RATES_H

#include "worker/engine/engine.h"

int cpu_measure(const struct engine_config *cfg, struct engine_rates *out, struct err *e);

#endif
