#include "worker/engine/cpu/cpu_rates.h"

#include "base/mem.h"
#include "worker/engine/cpu/ops.h"
#include "worker/engine/cpu/pool.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Past every cache is twice the last one, within what can be had: at least, at most. */
#define READ_MIN_BYTES ((size_t)256 << 20)
#define READ_MAX_BYTES ((size_t)1 << 30)
#define READ_PART (1u << 20) /* bytes of a tile: threads that are held up cost little */
#define PASSES 3             /* the best counts: what the machine can do, not what noise leaves */

/* One row group of 768 columns against 64 tokens: weights 8 KB, activations 60 KB. */
#define HOT_COLS 768
#define HOT_TOKENS 64
#define HOT_BLOCKS (HOT_COLS / PACKED_COLS)
#define HOT_CALLS 24 /* of a tile: some milliseconds */
#define HOT_TILES 8  /* a thread */

struct rates {
    uint8_t *memory;
    size_t bytes;
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

static void read_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    struct rates *r = ctx;
    uint32_t part = tile % (uint32_t)(r->bytes / READ_PART);
    r->sums[thread] ^= r->ops->read_xor(r->memory + (size_t)part * READ_PART, READ_PART);
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

static double read_rate(struct pool *pool, struct rates *r, size_t bytes)
{
    uint32_t parts = (uint32_t)(r->bytes / READ_PART); /* all, in whole rounds over `bytes` */
    uint32_t n = (uint32_t)((bytes + READ_PART - 1) / READ_PART), rounds = parts / n;
    size_t all = r->bytes;
    r->bytes = (size_t)n * READ_PART;
    pool_run(pool, read_tile, r, n); /* into what cache it fits */
    double rate = best_of(pool, read_tile, r, rounds * n, (double)rounds * n * READ_PART * 1e-9);
    r->bytes = all;
    return rate;
}

/* What decode reads again and again; 0 = not said, or no smaller than what is read anyway. */
static size_t weight_bytes(const struct engine_config *cfg, size_t most)
{
    size_t bytes = 0;
    const struct gguf *g = cfg->model != NULL ? cfg->model->gguf : NULL;
    for (uint64_t i = 0; g != NULL && i < gguf_tensor_count(g); i++)
        bytes += gguf_tensor_at(g, i)->bytes;
    return bytes < most ? bytes : 0;
}

static int measure(struct rates *r, const struct engine_config *cfg, struct engine_rates *out,
                   struct err *e)
{
    struct pool *pool;
    if (pool_create(&pool, cfg->n_threads, cfg->cpus, cfg->n_cpus, e) < 0)
        return -1;
    double macs = (double)HOT_TOKENS * PACKED_ROWS * HOT_COLS * HOT_CALLS * HOT_TILES;
    size_t weights = weight_bytes(cfg, r->bytes);
    out->read_gb_s = read_rate(pool, r, r->bytes);
    out->weights_gb_s = weights > 0 ? read_rate(pool, r, weights) : out->read_gb_s;
    out->int8_gmac_s = best_of(pool, hot_tile, r, HOT_TILES * cfg->n_threads,
                               macs * cfg->n_threads * 1e-9);
    pool_destroy(&pool);
    return 0;
}

/* Written, so that it is memory and not the one page of zeros; in huge pages, as weights are. */
static int make_memory(struct rates *r, struct err *e)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE), pages = sysconf(_SC_AVPHYS_PAGES);
    size_t most = pages > 0 ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) / 4 : READ_MIN_BYTES;
    size_t bytes = cache > 0 ? 2 * (size_t)cache : READ_MIN_BYTES;
    bytes = bytes < READ_MIN_BYTES ? READ_MIN_BYTES : bytes > READ_MAX_BYTES ? READ_MAX_BYTES : bytes;
    bytes = bytes < most ? bytes : most > READ_MIN_BYTES ? most : READ_MIN_BYTES;
    r->bytes = bytes / READ_PART * READ_PART;
    r->memory = mem_map(r->bytes);
    if (r->memory == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory to measure with");
    madvise(r->memory, r->bytes, MADV_HUGEPAGE);
    memset(r->memory, 1, r->bytes);
    return 0;
}

int cpu_measure(const struct engine_config *cfg, struct engine_rates *out, struct err *e)
{
    struct rates *r = mem_zalloc(sizeof *r);
    if (r == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory to measure with");
    int rc = -1;
    r->out = mem_array(cfg->n_threads, sizeof *r->out);
    r->ops = cpu_ops_choose(cfg->kernel, e);
    if (r->out == NULL)
        err_set(e, ERR_NO_MEMORY, "no memory to measure with");
    else if (r->ops != NULL && make_memory(r, e) == 0 && make_matrix(r, e) == 0)
        rc = measure(r, cfg, out, e);
    if (r->memory != NULL)
        mem_unmap(r->memory, r->bytes);
    mem_free(r->matrix.data);
    mem_free(r->out);
    mem_free(r);
    return rc;
}
