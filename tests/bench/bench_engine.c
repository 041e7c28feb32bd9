/* bench_engine - tokens/s of the CPU engine alone: prefill of a 512-token prompt, decode at batch
 * 1, 4 and 16, with 1 and 2 compute threads, and the memory read bandwidth measured beside each
 * (decode of one sequence is bound by it).
 *
 *   bench_engine [--json] [--rounds N] [--kernel scalar|avx2] [MODEL.gguf]
 *
 * Medians and best over the rounds; the rounds of all cases are interleaved, so that a slow minute
 * of the machine hits all alike. Without a model: the one tests use, or exit 77. Figures mean
 * something only with machine and date beside.
 */
#include "tests/bench/read_bandwidth.h"
#include "tests/common/testpaths.h"
#include "tests/unit/worker/engine/engine_rig.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define PREFILL 512
#define CONTEXT 128 /* prompt of a decoding sequence */
#define DECODES 24  /* decode steps of a round */
#define ROUNDS_MAX 31
#define N_CASES 4

static const uint32_t batches[N_CASES] = {0, 1, 4, 16}; /* 0 = prefill */
static const char *const case_names[N_CASES] = {"prefill 512", "decode 1", "decode 4", "decode 16"};

struct setup {
    struct rig rig;
    uint32_t threads;
    double speed[N_CASES][ROUNDS_MAX], gb_s[ROUNDS_MAX];
};

static struct setup setups[2];
static struct rig_step st;
static struct rig_seq seqs[16];
static int32_t ids[RIG_CTX];

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void prefill(struct rig *r, struct rig_seq *q, uint32_t n, uint64_t seed)
{
    rig_ids(ids, n, seed, r->limits->n_vocab);
    rig_seq_init(q, seed, ids, n);
    rig_step_init(r, &st);
    rig_row(&st, rig_span(r, &st, q, n), n - 1, ENGINE_ROW_SAMPLE);
    rig_run(r, &st);
    q->ids[q->n_ids++] = engine_step_result(r->eng, st.step.id, 0)->id;
    rig_release(r, &st);
}

static void decode(struct rig *r, uint32_t batch)
{
    rig_step_init(r, &st);
    for (uint32_t i = 0; i < batch; i++)
        rig_row(&st, rig_span(r, &st, &seqs[i], 1), 0, ENGINE_ROW_SAMPLE);
    rig_run(r, &st);
    for (uint32_t i = 0; i < batch; i++)
        seqs[i].ids[seqs[i].n_ids++] = engine_step_result(r->eng, st.step.id, i)->id;
    rig_release(r, &st);
}

/* Tokens/s of one round of a case. */
static double round_of(struct rig *r, uint32_t batch, uint64_t seed)
{
    double t0 = now_s();
    double tokens = PREFILL;
    if (batch == 0) {
        prefill(r, &seqs[0], PREFILL, seed);
    } else {
        for (uint32_t i = 0; i < batch; i++)
            prefill(r, &seqs[i], CONTEXT, seed + i);
        t0 = now_s();
        for (uint32_t i = 0; i < DECODES; i++)
            decode(r, batch);
        tokens = (double)batch * DECODES;
    }
    double s = now_s() - t0;
    for (uint32_t i = 0; i < (batch == 0 ? 1 : batch); i++)
        rig_seq_free(r, &seqs[i]);
    return tokens / s;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, int n)
{
    double copy[ROUNDS_MAX];
    memcpy(copy, v, (size_t)n * sizeof *v);
    qsort(copy, (size_t)n, sizeof *copy, compare);
    return copy[n / 2];
}

static void measure(int rounds)
{
    for (int k = -1; k < rounds; k++) /* round -1 warms up */
        for (int s = 0; s < 2; s++) {
            struct setup *u = &setups[s];
            for (int c = 0; c < N_CASES; c++) {
                double v = round_of(&u->rig, batches[c], (uint64_t)(k + 2) * 1000);
                if (k >= 0)
                    u->speed[c][k] = v;
            }
            double gb_s = read_bandwidth_gb_s(u->threads);
            if (k >= 0)
                u->gb_s[k] = gb_s;
        }
}

static double best(const double *v, int n)
{
    double m = v[0];
    for (int i = 1; i < n; i++)
        m = v[i] > m ? v[i] : m;
    return m;
}

static void print_row(const char *name, const double *one, const double *two, int rounds,
                      const char *unit)
{
    printf("%-12s %10.1f (%6.1f) %10.1f (%6.1f) %s\n", name, median(one, rounds), best(one, rounds),
           median(two, rounds), best(two, rounds), unit);
}

static void print_table(int rounds)
{
    double mb = 0;
    const struct gguf *g = setups[0].rig.model.gguf;
    printf("%-12s %19s %19s   median (best) of %d\n", "", "1 thread", "2 threads", rounds);
    for (int c = 0; c < N_CASES; c++)
        print_row(case_names[c], setups[0].speed[c], setups[1].speed[c], rounds, "tokens/s");
    print_row("read", setups[0].gb_s, setups[1].gb_s, rounds, "GB/s");
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++)
        mb += (double)gguf_tensor_at(g, i)->bytes * 1e-6;
    printf("decode 1 reads %.1f MB a token: %.1f and %.1f GB/s at best\n", mb,
           mb * 1e-3 * best(setups[0].speed[1], rounds),
           mb * 1e-3 * best(setups[1].speed[1], rounds));
}

static void print_json(int rounds, const char *family)
{
    printf("{\"family\":\"%s\",\"rounds\":%d,\"threads\":[", family, rounds);
    for (int s = 0; s < 2; s++) {
        printf("%s{\"n\":%u,\"read_gb_s\":%.2f", s ? "," : "", setups[s].threads,
               median(setups[s].gb_s, rounds));
        for (int c = 0; c < N_CASES; c++)
            printf(",\"%s\":%.1f,\"%s best\":%.1f", case_names[c],
                   median(setups[s].speed[c], rounds), case_names[c],
                   best(setups[s].speed[c], rounds));
        printf("}");
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    const char *model = test_model_path();
    bool json = false;
    int rounds = 5;
    enum engine_kernel kernel = ENGINE_KERNEL_AUTO;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--kernel") == 0 && i + 1 < argc)
            kernel = strcmp(argv[++i], "scalar") == 0 ? ENGINE_KERNEL_SCALAR : ENGINE_KERNEL_AVX2;
        else
            model = argv[i];
    }
    if (model == NULL)
        return test_skip("no model to measure");
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    for (uint32_t s = 0; s < 2; s++) {
        struct engine_config cfg = rig_config("cpu");
        cfg.kernel = kernel;
        cfg.n_threads = setups[s].threads = s + 1;
        cfg.n_blocks = 16 * 256 / 16 + 1;
        cfg.max_rows = 16;
        double t0 = now_s();
        rig_open(&setups[s].rig, model, &cfg);
        if (!json)
            printf("%u thread(s): open %.2f s\n", s + 1, now_s() - t0);
    }
    measure(rounds);
    if (json)
        print_json(rounds, setups[0].rig.limits->family);
    else
        print_table(rounds);
    for (int s = 0; s < 2; s++)
        rig_close(&setups[s].rig);
    return 0;
}
