#include "worker/engine/cpu/weights.h"

#include "base/mem.h"
#include "worker/engine/step/carve.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FILL_GROUPS 64     /* row groups of one packing tile */
#define FILL_POSITIONS 256 /* positions of one rope tile */

static const char *const matrix_names[LAYER_MATRICES] = {
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
};

static const struct gguf_tensor *tensor(const struct model *m, const char *name, struct err *e)
{
    const struct gguf_tensor *t = gguf_tensor_find(m->gguf, name);
    if (t == NULL)
        err_set(e, ERR_BAD_FILE, "the model has no tensor %s", name);
    return t;
}

static const struct gguf_tensor *layer_tensor(const struct model *m, uint32_t layer,
                                              const char *what, struct err *e)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, what);
    return tensor(m, name, e);
}

static const float *norm_of(const struct gguf_tensor *t, const struct hparams *hp, struct err *e)
{
    if (t == NULL)
        return NULL;
    if (t->type != GGUF_F32 || t->dims[0] != hp->n_embd) {
        err_set(e, ERR_BAD_FILE, "tensor %.*s is no F32 norm of %u values", (int)t->name.n,
                t->name.p, hp->n_embd);
        return NULL;
    }
    return t->data;
}

/* Packing work: every matrix with its tensor, cut into tiles of FILL_GROUPS groups. */
struct fill_job {
    const struct packed_matrix *m;
    const struct gguf_tensor *t;
    uint32_t first_tile;
};
struct fill {
    struct fill_job *jobs;
    uint32_t n_jobs, n_tiles;
};

static int add_job(struct fill *f, struct packed_matrix *m, const struct gguf_tensor *t,
                   struct err *e)
{
    if (t == NULL || packed_matrix_plan(m, t, e) < 0)
        return -1;
    f->jobs[f->n_jobs++] = (struct fill_job){.m = m, .t = t, .first_tile = f->n_tiles};
    f->n_tiles += (m->n_groups + FILL_GROUPS - 1) / FILL_GROUPS;
    return 0;
}

static int plan_layer(struct weights *w, const struct model *m, uint32_t l, struct fill *f,
                      struct err *e)
{
    struct layer_weights *lw = &w->layers[l];
    for (int i = 0; i < LAYER_MATRICES; i++)
        if (add_job(f, &lw->m[i], layer_tensor(m, l, matrix_names[i], e), e) < 0)
            return -1;
    lw->attn_norm = norm_of(layer_tensor(m, l, "attn_norm", e), &m->hp, e);
    lw->ffn_norm = norm_of(layer_tensor(m, l, "ffn_norm", e), &m->hp, e);
    return lw->attn_norm != NULL && lw->ffn_norm != NULL ? 0 : -1;
}

static int plan_all(struct weights *w, const struct model *m, struct fill *f, struct err *e)
{
    if (add_job(f, &w->embd, tensor(m, "token_embd.weight", e), e) < 0)
        return -1;
    if (!m->hp.tied_head && add_job(f, &w->head, tensor(m, "output.weight", e), e) < 0)
        return -1;
    w->norm = norm_of(tensor(m, "output_norm.weight", e), &m->hp, e);
    if (w->norm == NULL)
        return -1;
    for (uint32_t l = 0; l < w->n_layers; l++)
        if (plan_layer(w, m, l, f, e) < 0)
            return -1;
    return 0;
}

/* A norm's own place; its values are still in the file while sizes are counted. */
static void place_norm(const float **norm, uint32_t n, struct carve *c)
{
    float *to = carve_take(c, n, sizeof *to);
    if (to != NULL) {
        memcpy(to, *norm, n * sizeof *to);
        *norm = to;
    }
}

static void place(struct weights *w, struct fill *f, const struct hparams *hp, struct carve *c)
{
    for (uint32_t i = 0; i < f->n_jobs; i++) {
        struct packed_matrix *m = (struct packed_matrix *)f->jobs[i].m;
        m->data = carve_take(c, m->bytes, 1);
    }
    place_norm(&w->norm, hp->n_embd, c);
    for (uint32_t l = 0; l < w->n_layers; l++) {
        place_norm(&w->layers[l].attn_norm, hp->n_embd, c);
        place_norm(&w->layers[l].ffn_norm, hp->n_embd, c);
    }
    w->rope.data = carve_take(c, rope_table_bytes(hp->n_ctx, hp->n_rot), 1);
}

static void fill_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct fill *f = ctx;
    uint32_t i = f->n_jobs - 1;
    while (f->jobs[i].first_tile > tile)
        i--;
    const struct fill_job *j = &f->jobs[i];
    uint32_t begin = (tile - j->first_tile) * FILL_GROUPS, end = begin + FILL_GROUPS;
    packed_matrix_fill(j->m, j->t, begin, end < j->m->n_groups ? end : j->m->n_groups);
}

struct rope_job {
    const struct rope_table *rope;
    uint32_t n_ctx;
};

static void rope_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct rope_job *j = ctx;
    uint32_t begin = tile * FILL_POSITIONS, end = begin + FILL_POSITIONS;
    rope_table_fill(j->rope, begin, end < j->n_ctx ? end : j->n_ctx);
}

static int fill_all(struct weights *w, const struct model *m, struct pool *pool, struct fill *f,
                    struct err *e)
{
    struct carve c = {0};
    place(w, f, &m->hp, &c);
    w->map_bytes = c.used;
    w->map = mem_map(c.used);
    if (w->map == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the weights (%zu bytes)", c.used);
    madvise(w->map, w->map_bytes, MADV_HUGEPAGE); /* a wish: decoding is bound by reading weights */
    c = (struct carve){.base = w->map};
    place(w, f, &m->hp, &c);
    if (m->hp.tied_head)
        w->head = w->embd;
    pool_run(pool, fill_tile, f, f->n_tiles);
    struct rope_job rope = {.rope = &w->rope, .n_ctx = m->hp.n_ctx};
    pool_run(pool, rope_tile, &rope, (m->hp.n_ctx + FILL_POSITIONS - 1) / FILL_POSITIONS);
    return 0;
}

int weights_init(struct weights *w, const struct model *m, struct pool *pool, struct err *e)
{
    memset(w, 0, sizeof *w);
    w->n_layers = m->hp.n_layers;
    w->rope.n_rot = m->hp.n_rot;
    w->rope.base = m->hp.rope_base;
    w->layers = mem_array(w->n_layers, sizeof *w->layers);
    struct fill f = {.jobs = mem_array((size_t)w->n_layers * LAYER_MATRICES + 2, sizeof *f.jobs)};
    int rc = -1;
    if (w->layers == NULL || f.jobs == NULL)
        err_set(e, ERR_NO_MEMORY, "no memory for the table of weights");
    else if (plan_all(w, m, &f, e) == 0)
        rc = fill_all(w, m, pool, &f, e);
    mem_free(f.jobs);
    if (rc == 0)
        mem_pool_set("model file", gguf_file_bytes(m->gguf), gguf_drop_tensor_pages(m->gguf), 0);
    if (rc < 0)
        weights_deinit(w);
    return rc;
}

void weights_deinit(struct weights *w)
{
    if (w->map != NULL)
        mem_unmap(w->map, w->map_bytes);
    mem_free(w->layers);
    memset(w, 0, sizeof *w);
}
