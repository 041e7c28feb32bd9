/* Tokens/s, and read bandwidth in the same rounds. */
#include "tests/bench/bench_parts.h"

#include <stdio.h>
#include <string.h>

#define CONTEXT 128 /* of a decoding sequence */
#define DECODES 24  /* decode steps of a round */
#define N_CASES 4
#define N_SETUPS 2

static const uint32_t batches[N_CASES] = {0, 1, 4, 16}; /* 0 = prefill */
static const char *const names[N_CASES] = {"prefill 512", "decode 1", "decode 4", "decode 16"};

struct setup {
    struct bench_rig rig;
    double speed[N_CASES][BENCH_ROUNDS_MAX];
    double weights_gb_s[BENCH_ROUNDS_MAX], read_gb_s[BENCH_ROUNDS_MAX];
    double decode_share[BENCH_ROUNDS_MAX]; /* of one sequence, of weights_gb_s of the same round */
};

static struct setup setups[N_SETUPS];

static double round_of(struct bench_rig *r, uint32_t batch)
{
    if (batch == 0)
        return BENCH_PREFILL / bench_rig_step_s(r, 1, 0, BENCH_PREFILL);
    double s = 0;
    for (uint32_t i = 0; i < DECODES; i++)
        s += bench_rig_step_s(r, batch, CONTEXT + i, 1);
    return batch * DECODES / s;
}

static double model_bytes(const struct model *m)
{
    double bytes = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(m->gguf); i++)
        bytes += (double)gguf_tensor_at(m->gguf, i)->bytes;
    return bytes;
}

static void rates_of(struct setup *u, const struct bench_options *o, int k)
{
    struct engine_config cfg = {.backend = "cpu", .model = &o->model, .kernel = o->kernel,
                                .n_threads = u->rig.threads};
    struct engine_rates rates = {0};
    struct err e;
    if (engine_measure(&cfg, &rates, &e) != 0)
        fprintf(stderr, "bench_engine: %s\n", e.msg);
    u->weights_gb_s[k] = rates.weights_gb_s;
    u->read_gb_s[k] = rates.read_gb_s;
    u->decode_share[k] = u->speed[1][k] * model_bytes(&o->model) * 1e-9 / rates.weights_gb_s;
}

static void measure(const struct bench_options *o)
{
    for (int k = -1; k < o->rounds; k++) /* round -1 warms up */
        for (int s = 0; s < N_SETUPS; s++) {
            struct setup *u = &setups[s];
            for (int c = 0; c < N_CASES; c++) {
                double v = round_of(&u->rig, batches[c]);
                if (k >= 0)
                    u->speed[c][k] = v;
            }
            if (k >= 0)
                rates_of(u, o, k);
        }
}

static void print_row(const char *name, double *one, double *two, int n, const char *unit)
{
    double a = bench_median(one, n), b = bench_median(two, n); /* sorted now */
    printf("%-20s %9.2f (%8.2f) %9.2f (%8.2f) %s\n", name, a, one[n - 1], b, two[n - 1], unit);
}

static void print_table(const struct bench_options *o)
{
    struct setup *a = &setups[0], *b = &setups[1];
    printf("%-20s %20s %20s   median (best) of %d\n", "", "1 thread", "2 threads", o->rounds);
    for (int c = 0; c < N_CASES; c++)
        print_row(names[c], a->speed[c], b->speed[c], o->rounds, "tokens/s");
    print_row("read, weights' size", a->weights_gb_s, b->weights_gb_s, o->rounds, "GB/s");
    print_row("read, past caches", a->read_gb_s, b->read_gb_s, o->rounds, "GB/s");
    print_row("decode 1 of the first", a->decode_share, b->decode_share, o->rounds,
              "(weights read a second / GB/s of the same round)");
}

static void print_json(const struct bench_options *o)
{
    int n = o->rounds;
    printf("{\"family\":\"%s\",\"rounds\":%d,\"threads\":[", setups[0].rig.drive.limits->family, n);
    for (int s = 0; s < N_SETUPS; s++) {
        struct setup *u = &setups[s];
        printf("%s{\"n\":%u,\"read_gb_s\":%.2f,\"weights_gb_s\":%.2f,\"decode_share\":%.3f",
               s ? "," : "", u->rig.threads, bench_median(u->read_gb_s, n),
               bench_median(u->weights_gb_s, n), bench_median(u->decode_share, n));
        for (int c = 0; c < N_CASES; c++) {
            double median = bench_median(u->speed[c], n);
            printf(",\"%s\":%.1f,\"%s best\":%.1f", names[c], median, names[c],
                   u->speed[c][n - 1]);
        }
        printf("}");
    }
    printf("]}\n");
}

int bench_speed(const struct bench_options *o)
{
    for (uint32_t s = 0; s < N_SETUPS; s++) {
        double t0 = bench_now_s();
        bench_rig_open(&setups[s].rig, &o->model, o->kernel, s + 1, BENCH_PREFILL);
        if (!o->json)
            printf("%u thread(s): open %.2f s\n", s + 1, bench_now_s() - t0);
    }
    measure(o);
    if (o->json)
        print_json(o);
    else
        print_table(o);
    for (int s = 0; s < N_SETUPS; s++)
        bench_rig_close(&setups[s].rig);
    return 0;
}
