/* golden_long - does a long answer stay with the float reference? Teacher-forced agreement and KL
 * over the position, with the sums of `sluice eval`.
 *
 *   golden_long tiny        1,024 greedy tokens of the tiny model, forced through its float reference
 *   golden_long write N     the real model writes N greedy tokens after a chat of the reference; one
 *                           JSON line {"name", "ids", "n_prompt"} for gold.py
 *   golden_long agree FILE  gold.py's answer to that line: is each token the reference's choice?
 *   golden_long kl DIR      gold.py --save DIR over text.jsonl: KL, agreement, perplexity
 * All but tiny are run by hand (docs/ENGINE.md says how). SLUICE_KV=int8: INT8 keys and values. SLUICE_PRECISE=1:
 * engine_config.precise.
 *
 * Exit 0: within the bounds; 1: not; 77: the model or the reference is not there.
 */
#include "cli/eval_plot.h"
#include "cli/eval_stats.h"
#include "tests/common/testpaths.h"
#include "tests/golden/golden_vectors.h"
#include "tests/tiny/tiny_reference.h"
#include "tests/unit/worker/engine/engine_rig.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define CHUNK 64
#define TINY_PROMPT 32
#define TINY_TOKENS 1024
#define KL_FROM 256 /* of the 512-token lines, as the reference's README measures */

static struct rig rig;
static struct rig_step st;
static struct rig_seq seq;
static struct eval_stats stats;

static void open_engine(const char *path)
{
    struct engine_config cfg = rig_config("cpu");
    const char *kv = getenv("SLUICE_KV");
    cfg.kv_type = kv != NULL && strcmp(kv, "int8") == 0 ? ENGINE_KV_INT8 : ENGINE_KV_F16;
    cfg.precise = getenv("SLUICE_PRECISE") != NULL;
    cfg.n_threads = 2;
    cfg.max_rows = CHUNK;
    cfg.n_blocks = RIG_CTX / 16 + 1;
    rig_open(&rig, path, &cfg);
}

static int check(const char *what, double value, const char *op, double bound)
{
    bool ok = op[0] == '<' ? value <= bound : value >= bound;
    printf("  %-44s %9.5f   %s %-7g %s\n", what, value, op, bound, ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
}

static int report(bool with_kl)
{
    char line[EVAL_BUCKETS + 1];
    double error, slope = eval_slope(&stats.same_line, &error);
    printf("  %llu positions; where it differs: %llu of %llu near ties, largest gap %.3f nat\n",
           (unsigned long long)stats.all.n, (unsigned long long)stats.all.near,
           (unsigned long long)(stats.all.n - stats.all.same), stats.all.gap_max);
    printf("  agreement over 1,000 positions: %+.4f (one standard error %.4f)\n", slope, error);
    if (with_kl) {
        slope = eval_slope(&stats.kl_line, &error);
        printf("  KL over 1,000 positions: %+.5f nat (one standard error %.5f)\n", slope, error);
    }
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++)
        if (stats.buckets[i].n > 0)
            printf("    from %4u: agreement %.4f, KL %.5f\n", eval_stats_bucket_from(&stats, i),
                   eval_agreement(&stats.buckets[i]),
                   eval_mean(stats.buckets[i].kl, stats.buckets[i].n));
    eval_plot_line(line, &stats);
    printf("  KL over the position: [%s]\n", line);
    return check("drift (1 = yes)", eval_drifts(&stats), "<=", 0);
}

/* A token that was written, against the reference's log-probabilities of its place. */
static void add_written(uint32_t position, int32_t wrote, int32_t best, double gap)
{
    struct eval_point p = {.top_a = wrote, .top_b = best, .gap = gap};
    eval_stats_add(&stats, position, &p);
}

static int run_tiny(void)
{
    struct tiny_reference *ref;
    int32_t ids[TINY_PROMPT];
    if (test_tiny_path() == NULL)
        return test_skip("the tiny model was not built");
    open_engine(test_tiny_path());
    rig_ids(ids, TINY_PROMPT, 4242, rig.limits->n_vocab);
    rig_seq_init(&seq, 1, ids, TINY_PROMPT);
    rig_generate(&rig, &seq, TINY_TOKENS, 512, 0, 0, false);
    rig_require(tiny_reference_create(&ref, rig.model.gguf, RIG_CTX, NULL) == 0);
    eval_stats_init(&stats, true, TINY_TOKENS);
    for (uint32_t i = 0; i + 1 < seq.n_ids; i++) {
        const double *lp = tiny_reference_step(ref, seq.ids[i]);
        int32_t best = tiny_reference_argmax(ref), wrote = seq.ids[i + 1];
        if (i + 1 >= TINY_PROMPT)
            add_written(i + 1 - TINY_PROMPT, wrote, best, lp[best] - lp[wrote]);
    }
    tiny_reference_destroy(&ref);
    rig_close(&rig);
    /* 64 wide: int8 activations weigh more than on a real model (97 % there) */
    int bad = report(false);
    bad += check("agreement", eval_agreement(&stats.all), ">=", 0.90);
    return bad + check("positions", (double)stats.all.n, ">=", TINY_TOKENS);
}

static int run_write(uint32_t n)
{
    char path[2 * TEST_PATH_MAX];
    struct golden g;
    snprintf(path, sizeof path, "%s/gold.jsonl", test_reference_dir());
    rig_require(golden_load(&g, path) == 0);
    rig_require(g.lines[0].n_prompt + n < RIG_CTX);
    open_engine(test_model_path());
    rig_seq_init(&seq, 1, g.lines[0].ids, g.lines[0].n_prompt);
    rig_generate(&rig, &seq, n, 512, 0, 0, false);
    printf("{\"name\": \"long\", \"n_prompt\": %u, \"ids\": [", g.lines[0].n_prompt);
    for (uint32_t i = 0; i < seq.n_ids; i++)
        printf("%s%d", i ? ", " : "", seq.ids[i]);
    printf("]}\n");
    golden_free(&g);
    rig_close(&rig);
    return 0;
}

/* gold.py: "top" is a list over the positions of [[id, log-probability] x 10]. */
static int run_agree(const char *path)
{
    json_error_t why;
    json_t *o = json_load_file(path, 0, &why);
    if (o == NULL) {
        fprintf(stderr, "%s: %s\n", path, why.text);
        return 1;
    }
    json_t *ids = json_object_get(o, "ids"), *tops = json_object_get(o, "top");
    json_t *nll = json_object_get(o, "nll");
    size_t n = json_array_size(ids), n_prompt;
    n_prompt = (size_t)json_integer_value(json_object_get(o, "n_prompt"));
    rig_require(n_prompt > 0 && n > n_prompt && json_array_size(tops) == n);
    eval_stats_init(&stats, true, (uint32_t)(n - n_prompt));
    for (size_t i = n_prompt - 1; i + 1 < n; i++) {
        const json_t *best = json_array_get(json_array_get(tops, i), 0);
        double lp = json_number_value(json_array_get(best, 1));
        double written = -json_number_value(json_array_get(nll, i));
        add_written((uint32_t)(i + 1 - n_prompt),
                    (int32_t)json_integer_value(json_array_get(ids, i + 1)),
                    (int32_t)json_integer_value(json_array_get(best, 0)), lp - written);
    }
    json_decref(o);
    return report(false) + check("agreement", eval_agreement(&stats.all), ">=", 0.97);
}

/* NumPy's format 1.0: magic, version, 2 bytes of length, that many of text, then the rows. */
static FILE *open_rows(const char *dir, const char *name)
{
    char path[TEST_PATH_MAX];
    uint8_t head[10];
    snprintf(path, sizeof path, "%.3000s/%.64s.npy", dir, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL || fread(head, 1, sizeof head, f) != sizeof head ||
        memcmp(head, "\x93NUMPY\x01", 7) != 0 || fseek(f, head[8] | head[9] << 8, SEEK_CUR) != 0) {
        fprintf(stderr, "%s is not what gold.py --save writes\n", path);
        exit(1);
    }
    return f;
}

static void kl_line(const struct golden_line *l, const char *dir, uint32_t from)
{
    uint32_t n_vocab = rig.limits->n_vocab;
    float *gold = malloc(n_vocab * sizeof *gold);
    FILE *f = open_rows(dir, l->name);
    rig_require(gold != NULL);
    rig_seq_init(&seq, 1, l->ids, l->n_ids);
    while (seq.n_done + 1 < l->n_ids) {
        uint32_t at = seq.n_done, left = l->n_ids - 1 - at, n = left < CHUNK ? left : CHUNK;
        rig_step_init(&rig, &st);
        uint32_t span = rig_span(&rig, &st, &seq, n);
        for (uint32_t i = 0; i < n; i++)
            rig_row(&st, span, i, ENGINE_ROW_LOGITS);
        rig_run(&rig, &st);
        for (uint32_t i = 0; i < n; i++) {
            struct eval_point p;
            rig_require(fread(gold, sizeof *gold, n_vocab, f) == n_vocab);
            if (at + i < from)
                continue;
            eval_compare(&p, engine_step_row_data(rig.eng, st.step.id, i), gold, n_vocab,
                         l->ids[at + i + 1]);
            eval_stats_add(&stats, at + i, &p);
        }
        rig_release(&rig, &st);
    }
    rig_seq_free(&rig, &seq);
    fclose(f);
    free(gold);
}

static int run_kl(const char *dir)
{
    char path[2 * TEST_PATH_MAX];
    struct golden g;
    int bad = 0;
    snprintf(path, sizeof path, "%s/text.jsonl", test_reference_dir());
    rig_require(golden_load(&g, path) == 0);
    open_engine(test_model_path());
    for (int kind = 0; kind < 2; kind++) { /* short lines, then the long one */
        double error;
        eval_stats_init(&stats, true, kind == 0 ? 512 : 2048);
        for (uint32_t i = 0; i < g.n; i++)
            if ((g.lines[i].n_ids > 512) == (kind == 1))
                kl_line(&g.lines[i], dir, kind == 0 ? KL_FROM : 0);
        printf("%s:\n", kind == 0 ? "6 x 512 tokens, positions 256 to 510" : "2,048 tokens");
        printf("  perplexity %.4f, reference %.4f\n", eval_perplexity_a(&stats.all),
               eval_perplexity_b(&stats.all));
        bad += report(true);
        bad += check("perplexity, relative", fabs(eval_excess(&stats.all, &error)), "<=", 0.005);
        bad += check("mean KL(reference || ours), nat", eval_mean(stats.all.kl, stats.all.n), "<=",
                     0.0050);
        bad += check("agreement", eval_agreement(&stats.all), ">=", 0.955);
    }
    golden_free(&g);
    rig_close(&rig);
    return bad;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(mode, "tiny") == 0 && argc == 2)
        return run_tiny() != 0;
    if (strcmp(mode, "agree") == 0 && argc == 3)
        return run_agree(argv[2]) != 0;
    if (argc == 3 && (strcmp(mode, "write") == 0 || strcmp(mode, "kl") == 0)) {
        if (test_model_path() == NULL || test_reference_dir() == NULL)
            return test_skip("the real model or ../shared/reference is not here");
        return (mode[0] == 'w' ? run_write((uint32_t)atoi(argv[2])) : run_kl(argv[2])) != 0;
    }
    fprintf(stderr, "usage: golden_long tiny | write N | agree FILE | kl DIR\n");
    return 2;
}
