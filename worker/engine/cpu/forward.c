#include "worker/engine/cpu/forward.h"

#include "base/fault.h"
#include "worker/engine/cpu/forward_attention.h"
#include "worker/engine/cpu/quantise_pair.h"

#include <assert.h>
#include <string.h>

#define TILE_ROWS 8 /* rows of a row-wise tile */
/* A product tile is at least this many multiplications: a few microseconds, so that claiming it
 * costs little beside it. */
#define TILE_MACS (1u << 17)

/* What the tiles of one segment see. */
struct segment {
    const struct forward *f;
    const struct step_slot *s;
    struct slot_work *w;
    const struct layer_weights *lw;
    uint32_t layer, n_rows;
};

static uint32_t row_tiles(uint32_t n_rows)
{
    return (n_rows + TILE_ROWS - 1) / TILE_ROWS;
}

static uint32_t row_end(uint32_t tile, uint32_t n_rows)
{
    uint32_t end = (tile + 1) * TILE_ROWS;
    return end < n_rows ? end : n_rows;
}

/* ---- products ---- */

struct product {
    const struct packed_matrix *m;
    float *out;
    size_t stride;
};

/* Up to three matrices over the same input, their row groups counted through. */
struct products {
    const struct forward *f;
    struct product list[3];
    uint32_t n, n_groups, groups_per_tile, n_rows;
    const struct act_block *act;
    const struct act_block *rest; /* precise: the rest of act, added to the list from rest_from on */
    uint32_t rest_from;
    bool add;
};

/* Tiles for n_groups groups of m's width: as many for each thread (one more tile than fits costs a
 * whole one), and an even number of groups in each, because kernels take them in pairs. */
static uint32_t groups_per_tile(const struct forward *f, const struct packed_matrix *m,
                                uint32_t n_groups, uint32_t n_rows)
{
    uint64_t one = (uint64_t)PACKED_ROWS * PACKED_COLS * m->n_blocks * n_rows;
    uint64_t threads = pool_threads(f->pool), tiles = one * n_groups / TILE_MACS;
    if (threads == 1 && n_rows <= 4) /* nobody to share with: one long stream reads faster */
        return (n_groups + 1) & ~1u;
    tiles = (tiles / threads + 1) * threads;
    uint32_t each = (uint32_t)((n_groups + tiles - 1) / tiles);
    return (each + 1) & ~1u;
}

static void products_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct products *p = ctx;
    uint32_t begin = tile * p->groups_per_tile, end = begin + p->groups_per_tile, base = 0;
    for (uint32_t i = 0; i < p->n; base += p->list[i++].m->n_groups) {
        const struct product *q = &p->list[i];
        uint32_t from = begin > base ? begin - base : 0;
        uint32_t to = end > base ? end - base : 0;
        if (to > q->m->n_groups)
            to = q->m->n_groups;
        if (from >= to)
            continue;
        p->f->ops->matmul(q->m, from, to, p->act, p->n_rows, q->out, q->stride, p->add);
        if (p->rest != NULL && i >= p->rest_from)
            p->f->ops->matmul(q->m, from, to, p->rest, p->n_rows, q->out, q->stride, true);
    }
}

static void run_products(struct products *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        p->n_groups += p->list[i].m->n_groups;
    p->groups_per_tile = groups_per_tile(p->f, p->list[0].m, p->n_groups, p->n_rows);
    pool_run(p->f->pool, products_tile, p,
             (p->n_groups + p->groups_per_tile - 1) / p->groups_per_tile);
}

/* ---- precise ---- */

/* Where the second half of an input row goes, NULL where that product is rounded to 8 bits. Precise
 * covers V of every layer and all of the last one: measured (docs/ENGINE.md), these give the most
 * for what they cost. Rounded input of V goes straight into the residual; that of the last layer
 * straight to the head. */
static struct act_block *rest_row(const struct segment *g, bool every_layer, struct act_block *rest,
                                  size_t blocks)
{
    bool wanted = g->f->precise && (every_layer || g->layer + 1 == g->f->hp.n_layers);
    return wanted ? rest + blocks : NULL;
}

static const struct act_block *rest_of(const struct segment *g, bool every_layer,
                                       struct act_block *rest)
{
    return rest_row(g, every_layer, rest, 0);
}

/* ---- row-wise phases ---- */

static void embed_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct segment *g = ctx;
    for (uint32_t r = tile * TILE_ROWS; r < row_end(tile, g->n_rows); r++) {
        int32_t id = g->s->plan.ids[g->w->row_token[r]];
        packed_matrix_row(&g->f->weights.embd, (uint32_t)id, g->w->x + (size_t)r * g->f->hp.n_embd);
    }
}

static void norm_rows(const struct segment *g, const float *weight, bool rest_always, uint32_t tile,
                      uint32_t thread)
{
    const struct forward *f = g->f;
    uint32_t d = f->hp.n_embd;
    float *tmp = f->scratch.norm + (size_t)thread * ((d + 15) & ~15u);
    for (uint32_t r = tile * TILE_ROWS; r < row_end(tile, g->n_rows); r++) {
        f->ops->rmsnorm(tmp, g->w->x + (size_t)r * d, weight, d, f->hp.rms_eps);
        size_t at = (size_t)r * ACT_BLOCKS(d);
        quantise_pair(f->ops, f->scratch.act + at, rest_row(g, rest_always, f->scratch.rest, at),
                      tmp, d);
    }
}

static void attn_norm_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    const struct segment *g = ctx;
    norm_rows(g, g->lw->attn_norm, true, tile, thread);
}

static void ffn_norm_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    const struct segment *g = ctx;
    norm_rows(g, g->lw->ffn_norm, false, tile, thread);
}

static void quantise_att_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct segment *g = ctx;
    const struct forward *f = g->f;
    uint32_t n = f->hp.n_heads * f->hp.head_dim;
    for (uint32_t r = tile * TILE_ROWS; r < row_end(tile, g->n_rows); r++)
        quantise_pair(f->ops, f->scratch.act + (size_t)r * ACT_BLOCKS(n),
                      rest_row(g, false, f->scratch.rest, (size_t)r * ACT_BLOCKS(n)),
                      f->scratch.att + (size_t)r * n, n);
}

/* ---- what attention reads ---- */

static void rope_store_row(const struct segment *g, const struct piece *p, uint32_t i)
{
    const struct forward *f = g->f;
    const struct hparams *hp = &f->hp;
    uint32_t pos = p->pos + i, hd = hp->head_dim;
    size_t kv_row = (size_t)(p->row + i) * hp->n_kv_heads * hd;
    const struct engine_span *span = &g->s->plan.spans[p->span];
    uint32_t turn = span->n > 1 && fault_on(FAULT_ROPE_ZERO) ? pos - span->pos : pos;
    const float *angles = rope_table_row(&f->weights.rope, turn);
    f->ops->rope(f->scratch.q + (size_t)(p->row + i) * hp->n_heads * hd, hp->n_heads, hd, angles,
                 hp->n_rot);
    f->ops->rope(f->scratch.k + kv_row, hp->n_kv_heads, hd, angles, hp->n_rot);
    uint32_t id = span->blocks[pos / KV_BLOCK_TOKENS];
    uint8_t *block = f->blocks + id * f->kv.block_stride;
    for (uint32_t h = 0; h < hp->n_kv_heads; h++)
        f->ops->kv_store(&f->kv, block, g->layer, h, pos % KV_BLOCK_TOKENS,
                         f->scratch.k + kv_row + (size_t)h * hd,
                         f->scratch.v + kv_row + (size_t)h * hd);
}

static void rope_store_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct segment *g = ctx;
    const struct piece *p = &g->f->scratch.pieces[tile];
    for (uint32_t i = 0; i < p->n; i++)
        rope_store_row(g, p, i);
}

/* ---- feed-forward ---- */

struct gate_up {
    const struct segment *g;
    uint32_t groups_per_tile, groups_per_chunk; /* both even: a chunk begins a block of 32 */
};

/* `n` groups of m from `begin` on, as a matrix of their own. */
static struct packed_matrix group_view(const struct packed_matrix *m, uint32_t begin, uint32_t n)
{
    struct packed_matrix v = *m;
    uint32_t left = m->n_rows - begin * PACKED_ROWS;
    v.data += begin * m->group_bytes;
    v.n_groups = n;
    v.n_rows = n * PACKED_ROWS < left ? n * PACKED_ROWS : left;
    return v;
}

/* Gate and up rows of the same groups, the activation and its quantisation while they are near;
 * the floats are never in memory as a whole. */
static void gate_up_chunk(const struct segment *g, uint32_t begin, uint32_t n, uint32_t thread)
{
    const struct forward *f = g->f;
    const struct scratch *sc = &f->scratch;
    struct packed_matrix gate = group_view(&g->lw->m[LAYER_GATE], begin, n);
    struct packed_matrix up = group_view(&g->lw->m[LAYER_UP], begin, n);
    float *x = sc->gate + thread * sc->n_inner, *y = sc->up + thread * sc->n_inner;
    uint32_t cols = gate.n_rows;
    f->ops->matmul(&gate, 0, n, sc->act, g->n_rows, x, cols, false);
    f->ops->matmul(&up, 0, n, sc->act, g->n_rows, y, cols, false);
    if (rest_of(g, false, sc->rest) != NULL) {
        f->ops->matmul(&gate, 0, n, sc->rest, g->n_rows, x, cols, true);
        f->ops->matmul(&up, 0, n, sc->rest, g->n_rows, y, cols, true);
    }
    f->ops->silu_mul(x, x, y, g->n_rows * cols);
    for (uint32_t r = 0; r < g->n_rows; r++) {
        size_t at = begin * PACKED_ROWS / PACKED_COLS + (size_t)r * ACT_BLOCKS(f->hp.n_ff);
        quantise_pair(f->ops, sc->act_ff + at, rest_row(g, false, sc->rest_ff, at),
                      x + (size_t)r * cols, cols);
    }
}

static void gate_up_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    const struct gate_up *u = ctx;
    uint32_t n_groups = u->g->lw->m[LAYER_GATE].n_groups;
    uint32_t begin = tile * u->groups_per_tile, end = begin + u->groups_per_tile;
    end = end < n_groups ? end : n_groups;
    for (uint32_t n; begin < end; begin += n) {
        n = end - begin < u->groups_per_chunk ? end - begin : u->groups_per_chunk;
        gate_up_chunk(u->g, begin, n, thread);
    }
}

static void run_gate_up(const struct segment *g)
{
    const struct forward *f = g->f;
    const struct packed_matrix *gate = &g->lw->m[LAYER_GATE];
    struct gate_up u = {
        .g = g,
        .groups_per_tile = groups_per_tile(f, gate, gate->n_groups, 2 * g->n_rows),
        .groups_per_chunk = (uint32_t)(f->scratch.n_inner / g->n_rows / PACKED_ROWS) & ~1u,
    };
    pool_run(f->pool, gate_up_tile, &u,
             (gate->n_groups + u.groups_per_tile - 1) / u.groups_per_tile);
}

/* ---- a layer ---- */

static void attention_half(const struct segment *g)
{
    const struct forward *f = g->f;
    const struct scratch *sc = &f->scratch;
    size_t q = (size_t)f->hp.n_heads * f->hp.head_dim,
           kv = (size_t)f->hp.n_kv_heads * f->hp.head_dim;
    void *ctx = (void *)g;
    pool_run(f->pool, attn_norm_tile, ctx, row_tiles(g->n_rows));
    run_products(&(struct products){
        .f = f,
        .n = 3,
        .act = sc->act,
        .rest = rest_of(g, true, sc->rest),
        .rest_from = rest_of(g, false, sc->rest) != NULL ? 0 : 2, /* else V alone */
        .n_rows = g->n_rows,
        .list = {{&g->lw->m[LAYER_Q], sc->q, q},
                 {&g->lw->m[LAYER_K], sc->k, kv},
                 {&g->lw->m[LAYER_V], sc->v, kv}},
    });
    pool_run(f->pool, rope_store_tile, ctx, sc->n_pieces);
    forward_attention(f, g->s, g->layer);
    pool_run(f->pool, quantise_att_tile, ctx, row_tiles(g->n_rows));
    run_products(&(struct products){
        .f = f,
        .n = 1,
        .act = sc->act,
        .rest = rest_of(g, false, sc->rest),
        .n_rows = g->n_rows,
        .add = true,
        .list = {{&g->lw->m[LAYER_O], g->w->x, f->hp.n_embd}},
    });
}

static void feed_forward_half(const struct segment *g)
{
    const struct forward *f = g->f;
    void *ctx = (void *)g;
    pool_run(f->pool, ffn_norm_tile, ctx, row_tiles(g->n_rows));
    run_gate_up(g);
    run_products(&(struct products){
        .f = f,
        .n = 1,
        .act = f->scratch.act_ff,
        .rest = rest_of(g, false, f->scratch.rest_ff),
        .n_rows = g->n_rows,
        .add = true,
        .list = {{&g->lw->m[LAYER_DOWN], g->w->x, f->hp.n_embd}},
    });
}

/* Final norm of the wanted rows, kept in the slot for the head and for HIDDEN rows. */
static void final_norm_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct segment *g = ctx;
    const struct forward *f = g->f;
    uint32_t d = f->hp.n_embd;
    for (uint32_t r = tile * TILE_ROWS; r < row_end(tile, g->n_rows); r++) {
        uint32_t o = g->s->plan.token_out[g->w->row_token[r]];
        if (o == PLAN_NO_OUT)
            continue;
        float *hidden = g->w->hidden + (size_t)o * d;
        f->ops->rmsnorm(hidden, g->w->x + (size_t)r * d, f->weights.norm, d, f->hp.rms_eps);
        f->ops->quantise(g->w->head_act + (size_t)o * ACT_BLOCKS(d), hidden, d);
    }
}

void forward_layer(struct forward *f, struct step_slot *s, uint32_t layer)
{
    struct slot_work *w = s->own;
    if (layer == 0)
        slot_work_begin(w, s);
    else
        slot_work_compact(w, s, f->hp.n_embd);
    struct segment g = {
        .f = f,
        .s = s,
        .w = w,
        .lw = &f->weights.layers[layer],
        .layer = layer,
        .n_rows = w->n_rows,
    };
    assert(g.n_rows > 0);
    scratch_cut(&f->scratch, w, &s->plan);
    if (layer == 0)
        pool_run(f->pool, embed_tile, &g, row_tiles(g.n_rows));
    attention_half(&g);
    feed_forward_half(&g);
    if (layer + 1 == f->hp.n_layers && s->plan.n_outs > 0)
        pool_run(f->pool, final_norm_tile, &g, row_tiles(g.n_rows));
}

/* ---- the head ---- */

struct head {
    const struct forward *f;
    const struct step_slot *s;
    uint32_t begin, end, groups_per_tile;
};

static bool out_live(const struct step_slot *s, uint32_t o)
{
    return s->plan.outs[o].logits && !s->dropped[s->plan.outs[o].span];
}

/* One product per run of outputs that want logits: without drops and HIDDEN rows that is one. */
static void head_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    (void)thread;
    const struct head *h = ctx;
    const struct forward *f = h->f;
    const struct slot_work *w = h->s->own;
    uint32_t begin = h->begin + tile * h->groups_per_tile, end = begin + h->groups_per_tile;
    if (end > h->end)
        end = h->end;
    for (uint32_t o = 0; o < h->s->plan.n_outs;) {
        uint32_t n = 0;
        while (o + n < h->s->plan.n_outs && out_live(h->s, o + n))
            n++;
        if (n > 0)
            f->ops->matmul(&f->weights.head, begin, end,
                           w->head_act + (size_t)o * ACT_BLOCKS(f->hp.n_embd), n,
                           w->logits + (size_t)o * f->hp.n_vocab, f->hp.n_vocab, false);
        o += n + 1;
    }
}

static void result_tile(void *ctx, uint32_t tile, uint32_t thread)
{
    const struct head *h = ctx;
    const struct plan *p = &h->s->plan;
    const struct engine_row *row = &p->rows[tile];
    struct sample_result *out = &h->s->results[tile];
    const struct slot_work *w = h->s->own;
    const float *logits = w->logits + (size_t)p->row_out[tile] * h->f->hp.n_vocab;
    struct sampler *sampler = &h->f->samplers[thread];
    memset(out, 0, sizeof *out);
    if (h->s->dropped[row->span])
        return;
    if (row->kind == ENGINE_ROW_SAMPLE)
        sampler_sample(sampler, logits, &row->params, row->logprob, row->n_top, out);
    else if (row->kind == ENGINE_ROW_SCORE)
        sampler_score(sampler, logits, row->target, row->n_top, out);
}

void forward_slice(struct forward *f, struct step_slot *s, uint32_t slice, bool last)
{
    const struct packed_matrix *m = &f->weights.head;
    uint32_t groups = f->slice_rows / PACKED_ROWS;
    struct head h = {.f = f, .s = s, .begin = slice * groups, .end = (slice + 1) * groups};
    if (h.end > m->n_groups)
        h.end = m->n_groups;
    h.groups_per_tile = groups_per_tile(f, m, h.end - h.begin, s->plan.n_outs);
    pool_run(f->pool, head_tile, &h, (h.end - h.begin + h.groups_per_tile - 1) / h.groups_per_tile);
    if (last)
        pool_run(f->pool, result_tile, &h, s->plan.n_rows);
}
