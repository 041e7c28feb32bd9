/* bench_engine.c - see bench_engine.h. */
#include "cli/bench_engine.h"

#include "base/hash.h"
#include "base/mem.h"
#include "cli/bench_peer.h"
#include "cli/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE_MS 400.0 /* a decode sample ends after this time, or after BENCH_DECODE_STEPS */
#define STEPS_MIN 3
#define SEED 1

uint64_t bench_free_bytes(void) {
    uint64_t kib = 4u << 20;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return kib * 1024;
}

/* Where a case ends: past a decode's context there is room for its steps. */
static uint32_t last_position(const struct bench_engine *b, const struct bench_case *c) {
    uint32_t n = c->kind == BENCH_PREFILL ? c->context : c->context + BENCH_DECODE_STEPS;
    return n < b->model.hp.n_ctx ? n : b->model.hp.n_ctx;
}

static void add_case(struct bench_engine *b, enum bench_kind kind, uint32_t threads,
                     uint32_t tokens, uint32_t context) {
    struct bench_case *c = &b->cases[b->n_cases++];
    *c = (struct bench_case){.kind = kind, .threads = threads, .tokens = tokens,
                             .context = context, .peer_name = ""};
    c->seqs = kind == BENCH_DECODE ? tokens : 1;
    uint64_t token = hparams_kv_bytes_per_token(&b->model.hp);
    c->kv_bytes = token * c->seqs * (context + BENCH_DECODE_STEPS);
    c->skipped = context > b->model.hp.n_ctx ||
                 c->kv_bytes > bench_free_bytes() / 2 / b->threads.n / (b->precise ? 2 : 1);
}

static void add_cases(struct bench_engine *b) {
    for (uint32_t t = 0; t < b->threads.n; t++) {
        uint32_t threads = b->threads.v[t];
        add_case(b, BENCH_PREFILL, threads, b->prefill, b->prefill);
        for (uint32_t c = 0; c < b->contexts.n; c++) {
            if (b->contexts.v[c] > b->prefill)
                add_case(b, BENCH_PREFILL, threads, b->prefill, b->contexts.v[c]);
            for (uint32_t s = 0; s < b->seqs.n; s++)
                add_case(b, BENCH_DECODE, threads, b->seqs.v[s], b->contexts.v[c]);
        }
    }
}

static uint32_t blocks_wanted(const struct bench_engine *b) {
    const uint32_t block_tokens = 16; /* more blocks than needed when a backend's are longer */
    uint32_t most = 0;
    for (uint32_t i = 0; i < b->n_cases; i++) {
        const struct bench_case *c = &b->cases[i];
        uint32_t n = c->seqs * ((last_position(b, c) + block_tokens - 1) / block_tokens);
        if (!c->skipped && n > most)
            most = n;
    }
    return most + 1;
}

static int run_prefill(struct bench_engine *b, struct drive *d, uint32_t pos, uint32_t n,
                       struct err *e) {
    drive_begin(d);
    uint32_t span = drive_span(d, 0, pos, b->ids, n);
    drive_row(d, span, n - 1, ENGINE_ROW_SAMPLE);
    if (drive_run(d, e) != 0)
        return -1;
    drive_release(d);
    return 0;
}

/* Real K and V in every block: a prompt is computed, its blocks are copied to all others. */
static int fill_pool(struct bench_engine *b, struct drive *d, struct err *e) {
    uint32_t have = drive_block_count(d, b->prefill);
    if (b->prefill % d->limits->block_tokens != 0)
        have--; /* the last one is not full */
    if (run_prefill(b, d, 0, b->prefill, e) != 0)
        return -1;
    for (uint32_t i = have; have > 0 && i + 1 < d->limits->n_blocks; i++) {
        const void *from = engine_block_bytes(d->eng, d->table[i % have]);
        const void *to = engine_block_bytes(d->eng, d->table[i]);
        if (from == NULL || to == NULL)
            break;
        memcpy((void *)(uintptr_t)to, from, d->limits->block_bytes);
    }
    return 0;
}

static int open_drive(struct bench_engine *b, const struct bench_setup *s, bool precise,
                      struct drive *d, struct err *e) {
    uint32_t seqs = bench_list_last(&b->seqs);
    struct engine_config cfg = {
        .backend = "cpu",
        .model = &b->model,
        .kernel = b->kernel,
        .kv_type = b->kv_type,
        .precise = precise,
        .n_threads = s->threads,
        .n_blocks = blocks_wanted(b),
        .max_spans = seqs,
        .max_tokens = seqs > b->prefill ? seqs : b->prefill,
        .max_rows = seqs,
    };
    double t0 = clock_ms();
    if (drive_open(d, &cfg, e) != 0)
        return -1;
    if (d == &b->setups[0].drive)
        b->open_s = (clock_ms() - t0) / 1e3;
    return fill_pool(b, d, e);
}

static int open_setup(struct bench_engine *b, struct bench_setup *s, struct err *e) {
    if (open_drive(b, s, false, &s->drive, e) != 0)
        return -1;
    return b->precise ? open_drive(b, s, true, &s->precise, e) : 0;
}

int bench_engine_open(struct bench_engine *b, struct err *e) {
    if (model_open(&b->model, b->model_path, NULL, e) != 0)
        return -1;
    if (b->prefill > b->model.hp.n_ctx)
        return err_set(e, ERR_BAD_VALUE, "--prefill %u is longer than the model's context of %u",
                       b->prefill, b->model.hp.n_ctx);
    uint32_t n = b->prefill + ENGINE_SPANS_MAX;
    b->ids = mem_array(n, sizeof(*b->ids));
    if (b->ids == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the ids");
    for (uint32_t i = 0; i < n; i++)
        b->ids[i] = (int32_t)(rand_at(SEED, i) % b->model.hp.n_vocab);
    add_cases(b);
    for (uint32_t t = 0; t < b->threads.n; t++) {
        b->setups[t].threads = b->threads.v[t];
        if (open_setup(b, &b->setups[t], e) != 0)
            return -1;
    }
    const struct engine_limits *l = b->setups[0].drive.limits;
    bench_work_of(&b->work, &b->model, l->block_bytes, l->block_tokens);
    return 0;
}

void bench_engine_close(struct bench_engine *b) {
    for (uint32_t t = 0; t < BENCH_LIST_MAX; t++) {
        drive_close(&b->setups[t].drive);
        drive_close(&b->setups[t].precise);
    }
    mem_free(b->ids);
    b->ids = NULL;
    if (b->model.gguf != NULL)
        model_close(&b->model);
}

static int decode_step(struct bench_engine *b, struct drive *d, const struct bench_case *c,
                       uint32_t pos, struct err *e) {
    uint32_t each = drive_block_count(d, last_position(b, c));
    drive_begin(d);
    for (uint32_t i = 0; i < c->seqs; i++) {
        uint32_t span = drive_span(d, i * each, pos, b->ids + (pos + i) % b->prefill, 1);
        drive_row(d, span, 0, ENGINE_ROW_SAMPLE);
    }
    if (drive_run(d, e) != 0)
        return -1;
    drive_release(d);
    return 0;
}

/* One sample, in tokens/s; < 0 on failure. */
static double sample(struct bench_engine *b, struct drive *d, const struct bench_case *c,
                     struct err *e) {
    double t0 = clock_ms(), ms;
    if (c->kind == BENCH_PREFILL) {
        if (run_prefill(b, d, c->context - c->tokens, c->tokens, e) != 0)
            return -1;
        ms = clock_ms() - t0;
        return c->tokens * 1e3 / ms;
    }
    uint32_t steps = 0, from = last_position(b, c) - BENCH_DECODE_STEPS;
    do {
        if (decode_step(b, d, c, from + steps, e) != 0)
            return -1;
        steps++;
        ms = clock_ms() - t0;
    } while (steps < BENCH_DECODE_STEPS && (steps < STEPS_MIN || ms < SAMPLE_MS));
    return (double)c->tokens * steps * 1e3 / ms;
}

static void progress(const struct bench_engine *b, const char *what, uint32_t round) {
    if (b->quiet)
        return;
    bool line = isatty(2);
    fprintf(stderr, "%sround %u of %u: %-40s%s", line ? "\r" : "", round + 1, b->rounds, what,
            line ? "" : "\n");
}

static int one_case(struct bench_engine *b, struct bench_setup *s, struct bench_case *c, bool keep,
                    struct err *e) {
    bool turn = c->ours.n % 2 != 0; /* who goes first alternates */
    for (int k = 0; k < 2; k++) {
        bool precise = (k == 1) != turn;
        if (precise && !b->precise)
            continue;
        double v = sample(b, precise ? &s->precise : &s->drive, c, e);
        if (v < 0)
            return -1;
        if (keep)
            bench_samples_add(precise ? &c->precise : &c->ours, v);
    }
    return 0;
}

/* All cases once; without `keep` that warms up. */
static int run_ours(struct bench_engine *b, bool keep, struct err *e) {
    for (uint32_t t = 0; t < b->threads.n; t++) {
        struct bench_setup *s = &b->setups[t];
        struct engine_config cfg = {.backend = "cpu", .model = &b->model, .kernel = b->kernel,
                                    .n_threads = s->threads};
        struct engine_rates rates;
        if (keep && engine_measure(&cfg, &rates, e) != 0)
            return -1;
        if (keep) {
            bench_samples_add(&s->read_gb_s, rates.read_gb_s);
            bench_samples_add(&s->weights_gb_s, rates.weights_gb_s);
            bench_samples_add(&s->int8_gmac_s, rates.int8_gmac_s);
        }
        for (uint32_t i = 0; i < b->n_cases; i++) {
            struct bench_case *c = &b->cases[i];
            if (c->skipped || c->threads != s->threads)
                continue;
            if (one_case(b, s, c, keep, e) != 0)
                return -1;
        }
    }
    return 0;
}

static int one_round(struct bench_engine *b, uint32_t round, struct err *e) {
    progress(b, "this engine", round);
    if (run_ours(b, true, e) != 0)
        return -1;
    if (b->peer == NULL)
        return 0;
    for (int k = 0; k < 2; k++) {
        progress(b, "the peer", round);
        if (bench_peer_run(b, e) != 0)
            return -1;
    }
    progress(b, "this engine", round);
    return run_ours(b, true, e);
}

int bench_engine_run(struct bench_engine *b, struct err *e) {
    if (run_ours(b, false, e) != 0)
        return -1;
    for (uint32_t r = 0; r < b->rounds; r++)
        if (one_round(b, r, e) != 0)
            return -1;
    for (uint32_t i = 0; i < b->n_cases; i++) {
        struct bench_case *c = &b->cases[i];
        for (uint32_t t = 0; t < b->threads.n; t++) {
            const struct bench_setup *s = &b->setups[t];
            struct engine_rates rates = {
                .read_gb_s = bench_samples_median(&s->read_gb_s),
                .weights_gb_s = bench_samples_median(&s->weights_gb_s),
                .int8_gmac_s = bench_samples_median(&s->int8_gmac_s),
            };
            if (s->threads == c->threads)
                c->bound = bench_bound(c, &b->work, &rates);
        }
    }
    if (!b->quiet && isatty(2))
        fprintf(stderr, "\r%-60s\r", "");
    return 0;
}
