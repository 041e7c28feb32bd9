/* bench_machine.h - where and when a figure was taken, for every report. Thread: any. */
#ifndef SLUICE_CLI_BENCH_MACHINE_H
#define SLUICE_CLI_BENCH_MACHINE_H

#include <stddef.h>

void bench_date(char out[16]); /* "2026-01-31", UTC */
/* "model name" of the first processor; "" where the system does not say. */
void bench_cpu_name(char *out, size_t cap);
int bench_cores(void); /* that this process may use */

#endif
