/* weights.h - a model's tensors packed for the kernels, once, at open.
 *
 * One mapping holds every packed matrix (huge pages where the system gives them); a tied head is
 * the token embedding itself and the file's pages are given back after packing, so no weight is in
 * memory twice. Norms are copied. Packing runs over row groups on the thread pool. Ownership:
 * weights_init maps, weights_deinit unmaps. Read-only afterwards, any thread.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_WEIGHTS_H
#define SLUICE_WORKER_ENGINE_CPU_WEIGHTS_H

#include "model/model.h"
#include "worker/engine/cpu/packed_matrix.h"
#include "worker/engine/cpu/pool.h"
#include "worker/engine/cpu/rope_table.h"

enum layer_matrix {
    LAYER_Q,
    LAYER_K,
    LAYER_V,
    LAYER_O,
    LAYER_GATE,
    LAYER_UP,
    LAYER_DOWN,
    LAYER_MATRICES
};

struct layer_weights {
    struct packed_matrix m[LAYER_MATRICES];
    const float *attn_norm, *ffn_norm;
};

struct weights {
    struct layer_weights *layers;
    uint32_t n_layers;
    struct packed_matrix embd;
    struct packed_matrix head; /* shares embd's bytes when tied */
    const float *norm;
    struct rope_table rope;
    void *map;
    size_t map_bytes;
};

int weights_init(struct weights *w, const struct model *m, struct pool *pool, struct err *e);
void weights_deinit(struct weights *w);

#endif
