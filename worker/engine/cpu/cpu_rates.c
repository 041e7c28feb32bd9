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

typedef uint64_t wide __attribute__((vector_size(16))); /* eight of them fit every register file */
#define LINE (64 / sizeof(wide))
#define AHEAD (1280 / sizeof(wide)) /* as far ahead as the kernels ask (matmul_avx2.h) */

struct rates {
    const wide *memory;
    const struct cpu_ops *ops;
    struct packed_matrix matrix;
    struct act_block act[HOT_TOKENS * HOT_BLOCKS];
    float (*out)[HOT_TOKENS * PACKED_ROWS]; /* [thread] */
    uint64_t sums[POOL_THREADS_MAX];        /* so that no read can be left out */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Eight chains in registers, so that what is measured is never the additions. Written out: -O2 alone
 * leaves such a loop rolled, with its sums in memory. */
static void read_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    struct rates *r = ctx;
    const wide *p = r->memory + (size_t)tile * (READ_PART / sizeof *p);
    const wide *end = p + READ_PART / sizeof *p;
    wide a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};
    for (; p < end; p += 8) {
        __builtin_prefetch(p + AHEAD);
        __builtin_prefetch(p + AHEAD + LINE);
        a ^= p[0];
        b ^= p[1];
        c ^= p[2];
        d ^= p[3];
        e ^= p[4];
        f ^= p[5];
        g ^= p[6];
        h ^= p[7];
    }
    a ^= b ^ c ^ d ^ e ^ f ^ g ^ h;
    r->sums[thread] += a[0] ^ a[1];
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
