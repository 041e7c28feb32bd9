#include "worker/engine/cpu/step_slot.h"

#include "base/mem.h"
#include "worker/engine/step/carve.h"

#include <string.h>
#include <sys/mman.h>

/* Floats of gate and of up a tile works on at least: all groups of a tile of one row at once. */
#define INNER_MIN 8192

static void carve_slot(struct slot_work *w, const struct work_caps *k, struct carve *c)
{
    w->x = carve_take(c, (size_t)k->max_tokens * k->n_embd, sizeof *w->x);
    w->row_token = carve_take(c, k->max_tokens, sizeof *w->row_token);
    w->row_span = carve_take(c, k->max_tokens, sizeof *w->row_span);
    w->hidden = carve_take(c, (size_t)k->max_rows * k->n_embd, sizeof *w->hidden);
    w->head_act = carve_take(c, (size_t)k->max_rows * ACT_BLOCKS(k->n_embd), sizeof *w->head_act);
    w->logits = carve_take(c, (size_t)k->max_rows * k->n_vocab, sizeof *w->logits);
}

int slot_work_init(struct slot_work *w, const struct work_caps *k, struct err *e)
{
    memset(w, 0, sizeof *w);
    struct carve c = {0};
    carve_slot(w, k, &c);
    w->map_bytes = c.used;
    w->map = mem_map(c.used);
    if (w->map == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for a step's rows (%zu bytes)", c.used);
    c = (struct carve){.base = w->map};
    carve_slot(w, k, &c);
    return 0;
}

void slot_work_deinit(struct slot_work *w)
{
    if (w->map != NULL)
        mem_unmap(w->map, w->map_bytes);
    memset(w, 0, sizeof *w);
}

void slot_work_begin(struct slot_work *w, const struct step_slot *s)
{
    w->n_rows = 0;
    w->n_live_seen = s->n_live;
    for (uint32_t j = 0; j < s->plan.n_spans; j++)
        for (uint32_t i = 0; !s->dropped[j] && i < s->plan.spans[j].n; i++) {
            w->row_token[w->n_rows] = s->plan.first[j] + i;
            w->row_span[w->n_rows++] = j;
        }
}

void slot_work_compact(struct slot_work *w, const struct step_slot *s, uint32_t n_embd)
{
    if (w->n_live_seen == s->n_live)
        return;
    w->n_live_seen = s->n_live;
    uint32_t to = 0;
    for (uint32_t from = 0; from < w->n_rows; from++) {
        if (s->dropped[w->row_span[from]])
            continue;
        if (to != from)
            memcpy(w->x + (size_t)to * n_embd, w->x + (size_t)from * n_embd, n_embd * sizeof *w->x);
        w->row_token[to] = w->row_token[from];
        w->row_span[to++] = w->row_span[from];
    }
    w->n_rows = to;
}

/* As many positions as fill a tile of the attention (ATTENTION_ROWS) with their heads. */
static uint32_t piece_rows(const struct work_caps *k)
{
    uint32_t rows = 96 / (k->n_heads / k->n_kv_heads) / PIECE_ROWS * PIECE_ROWS;
    return rows > PIECE_ROWS ? rows : PIECE_ROWS;
}

static void carve_parts(struct scratch *sc, const struct work_caps *k, struct carve *c)
{
    size_t splits = (k->n_ctx + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT;
    size_t one = splits * (k->n_heads / k->n_kv_heads) * ATTENTION_PARTIAL(k->head_dim);
    sc->piece_rows = piece_rows(k);
    sc->max_parts = PARTS_PER_THREAD * k->n_threads;
    sc->n_partials = one * sc->max_parts / 2;
    if (sc->n_partials > (size_t)PARTIALS_MAX * k->n_threads)
        sc->n_partials = (size_t)PARTIALS_MAX * k->n_threads;
    if (k->n_threads == 1)
        sc->n_partials = 0; /* nobody to share with */
    sc->parts = carve_take(c, sc->max_parts, sizeof *sc->parts);
    sc->joins = carve_take(c, sc->max_parts, sizeof *sc->joins);
    sc->partials = carve_take(c, sc->n_partials, sizeof *sc->partials);
}

static void carve_scratch(struct scratch *sc, const struct work_caps *k, struct carve *c)
{
    size_t rows = k->max_tokens, q = (size_t)k->n_heads * k->head_dim,
           kv = (size_t)k->n_kv_heads * k->head_dim;
    size_t widest = q > k->n_embd ? q : k->n_embd;
    sc->n_inner = rows * 2 * PACKED_ROWS > INNER_MIN ? rows * 2 * PACKED_ROWS : INNER_MIN;
    sc->act = carve_take(c, rows * ACT_BLOCKS((uint32_t)widest), sizeof *sc->act);
    sc->q = carve_take(c, rows * q, sizeof *sc->q);
    sc->k = carve_take(c, rows * kv, sizeof *sc->k);
    sc->v = carve_take(c, rows * kv, sizeof *sc->v);
    sc->att = carve_take(c, rows * q, sizeof *sc->att);
    sc->act_ff = carve_take(c, rows * ACT_BLOCKS(k->n_ff), sizeof *sc->act_ff);
    if (k->precise) {
        sc->rest = carve_take(c, rows * ACT_BLOCKS((uint32_t)widest), sizeof *sc->rest);
        sc->rest_ff = carve_take(c, rows * ACT_BLOCKS(k->n_ff), sizeof *sc->rest_ff);
    }
    sc->gate = carve_take(c, k->n_threads * sc->n_inner, sizeof *sc->gate);
    sc->up = carve_take(c, k->n_threads * sc->n_inner, sizeof *sc->up);
    sc->norm = carve_take(c, (size_t)k->n_threads * ((k->n_embd + 15) & ~15u), sizeof *sc->norm);
    sc->pieces = carve_take(c, rows, sizeof *sc->pieces);
    carve_parts(sc, k, c);
}

int scratch_init(struct scratch *sc, const struct work_caps *k, struct err *e)
{
    memset(sc, 0, sizeof *sc);
    struct carve c = {0};
    carve_scratch(sc, k, &c);
    sc->map_bytes = c.used;
    sc->map = mem_map(c.used);
    if (sc->map == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the engine's workspace (%zu bytes)",
                       c.used);
    madvise(sc->map, sc->map_bytes, MADV_HUGEPAGE); /* all of it is written at open anyway */
    c = (struct carve){.base = sc->map};
    carve_scratch(sc, k, &c);
    return 0;
}

void scratch_deinit(struct scratch *sc)
{
    if (sc->map != NULL)
        mem_unmap(sc->map, sc->map_bytes);
    memset(sc, 0, sizeof *sc);
}

void scratch_cut(struct scratch *sc, const struct slot_work *w, const struct plan *p)
{
    sc->n_pieces = 0;
    for (uint32_t row = 0; row < w->n_rows;) {
        uint32_t span = w->row_span[row], n = 1;
        while (n < sc->piece_rows && row + n < w->n_rows && w->row_span[row + n] == span)
            n++;
        uint32_t pos = p->spans[span].pos + w->row_token[row] - p->first[span];
        sc->pieces[sc->n_pieces++] = (struct piece){.span = span, .row = row, .n = n, .pos = pos};
        row += n;
    }
}
