#include "tests/golden/golden_vectors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP_EVERY 8
#define TOP_PRINTED 5

static void append_ids(struct golden_line *l, const json_t *array)
{
    size_t n = json_array_size(array);
    l->ids = realloc(l->ids, (l->n_ids + n) * sizeof *l->ids);
    for (size_t i = 0; i < n; i++)
        l->ids[l->n_ids + i] = (int32_t)json_integer_value(json_array_get(array, i));
    l->n_ids += (uint32_t)n;
}

static int read_tops(struct golden_line *l, json_t *tops)
{
    const char *key;
    json_t *value;
    l->top = calloc(l->n_ids, sizeof *l->top);
    json_object_foreach (tops, key, value) {
        unsigned long pos = strtoul(key, NULL, 10);
        if (pos >= l->n_ids)
            return -1;
        struct golden_top *t = &l->top[pos];
        for (size_t i = 0; i < json_array_size(value) && t->n < GOLDEN_TOP; i++, t->n++) {
            const json_t *pair = json_array_get(value, i);
            t->id[t->n] = (int32_t)json_integer_value(json_array_get(pair, 0));
            t->logprob[t->n] = json_number_value(json_array_get(pair, 1));
        }
    }
    return 0;
}

static int read_line(struct golden_line *l, const json_t *o)
{
    memset(l, 0, sizeof *l);
    const char *name = json_string_value(json_object_get(o, "name"));
    snprintf(l->name, sizeof l->name, "%s", name != NULL ? name : "?");
    append_ids(l, json_object_get(o, "ids"));
    append_ids(l, json_object_get(o, "prompt_ids"));
    l->n_prompt = l->n_ids;
    append_ids(l, json_object_get(o, "greedy_ids"));
    const json_t *nll = json_object_get(o, "nll");
    if (l->n_ids < 2 || json_array_size(nll) != l->n_ids - 1)
        return -1;
    l->nll = calloc(l->n_ids, sizeof *l->nll);
    for (uint32_t i = 0; i + 1 < l->n_ids; i++)
        l->nll[i] = json_number_value(json_array_get(nll, i));
    return read_tops(l, json_object_get(o, "top"));
}

int golden_load(struct golden *g, const char *path)
{
    memset(g, 0, sizeof *g);
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return -1;
    }
    int rc = 0;
    json_error_t e;
    json_t *o;
    while (g->n < GOLDEN_LINES && (o = json_loadf(f, JSON_DISABLE_EOF_CHECK, &e)) != NULL) {
        if (read_line(&g->lines[g->n++], o) < 0) {
            fprintf(stderr, "%s: line %u is no reference vector\n", path, g->n);
            rc = -1;
        }
        json_decref(o);
    }
    fclose(f);
    if (g->n == 0) {
        fprintf(stderr, "%s: no vectors (%s)\n", path, e.text);
        rc = -1;
    }
    return rc;
}

void golden_free(struct golden *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        free(g->lines[i].ids);
        free(g->lines[i].nll);
        free(g->lines[i].top);
    }
    memset(g, 0, sizeof *g);
}

static json_t *tops_of(const double *logprob, uint32_t n_vocab)
{
    json_t *list = json_array();
    int32_t taken[TOP_PRINTED];
    for (int k = 0; k < TOP_PRINTED; k++) {
        int32_t best = -1;
        for (uint32_t i = 0; i < n_vocab; i++) {
            bool used = false;
            for (int j = 0; j < k; j++)
                used |= taken[j] == (int32_t)i;
            if (!used && (best < 0 || logprob[i] > logprob[best]))
                best = (int32_t)i;
        }
        taken[k] = best;
        json_array_append_new(list, json_pack("[i,f]", best, logprob[best]));
    }
    return list;
}

void golden_print_reference(const char *name, const int32_t *ids, uint32_t n,
                            struct tiny_reference *ref)
{
    uint32_t n_vocab = tiny_reference_hparams(ref)->n_vocab;
    json_t *o = json_object(), *list = json_array(), *nll = json_array(), *top = json_object();
    for (uint32_t i = 0; i < n; i++) {
        json_array_append_new(list, json_integer(ids[i]));
        const double *lp = tiny_reference_step(ref, ids[i]);
        char key[16];
        snprintf(key, sizeof key, "%u", i);
        if (i + 1 < n)
            json_array_append_new(nll, json_real(-lp[ids[i + 1]]));
        if (i + 1 < n && i % TOP_EVERY == TOP_EVERY - 1)
            json_object_set_new(top, key, tops_of(lp, n_vocab));
    }
    json_object_set_new(o, "name", json_string(name));
    json_object_set_new(o, "ids", list);
    json_object_set_new(o, "nll", nll);
    json_object_set_new(o, "top", top);
    json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(o);
}
