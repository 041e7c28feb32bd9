#include "tests/bench/bench_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"

static void need(int rc, const struct err *e)
{
    if (rc == 0)
        return;
    fprintf(stderr, "bench_engine: %s\n", e->msg);
    exit(1);
}

double bench_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, int n)
{
    return bench_quantile(v, n, 0.5);
}

double bench_quantile(double *v, int n, double q)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    int at = (int)(q * n);
    return v[at < n ? at : n - 1];
}

/* The blocks of a computed prompt, copied into all others. */
static void fill_pool(struct bench_rig *r)
{
    struct drive *d = &r->drive;
    uint32_t have = BENCH_PREFILL / d->limits->block_tokens;
    bench_rig_step_s(r, 1, 0, BENCH_PREFILL);
    for (uint32_t i = have; i + 1 < d->limits->n_blocks; i++) {
        const void *from = engine_block_bytes(d->eng, d->table[i % have]);
        const void *to = engine_block_bytes(d->eng, d->table[i]);
        memcpy((void *)(uintptr_t)to, from, d->limits->block_bytes);
    }
}

void bench_rig_open(struct bench_rig *r, const struct model *m, enum engine_kernel kernel,
                    uint32_t threads, uint32_t positions)
{
    const uint32_t block_tokens = 16;
    struct err e;
    memset(r, 0, sizeof *r);
    r->threads = threads;
    r->each = (positions + block_tokens - 1) / block_tokens;
    struct engine_config cfg = {
        .backend = "cpu",
        .model = m,
        .kernel = kernel,
        .n_threads = threads,
        .n_blocks = r->each * BENCH_SEQS + 2,
        .max_spans = BENCH_SEQS,
        .max_tokens = BENCH_PREFILL,
        .max_rows = BENCH_SEQS,
    };
    for (uint32_t i = 0; i < BENCH_PREFILL + BENCH_SEQS; i++)
        r->ids[i] = (int32_t)(rand_at(1, i) % m->hp.n_vocab);
    need(drive_open(&r->drive, &cfg, &e), &e);
    fill_pool(r);
}

void bench_rig_close(struct bench_rig *r)
{
    drive_close(&r->drive);
}

double bench_rig_step_s(struct bench_rig *r, uint32_t seqs, uint32_t pos, uint32_t n)
{
    struct drive *d = &r->drive;
    struct err e;
    drive_begin(d);
    for (uint32_t i = 0; i < seqs; i++)
        drive_row(d, drive_span(d, i * r->each, pos, r->ids + i, n), n - 1, ENGINE_ROW_SAMPLE);
    double t0 = bench_now_s();
    need(drive_run(d, &e), &e);
    double s = bench_now_s() - t0;
    drive_release(d);
    return s;
}
