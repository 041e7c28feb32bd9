/* Plain reads of 64 bytes (twin: ops_read.c). */
#if defined(__x86_64__)
#define WIDE 64
#include "worker/engine/cpu/read_streams.h"

uint64_t read_xor_avx512(const void *memory, size_t bytes) {
    return read_streams(memory, bytes);
}
#else
typedef int ops_read_avx512_is_empty;
#endif
