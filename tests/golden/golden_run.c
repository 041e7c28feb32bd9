/* golden_run - compares an engine with reference vectors and prints the figures beside the bounds.
 *
 *   golden_run gold      chats of the reference: teacher-forced argmax, greedy answers
 *   golden_run text      six 512-token lines: perplexity, mean difference
 *   golden_run long      the 2,048-token line
 *   golden_run int8      the same line with INT8 keys and values, against F16
 *   golden_run scalar    two short lines, scalar and AVX2 logits equal to the byte; the hash of 64 rows
 *   golden_run exact     answers in company equal to those alone
 *   golden_run tiny      the same measures on the tiny model, from tests/golden/tiny.jsonl
 *   golden_run make-tiny writes that file's lines from the float reference to standard output
 *
 * Exit 0: within the bounds; 1: not; 77: the model, the reference or AVX2 is not there.
 * SLUICE_KERNEL=scalar runs gold, text and long on the scalar twin (slow).
 */
#include "tests/common/testpaths.h"
#include "tests/golden/golden_vectors.h"
#include "tests/tiny/tiny_reference.h"
#include "tests/unit/worker/engine/engine_rig.h"
#include "worker/engine/cpu/ops.h"

#include <math.h>
#include <string.h>

#define CHUNK 128     /* rows scored a step: 25 MB of logits */
#define NEAR_TIE 0.35 /* nat; the reference's README */

/* Bytes of 64 logit rows of the real model, see golden_real_hash; changes only with the family. */
#define REAL_FAMILY "cpu-q8a-1"
#define REAL_HASH "3d64c1dbe52b7d04932d350066e88e9a"

static struct rig rig;
static struct rig_step st;
static struct rig_seq seq;

struct sums {
    double nll, gold_nll, diff;
    uint32_t n, top_n, top_same;
    double worst_gap;
};

static enum engine_kv_type kv_type;

static void open_engine(const char *path, enum engine_kernel kernel)
{
    struct engine_config cfg = rig_config("cpu");
    cfg.kv_type = kv_type;
    const char *wish = getenv("SLUICE_KERNEL");
    cfg.kernel = wish != NULL && strcmp(wish, "scalar") == 0 ? ENGINE_KERNEL_SCALAR : kernel;
    cfg.n_threads = 2;
    cfg.n_blocks = 2 * RIG_CTX / 16 + 1;
    cfg.max_rows = CHUNK;
    rig_open(&rig, path, &cfg);
}

static int check(const char *what, double value, const char *op, double bound)
{
    bool ok = op[0] == '<' ? value <= bound : value >= bound;
    printf("  %-52s %9.5f   %s %-9g %s\n", what, value, op, bound, ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
}

/* gold's log-probability of `id` at a position: NAN when it is not among those kept. */
static double gold_logprob(const struct golden_top *t, int32_t id)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->id[i] == id)
            return t->logprob[i];
    return NAN;
}

/* Our log-probability of the known next id and our argmax, at every position of a line but the
 * last. */
static void score(const struct golden_line *l, double *logprob, int32_t *argmax)
{
    rig_seq_init(&seq, 1, l->ids, l->n_ids);
    while (seq.n_done + 1 < l->n_ids) {
        uint32_t at = seq.n_done, left = l->n_ids - 1 - at, n = left < CHUNK ? left : CHUNK;
        rig_step_init(&rig, &st);
        uint32_t span = rig_span(&rig, &st, &seq, n);
        for (uint32_t i = 0; i < n; i++) {
            struct engine_row *row = rig_row(&st, span, i, ENGINE_ROW_SCORE);
            row->target = l->ids[at + i + 1];
            row->n_top = 1;
        }
        rig_run(&rig, &st);
        for (uint32_t i = 0; i < n; i++) {
            const struct sample_result *r = engine_step_result(rig.eng, st.step.id, i);
            logprob[at + i] = r->logprob;
            argmax[at + i] = r->top[0].id;
        }
        rig_release(&rig, &st);
    }
    rig_seq_free(&rig, &seq);
}

/* Adds positions [from, to) of a line to the sums. */
static void add_line(struct sums *s, const struct golden_line *l, uint32_t from, uint32_t to)
{
    static double logprob[RIG_CTX];
    static int32_t argmax[RIG_CTX];
    score(l, logprob, argmax);
    for (uint32_t i = from; i < to; i++) {
        s->n++;
        s->nll -= logprob[i];
        s->gold_nll += l->nll[i];
        s->diff += fabs(-logprob[i] - l->nll[i]);
        const struct golden_top *t = &l->top[i];
        if (t->n == 0)
            continue;
        s->top_n++;
        if (argmax[i] == t->id[0]) {
            s->top_same++;
            continue;
        }
        double gap = t->logprob[0] - gold_logprob(t, argmax[i]);
        if (isnan(gap))
            gap =
                INFINITY; /* below the kept ones: certainly no near tie unless they are all ties */
        s->worst_gap = gap > s->worst_gap ? gap : s->worst_gap;
    }
}

static int report_text(const struct sums *s, double ppl_bound, double diff_bound)
{
    double ours = exp(s->nll / s->n), gold = exp(s->gold_nll / s->n);
    printf("  %u positions, perplexity %.4f, reference %.4f; argmax equal in %u of %u kept "
           "positions\n",
           s->n, ours, gold, s->top_same, s->top_n);
    int bad = check("perplexity, relative difference", fabs(ours / gold - 1), "<=", ppl_bound);
    return bad + check("mean |difference of the next token's logprob|, nat", s->diff / s->n,
                       "<=", diff_bound);
}

/* ---- modes ---- */

static int run_text(struct golden *g, bool long_line)
{
    struct sums s = {0};
    for (uint32_t i = 0; i < g->n; i++) {
        const struct golden_line *l = &g->lines[i];
        if ((l->n_ids > 512) == long_line)
            add_line(&s, l, long_line ? 0 : 256, l->n_ids - 1);
    }
    rig_require(s.n > 0);
    return report_text(&s, 0.005, 0.065);
}

/* What INT8 keys and values cost: the long line's perplexity beside that with F16. */
static int run_int8(const char *model, struct golden *g)
{
    double ppl[2], gold = 0, argmax[2];
    for (int i = 0; i < 2; i++) {
        struct sums s = {0};
        kv_type = i == 0 ? ENGINE_KV_F16 : ENGINE_KV_INT8;
        open_engine(model, ENGINE_KERNEL_AUTO);
        for (uint32_t l = 0; l < g->n; l++)
            if (g->lines[l].n_ids > 512)
                add_line(&s, &g->lines[l], 0, g->lines[l].n_ids - 1);
        rig_close(&rig);
        rig_require(s.n > 0);
        ppl[i] = exp(s.nll / s.n);
        gold = exp(s.gold_nll / s.n);
        argmax[i] = (double)s.top_same / s.top_n;
    }
    printf("  perplexity with F16 %.4f, INT8 %.4f, reference %.4f; argmax agreement %.4f, %.4f\n",
           ppl[0], ppl[1], gold, argmax[0], argmax[1]);
    int bad = check("perplexity with INT8 against F16, relative", fabs(ppl[1] / ppl[0] - 1),
                    "<=", 0.01);
    return bad + check("argmax agreement lost (51 positions kept)", argmax[0] - argmax[1], "<=", 0.04);
}

/* A greedy answer: 0 equal, 1 first difference is a near tie, 2 a real difference. */
static int greedy_line(const struct golden_line *l)
{
    uint32_t n_prompt = l->n_prompt, n_new = l->n_ids - n_prompt;
    rig_seq_init(&seq, 1, l->ids, n_prompt);
    rig_generate(&rig, &seq, n_new, 512, 0, 0, false);
    int rc = 0;
    for (uint32_t i = n_prompt; i < l->n_ids && rc == 0; i++) {
        if (seq.ids[i] == l->ids[i])
            continue;
        const struct golden_top *t = &l->top[i - 1];
        double gap = fabs(gold_logprob(t, l->ids[i]) - gold_logprob(t, seq.ids[i]));
        rc = gap <= NEAR_TIE ? 1 : 2; /* NAN is a real difference */
        printf("  %s: differs from token %u of %u on, gap %.3f nat\n", l->name, i - n_prompt, n_new,
               gap);
    }
    rig_seq_free(&rig, &seq);
    return rc;
}

static int run_gold(struct golden *g)
{
    struct sums s = {0};
    uint32_t kinds[3] = {0};
    for (uint32_t i = 0; i < g->n; i++) {
        const struct golden_line *l = &g->lines[i];
        add_line(&s, l, l->n_prompt - 1, l->n_ids - 1);
        kinds[greedy_line(l)]++;
    }
    printf("  greedy: %u of %u answers equal, %u up to a near tie, %u really different\n", kinds[0],
           g->n, kinds[1], kinds[2]);
    int bad = check("argmax agreement", (double)s.top_same / s.top_n, ">=", 0.97);
    bad += check("largest gap where the argmax differs, nat", s.worst_gap, "<=", NEAR_TIE);
    return bad + check("greedy answers really different", kinds[2], "<=", 0);
}

/* Raw logits of the first n positions of `ids`. */
static void logits_of(const int32_t *ids, uint32_t n, float *out)
{
    uint32_t n_vocab = rig.limits->n_vocab;
    rig_seq_init(&seq, 1, ids, n);
    rig_step_init(&rig, &st);
    uint32_t span = rig_span(&rig, &st, &seq, n);
    for (uint32_t i = 0; i < n; i++)
        rig_row(&st, span, i, ENGINE_ROW_LOGITS);
    rig_run(&rig, &st);
    for (uint32_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * n_vocab, engine_step_row_data(rig.eng, st.step.id, i),
               n_vocab * sizeof *out);
    rig_release(&rig, &st);
    rig_seq_free(&rig, &seq);
}

#define TWIN_ROWS 32

/* Two short lines and their bytes on both kernels; the hash of all 64 rows names the family. */
static int run_scalar(const char *model, struct golden *g)
{
    size_t bytes = 0;
    float *rows[2] = {NULL, NULL};
    bool same = true;
    for (int k = 0; k < 2; k++) {
        open_engine(model, k == 0 ? ENGINE_KERNEL_AVX2 : ENGINE_KERNEL_SCALAR);
        size_t one = (size_t)TWIN_ROWS * rig.limits->n_vocab;
        bytes = 2 * one * sizeof(float);
        rows[k] = malloc(bytes);
        rig_require(rows[k] != NULL && strcmp(rig.limits->family, REAL_FAMILY) == 0);
        for (uint32_t i = 0; i < 2; i++) {
            rig_require(g->lines[i].n_ids >= TWIN_ROWS);
            logits_of(g->lines[i].ids, TWIN_ROWS, rows[k] + i * one);
        }
        rig_close(&rig);
    }
    same = memcmp(rows[0], rows[1], bytes) == 0;
    char hex[33];
    hash128_hex(hash128(rows[0], bytes, 0), hex);
    printf("  scalar and AVX2 logits of 2 lines of %d positions: %s\n  hash %s, expected %s\n",
           TWIN_ROWS, same ? "equal bytes" : "DIFFERENT", hex, REAL_HASH);
    free(rows[0]);
    free(rows[1]);
    return !same || strcmp(hex, REAL_HASH) != 0;
}

#define EXACT_LINES 8
#define EXACT_NEW 16

/* One token for every sequence whose prompt is done, `chunk` positions of the prompt for the
 * others. */
static void company_step(struct rig_seq *q, const struct golden *g, uint32_t chunk, uint32_t *parks)
{
    uint32_t sampled[EXACT_LINES], n_sampled = 0;
    rig_step_init(&rig, &st);
    for (uint32_t i = 0; i < EXACT_LINES; i++) {
        uint32_t left = q[i].n_ids - q[i].n_done, n = left < chunk ? left : chunk;
        if (q[i].n_ids == g->lines[i].n_prompt + EXACT_NEW)
            continue;
        uint32_t span = rig_span(&rig, &st, &q[i], n);
        if (n < left)
            continue;
        rig_row(&st, span, n - 1, ENGINE_ROW_SAMPLE)->params =
            rig_params(i % 2 ? 0.8f : 0, i, q[i].n_ids);
        sampled[n_sampled++] = i;
    }
    *parks += rig_run_parking(&rig, &st);
    for (uint32_t k = 0; k < n_sampled; k++)
        q[sampled[k]].ids[q[sampled[k]].n_ids++] = engine_step_result(rig.eng, st.step.id, k)->id;
    rig_release(&rig, &st);
}

/* Greedy and seeded answers of eight chats: alone, and all together in chunks, parked at each
 * segment. */
static int run_exact(const char *model, const struct golden *g)
{
    static struct rig_seq want[EXACT_LINES], q[EXACT_LINES];
    uint32_t parks = 0, same = 0, chunks[] = {7, 64};
    open_engine(model, ENGINE_KERNEL_AUTO);
    rig_require(g->n >= EXACT_LINES);
    for (uint32_t i = 0; i < EXACT_LINES; i++) {
        rig_seq_init(&want[i], i, g->lines[i].ids, g->lines[i].n_prompt);
        rig_generate(&rig, &want[i], EXACT_NEW, 512, i % 2 ? 0.8f : 0, i, false);
        rig_seq_free(&rig, &want[i]);
    }
    for (uint32_t c = 0; c < 2; c++) {
        for (uint32_t i = 0; i < EXACT_LINES; i++)
            rig_seq_init(&q[i], i, g->lines[i].ids, g->lines[i].n_prompt);
        for (bool open = true; open;) {
            company_step(q, g, chunks[c], &parks);
            open = false;
            for (uint32_t i = 0; i < EXACT_LINES; i++)
                open |= q[i].n_ids < g->lines[i].n_prompt + EXACT_NEW;
        }
        for (uint32_t i = 0; i < EXACT_LINES; i++) {
            same += memcmp(q[i].ids, want[i].ids, want[i].n_ids * sizeof want[i].ids[0]) == 0;
            rig_seq_free(&rig, &q[i]);
        }
    }
    rig_close(&rig);
    int bad = check("answers equal to themselves alone", same, ">=", 2 * EXACT_LINES);
    return bad + check("parks meanwhile", parks, ">=", 100);
}

static int run_tiny(struct golden *g)
{
    struct sums s = {0};
    for (uint32_t i = 0; i < g->n; i++)
        add_line(&s, &g->lines[i], 0, g->lines[i].n_ids - 1);
    int bad =
        report_text(&s, 0.02, 0.12); /* 64 wide: int8 activations weigh more than on a real model */
    return bad + check("argmax agreement", (double)s.top_same / s.top_n, ">=", 0.88);
}

static int make_tiny(void)
{
    struct gguf *g;
    struct tiny_reference *ref;
    rig_require(gguf_open(&g, test_tiny_path(), NULL) == 0);
    rig_require(tiny_reference_create(&ref, g, 300, NULL) == 0);
    for (uint32_t line = 0; line < 3; line++) {
        int32_t ids[300];
        char name[16];
        rig_ids(ids, 300, 500 + line, 300);
        snprintf(name, sizeof name, "tiny-%u", line);
        golden_print_reference(name, ids, 280, ref);
        tiny_reference_reset(ref);
    }
    tiny_reference_destroy(&ref);
    gguf_close(&g);
    return 0;
}

static int load(struct golden *g, const char *dir, const char *file)
{
    char path[2 * TEST_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return golden_load(g, path);
}

static int run_real(const char *mode)
{
    const char *model = test_model_path(), *ref = test_reference_dir();
    if (model == NULL)
        return test_skip("the real model is not here");
    if (ref == NULL)
        return test_skip("../shared/reference is not here");
    if (!cpu_ops_have_avx2() && getenv("SLUICE_KERNEL") == NULL)
        return test_skip("this CPU has no AVX2: the scalar twin would take too long "
                         "(SLUICE_KERNEL=scalar runs it)");
    struct golden g;
    bool text = strcmp(mode, "text") == 0 || strcmp(mode, "long") == 0 || strcmp(mode, "int8") == 0;
    rig_require(load(&g, ref, text ? "text.jsonl" : "gold.jsonl") == 0);
    int bad;
    if (strcmp(mode, "scalar") == 0) {
        bad = run_scalar(model, &g);
    } else if (strcmp(mode, "int8") == 0) {
        bad = run_int8(model, &g);
    } else if (strcmp(mode, "exact") == 0) {
        bad = run_exact(model, &g);
    } else {
        open_engine(model, ENGINE_KERNEL_AUTO);
        bad = text ? run_text(&g, mode[0] == 'l') : run_gold(&g);
        rig_close(&rig);
    }
    golden_free(&g);
    return bad != 0;
}

static int run_small(const char *mode)
{
    if (test_tiny_path() == NULL)
        return test_skip("the tiny model was not built");
    if (strcmp(mode, "make-tiny") == 0)
        return make_tiny();
    struct golden g;
    rig_require(load(&g, test_source_dir(), "tests/golden/tiny.jsonl") == 0);
    open_engine(test_tiny_path(), ENGINE_KERNEL_AUTO);
    int bad = run_tiny(&g);
    rig_close(&rig);
    golden_free(&g);
    return bad != 0;
}

int main(int argc, char **argv)
{
    const char *modes[] = {"gold", "text", "long", "int8", "scalar", "exact"};
    const char *mode = argc == 2 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(mode, modes[i]) == 0)
            return run_real(mode);
    if (strcmp(mode, "tiny") == 0 || strcmp(mode, "make-tiny") == 0)
        return run_small(mode);
    fprintf(stderr, "usage: golden_run gold | text | long | int8 | scalar | exact | tiny | make-tiny\n");
    return 2;
}
