/* Plain reads of 32 bytes (twin: ops_read.c). */
#if defined(__x86_64__)
#define WIDE 32
#include "worker/engine/cpu/read_streams.h"

uint64_t read_xor_avx2(const void *memory, size_t bytes) {
    return read_streams(memory, bytes);
}
#else
typedef int ops_read_avx2_is_empty;
#endif
