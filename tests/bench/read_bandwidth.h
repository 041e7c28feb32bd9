/* read_bandwidth.h - how fast n threads read memory that no cache holds; the best of a few passes.
 * Allocates 192 MiB on the first call and keeps it.
 */
#ifndef SLUICE_TESTS_BENCH_READ_BANDWIDTH_H
#define SLUICE_TESTS_BENCH_READ_BANDWIDTH_H

#include <stdint.h>

double read_bandwidth_gb_s(uint32_t n_threads); /* n_threads <= 16 */

#endif
