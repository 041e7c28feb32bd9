#include "worker/engine/cpu/forward_attention.h"

/* What the tiles of the phase see. */
struct phase {
    const struct forward *f;
    const struct step_slot *s;
    uint32_t layer;
};

/* The piece and KV head `i` counts: last piece first, because it sees the longest context, and a
 * late long tile leaves the other threads waiting. */
static struct attention_args args_of(const struct phase *ph, uint32_t i)
{
    const struct forward *f = ph->f;
    uint32_t n_kv = f->hp.n_kv_heads, group = f->hp.n_heads / n_kv, kv_head = i % n_kv;
    const struct piece *p = &f->scratch.pieces[f->scratch.n_pieces - 1 - i / n_kv];
    size_t stride = (size_t)f->hp.n_heads * f->hp.head_dim;
    size_t at = p->row * stride + (size_t)kv_head * group * f->hp.head_dim;
    return (struct attention_args){
        .kv = &f->kv,
        .pool = f->blocks,
        .blocks = ph->s->plan.spans[p->span].blocks,
        .layer = ph->layer,
        .kv_head = kv_head,
        .n_group = group,
        .pos = p->pos,
        .n = p->n,
        .q = f->scratch.q + at,
        .q_stride = stride,
        .out = f->scratch.att + at,
        .out_stride = stride,
    };
}

static void whole_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct phase *ph = ctx;
    struct attention_args a = args_of(ph, tile);
    ph->f->ops->attention(&a);
}

static void part_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct phase *ph = ctx;
    const struct attention_part *part = &ph->f->scratch.parts[tile];
    struct attention_args a = args_of(ph, part->of);
    a.partials = part->partials;
    a.split_begin = part->begin;
    a.split_end = part->end;
    ph->f->ops->attention(&a);
}

static void join_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct phase *ph = ctx;
    const struct attention_part *part = &ph->f->scratch.joins[tile];
    struct attention_args a = args_of(ph, part->of);
    a.partials = part->partials;
    ph->f->ops->attention_join(&a);
}

/* Parts of `n` pieces times heads. Returns how many parts; joins counts what must be joined. A
 * piece too wide or without room for its partial sums stays whole. */
static uint32_t cut_parts(const struct phase *ph, uint32_t n, uint32_t *joins)
{
    const struct scratch *sc = &ph->f->scratch;
    const uint32_t most = (sc->max_parts - n) / n; /* parts of one */
    size_t used = 0;
    uint32_t n_parts = 0;
    *joins = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct attention_args a = args_of(ph, i);
        uint32_t rows = a.n * a.n_group;
        uint32_t splits = (a.pos + a.n + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT;
        uint32_t step = (splits + most - 1) / most;
        size_t need = splits * rows * ATTENTION_PARTIAL(a.kv->head_dim);
        step = step < SPLITS_MIN ? SPLITS_MIN : step;
        if (step >= splits || rows > ATTENTION_PART_ROWS || used + need > sc->n_partials) {
            sc->parts[n_parts++] = (struct attention_part){.of = i};
            continue;
        }
        struct attention_part part = {.of = i, .partials = sc->partials + used};
        used += need;
        sc->joins[(*joins)++] = part;
        for (; part.begin < splits; part.begin = part.end) {
            part.end = part.begin + step < splits ? part.begin + step : splits;
            sc->parts[n_parts++] = part;
        }
    }
    return n_parts;
}

void forward_attention(const struct forward *f, const struct step_slot *s, uint32_t layer)
{
    struct phase ph = {.f = f, .s = s, .layer = layer};
    uint32_t n = f->scratch.n_pieces * f->hp.n_kv_heads, joins;
    if (pool_threads(f->pool) == 1 || n > f->scratch.max_parts / 2) {
        pool_run(f->pool, whole_tile, &ph, n);
        return;
    }
    uint32_t n_parts = cut_parts(&ph, n, &joins);
    pool_run(f->pool, part_tile, &ph, n_parts);
    if (joins > 0)
        pool_run(f->pool, join_tile, &ph, joins);
}
