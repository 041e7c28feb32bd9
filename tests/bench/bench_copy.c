/* bench_copy - the copy path of the host tier against memcpy of the same bytes, interleaved in one run.
 *
 *   bench_copy [--json] [--rounds N] [--mib N] [MODEL.gguf]
 *
 * Through engine.h, backend cpu: N MiB of blocks in random order (all pages touched before), 64
 * copies in flight, out to random slots and back in, at both priorities, with and without checksums.
 * Beside each round the same bytes by memcpy, on memory of the same size and kind of pages: block by
 * block in the same random order, and in one call (for which the C library streams past the
 * caches, as the copy engine does). Medians over the rounds, and their ratios to both memcpys: by wall
 * time, and by CPU time of the whole process (submitting and polling included), which says the same
 * on a machine that others use too. Without a model: the one tests use, or exit 77.
 */
#include "tests/common/testpaths.h"
#include "tests/unit/worker/engine/engine_rig.h"

#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 31

enum { ONE_CALL, BY_BLOCK, OUT_PLAIN, IN_PLAIN, OUT_SUMMED, IN_SUMMED, IDLE_PLAIN, IDLE_SUMMED, N_CASES };
static const char *const names[N_CASES] = {
    "memcpy, one call", "memcpy, block by block", "out, no checksum", "in, no checksum",
    "out, checksum", "in, checksum", "out, no checksum, priority 1", "out, checksum, priority 1"};

static double speed[2][N_CASES][ROUNDS_MAX]; /* GB a second of wall time, of CPU time */
static struct rig rigs[2]; /* without and with checksums */
static uint32_t n_blocks, *blocks, *slots;
static uint8_t *a, *b;

static double now_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void shuffle(uint32_t *p, uint64_t seed)
{
    for (uint32_t i = n_blocks - 1; i > 0; i--) {
        uint32_t k = (uint32_t)(rand_at(seed, i) % (i + 1)), x = p[i];
        p[i] = p[k];
        p[k] = x;
    }
}

/* All copies of a round, up to ENGINE_COPIES_MAX in flight. */
static void copies(struct rig *r, bool out, uint8_t priority)
{
    struct engine_completion done[ENGINE_COPIES_MAX];
    uint32_t sent = 0, ended = 0;
    static uint64_t id;
    while (ended < n_blocks) {
        for (; sent < n_blocks && sent - ended < ENGINE_COPIES_MAX; sent++) {
            struct engine_copy c = {.id = ++id, .priority = priority};
            c.kind = out ? ENGINE_COPY_BLOCK_TO_HOST : ENGINE_COPY_HOST_TO_BLOCK;
            c.from = out ? blocks[sent] : slots[sent];
            c.to = out ? slots[sent] : blocks[sent];
            rig_require(engine_copy_submit(r->eng, &c) == 0);
        }
        int n = engine_poll(r->eng, done, ENGINE_COPIES_MAX);
        for (int i = 0; i < n; i++)
            rig_require(done[i].kind == ENGINE_COPY_END && done[i].status == ENGINE_STEP_OK);
        ended += (uint32_t)n;
        struct timespec rest = {.tv_nsec = 500000}; /* 64 blocks last longer than that */
        struct pollfd p = {.fd = engine_fd(r->eng), .events = POLLIN};
        if (sent == n_blocks && ended < n_blocks)
            poll(&p, 1, 1000);
        else if (ended < n_blocks)
            nanosleep(&rest, NULL);
    }
}

static void copy_case(int k)
{
    size_t stride = rigs[0].limits->block_stride;
    switch (k) {
    case ONE_CALL: memcpy(b, a, n_blocks * stride); break;
    case BY_BLOCK:
        for (uint32_t i = 0; i < n_blocks; i++)
            memcpy(b + slots[i] * stride, a + (blocks[i] - 1) * stride, stride);
        break;
    case OUT_PLAIN: copies(&rigs[0], true, 0); break;
    case IN_PLAIN: copies(&rigs[0], false, 0); break;
    case OUT_SUMMED: copies(&rigs[1], true, 0); break;
    case IN_SUMMED: copies(&rigs[1], false, 0); break;
    case IDLE_PLAIN: copies(&rigs[0], true, 1); break;
    case IDLE_SUMMED: copies(&rigs[1], true, 1); break;
    }
}

static int by_value(const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

static double median(double *v, uint32_t rounds)
{
    qsort(v, rounds, sizeof *v, by_value);
    return v[rounds / 2];
}

static uint8_t *mapped(size_t bytes)
{
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rig_require(p != MAP_FAILED);
    madvise(p, bytes, MADV_HUGEPAGE); /* as the pool and the host tier */
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t x = i * 0x9E3779B97F4A7C15u;
        memcpy(p + i, &x, 8);
    }
    return p;
}

static void set_up(const char *path, size_t mib)
{
    struct engine_config cfg = rig_config("cpu");
    for (int i = 0; i < 2; i++) {
        cfg.copy_no_checksum = i == 0;
        if (i == 0) { /* the stride is known when an engine is open */
            cfg.n_blocks = 2;
            cfg.host_slots = 1;
            rig_open(&rigs[0], path, &cfg);
            n_blocks = (uint32_t)((mib << 20) / rigs[0].limits->block_stride);
            rig_close(&rigs[0]);
        }
        cfg.n_blocks = n_blocks + 1;
        cfg.host_slots = n_blocks;
        rig_open(&rigs[i], path, &cfg);
    }
    size_t bytes = n_blocks * rigs[0].limits->block_stride;
    a = mapped(bytes);
    b = mapped(bytes);
    blocks = malloc(n_blocks * sizeof *blocks);
    slots = malloc(n_blocks * sizeof *slots);
    rig_require(blocks != NULL && slots != NULL);
    for (uint32_t i = 0; i < n_blocks; i++) {
        blocks[i] = i + 1;
        slots[i] = i;
    }
    for (int i = 0; i < 2; i++) { /* touched: random bytes in, and out once */
        for (uint32_t k = 0; k < n_blocks; k++)
            memcpy((void *)(uintptr_t)engine_block_bytes(rigs[i].eng, k + 1),
                   a + k * rigs[0].limits->block_stride, rigs[0].limits->block_stride);
        copies(&rigs[i], true, 0);
    }
}

static double lesser(double x, double y)
{
    return x < y ? x : y;
}

static void report(uint32_t rounds, bool json)
{
    double v[2][N_CASES];
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < N_CASES; k++)
            v[t][k] = median(speed[t][k], rounds);
    if (!json)
        printf("%u blocks of %llu bytes, %u rounds, medians\n%-30s %8s %10s %10s %10s %10s %10s\n",
               n_blocks, (unsigned long long)rigs[0].limits->block_stride, rounds, "", "GB/s",
               "/ one call", "/ by block", "GB/CPU s", "/ one call", "/ by block");
    for (int k = 0; k < N_CASES; k++)
        if (json)
            printf("%s\"%s\":[%.3f,%.3f]", k == 0 ? "{" : ",", names[k], v[0][k], v[1][k]);
        else
            printf("%-30s %8.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n", names[k], v[0][k],
                   v[0][k] / v[0][ONE_CALL], v[0][k] / v[0][BY_BLOCK], v[1][k],
                   v[1][k] / v[1][ONE_CALL], v[1][k] / v[1][BY_BLOCK]);
    for (int t = 0; t < 2; t++)
        for (int base = ONE_CALL; base <= BY_BLOCK; base++) {
            double plain = lesser(v[t][OUT_PLAIN], v[t][IN_PLAIN]) / v[t][base];
            double summed = lesser(v[t][OUT_SUMMED], v[t][IN_SUMMED]) / v[t][base];
            const char *time = t == 0 ? "wall" : "cpu", *to = base == BY_BLOCK ? "block" : "call";
            if (json)
                printf(",\"%s_%s_plain\":%.3f,\"%s_%s_checksum\":%.3f", time, to, plain, time, to,
                       summed);
            else
                printf("%s time, worse direction / %s: %.2f without checksums, %.2f with\n", time,
                       names[base], plain, summed);
        }
    if (json)
        printf("}\n");
}

int main(int argc, char **argv)
{
    uint32_t rounds = 5;
    size_t mib = 1024;
    bool json = false;
    const char *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc)
            mib = (size_t)atoi(argv[++i]);
        else
            path = argv[i];
    }
    if (path == NULL)
        path = test_model_path();
    if (path == NULL || access(path, R_OK) != 0) {
        fprintf(stderr, "bench_copy: no model\n");
        return 77;
    }
    rig_require(rounds >= 1 && rounds <= ROUNDS_MAX && mib >= 16);
    set_up(path, mib);
    for (uint32_t r = 0; r < rounds; r++) {
        shuffle(blocks, 2 * r + 1);
        shuffle(slots, 2 * r + 2);
        /* what goes in must have come from that slot: out first, in the same order */
        for (int k = 0; k < N_CASES; k++) {
            double gb = (double)n_blocks * (double)rigs[0].limits->block_stride / 1e9;
            double t0 = now_s(CLOCK_MONOTONIC), c0 = now_s(CLOCK_PROCESS_CPUTIME_ID);
            copy_case(k);
            speed[0][k][r] = gb / (now_s(CLOCK_MONOTONIC) - t0);
            speed[1][k][r] = gb / (now_s(CLOCK_PROCESS_CPUTIME_ID) - c0);
        }
    }
    report(rounds, json);
    for (int i = 0; i < 2; i++)
        rig_close(&rigs[i]);
    return 0;
}
