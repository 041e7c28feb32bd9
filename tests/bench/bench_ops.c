/* bench_ops.c - how fast the CPU operations are on this machine, one thread, with the read
 * bandwidth measured beside them. Not a test: nothing is asserted, figures mean something only
 * with the machine.
 *
 * usage: bench_ops [scalar|avx2|avx512] [seconds per line, default 0.3]
 * Shapes are those of a 135 M llama (30 layers, 576 wide, 1,536 inner, 9 heads of 64 over 3,
 * 49,152 ids); all layers lie in memory side by side, so that one token streams them as a forward
 * pass does.
 */
#include "base/hash.h"
#include "base/mem.h"
#include "worker/engine/cpu/sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYERS 30
#define MATRICES 7 /* of a layer */
#define EMBD 576
#define FF 1536
#define HEAD_DIM 64
#define HEADS 9
#define KV_HEADS 3
#define VOCAB 49152
#define CONTEXT 512
#define TOKENS_MAX 512

static const struct cpu_ops *ops;
static double seconds = 0.3;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *need(void *p) {
    if (p == NULL) {
        fprintf(stderr, "bench_ops: no memory\n");
        exit(1);
    }
    return p;
}

/* Best time of one call of fn(arg), calls repeated for `seconds`. */
static double best(void (*fn)(void *), void *arg) {
    double end = now() + seconds, least = 1e9;
    int n = 0;
    while (n++ < 3 || now() < end) {
        double t = now();
        fn(arg);
        t = now() - t;
        least = t < least ? t : least;
    }
    return least;
}

static float *random_floats(size_t n, float size) {
    float *x = need(mem_alloc(n * sizeof *x));
    for (size_t i = 0; i < n; i++)
        x[i] = (rand_unit(7, 4 * i) + rand_unit(7, 4 * i + 1) + rand_unit(7, 4 * i + 2) +
                rand_unit(7, 4 * i + 3) - 2) * size;
    return x;
}

/* --- bandwidth --- */

#define READ_BYTES ((size_t)256 << 20)
static uint64_t read_sink;

static void read_all(void *arg) {
    read_sink ^= ops->read_xor(arg, READ_BYTES);
}

static void bench_bandwidth(void) {
    uint8_t *p = need(mem_map(READ_BYTES));
    memset(p, 1, READ_BYTES);
    printf("%-34s %8.2f GB/s\n", "read bandwidth", (double)READ_BYTES / best(read_all, p) * 1e-9);
    mem_unmap(p, READ_BYTES);
}

/* --- products --- */

struct product {
    struct packed_matrix m[MATRICES * LAYERS];
    uint32_t n_matrices, n_tokens;
    double macs;   /* a token's */
    size_t bytes;
    struct act_block *act;
    float *out;
};

static void add_matrix(struct product *p, enum gguf_type type, uint32_t rows, uint32_t cols) {
    uint64_t block = type == GGUF_Q4_1 ? 20 : 34;
    struct gguf_tensor t = {.n_dims = 2, .dims = {cols, rows, 1, 1}, .type = type,
                            .bytes = (uint64_t)rows * cols / 32 * block};
    struct packed_matrix *m = &p->m[p->n_matrices++];
    struct err e;
    if (packed_matrix_plan(m, &t, &e) != 0)
        exit(1);
    m->data = need(mem_map(m->bytes));
    memset(m->data, 0x2c, m->bytes); /* scales of 0.065 */
    p->macs += (double)rows * cols;
    p->bytes += m->bytes;
}

/* Time of all matrices: the least each kind (every layer has the same MATRICES) took, in passes
 * over all of them. Calls are short, so that the figure holds on a busy machine too. */
static double best_product(struct product *p) {
    double end = now() + seconds, least[MATRICES], sum = 0;
    for (int i = 0; i < MATRICES; i++)
        least[i] = 1e9;
    for (int n = 0; n < 2 || now() < end; n++)
        for (uint32_t i = 0; i < p->n_matrices; i++) {
            double t = now(), *at = &least[i % MATRICES];
            ops->matmul(&p->m[i], 0, p->m[i].n_groups, p->act, p->n_tokens, p->out,
                        p->m[i].n_rows, false);
            t = now() - t;
            *at = t < *at ? t : *at;
        }
    for (uint32_t i = 0; i < p->n_matrices; i++)
        sum += least[i % MATRICES];
    return sum;
}

static void bench_product(struct product *p, const char *name, const uint32_t *counts) {
    for (; *counts; counts++) {
        char line[64];
        p->n_tokens = *counts;
        double t = best_product(p);
        snprintf(line, sizeof line, "%s, %u tokens", name, *counts);
        printf("%-34s %8.2f Gmac/s %8.2f GB/s %9.1f tok/s\n", line,
               p->macs * *counts / t * 1e-9, (double)p->bytes / t * 1e-9, *counts / t);
    }
}

static void make_acts(struct product *p, uint32_t n_tokens, uint32_t cols, size_t out) {
    float *x = random_floats((size_t)n_tokens * cols, 2);
    p->act = need(mem_array((size_t)n_tokens * ACT_BLOCKS(cols), sizeof *p->act));
    p->out = need(mem_array(out, sizeof *p->out));
    ops->quantise(p->act, x, n_tokens * cols);
    mem_free(x);
}

static void drop_product(struct product *p) {
    for (uint32_t i = 0; i < p->n_matrices; i++)
        mem_unmap(p->m[i].data, p->m[i].bytes);
    mem_free(p->act);
    mem_free(p->out);
}

static void bench_products(void) {
    static struct product layers, head;
    for (int i = 0; i < LAYERS; i++) {
        static const uint32_t shape[MATRICES][2] = {{576, 576}, {192, 576}, {192, 576}, {576, 576},
                                             {FF, EMBD}, {FF, EMBD}, {EMBD, FF}};
        for (int k = 0; k < MATRICES; k++)
            add_matrix(&layers, GGUF_Q4_1, shape[k][0], shape[k][1]);
    }
    make_acts(&layers, TOKENS_MAX, FF, (size_t)TOKENS_MAX * FF);
    bench_product(&layers, "Q4_1 all layers", (const uint32_t[]){1, 2, 4, 6, 8, 12, 16, 24, 64, 512, 0});
    drop_product(&layers);
    add_matrix(&head, GGUF_Q8_0, VOCAB, EMBD);
    make_acts(&head, 16, EMBD, (size_t)16 * VOCAB);
    bench_product(&head, "Q8_0 head", (const uint32_t[]){1, 2, 4, 8, 12, 16, 0});
    drop_product(&head);
}

/* --- attention: all heads and layers --- */

static struct kv_shape kv;

static void run_attention(void *arg) {
    struct attention_args *a = arg;
    for (a->layer = 0; a->layer < LAYERS; a->layer++)
        for (a->kv_head = 0; a->kv_head < KV_HEADS; a->kv_head++)
            ops->attention(a);
}

static void bench_attention(void) {
    struct hparams hp = {.n_layers = LAYERS, .n_kv_heads = KV_HEADS, .head_dim = HEAD_DIM,
                         .n_rot = HEAD_DIM};
    uint32_t blocks[CONTEXT / KV_BLOCK_TOKENS];
    if (kv_shape_init(&kv, &hp, ENGINE_KV_F16, NULL) != 0)
        exit(1);
    size_t bytes = kv.block_stride * (CONTEXT / KV_BLOCK_TOKENS);
    uint8_t *pool = need(mem_map(bytes));
    for (size_t i = 0; i < bytes; i += 2)
        memcpy(pool + i, &(uint16_t){(uint16_t)(0x3000 + (i & 0x83ff))}, 2);
    for (uint32_t i = 0; i < CONTEXT / KV_BLOCK_TOKENS; i++)
        blocks[i] = i;
    size_t row = HEADS * HEAD_DIM;
    float *q = random_floats(CONTEXT * row, 2), *out = random_floats(CONTEXT * row, 1);
    struct attention_args a = {.kv = &kv, .pool = pool, .blocks = blocks, .q = q, .q_stride = row,
                               .out = out, .out_stride = row, .n_group = HEADS / KV_HEADS};
    a.n = CONTEXT;
    double t = best(run_attention, &a), macs = 2.0 * LAYERS * row * CONTEXT * (CONTEXT + 1) / 2;
    printf("%-34s %8.2f Gmac/s %8.2f ms\n", "attention, prefill of 512", macs / t * 1e-9, t * 1e3);
    a.pos = CONTEXT - 1;
    a.n = 1;
    t = best(run_attention, &a);
    printf("%-34s %8.2f Gmac/s %8.2f ms\n", "attention, one token at 512",
           2.0 * LAYERS * row * CONTEXT / t * 1e-9, t * 1e3);
    mem_free(q);
    mem_free(out);
    mem_unmap(pool, bytes);
}

/* --- rows, sampler --- */

static float *row_x, *row_y;
static struct act_block row_act[ACT_BLOCKS(FF)];
static struct sampler sampler;
static struct sample_params params;

static void run_quantise(void *arg) {
    (void)arg;
    ops->quantise(row_act, row_x, FF);
}

static void run_rmsnorm(void *arg) {
    (void)arg;
    ops->rmsnorm(row_y, row_x, row_x, EMBD, 1e-5f);
}

static void run_silu(void *arg) {
    (void)arg;
    ops->silu_mul(row_y, row_x, row_x, FF);
}

static void run_sampler(void *arg) {
    struct sample_result r;
    params.position++;
    sampler_sample(&sampler, row_x, &params, arg != NULL, 0, &r);
}

static void bench_rows(void) {
    row_x = random_floats(VOCAB, 5);
    for (int i = 0; i < 100; i++) /* a head as real logits have one */
        row_x[i * 491] += 5 + 0.05f * (float)i;
    row_y = random_floats(VOCAB, 1);
    void *work = need(mem_alloc(sampler_bytes(VOCAB)));
    sampler_init(&sampler, ops, VOCAB, work);
    printf("%-34s %8.2f us\n", "quantise 1536", best(run_quantise, NULL) * 1e6);
    printf("%-34s %8.2f us\n", "rmsnorm 576", best(run_rmsnorm, NULL) * 1e6);
    printf("%-34s %8.2f us\n", "silu x up 1536", best(run_silu, NULL) * 1e6);
    params = (struct sample_params){.top_p = 1, .repetition_penalty = 1, .seed = 3};
    printf("%-34s %8.2f us\n", "sampler, greedy", best(run_sampler, NULL) * 1e6);
    params.temperature = 0.8f;
    printf("%-34s %8.2f us\n", "sampler, temperature 0.8", best(run_sampler, NULL) * 1e6);
    params.top_p = 0.9f;
    printf("%-34s %8.2f us\n", "sampler, top_p 0.9, logprob", best(run_sampler, &params) * 1e6);
    params.temperature = 1;
    printf("%-34s %8.2f us\n", "the same at temperature 1", best(run_sampler, &params) * 1e6);
    params.temperature = 0.8f;
    params.top_k = 40;
    printf("%-34s %8.2f us\n", "sampler, top_k 40, top_p 0.9", best(run_sampler, NULL) * 1e6);
    mem_free(row_x);
    mem_free(row_y);
    mem_free(work);
}

int main(int argc, char **argv) {
    struct err e;
    enum engine_kernel kernel = ENGINE_KERNEL_AUTO;
    if (argc > 1 && strcmp(argv[1], "scalar") == 0)
        kernel = ENGINE_KERNEL_SCALAR;
    else if (argc > 1 && strcmp(argv[1], "avx2") == 0)
        kernel = ENGINE_KERNEL_AVX2;
    else if (argc > 1 && strcmp(argv[1], "avx512") == 0)
        kernel = ENGINE_KERNEL_AVX512;
    else if (argc > 1) {
        fprintf(stderr, "usage: bench_ops [scalar|avx2|avx512] [seconds per line]\n");
        return 2;
    }
    if (argc > 2)
        seconds = atof(argv[2]);
    ops = cpu_ops_choose(kernel, &e);
    if (ops == NULL) {
        fprintf(stderr, "bench_ops: %s\n", e.msg);
        return 1;
    }
    printf("operations: %s, one thread\n", ops->name);
    bench_bandwidth();
    bench_products();
    bench_attention();
    bench_rows();
    bench_bandwidth();
    return 0;
}
