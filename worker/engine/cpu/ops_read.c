/* Plain reads with the registers every machine has (twins: ops_read_avx2.c, ops_read_avx512.c). */
#define WIDE 16
#include "worker/engine/cpu/read_streams.h"

uint64_t read_xor_scalar(const void *memory, size_t bytes) {
    return read_streams(memory, bytes);
}
