/* bench_link_checks.c - what the checks that guard KV memory cost: checksums of blocks on their way
 * to the host tier and back, and the holds that each span of a step takes, has tested before its
 * tokens are believed, and gives back.
 *
 * A worker that swaps all the time (a small pool, three times the seats waiting, real-time waves)
 * runs, free to use every core; its event log counts spans, blocks of their tables and copies. What one of each takes is
 * measured here, alone, right after: the same functions, on memory that no cache of a core holds
 * (a checksum in the worker reads bytes that were just copied, so this is rather too much). The
 * share is counts x times over the worker's CPU time or its steps' device time, whichever is less.
 * Not timed inside the worker: a clock around calls of 30 ns would measure the clock. */
#include "tests/bench/bench_link.h"
#include "tests/bench/bench_link_log.h"

#include "base/hash.h"
#include "base/mem.h"
#include "kvpool/kvpool.h"

#include <string.h>
#include <unistd.h>

#define BLOCK 16
#define SLICE 1024 /* the copier hashes so many bytes at a time */
#define BLOCK_BYTES 368640u /* of SmolLM2-135M in F16 */
#define WAVE_S 4
#define SEQS 32
#define ROUNDS 200

struct spans { /* what one costs, ns */
    double sum, hold, valid, unhold;
};

static volatile uint64_t sink;

/* Touches more than a core's caches hold. */
static void cool(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i += 64)
        sink += p[i];
}

static double checksum_ns(const uint8_t *p, size_t n) {
    uint64_t t0 = driver_clock_ns(), sum = 0;
    uint32_t blocks = (uint32_t)(n / BLOCK_BYTES), rounds = 4 * blocks;
    for (uint32_t k = 0; k < rounds; k++) {
        const uint8_t *b = p + rand_at(7, k) % blocks * BLOCK_BYTES;
        for (size_t at = 0; at < BLOCK_BYTES; at += SLICE)
            sum = (sum ^ hash64_bulk(b + at, SLICE)) * 0x9E3779B97F4A7C15u;
    }
    sink += sum;
    return (double)(driver_clock_ns() - t0) / rounds;
}

/* Holds of tables of so many blocks; SEQS of them after another, as a step has them. */
static void hold_ns(struct kvpool *p, uint32_t blocks, const uint8_t *mem, size_t n,
                    struct spans *ns) {
    uint32_t seqs[SEQS], holds[SEQS];
    uint64_t t[4], total[3] = {0};
    for (uint32_t i = 0; i < SEQS; i++)
        seqs[i] = kvpool_seq_open(p);
    for (uint32_t b = 1; b <= blocks; b++) /* in turn: their blocks are not neighbours */
        for (uint32_t i = 0; i < SEQS; i++)
            sink += (uint64_t)kvpool_reserve(p, seqs[i], b * BLOCK);
    for (int k = 0; k < ROUNDS; k++) {
        cool(mem, n);
        t[0] = driver_clock_ns();
        for (uint32_t i = 0; i < SEQS; i++)
            holds[i] = kvpool_hold(p, seqs[i]);
        t[1] = driver_clock_ns();
        cool(mem, n); /* a step lies between */
        t[2] = driver_clock_ns();
        for (uint32_t i = 0; i < SEQS; i++)
            sink += kvpool_hold_valid(p, holds[i]);
        t[3] = driver_clock_ns();
        total[0] += t[1] - t[0];
        total[1] += t[3] - t[2];
        for (uint32_t i = 0; i < SEQS; i++)
            kvpool_unhold(p, holds[i]);
        total[2] += driver_clock_ns() - t[3];
    }
    ns->hold = (double)total[0] / (ROUNDS * SEQS);
    ns->valid = (double)total[1] / (ROUNDS * SEQS);
    ns->unhold = (double)total[2] / (ROUNDS * SEQS);
}

static int cost_of_one(uint32_t blocks, struct spans *ns, struct err *e) {
    const struct kvpool_config cfg = {.n_blocks = SEQS * blocks + 64,
                                      .block_tokens = BLOCK,
                                      .max_seqs = SEQS + 1,
                                      .max_seq_blocks = blocks + 1,
                                      .max_holds = SEQS + 1};
    const size_t n = 512u << 20;
    uint8_t *mem = mem_array(n, 1);
    void *region = mem_zalloc(kvpool_bytes(&cfg));
    struct kvpool *p = region != NULL ? kvpool_init(region, &cfg) : NULL;
    int rc = mem != NULL && p != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory");
    if (rc == 0) {
        memset(mem, 1, n);
        ns->sum = checksum_ns(mem, n);
        hold_ns(p, blocks, mem, 8u << 20, ns);
    }
    mem_free(region);
    mem_free(mem);
    return rc;
}

static int make_waves(struct arrivals *w, double seconds, uint32_t wave) {
    uint32_t n = (uint32_t)(seconds / WAVE_S) * wave;
    *w = (struct arrivals){.v = mem_array(n, sizeof(*w->v)), .n = n};
    for (uint32_t i = 0; w->v != NULL && i < n; i++)
        w->v[i] = (struct arrival){
            .at_ns = (1 + WAVE_S * (uint64_t)(i / wave)) * BENCH_NS, .n_in = 224, .n_out = 16};
    return w->v != NULL ? 0 : -1;
}

/* A short life of a worker that swaps; the arm's figures stay. */
static int run_worker(const struct bench_options *o, const char *log, struct arm *a,
                      struct err *e) {
    static struct link_driver d;
    struct driver_config c = bench_worker(o);
    struct arrivals waves = {0};
    c.seats = o->seats != 0 ? o->seats : 24;
    c.kv_tokens = o->kv_tokens != 0 ? o->kv_tokens : c.seats * 160;
    c.prefill_chunk = o->prefill_chunk != 0 ? o->prefill_chunk : 128;
    c.event_log = log;
    c.worker_core = -1; /* on one full core low-priority copies hardly run: little to check */
    if (!bench_host_tier(o, &c))
        return err_set(e, ERR_BAD_VALUE, "this worker has no host tier");
    *a = (struct arm){.d = &d,
                      .list = &waves,
                      .keep = 3 * c.seats,
                      .batch_in = o->batch_in != 0 ? o->batch_in : 120,
                      .batch_out = o->batch_out != 0 ? o->batch_out : 80,
                      .open_ended = true,
                      .warm_s = o->warm_s > 0 ? o->warm_s : o->quick ? 1 : 4,
                      .seconds = o->seconds > 0 ? o->seconds : o->quick ? 6 : 24,
                      .seed = o->seed,
                      .length_seed = o->seed};
    int rc = make_waves(&waves, a->seconds, c.kv_tokens / 2 / 240);
    rc = rc == 0 ? driver_open(&d, &c, e) : err_set(e, ERR_NO_MEMORY, "no memory");
    if (rc == 0)
        rc = arm_run(a, e);
    driver_close(&d);
    arm_free(a);
    arrivals_free(&waves);
    return rc;
}

static void judge(struct bench_report *r, const struct arm *a, const struct log_window *w,
                  const struct spans *ns) {
    const struct msg_status *x = &a->status[0], *y = &a->status[1];
    double steps_s = w->rank_s[0] + w->rank_s[1];
    double cpu = a->cpu_s > 0 && a->cpu_s < steps_s ? a->cpu_s : steps_s;
    double holds = (ns->hold + ns->valid + ns->unhold) * (double)w->holds * 1e-9;
    double sums = ns->sum * (double)w->copies * 1e-9;
    bench_figure(r, "worker_cpu_s", a->cpu_s);
    bench_figure(r, "steps_device_s", steps_s);
    bench_figure(r, "preemptions", (double)(y->preemptions - x->preemptions));
    bench_figure(r, "swap_ins", (double)(y->swap_ins - x->swap_ins));
    bench_figure(r, "batch_tok_s", arm_batch_rate(a, true));
    bench_figure(r, "recomputed_over_useful", arm_tax(a));
    bench_figure(r, "copies_of_blocks", (double)w->copies);
    bench_figure(r, "spans_held", (double)w->holds);
    bench_figure(r, "checksum_us_a_block", ns->sum * 1e-3);
    bench_figure(r, "hold_ns_a_span", ns->hold);
    bench_figure(r, "hold_valid_ns_a_span", ns->valid);
    bench_figure(r, "unhold_ns_a_span", ns->unhold);
    bench_figure(r, "checksums_share", sums / cpu);
    bench_figure(r, "holds_share", holds / cpu);
    bench_verdict(r, "checks_share", (sums + holds) / cpu, 0.01, true);
    if (w->copies == 0 || y->preemptions == x->preemptions)
        bench_void(r, "nothing was swapped");
}

int bench_checks(const struct bench_options *o, struct bench_report *r, struct err *e) {
    char path[4300];
    struct arm a;
    struct link_log l = {0};
    struct spans ns;
    snprintf(path, sizeof(path), "/tmp/bench_link.%d.jsonl", (int)getpid());
    if (o->log != NULL)
        snprintf(path, sizeof(path), "%s", o->log);
    int rc = run_worker(o, path, &a, e);
    struct log_window w = {.from_ns = a.from_ns, .to_ns = a.to_ns};
    if (rc == 0)
        rc = link_log_read(&l, path, &w, 1, e);
    if (o->log == NULL)
        unlink(path);
    if (rc == 0)
        rc = cost_of_one(w.holds > 0 ? (uint32_t)(w.held_blocks / w.holds) + 1 : 1, &ns, e);
    if (rc == 0)
        judge(r, &a, &w, &ns);
    if (l.dropped > 0)
        bench_void(r, "the event log lost records");
    link_log_free(&l);
    return rc;
}
