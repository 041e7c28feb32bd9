/* make_tiny_model - writes the tiny model, and on request what it should compute.
 *
 * usage: make_tiny_model SEED OUT.gguf [VECTORS.json]
 * VECTORS.json: {"ids": [...], "logprobs": [[n_vocab numbers] per position]}: the first 32 ids are
 * fixed by the seed, the next 64 chosen greedily; position i holds what follows ids[..i].
 */
#include "tests/tiny/tiny_model.h"
#include "tests/tiny/tiny_reference.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#define PROMPT 32
#define TOTAL 96

static int write_vectors(struct tiny_reference *r, uint64_t seed, FILE *f)
{
    int32_t ids[TOTAL];
    fprintf(f, "{\"logprobs\": [");
    for (int i = 0; i < TOTAL; i++) {
        if (i < PROMPT)
            ids[i] = (int32_t)(rand_at(seed, (uint64_t)i) % TINY_VOCAB);
        else
            ids[i] = tiny_reference_argmax(r);
        const double *lp = tiny_reference_step(r, ids[i]);
        if (!lp)
            return -1;
        fprintf(f, "%s[", i ? ",\n" : "");
        for (int k = 0; k < TINY_VOCAB; k++)
            fprintf(f, "%s%.6f", k ? "," : "", lp[k]);
        fprintf(f, "]");
    }
    fprintf(f, "],\n\"ids\": [");
    for (int i = 0; i < TOTAL; i++)
        fprintf(f, "%s%d", i ? ", " : "", ids[i]);
    fprintf(f, "]}\n");
    return 0;
}

static int make_vectors(const char *model, uint64_t seed, const char *path)
{
    struct gguf *g = NULL;
    struct tiny_reference *r = NULL;
    struct err e;
    int rc = -1;
    if (gguf_open(&g, model, &e) != 0 || tiny_reference_create(&r, g, TOTAL, &e) != 0) {
        fprintf(stderr, "make_tiny_model: %s\n", e.msg);
        goto out;
    }
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        goto out;
    }
    rc = write_vectors(r, seed, f);
    if (fclose(f) != 0)
        rc = -1;
out:
    tiny_reference_destroy(&r);
    gguf_close(&g);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: make_tiny_model SEED OUT.gguf [VECTORS.json]\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 10);
    if (tiny_model_write(seed, argv[2]) != 0) {
        perror(argv[2]);
        return 1;
    }
    return argc == 4 && make_vectors(argv[2], seed, argv[3]) != 0 ? 1 : 0;
}
