/* eval_run.c - see eval_run.h. */
#include "cli/eval_run.h"

#include "cli/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 64 /* positions of a step: 13 MB of logits for 49k tokens, twice */
#define CTX_DEFAULT 2048
#define PROGRESS_MS 500.0

static int open_engine(struct eval_run *r, struct eval_side *s, struct err *e) {
    uint32_t ctx = r->ctx;
    struct engine_config cfg = {
        .backend = "cpu",
        .model = &s->model,
        .kernel = r->kernel,
        .kv_type = s->kv_type,
        .precise = s->precise,
        .n_threads = r->threads,
        .n_blocks = ctx / 16 + 2,
        .max_spans = 1,
        .max_tokens = CHUNK,
        .max_rows = CHUNK,
    };
    return drive_open(&s->drive, &cfg, e);
}

static int check_ctx(struct eval_run *r, struct err *e) {
    uint32_t most = r->a.model.hp.n_ctx;
    if (r->b.path != NULL && r->b.model.hp.n_ctx < most)
        most = r->b.model.hp.n_ctx;
    if (r->ctx > most)
        return err_set(e, ERR_BAD_VALUE, "--ctx %u is more than the model's %u positions", r->ctx,
                       most);
    if (r->ctx == 0)
        r->ctx = most < CTX_DEFAULT ? most : CTX_DEFAULT;
    return 0;
}

int eval_open(struct eval_run *r, struct err *e) {
    if (model_open(&r->a.model, r->a.path, NULL, e) != 0)
        return -1;
    if (r->b.path != NULL) {
        if (model_open(&r->b.model, r->b.path, NULL, e) != 0)
            return -1;
        if (!hash128_equal(r->a.model.vocab_hash, r->b.model.vocab_hash) ||
            r->a.model.hp.n_vocab != r->b.model.hp.n_vocab)
            return err_set(e, ERR_BAD_VALUE, "%s and %s have different vocabularies: their tokens "
                                             "cannot be compared", r->a.path, r->b.path);
    }
    if (check_ctx(r, e) != 0 || open_engine(r, &r->a, e) != 0)
        return -1;
    return r->b.path != NULL ? open_engine(r, &r->b, e) : 0;
}

void eval_close(struct eval_run *r) {
    drive_close(&r->a.drive);
    drive_close(&r->b.drive);
    if (r->a.model.gguf != NULL)
        model_close(&r->a.model);
    if (r->b.model.gguf != NULL)
        model_close(&r->b.model);
}

/* Logits of positions pos .. pos + n - 1, until drive_release. */
static int forward(struct drive *d, const int32_t *ids, uint32_t pos, uint32_t n, struct err *e) {
    drive_begin(d);
    uint32_t span = drive_span(d, 0, pos, ids + pos, n);
    for (uint32_t i = 0; i < n; i++)
        drive_row(d, span, i, ENGINE_ROW_LOGITS);
    return drive_run(d, e);
}

static void progress(const struct eval_run *r, double *last_ms, const char *what, size_t done,
                     size_t all) {
    double now = clock_ms();
    if (r->quiet || !isatty(2) || now - *last_ms < PROGRESS_MS)
        return;
    *last_ms = now;
    fprintf(stderr, "\r%s: %zu of %zu tokens ", what, done, all);
}

static void progress_end(const struct eval_run *r) {
    if (!r->quiet && isatty(2))
        fprintf(stderr, "\r%-60s\r", "");
}

/* A window of n ids; points from position `from` on (the ones whose next id is in the window). */
static int window(struct eval_run *r, const int32_t *ids, uint32_t n, uint32_t from,
                  size_t done_before, size_t all, struct err *e) {
    double last_ms = 0;
    struct drive *a = &r->a.drive, *b = r->b.path != NULL ? &r->b.drive : NULL;
    uint32_t n_vocab = r->a.model.hp.n_vocab;
    for (uint32_t pos = 0; pos + 1 < n; pos += CHUNK) {
        uint32_t left = n - 1 - pos, k = left < CHUNK ? left : CHUNK;
        if (forward(a, ids, pos, k, e) != 0)
            return -1;
        if (b != NULL && forward(b, ids, pos, k, e) != 0) {
            drive_release(a);
            return -1;
        }
        for (uint32_t i = 0; i < k; i++) {
            struct eval_point p;
            if (pos + i < from)
                continue;
            eval_compare(&p, drive_data(a, i), b != NULL ? drive_data(b, i) : NULL, n_vocab,
                         ids[pos + i + 1]);
            eval_stats_add(&r->stats, pos + i - from, &p);
        }
        drive_release(a);
        if (b != NULL)
            drive_release(b);
        progress(r, &last_ms, "reading", done_before + pos + k, all);
    }
    r->n_windows++;
    return 0;
}

int eval_text(struct eval_run *r, const int32_t *ids, size_t n, struct err *e) {
    if (n < 2)
        return err_set(e, ERR_BAD_VALUE, "the text has %zu tokens; at least 2 are needed", n);
    uint32_t ctx = n < r->ctx ? (uint32_t)n : r->ctx;
    eval_stats_init(&r->stats, r->b.path != NULL, ctx);
    for (size_t at = 0; at + 1 < n; at += ctx) {
        uint32_t k = n - at < ctx ? (uint32_t)(n - at) : ctx;
        if (window(r, ids + at, k, 0, at, n, e) != 0)
            return -1;
    }
    progress_end(r);
    return 0;
}

static bool is_end(const struct model *m, int32_t id) {
    size_t n;
    const int32_t *eog = vocab_eog(m->vocab, &n);
    for (size_t i = 0; i < n; i++)
        if (eog[i] == id)
            return true;
    return false;
}

/* Positions of the prompt but the last, without logits. */
static int read_prompt(struct drive *d, const int32_t *ids, uint32_t n, struct err *e) {
    for (uint32_t pos = 0; pos + 1 < n; pos += CHUNK) {
        uint32_t left = n - 1 - pos, k = left < CHUNK ? left : CHUNK;
        drive_begin(d);
        uint32_t span = drive_span(d, 0, pos, ids + pos, k);
        drive_row(d, span, k - 1, ENGINE_ROW_HIDDEN);
        if (drive_run(d, e) != 0)
            return -1;
        drive_release(d);
    }
    return 0;
}

static int write_on(struct eval_run *r, struct id_list *ids, uint32_t n, bool past_end,
                    struct err *e) {
    double last_ms = 0;
    struct drive *d = &r->a.drive;
    for (r->n_made = 0; r->n_made < n;) {
        uint32_t pos = (uint32_t)ids->n - 1;
        drive_begin(d);
        uint32_t span = drive_span(d, 0, pos, ids->ids + pos, 1);
        drive_row(d, span, 0, ENGINE_ROW_SAMPLE);
        if (drive_run(d, e) != 0)
            return -1;
        int32_t id = drive_result(d, 0)->id;
        drive_release(d);
        if (id_list_add(ids, &id, 1) != 0)
            return err_set(e, ERR_NO_MEMORY, "no memory for the tokens");
        r->n_made++;
        progress(r, &last_ms, "writing", r->n_made, n);
        if (!past_end && is_end(&r->a.model, id))
            break;
    }
    return 0;
}

/* A again, in chunks, is its own reference when there is no B: the two ways must agree. */
static int force(struct eval_run *r, const struct id_list *ids, uint32_t n_prompt, struct err *e) {
    struct drive *d = r->b.path != NULL ? &r->b.drive : &r->a.drive;
    uint32_t n_vocab = r->a.model.hp.n_vocab, last = (uint32_t)ids->n - 1;
    for (uint32_t pos = 0; pos < last; pos += CHUNK) {
        uint32_t left = last - pos, k = left < CHUNK ? left : CHUNK;
        if (forward(d, ids->ids, pos, k, e) != 0)
            return -1;
        for (uint32_t i = 0; i < k; i++) {
            struct eval_point p;
            if (pos + i + 1 < n_prompt)
                continue;
            int32_t wrote = ids->ids[pos + i + 1];
            eval_compare(&p, drive_data(d, i), NULL, n_vocab, wrote);
            p.top_b = p.top_a; /* what the reference prefers, against what was written */
            p.top_a = wrote;
            p.gap = (double)drive_data(d, i)[p.top_b] - (double)drive_data(d, i)[wrote];
            p.nll_b = p.nll_a;
            eval_stats_add(&r->stats, pos + i + 1 - n_prompt, &p);
        }
        drive_release(d);
    }
    r->n_windows = 1;
    return 0;
}

int eval_self(struct eval_run *r, struct id_list *ids, uint32_t n, bool past_end, struct err *e) {
    size_t n_prompt = ids->n;
    if (n_prompt == 0)
        return err_set(e, ERR_BAD_VALUE, "the text has no tokens to go on from");
    if (n_prompt + n > r->ctx)
        return err_set(e, ERR_BAD_VALUE, "%zu tokens of prompt and %u to write are more than the "
                                         "%u positions of --ctx", n_prompt, n, r->ctx);
    if (read_prompt(&r->a.drive, ids->ids, (uint32_t)n_prompt, e) != 0 ||
        write_on(r, ids, n, past_end, e) != 0)
        return -1;
    eval_stats_init(&r->stats, true, r->n_made);
    int rc = r->b.path != NULL ? window(r, ids->ids, (uint32_t)ids->n, (uint32_t)n_prompt - 1, 0,
                                        ids->n, e)
                               : force(r, ids, (uint32_t)n_prompt, e);
    progress_end(r);
    return rc;
}
