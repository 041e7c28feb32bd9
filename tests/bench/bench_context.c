/* Steps at 8,192 positions against the arithmetic model of docs/ENGINE.md ("What attention costs"):
 *
 *   expected = step at 128, measured + attention at 8,192 by the model - attention at 128 by it
 *
 * with the two rates of the model measured in the same rounds: multiply-adds a second of a thread's
 * registers, and read bandwidth over the same K and V, block after block. Each figure is the best
 * of the rounds: of times that only other processes make longer. */
#include "tests/bench/bench_parts.h"
#include "worker/engine/cpu/kv_shape.h"
#include "worker/engine/cpu/ops.h"
#include "worker/engine/cpu/pool.h"

#include <stdio.h>
#include <string.h>

#define FAR 8192
#define NEAR 128
#define N_CASES 3
#define THREADS_MAX 2
#define TILE_ROWS 96 /* query rows that share one widening (attention_tile.h) */
#define WEIGHT_SLOTS 21

static const char *const names[N_CASES] = {"decode 1", "decode 16", "prefill 512"};
static const uint32_t seqs_of[N_CASES] = {1, BENCH_SEQS, 1}, new_of[N_CASES] = {1, 1, BENCH_PREFILL};

struct far {
    struct bench_rig rig;
    struct kv_shape kv;
    double near_s[N_CASES], far_s[N_CASES]; /* least of the rounds */
    struct pool *pool;
    double slots_s, read_b_s[2]; /* best of the rounds; of one sequence's bytes, of 16 */
};

static struct far fars[THREADS_MAX];
static const struct cpu_ops *ops;

/* ---- rates ---- */

#if defined(__x86_64__)
typedef float lanes16 __attribute__((vector_size(64)));
typedef float lanes8 __attribute__((vector_size(32)));
#define CHAINS 12
#define TURNS 400000

/* A sum would be fused to the same instruction, whose rate is what is asked. */
#define PEAK(name, type, isa, reg)                                                                 \
    __attribute__((target(isa), noinline)) static double name(void)                                \
    {                                                                                              \
        type a[CHAINS] = {0}, x = a[0] + 0.5f;                                                     \
        double t = bench_now_s();                                                                  \
        for (int k = 0; k < TURNS; k++)                                                            \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++)                              \
                __asm__ volatile("vfmadd231ps %1, %1, %0" : "+" reg(a[i]) : reg(x));               \
        return (double)TURNS * CHAINS / (bench_now_s() - t);                                       \
    }
PEAK(peak512, lanes16, "avx512f", "v")
PEAK(peak256, lanes8, "avx2,fma", "x")

static double slots_a_second(void)
{
    double best = 0;
    for (int i = 0; i < 5; i++) {
        double v = strcmp(ops->name, "avx512") == 0 ? peak512() : peak256();
        best = v > best ? v : best;
    }
    return best;
}
#else
static double slots_a_second(void)
{
    return 1e9;
}
#endif

struct reading {
    const struct far *f;
    uint64_t sums[THREADS_MAX];
};

static void read_block(void *ctx, uint32_t tile, uint32_t thread)
{
    struct reading *r = ctx;
    const struct drive *d = &r->f->rig.drive;
    const size_t bytes = r->f->kv.block_bytes & ~(size_t)511;
    r->sums[thread] ^= ops->read_xor(engine_block_bytes(d->eng, d->table[tile]), bytes);
}

/* Bytes a second of all threads over the K and V of `seqs` sequences. */
static double read_store(const struct far *f, uint32_t seqs)
{
    struct reading r = {.f = f};
    double t = bench_now_s();
    pool_run(f->pool, read_block, &r, seqs * f->rig.each);
    return (double)seqs * f->rig.each * (double)f->kv.block_bytes / (bench_now_s() - t);
}

/* ---- the model ---- */

/* Seconds for all layers and heads, `pos` positions before n new ones; multiply-adds of one thread
 * are shared, the bandwidth is that of all. */
static double attention_s(const struct far *f, const struct hparams *hp, uint32_t seqs,
                          uint32_t pos, uint32_t n)
{
    const double lanes = strcmp(ops->name, "avx512") == 0 ? 16 : 8;
    const double h = hp->head_dim, group = (double)hp->n_heads / hp->n_kv_heads;
    const double all = (double)hp->n_layers * hp->n_kv_heads * seqs;
    const double slots_s = f->slots_s * f->rig.threads;
    if (n == 1) {
        double bytes = (pos + 1) * (double)f->kv.head_bytes / KV_BLOCK_TOKENS;
        double slots = group * (pos + 1) / lanes * WEIGHT_SLOTS;
        return all * (bytes / f->read_b_s[seqs > 1] + slots / slots_s);
    }
    double rows = n * group, keys = pos + n / 2.0;
    double slots = rows * keys / lanes * (2 * h + WEIGHT_SLOTS);
    slots += keys * 2 * h / lanes * rows / TILE_ROWS;
    return all * slots / slots_s;
}

static void print_case(struct far *f, const struct hparams *hp, int c, bool json)
{
    uint32_t n = new_of[c], seqs = seqs_of[c], near = n > 1 ? 0 : NEAR;
    double more = attention_s(f, hp, seqs, FAR - n, n) - attention_s(f, hp, seqs, near, n);
    double want = f->near_s[c] + more, have = f->far_s[c];
    if (json)
        printf("%s\"%s\":{\"near_ms\":%.2f,\"model_ms\":%.2f,\"measured_ms\":%.2f,\"over\":%.3f}",
               c ? "," : "", names[c], f->near_s[c] * 1e3, want * 1e3, have * 1e3, have / want - 1);
    else
        printf("%-12s %7u %10.2f %10.2f %10.2f %+8.1f %%\n", names[c], f->rig.threads,
               f->near_s[c] * 1e3, want * 1e3, have * 1e3, 100 * (have / want - 1));
}

static void keep_least(double *at, double v)
{
    *at = *at == 0 || v < *at ? v : *at;
}

static void keep_most(double *at, double v)
{
    *at = v > *at ? v : *at;
}

static void one_round(struct far *f)
{
    for (int c = 0; c < N_CASES; c++) {
        uint32_t near = new_of[c] > 1 ? 0 : NEAR;
        keep_least(&f->near_s[c], bench_rig_step_s(&f->rig, seqs_of[c], near, new_of[c]));
        keep_least(&f->far_s[c],
                   bench_rig_step_s(&f->rig, seqs_of[c], FAR - new_of[c], new_of[c]));
    }
    keep_most(&f->slots_s, slots_a_second());
    for (int i = 0; i < 4; i++) /* what a decode of one leaves near is what the next one finds */
        keep_most(&f->read_b_s[0], read_store(f, 1));
    keep_most(&f->read_b_s[1], read_store(f, BENCH_SEQS));
}

int bench_context(const struct bench_options *o)
{
    const struct hparams *hp = &o->model.hp;
    struct err e;
    ops = cpu_ops_choose(o->kernel, &e);
    if (ops == NULL || hp->n_ctx < FAR) {
        fprintf(stderr, "bench_engine: no such kernel, or a context below %d\n", FAR);
        return 2;
    }
    if (!o->json)
        printf("%-12s %7s %10s %10s %10s %10s\n", "ms a step", "threads", "at 128, 0", "model 8k",
               "measured", "over");
    for (int t = 0; t < THREADS_MAX; t++) { /* one engine at a time: 3 GB of K and V */
        struct far *f = &fars[t];
        kv_shape_init(&f->kv, hp, ENGINE_KV_F16, NULL);
        bench_rig_open(&f->rig, &o->model, o->kernel, (uint32_t)t + 1, FAR);
        if (pool_create(&f->pool, (uint32_t)t + 1, NULL, 0, &e) != 0)
            return 1;
        for (int k = 0; k < o->rounds; k++)
            one_round(f);
        printf("%s", !o->json ? "" : t == 0 ? "{\"1\":{" : ",\"2\":{");
        for (int c = 0; c < N_CASES; c++)
            print_case(f, hp, c, o->json);
        if (!o->json)
            printf("             %.1f Gslots/s a thread, K and V of one %.1f, of 16 %.1f GB/s\n",
                   f->slots_s * 1e-9, f->read_b_s[0] * 1e-9, f->read_b_s[1] * 1e-9);
        printf("%s", o->json ? t == 0 ? "}" : "}}\n" : "");
        pool_destroy(&f->pool);
        bench_rig_close(&f->rig);
    }
    return 0;
}
