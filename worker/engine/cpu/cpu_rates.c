#include "worker/engine/cpu/cpu_rates.h"

#include "base/mem.h"
#include "worker/engine/cpu/ops.h"
#include "worker/engine/cpu/pool.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define READ_BYTES (256u << 20) /* past every cache */
#define READ_PART (1u << 20)    /* bytes of a tile: threads that are held up cost little */
#define PASSES 3                /* the best counts: what the machine can do, not what noise leaves */

/* One row group of 768 columns against 64 tokens: weights 8 KB, activations 60 KB. */
#define HOT_COLS 768
#define HOT_TOKENS 64
#define HOT_BLOCKS (HOT_COLS / PACKED_COLS)
#define HOT_CALLS 24 /* of a tile: some milliseconds */
#define HOT_TILES 8  /* a thread */

typedef uint64_t wide __attribute__((vector_size(32)));

struct rates {
    const wide *memory;
    const struct cpu_ops *ops;
    struct packed_matrix matrix;
    struct act_block act[HOT_TOKENS * HOT_BLOCKS];
    float (*out)[HOT_TOKENS * PACKED_ROWS]; /* [thread] */
    uint64_t sums[POOL_THREADS_MAX][8];     /* so that no read can be left out */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Eight chains, so that what is measured is never the additions. */
static void read_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    struct rates *r = ctx;
    const wide *p = r->memory + (size_t)tile * (READ_PART / sizeof *p);
    wide s[8] = {{0}};
    for (size_t i = 0; i < READ_PART / sizeof *p; i += 8) {
        __builtin_prefetch(p + i + 64);
        __builtin_prefetch(p + i + 66);
        __builtin_prefetch(p + i + 68);
        __builtin_prefetch(p + i + 70);
        for (size_t k = 0; k < 8; k++)
            s[k] ^= p[i + k];
    }
    for (size_t k = 0; k < 8; k++)
        r->sums[thread][k] += s[k][0] ^ s[k][1] ^ s[k][2] ^ s[k][3];
}

static void hot_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    struct rates *r = ctx;
    (void)tile;
    for (int i = 0; i < HOT_CALLS; i++)
        r->ops->matmul(&r->matrix, 0, 1, r->act, HOT_TOKENS, r->out[thread], PACKED_ROWS, false);
}

/* Weights as a file would hold them, so that the kernel's own layout is used. */
static int make_matrix(struct rates *r, struct err *e)
{
    static const uint8_t pattern[20] = {0x00, 0x2c, 0x00, 0xac, 0x5a, 0x3c, 0x96, 0xc3, 0x0f, 0xf0,
                                        0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf1, 0x24, 0x81};
    static uint8_t file[PACKED_ROWS * HOT_BLOCKS * sizeof pattern];
    for (size_t i = 0; i < sizeof file; i += sizeof pattern)
        memcpy(file + i, pattern, sizeof pattern);
    struct gguf_tensor t = {
        .name = {"hot", 3},
        .n_dims = 2,
        .dims = {HOT_COLS, PACKED_ROWS, 1, 1},
        .type = GGUF_Q4_1,
        .data = file,
        .bytes = sizeof file,
    };
    if (packed_matrix_plan(&r->matrix, &t, e) < 0)
        return -1;
    r->matrix.data = mem_alloc(r->matrix.bytes);
    if (r->matrix.data == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory to measure with");
    packed_matrix_fill(&r->matrix, &t, 0, r->matrix.n_groups);
    float x[HOT_COLS];
    for (uint32_t t0 = 0; t0 < HOT_TOKENS; t0++) {
        for (uint32_t c = 0; c < HOT_COLS; c++)
            x[c] = (float)((t0 * 37 + c * 11) % 64) - 31.5f;
        r->ops->quantise(r->act + t0 * HOT_BLOCKS, x, HOT_COLS);
    }
    return 0;
}

static double best_of(struct pool *pool, pool_fn *fn, struct rates *r, uint32_t tiles, double work)
{
    double best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double t0 = now_s();
        pool_run(pool, fn, r, tiles);
        double rate = work / (now_s() - t0);
        best = rate > best ? rate : best;
    }
    return best;
}

static int measure(struct rates *r, const struct engine_config *cfg, struct engine_rates *out,
                   struct err *e)
{
    struct pool *pool;
    if (pool_create(&pool, cfg->n_threads, cfg->cpus, cfg->n_cpus, e) < 0)
        return -1;
    double macs = (double)HOT_TOKENS * PACKED_ROWS * HOT_COLS * HOT_CALLS * HOT_TILES;
    out->read_gb_s = best_of(pool, read_tile, r, READ_BYTES / READ_PART, READ_BYTES * 1e-9);
    out->int8_gmac_s = best_of(pool, hot_tile, r, HOT_TILES * cfg->n_threads,
                               macs * cfg->n_threads * 1e-9);
    pool_destroy(&pool);
    return 0;
}

int cpu_measure(const struct engine_config *cfg, struct engine_rates *out, struct err *e)
{
    struct rates *r = mem_zalloc(sizeof *r);
    void *memory = mem_map(READ_BYTES);
    int rc = -1;
    if (r != NULL)
        r->out = mem_array(cfg->n_threads, sizeof *r->out);
    if (r == NULL || memory == NULL || r->out == NULL) {
        err_set(e, ERR_NO_MEMORY, "no memory to measure with");
        goto out;
    }
    madvise(memory, READ_BYTES, MADV_HUGEPAGE);
    memset(memory, 1, READ_BYTES);
    r->memory = memory;
    r->ops = cpu_ops_choose(cfg->kernel, e);
    if (r->ops != NULL && make_matrix(r, e) == 0)
        rc = measure(r, cfg, out, e);
out:
    if (memory != NULL)
        mem_unmap(memory, READ_BYTES);
    if (r != NULL) {
        mem_free(r->matrix.data);
        mem_free(r->out);
    }
    mem_free(r);
    return rc;
}
