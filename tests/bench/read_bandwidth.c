#include "tests/bench/read_bandwidth.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES (192u << 20)
#define PASSES 3

struct part {
    const uint64_t *p;
    size_t n;
    uint64_t sum;
};

/* Eight chains, so that the additions are never what is measured. */
static void *read_part(void *arg)
{
    struct part *part = arg;
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 8 <= part->n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] ^= part->p[i + (size_t)k];
    for (int k = 0; k < 8; k++)
        part->sum ^= s[k];
    return NULL;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double read_bandwidth_gb_s(uint32_t n_threads)
{
    static uint64_t *memory;
    if (memory == NULL) {
        memory = aligned_alloc(1u << 21, BYTES);
        if (memory == NULL)
            return 0;
        madvise(memory, BYTES, MADV_HUGEPAGE);
        memset(memory, 1, BYTES);
    }
    double best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        pthread_t threads[16];
        struct part parts[16] = {0};
        double t0 = now_s();
        for (uint32_t i = 0; i < n_threads; i++) {
            size_t n = BYTES / sizeof *memory / n_threads;
            parts[i] = (struct part){.p = memory + i * n, .n = n};
            pthread_create(&threads[i], NULL, read_part, &parts[i]);
        }
        for (uint32_t i = 0; i < n_threads; i++)
            pthread_join(threads[i], NULL);
        double speed = BYTES * 1e-9 / (now_s() - t0);
        best = speed > best ? speed : best;
    }
    return best;
}
